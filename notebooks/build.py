"""Run the notebooks. Each notebook is a script with ``# %%`` cells and the executed ``.ipynb`` made from it.

``python notebooks/build.py`` runs all notebooks, ``python notebooks/build.py first_model`` runs one. Edit and review
the scripts; the ``.ipynb`` are for reading.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
# The warning about missing notebook progress bars is not relevant here.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
SCRIPTS = sorted(path for path in HERE.glob("*.py") if path.name != "build.py")


def cells(script: str) -> nbformat.NotebookNode:
    """Convert a script to a notebook: ``# %%`` starts a code cell, ``# %% [markdown]`` a text cell with ``#`` lines.

    ``# %% alt: TEXT`` starts a code cell whose picture is described by the text, for readers who cannot see it.
    """
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    parts = re.split(r"^# %%(.*)$", script, flags=re.MULTILINE)
    for i, (kind, body) in enumerate(zip(parts[1::2], parts[2::2], strict=True)):
        text = body.strip("\n")
        if "[markdown]" in kind:
            text = "\n".join(re.sub(r"^# ?", "", line) for line in text.splitlines())
            cell = nbformat.v4.new_markdown_cell(text)
        else:
            cell = nbformat.v4.new_code_cell(text)
            if kind.strip().startswith("alt:"):
                cell.metadata["alt"] = kind.strip().removeprefix("alt:").strip()
        cell["id"] = f"cell-{i}"  # the same at every build
        notebook.cells.append(cell)
    return notebook


def build(script: Path, folder: Path) -> Path:
    """Execute one script as a notebook and write the ``.ipynb`` file."""
    notebook = cells(script.read_text())
    NotebookClient(notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # contains times of day
        outputs = cell.get("outputs", [])
        # Warnings and logs would contain file names of the computer that ran the notebook.
        errors = "".join(output["text"] for output in outputs if output.get("name") == "stderr")
        errors = re.sub(r"^bsvr_pp: compiling .*\n", "", errors, flags=re.MULTILINE)
        assert not errors, f"{script.name} writes to stderr: {errors[:400]}"
        outputs[:] = [output for output in outputs if output.get("name") != "stderr"]
    out = folder / f"{script.stem}.ipynb"
    nbformat.write(notebook, out)
    return out


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for script in SCRIPTS:
        if not wanted or script.stem in wanted:
            print(build(script, HERE), flush=True)

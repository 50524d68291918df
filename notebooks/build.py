"""Run the notebooks: each is a script with ``# %%`` cells here, and an executed ``.ipynb`` beside it.

``python notebooks/build.py`` runs all, ``python notebooks/build.py first_model`` one. Scripts are what is edited
and reviewed; the ``.ipynb`` are what is read.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
# Progress bars of the notebook kind are optional, and so is encryption on the machine itself.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
SCRIPTS = sorted(path for path in HERE.glob("*.py") if path.name != "build.py")


def cells(script: str) -> nbformat.NotebookNode:
    """The notebook of a script: ``# %%`` begins code, ``# %% [markdown]`` text, whose lines begin with ``#``."""
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
        cell["id"] = f"cell-{i}"  # the same at every build
        notebook.cells.append(cell)
    return notebook


def build(script: Path, folder: Path) -> Path:
    """Execute one script as a notebook, and write it."""
    notebook = cells(script.read_text())
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", []):
            # Warnings and logs name files of the machine that ran it.
            assert output.get("name") != "stderr", f"{script.name} writes to stderr: {output['text'][:400]}"
    out = folder / f"{script.stem}.ipynb"
    nbformat.write(notebook, out)
    return out


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for script in SCRIPTS:
        if not wanted or script.stem in wanted:
            print(build(script, HERE), flush=True)

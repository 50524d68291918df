"""Run the examples of a page one after the other: the site shows what they print, and the tests run them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from html import escape
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "outputs"  # made once for the text of a page; `make clean` removes them
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
LONGEST = 40  # lines of an output

# Commands that are shown and not run, and why.
NOT_RUN = {
    "$ bsvr-pp compare houses.csv --target price": "NUTS takes minutes; how-to/csv.md runs it without",
    "$ make compare": "sets up an environment",
    '$ export NUMBA_CACHE_DIR="$SCRATCH/numba"': "changes the environment of the tests",
    '$ export PYTENSOR_FLAGS="base_compiledir=$SCRATCH/pytensor"': "changes the environment of the tests",
    "$ dask scheduler": "runs until it is stopped",
    "$ dask worker tcp://10.0.0.1:8786 --nworkers 4 --nthreads 1": "needs the scheduler",
    "$ make docs": "sets up an environment; a test builds the site",
    "$ pip install .": "installs the package",
}
# What only some installations have: a page is run up to the block that needs it.
OPTIONAL = {
    "from dask.distributed import": "distributed",
    "-o model/": "pyarrow",
    "from mapie": "mapie",
    "from bsvr_pp.integrations.botorch": "botorch",
    "from bsvr_pp.integrations.skpro": "skpro",
    "from sktime": "sktime",
    "import optuna": "optuna",
    "import shap": "shap",
}


class NotInstalled(ImportError):
    """An example needs a library that is not installed."""


def examples(text: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page that are run."""
    return [(language, block) for language, block in FENCE.findall(text) if language in ("python", "console")]


def outputs(text: str, name: str) -> Iterator[str]:
    """Run the examples of a page in the current folder, and yield what each prints.

    Before a block that needs a library which is not installed, `NotInstalled` names it.
    """
    namespace: dict[str, object] = {}
    for language, block in examples(text):
        for start, needed in OPTIONAL.items():
            if start in block and find_spec(needed) is None:
                raise NotInstalled(needed)
        printed = StringIO()
        with redirect_stdout(printed):
            if language == "python":
                exec(compile(block, name, "exec"), namespace)
            else:
                print("".join(_run_command(line) for line in block.splitlines()), end="")
        yield printed.getvalue()


def _run_command(line: str) -> str:
    from typer.testing import CliRunner

    from bsvr_pp.cli import app

    if line in NOT_RUN:
        return ""
    assert line.startswith("$ bsvr-pp "), f"{line!r} is neither a command of the package nor among those not run"
    run = CliRunner().invoke(app, line.split()[2:])
    assert run.exit_code == 0, run.output
    return run.stdout


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Add what the examples of a page print below each of them, if BSVR_PP_OUTPUTS is 1."""
    path = page.file.abs_src_path
    if os.environ.get("BSVR_PP_OUTPUTS") != "1" or path is None or not Path(path).is_relative_to(ROOT / "docs"):
        return markdown
    text = Path(path).read_text()
    found = iter(_kept_outputs(text, path) if examples(text) else [])

    def with_output(block: re.Match[str]) -> str:
        lines = next(found, "").rstrip().splitlines() if block[1] in ("python", "console") else []
        shown = lines if len(lines) <= LONGEST else [*lines[: LONGEST - 1], "..."]
        return block[0] + ('\n\n<pre class="output">' + escape("\n".join(shown)) + "</pre>\n" if shown else "")

    return FENCE.sub(with_output, markdown)


def _kept_outputs(text: str, path: str) -> list[str]:
    key = hashlib.sha256(json.dumps(examples(text)).encode()).hexdigest()
    kept = KEPT / f"{Path(path).stem}-{key[:16]}.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        print(f"Running the examples of {Path(path).relative_to(ROOT)}", file=sys.stderr)
        known = {"MPLBACKEND": "agg", "BSVR_PP_DATA": str(ROOT / os.environ.get("BSVR_PP_DATA", "../shared/data"))}
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, __file__, path, kept], cwd=folder, env=os.environ | known, check=True)
    return [str(each) for each in json.loads(kept.read_text())]


def main(page: str, kept: str) -> None:
    """Write what the examples of a page print, up to one that needs data or a library that are not at hand."""
    found: list[str] = []
    try:
        for printed in outputs(Path(page).read_text(), page):
            found.append(printed)
    except (NotInstalled, FileNotFoundError) as missing:
        print(f"{page}: {missing} is not at hand; outputs end there", file=sys.stderr)
    Path(kept).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

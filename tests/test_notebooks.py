"""The notebooks say what their scripts say, and run."""

import sys
from pathlib import Path

import nbformat
import pytest

from bsvr_pp.datasets import data_folder

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))

from build import SCRIPTS, build, cells  # noqa: E402


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_its_script(script):
    kept = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    made = cells(script.read_text())
    assert [(cell.cell_type, cell.source, cell.metadata.get("alt")) for cell in kept.cells] == [
        (cell.cell_type, cell.source, cell.metadata.get("alt")) for cell in made.cells
    ]
    outputs = [output for cell in kept.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert script.with_suffix(".ipynb").stat().st_size < 300_000
    assert "On your own data" in script.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_runs(script, tmp_path, monkeypatch):
    if "datasets import load" in script.read_text() and not (data_folder() / "crabs.csv").is_file():
        pytest.skip("the papers' data sets are not at hand")
    monkeypatch.setenv("BSVR_PP_DATA", str(data_folder().absolute()))
    assert build(script, tmp_path).exists()

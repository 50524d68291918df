"""The command line: the main job end to end, and one-line errors with exit code 2."""

import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

import bsvr_pp
from bsvr_pp.cli import app
from bsvr_pp.methods import METHODS
from tests.helpers import refuse_command, run_command

RUNNER = CliRunner()
QUICK = ["--kernel", "rbf", "--inference", "mean_field", "--restarts", "1"]


def write(path, rows=25):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = 100 + 20 * np.sin(X[:, 0]) + rng.normal(size=rows)
    pd.DataFrame({"height": X[:, 0], "[width]": X[:, 1], "price": y}).to_csv(path, index=False)


@pytest.mark.parametrize("command", ["compare", "fit", "predict"])
def test_help_is_not_cut_in_eighty_columns(command):
    run = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert run.exit_code == 0 and "…" not in run.output and "`" not in run.output
    assert max(map(len, run.output.splitlines())) <= 80
    if command == "compare":
        assert set(METHODS) <= set(run.output.replace(",", " ").replace(".", " ").split())


def test_compare_writes_table_results_and_pictures(tmp_path):
    write(tmp_path / "houses.csv")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("nuts.nc", "notes.txt"):  # a result of an earlier comparison, which is removed, and another file
        (out / name).touch()
    options = ["--target", "price", "--methods", "map,mean_field", "--out", out]
    run = run_command("compare", tmp_path / "houses.csv", *options)
    assert "20 rows to train on, 5 to test, 2 inputs, target price" in run.output
    assert "lengthscale height" in run.output
    assert "[width]" in run.output
    assert "densities in units of price; evidences, LOO densities and hyperparameters of standardised" in run.output
    assert "Hyperparameters" in run.output and "draws per second" not in run.output
    assert not [line for line in run.output.splitlines() if "…" in line and not line.startswith("  ")]  # progress alone
    names = ("predictive", "hyperparameters", "effects", "calibration", "evidence")
    pictures = {f"{name}.png" for name in names}
    files = {"report.html", "comparison.csv", "map.nc", "mean-field.nc", "notes.txt"}
    assert files | pictures == {file.name for file in out.iterdir()}
    assert run.output.rstrip().endswith(f"The page to read: {out / 'report.html'}")
    page = (out / "report.html").read_text()
    assert page.count("<img ") == len(pictures)
    assert "lengthscale [width]" in page
    (best,) = re.findall(r"Use ([^:]+): no problem was found", page)
    assert best != "MAP" and f"What each input does, by {best}" in page  # the first method has no say
    table = pd.read_csv(out / "comparison.csv", index_col="method")
    assert 0 < table.loc["mean field", "ase"] < 400  # in squared units of the price
    assert xr.open_datatree(out / "mean-field.nc").attrs["inference"] == "mean field"


@pytest.mark.slow
def test_the_built_in_data_with_every_method(tmp_path):
    run = run_command("compare", "--out", tmp_path / "out", "--draws", "100", "--tune", "200")
    assert "NUTS" in run.output


def test_full_nuts_on_many_rows_is_skipped_and_says_how_to_run_it(tmp_path):
    write(tmp_path / "many.csv", rows=200)
    run = RUNNER.invoke(
        app, ["compare", str(tmp_path / "many.csv"), "--methods", "nuts", "--out", str(tmp_path / "out")]
    )
    assert run.exit_code == 2
    assert "no method was run" in run.stderr and "skipped: takes an hour or more" in run.output
    assert "--full-nuts runs it anyway" in run.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("out", [["m.nc"], ["m/", "--blocks", "40"]])
def test_fit_notes_that_rows_are_repeated(tmp_path, out):
    write(tmp_path / "houses.csv", rows=30)
    once, file = pd.read_csv(tmp_path / "houses.csv"), tmp_path / "twice.csv"
    pd.concat([once, once]).to_csv(file, index=False)
    run = run_command("fit", file, "--target", "price", *QUICK, "-o", f"{tmp_path}/{out[0]}", *out[1:])
    (note,) = [line for line in run.stderr.splitlines() if "repeat others" in line]
    assert note.startswith(f"bsvr-pp: note: {file}: 30 of 60 rows repeat others") and "drop_duplicates()" in note


@pytest.mark.slow
def test_gross_errors_have_the_lines_of_the_file(tmp_path):
    write(tmp_path / "houses.csv", rows=30)
    lines = (tmp_path / "houses.csv").read_text().splitlines()
    lines[8] = lines[8].rsplit(",", 1)[0] + ",90000"
    (tmp_path / "houses.csv").write_text("\n".join([*lines[:3], "", *lines[3:]]))
    run = run_command("fit", tmp_path / "houses.csv", "--target", "price", *QUICK, "-o", tmp_path / "m.nc")
    assert "set aside: rows 10 (" in " ".join(run.output.split())  # as in a message on a cell of this line


@pytest.mark.slow
def test_jobs_are_those_of_the_prediction_also_for_a_model_in_a_file(tmp_path, monkeypatch):
    write(tmp_path / "houses.csv", rows=40)
    options = ["--target", "price", *QUICK, "--blocks", "20", "-o", tmp_path / "m.nc"]
    run_command("fit", tmp_path / "houses.csv", *options)
    seen, threads = [], bsvr_pp.LocalBlocks.threads
    monkeypatch.setattr(bsvr_pp.LocalBlocks, "threads", lambda self: seen.append(self.n_jobs) or threads(self))
    run_command("predict", tmp_path / "m.nc", tmp_path / "houses.csv", "-o", tmp_path / "p.csv", "--jobs", "1")
    assert set(seen) == {1}


def test_a_fitted_model_is_saved_and_predicts(tmp_path):
    write(tmp_path / "houses.csv", rows=30)
    model, out = tmp_path / "houses.nc", tmp_path / "predictions.csv"
    run = run_command("fit", tmp_path / "houses.csv", "--target", "price", "--inference", "mean_field", "-o", model)
    assert "lengthscale [width]" in run.output and "support vectors" in run.output
    assert "repeat others" not in run.stderr
    table = pd.read_csv(tmp_path / "houses.csv")
    table[["[width]", "height"]].head(5).to_csv(tmp_path / "new.csv", index=False)  # in another order, no price
    arguments = ["predict", str(model), str(tmp_path / "new.csv"), "-o", str(out), "--coverage", "0.8"]
    run = run_command(*arguments)
    found = pd.read_csv(out)
    machine = bsvr_pp.BayesianSVR(inference="mean_field", random_state=0)
    machine.fit(table[["height", "[width]"]].values, table["price"].values)
    np.testing.assert_allclose(found["price"], machine.predict(table[["height", "[width]"]].values[:5]), rtol=1e-6)
    assert (found["lower 80 %"] < found["price"]).all() and (found["price"] < found["upper 80 %"]).all()
    for wrong, message in (
        ([str(model), str(tmp_path / "none.csv")], "there is no such file"),
        ([str(tmp_path / "houses.csv"), str(tmp_path / "new.csv")], "is not a saved model"),
        ([*arguments[1:], "--coverage", "1"], "--coverage must lie strictly between 0 and 1, got 1.0"),
        ([*arguments[1:], "-o", "p.xlsx"], "--out must end with .csv, .txt, .parquet or .pq, got p.xlsx"),
        ([*arguments[1:], "--neighbours", "5"], "--neighbours is for a model in blocks, got the dense one of "),
    ):
        assert message in refuse_command("predict", *wrong)


@pytest.mark.parametrize(
    ("command", "place", "message"),
    [
        (["compare"], "houses.csv/out", "--out must lie in a folder, and"),
        (["compare"], "/proc/none/out", "--out cannot be written to /proc/none/out: "),
        (["fit"], "/proc/none.nc", "--out cannot be written to /proc/none.nc: "),
        (["fit"], "/dev/full", "--out must be a file, got the device /dev/full"),
        (["predict", "none.nc"], "/proc/none.csv", "--out cannot be written to /proc/none.csv: "),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, command, place, message):
    """In /proc nobody can make a file, root included."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "houses.csv")
    assert message in refuse_command(*command, "houses.csv", "--out", place)
    assert {file.name for file in tmp_path.iterdir()} == {"houses.csv"}


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_a_line_and_what_was_written_stays(tmp_path, monkeypatch):
    """It fills up after the first method."""
    write(tmp_path / "houses.csv")
    out = tmp_path / "out"

    def sync(_):
        if (out / "map.nc").exists():
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("bsvr_pp.core.atomic_write.os.fsync", sync)
    run = RUNNER.invoke(app, ["compare", str(tmp_path / "houses.csv"), "--methods", "map,laplace", "--out", str(out)])
    assert run.exit_code == 2
    assert "lengthscale height" in run.output  # the table is printed all the same
    lines = run.stderr.strip().splitlines()
    assert all("cannot be written: No space left on device; what was written before stays" in line for line in lines)
    assert len(lines) == 1
    assert [file.name for file in out.iterdir()] == ["map.nc"]
    assert bsvr_pp.load(out / "map.nc").attrs["inference"] == "MAP"
    refuse_command("fit", tmp_path / "houses.csv", "-o", out / "model.nc")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("350 requested and 203 written")])
def test_a_disk_that_fills_up_costs_a_line_of_a_fit_into_a_folder_and_of_a_solve(tmp_path, monkeypatch, error):
    """After the check before the fit."""
    write(tmp_path / "houses.csv")

    def full(*_):
        if (tmp_path / "model" / "work").exists():
            raise error

    monkeypatch.setattr("bsvr_pp.core.atomic_write.os.fsync", full)
    said = refuse_command("fit", tmp_path / "houses.csv", *QUICK, "--blocks", "12", "-o", f"{tmp_path}/model/")
    assert said == f"bsvr-pp: {tmp_path}/model/ cannot be written: {error}\n"
    stub = SimpleNamespace(_local=lambda: bsvr_pp.LocalBlocks(12), solve=full)
    monkeypatch.setattr(bsvr_pp, "FolderModel", lambda _: stub)
    assert refuse_command("solve", tmp_path / "model") == f"bsvr-pp: {tmp_path}/model cannot be written: {error}\n"


def test_a_damaged_model_is_named_in_one_line(tmp_path):
    write(tmp_path / "houses.csv", rows=15)
    model, out, contents = tmp_path / "model.nc", tmp_path / "predictions.csv", [b""]
    for attributes in ({"recipe": "{}"}, {"inference": "mean field"}):
        bsvr_pp.save(xr.DataTree(xr.Dataset({"C": 1.0}, attrs=attributes)), model)
        contents += [model.read_bytes(), model.read_bytes()[:-50]]
    for content in contents:
        model.write_bytes(content)
        assert "model.nc" in refuse_command("predict", model, tmp_path / "houses.csv", "-o", out)
    assert not out.exists()


def test_the_example_is_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_command("example")
    houses, new = pd.read_csv("houses.csv"), pd.read_csv("new.csv")
    assert list(houses) == [*new, "price"] and (len(houses), len(new)) == (200, 5)
    (tmp_path / "houses.csv").unlink()
    assert "new.csv exists" in refuse_command("example")
    assert not (tmp_path / "houses.csv").exists()


@pytest.mark.slow
def test_the_wrong_prices_of_the_example_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_command("example")
    houses = pd.read_csv("houses.csv")
    svr = bsvr_pp.BayesianSVR(restarts=1, inference="mean_field").fit(houses.drop(columns="price"), houses["price"])
    assert svr.outliers_.tolist() == np.flatnonzero(houses["price"] > 1000).tolist() and svr.outliers_.size == 6


def test_version():
    run = RUNNER.invoke(app, ["--version"])
    assert run.output.strip() == bsvr_pp.__version__


def test_help_loads_no_compiler_and_no_tables():
    """Which take most of the time of a start."""
    slow = ("matplotlib", "numba", "numpy", "pandas", "pymc", "pytensor", "sklearn", "xarray")
    code = f"import sys, bsvr_pp.cli; print([name for name in {slow} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

"""The runner of the papers' experiments: the list, the tables, what is kept, and one-line errors."""

import subprocess
import sys
from pathlib import Path

import experiments
import pandas as pd
import pytest
from experiments import Job, find_experiments, summarize
from reproduce import app
from typer.testing import CliRunner

RUNNER = CliRunner()
TINY = '''"""A tiny experiment: doubles, beside the printed ones."""

import pandas as pd
from matplotlib import pyplot as plt

from experiments import Report, Table, summarize

MINUTES = (0.1, 600)


def double(n, seed):
    with open("calls.txt", "a") as file:
        file.write("x")
    return {"n": n, "value": 2.0 * n + seed}


def run(job):
    settings = [{"n": n, "seed": job.seed + s} for n in (1, 2) for s in range(2 if job.quick else 3)]
    paper = pd.DataFrame({"value": [2.5, 4.25]}, index=pd.Index([1, 2], name="n"))
    table = Table("table-1", "Doubles", summarize(job.each(double, settings), "n", paper), "A note.")
    figure, _ = plt.subplots()
    return Report([table], {"figure": figure})
'''
BROKEN = '''"""An experiment without its data."""

from bsvr_pp.datasets import load

MINUTES = (1, 2)


def run(job):
    load("no_such_data")
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    models = tmp_path / "models"
    models.mkdir()
    (models / "tiny_doubles.py").write_text(TINY)
    (models / "shared.py").write_text("VALUE = 1\n")  # no experiment
    found = find_experiments(models)
    monkeypatch.setattr("reproduce.find_experiments", lambda: found)
    monkeypatch.setenv("BSVR_PP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_names_what_there_is_and_how_long_it_takes(folder):
    run = RUNNER.invoke(app, ["--list"])
    assert run.exit_code == 0, run.output
    assert "tiny-doubles" in run.output and "doubles, beside" in run.output and "10 h" in run.output
    assert "shared" not in run.output
    assert not (folder / "calls.txt").exists()


def test_tables_stand_beside_the_papers_and_are_written(folder):
    run = RUNNER.invoke(app, ["tiny-doubles", "--quick", "--seed", "1", "--out", "out"])
    assert run.exit_code == 0, run.output
    assert "3.5 ± 0.71 [2.5]" in run.output and "A note." in run.output
    frame = pd.read_csv(folder / "out" / "tiny-doubles-table-1.csv", index_col="n")
    assert frame.loc[2].to_dict() == {"value": 5.5, "value sd": pytest.approx(0.5**0.5), "value paper": 4.25}
    assert (folder / "out" / "tiny-doubles-figure.png").stat().st_size > 1000


def test_finished_parts_are_kept_and_an_interrupted_run_goes_on(folder):
    RUNNER.invoke(app, ["tiny", "--quick"])
    assert len((folder / "calls.txt").read_text()) == 4
    RUNNER.invoke(app, [])  # all of it: the third seed is new
    assert len((folder / "calls.txt").read_text()) == 6
    kept = sorted((folder / "cache").rglob("*.pkl"))
    kept[0].write_bytes(b"")  # half written
    kept[1].unlink()
    RUNNER.invoke(app, [])
    assert len((folder / "calls.txt").read_text()) == 8
    run = RUNNER.invoke(app, ["--fresh"])
    assert run.exit_code == 0, run.output
    assert len((folder / "calls.txt").read_text()) == 14


@pytest.mark.filterwarnings("ignore:Possible name collisions")  # joblib, about the two functions of one name
def test_a_part_is_computed_anew_when_settings_code_or_version_change(tmp_path, monkeypatch):
    calls = []

    def part(n):
        calls.append(n)
        return n

    job = Job("parts", quick=True, seed=0, cache=tmp_path, progressbar=False)
    assert job.each(part, [{"n": 1}, {"n": 1}, {"n": 2}]) == [1, 1, 2]
    assert calls == [1, 2]

    def part(n):
        calls.append(-n)
        return -n

    assert job.each(part, [{"n": 1}]) == [-1]
    monkeypatch.setattr(experiments, "__version__", "9.9")
    job.each(part, [{"n": 1}])
    assert calls == [1, 2, -1, -1]


def test_the_command_of_the_page_runs_from_the_root():
    root = Path(experiments.__file__).parent.parent
    command = [sys.executable, "models/reproduce.py", "--list"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert run.returncode == 0 and "svm-probabilities" in run.stdout, run.stderr


def test_missing_data_do_not_stop_the_other_experiments(folder, monkeypatch):
    (folder / "models" / "a_broken.py").write_text(BROKEN)
    found = find_experiments(folder / "models")
    monkeypatch.setattr("reproduce.find_experiments", lambda: found)
    run = RUNNER.invoke(app, [])
    assert run.exit_code == 2
    assert "set BSVR_PP_DATA" in run.stderr and run.stderr.strip().count("\n") == 0
    assert (folder / "bsvr-pp-reproduction" / "tiny-doubles-table-1.csv").is_file()


def test_summarize_takes_several_columns_to_name_a_row():
    rows = [{"n": 1, "b": 0.1, "x": v} for v in (1.0, 3.0)]
    assert summarize(rows, ["n", "b"]).loc[(1, 0.1)].to_dict() == {"x": 2.0, "x sd": pytest.approx(2**0.5)}
    assert list(summarize(rows[:1], "n").columns) == ["b", "x"]  # one seed has no spread

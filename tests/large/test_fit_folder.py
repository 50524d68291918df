"""Fits into folders: the same numbers as in memory, fits that continue, and folders that cannot be used."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators.training_data import as_given
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.large import folder_fit, folder_model, parts
from bsvr_pp.large.folder_model import ARRAYS, POSTERIOR, StoredRows
from tests.helpers import STAGES, climb_fails, wave
from tests.large.conftest import LIMIT, interrupted, kill_a_worker
from tests.signals import interrupt_evidence

NEW = np.linspace(0.5, 11.5, 40)[:, None]


def machine(**options):
    same = {"kernel": "rational_quadratic"}  # which takes less time
    return bp.BayesianSVR(**same | {"blocks": 60, "restarts": 1, "random_state": 0, "outliers": "keep"} | options)


def arrays(folder):
    return {name: (Path(folder) / name).read_bytes() for name in ARRAYS[:-1]}


@pytest.fixture(scope="module", autouse=True)
def small_parts(small):
    small.setattr(folder_fit, "_ROWS", 70)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Inputs and targets on disk."""
    folder = tmp_path_factory.mktemp("data")
    for name, values in zip("Xy", wave(300), strict=True):
        np.save(folder / f"{name}.npy", values)
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy"]


@pytest.fixture(scope="module")
def unsolved(small_parts, data, tmp_path_factory):
    """The folder of a fit whose blocks are not solved, which tests copy."""
    assert isinstance(data[0], np.memmap)
    return bp.fit_folder(machine(), *data, folder=tmp_path_factory.mktemp("fits") / "model").folder


@pytest.fixture(scope="module")
def model(unsolved, tmp_path_factory):
    found = bp.FolderModel(shutil.copytree(unsolved, tmp_path_factory.mktemp("fits") / "model"))
    found.solve()
    return found


@pytest.fixture(scope="module")
def small_blocks(small_parts, data, tmp_path_factory):
    """The folder of a fit in blocks of 20 rows."""
    own = machine(blocks=20, noise_scales=False)
    return bp.fit_folder(own, *data, folder=tmp_path_factory.mktemp("fits") / "model").folder


def test_a_folder_predicts_what_the_estimator_in_memory_predicts(model, data):
    svr = machine().fit(*data)
    for a, b in zip(model.predict(NEW, return_std=True), svr.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.predict_interval(NEW, 0.8), svr.predict_interval(NEW, 0.8), rtol=1e-7)
    model.blocks = svr.blocks = bp.LocalBlocks(60, neighbours=None)
    np.testing.assert_allclose(model.predict_f(NEW), svr.predict_f(NEW), rtol=1e-7, atol=1e-9)
    model.blocks = bp.LocalBlocks(60)
    assert model.log_evidence_ == pytest.approx(svr.log_evidence_, rel=1e-9)
    for name in ("C_", "epsilon_", "beta_", "noise_variance_", "lengthscale_", "relevance_", "scale_", "unit_"):
        np.testing.assert_allclose(getattr(model, name), getattr(svr, name), rtol=1e-7)
    assert model.at_size["kept"] == json.loads(svr.result_.attrs["at_size"])["kept"]
    np.testing.assert_array_equal(np.sort(model.blocks_.sizes), np.sort(svr.blocks_.sizes))
    expected = svr._fit.fitted.posteriors[0].dual_coef
    np.testing.assert_allclose(model.dual_coef_, expected, rtol=1e-5, atol=1e-7)
    assert not (model.folder / "work").exists()
    few = {"values": 5, "rows": 10}
    np.testing.assert_allclose(bp.effect(model, NEW, 0, **few), bp.effect(svr, NEW, 0, **few), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_weights_of_a_folder_are_those_of_its_rows(data, tmp_path):
    """Truth: a solve of the rows of each block, with their weights and in weighted units."""
    weight = np.random.default_rng(0).uniform(0.5, 3.0, 300)
    model = bp.fit_folder(machine(), *data, folder=tmp_path / "model", sample_weight=weight)
    model.solve()
    np.testing.assert_allclose(model.mean_, np.average(data[0], axis=0, weights=weight))
    fit, place = model._fit, np.load(tmp_path / "model/row.npy")
    rows = replace(as_given(fit.units.inputs(data[0]), fit.units.targets(data[1])), weight=weight)
    problem = fit.model.problem(rows)
    parts = [solve_at(problem.take(place[at]), bp.MeanField(), fit.point) for at in model.blocks_]
    evidence = sum(each.log_evidence for each in parts) - weight.sum() * np.log(model.unit_)
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-8)
    with pytest.raises(ValueError, match="has a model of other data or options"):
        bp.fit_folder(machine(), *data, folder=tmp_path / "model")


@pytest.mark.slow
def test_a_folder_takes_the_same_rows_where_most_are_censored(data, tmp_path):
    X, ends = data[0], np.stack([np.minimum(data[1], 0.2), np.where(data[1] < 0.2, data[1], np.inf)], axis=1)
    svr = machine(intervals=True, blocks=bp.LocalBlocks(60, neighbours=24)).fit(X, ends)
    model = bp.fit_folder(svr, X, ends, folder=tmp_path / "model")
    np.testing.assert_allclose(model.predict_f(NEW), svr.predict_f(NEW), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_repeated_rows_are_named(data, tmp_path):
    with pytest.warns(UserWarning, match="75 of 150 rows repeat others, targets included"):
        bp.fit_folder(machine(), *(np.concatenate([each[:75]] * 2) for each in data), folder=tmp_path / "model")


def test_a_copy_predicts_the_same_and_a_table_of_predictions_agrees(model, tmp_path):
    copy = bp.FolderModel(shutil.copytree(model.folder, tmp_path / "copy"))
    np.testing.assert_array_equal(copy.predict(NEW), model.predict(NEW))
    table = copy.predict_table(NEW, 0.8, "wave")
    assert table.columns.tolist() == ["wave", "sd", "lower 80 %", "upper 80 %"]
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_array_equal(table["wave"], mean)
    np.testing.assert_array_equal(table["sd"], std)
    np.testing.assert_array_equal(table.iloc[:, 2:], model.predict_interval(NEW, 0.8))


@pytest.mark.slow
def test_a_prediction_reads_only_the_blocks_that_it_needs(small_blocks, tmp_path, monkeypatch):
    model = bp.FolderModel(shutil.copytree(small_blocks, tmp_path / "model"))
    model.solve()
    read, rows_of = set(), StoredRows.read
    monkeypatch.setattr(StoredRows, "read", lambda self, name, rows: read.update(rows) or rows_of(self, name, rows))
    X = (NEW[:1] - model.mean_) / model.scale_
    own = set(model._stored.of(int(model.blocks_.assign(X)[0])))
    for neighbours, most in ((None, own), (5, 60)):
        model.blocks = bp.LocalBlocks(neighbours=neighbours)
        read.clear()
        model.predict(NEW[:1])
        assert read == own if neighbours is None else 0 < len(read) <= most


@pytest.mark.parametrize("kernel", ["rational_quadratic", pytest.param("linear", marks=pytest.mark.slow)])
def test_the_nearest_rows_are_those_of_all_rows(small_blocks, data, tmp_path, kernel):
    """Also where blocks have fewer rows than are wanted, and where there are fewer rows altogether."""
    model = bp.FolderModel(small_blocks)
    if kernel == "linear":
        own = machine(blocks=20, noise_scales=False, kernel=kernel)
        model = bp.fit_folder(own, *data, folder=tmp_path / "model")
    stored, X = model._stored, (NEW - model.mean_) / model.scale_
    every = stored.of(*range(stored.size.size))
    distance = np.abs(X - stored.read("inputs.npy", every).T)
    for count in (1, 7, 50, 400):
        expected = np.argsort(distance, axis=1)[:, :count]
        np.testing.assert_array_equal(stored.nearest(X, count), every[expected])


@pytest.mark.slow
def test_a_fit_that_is_interrupted_again_and_again_ends_with_the_same_bits(model, data, tmp_path, monkeypatch):
    folder, solve, solved = tmp_path / "model", folder_fit._solve, []

    def refused(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_evidence(patch, 34)  # in the search
        bp.fit_folder(machine(), *data, folder=folder)
    with pytest.raises(ValueError, match="the fit of this model has not ended"):
        bp.FolderModel(folder)
    with pytest.raises(ValueError, match="has files of other data or options"):
        bp.fit_folder(machine(noise="absolute"), *data, folder=folder)
    with monkeypatch.context() as patch:
        patch.setattr(parts, "mean_and_deviation", refused)  # the data are not encoded again
        with interrupted(folder_fit, "_solve", solved, 3):
            bp.fit_folder(machine(), *data, folder=folder)
    with monkeypatch.context() as patch:
        patch.setattr(folder_fit, "search_in_blocks", refused)
        patch.setattr(folder_fit, "_solve", lambda *item: solved.append(item[2]) or solve(*item))
        patch.setattr(folder_fit, "_finish", refused)
        with pytest.raises(KeyboardInterrupt):
            bp.fit_folder(machine(), *data, folder=folder)
    (folder / ".bsvr-pp-killed").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(folder_fit, "_solve", refused)
        again = bp.fit_folder(machine(), *data, folder=folder)
    assert sorted(solved) == list(range(len(model.blocks_)))  # none twice
    assert arrays(again.folder) == arrays(model.folder)
    assert {path.name for path in again.folder.iterdir()} == {*ARRAYS, "model.json"}
    done: list[int] = []
    with interrupted(folder_model, "_solve", done, 2):
        again.solve()
    assert not hasattr(bp.FolderModel(folder), "log_evidence_")
    with monkeypatch.context() as patch:
        patch.setattr(
            folder_model, "_solve", lambda *item, solve=folder_model._solve: done.append(item[2]) or solve(*item)
        )
        bp.FolderModel(folder).solve()
    assert sorted(done) == list(range(len(model.blocks_)))
    for name in POSTERIOR[:2]:
        assert (folder / name).read_bytes() == (model.folder / name).read_bytes()
    assert bp.FolderModel(folder).log_evidence_ == model.log_evidence_
    assert not (folder / "work").exists()


def test_what_needs_the_blocks_names_the_command_that_solves_them(unsolved, tmp_path, monkeypatch):
    model = bp.FolderModel(shutil.copytree(unsolved, tmp_path / "model"))
    assert not hasattr(model, "log_evidence_") and not hasattr(model, "dual_coef_") and model.converged_
    expected = model.predict(NEW)
    for use in (lambda: model.sample_y(NEW), lambda: bp.effect(model, NEW, 0)):
        with pytest.raises(ValueError, match=r"its blocks are not solved.*FolderModel.solve, or bsvr-pp solve"):
            use()
    with pytest.raises(AttributeError, match="bsvr-pp solve"):
        model.log_evidence_  # noqa: B018
    monkeypatch.setattr(model, "blocks", bp.LocalBlocks(60, neighbours=None))
    with pytest.raises(ValueError, match=r"its blocks are not solved"):
        model.predict_into(NEW, tmp_path / "out.csv")
    solve = folder_model._solve
    failing = {"converged": np.array(False)}
    with monkeypatch.context() as patch, pytest.warns(bp.ConvergenceWarning, match="the solves of 5 of 5 blocks"):
        patch.setattr(folder_model, "_solve", lambda *item: solve(*item) | failing)
        model.solve()
    assert not model.converged_ and not bp.FolderModel(model.folder).converged_
    assert model.predict_into(NEW, tmp_path / "out.csv") == 40
    model.blocks = bp.LocalBlocks(60)
    assert np.isfinite(model.log_evidence_) and model.sample_y(NEW).shape == (40, 1)
    np.testing.assert_array_equal(model.predict(NEW), expected)
    (model.folder / "posterior.json").write_text("{}")
    with pytest.raises(ValueError, match=r"posterior\.json: is damaged"):
        bp.FolderModel(model.folder)


@pytest.mark.slow
def test_predictions_of_the_own_block_solve_the_blocks(data, tmp_path):
    own = bp.LocalBlocks(60, neighbours=None)
    model, svr = bp.fit_folder(machine(blocks=own), *data, folder=tmp_path / "model"), machine(blocks=own).fit(*data)
    assert model.neighbours_ is None and hasattr(model, "log_evidence_")
    np.testing.assert_allclose(model.predict_interval(NEW), svr.predict_interval(NEW), rtol=1e-7)


@pytest.mark.slow
def test_mostly_repeated_inputs_are_predicted_from_the_own_block(tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(np.arange(10.0), 18)[:, None]
    data = x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=180)
    model, svr = bp.fit_folder(machine(), *data, folder=tmp_path / "model"), machine().fit(*data)
    assert model.neighbours_ is svr.neighbours_ is None
    np.testing.assert_allclose(model.predict(x[::18] + 0.5), svr.predict(x[::18] + 0.5), rtol=1e-7)


@pytest.mark.slow
def test_a_search_that_did_not_converge_is_said(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.warns(bp.ConvergenceWarning, match="in neighbourhoods: no ascent"):
        climb_fails(patch)
        assert not bp.fit_folder(machine(), *data, folder=tmp_path / "model").converged_
    assert not bp.FolderModel(tmp_path / "model").converged_


def test_a_fit_that_has_ended_is_opened(model, data, monkeypatch):
    monkeypatch.setattr(folder_fit, "search_in_blocks", None)
    again = bp.fit_folder(machine(), *data, folder=model.folder)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    seed = {"random_state": np.random.RandomState(1)}
    for options, others in (({"noise": "absolute"}, data), ({}, (data[0][:200], data[1][:200])), (seed, data)):
        with pytest.raises(ValueError, match="has a model of other data or options"):
            bp.fit_folder(machine(**options), *others, folder=model.folder)


def test_another_file_of_equal_size_and_time_is_refused(tmp_path):
    for place, y in (("one", "12"), ("two", "21")):
        file = tmp_path / place / "a.csv"
        file.parent.mkdir()
        file.write_text("x,y\n" + "".join(f"{x:02d},{y[x % 2]}.{x:02d}\n" for x in range(40)))
        os.utime(file, (1e9, 1e9))
    (tmp_path / "two" / "copy.csv").write_bytes((tmp_path / "one" / "a.csv").read_bytes())
    model = bp.fit_folder(machine(blocks=20), tmp_path / "one" / "a.csv", folder=tmp_path / "model")
    with pytest.raises(ValueError, match="has a model of other data or options"):
        bp.fit_folder(machine(blocks=20), tmp_path / "two" / "a.csv", folder=model.folder)
    again = bp.fit_folder(machine(blocks=20), tmp_path / "two" / "copy.csv", folder=model.folder)
    np.testing.assert_array_equal(again.predict([[3.0]]), model.predict([[3.0]]))


def test_a_fit_of_another_version_is_refused_and_its_model_is_read(model, data, tmp_path, monkeypatch):
    folder = tmp_path / "unfinished"
    with interrupted(folder_fit, "_solve", [], 2):
        bp.fit_folder(machine(), *data, folder=folder)
    begun = folder_fit.__version__
    monkeypatch.setattr(folder_fit, "__version__", "99.0")
    for what, place in (("files", folder), ("a model", model.folder)):
        with pytest.raises(ValueError, match=rf"has {what} of other data or options, by version {begun} of bsvr_pp"):
            bp.fit_folder(machine(), *data, folder=place)
    np.testing.assert_array_equal(bp.FolderModel(model.folder).predict(NEW), model.predict(NEW))


def test_foreign_folders_are_refused(data, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not the folder of a model"):
        bp.FolderModel(tmp_path)
    with pytest.raises(ValueError, match="has files of other data or options"):
        bp.fit_folder(machine(), *data, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_new_inputs_that_cannot_serve(model, tmp_path):
    for X, message in (
        (np.ones((2, 3)), r"X must be an? \(n_new, 1\) array, got shape \(2, 3\)"),
        ([[np.nan]], "X must be finite, got nan"),
        ([[1e200]], r"X must stay within ±1e\+150, got 1e\+200"),
        ("abc", "X must be an array of numbers, got"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(X)
    model.noise_scales = "no"
    with pytest.raises(ValueError, match="noise_scales must be True or False, got 'no'"):
        model.predict(NEW)
    model.noise_scales = True
    for use in (model.predict_table, model.predict_interval):
        with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1, got 2"):
            use(NEW, 2)
    with pytest.raises(ValueError, match="data must be arrays for predict, as for the fit"):
        model.predict_into("new.parquet", tmp_path / "out.csv")


SCRIPT = """
import sys
import numpy as np
import bsvr_pp as bp
from bsvr_pp.estimators.training_data import as_given
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.search import at_size
for name, value in {stages}.items():
    setattr(at_size, name, value)
data = [np.load(path, mmap_mode="r") for path in sys.argv[1:3]]
svr = bp.BayesianSVR(kernel="rational_quadratic", blocks=60, restarts=1, random_state=0, outliers="keep")
bp.fit_folder(svr, *data, folder=sys.argv[3])
"""


@pytest.mark.slow
def test_a_fit_that_is_killed_continues(model, data, tmp_path, monkeypatch):
    """A block whose file was written is not computed again."""
    folder, solve, solved = tmp_path / "model", folder_fit._solve, []
    code = SCRIPT.format(stages=STAGES | {"_LIMIT": LIMIT})
    paths = [values.filename for values in data]
    with subprocess.Popen([sys.executable, "-c", code, *map(str, paths), str(folder)]) as run:
        while run.poll() is None and len(list(folder.glob("work/done/*.npz"))) < 2:
            time.sleep(0.01)
        run.kill()
    kept = {int(path.stem) for path in folder.glob("work/done/*.npz")}
    assert len(kept) >= 2
    monkeypatch.setattr(folder_fit, "_solve", lambda *item: solved.append(item[2]) or solve(*item))
    again = bp.fit_folder(machine(), *data, folder=folder)
    assert set(solved) == set(range(len(model.blocks_))) - kept
    assert arrays(again.folder) == arrays(model.folder)


@pytest.mark.slow
def test_a_folder_needs_dask_for_a_cluster_alone(model, data, tmp_path, monkeypatch):
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert arrays(bp.fit_folder(machine(), *data, folder=tmp_path / "model").folder) == arrays(model.folder)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_two_processes_give_the_bits_of_one(model, data, tmp_path, lost):
    """Also if one of them is killed in the middle."""
    distributed = pytest.importorskip("distributed")
    folder = tmp_path / "model"

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=lost) as client,
        joblib.parallel_config("dask", client=client),
    ):
        pids = client.run(os.getpid)
        assert len(set(pids.values()) | {os.getpid()}) == 3
        if lost:
            kill_a_worker(client, folder, "work/done/*.npz")
        found = bp.fit_folder(machine(), *data, folder=folder)
        if lost:
            assert set(client.run(os.getpid).values()) != set(pids.values())
    assert arrays(found.folder) == arrays(model.folder)

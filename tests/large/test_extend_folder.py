"""Rows that are added to a folder: the posterior of all rows, blocks that are cut, and calls that continue."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from bsvr_pp.large import folder_fit
from bsvr_pp.large.folder_model import ARRAYS
from tests.helpers import wave
from tests.large.conftest import interrupted

pytest.importorskip("dask", reason="models in folders need Dask")

NEW = np.linspace(0.5, 11.5, 40)[:, None]


@pytest.fixture
def model(tmp_path):
    svr = bp.BayesianSVR(blocks=60, restarts=1, random_state=0, outliers="keep")
    return bp.fit_folder(svr, *wave(300), folder=tmp_path / "model")


def solved_at(model):
    """Posterior of each row in the order of the data, by the solver of a model in memory with the same blocks."""
    rows, blocks = model._stored.in_blocks(np.arange(model._stored.size.size))
    problem = model._fit.problem_of(rows, blocks)
    K, mean, noise = problem.at(model._fit.point)
    found = bp.MeanField().solve(K, problem.targets, noise, mean)
    out = np.empty(rows.size)
    out[model._stored.read("row.npy", rows)] = found.dual_coef
    return out, found.log_evidence


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ARRAYS}


def test_added_rows_have_the_posterior_of_a_solve_with_all_rows(model):
    before, old, X, y = contents(model.folder), model._stored, *wave(25, 2.0, 3.0, seed=1)
    more = bp.extend_folder(model, X, y)
    assert contents(model.folder) == before  # the rows of the fit stay as they are
    stored = more._stored
    assert stored.size.sum() == 325 and stored.size.max() <= 60
    own = np.unique(old.regions.assign(more._standardised(X)))
    others = np.setdiff1d(np.arange(old.size.size), own)
    np.testing.assert_array_equal(stored.start[others], old.start[others])
    solved = set(range(old.size.size, stored.size.size)) | set(own)
    assert len(list(model.folder.glob("added-*"))) == 1
    assert np.flatnonzero(stored.start >= old.base[-1]).tolist() == sorted(solved)
    every = stored.of(*range(stored.size.size))
    order = np.argsort(stored.read("row.npy", every))
    inputs, targets = np.concatenate([wave(300)[0], X]), np.concatenate([wave(300)[1], y])
    np.testing.assert_allclose(stored.read("inputs.npy", every)[order], more._standardised(inputs), rtol=1e-12)
    np.testing.assert_allclose(stored.read("targets.npy", every)[order], (targets - more.location_) / more.unit_)
    expected, evidence = solved_at(more)
    np.testing.assert_allclose(more.dual_coef_, expected, rtol=1e-6, atol=1e-8)
    assert more.log_evidence_ == pytest.approx(evidence - 325 * np.log(more.unit_), rel=1e-9)
    for block in range(stored.size.size):
        assert (stored.regions.assign(stored.read("inputs.npy", stored.of(block))) == block).all()
    assert (more.predict_f([[2.5]])[1] < model.predict_f([[2.5]])[1]).all()


def test_rows_that_are_added_in_two_calls_are_those_of_one(model, tmp_path):
    (X, y), (Z, t) = wave(40, seed=1), wave(30, 4.0, 5.0, seed=2)
    more = bp.extend_folder(bp.extend_folder(model, X, y), Z, t)
    assert [path.name for path in more._stored.segments] == ["model", "added-1", "added-2"]
    assert more._stored.size.sum() == 370 and more._stored.size.max() <= 60
    expected, _ = solved_at(more)
    np.testing.assert_allclose(more.dual_coef_, expected, rtol=1e-6, atol=1e-8)
    mean = more.predict(NEW)
    assert np.abs(mean - np.sin(2 * NEW[:, 0])).mean() < 0.1
    np.testing.assert_array_equal(bp.open_folder(model.folder).predict(NEW), mean)


def test_an_addition_that_is_interrupted_continues_and_is_not_repeated(model, monkeypatch):
    X, y = wave(25, 2.0, 3.0, seed=1)
    solve, solved = folder_fit._solve, []
    with interrupted(folder_fit, "_solve", solved, 1):
        bp.extend_folder(model, X, y)
    np.testing.assert_array_equal(bp.open_folder(model.folder).predict(NEW), model.predict(NEW))
    with monkeypatch.context() as patch:
        patch.setattr(folder_fit, "_solve", lambda *item: solved.append(item[2]) or solve(*item))
        more = bp.extend_folder(model, X, y)
    assert sorted(solved) == list(range(len(solved)))
    again = bp.extend_folder(more, X, y)
    assert again._stored.size.sum() == 325 and len(again._stored.segments) == 2
    (model.folder / "added-1" / "targets.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"added-1/targets.npy: is .*damaged: it does not end in a checksum"):
        bp.open_folder(model.folder)


def test_files_of_a_table_are_added_in_the_units_of_the_fit(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"speed": rng.uniform(0, 6, 200), "town": rng.choice(["Ulm", "Bonn"], 200)})
    frame["delay"] = np.exp(np.sin(frame["speed"]) + (frame["town"] == "Ulm") + 0.1 * rng.laplace(size=200))
    svr = bp.BayesianSVR(blocks=60, restarts=1, random_state=0, outliers="keep", log_targets=True)
    model = bp.fit_folder(svr, frame.head(160), target="delay", folder=tmp_path / "model")
    frame.tail(40)[["delay", "town", "speed"]].to_parquet(tmp_path / "new.parquet")
    more = bp.extend_folder(model, tmp_path / "new.parquet")
    every = more._stored.of(*range(more._stored.size.size))
    order = np.argsort(more._stored.read("row.npy", every))
    targets = (np.log(frame["delay"]) - more.location_) / more.unit_
    np.testing.assert_allclose(more._stored.read("targets.npy", every)[order], targets)
    np.testing.assert_allclose(more._stored.read("inputs.npy", every)[order], more._standardised(frame))
    assert json.loads((model.folder / "model.json").read_text())["data"]["rows"] == 200
    with pytest.raises(ValueError, match="data must be of the kind of the fit"):
        bp.extend_folder(model, np.ones((3, 3)), np.ones(3))


def test_a_model_is_found_after_a_change_of_the_folder_and_a_removed_one_stays_removed(model, monkeypatch, tmp_path):
    monkeypatch.chdir(model.folder.parent)
    found = bp.open_folder("model")
    monkeypatch.chdir(model.folder)
    np.testing.assert_array_equal(found.predict(NEW), model.predict(NEW))
    monkeypatch.chdir(tmp_path)
    model.folder.rename(model.folder.parent / "moved")
    with pytest.raises(ValueError, match=r"model: is not the folder of a model: it has no model\.json"):
        bp.extend_folder(found, *wave(5))
    assert not model.folder.exists()


def test_growing_asks_first_whether_the_folder_can_be_written(model, monkeypatch):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ValueError, match=r"model cannot be written to .*model: Permission denied"):
        bp.extend_folder(model, *wave(5))

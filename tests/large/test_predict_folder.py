"""Predictions from files to a file: the numbers of `predict_table`, calls that continue, and workers."""

import pickle
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from bsvr_pp.large import folder_model
from tests.large.conftest import flights, interrupted

pytest.importorskip("pyarrow", reason="models in folders need pyarrow")

N = 300


@pytest.fixture(scope="module", autouse=True)
def small_tasks(small):
    small.setattr(folder_model, "_TASK", 40)


@pytest.fixture(scope="module")
def table():
    return flights(N)


@pytest.fixture(scope="module")
def model(small_tasks, table, tmp_path_factory):
    same = {"kernel": "rational_quadratic"}  # which takes less time
    svr = bp.BayesianSVR(**same, blocks=60, restarts=1, random_state=0, outliers="keep")
    return bp.fit_folder(svr, table, target="delay", folder=tmp_path_factory.mktemp("fits") / "model")


@pytest.fixture(scope="module")
def new(table, tmp_path_factory):
    """New rows in a folder of two Parquet files, and as one table."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"town": rng.choice(["Ulm", "Bonn"], 150), "speed": rng.uniform(0, 6, 150), "other": "x"})
    folder = tmp_path_factory.mktemp("new")
    for i, at in enumerate((0, 90)):
        frame.iloc[at : at + (90, 60)[i]].to_parquet(folder / f"{i}.parquet")
    return folder, frame


@pytest.mark.slow
def test_copies_open_the_folder_again_and_keep_the_options(model, new):
    model = bp.FolderModel(model.folder)
    model.noise_scales = False
    for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        pd.testing.assert_frame_equal(copy.predict_table(new[1]), model.predict_table(new[1]))


@pytest.mark.slow
def test_predictions_of_all_kinds_of_tables_are_those_of_predict_table(model, new, tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    folder, frame = new
    expected = model.predict_table(frame, 0.8, "delay", [0.5])
    frame.to_csv(tmp_path / "new.csv", index=False)
    given = folder, frame, frames.from_pandas(frame, npartitions=3), tmp_path / "new.csv"
    for i, data in enumerate(given):
        out = tmp_path / f"{i}.parquet"
        assert model.predict_into(data, out, coverage=0.8, times=[0.5]) == len(frame)
        found = pd.read_parquet(out)
        assert found.columns.tolist() == expected.columns.tolist()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    parts = frames.from_pandas(frame.set_axis(np.arange(len(frame))[::-1]), npartitions=3, sort=False)
    assert model.predict_table(parts).index.tolist() == list(range(len(frame)))[::-1]
    polars = SimpleNamespace(columns=list(frame), to_pandas=lambda: frame)
    for data in (frame.set_index("town"), polars):
        np.testing.assert_allclose(model.predict_table(data, 0.8, "delay", [0.5]), expected, rtol=1e-9, atol=1e-12)
    assert model.predict_into(polars, tmp_path / "polars.csv") == len(frame)
    model.predict_into(model.encoding_.transform(frame[["speed", "town"]])[0], tmp_path / "a.csv", coverage=0.8)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "a.csv"), expected.iloc[:, :4], rtol=1e-9, atol=1e-12)
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_predictions_do_not_replace_files_of_a_model(model, new, tmp_path):
    (tmp_path / "link").symlink_to(model.folder)
    before = {path: path.read_bytes() for path in model.folder.iterdir()}
    for out in (model.folder / "inputs.npy", tmp_path / "link" / "model.json", model.folder / "more" / "new.csv"):
        with pytest.raises(ValueError, match=f"out must lie outside the folder of .* {model.folder}, got {out}"):
            model.predict_into(new[0], out)
    assert {path: path.read_bytes() for path in model.folder.iterdir()} == before
    (tmp_path / "other.npy").write_bytes((model.folder / "inputs.npy").read_bytes())
    with pytest.raises(ValueError, match=r"out must not replace .*other\.npy, which is a saved model"):
        model.predict_into(new[0], tmp_path / "other.npy")


@pytest.mark.parametrize("neighbours", [None, 30])
def test_options_of_the_model_reach_the_tasks(model, new, tmp_path, monkeypatch, neighbours):
    monkeypatch.setattr(model, "blocks", bp.LocalBlocks(60, neighbours=neighbours))
    monkeypatch.setattr(model, "noise_scales", False)
    model.solve()
    model.predict_into(new[0], tmp_path / "out.parquet")
    expected = model.predict_table(new[1], target="delay")
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "out.parquet"), expected, rtol=1e-9, atol=1e-12)


def test_a_call_that_is_interrupted_continues_with_the_same_bits(model, new, tmp_path, monkeypatch):
    out, once, predict, done = tmp_path / "out.parquet", tmp_path / "once.parquet", folder_model._predict, []
    model.predict_into(new[0], once)
    with interrupted(folder_model, "_predict", done, 2):
        model.predict_into(new[0], out)
    assert not out.exists()
    with monkeypatch.context() as patch:
        patch.setattr(folder_model, "_order", None)  # the rows are not encoded again
        patch.setattr(folder_model, "_predict", lambda *item: done.append(item[2]) or predict(*item))
        model.predict_into(new[0], out)
    assert sorted(done) == [0, 1, 2, 3]
    assert out.read_bytes() == once.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"out.parquet", "once.parquet"}


@pytest.mark.slow
def test_files_of_a_call_with_other_options_are_not_used(model, new, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(folder_model, "_join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict_into(new[0], out, coverage=0.5)
    model.predict_into(new[0], out)
    assert pd.read_parquet(out).columns.tolist() == ["delay", "sd", "lower 90 %", "upper 90 %"]

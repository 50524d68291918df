"""Predictions from files to a file: the numbers of `predict_table`."""

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from bsvr_pp.large import folder_model
from tests.large.conftest import flights

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
    svr = bp.BayesianSVR(blocks=60, restarts=1, random_state=0, outliers="keep")
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
    model.predict_into(model.encoding_.transform(frame[["speed", "town"]])[0], tmp_path / "a.csv", coverage=0.8)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "a.csv"), expected.iloc[:, :4], rtol=1e-9, atol=1e-12)
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("neighbours", [None, 30])
def test_options_of_the_model_reach_the_tasks(model, new, tmp_path, monkeypatch, neighbours):
    monkeypatch.setattr(model, "blocks", bp.LocalBlocks(60, neighbours=neighbours))
    monkeypatch.setattr(model, "noise_scales", False)
    model.predict_into(new[0], tmp_path / "out.parquet")
    expected = model.predict_table(new[1], target="delay")
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "out.parquet"), expected, rtol=1e-9, atol=1e-12)


def test_a_call_that_is_interrupted_leaves_the_file_as_it_was(model, new, tmp_path, monkeypatch):
    out, done, predict = tmp_path / "out.csv", [], type(model).predict_table

    def some(self, X, *args, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(len(X))
        return predict(self, X, *args, **options)

    out.write_text("before")
    monkeypatch.setattr(type(model), "predict_table", some)
    with pytest.raises(KeyboardInterrupt):
        model.predict_into(new[0], out)
    assert out.read_text() == "before" and list(tmp_path.iterdir()) == [out]


def test_the_last_part_is_checked_before_the_first_is_predicted(model, new, tmp_path, monkeypatch):
    frame = new[1].assign(speed=[1.0] * 149 + ["fast"])
    monkeypatch.setattr(type(model), "predict_table", None)
    with pytest.raises(ValueError, match="column 'speed'"):
        model.predict_into(frame, tmp_path / "out.csv")

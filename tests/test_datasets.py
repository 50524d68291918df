"""Data sets and the checks of CSV files."""

import numpy as np
import pandas as pd
import pytest

from bsvr_pp.datasets import data_folder, load, sinc
from bsvr_pp.tables import DataError


def test_sinc_is_what_the_paper_draws():
    data = sinc(20_000, noise=0.2, random_seed=1)
    assert np.abs(data.X).max() <= 10
    residual = data.y - np.sin(data.X[:, 0]) / data.X[:, 0]
    assert np.std(residual) == pytest.approx(0.2, rel=0.02)
    off = sinc(20_000, noise=0.0, outliers=0.1, random_seed=1)
    assert np.mean(np.abs(off.y - np.sinc(off.X[:, 0] / np.pi)) > 0.5) == pytest.approx(0.1, abs=0.01)
    np.testing.assert_array_equal(sinc(5, random_seed=2).y, sinc(5, random_seed=2).y)


@pytest.mark.parametrize("options", [{"n": 0}, {"noise": -1.0}, {"outliers": 2.0}])
def test_bad_options_of_sinc_are_named(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        sinc(**options)


def test_split_keeps_every_row_once():
    data = sinc(30, random_seed=1)
    train, test = data.split(0.2, 3)
    assert (len(train.y), len(test.y)) == (24, 6)
    np.testing.assert_array_equal(np.sort(np.concatenate([train.y, test.y])), np.sort(data.y))
    np.testing.assert_array_equal(data.split(0.2, 3)[1].y, test.y)
    with pytest.raises(ValueError, match=r"test_fraction must lie strictly between 0 and 1, got 1\.0"):
        data.split(1.0)


def table(rows=12, header="a,b,y", line="{0},{1},{2}"):
    return header + "\n" + "\n".join(line.format(i, i * i % 7, np.sin(i)) for i in range(rows)) + "\n"


def test_load_leaves_constant_columns_out(tmp_path, monkeypatch):
    monkeypatch.setenv("BSVR_PP_DATA", str(tmp_path))
    (tmp_path / "flat.csv").write_text(table(line="{0},1,{2}"))
    data = load("flat")
    assert (data.inputs, data.target, data.X.shape) == (("a",), "y", (12, 1))
    (tmp_path / "flat.csv").write_text(table(line="{0},1,5"))
    with pytest.raises(DataError, match=r"column .y. is constant"):
        load("flat")


def test_what_load_cannot_take_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("BSVR_PP_DATA", str(tmp_path))
    pd.DataFrame({"a": ["x", None] * 6, "y": np.arange(12)}).to_csv(tmp_path / "gaps.csv", index=False)
    with pytest.raises(DataError, match="has missing values"):
        load("gaps")
    pd.DataFrame({"a": np.arange(12), "y": ["x", "z"] * 6}).to_csv(tmp_path / "words.csv", index=False)
    with pytest.raises(DataError, match="the last column, y, must be a target of numbers"):
        load("words")
    pd.DataFrame({"a": [True, False] * 6, "y": np.arange(12)}).to_csv(tmp_path / "flags.csv", index=False)
    np.testing.assert_array_equal(load("flags").X[:, 0], [1.0, 0.0] * 6)


def test_missing_files(tmp_path, monkeypatch):
    monkeypatch.setenv("BSVR_PP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="set BSVR_PP_DATA"):
        load("boston_housing")


@pytest.mark.skipif(not (data_folder() / "abalone.csv").is_file(), reason="the papers' data sets are not at hand")
def test_the_papers_data():
    assert load("boston_housing").X.shape == (506, 13)
    assert load("abalone").X.shape == (4177, 10)  # the sex as three indicators
    assert load("pyrim").X.shape == (74, 26)  # one of 27 is constant
    assert np.ptp(load("triazines").X, axis=0).min() > 0

"""The table says what the results say, and no more."""

from __future__ import annotations

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.comparison import scores


def test_table(sinc_model, sinc_results):
    model, _data = sinc_model
    X = np.linspace(-9, 9, 40)[:, None]
    y = np.sinc(X[:, 0] / np.pi)
    table = bp.compare(sinc_results, reference="NUTS", X_test=X, y_test=y, model=model)
    assert list(table.index) == list(sinc_results)
    assert np.isnan(table.loc["MAP", "log_evidence"])
    assert np.isnan(table.loc["NUTS", "log_evidence"])
    assert table.loc["Laplace", "log_evidence"] == sinc_results["Laplace"].attrs["log_evidence"]
    # A point has no standard deviation, sampling has.
    assert table.loc[["MAP", "Laplace", "mean field"], "C sd"].isna().all()
    assert table.loc["NUTS", "C sd"] > 0
    assert table.loc["Laplace", ["R-hat", "ESS", "divergences"]].isna().all()
    assert table.loc["NUTS", "R-hat"] > 0.9
    assert table.loc["NUTS", "f differs"] == 0
    assert (table["f differs"] < 3).all()
    assert (table["y differs"] <= table["f differs"]).all()
    f_sd = np.sqrt(sinc_results["NUTS"]["latent_posterior"]["variance"])
    gap = abs(sinc_results["MAP"]["latent_posterior"]["mean"] - sinc_results["NUTS"]["latent_posterior"]["mean"])
    assert table.loc["MAP", "f differs"] == pytest.approx(float((gap / f_sd).max()))
    support = sinc_results["Laplace"]["latent_posterior"]["support"].values
    assert table.loc["Laplace", "off-bound"] == np.sum(support == 1)
    assert table["ase"].between(0, 0.2).all()
    assert table["coverage 95 %"].ge(table["coverage 80 %"]).all()


def test_scores_by_hand(sinc_model, sinc_results):
    model, _ = sinc_model
    X, y = np.array([[0.0], [3.0]]), np.array([5.0, 0.0])
    prediction = bp.predict(sinc_results["Laplace"], X, model=model, y_new=y)
    found = scores(prediction, y)
    error = y - prediction["f_mean"].values
    assert found["ase"] == pytest.approx(np.mean(error**2))
    assert found["aae"] == pytest.approx(np.mean(np.abs(error)))
    assert found["coverage 95 %"] == 0.5


def test_bad_arguments_are_named(sinc_results):
    with pytest.raises(ValueError, match="at least one result"):
        bp.compare({})
    with pytest.raises(ValueError, match=r"reference must be one of .* got 'HMC'"):
        bp.compare(sinc_results, reference="HMC")
    with pytest.raises(ValueError, match="X_test and y_test must be given together"):
        bp.compare(sinc_results, X_test=[[0.0]])

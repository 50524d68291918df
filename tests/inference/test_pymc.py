"""PyMC's own functions on results: each has the coordinates of f, from which PyMC computes f."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import bsvr_pp as bp
from tests.helpers import process_model, soft

N = 30
X = np.linspace(-3.0, 3.0, N)[:, None]
Y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=N)
BLOCKS = bp.local_blocks(X, rows=10)


def model(*, parts: bool = False, shift: bool = False, coords: object = None, **options: object) -> pm.Model:
    with pm.Model(coords=None if coords is None else {"t": coords}) as made:
        C = pm.LogNormal("C", 1.0, 1.0)
        covariance = pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ls", 3.0, 4.0))
        gp = bp.GP(cov_func=covariance)
        mu = gp.prior("f", X=X, **options, **({} if coords is None else {"dims": "t"}))
        if parts:
            mu = mu + bp.GP(cov_func=pm.gp.cov.Matern52(1, ls=0.3)).prior("g", X=X) + pm.Normal("b") * X[:, 0]
        if shift:
            mu = mu + pm.Data("shift", np.zeros(N))
        bp.SoftInsensitive("y", mu=mu, C=C, epsilon=0.1, beta=0.3, observed=Y)
    made.gp = gp
    return made


def fit(method: object, made: pm.Model) -> object:
    return bp.fit(method, made, random_seed=0, progressbar=False)


FEW = {"draws": 200, "tune": 200, "chains": 2}
METHODS = (
    bp.Laplace(),
    pytest.param(bp.Integrated(kept=64), marks=pytest.mark.slow),
    *(pytest.param(method, marks=pytest.mark.slow) for method in (bp.MAP(), bp.MeanField())),
    pytest.param(bp.NUTS(latent=bp.MeanField(), **FEW), marks=pytest.mark.slow),
    pytest.param(bp.NUTS(**FEW), marks=pytest.mark.slow),
)


@pytest.mark.slow_cases("Laplace-parts", "Laplace-reparameterize", "Laplace-blocks", "Laplace-")
@pytest.mark.parametrize("options", [{}, {"parts": True}, {"reparameterize": False}, {"blocks": BLOCKS}], ids=" ".join)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_predictions_in_sample_by_pymc(method, options):
    made = model(**options)
    result = fit(method, made)
    drawn = pm.sample_posterior_predictive(result, model=made, random_seed=1, progressbar=False)
    drawn = drawn["posterior_predictive"]["y"].values.reshape(-1, N)
    ours = bp.predict(result, X, model=made)
    effective = len(drawn) / (4 if isinstance(method, bp.NUTS) else 1)
    error = drawn.std(axis=0) / effective**0.5
    assert (np.abs(drawn.mean(axis=0) - ours["y_mean"].values) < 4 * error).all()
    ratio = drawn.std(axis=0) / np.sqrt(ours["y_variance"].values)
    assert ratio.mean() == pytest.approx(1.0, abs=0.1)
    if "log_likelihood" in result.children:
        found = pm.compute_log_likelihood(result, model=made, extend_inferencedata=False, progressbar=False)
        np.testing.assert_allclose(found["y"].values, result["log_likelihood"]["y"].values, atol=1e-6)


def test_new_values_of_data_and_new_inputs():
    """`pm.set_data` for data other than X, and ``gp.conditional`` for a new X."""
    made = model(shift=True)
    result = fit(bp.MeanField(), made)
    X_new = np.array([[-1.0], [0.25], [6.0]])
    with made:
        made.gp.conditional("f_new", X_new)
        drawn = pm.sample_posterior_predictive(result, var_names=["f_new"], random_seed=1, progressbar=False)
    drawn = drawn["posterior_predictive"]["f_new"].values.reshape(-1, 3)
    without = model(shift=True)
    ours = bp.predict(result, X_new, model=without, data={"shift": np.zeros(3)})
    error = np.sqrt(ours["f_variance"].values / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - ours["f_mean"].values) < 4 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(ours["f_variance"].values), rtol=0.1)
    with without:
        pm.set_data({"shift": np.full(N, 10.0)})
        moved = pm.sample_posterior_predictive(result, random_seed=1, progressbar=False)["posterior_predictive"]["y"]
    assert float(moved.mean()) == pytest.approx(10.0 + Y.mean(), abs=0.1)


LABELS = {
    "dates": pd.date_range("2020-01-01", periods=N),
    "dates with a zone": pd.date_range("2020-01-01", periods=N, tz="Europe/Berlin"),
    "periods": pd.period_range("2020-01", periods=N, freq="M"),
    "objects": list(pd.date_range("2020-01-01", periods=N).date),
    "categories": pd.Categorical([f"row {i}" for i in range(N)]),
    "mixed": [1, "a", None, *range(3, N)],
}


@pytest.mark.slow_cases("dates", "periods", "objects", "categories", "dates with a zone")
@pytest.mark.parametrize("labels", LABELS)
def test_labels_of_any_kind_can_be_saved(labels, tmp_path):
    made = model(coords=LABELS[labels])
    result = fit(bp.MeanField(), made)
    bp.save(result, tmp_path / "fit.nc")
    loaded = bp.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded["posterior"]["t"].values, result["posterior"]["t"].values)
    kept = result["posterior"]["t"].values
    expected = LABELS[labels].values if labels == "dates" else np.array([str(label) for label in LABELS[labels]])
    np.testing.assert_array_equal(kept, expected)
    before, after = (bp.predict(each, [[0.5]], model=made) for each in (result, loaded))
    np.testing.assert_array_equal(before["y_mean"], after["y_mean"])


def test_initial_values_are_kept_by_copies():
    made = process_model(soft, X, C=lambda: pm.LogNormal("C", 1.0, 1.0, initval=7.0), observed=Y)
    marginal = bp.marginalize(bp.MeanField(), made)
    assert float(np.exp(marginal.initial_point()["C_log__"])) == pytest.approx(7.0)
    assert float(np.exp(made.initial_point()["C_log__"])) == pytest.approx(7.0)

"""Refits without some rows, by ArviZ, against dense algebra."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.assess.loo import Refit
from bsvr_pp.model.problem import read_model

N = 8
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(2 * X[:, 0])
SIZE = np.linspace(0.5, 2.0, N)
TOWNS = [f"town {i}" for i in range(N)]
AT = {"sigma": 0.3}


def build(*, named=True):
    with pm.Model(coords={"town": TOWNS} if named else None) as model:
        by_town = {"dims": "town"} if named else {}
        at, size = pm.Data("X", X), pm.Data("size", SIZE, **by_town)
        sigma = pm.HalfNormal("sigma", 1.0)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=at, **by_town)
        pm.Normal("y", mu=f, sigma=sigma * size, observed=pm.Data("targets", Y, **by_town), **by_town)
    return model


def exactly(kept, left_out):
    """Log density of the rows that were left out."""
    sd = 0.3 * SIZE

    def kernel(rows, columns):
        return np.exp(-0.5 * ((X[rows] - X[columns].T) / 0.8) ** 2)

    K = kernel(kept, kept) + np.diag(sd[kept] ** 2 + 1e-6)
    half = np.linalg.solve(K, kernel(kept, left_out))
    variance = 1.0 - np.einsum("ij,ij->j", kernel(kept, left_out), half) + sd[left_out] ** 2
    return stats.norm(half.T @ Y[kept], np.sqrt(variance)).logpdf(Y[left_out])


@pytest.mark.parametrize("named", [True, False])
def test_folds_are_exact_for_gaussian_noise(named):
    model = build(named=named)
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)
    folds = np.arange(N) % 3
    found = az.loo_kfold(result, Refit(result, model=model, hyperparameters=AT), folds=folds, pointwise=True)
    for fold in range(3):
        expected = exactly(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold))
        np.testing.assert_allclose(found.elpd_i.values[folds == fold], expected, atol=1e-6)
    # The model itself is left as it is.
    np.testing.assert_array_equal(model["X"].get_value(), X)
    assert bp.loo(result, model=model).n_data_points == N


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_refits_of_single_rows_are_exact_for_gaussian_noise():
    model = build()
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)
    wrapper = Refit(result, model=model, hyperparameters=AT)
    found = az.reloo(wrapper, k_threshold=-np.inf, pointwise=True)
    np.testing.assert_allclose(found.elpd_i, bp.loo(result, model=model).elpd_i, atol=1e-5)  # a jitter of 1e-6
    assert found.elpd_i["town"].values.tolist() == TOWNS


def test_hyperparameters_are_optimised_again(sinc_model):
    model, data = sinc_model
    result = bp.fit(bp.Laplace(curvature="local"), model, restarts=1, random_seed=0, progressbar=False)
    wrapper = Refit(result, model=model, restarts=1)
    kept, left_out = wrapper.sel_observations([2, 5])
    refitted = wrapper.get_inference_data(wrapper.sample(kept))
    assert refitted["posterior"]["C"][0, 0] != result["posterior"]["C"][0, 0]
    log = wrapper.log_likelihood__i(left_out, refitted)
    assert log.shape == (1, 1, 2)
    reduced = bp.default_model(data.X, data.y, kernel="rbf")
    with reduced:
        pm.set_data({"X": data.X[kept], "targets": data.y[kept]})
    expected = bp.predict(refitted, data.X[[2, 5]], model=reduced, y_new=data.y[[2, 5]])["y_log_density"]
    np.testing.assert_allclose(log.values[0, 0], expected)


def test_what_cannot_be_refitted_is_named():
    with pm.Model() as constant:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=X)
        pm.Normal("y", mu=f, sigma=0.3, observed=Y)
    result = bp.fit(bp.MeanField(), constant, progressbar=False)
    with pytest.raises(bp.ModelError, match=r"X must be pm\.Data, so that the model can be fitted to some of its rows"):
        Refit(result, model=constant)
    with pm.Model() as vector:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=pm.Data("X", X))
        pm.Normal("y", mu=f, sigma=0.3 * SIZE, observed=pm.Data("targets", Y))
    result = bp.fit(bp.MeanField(), vector, progressbar=False)
    with pytest.raises(ValueError, match="the noise has a value for each training point"):
        Refit(result, model=vector)
    for other, kind in (({}, "dict"), ("a", "str")):
        with pytest.raises(TypeError, match=f"result must be a result of fit, got {kind}"):
            Refit(other, model=vector)
    with pm.Model() as shorter:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=X[:-1])
        pm.Normal("y", mu=f, sigma=0.3, observed=Y[:-1])
    with pytest.raises(ValueError, match="different numbers of training points"):
        Refit(result, model=shorter)


def test_rows_are_chosen_again_and_again():
    whole = build()
    rows = Refit(bp.fit(bp.MeanField(), whole, hyperparameters=AT, progressbar=False), model=whole)
    for kept in ([0, 3, 4], [1, 2, 3, 4, 7]):
        model = rows.choose(kept)
        chosen = read_model(model)
        np.testing.assert_array_equal(chosen.inputs, X[kept])
        np.testing.assert_array_equal(chosen.targets, Y[kept])
        np.testing.assert_array_equal(chosen.data["size"], SIZE[kept])
        assert list(model.coords["town"]) == [TOWNS[i] for i in kept]
    np.testing.assert_array_equal(whole["size"].get_value(), SIZE)
    assert list(whole.coords["town"]) == TOWNS

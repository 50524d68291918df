"""Predictions against dense formulas, brute force and closed forms of mixtures."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.inference.fitted import components
from bsvr_pp.inference.prediction.component import new_values
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.inference.result import from_samples
from bsvr_pp.losses import hinge
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

NEW = np.array([[-8.0], [0.3], [4.0], [30.0]])
X = np.linspace(-2, 2, 7)[:, None]
OFFSET = 0.7


@pytest.fixture(scope="module")
def small():
    """A model with a prior mean, its problem, and a result of draws that are made by hand."""
    with pm.Model() as model:
        C = pm.LogNormal("C", 1.0, 1.5)
        cov, mean = pm.gp.cov.ExpQuad(1, ls=0.8), pm.gp.mean.Constant(OFFSET)
        f = bp.GP(mean_func=mean, cov_func=cov).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    return model, read_model(model)


def of_draws(problem, chains, draws, **groups):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(chains, draws, 7))
    held = {"f": (("chain", "draw", "obs"), f), "C": (("chain", "draw"), np.exp(rng.normal(size=(chains, draws))))}
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset(held), **groups})
    return from_samples(problem, samples, {}, {"inference": "NUTS"}, rng)


def kernel(a, b):
    return np.exp(-0.5 * ((a - b.T) / 0.8) ** 2)


@pytest.mark.slow_cases("20-30")
@pytest.mark.parametrize(("chains", "draws"), [(1, 3), (2, 4), (20, 30)])
def test_every_draw_is_a_component(small, chains, draws):
    """f at new inputs given f at the inputs, of at most 200 draws; Rasmussen & Williams 2006, (A.6)."""
    _, problem = small
    result = of_draws(problem, chains, draws)
    f, C = (result["posterior"][name].values.reshape(chains * draws, -1) for name in ("f", "C"))
    parts = list(components(problem, result))
    assert len(parts) == min(chains * draws, 200)
    assert float(parts[0].point["C"]) == C[0, 0]
    assert float(parts[-1].point["C"]) == C[-1, 0]
    assert {float(part.point["C"]) for part in parts} <= set(C[:, 0])
    K, cross = kernel(X, X) + 1e-6 * np.eye(7), kernel(NEW / 4, X)
    for part in parts[:8]:
        (s,) = np.flatnonzero(C[:, 0] == float(part.point["C"]))
        assert part.problem.noise_at(part.point).parameters["C"] == pytest.approx(C[s, 0])
        mean, variance, _ = part.moments(NEW / 4)
        np.testing.assert_allclose(mean, OFFSET + cross @ np.linalg.solve(K, f[s] - OFFSET), atol=1e-6)
        np.testing.assert_allclose(variance, 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T)), atol=1e-6)


def test_every_draw_of_the_hyperparameters_has_its_gaussian(small):
    """Where f was integrated out."""
    _, problem = small
    rng = np.random.default_rng(1)
    dual, precision = rng.normal(size=(2, 3, 7)), rng.uniform(1.0, 5.0, (2, 3, 7))
    dims = ("chain", "draw", "obs")
    drawn = xr.Dataset({"dual_coef": (dims, dual), "site_precision": (dims, precision)})
    parts = list(components(problem, of_draws(problem, 2, 3, latent_draws=drawn)))
    assert len(parts) == 6
    K, cross = kernel(X, X) + 1e-6 * np.eye(7), kernel(NEW / 4, X)
    for part, a, tau in zip(parts, dual.reshape(6, 7), precision.reshape(6, 7), strict=True):
        mean, variance, _ = part.moments(NEW / 4)
        expected = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(K + np.diag(1 / tau), cross.T))
        np.testing.assert_allclose(mean, OFFSET + cross @ a)
        np.testing.assert_allclose(variance, expected, atol=1e-8)
    mean, variance, _ = parts[0].moments(NEW / 4)
    draws = mean + parts[0].deviations(NEW / 4, 4000, rng)
    assert draws.shape == (4000, 4)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(variance), 0.0, atol=0.08)
    np.testing.assert_allclose(draws.var(axis=0) / variance, 1.0, atol=0.1)


def test_many_rows_are_predicted_as_few(small):
    model, problem = small
    result = of_draws(problem, 1, 2)
    rows = np.linspace(-3, 3, 2003)[:, None]
    whole = bp.predict(result, rows, model=model, quantiles=[0.3])
    assert whole["obs_new"].values.tolist() == list(range(2003))
    last = bp.predict(result, rows[1990:], model=model, quantiles=[0.3])
    for name in whole.data_vars:
        np.testing.assert_allclose(whole[name].values[..., 1990:], last[name].values, rtol=1e-6)


def test_a_mode_is_a_single_point(small):
    model, _ = small
    result = bp.fit(bp.MAP(), model, hyperparameters={"C": 5.0}, progressbar=False)
    seen = bp.predict(result, NEW / 4, model=model)
    dual = result["latent_posterior"]["dual_coef"].values
    np.testing.assert_allclose(seen["f_mean"], OFFSET + kernel(NEW / 4, X) @ dual)
    assert not seen["f_variance"].any()
    assert seen["quantile"].values.tolist() == [0.025, 0.1, 0.5, 0.9, 0.975]


def test_rows_with_the_same_labels_have_one_order(sinc_model, sinc_results):
    model, data = sinc_model
    X, y = pd.DataFrame(data.X), pd.Series(data.y)
    with pytest.raises(ValueError, match="y has the row labels of X in another order, 23 beside 0 at row 0"):
        bp.default_model(X, y[::-1])
    with pytest.raises(ValueError, match="y_new has the row labels of X in another order, 23 beside 0 at row 0"):
        bp.predict(sinc_results["mean field"], X, y_new=y[::-1], model=model)
    other = bp.predict(sinc_results["mean field"], X, y_new=y.set_axis(y.index + 1), model=model)  # other labels
    assert other["y_log_density"].size == 24


def test_far_from_the_data_the_prior_returns(sinc_model, sinc_results):
    model, data = sinc_model
    seen = bp.predict(sinc_results["mean field"], [[1e3]], model=model)
    bias = 100 * np.mean(data.y**2)
    assert float(seen["f_variance"][0]) > 0.9 * np.var(data.y)
    assert float(seen["f_variance"][0]) < np.var(data.y) + bias


def test_error_bars_are_those_of_the_paper():
    """Gao, Gunn & Harris 2002, (5.1) and (5.3), the noise variance of the latter as it should be."""
    X, C, epsilon = np.linspace(-3, 3, 15)[:, None], 6.0, 0.2
    model = process_model(bp.EpsilonInsensitive, X, C=C, epsilon=epsilon, observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    new = np.array([[0.3], [2.0], [7.0]])
    prediction = bp.predict(result, new, model=model)
    K, k = np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(15), np.exp(-0.5 * (new - X.T) ** 2)
    site_variance = 1 / result["latent_posterior"]["site_precision"].values
    f_variance = 1 - np.einsum("ij,ji->i", k, np.linalg.solve(K + np.diag(site_variance), k.T))
    np.testing.assert_allclose(prediction["f_variance"], f_variance, rtol=1e-8)
    noise = 2 / C**2 + epsilon**2 * (epsilon * C + 3) / (3 * (epsilon * C + 1))
    np.testing.assert_allclose(prediction["y_variance"], f_variance + noise, rtol=1e-8)


WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-1.0, 40.0, 0.2], [0.5, 41.0, -0.4], [2.0, 39.0, 0.3]])
VARIANCES = np.array([[0.0, 200.0, 1.0], [0.0, 100.0, 0.5], [0.0, 400.0, 1e-4]])
PRECISIONS = np.array([4.0, 1.0, 9.0])


def test_labels_are_averaged_over_components():
    noises, labels = tuple(hinge(C) for C in PRECISIONS), np.array([1.0, -1.0, -1.0])
    shares = np.broadcast_to(WEIGHTS[:, None], MEANS.shape)
    f = MEANS * [0.1, -0.1, 0.1]
    found = new_values(PredictiveDistribution(shares, f, np.zeros((3, 3)), noises), [], labels)
    p = WEIGHTS @ [label_probability(each, C) for each, C in zip(f, PRECISIONS, strict=True)]
    assert p.min() < 0.1 < 0.5 < p.max()
    np.testing.assert_allclose(found["y_probability"], p, rtol=1e-6)
    np.testing.assert_allclose(found["y_mean"], p - (1 - p), rtol=1e-6)
    np.testing.assert_allclose(found["y_variance"], 1 - (2 * p - 1) ** 2, rtol=1e-6)
    np.testing.assert_allclose(np.exp(found["y_log_density"]), [p[0], 1 - p[1], 1 - p[2]], rtol=1e-6)
    for bad in (0.0, -2.0, 3.0):
        with pytest.raises(ValueError, match=rf"must hold the labels -1 and \+1, got {bad}$"):
            new_values(PredictiveDistribution(shares, MEANS, VARIANCES, noises), [], np.array([-1.0, bad, 1.0]))

"""Models without a process, whose covariance is known by a root of few columns: equal to the dense algebra."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.affine import Affine
from bsvr_pp.model.gp import Prior
from bsvr_pp.model.reader import read_model
from tests.helpers import differences

RNG = np.random.default_rng(4)
N, GROUPS = 60, 5
Z, GROUP = RNG.normal(size=(N, 3)), RNG.integers(GROUPS, size=N)
Y = Z @ [1.0, 0.0, -2.0] + RNG.normal(size=GROUPS)[GROUP] + 0.3 * RNG.standard_t(3, size=N)
NEW, NEW_GROUP = RNG.normal(size=(7, 3)), RNG.integers(GROUPS, size=7)
DATA = {"Z": NEW, "group": NEW_GROUP}
AT = {"C": 4.0, "epsilon": 0.2, "scale": 1.3, "spread": 0.6}
METHODS = [bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField()]
IDS = ["exact", "local", "mean field"]


def regression(noise="soft", Z=Z, group=GROUP, y=Y):
    """Coefficients with a common scale, and partially pooled intercepts."""
    with pm.Model() as model:
        scale, spread = pm.HalfNormal("scale", 2.0), pm.HalfNormal("spread", 1.0)
        C = pm.LogNormal("C", 1.0, 1.0)
        level = pm.Normal("level", 0.5, 2.0)
        b, u = pm.Normal("b", 0.0, scale, shape=3), pm.Normal("u", level, spread, shape=GROUPS)
        mu = pm.Data("Z", Z) @ b + u[pm.Data("group", group)]
        if noise == "gaussian":
            pm.Normal("y", mu, 1 / C, observed=y)
        elif noise == "interval":
            bp.Interval("y", mu=mu, C=C, epsilon=0.2, beta=0.3, lower=y - 0.3, upper=y + 0.2)
        else:
            epsilon = pm.HalfNormal("epsilon", 1.0)
            bp.SoftInsensitive("y", mu=mu, C=C, epsilon=epsilon, beta=0.3, observed=y)
    return model


@pytest.fixture
def dense(monkeypatch):
    """Return a function that reads a model without its root."""
    prior = Affine.prior

    def without_root(self, *given) -> Prior:
        found = prior(self, *given)
        return Prior(found.name, found.X, found.cov_func, found.mean_func, 0.0, None, parts=found.parts)

    def call(function, *given, **options):
        with monkeypatch.context() as patch:
            patch.setattr(Affine, "prior", without_root)
            return function(*given, **options)

    return call


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=IDS)
def test_the_evidence_and_its_gradient_are_those_of_the_matrix(method, dense):
    by_root, by_matrix = read_model(regression()), dense(read_model, regression())
    assert by_root.rank == 3 + GROUPS + 1
    assert by_matrix.rank is None
    found, expected = (SearchObjective(p, method, {}, "posterior", warm_starts=False) for p in (by_root, by_matrix))
    x = found.pack(AT)
    value, gradient = found(x)
    other, slope = expected(x)
    assert value == pytest.approx(other, rel=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)
    numeric = differences(lambda x: found(x)[0], x, 1e-5)
    tolerance = 3e-3 if method == bp.MeanField() else 1e-5  # its search ends with a larger mismatch of moments
    np.testing.assert_allclose(gradient, numeric, rtol=tolerance, atol=1e-5)


@pytest.mark.slow
def test_intervals_and_rows_fewer_than_columns(dense):
    by_root, by_matrix = read_model(regression("interval")), dense(read_model, regression("interval"))
    some = np.arange(5)
    for a, b in ((by_root, by_matrix), (by_root.take(some), by_matrix.take(some))):
        found, expected = (SearchObjective(p, bp.MeanField(), {}, "posterior") for p in (a, b))
        x = found.pack(AT)
        for one, other in zip(found(x), expected(x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_gaussian_noise_is_bayesian_linear_regression():
    model = regression("gaussian")
    at = {name: AT[name] for name in ("C", "scale", "spread")}
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False, random_seed=1)
    design = np.hstack([Z, np.eye(GROUPS)[GROUP]])
    prior = np.diag([1.3**2] * 3 + [0.6**2] * GROUPS)
    prior[3:, 3:] += 4.0
    mean = np.r_[0, 0, 0, [0.5] * GROUPS]
    S = design @ prior @ design.T + np.eye(N) / 16
    evidence = stats.multivariate_normal(design @ mean, S).logpdf(Y)
    assert result.attrs["log_evidence"] == pytest.approx(evidence, rel=1e-9)
    gain = np.linalg.solve(S, design @ prior).T
    m, V = mean + gain @ (Y - design @ mean), prior - gain @ design @ prior
    new = np.hstack([NEW, np.eye(GROUPS)[NEW_GROUP]])
    found = bp.predict(result, data=DATA, model=model)
    np.testing.assert_allclose(found["f_mean"], new @ m, atol=1e-7)
    np.testing.assert_allclose(found["f_variance"], np.einsum("ij,jk,ik->i", new, V, new), rtol=1e-7)
    part = bp.predict(result, data=DATA, model=model, component="b")
    np.testing.assert_allclose(part["f_mean"], NEW @ m[:3], atol=1e-7)
    np.testing.assert_allclose(part["f_variance"], np.einsum("ij,jk,ik->i", NEW, V[:3, :3], NEW), rtol=1e-7)
    moments = result["moments"].to_dataset()
    of_each = np.concatenate([moments["b"].values, moments["u"].values], axis=1)
    np.testing.assert_allclose(of_each, [m, np.sqrt(np.diag(V))], atol=1e-7)
    draws = np.concatenate([result["posterior"]["b"].values[0], result["posterior"]["u"].values[0]], axis=1)
    sd = np.sqrt(np.diag(V))
    np.testing.assert_allclose(draws.mean(axis=0), m, atol=5 * sd.max() / np.sqrt(len(draws)))
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.15)
    joint = bp.predict_distribution(result, data=DATA, model=model)
    samples = joint.joint(4000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(samples.T), new @ V @ new.T + np.eye(7) / 16, atol=0.02)


@pytest.mark.slow_cases("exact", "local", "MAP", "mean field")
@pytest.mark.parametrize("method", [bp.MAP(), *METHODS], ids=["MAP", *IDS])
def test_results_are_those_of_the_matrix(method, dense):
    first, second = regression(), regression()

    def results(model):
        result = bp.fit(method, model, hyperparameters=AT, progressbar=False, random_seed=1)
        found = {"predict": bp.predict(result, data=DATA, model=model), "f": result["latent_posterior"].to_dataset()}
        found["moments"] = result["moments"].to_dataset()
        if method != bp.MAP():
            found["loo"] = bp.loo(result, model=model).elpd_i
            Z_new = {"Z": Z[:7], "group": GROUP[:7]}
            found["part"] = bp.predict(result, data=Z_new, model=model, component="u")
        return found

    found, expected = results(first), dense(results, second)
    for name in ("f_mean", "f_variance", "y_mean"):
        np.testing.assert_allclose(found["predict"][name], expected["predict"][name], rtol=1e-6, atol=1e-6)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(found["f"][name], expected["f"][name], rtol=1e-6, atol=1e-6)
    for name in ("b", "u", "level"):
        np.testing.assert_allclose(found["moments"][name], expected["moments"][name], rtol=1e-6, atol=1e-6)
    if method != bp.MAP():
        np.testing.assert_allclose(found["loo"], expected["loo"], rtol=1e-6, atol=1e-6)
        for name in ("f_mean", "f_variance"):
            np.testing.assert_allclose(found["part"][name], expected["part"][name], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_the_marginal_model_has_the_evidence_by_the_root(dense):
    model = regression()
    marginal = bp.marginalize(bp.MeanField(), model)
    other = dense(bp.marginalize, bp.MeanField(), regression())
    point = marginal.initial_point()
    value, slope = (compiled(point) for compiled in (marginal.compile_logp(), marginal.compile_dlogp()))
    assert value == pytest.approx(other.compile_logp()(point), rel=1e-9)
    np.testing.assert_allclose(slope, other.compile_dlogp()(point), rtol=1e-6)
    drawn = pm.draw(pm.do(marginal, AT)["y"], 3000, random_seed=1)
    K, mean, noise = read_model(model).at(AT)
    variance = K.diag + noise.variance
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 3000))
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.2)


@pytest.mark.slow
def test_no_matrix_of_all_rows_is_made():
    """Half of the memory of one matrix is more than all arrays of a fit and its predictions at once."""
    n = 8000
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(n, 3)), rng.integers(GROUPS, size=n)
    model = regression(Z=X, group=group, y=X.sum(axis=1) + rng.laplace(size=n))
    tracemalloc.start()
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False, random_seed=1)
    bp.predict(result, data={"Z": X, "group": group}, model=model, quantiles=[0.5])
    bp.loo(result, model=model)
    bp.loo_predict(result, model=model, quantiles=[0.5])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * 8 * n**2

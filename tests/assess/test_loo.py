"""Leave-one-out against refits, against ratios of evidences, and inside ArviZ."""

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.approximations import annealed, laplace, mean_field
from bsvr_pp.inference.protocol import to_record
from bsvr_pp.inference.recover import recover
from bsvr_pp.inference.result import from_samples
from bsvr_pp.losses import gaussian, pinball, soft_insensitive
from bsvr_pp.model.reader import read_model

N = 9
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(2 * X[:, 0]) + np.random.default_rng(0).normal(0, 0.2, N)
SIZE = np.linspace(0.5, 2.0, N)


def problem(n=20):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-4, 4, n))
    y = np.sin(x) + 0.2 * rng.normal(size=n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.5 + 1e-6 * np.eye(n), y


def without(K, y, i):
    others = np.arange(y.size) != i
    return K[np.ix_(others, others)], y[others]


@pytest.mark.parametrize("approximate", [laplace, mean_field])
def test_gaussian_noise_is_exact(approximate):
    """Rasmussen & Williams 2006, (5.10)-(5.12)."""
    K, y = problem()
    posterior, inverse = approximate(K, y, gaussian(25.0)), np.linalg.inv(K + np.eye(20) / 25)
    variance = 1 / np.diag(inverse)
    expected = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (inverse @ y) ** 2 * variance
    np.testing.assert_allclose(posterior.log_loo(y, gaussian(25.0)), expected, rtol=1e-8)
    np.testing.assert_allclose(posterior.cavity_mean, y - variance * (inverse @ y), rtol=1e-8)
    np.testing.assert_allclose(posterior.cavity_variance, variance - 1 / 25, rtol=1e-7)


@pytest.mark.slow_cases("pinball(C=6, quantile=0.3)")
@pytest.mark.parametrize("noise", [soft_insensitive(8.0, 0.1, 0.3), pinball(6.0, 0.3)], ids=repr)
def test_mean_field_is_close_to_the_ratio_of_evidences(noise):
    """log p(y_i | others) = log p(y) - log p(others), by annealing."""
    K, y = problem()
    found = mean_field(K, y, noise).log_loo(y, noise)
    whole = annealed(K, y, noise, bp.Annealed(particles=300, moves=5), random_seed=0)
    for i in (0, 7, 13):
        rest = annealed(*without(K, y, i), noise, bp.Annealed(particles=300, moves=5), random_seed=1)
        error = np.hypot(whole.standard_error, rest.standard_error)
        assert found[i] == pytest.approx(whole.log_evidence - rest.log_evidence, abs=0.03 + 4 * error)


def test_laplace_is_close_to_its_refits():
    K, y = problem()
    noise = soft_insensitive(8.0, 0.1, 0.3)
    found = laplace(K, y, noise, curvature="local").log_loo(y, noise)
    refits = []
    for i in range(20):
        posterior = laplace(*without(K, y, i), noise, curvature="local")
        mean, variance = posterior.predict(np.delete(K[i], i)[None], [K[i, i]])
        refits.append(float(noise.tilted(mean, variance, y[i : i + 1])[0][0]))
    assert np.sum(found) == pytest.approx(np.sum(refits), abs=1.5)
    assert np.median(np.abs(found - refits)) < 0.05


@pytest.mark.slow
def test_results_side_by_side(sinc_model, sinc_results):
    model, data = sinc_model
    elpd = {name: bp.loo(sinc_results[name], model=model) for name in ("Laplace", "mean field", "NUTS")}
    table = az.compare(elpd)
    assert set(table.index) == set(elpd)
    field = elpd["mean field"]
    assert field.kind == "loo"
    assert field.elpd == pytest.approx(float(field.elpd_i.sum()))
    assert field.n_data_points == data.y.size
    assert 0 < field.p < data.y.size
    assert "cavities of mean field" in str(field)
    assert field.elpd == pytest.approx(elpd["NUTS"].elpd, abs=4.0)  # integrates the hyperparameters, few draws


def build(kind):
    with pm.Model(coords={"row": [f"row {i}" for i in range(N)]}) as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=X)
        if kind == "gaussian":
            pm.Normal("y", mu=f, sigma=sigma * SIZE, observed=Y, dims="row")
        else:
            bp.SoftInsensitive("y", mu=f, C=3 / sigma, epsilon=0.1, beta=0.3, observed=Y, dims="row")
    return model


def left_out(sigma):
    """Mean and variance of each y_i given the others; Rasmussen & Williams 2006, (5.12)."""
    K = np.exp(-0.5 * ((X - X.T) / 0.8) ** 2) + np.diag((sigma * SIZE) ** 2 + 1e-6)
    inverse = np.linalg.inv(K)
    return Y - inverse @ Y / np.diag(inverse), 1 / np.diag(inverse)


def test_predictions_are_exact_under_gaussian_noise():
    model = build("gaussian")
    result = bp.fit(bp.MeanField(), model, hyperparameters={"sigma": 0.3}, progressbar=False)
    seen = bp.loo_predict(result, model=model, quantiles=[0.2, 0.7])
    mean, variance = left_out(0.3)
    exact = stats.norm(mean, np.sqrt(variance))
    assert seen["y_cdf"].dims == ("row",)
    assert seen["row"].values[2] == "row 2"
    np.testing.assert_allclose(seen["y_mean"], mean, atol=1e-7)
    np.testing.assert_allclose(seen["y_variance"], variance, atol=1e-7)
    np.testing.assert_allclose(seen["y_log_density"], exact.logpdf(Y), atol=1e-7)
    np.testing.assert_allclose(seen["y_cdf"], exact.cdf(Y), atol=1e-6)
    np.testing.assert_allclose(seen["y_quantile"], [exact.ppf(0.2), exact.ppf(0.7)], atol=1e-6)
    z = (Y - mean) / exact.std()
    crps = exact.std() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(seen["y_crps"], crps, rtol=1e-5)


@pytest.fixture(scope="module")
def drawn():
    """Draws of f and sigma of the Gaussian model by dense algebra: f sampled, and f integrated out."""
    model = build("gaussian")
    problem = read_model(model)
    rng = np.random.default_rng(1)
    grid = np.linspace(0.05, 1.2, 100)  # of the draws and of the truth
    K = np.exp(-0.5 * ((X - X.T) / 0.8) ** 2) + 1e-6 * np.eye(N)
    log = [
        stats.multivariate_normal(cov=K + np.diag((s * SIZE) ** 2)).logpdf(Y) + stats.halfnorm.logpdf(s) for s in grid
    ]
    share = np.exp(np.array(log) - max(log))
    sigma = rng.choice(grid, size=(2, 500), p=share / share.sum())
    posterior = xr.Dataset({"sigma": (("chain", "draw"), sigma)})
    tree = recover(problem, xr.DataTree.from_dict({"posterior": posterior}), bp.MeanField(), rng, False)
    methods = {"sampled": bp.NUTS(), "integrated": bp.NUTS(latent=bp.MeanField())}
    results = {}
    for kind, method in methods.items():
        only = xr.DataTree.from_dict({"posterior": tree["posterior"].to_dataset()})
        attributes = {"inference": kind, "method": json.dumps(to_record(method)), "converged": 1}
        results[kind] = from_samples(problem, tree if kind == "integrated" else only, {}, attributes, rng)
    return model, results, grid, share


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize("kind", ["integrated", "sampled"])
def test_draws_are_weighted(drawn, kind):
    """Against the mixture over the grid of sigma with weights p(y_-i, sigma)."""
    model, results, grid, weights = drawn
    seen = bp.loo_predict(results[kind], model=model)
    parts = [stats.norm(mean, np.sqrt(variance)) for mean, variance in (left_out(s) for s in grid)]
    share = np.array([w / part.pdf(Y) for w, part in zip(weights, parts, strict=True)])
    share /= share.sum(axis=0)
    density = np.sum([s * part.pdf(Y) for s, part in zip(share, parts, strict=True)], axis=0)
    cdf = np.sum([s * part.cdf(Y) for s, part in zip(share, parts, strict=True)], axis=0)
    found = bp.loo(results[kind], model=model)
    # Draws of f hardly reach what the others predict at the ends, which k-hat says.
    good = seen["pareto_k"].values < 0.5
    assert good.sum() >= {"integrated": N - 1, "sampled": 1}[kind]
    np.testing.assert_allclose(seen["y_log_density"][good], np.log(density)[good], atol=0.1)
    np.testing.assert_allclose(seen["y_cdf"][good], cdf[good], atol=0.05)
    np.testing.assert_allclose(seen["y_log_density"][good], found.elpd_i[good], atol=0.1)

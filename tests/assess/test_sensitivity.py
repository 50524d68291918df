"""Power-scaling with f integrated out, against quadrature, dense algebra and ArviZ."""

from __future__ import annotations

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import integrate, stats

import bsvr_pp as bp
from bsvr_pp import classification
from bsvr_pp.assess.reweighting import log_power_ratio
from bsvr_pp.inference.protocol import to_record
from bsvr_pp.inference.result import from_samples
from bsvr_pp.inference.sampling.recover import recover
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.problem import read_model

N = 10
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(2 * X[:, 0]) + np.random.default_rng(0).normal(0, 0.2, N)
SIZE = np.linspace(0.5, 2.0, N)


def build(kind):
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        ls = pm.LogNormal("lengthscale", 0.0, 0.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X=X)
        if kind == "gaussian":
            pm.Normal("y", mu=f, sigma=sigma * SIZE, observed=Y)
        else:
            bp.SoftInsensitive("y", mu=f, C=SIZE / sigma, epsilon=0.2 * sigma, beta=0.3, observed=Y)
    return model


def ratio_at(problem, point, alpha):
    K, mean, noise = problem.at(point)
    return log_power_ratio(bp.MeanField(), K, problem.targets, noise, mean, [alpha])


@pytest.mark.parametrize("alpha", [0.5, 0.99, 1.01, 2.0])
def test_gaussian_noise_is_exact(alpha):
    problem = read_model(build("gaussian"))
    K = np.exp(-0.5 * ((X - X.T) / 0.7) ** 2) + 1e-6 * np.eye(N)
    variance = (0.3 * SIZE) ** 2
    (found,) = ratio_at(problem, {"sigma": 0.3, "lengthscale": 0.7}, alpha)
    one = stats.multivariate_normal(cov=K + np.diag(variance)).logpdf(Y)
    # N(y; f, v)^α = N(y; f, v/α) · (2πv)^((1 - α)/2) · α^(-1/2)
    power = stats.multivariate_normal(cov=K + np.diag(variance / alpha)).logpdf(Y)
    power += np.sum(0.5 * (1 - alpha) * np.log(2 * np.pi * variance) - 0.5 * np.log(alpha))
    assert found == pytest.approx(power - one, abs=1e-8)


@pytest.mark.parametrize("alpha", [0.5, 0.99, 2.0])
def test_a_loss_to_a_power_is_that_of_quadrature(alpha):
    """For independent f, where mean field is exact: a lengthscale of a thousandth of the distances."""
    problem = read_model(build("soft"))
    (found,) = ratio_at(problem, {"sigma": 0.4, "lengthscale": 1e-3}, alpha)

    def log_integral(y, size, power):
        noise = soft_insensitive(C=size / 0.4, epsilon=0.08, beta=0.3)
        f = stats.norm(0.0, np.sqrt(1 + 1e-6))
        return np.log(
            integrate.quad(
                lambda g: f.pdf(g) * np.exp(power * float(noise.log_density(y - g))), -8, 8, points=[y], limit=200
            )[0]
        )

    expected = sum(log_integral(y, s, alpha) - log_integral(y, s, 1.0) for y, s in zip(Y, SIZE, strict=True))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.fixture(scope="module")
def drawn():
    """Draws of the hyperparameters of the Gaussian model from their posterior on a grid."""
    model = build("gaussian")
    problem = read_model(model)
    rng = np.random.default_rng(2)
    sigma, ls = (a.ravel() for a in np.meshgrid(np.linspace(0.05, 1.0, 50), np.linspace(0.2, 2.5, 50)))
    log = []
    for s, w in zip(sigma, ls, strict=True):
        K = np.exp(-0.5 * ((X - X.T) / w) ** 2) + np.diag((s * SIZE) ** 2 + 1e-6)
        log.append(stats.multivariate_normal(cov=K).logpdf(Y) + stats.halfnorm.logpdf(s) + stats.lognorm(0.5).logpdf(w))
    share = np.exp(np.array(log) - max(log))
    chosen = rng.choice(sigma.size, size=(2, 400), p=share / share.sum())
    held = {"sigma": (("chain", "draw"), sigma[chosen]), "lengthscale": (("chain", "draw"), ls[chosen])}
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset(held)})
    samples = recover(problem, samples, bp.MeanField(), rng, False)
    method = json.dumps(to_record(bp.NUTS(latent=bp.MeanField())))
    attributes = {"inference": "NUTS (mean field)", "method": method, "converged": 1}
    return model, from_samples(problem, samples, {}, attributes, rng)


def test_it_is_what_arviz_finds_from_the_expected_log_likelihood(drawn):
    """For powers near 1 the log weight is (α - 1)·E[log p(y|f)], here by dense algebra."""
    model, result = drawn
    table = bp.sensitivity(result, model=model, progressbar=False)
    expected = np.empty((2, 400, N))
    posterior = result["posterior"].to_dataset()
    for chain, draw in np.ndindex(2, 400):
        s, w = float(posterior["sigma"][chain, draw]), float(posterior["lengthscale"][chain, draw])
        K = np.exp(-0.5 * ((X - X.T) / w) ** 2) + 1e-6 * np.eye(N)
        v = (s * SIZE) ** 2
        half = np.linalg.solve(K + np.diag(v), K)
        mean, variance = half.T @ Y, np.diag(K - K @ half)
        expected[chain, draw] = -0.5 * np.log(2 * np.pi * v) - 0.5 * ((Y - mean) ** 2 + variance) / v
    groups = {name: result[name].to_dataset() for name in ("posterior", "log_prior")}
    groups["log_likelihood"] = xr.Dataset({"y": (("chain", "draw", "obs"), expected)}, coords=posterior.coords)
    arviz = az.psense_summary(xr.DataTree.from_dict(groups), var_names=["lengthscale", "sigma"], round_to=10)
    assert list(table.index) == ["lengthscale", "sigma"]
    for column in ("prior", "likelihood"):
        np.testing.assert_allclose(table[column], arviz.loc[table.index, column], rtol=0.03, atol=2e-3)
    assert table["diagnosis"].tolist() == arviz.loc[table.index, "diagnosis"].tolist()
    assert set(table.attrs["k_hat"]) == {"prior", "likelihood"}


def test_rows_and_f_go_to_arviz_too(drawn):
    """The same result has what `arviz.psense_summary` needs; its weights are those of f and hyperparameters jointly."""
    _, result = drawn
    table = az.psense_summary(result, var_names=["sigma", "lengthscale"])
    assert np.isfinite(table[["prior", "likelihood"]].to_numpy()).all()


def test_bad_arguments_are_named(drawn):
    model, result = drawn
    with pytest.raises(ValueError, match="draws must be an integer of at least 25"):
        bp.sensitivity(result, model=model, progressbar=False, draws=3)


def test_points_and_labels_are_refused(sinc_model, sinc_results):
    with pytest.raises(ValueError, match=r"result must have sampled hyperparameters, .*, got one of mean field"):
        bp.sensitivity(sinc_results["mean field"], model=sinc_model[0])
    labels = classification.default_label_model(X, np.where(Y > 0, 1.0, -1.0))
    with pytest.raises(ValueError, match=r"the noise must be a loss of residuals, got hinge: use arviz\.psense"):
        bp.sensitivity(sinc_results["mean field"], model=labels)

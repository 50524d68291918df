"""Scores against closed forms and brute force."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from scipy.stats import multivariate_normal, norm, uniform

import bsvr_pp as bp
from bsvr_pp.approximations import laplace
from bsvr_pp.assess.assessment import Hyperparameter
from bsvr_pp.assess.scores import calibration_error, hyperparameter_draws, latent_k_hat, marginal_distances
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.problem import read_model


def prediction(targets, quantiles=(0.025, 0.1, 0.9, 0.975)):
    """A prediction of standard normals, made by hand."""
    levels, n = np.array(quantiles), len(targets)
    data = {
        "f_mean": ("obs_new", np.zeros(n)),
        "y_quantile": (("quantile", "obs_new"), np.repeat(norm.ppf(levels)[:, None], n, 1)),
        "y_log_density": ("obs_new", norm.logpdf(targets)),
        "y_cdf": ("obs_new", norm.cdf(targets)),
        "y_crps": ("obs_new", np.arange(n) / 10),
    }
    return xr.Dataset(data, coords={"quantile": levels, "y_new": ("obs_new", targets)})


def test_scores_of_a_standard_normal():
    y = np.array([-1.3, 0.4, 1.5, -2.5])
    found = bp.scores(prediction(y), y)
    assert found == {
        "ase": pytest.approx(np.mean(y**2)),
        "aae": pytest.approx(np.mean(np.abs(y))),
        "mlpd": pytest.approx(norm.logpdf(y).mean()),
        "crps": pytest.approx(0.15),
        "coverage 80 %": 0.25,
        "coverage 95 %": 0.75,
        "calibration error": pytest.approx(calibration_error(norm.cdf(y))),
    }
    with pytest.raises(ValueError, match="y must be the targets that predict was given as y_new"):
        bp.scores(prediction(y), y + 0.1)
    with pytest.raises(ValueError, match=r"with the density of the targets"):
        bp.scores(prediction(y).drop_vars("y_log_density"), y)
    for missing, ends in ((1, "0.1 and 0.9"), (3, "0.025 and 0.975")):
        with pytest.raises(ValueError, match=f"must have the quantiles {ends}, for the coverage"):
            bp.scores(prediction(y, np.delete([0.025, 0.1, 0.9, 0.975], missing)), y)


def test_distances_of_few_draws_by_hand():
    """Shares in tenths of the reference, each with half a draw more, against the mean of equal distributions."""
    reference, draws = np.arange(40.0), np.r_[np.linspace(0.3, 5.2, 28), 20.1, 38.0]
    distance, kl = marginal_distances(reference + 3.0, reference)
    assert distance == pytest.approx(3.0 / reference.std(ddof=1))
    assert kl == 0.0
    counts = np.histogram(draws, [-1, *np.quantile(reference, np.arange(1, 10) / 10), 50])[0]
    p, q = np.full(10, 4.5) / 45, (counts + 0.5) / 35
    expected = np.sum(p * np.log(p / q)) - 0.5 * 9 * (1 / 40 + 1 / 30)
    assert expected > 0.1
    assert marginal_distances(draws, reference)[1] == pytest.approx(expected)


def result_of(posterior, **groups):
    dims = {1: ("chain", "draw"), 2: ("chain", "draw", "element"), 3: ("chain", "draw", "obs")}
    held = xr.Dataset({name: (dims[kind], values) for name, (kind, values) in posterior.items()})
    sets = {name: xr.Dataset({k: ("obs", v) for k, v in group.items()}) for name, group in groups.items()}
    return xr.DataTree.from_dict({"posterior": held, **sets})


def test_each_element_of_a_vector_has_its_draws():
    scales, C = np.arange(12.0).reshape(2, 3, 2), np.arange(6.0).reshape(2, 3)
    held = {"lengthscale": (2, scales), "C": (1, C), "f": (3, np.zeros((2, 3, 4)))}
    found = hyperparameter_draws(result_of(held, latent_posterior={"mean": np.zeros(4)}))
    assert {entry.label: x.tolist() for entry, x in found.items()} == {
        "C": [0, 1, 2, 3, 4, 5],
        "lengthscale[0]": [0, 2, 4, 6, 8, 10],
        "lengthscale[1]": [1, 3, 5, 7, 9, 11],
    }
    point = hyperparameter_draws(result_of(held, latent_posterior={"dual_coef": np.zeros(4)}))
    assert {entry.label: x.tolist() for entry, x in point.items()} == {
        "C": [0],
        "lengthscale[0]": [0],
        "lengthscale[1]": [1],
    }


def test_k_hat_of_draws_that_are_made_by_hand():
    """log p(y|f) + log p(f) - log q(f), with the prior covariance."""
    x = np.linspace(-2, 2, 8)
    K, y, noise = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(8), np.sin(x), soft_insensitive(6.0, 0.1, 0.3)
    found = laplace(K, y, noise)
    f = found.draw(400, np.random.default_rng(0))
    likelihood = noise.log_density(y - f)
    latent = {name: getattr(found, name) for name in ("mean", "variance", "dual_coef", "site_precision")}
    tree = result_of({"f": (3, f[None])}, latent_posterior=latent)
    tree["log_likelihood"] = xr.DataTree(xr.Dataset({"y": (("chain", "draw", "obs"), likelihood[None])}))
    prior = multivariate_normal(cov=K).logpdf(f)
    sites = np.diag(found.site_precision)
    covariance = K - K @ np.linalg.solve(np.eye(8) + sites @ K, sites @ K)
    ratio = likelihood.sum(axis=1) + prior - multivariate_normal(found.mean, covariance).logpdf(f)
    assert latent_k_hat(tree) == pytest.approx(array_stats.psislw(-ratio)[1], abs=1e-6)
    tree["latent_posterior"]["variance"][:] = 0.0
    assert np.isnan(latent_k_hat(tree))


def test_calibration_error_is_the_distance_of_distribution_functions():
    rng = np.random.default_rng(0)
    pit = rng.beta(2.0, 1.0, 40)
    u = (np.arange(200_000) + 0.5) / 200_000
    share = np.searchsorted(np.sort(pit), u, side="right") / pit.size
    assert calibration_error(pit) == pytest.approx(np.mean(np.abs(share - u)), abs=1e-4)
    perfect = [calibration_error(rng.random(100)) for _ in range(300)]
    assert np.mean(perfect) == pytest.approx(0.31 / 10, rel=0.1)


def test_distances_of_normals():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=20_000)
    shift, kl = marginal_distances(rng.normal(0.5, 1.0, 20_000), reference)
    assert shift == pytest.approx(0.5, abs=0.03)
    # Between tenths of the reference a little of KL = ½·0.5² is lost.
    assert kl == pytest.approx(0.125, abs=0.015)
    same = [marginal_distances(rng.normal(size=300), rng.normal(size=300))[1] for _ in range(100)]
    assert np.mean(same) < 0.015


def test_distances_of_points():
    reference = uniform.rvs(size=5000, random_state=1)
    distance, kl = marginal_distances(np.array([0.0]), reference)
    assert distance == pytest.approx(0.5 * np.sqrt(12), rel=0.03)
    assert np.isnan(kl)
    assert np.isnan(marginal_distances(reference, np.array([0.0]))).all()


def test_scores_by_hand(sinc_model, sinc_results):
    model, _ = sinc_model
    X, y = np.array([[0.0], [3.0]]), np.array([5.0, 0.0])
    prediction = bp.predict(sinc_results["Laplace"], X, model=model, y_new=y)
    found = bp.scores(prediction, y)
    error = y - prediction["f_mean"].values
    assert found["ase"] == pytest.approx(np.mean(error**2))
    assert found["aae"] == pytest.approx(np.mean(np.abs(error)))
    assert found["coverage 95 %"] == 0.5
    assert found["crps"] == pytest.approx(float(prediction["y_crps"].mean()))


def test_crps_and_cdf_of_gaussian_noise_have_their_closed_forms():
    """CRPS of a normal: Gneiting & Raftery 2007, (21)."""
    X = np.linspace(-2, 2, 12)[:, None]
    y_new = np.array([-3.0, -0.2, 0.0, 0.9, 4.0])
    with pm.Model():
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7)).prior("f", X=X)
        pm.Normal("y", mu=f, sigma=0.2, observed=np.sin(2 * X[:, 0]))
        seen = bp.predict(bp.fit(bp.MeanField(), progressbar=False), np.linspace(-2, 3, 5)[:, None], y_new=y_new)
    sd = np.sqrt(seen["y_variance"].values)
    z = (y_new - seen["y_mean"].values) / sd
    np.testing.assert_allclose(seen["y_cdf"], norm.cdf(z), atol=1e-10)
    crps = sd * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(seen["y_crps"], crps, rtol=1e-3)


@pytest.mark.parametrize("name", ["MAP", "mean field", "NUTS"])
def test_crps_is_the_expected_distance_less_half_the_spread(sinc_model, sinc_results, name):
    """CRPS = E|Y - y| - ½ E|Y - Y'|, with Y by its quantiles."""
    model, _ = sinc_model
    X, y = np.array([[0.3], [6.0]]), np.array([0.4, 1.5])
    levels = (np.arange(100) + 0.5) / 100
    seen = bp.predict(sinc_results[name], X, model=model, y_new=y, quantiles=levels)
    draws = seen["y_quantile"].values
    spread = np.abs(draws[:, None] - draws[None]).mean(axis=(0, 1))
    np.testing.assert_allclose(
        seen["y_crps"], np.abs(draws - y).mean(axis=0) - 0.5 * spread, rtol=0.1 if name == "NUTS" else 0.01
    )
    expected = (draws <= y).mean(axis=0)
    np.testing.assert_allclose(seen["y_cdf"], expected, atol=0.05 if name == "NUTS" else 0.01)


@pytest.mark.parametrize("name", ["Laplace", "mean field"])
def test_k_hat_is_that_of_the_dense_densities(sinc_model, sinc_results, name):
    model, _ = sinc_model
    result = sinc_results[name]
    problem = read_model(model)
    posterior = result["posterior"].to_dataset()
    K, mean, noise = problem.at({h: posterior[h].values[0, 0] for h in problem.hyperparameters})
    latent = result["latent_posterior"].to_dataset()
    f = posterior["f"].values[0]
    precision = np.linalg.inv(K.dense())
    site = precision + np.diag(latent["site_precision"].values)
    a, b = f - mean, f - latent["mean"].values
    log_p = noise.log_density(problem.targets - f).sum(axis=1) - 0.5 * np.einsum("si,ij,sj->s", a, precision, a)
    log_q = -0.5 * np.einsum("si,ij,sj->s", b, site, b)
    assert latent_k_hat(result) == pytest.approx(array_stats.psislw(log_q - log_p)[1], abs=1e-3)


def test_k_hat_is_for_approximations_alone(sinc_results):
    assert np.isnan(latent_k_hat(sinc_results["MAP"]))
    assert np.isnan(latent_k_hat(sinc_results["NUTS"]))


def test_draws_of_hyperparameters(sinc_results):
    assert {entry.label: x.size for entry, x in hyperparameter_draws(sinc_results["Laplace"]).items()} == {
        "C": 1,
        "amplitude": 1,
        "epsilon": 1,
        "lengthscale": 1,
    }
    assert hyperparameter_draws(sinc_results["NUTS"])[Hyperparameter("C")].size == 300


def test_labels_have_an_error_rate():
    X = np.linspace(-2, 2, 12)[:, None]
    with pm.Model():
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=2.0, observed=np.sign(X[:, 0]))
        prediction = bp.predict(bp.fit(bp.Laplace(), progressbar=False), [[-1.5], [1.5]], y_new=[-1.0, -1.0])
    found = bp.scores(prediction, [-1.0, -1.0])
    assert found["error rate"] == 0.5
    assert set(found) == {"error rate", "mlpd"}

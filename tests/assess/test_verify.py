"""The certificate: weights against exact evidences, verdicts, corrections against quadrature."""

import json
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from scipy.stats import multivariate_normal, norm

import bsvr_pp as bp
from bsvr_pp.assess.evidence import latent_k_hat, pareto_weights
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.protocol import to_record
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft

DATA = sinc(20, random_seed=4)


def build():
    free = {"ls": lambda: pm.InverseGamma("lengthscale", 5, 10), "C": lambda: pm.LogNormal("C", 1.5, 0.7)}
    return process_model(soft, DATA.X, **free, epsilon=0.3, beta=0.1, observed=DATA.y)


def recovered(model, latent, draws):
    """Draws of the priors in the place of a posterior: what verify weights does not matter to its weights."""
    drawn = pm.draw([model["C"], model["lengthscale"]], draws=draws, random_seed=0)
    return with_latent(model, latent, dict(zip(("C", "lengthscale"), drawn, strict=True)))


def with_latent(model, latent, drawn):
    """A result with the given draws of the hyperparameters, as if they had been sampled with f integrated out."""
    samples = az.from_dict({"posterior": {name: values[None] for name, values in drawn.items()}})
    tree = bp.recover_latent(samples, model=bp.marginalize(latent, model), random_seed=0, progressbar=False)
    tree.attrs |= {"inference": "NUTS", "method": json.dumps(to_record(bp.NUTS(latent)))}
    return tree


def gaussian(center=1.5, spread=0.7):
    """A model of Gaussian noise whose only hyperparameter is C, and log p(y|C) in closed form."""
    K = np.exp(-0.5 * (DATA.X - DATA.X.T) ** 2)
    scale = {"sigma": lambda: 1 / pm.LogNormal("C", center, spread)}
    model = process_model(pm.Normal, DATA.X, prior={"jitter": 0.0}, **scale, observed=DATA.y)

    def log_evidence(C):
        return multivariate_normal.logpdf(DATA.y, cov=K + np.eye(len(K)) / C**2)

    return model, log_evidence


def tilted(model, log_evidence, tilt, draws=300):
    """Draws under an evidence that is wrong by the factor C**tilt; exact posterior mean and sd by quadrature."""
    log_C = np.linspace(-1.0, 4.0, 1501)
    exact = norm.logpdf(log_C, 1.5, 0.7) + np.array([log_evidence(c) for c in np.exp(log_C)])

    def mass(log_density):
        weight = np.exp(log_density - log_density.max())
        return weight / weight.sum()

    wrong = np.cumsum(mass(exact + tilt * log_C))
    # Evenly spaced quantiles in the place of random draws: what is off is then the weights, and not chance.
    C = np.exp(np.interp((np.arange(draws) + 0.5) / draws, wrong, log_C))
    result = with_latent(model, bp.MeanField(), {"C": C})
    used = result["latent_draws"].to_dataset()["log_evidence"]
    np.testing.assert_allclose(used[0], [log_evidence(c) for c in C], atol=1e-6)
    result["latent_draws"]["log_evidence"] = used + tilt * np.log(C)
    mean = float(mass(exact) @ np.exp(log_C))
    sd = float(np.sqrt(mass(exact) @ (np.exp(log_C) - mean) ** 2))
    return result, mean, sd


@pytest.mark.slow_cases("-4.0")
@pytest.mark.parametrize("tilt", [-4.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_the_corrected_mean_and_sd_are_those_of_quadrature(tilt):
    """An evidence that is wrong by C^±4 moves the mean of C by more than half a standard deviation."""
    result, mean, sd = tilted(*(built := gaussian()), tilt)
    found = bp.verify(result, model=built[0], draws=300, particles=400, random_seed=1, progressbar=False)
    row = found.table.loc["C"]
    assert found.k_hat < 0.7
    assert np.sign(tilt) * (row["mean"] - mean) > 0.5 * sd
    assert row["corrected mean"] == pytest.approx(mean, abs=0.1 * sd)
    assert row["corrected sd"] == pytest.approx(sd, rel=0.1)
    assert row["shift"] == pytest.approx((mean - row["mean"]) / sd, rel=0.15)
    expected = np.exp(-tilt * np.log(result["posterior"]["C"].values[0]))
    assert np.corrcoef(np.exp(found.log_weights), expected)[0, 1] > 0.95
    assert found.effective_draws == pytest.approx(expected.sum() ** 2 / (expected**2).sum(), rel=0.1)


@pytest.mark.slow_cases("20")
@pytest.mark.parametrize("particles", [20, pytest.param(320, marks=pytest.mark.slow)])
def test_the_particle_error_is_the_spread_over_repeats(particles):
    model, _ = gaussian()
    result = with_latent(model, bp.MeanField(), {"C": np.full(25, 5.0)})
    repeats = [
        bp.verify(result, model=model, draws=25, particles=particles, random_seed=s, progressbar=False)
        for s in range(12)
    ]
    spread = np.std([found.log_ratio for found in repeats], ddof=1)
    stated = np.median([found.particle_error for found in repeats])
    assert stated == pytest.approx(spread, rel=0.25)
    # What does not vary does not shift.
    assert repeats[0].table.loc["C", "shift"] == 0.0
    again = bp.verify(result, model=model, draws=25, particles=particles, random_seed=0, progressbar=False)
    np.testing.assert_array_equal(repeats[0].log_ratio, again.log_ratio)


def test_equal_ratios_need_no_tail():
    """Under a nearly flat likelihood every evidence is that of the approximation, to rounding."""
    model, _ = gaussian(center=np.log(1e-5), spread=0.3)
    result = with_latent(model, bp.MeanField(), {"C": np.exp(np.log(1e-5) + 0.3 * np.linspace(-2, 2, 60))})
    with warnings.catch_warnings(action="error"):
        found = bp.verify(result, model=model, particles=20, random_seed=1, progressbar=False)
    assert np.ptp(found.log_ratio) < 1e-6
    assert found.k_hat == 0.0
    assert found.effective_draws == pytest.approx(60)
    assert np.exp(found.log_weights).sum() == pytest.approx(1.0)
    assert found.table.loc["C", "corrected mean"] == pytest.approx(found.table.loc["C", "mean"])
    assert "can be believed" in found.verdict


@pytest.mark.slow
def test_the_ratio_is_that_of_the_evidences():
    """Local Laplace against the annealed evidence at three draws."""
    model = build()
    result = recovered(model, bp.Laplace(curvature="local"), draws=30)
    found = bp.verify(result, model=model, draws=30, particles=2000, random_seed=1, progressbar=False)
    posterior = result["posterior"].to_dataset()
    for s in (0, 11, 23):
        at = {name: posterior[name].values[0, s] for name in ("C", "lengthscale")}
        used = bp.log_evidence(bp.Laplace(curvature="local"), model, hyperparameters=at).value
        truth = bp.log_evidence(bp.Annealed(), model, hyperparameters=at, random_seed=2)
        assert found.log_ratio[s] == pytest.approx(truth.value - used, abs=0.05 + 4 * truth.standard_error)


@pytest.mark.slow
def test_a_wrong_approximation_is_found_out():
    model = build()
    result = recovered(model, bp.MeanField(), draws=100)
    wrong = result.copy()
    noise = np.random.default_rng(0).standard_t(1, (1, 100))
    evidence = result["latent_draws"].to_dataset()["log_evidence"]
    wrong["latent_draws"]["log_evidence"] = evidence + 3 * noise
    found = bp.verify(wrong, model=model, particles=50, random_seed=1, progressbar=False)
    assert found.k_hat > 0.7
    assert "sample f as well" in found.verdict


@pytest.mark.parametrize("equal", [0, 5])
def test_with_a_tail_they_are_arviz_own(equal):
    """Also if a few ratios are equal: the tail of 100 has 20 of them."""
    ratio = np.r_[np.random.default_rng(0).normal(size=100 - equal), np.full(equal, 4.0)]
    log_weights, k_hat = pareto_weights(ratio)
    expected, shape = array_stats.psislw(-ratio)
    np.testing.assert_array_equal(log_weights, expected)
    assert k_hat == shape != 0.0
    assert np.corrcoef(log_weights, ratio)[0, 1] > 0.9


@pytest.mark.parametrize(
    "ratio",
    [
        np.full(60, -3.0),
        -3.0 + 1e-13 * np.random.default_rng(0).normal(size=60),
        np.r_[np.zeros(59), -5.0],
        np.r_[np.zeros(30), np.ones(30)],
        np.zeros(26),
    ],
    ids=["equal", "equal to rounding", "one smaller", "two values", "few"],
)
def test_without_a_tail_they_are_the_ratios_themselves(ratio):
    with warnings.catch_warnings(action="error"):
        log_weights, k_hat = pareto_weights(ratio)
    assert k_hat == 0.0
    np.testing.assert_allclose(np.exp(log_weights), np.exp(ratio) / np.exp(ratio).sum())


def test_an_exact_posterior_has_a_k_hat_of_zero():
    """Under Gaussian noise mean field is exact, and all ratios are equal."""
    X = np.linspace(-2, 2, 12)[:, None]
    model = process_model(pm.Normal, X, sigma=lambda: pm.HalfNormal("sigma"), observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, hyperparameters={"sigma": 0.2}, progressbar=False)
    table = bp.compare({"mean field": result}, model=model, loo=False)
    assert table.loc["mean field", "k-hat"] == 0.0
    assert table.loc["mean field", "verdict"] == "no problem was found"


@pytest.mark.slow_cases("Laplace")
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

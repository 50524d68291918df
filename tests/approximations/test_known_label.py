"""Labels that are known: the PyMC distribution, mean field against integrals, blocks, and what is refused."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from problems import assert_gradient_matches_differences, smooth

import bsvr_pp as bp
from bsvr_pp.classification import KnownLabel
from bsvr_pp.core.approximations import find_mode, laplace, mean_field, mean_field_gradient
from bsvr_pp.core.approximations.mean_field import nearest_moments
from bsvr_pp.core.losses.registry import LIKELIHOODS, label_probability
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.blocks import Blocks
from tests.helpers import process_model

F = np.array([-40.0, -1.3, -1.0, -0.2, 0.0, 0.7, 1.0, 2.5])


def noise(C, reach=1e4):
    return NoiseModel(LIKELIHOODS["known_label"], {"C": C, "reach": reach})


def labelled(n=20):
    K, y = smooth(n)
    return K, np.where(y > 0, 1.0, -1.0)


@pytest.mark.parametrize("reach", [0.2, 1e4])
def test_masses_draws_and_cdf(reach):
    probability = label_probability(F, 1.5, reach)
    y = KnownLabel.dist(f=F, C=1.5, reach=reach)
    masses = [np.exp(pm.logp(y, np.full(F.size, k)).eval(mode="FAST_COMPILE")) for k in (-1, 0, 1)]
    np.testing.assert_allclose(masses, [1 - probability, 0 * F, probability], atol=1e-14)
    below = np.exp(pm.logcdf(y, np.full(F.size, -1)).eval(mode="FAST_COMPILE"))
    np.testing.assert_allclose(below, masses[0], rtol=1e-12)
    draws = pm.draw(KnownLabel.dist(f=np.tile(F, (20_000, 1)), C=1.5, reach=reach), random_seed=1)
    assert set(np.unique(draws)) == {-1, 1}
    np.testing.assert_allclose((draws == 1).mean(axis=0), masses[2], atol=0.015)


@pytest.mark.slow_cases("0.7")
@pytest.mark.parametrize("C", [0.7, 4.0])
def test_evidence_and_moments_of_two_labels_against_a_grid(C):
    K, y = np.array([[2.0, 1.2], [1.2, 3.0]]), np.array([1.0, -1.0])
    at = np.linspace(-14, 14, 1401)
    f = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)
    prior = np.exp(-0.5 * np.einsum("ij,jk,ik->i", f, np.linalg.inv(K), f)) / (2 * np.pi * np.sqrt(np.linalg.det(K)))
    weight = prior * np.prod(label_probability(y * f, C), axis=1) * (at[1] - at[0]) ** 2
    found = mean_field(K, y, noise(C))
    assert found.converged and found.log_evidence == pytest.approx(np.log(weight.sum()), abs=0.01)
    np.testing.assert_allclose(found.mean, weight @ f / weight.sum(), atol=0.05)


@pytest.mark.parametrize("C", [0.7, 2.0])
def test_the_gradient_is_exact_without_sites_at_their_bound(C):
    K, y = labelled()

    assert (mean_field(K, y, noise(C), mean=0.1 * y).site_precision > 0).all()
    assert_gradient_matches_differences(mean_field, mean_field_gradient, K, y, noise(C), 0.1 * y, rel=1e-4, abs=1e-4)


def test_sites_that_would_be_negative_are_zero_and_match_the_mean():
    """The prior is narrow, with all labels on the wrong side."""
    K, y = labelled()
    found = mean_field(0.05 * K, y, noise(3.0), mean=-y)
    bound = found.site_precision == 0
    assert found.converged and bound.any() and (found.site_precision >= 0).all()
    _, mean, variance = noise(3.0).tilted(found.cavity_mean, found.cavity_variance, y)
    np.testing.assert_allclose(mean, found.mean, atol=1e-7)
    assert (variance[bound] > found.variance[bound]).all()
    np.testing.assert_allclose(variance[~bound], found.variance[~bound], rtol=1e-6)


@pytest.mark.slow_cases("3.0")
@pytest.mark.parametrize("variance", [0.3, 3.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_wrong_labels_among_many_rows_converge(variance):
    """The damped sweeps take their time; from the prior they were given up after 30 without progress."""
    rng = np.random.default_rng([0, 800, 20])
    X = np.vstack([rng.normal(-2, 1, (400, 2)), rng.normal(2, 1, (400, 2))])
    y = np.where(rng.random(800) < 0.1, -1.0, 1.0) * np.repeat([-1.0, 1.0], 400)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    distance = ((X[:, None] - X) ** 2).sum(axis=-1)
    K = variance * (np.exp(-distance / 8.0) + X @ X.T / 4.0) + 1.0 + 1e-5 * np.eye(800)
    assert mean_field(K, y, noise(1.14)).converged


@pytest.mark.parametrize("seed", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_a_fifth_of_wrong_labels_beside_a_step_converges(seed):
    """The mismatch grows for 20 sweeps before it decreases: damping that shrank meanwhile made it stop."""
    rng = np.random.default_rng(seed)
    x, chance = rng.uniform(-3, 3, 2500)[:500], rng.random(2500)[:500]
    u = (x - x.mean()) / x.std() / 0.14
    K = 3.0 * np.exp(-0.5 * (u[:, None] - u) ** 2) + 3.0 * u[:, None] * u + 1.65 + 1e-5 * np.eye(500)
    posterior = mean_field(K, np.where((x > 0) ^ (chance < 0.2), 1.0, -1.0), noise(0.5, reach=2.0))
    assert posterior.converged and posterior.mismatch < 1e-6


def test_nearest_rows_have_the_posterior_of_these_rows():
    (K, y), order = labelled(), [8, *range(8)]
    alone = mean_field(K[:8, :8], y[:8], noise(2.0)).predict(K[8:9, :8], K[8, 8:9])
    found = nearest_moments(K[None, order][:, :, order], np.zeros((1, 9)), y[None, :8], noise(2.0), mismatch=1e-8)
    np.testing.assert_allclose([found.mean, found.variance], alone, atol=1e-6)


def model(blocks=None, n=24):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (n, 1)), axis=0)
    y = np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n) > 0, 1, -1)
    C, prior = partial(pm.LogNormal, "C", 0.0, 1.0), {"blocks": blocks}
    return process_model(KnownLabel, X, ls=0.7, factor=4.0, prior=prior, C=C, observed=y), X


def test_the_evidence_of_blocks_is_a_sum_and_C_is_chosen_without_a_normaliser():
    blocks = Blocks(np.repeat([0, 1], 12))
    made, X = model(blocks)
    result = bp.fit(bp.MeanField(), made, random_seed=0, progressbar=False)
    C = result["posterior"]["C"][0, 0].item()
    y = result["observed_data"]["y"].values
    assert {result[group]["y"].dtype.kind for group in ("observed_data", "posterior_predictive")} == {"i"}  # for ArviZ
    K = 4.0 * np.exp(-0.5 * (X - X.T) ** 2 / 0.7**2) + 1e-6 * np.eye(24)
    parts = [mean_field(K[s, s], y[s].astype(float), noise(C)).log_evidence for s in (slice(12), slice(12, 24))]
    assert result.attrs["converged"] and result.attrs["log_evidence"] == pytest.approx(sum(parts), abs=1e-4)


def test_predictions_of_pymc_models_are_class_probabilities():
    made, X = model()
    result = bp.fit(bp.MeanField(), made, hyperparameters={"C": 0.5}, progressbar=False)
    found = bp.predict(result, X[:5], y_new=np.ones(5), model=made)
    np.testing.assert_allclose(found["y_log_density"], np.log(found["y_probability"]))
    annealed = bp.log_evidence(bp.Annealed(500, 4), made, hyperparameters={"C": 0.5}, random_seed=0)
    assert result.attrs["log_evidence"] == pytest.approx(annealed.value, abs=0.1 + 4 * annealed.standard_error)
    assert np.isfinite(bp.loo(result, model=made).elpd)


@pytest.mark.parametrize("method", [bp.MAP(), bp.Laplace(), bp.Laplace(curvature="local")])
def test_methods_that_seek_the_mode_are_refused(method):
    K, y = labelled()
    for solve in (find_mode, laplace):
        with pytest.raises(ValueError, match="known_label has several modes"):
            solve(K, y, noise(1.0))
    for given in (None, {"C": 1.0}):
        with pytest.raises(ValueError, match="known_label has several modes"):
            bp.fit(method, model()[0], hyperparameters=given, progressbar=False)

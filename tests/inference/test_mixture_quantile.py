"""Quantiles of mixtures of f + noise, against their cdf."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bsvr_pp.core.losses.noise import widen
from bsvr_pp.inference.prediction.distribution import mixture_quantile
from bsvr_pp.losses import absolute, gaussian, huber, pinball, soft_insensitive

LEVELS = np.array([1e-6, 0.025, 0.31, 0.5, 0.77, 0.975, 1.0 - 1e-6])
NOISES = [
    soft_insensitive(C=5.0, epsilon=0.2, beta=0.8),
    absolute(C=2.0),
    huber(C=3.0, epsilon=0.5),
    gaussian(C=4.0),
    pinball(C=2.0, quantile=0.3),
]


def quantiles(levels, weights, means, variances, noises):
    """At levels that are the same for all rows."""
    each = np.broadcast_to(np.asarray(levels)[:, None], (len(levels), means.shape[1]))
    return mixture_quantile(each, weights, means, variances, noises)


def cdf(y, weights, means, variances, noises):
    return sum(w * n.predictive_cdf(y, m, v) for w, m, v, n in zip(weights, means, variances, noises, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-12, 1 - 1e-12), st.floats(-6, 6), st.floats(0, 1), st.floats(-12, 8))
def test_the_cdf_of_a_quantile_is_its_level(level, log_C_epsilon, beta, log_share):
    noise, one = soft_insensitive(2.0, 10.0**log_C_epsilon / 2, beta), np.ones((1, 1))
    mixture = one, 0.0 * one, noise.variance * 10.0**log_share * one, [noise]
    assert cdf(quantiles([level], *mixture)[0], *mixture) == pytest.approx(level, abs=1e-11)


def test_a_search_that_would_go_to_and_fro():
    """Steps alone have a cycle at the median of some mixtures of few components."""
    rng = np.random.default_rng(0)
    noises = [pinball(C=C, quantile=0.3) for C in (0.125, 0.5, 2.0)]
    weights, means = rng.dirichlet(np.full(3, 0.5), 1000).T, 3.0 * rng.normal(size=(3, 1000))
    variances = rng.exponential(size=(3, 1000)) * 10.0 ** rng.integers(-8, 1, (3, 1000))
    found = quantiles(LEVELS, weights, means, variances, noises)
    below = [cdf(row, weights, means, variances, noises) for row in found]
    np.testing.assert_allclose(below, np.broadcast_to(LEVELS[:, None], found.shape), rtol=1e-9, atol=1e-11)


def test_components_far_apart_and_points_without_variance():
    noises = [absolute(C=np.array([100.0, 1.0])), absolute(C=np.array([50.0, 2.0]))]
    weights, means = np.array([[0.5, 0.2], [0.5, 0.8]]), np.array([[-100.0, 0.0], [100.0, 0.0]])
    found = quantiles(LEVELS, weights, means, np.zeros((2, 2)), noises)
    for level, row in zip(LEVELS, found, strict=True):
        np.testing.assert_allclose(cdf(row, weights, means, np.zeros((2, 2)), noises), level, rtol=1e-9, atol=1e-11)
    assert (np.diff(found, axis=0) > 0).all()


def test_a_component_without_weight_does_not_matter():
    noises = [gaussian(C=1.0), gaussian(C=1e-12)]
    found = quantiles(LEVELS, np.array([[1.0], [0.0]]), np.zeros((2, 1)), np.ones((2, 1)), noises)
    expected = stats.norm.ppf(LEVELS, scale=2.0**0.5)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 100.0), st.floats(1e-3, 1e3))
def test_widened_noise_is_the_noise_in_another_unit(factor, scale):
    for noise in NOISES:
        wide, r = widen(noise, factor), scale * np.linspace(-3, 3, 13)
        expected = noise.log_density(r) - np.log(factor)
        np.testing.assert_allclose(wide.log_density(factor * r), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(wide.variance, factor**2 * noise.variance, rtol=1e-9)


def test_factors_of_widened_noise_may_differ():
    wide = widen(absolute(C=2.0), np.array([1.0, 4.0]))
    np.testing.assert_array_equal(wide.parameters["C"], [2.0, 0.5])

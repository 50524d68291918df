"""Moments and predictions of the latent posterior against dense formulas."""

from dataclasses import FrozenInstanceError
from functools import partial

import numpy as np
import pytest
from problems import LOSSES, from_the_box, smooth

from bsvr_pp.approximations import laplace, mean_field
from bsvr_pp.losses import soft_insensitive

NOISE = soft_insensitive(8.0, 0.1, 0.3)


METHODS = [laplace, partial(laplace, curvature="local"), mean_field]


@pytest.mark.parametrize("approximate", METHODS)
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_moments_and_predictions_are_the_dense_formulas(noise, approximate):
    K, y = smooth(40, 0, noise)
    inner, cross, y = K[:30, :30], K[30:, :30], y[:30]
    posterior = approximate(inner, y, noise)
    T = np.diag(posterior.site_precision)
    covariance = inner - inner @ T @ np.linalg.solve(np.eye(30) + inner @ T, inner)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-7)
    np.testing.assert_allclose(posterior.mean, inner @ posterior.dual_coef, atol=1e-12)
    mean, variance = posterior.predict(cross, np.diag(K)[30:], 1.0)
    np.testing.assert_allclose(mean, cross @ posterior.dual_coef + 1.0)
    expected = np.diag(K)[30:] - np.einsum("ij,jk,ik->i", cross, T @ np.linalg.inv(np.eye(30) + inner @ T), cross)
    np.testing.assert_allclose(variance, expected, rtol=1e-7)
    again, same = posterior.predict(inner, np.diag(inner), np.zeros(30))
    np.testing.assert_allclose(again, posterior.mean, atol=1e-12)
    np.testing.assert_allclose(same, posterior.variance, rtol=1e-7)


@pytest.mark.parametrize("approximate", METHODS)
def test_variances_are_never_negative(approximate):
    """Over the range of settings, with repeated rows, narrow sites and wide priors."""
    for i in range(40):
        K, y, noise = from_the_box(i, 60)
        K, rows = K - 1e-6 * np.eye(60), np.arange(50)
        posterior = approximate(K[:50, :50], y[rows], noise)
        _, variance = posterior.predict(K[:, :50], np.diag(K))
        for value in (posterior.variance, variance):
            assert (value >= 0).all(), (i, noise)
            assert (value <= np.max(np.diag(K)) * (1 + 1e-9)).all(), (i, noise)


def test_narrow_sites_keep_the_digits_of_the_variance():
    """Independent points of prior variance 1e6 under noise variance 1e-8: k - k²/(k + σ²) would lose them all."""
    posterior = laplace(1e6 * np.eye(3), [1.0, 2.0, 3.0], soft_insensitive(1e6, 1e-2 / 2, 1.0))
    np.testing.assert_array_equal(posterior.support, 1)
    np.testing.assert_allclose(posterior.variance, 1e-8, rtol=1e-10)


def test_without_sites_the_prior_variance_stays():
    posterior = laplace(np.eye(2), [0.0, 0.0], NOISE)
    np.testing.assert_array_equal(posterior.site_precision, 0.0)
    np.testing.assert_array_equal(posterior.variance, 1.0)
    np.testing.assert_array_equal(posterior.predict(np.ones((1, 2)), [3.0])[1], [3.0])


def test_no_new_inputs_give_no_predictions():
    mean, variance = laplace(np.eye(2), [0.0, 1.0], NOISE).predict(np.empty((0, 2)), np.empty(0))
    assert mean.shape == variance.shape == (0,)


def test_a_posterior_does_not_change():
    posterior = mean_field(np.eye(2), [1.0, -1.0], soft_insensitive(C=2.0, epsilon=0.1, beta=0.3))
    with pytest.raises(FrozenInstanceError):
        posterior.converged = False

"""Moments and predictions of the latent posterior against dense formulas."""

from __future__ import annotations

import numpy as np
import pytest
from problems import smooth

from bsvr_pp.approximations import laplace, mean_field
from bsvr_pp.losses import soft_insensitive

NOISE = soft_insensitive(8.0, 0.1, 0.3)


@pytest.mark.parametrize("approximate", [laplace, mean_field])
def test_moments_and_predictions_are_the_dense_formulas(approximate):
    K, y = smooth(40)
    train, new = np.arange(30), np.arange(30, 40)
    posterior = approximate(K[np.ix_(train, train)], y[train], NOISE)
    T = np.diag(posterior.site_precision)
    inner, cross = K[np.ix_(train, train)], K[np.ix_(new, train)]
    covariance = inner - inner @ T @ np.linalg.solve(np.eye(30) + inner @ T, inner)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-7)
    np.testing.assert_allclose(posterior.mean, inner @ posterior.dual_coef, atol=1e-12)
    mean, variance = posterior.predict(cross, np.diag(K)[new], 1.0)
    np.testing.assert_allclose(mean, cross @ posterior.dual_coef + 1.0)
    expected = np.diag(K)[new] - np.einsum("ij,jk,ik->i", cross, T @ np.linalg.inv(np.eye(30) + inner @ T), cross)
    np.testing.assert_allclose(variance, expected, rtol=1e-7)


def test_without_sites_the_prior_variance_stays():
    posterior = laplace(np.eye(2), [0.0, 0.0], NOISE)
    np.testing.assert_array_equal(posterior.site_precision, 0.0)
    np.testing.assert_array_equal(posterior.variance, 1.0)
    np.testing.assert_array_equal(posterior.predict(np.ones((1, 2)), [3.0])[1], [3.0])


def test_shapes_are_checked():
    posterior = laplace(np.eye(2), [0.0, 1.0], NOISE)
    with pytest.raises(ValueError, match=r"K_star must be an \(n_new, 2\) array, got shape \(1, 3\)"):
        posterior.predict(np.ones((1, 3)), [1.0])
    with pytest.raises(ValueError, match=r"k_star_diag must be a \(1,\) array, got shape \(2,\)"):
        posterior.predict(np.ones((1, 2)), [1.0, 1.0])

"""Gaussian sites on the prior covariance against dense linear algebra in extended range."""

import numpy as np
import pytest

from bsvr_pp.core.covariance.sites import apply_inverse, factor_sites, marginals, pull_back, site_inverse
from bsvr_pp.core.covariance.structure import split

N = 120


def setting(scale, bias, kind):
    rng = np.random.default_rng(2)
    x = np.linspace(-1, 1, N)
    K = np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / (0.5 if kind == "smooth" else 0.02) ** 2) + bias + 1e-6 * np.eye(N)
    tau = scale * rng.exponential(size=N)
    tau[::5] = 0.0
    parts = split(K, 1e-6)
    assert (parts.root.shape[1] > 0) == (kind == "smooth")
    return K, tau, parts


CASES = [(scale, bias, kind) for scale in (1e-3, 1.0, 1e4) for bias in (0.0, 300.0) for kind in ("smooth", "rough")]


@pytest.mark.parametrize(("scale", "bias", "kind"), CASES)
def test_determinant_and_inverse(scale, bias, kind):
    K, tau, parts = setting(scale, bias, kind)
    index = np.flatnonzero(tau)
    sites = factor_sites(parts, tau, index)
    assert sites.factored
    root = np.sqrt(tau)
    B = np.eye(N) + root[:, None] * K * root
    assert sites.log_det == pytest.approx(np.linalg.slogdet(B)[1], rel=1e-8)
    R = np.linalg.inv(K[np.ix_(index, index)] + np.diag(1 / tau[index]))
    x = np.random.default_rng(0).normal(size=index.size)
    tolerance = 1e-9 * (1 + bias) * np.abs(R).max()  # what the rounding of K allows
    np.testing.assert_allclose(apply_inverse(sites, x), R @ x, atol=tolerance * np.abs(x).sum())
    np.testing.assert_allclose(site_inverse(parts, sites)[0], R, atol=tolerance)


@pytest.mark.parametrize(("scale", "bias", "kind"), CASES)
def test_marginal_and_cavity_variances(scale, bias, kind):
    K, tau, parts = setting(scale, bias, kind)
    sites = factor_sites(parts, tau, np.arange(N))
    variance, cavity = marginals(parts, sites, np.empty_like(sites.triangle), 0.0)
    covariance = K - K @ np.linalg.solve(np.eye(N) + tau[:, None] * K, tau[:, None] * K)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-6, atol=1e-12 * (1 + bias))
    np.testing.assert_allclose(1 / cavity, 1 / variance - tau, rtol=1e-8, atol=1e-12 / variance.min())


def test_no_sites():
    parts = split(np.eye(3), 0.0)
    sites = factor_sites(parts, np.zeros(3), np.arange(0))
    assert sites.log_det == 0.0
    variance, cavity_variance = marginals(parts, sites, np.empty_like(sites.triangle), 0.0)
    np.testing.assert_array_equal(variance, 1.0)
    np.testing.assert_array_equal(cavity_variance, 1.0)


@pytest.mark.parametrize("points", [np.arange(6), np.array([1, 4])], ids=["all", "some"])
def test_pull_back_is_the_derivative_of_its_three_terms(points):
    rng = np.random.default_rng(3)
    a, pull, inverse = rng.normal(size=6), rng.normal(size=6), rng.normal(size=(points.size, points.size))
    inverse = inverse + inverse.T
    R = np.zeros((6, 6))
    R[np.ix_(points, points)] = inverse
    expected = 0.5 * (np.outer(a, a) - np.outer(pull, a) - np.outer(a, pull) - R)
    found = pull_back(split(np.eye(6), 0.0), points, inverse.copy(), a, pull)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)

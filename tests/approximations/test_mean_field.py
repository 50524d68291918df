"""Mean field against quadrature, the exact Gaussian process, its own equations and the original iteration."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from problems import LOSSES, REGRESSION, from_the_box, smooth
from scipy.integrate import quad

from bsvr_pp.approximations import laplace, mean_field
from bsvr_pp.losses import epsilon_insensitive, gaussian, soft_insensitive


def mismatch(K, y, noise, posterior):
    """Largest difference of posterior and tilted moments, from dual_coef and site_precision alone."""
    tau, a = posterior.site_precision, posterior.dual_coef
    variance = np.diag(np.linalg.solve(np.eye(y.size) + K * tau, K))
    mean = K @ a
    cavity = 1 / (1 / variance - tau)
    _, tilted_mean, tilted_variance = noise.tilted(mean - cavity * a, cavity, y)
    return max(np.max(np.abs(tilted_mean - mean) / np.sqrt(variance)), np.max(np.abs(tilted_variance / variance - 1)))


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_one_point_and_independent_points_are_exact(noise):
    prior, y = np.array([1.0, 0.3, 4.0]), np.array([1.0, -1.0, 1.0])
    posterior = mean_field(np.diag(prior), y, noise)
    total = 0.0
    for i in range(3):
        pieces = noise.sites(y)
        row = i if len(pieces.knots) > 1 else 0
        knots = np.unique(np.clip(y[i] - pieces.knots[row], -20, 20))

        def density(f, i=i):
            r = (1 - y[i] * f) if noise.name == "hinge" else y[i] - f
            return float(np.exp(noise.log_density(r) - 0.5 * f**2 / prior[i]) / np.sqrt(2 * np.pi * prior[i]))

        def integral(g, density=density, knots=knots):
            cuts = np.unique(np.concatenate([np.linspace(-20, 20, 81), knots]))
            return sum(quad(lambda f: g(f) * density(f), p, q, epsabs=1e-14)[0] for p, q in pairwise(cuts))

        mass = integral(lambda f: 1.0)
        mean = integral(lambda f: f) / mass
        variance = integral(lambda f, m=mean: (f - m) ** 2) / mass
        total += np.log(mass)
        assert posterior.mean[i] == pytest.approx(mean, abs=1e-8)
        assert posterior.variance[i] == pytest.approx(variance, rel=1e-7)
    assert posterior.log_evidence == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("noise", REGRESSION, ids=repr)
def test_two_points_are_close_to_the_truth(noise):
    K, y = np.array([[1.0, 0.7], [0.7, 1.0]]), np.array([0.6, -0.3])
    grid = np.linspace(-6, 6, 1601)
    inverse, determinant = np.linalg.inv(K), np.linalg.det(K)
    f, g = np.meshgrid(grid, grid, indexing="ij")
    prior = np.exp(-0.5 * (inverse[0, 0] * f**2 + 2 * inverse[0, 1] * f * g + inverse[1, 1] * g**2))
    prior /= 2 * np.pi * np.sqrt(determinant)
    joint = prior * np.exp(noise.log_density(y[0] - f) + noise.log_density(y[1] - g))
    cell = (grid[1] - grid[0]) ** 2
    mass = joint.sum() * cell
    posterior = mean_field(K, y, noise)
    assert posterior.log_evidence == pytest.approx(np.log(mass), abs=5e-3)
    assert posterior.mean[0] == pytest.approx((f * joint).sum() * cell / mass, abs=1e-2)
    assert posterior.mean[1] == pytest.approx((g * joint).sum() * cell / mass, abs=1e-2)


def test_gaussian_noise_is_the_exact_gaussian_process():
    K, y = smooth(30)
    posterior = mean_field(K, y, gaussian(20.0))
    S = K + np.eye(30) / 20.0
    exact = -0.5 * np.linalg.slogdet(2 * np.pi * S)[1] - 0.5 * y @ np.linalg.solve(S, y)
    assert posterior.log_evidence == pytest.approx(exact, abs=1e-10)
    np.testing.assert_allclose(posterior.mean, K @ np.linalg.solve(S, y), atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(K - K @ np.linalg.solve(S, K)), atol=1e-10)


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_moments_match_at_the_fixed_point(noise):
    K, y = smooth(40, 3, noise)
    posterior = mean_field(K, y, noise)
    assert posterior.converged
    assert posterior.mismatch <= 1e-8
    assert posterior.n_iter <= 60
    assert mismatch(K, y, noise, posterior) <= 1e-6
    assert (posterior.site_precision >= 0).all()


def test_the_original_iteration_ends_at_the_same_fixed_point():
    """gao2002's own scheme: (3.5), (3.10) and (3.11) with a learning rate, the moments by quadrature.

    w_i is the mean of the slope of the energy under the cavity; Σ_i the cavity's variance correction of (3.8).
    """
    K, y = smooth(10, 1)
    noise = epsilon_insensitive(5.0, 0.1)
    n, w, site_variance = 10, np.zeros(10), np.ones(10)
    for _ in range(4000):
        posterior = K - K @ np.linalg.solve(K + np.diag(site_variance), K)
        variance = np.diag(posterior)
        cavity = 1 / (1 / variance - 1 / site_variance)
        cavity_mean = K @ w - cavity * w
        _, tilted_mean, tilted_variance = noise.tilted(cavity_mean, cavity, y)
        w = w + 0.05 * ((tilted_mean - cavity_mean) / cavity - w)
        site_variance = site_variance + 0.05 * (1 / np.maximum(1 / tilted_variance - 1 / cavity, 1e-12) - site_variance)
    found = mean_field(K, y, noise)
    np.testing.assert_allclose(found.dual_coef, w, atol=1e-6)
    np.testing.assert_allclose(found.site_precision, 1 / site_variance, rtol=1e-4)
    assert n == found.mean.size


def test_evidence_is_smooth_where_laplace_jumps():
    K, y = smooth(30)
    grid = np.linspace(0.1, 0.3, 200)
    kinks = {}
    for name, approximate in (("mean field", mean_field), ("Laplace", laplace)):
        values = [approximate(K, y, soft_insensitive(10.0, e, 0.05)).log_evidence for e in grid]
        kinks[name] = np.abs(np.diff(values, 2)).max()
    assert kinks["mean field"] < 1e-3
    assert kinks["Laplace"] > 0.3


def test_evidence_has_a_limit_as_beta_vanishes():
    K, y = smooth(30)
    limit = mean_field(K, y, epsilon_insensitive(10.0, 0.1)).log_evidence
    near = mean_field(K, y, soft_insensitive(10.0, 0.1, 1e-5)).log_evidence
    assert near == pytest.approx(limit, abs=1e-3)


def test_order_and_units_do_not_matter():
    K, y = smooth(20, 2)
    noise = soft_insensitive(5.0, 0.1, 0.2)
    found = mean_field(K, y, noise)
    order = np.random.default_rng(0).permutation(20)
    permuted = mean_field(K[np.ix_(order, order)], y[order], noise)
    np.testing.assert_allclose(permuted.mean, found.mean[order], atol=1e-7)
    for scale in (1e-4, 1e4):
        scaled = mean_field(scale**2 * K, scale * y, soft_insensitive(5.0 / scale, 0.1 * scale, 0.2))
        np.testing.assert_allclose(scaled.mean / scale, found.mean, atol=1e-7)
        assert scaled.log_evidence == pytest.approx(found.log_evidence - 20 * np.log(scale), abs=1e-6)


def test_converges_over_the_range():
    """A sample of the whole range of settings; the mismatch is recomputed from the result."""
    for i in range(60):
        K, y, noise = from_the_box(i)
        posterior = mean_field(K, y, noise)
        assert posterior.converged, (i, noise, posterior.mismatch)
        assert np.isfinite(posterior.log_evidence)

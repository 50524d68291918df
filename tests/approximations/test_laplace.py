"""Laplace's evidence against the printed formula, exact limits, finite differences and quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from problems import LOSSES, REGRESSION, from_the_box, smooth
from scipy.integrate import quad

from bsvr_pp.core.approximations import laplace, laplace_gradient
from bsvr_pp.losses import absolute, epsilon_insensitive, hinge, soft_insensitive

CURVATURES = ["exact", "local"]


@pytest.mark.parametrize(("epsilon", "beta"), [(0.1, 0.3), (0.3, 0.05), (0.05, 1.0)])
def test_evidence_is_the_printed_formula(epsilon, beta):
    """chu2004 (37), term by term."""
    K, y = smooth(30)
    C = 10.0
    noise = soft_insensitive(C, epsilon, beta)
    posterior = laplace(K, y, noise)
    a = posterior.dual_coef
    off = (np.abs(a) > 1e-8) & (np.abs(a) < C - 1e-8)
    f = K @ a
    minus = (
        0.5 * a @ f
        + 30 * noise.log_normalizer
        + C * noise.loss(y - f).sum()
        + 0.5 * np.linalg.slogdet(np.eye(off.sum()) + C / (2 * beta * epsilon) * K[np.ix_(off, off)])[1]
    )
    assert posterior.log_evidence == pytest.approx(-minus, rel=1e-12)
    np.testing.assert_allclose(posterior.site_precision, np.where(off, C / (2 * beta * epsilon), 0.0))
    np.testing.assert_array_equal(posterior.support == 1, off)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_evidence_from_the_curvatures(noise, curvature):
    """(36): the integral of the Gaussian at the mode, by plain NumPy from dual_coef and site_precision."""
    K, y = smooth(30, 1, noise)
    posterior = laplace(K, y, noise, curvature=curvature)
    f, W = K @ posterior.dual_coef, posterior.site_precision
    log_density = noise.log_density(1 - y * f if noise.name == "hinge" else y - f).sum()
    log_determinant = np.linalg.slogdet(np.eye(30) + K * W)[1]
    expected = log_density - 0.5 * posterior.dual_coef @ f - 0.5 * log_determinant
    assert posterior.log_evidence == pytest.approx(expected, rel=1e-10)
    assert (W >= 0).all()
    assert (W[posterior.support == 2] == 0).all()


def test_bounds_far_above_the_dual_coefficients_do_not_hide_support_vectors():
    """With C → ∞ and no tube the mode interpolates: every point is off-bound, and the evidence pays for it."""
    K, y = np.eye(5), np.linspace(-1, 1, 5) + 0.1
    for C in (1e4, 1e8, 1e12):
        posterior = laplace(K, y, soft_insensitive(C, 0.0, 0.3))
        np.testing.assert_array_equal(posterior.support, 1)
        np.testing.assert_allclose(posterior.dual_coef, y, rtol=1e-6)
        assert posterior.log_evidence < 5


def test_gradients_are_finite_at_the_edges_of_the_parameters():
    K, y = smooth(15)
    for noise in (
        soft_insensitive(5.0, 0.0, 0.3),
        soft_insensitive(5.0, 0.1, 0.0),
        soft_insensitive(5.0, 0.0, 0.0),
        soft_insensitive(5.0, 0.1, 1e-300),
        soft_insensitive(1e8, 0.1, 0.3),
        soft_insensitive(1e-8, 0.1, 0.3),
        epsilon_insensitive(5.0, 0.0),
    ):
        for curvature in CURVATURES:
            for covariance in (K, np.zeros((15, 15)), np.ones((15, 15))):
                value, by = laplace_gradient(covariance, y, noise, curvature=curvature)
                assert np.isfinite(value)
                assert np.isfinite(by.K).all()
                assert np.isfinite(by.mean).all()
                assert np.isfinite(list(by.parameters.values())).all()


def test_local_curvature_has_the_right_limits():
    """Cε, Cβε ≫ 1: C/(2βε) inside a quadratic piece; 2π[(a - s₋)(s₊ - a)/(s₊ - s₋)]² at a kink between far others."""
    wide = laplace([[1.0]], [100.0], soft_insensitive(40.0, 99.9, 0.5), curvature="local")
    assert wide.site_precision[0] == pytest.approx(40.0 / 99.9, rel=1e-3)
    for y in (101.0, 102.5, 103.9):
        kink = laplace([[1.0]], [y], epsilon_insensitive(4.0, 100.0), curvature="local")
        a = kink.dual_coef[0]
        assert a == pytest.approx(y - 100, rel=1e-12)
        assert kink.site_precision[0] == pytest.approx(2 * np.pi * (a * (4 - a) / 4) ** 2, rel=1e-9)
        exact = laplace([[1.0]], [y], epsilon_insensitive(4.0, 100.0))
        assert exact.site_precision[0] == pytest.approx(kink.site_precision[0], rel=1e-9)
    both = [laplace([[1.0]], [2.5], absolute(4.0), curvature=c).site_precision[0] for c in CURVATURES]
    np.testing.assert_allclose(both, 2 * np.pi * ((2.5 + 4) * (4 - 2.5) / 8) ** 2, rtol=1e-9)


@pytest.mark.parametrize("noise", REGRESSION, ids=repr)
def test_local_curvature_is_the_integral_of_the_tilted_site(noise):
    """W = 2π/I², I by quadrature; at C = 10, ε = 0.1, β = 0.3 far less than C/(2βε) = 167."""
    for y in (0.02, 0.15, 0.4):
        posterior = laplace([[1.0]], [y], noise, curvature="local")
        if posterior.support[0] == 2:
            continue
        a, r = posterior.dual_coef[0], y - posterior.mean[0]
        ends = [r - 30, *np.unique(np.append(noise.sites([y]).knots, r)), r + 30]

        def tilted(s, a=a, r=r):
            return float(np.exp(noise.log_density(s) - noise.log_density(r) + a * (s - r)))

        integral = sum(quad(tilted, p, q, limit=200, epsabs=0)[0] for p, q in pairwise(ends))
        assert posterior.site_precision[0] == pytest.approx(2 * np.pi / integral**2, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("along", ["epsilon", "C", "lengthscale"])
def test_local_curvature_is_continuous_where_the_exact_one_jumps(along):
    K, y = smooth(30)
    jumps = {}
    for curvature in CURVATURES:
        values = []
        for factor in np.linspace(0.7, 2.0, 600):
            epsilon = 0.15 * (factor if along == "epsilon" else 1.0)
            noise = soft_insensitive(8.0 * (factor if along == "C" else 1.0), epsilon, 0.05)
            covariance = np.maximum(K - 0.5, 0.0) ** factor + 0.5 if along == "lengthscale" else K
            values.append(laplace(covariance, y, noise, curvature=curvature).log_evidence)
        steps = np.diff(values)  # a jump is a step that its neighbours do not share
        jumps[curvature] = np.abs(steps[1:-1] - 0.5 * (steps[:-2] + steps[2:])).max()
    assert jumps["exact"] > 0.3
    assert jumps["local"] < 0.02


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_local_evidence_of_independent_points_is_near_quadrature(noise):
    y = np.array([1.0, -1.0]) if noise.name == "hinge" else np.array([0.7, 0.1, -0.3])
    exact = 0.0
    for at in y:

        def density(f, at=at):
            return float(np.exp(noise.log_density(1 - at * f if noise.name == "hinge" else at - f) - 0.5 * f**2))

        mass = quad(density, -8, 8, points=np.clip(at - np.unique(noise.sites(y).knots), -8, 8), limit=200)[0]
        exact += np.log(mass / np.sqrt(2 * np.pi))
    posterior = laplace(np.eye(y.size), y, noise, curvature="local")
    assert posterior.log_evidence == pytest.approx(exact, abs=0.3 * y.size)


def test_hinge_does_not_prefer_a_label():
    K, y = smooth(20, 3, hinge(2.0))
    for curvature in CURVATURES:
        values = [laplace(K, sign * y, hinge(2.0), curvature=curvature).log_evidence for sign in (1, -1)]
        assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_finite_over_the_whole_range():
    """A sample of the whole range: converged, finite, variances between 0 and the prior's."""
    for i in range(100):
        K, y, noise = from_the_box(i, 60)
        for curvature in CURVATURES:
            posterior = laplace(K, y, noise, curvature=curvature)
            assert posterior.converged, (i, noise)
            assert np.isfinite(posterior.log_evidence), (i, noise)
            assert (posterior.variance >= 0).all(), (i, noise)
            assert (posterior.variance <= np.diag(K) * (1 + 1e-9)).all(), (i, noise)

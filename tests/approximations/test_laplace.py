"""Laplace's evidence against the printed formula, exact limits, finite differences and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from problems import LOSSES, REGRESSION, smooth
from scipy.integrate import quad

from bsvr_pp.approximations import laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.losses import NoiseModel, epsilon_insensitive, gaussian, soft_insensitive


def evidence(function, **options):
    def value(K, y, noise, mean):
        return function(K, y, noise, mean=mean, **options).log_evidence

    return value


METHODS = {
    "exact": (evidence(laplace, curvature="exact"), laplace_gradient, {"curvature": "exact"}),
    "local": (evidence(laplace, curvature="local"), laplace_gradient, {"curvature": "local"}),
    "mean field": (evidence(mean_field), mean_field_gradient, {}),
}


def test_evidence_is_the_printed_formula():
    """chu2004 (37), term by term."""
    K, y = smooth(30)
    C, epsilon, beta = 10.0, 0.1, 0.3
    noise = soft_insensitive(C, epsilon, beta)
    posterior = laplace(K, y, noise)
    a, off = posterior.dual_coef, posterior.support == 1
    f = K @ a
    minus = (
        0.5 * a @ f
        + 30 * noise.log_normalizer
        + C * noise.loss(y - f).sum()
        + 0.5 * np.linalg.slogdet(np.eye(off.sum()) + C / (2 * beta * epsilon) * K[np.ix_(off, off)])[1]
    )
    assert posterior.log_evidence == pytest.approx(-minus, rel=1e-12)
    np.testing.assert_allclose(posterior.site_precision, np.where(off, C / (2 * beta * epsilon), 0.0))


def test_bounds_far_above_the_dual_coefficients_do_not_hide_support_vectors():
    """With C → ∞ and no tube the mode interpolates: every point is off-bound, and the evidence pays for it."""
    K, y = np.eye(5), np.linspace(-1, 1, 5) + 0.1
    for C in (1e4, 1e8, 1e12):
        posterior = laplace(K, y, soft_insensitive(C, 0.0, 0.3))
        np.testing.assert_array_equal(posterior.support, 1)
        np.testing.assert_allclose(posterior.dual_coef, y, rtol=1e-6)
        assert posterior.log_evidence < 5


@pytest.mark.parametrize("curvature", ["exact", "local"])
def test_gaussian_noise_is_the_exact_gaussian_process(curvature):
    K, y = smooth(30)
    posterior = laplace(K, y, gaussian(20.0), curvature=curvature)
    S = K + np.eye(30) / 20.0
    exact = -0.5 * np.linalg.slogdet(2 * np.pi * S)[1] - 0.5 * y @ np.linalg.solve(S, y)
    assert posterior.log_evidence == pytest.approx(exact, abs=1e-10)
    np.testing.assert_allclose(posterior.mean, K @ np.linalg.solve(S, y), atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(K - K @ np.linalg.solve(S, K)), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_gradient_matches_differences(method, noise):
    """chu2004 (38)-(40), and their like for every loss and approximation: kernel, mean, every parameter."""
    value, gradient, options = METHODS[method]
    K, y = smooth(25, 0, noise)
    rng = np.random.default_rng(1)
    mean = np.full(25, 0.1)
    log_evidence, by = gradient(K, y, noise, mean=mean, **options)
    assert log_evidence == pytest.approx(value(K, y, noise, mean), rel=1e-9)
    h = 1e-6
    G = rng.normal(size=(25, 25))
    direction, along = G @ G.T / 25, rng.normal(size=25)
    pairs = [
        (
            (value(K + h * direction, y, noise, mean), value(K - h * direction, y, noise, mean)),
            np.sum(by.K * direction),
        ),
        ((value(K, y, noise, mean + h * along), value(K, y, noise, mean - h * along)), by.mean @ along),
    ]
    for name, at in noise.parameters.items():
        if at > 10 * h:
            up, down = (NoiseModel(noise.kind, {**noise.parameters, name: at + s * h}) for s in (1, -1))
            pairs.append(((value(K, y, up, mean), value(K, y, down, mean)), by.parameters[name]))
    for (up, down), analytic in pairs:
        assert analytic == pytest.approx((up - down) / (2 * h), rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("method", METHODS)
def test_gradient_of_vector_parameters(method):
    value, gradient, options = METHODS[method]
    K, y = smooth(12)
    C, epsilon = np.linspace(2, 8, 12), np.linspace(0.05, 0.3, 12)
    _, by = gradient(K, y, soft_insensitive(C, epsilon, 0.3), **options)
    h, i = 1e-6, 7
    step = h * np.eye(12)[i]
    for name, up, down in (
        ("C", soft_insensitive(C + step, epsilon, 0.3), soft_insensitive(C - step, epsilon, 0.3)),
        ("epsilon", soft_insensitive(C, epsilon + step, 0.3), soft_insensitive(C, epsilon - step, 0.3)),
    ):
        difference = (value(K, y, up, None) - value(K, y, down, None)) / (2 * h)
        assert by.parameters[name][i] == pytest.approx(difference, rel=2e-5, abs=2e-5)


def test_local_curvature_has_the_right_limits():
    """papers: C/(2βε) inside a wide quadratic piece, 2π[(a - s₋)(s₊ - a)/(s₊ - s₋)]² at a kink between far others."""
    wide = laplace([[1.0]], [100.0], soft_insensitive(40.0, 99.9, 0.5), curvature="local")
    assert wide.site_precision[0] == pytest.approx(40.0 / 99.9, rel=1e-3)
    kink = laplace([[1.0]], [101.0], epsilon_insensitive(4.0, 100.0), curvature="local")
    a = kink.dual_coef[0]
    assert kink.site_precision[0] == pytest.approx(2 * np.pi * (a * (4 - a) / 4) ** 2, rel=1e-9)
    exact = laplace([[1.0]], [101.0], epsilon_insensitive(4.0, 100.0))
    assert exact.site_precision[0] == pytest.approx(kink.site_precision[0], rel=1e-9)


def test_local_curvature_is_continuous_where_the_exact_one_jumps():
    K, y = smooth(30)
    jumps = {}
    for curvature in ("exact", "local"):
        values = [
            laplace(K, y, soft_insensitive(10.0, epsilon, 0.05), curvature=curvature).log_evidence
            for epsilon in np.linspace(0.1, 0.3, 800)
        ]
        jumps[curvature] = np.abs(np.diff(values)).max()
    assert jumps["exact"] > 0.3
    assert jumps["local"] < 0.05


@pytest.mark.parametrize("noise", REGRESSION, ids=repr)
def test_local_evidence_of_one_point_is_near_quadrature(noise):
    knots = 0.7 - np.unique(noise.sites(np.zeros(1)).knots)
    exact = quad(
        lambda f: float(np.exp(noise.log_density(0.7 - f) - 0.5 * f**2) / np.sqrt(2 * np.pi)), -8, 8, points=knots
    )[0]
    posterior = laplace([[1.0]], [0.7], noise, curvature="local")
    assert posterior.log_evidence == pytest.approx(np.log(exact), abs=0.35)

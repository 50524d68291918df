"""The table of pieces against mpmath quadrature, and its invariants."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsvr_pp.core.losses.factors import tilted_moments
from bsvr_pp.core.losses.pieces import row_at, tilted_row
from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, hinge, huber, pinball, soft_insensitive
from tests.losses.quadrature import tilted_by_mpmath

NOISES = [
    soft_insensitive(10.0, 0.1, 0.3),
    soft_insensitive(300.0, 0.02, 1e-6),
    soft_insensitive(0.5, 1.5, 1.0),
    soft_insensitive(5.0, 0.0, 0.3),
    epsilon_insensitive(20.0, 0.4),
    huber(7.0, 0.2),
    absolute(4.0),
    gaussian(30.0),
    pinball(6.0, 0.8),
    hinge(2.0),
]
# Cavities from a thousand standard deviations off the data to flat and to very narrow ones.
CAVITIES = [(0.3, 1.0), (-2.0, 1e-6), (1.31, 1e-10), (0.0, 1e4), (1000.0, 1.0), (-30.0, 0.0009)]


def moments_by_mpmath(noise, mean, variance, y):
    """log Z, mean, variance of f with 20 digits, from the table of pieces."""
    pieces = noise.sites(np.array([y]))
    knots = [mp.mpf(k) for k in pieces.knots[0]]

    def log_factor(f):
        j = sum(y - f >= k for k in knots)
        anchor = max(j - 1, 0)
        s = y - f - knots[anchor]
        slope, curvature = mp.mpf(pieces.slope[0, j]), mp.mpf(pieces.curvature[0, j])
        return -mp.mpf(pieces.value[0, anchor]) - s * (slope + curvature * s / 2)

    with mp.workdps(20):
        log_z, *moments = tilted_by_mpmath(log_factor, mean, variance, [y - k for k in knots])
        return float(log_z - mp.mpf(pieces.log_normalizer[0])), *map(float, moments)


@pytest.mark.slow_cases("soft_insensitive(C=0.5, epsilon=1.5, beta=1)", *(repr(NOISES[i]) for i in (1, 3, 4, 5, 6, 7)))
@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_tilted_moments_match_quadrature(noise):
    for mean, variance in CAVITIES:
        log_z, f_mean, f_variance = noise.tilted(mean, variance, 1.0)
        expected = moments_by_mpmath(noise, mean, variance, 1.0)
        scale = np.sqrt(expected[2])
        assert float(log_z) == pytest.approx(expected[0], rel=1e-11, abs=1e-11)
        assert float(f_mean - expected[1]) == pytest.approx(0, abs=1e-8 * scale + 1e-13 * abs(mean))
        assert float(f_variance) == pytest.approx(expected[2], rel=1e-8)


def test_the_score_keeps_its_digits_where_steep_pieces_cancel():
    noise, mean, variance = soft_insensitive(1e7, 1e-8, 0.8), 0.3, 0.7
    _, score, *_ = tilted_moments(np.array([1.0 - mean]), np.array([variance]), noise.sites([1.0]))
    _, f_mean, _ = moments_by_mpmath(noise, mean, variance, 1.0)
    assert score[0] == pytest.approx((f_mean - mean) / variance, rel=1e-13)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_score_and_parameter_gradients_match_differences(noise):
    y = np.array([1.0, -1.0, 1.0, 1.0])
    mean, variance = np.array([0.3, 0.2, 0.9, 2.0]), np.array([0.5, 0.02, 1.0, 3.0])
    _, score, residual, _, d_parameters = tilted_moments(y - mean, variance, noise.sites(y))
    h = 1e-5
    difference = (noise.tilted(mean + h, variance, y)[0] - noise.tilted(mean - h, variance, y)[0]) / (2 * h)
    np.testing.assert_allclose(score, difference, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(score, (y - residual - mean) / variance, rtol=1e-9, atol=1e-10)
    for p, (name, value) in enumerate(noise.parameters.items()):
        h = 1e-6 * max(value, 1e-3)
        if value - h < 0 or (name == "beta" and value + h > 1):
            continue
        up, down = (type(noise)(noise.kind, {**noise.parameters, name: value + s * h}) for s in (1, -1))
        difference = (up.tilted(mean, variance, y)[0] - down.tilted(mean, variance, y)[0]) / (2 * h)
        np.testing.assert_allclose(d_parameters[p], difference, rtol=1e-5, atol=1e-7 + 1e-14 / h)


def test_gradients_at_the_limits_are_one_sided_derivatives():
    y, mean, variance = np.array([0.4]), np.array([0.0]), np.array([0.3])
    h = 1e-6

    def log_z(epsilon, beta):
        return soft_insensitive(5.0, epsilon, beta).tilted(mean, variance, y)[0]

    flat = tilted_moments(y - mean, variance, soft_insensitive(5.0, 0.2, 0.0).sites(y))[4]
    np.testing.assert_allclose(flat[2], (log_z(0.2, h) - log_z(0.2, 0.0)) / h, rtol=1e-3, atol=1e-5)
    sharp = tilted_moments(y - mean, variance, soft_insensitive(5.0, 0.0, 0.3).sites(y))[4]
    np.testing.assert_allclose(sharp[1], (log_z(h, 0.3) - log_z(0.0, 0.3)) / h, atol=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    C=st.floats(1e-3, 1e4),
    epsilon=st.floats(0, 10),
    beta=st.floats(0, 1),
    mean=st.floats(-1e3, 1e3),
    log_variance=st.floats(-25, 12),
)
def test_tilting_shrinks_the_variance_and_never_breaks(C, epsilon, beta, mean, log_variance):
    """The sites are log-concave: the tilted variance is at most the cavity's, the score at most C."""
    variance = np.exp(log_variance)
    pieces = soft_insensitive(C, epsilon, beta).sites(np.zeros(1))
    out = tilted_moments(np.array([-mean]), np.array([variance]), pieces)
    assert all(np.isfinite(part).all() for part in out)
    assert 0 < out[3][0] <= variance * (1 + 1e-9)
    assert abs(out[1][0]) <= C * (1 + 1e-12)


def test_exponential_weight_integrates_and_a_flat_one_diverges():
    pieces = absolute(2.0).sites(np.zeros(1))
    row = row_at(0, pieces)
    moments = np.empty((3, 3))
    log_mass = tilted_row(0.0, 0.0, 1.0, row, moments)[0]
    assert log_mass == pytest.approx(np.log(1 / 3 + 1.0), abs=1e-13)
    assert tilted_row(0.0, 0.0, 2.0, row, moments)[0] == np.inf

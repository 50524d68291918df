"""The mass of the noise in intervals and its tilted moments against mpmath, in both tails and for narrow intervals."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from bsvr_pp.core.losses.intervals import mass_gradients, mass_row, tilted_interval
from bsvr_pp.losses import NoiseModel, absolute, epsilon_insensitive, gaussian, huber, pinball, soft_insensitive
from tests.losses.quadrature import tilted_by_mpmath

WIDTHS = (1e-9, 1e-5, 1e-2, 0.3, 10.0, np.inf)
RESIDUALS = (-60.0, -9.3, -1.2, -0.4, 0.0, 0.3, 1.7, 7.0, 60.0)  # in standard deviations of the noise
GRID = list(itertools.product((0.1, 1.0, 20.0, 1000.0), (0.01, 1.0, 30.0), (0.0, 1e-6, 0.3, 1.0), WIDTHS, RESIDUALS))
TILTED = list(itertools.product((0.1, 20.0, 1000.0), (0.01, 3.0), (0.0, 0.3, 1.0), (1e-9, 0.1, 10.0, np.inf)))
STEPS = [sign * q for sign in (-1, 1) for q in (0, 2, 8, 32)]  # in units of 1/C


def row_of(noise):
    pieces = noise.sites(np.zeros(1))
    return pieces.knots[0], pieces.value[0], pieces.slope[0], pieces.curvature[0]


def energy_of(C, epsilon, beta):
    """C times the soft insensitive loss and its slope."""
    inner, outer = (1 - beta) * epsilon, (1 + beta) * epsilon

    def energy(r):
        x, sign = abs(r), mp.sign(r)
        if x <= inner:
            return mp.mpf(0), mp.mpf(0)
        if x < outer:
            return C * (x - inner) ** 2 / (4 * beta * epsilon), sign * C * (x - inner) / (2 * beta * epsilon)
        return C * (x - epsilon), sign * C

    return energy


def exact_mass(low, width, C, epsilon, beta):
    """Log mass of exp(-C·loss) between two residuals and its first two derivatives by a shift, in closed form."""
    with mp.workdps(80):
        C, epsilon, beta, low, width = map(mp.mpf, (C, epsilon, beta, low, width))
        high = low + width
        inner, outer = (1 - beta) * epsilon, (1 + beta) * epsilon
        root = mp.sqrt(C / (4 * beta * epsilon)) if beta > 0 else mp.mpf(1)

        def beyond(r):  # mass above r >= 0
            total = max(inner - r, mp.mpf(0))
            if r < outer and beta > 0:
                total += mp.sqrt(mp.pi) / 2 / root * (mp.erf(root * (outer - inner)) - mp.erf(root * max(r - inner, 0)))
            return total + mp.exp(-C * (max(r, outer) - epsilon)) / C

        def above(r):
            return mp.mpf(0) if r == mp.inf else beyond(r)

        if low >= 0:
            mass = above(low) - above(high)
        elif high <= 0:
            mass = above(-high) - above(-low)
        else:
            mass = 2 * beyond(mp.mpf(0)) - above(-low) - above(high)
        energy = energy_of(C, epsilon, beta)
        (e_low, s_low), (e_high, s_high) = ((mp.inf, 0) if abs(r) == mp.inf else energy(r) for r in (low, high))
        p_low, p_high = mp.exp(-e_low) / mass, mp.exp(-e_high) / mass
        first = p_high - p_low
        return mp.log(mass), first, p_low * s_low - p_high * s_high - first**2


def check_mass(C, C_epsilon, beta, width, residual):
    noise = soft_insensitive(C, C_epsilon / C, beta)
    low = residual * noise.variance**0.5
    log_mass, first, second, *_ = mass_row(low, 0.0, width, row_of(noise), np.empty((5, 3)))
    epsilon = noise.parameters["epsilon"]
    exact, moved = (exact_mass(low, width, C, e, beta) for e in (epsilon, np.nextafter(epsilon, 1e9)))
    rounding = abs(float(moved[1] - exact[1]))  # what the last digit of epsilon changes, where an end is at its knot
    assert abs(log_mass - float(exact[0])) <= 1e-10 * max(1.0, abs(float(exact[0])) / 100)
    allowed = max(1e-10 * max(abs(float(exact[1])), 1e-300), 2 * rounding)
    assert abs(first - float(exact[1])) <= allowed or abs(first) < 1e-12 * C
    assert abs(second - float(exact[2])) <= 1e-10 * max(abs(float(exact[2])), 1e-2 * C * C)


@pytest.mark.parametrize("case", GRID[::17], ids=str)
def test_mass_and_its_derivatives_match_mpmath(case):
    check_mass(*case)


@pytest.mark.slow
def test_mass_and_its_derivatives_match_mpmath_on_the_whole_grid():
    for case in GRID:
        check_mass(*case)


def exact_tilted(z, variance, low, high, C, epsilon, beta):
    """Log normaliser, mean and variance of f - mean, whose factor is the mass of the noise from z + low to z + high."""
    edges = [-(1 + beta) * epsilon, -(1 - beta) * epsilon, (1 - beta) * epsilon, (1 + beta) * epsilon]
    ends = [z + end for end in (low, high) if np.isfinite(end)]
    knots = {end - edge + q / C for end in ends for edge in edges for q in STEPS}

    def log_factor(f):
        first = mp.mpf(z) + low - f if np.isfinite(low) else f - z - high  # the noise is symmetric
        return exact_mass(first, high - low, C, epsilon, beta)[0]

    return tilted_by_mpmath(log_factor, 0.0, variance, [mp.mpf(knot) for knot in knots])


def exact_at(end, variance, C, epsilon, beta):
    """Log of the integral of the density of f - mean times the noise of an exact target, without its normaliser."""
    energy, C, epsilon = energy_of(mp.mpf(C), mp.mpf(epsilon), mp.mpf(beta)), mp.mpf(C), mp.mpf(epsilon)
    edges = [side * (1 + sign * beta) * epsilon for side in (-1, 1) for sign in (-1, 1)]
    return tilted_by_mpmath(lambda f: -energy(end - f)[0], 0.0, variance, [end - edge for edge in edges])[0]


def check_tilted(C, C_epsilon, beta, width, residual, ratio):
    noise = soft_insensitive(C, C_epsilon / C, beta)
    sd = noise.variance**0.5
    variance, z = (ratio * sd) ** 2, residual * sd
    low, high = (0.0, width) if residual < 0 or np.isfinite(width) else (-np.inf, 0.0)
    found = tilted_interval(z, variance, low, high, row_of(noise), np.empty((5, 3)))
    with mp.workdps(30):
        log_z, mean, spread = exact_tilted(z, variance, low, high, C, noise.parameters["epsilon"], beta)
        mean, spread = mean / mp.sqrt(variance), spread / variance
        assert abs(float(found[0] - log_z)) <= 1e-10 * max(1.0, abs(float(log_z)) / 100)
        assert abs(float(found[1] - mean)) <= 1e-10 * float(max(mp.sqrt(spread), abs(mean)))
        assert abs(float(found[2] / spread - 1)) <= 1e-10
        unit = 1 / np.sqrt(variance + sd**2)
        for k, sign, end in ((3, -1, low), (4, 1, high)):
            at = mp.mpf(z) + mp.mpf(end)
            density = exact_at(at, variance, C, noise.parameters["epsilon"], beta) if np.isfinite(end) else -mp.inf
            by_end = sign * mp.exp(density - log_z)
            assert abs(float(found[k] - by_end)) <= 1e-10 * float(max(abs(by_end), unit))


@pytest.mark.slow_cases("case0", "case2", "case3", "case4", "case6")
@pytest.mark.parametrize(
    "case",
    [
        (20.0, 3.0, 0.3, 1e-9, 0.4, 1.0),
        (20.0, 3.0, 0.3, np.inf, -60.0, 0.3),
        (0.1, 0.01, 0.0, 0.1, 60.0, 3.0),
        (1000.0, 3.0, 1.0, 10.0, -5.0, 1000.0),
        (1000.0, 0.01, 0.0, np.inf, 3.0, 1e-3),
        (0.28, 0.6, 0.0, 1.0, 0.0, 1.56e-3),
        (48.0, 9.4, 0.0, 0.1, 0.0, 1.7e-3),
    ],
)
def test_tilted_moments_match_mpmath(case):
    check_tilted(*case)


@pytest.mark.slow
def test_tilted_moments_match_mpmath_on_a_grid():
    rng = np.random.default_rng(0)
    for C, C_epsilon, beta, width in TILTED:
        for residual in (-60.0, -3.0, 0.0, 0.7, 20.0):
            check_tilted(C, C_epsilon, beta, width, residual, 10 ** rng.uniform(-3, 3))


@pytest.mark.parametrize(
    "noise", [pinball(3.0, 0.2), gaussian(4.0), absolute(2.0), epsilon_insensitive(2.0, 0.5)], ids=repr
)
def test_mass_is_a_difference_of_cdfs(noise):
    low, high = np.array([-1.0, -0.3, 0.1, -np.inf, 0.2]), np.array([1.0, 0.2, 0.9, -0.1, np.inf])
    log_mass = noise.between(low, high).log_likelihood(np.zeros(5), np.zeros(5))
    np.testing.assert_allclose(np.exp(log_mass), noise.cdf(high) - noise.cdf(low), rtol=1e-11)


@pytest.mark.parametrize("noise", [soft_insensitive(5.0, 0.3, 0.4), huber(4.0, 0.2), gaussian(9.0)], ids=repr)
@pytest.mark.parametrize("ends", [(-0.1, 0.4), (0.0, np.inf), (-np.inf, 0.0), (0.0, 1e-4)], ids=str)
def test_gradients_of_the_mass_match_differences(noise, ends):
    pieces = noise.sites(np.zeros(1))
    moments, h = np.empty((pieces.slope.shape[1], 3)), 1e-5

    def values(noise, s, low, high):
        return np.array(mass_row(s, low, high, row_of(noise), moments)[:3])

    for s in (-0.45, 0.05, 0.21):
        third, by_ends, by_parameters = mass_gradients(s, *ends, row_of(noise), pieces.d_energy[:, 0].copy(), moments)
        up, down = values(noise, s + h, *ends), values(noise, s - h, *ends)
        found = values(noise, s, *ends)
        np.testing.assert_allclose((up - down)[:2] / (2 * h), found[1:], rtol=1e-6, atol=1e-6)
        assert third == pytest.approx((up - down)[2] / (2 * h), rel=1e-4, abs=1e-3)
        step = min(h, 1e-3 * (ends[1] - ends[0]))
        for q in range(2):
            if np.isfinite(ends[q]):
                moved = [tuple(end + sign * step * (k == q) for k, end in enumerate(ends)) for sign in (1, -1)]
                pair = [values(noise, s, *at) for at in moved]
                expected = (pair[0] - pair[1]) / (2 * step)
                np.testing.assert_allclose(by_ends[q, :2], expected[:2], rtol=1e-4, atol=1e-2)
        for p, (name, value) in enumerate(noise.parameters.items()):
            pair = [values(NoiseModel(noise.kind, {**noise.parameters, name: value + e}), s, *ends) for e in (h, -h)]
            np.testing.assert_allclose(by_parameters[p], (pair[0] - pair[1]) / (2 * h), rtol=1e-4, atol=1e-3)


def test_predictive_cdf_holds_in_the_lower_tail_and_by_row():
    """A convolution of Laplace noise and a Gaussian, in closed form."""
    C, sd = 20.0, 1.0
    y = np.array([-12.0, -30.0, -40.0])
    with mp.workdps(50):

        def exact(y):
            y, c = mp.mpf(float(y)), mp.mpf(C)
            left = mp.exp(c * y + c**2 / 2) * mp.ncdf(-y - c) / 2
            right = mp.exp(-c * y + c**2 / 2) * mp.ncdf(y - c) / 2
            return mp.log(mp.ncdf(y) + left - right)

        expected = [float(exact(value)) for value in y]
    found = np.log(absolute(C).predictive_cdf(y, 0.0, sd))
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    rows = absolute(np.array([20.0, 2.0, 0.5])).predictive_cdf([-12.0, 0.3, 0.1], 0.0, 1.0)
    single = [float(absolute(c).predictive_cdf(t, 0.0, 1.0)) for c, t in ((20.0, -12.0), (2.0, 0.3), (0.5, 0.1))]
    np.testing.assert_allclose(rows, single, rtol=1e-13)


def truncated(first, last):
    """Log mass, mean and variance of a standard normal between two ends, to 40 digits."""
    with mp.workdps(60):
        a, b = mp.mpf(first), mp.mpf(last)
        if a > 0:
            mass = mp.erfc(a / mp.sqrt(2)) / 2 - mp.erfc(b / mp.sqrt(2)) / 2
        else:
            mass = mp.erfc(-b / mp.sqrt(2)) / 2 - mp.erfc(-a / mp.sqrt(2)) / 2
        p, q = (mp.npdf(x) if abs(x) != mp.inf else mp.mpf(0) for x in (a, b))
        mean = (p - q) / mass
        second = 1 + ((a * p if p else 0) - (b * q if q else 0)) / mass
        return float(mp.log(mass)), float(mean), float(second - mean**2)


@pytest.mark.parametrize("share", [1e-4, 0.1, 0.5, 0.99])
def test_gaussian_intervals_are_exact(share):
    """The target is Gaussian, with this share of its variance from f, and f given the target is known."""
    scale = 2.0
    variance, noise = share * scale**2, gaussian(1.0 / ((1.0 - share) * scale**2))
    cases = [
        (first, first + width)
        for width in (0.05, 0.7, 3.0, 8.0, 14.0, 40.0, np.inf)
        for first in (-20.0, -6.0, -1.3, 0.0, 0.4, 7.0)
    ]
    cases += [(-np.inf, last) for last in (-15.0, -0.5, 3.0)]
    lower, upper = (3.0 + scale * np.array(ends) for ends in zip(*cases, strict=True))
    found = noise.between(lower, upper).tilted(3.0, variance, np.zeros(len(cases)))
    for log_mass, mean, spread, a, b in zip(*found, lower, upper, strict=True):
        log_z, centre, rest = truncated((a - 3.0) / scale, (b - 3.0) / scale)
        assert log_mass == pytest.approx(log_z, rel=1e-10, abs=1e-10)
        assert mean == pytest.approx(3.0 + share * scale * centre, rel=1e-9, abs=1e-9 * variance**0.5)
        assert spread == pytest.approx(variance * (1.0 - share + share * rest), rel=1e-8)

"""Distribution functions of the noise, alone and with a Gaussian, at a few points: against sums over nodes."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, huber, pinball, soft_insensitive

NOISES = [
    soft_insensitive(10.0, 0.1, 0.3),
    soft_insensitive(2.0, 0.0, 0.5),
    epsilon_insensitive(10.0, 0.1),
    huber(3.0, 0.5),
    absolute(2.0),
    gaussian(4.0),
    pinball(3.0, 0.2),
]


NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def integral(noise, weight, low=-np.inf, high=np.inf, width=np.inf):
    """Integral of the noise density times a function of arrays between two residuals, by nodes in short parts.

    The parts end at the knots, are at most ``width`` long, and go as far as the density is a number.
    """
    pieces = noise.sites(np.zeros(1))
    knots, value, slope, curvature = (part[0] for part in (pieces.knots, pieces.value, pieces.slope, pieces.curvature))
    ends = []
    for sign, j, knot in ((-1, 0, knots[0]), (1, -1, knots[-1])):
        reach = np.sqrt(1400.0 / curvature[j]) if curvature[j] > 0 else 700.0 / abs(slope[j])
        ends.append(knot + sign * np.linspace(0.0, reach, 100))
    cuts = np.unique(np.concatenate([*ends, knots]))
    total = 0.0
    for first, last in itertools.pairwise(np.unique(np.clip([*cuts, low, high], low, high))):
        if not np.isfinite([first, last]).all():
            continue
        parts = np.linspace(first, last, 2 + int((last - first) / width))
        middle, half = 0.5 * (parts[1:] + parts[:-1])[:, None], 0.5 * np.diff(parts)[:, None]
        r = middle + half * NODES
        j = int((middle[0, 0] >= knots).sum())
        at = max(j - 1, 0)
        u = r - knots[at]
        density = np.exp(-value[at] - u * (slope[j] + 0.5 * curvature[j] * u) - pieces.log_normalizer[0])
        total += float(np.sum(half * WEIGHTS * density * weight(r)))
    return total


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_cdf_and_quantile_are_integrals(noise):
    for r in (-3.0, -0.13, -0.02, 0.0, 0.05, 0.13, 2.0):
        below = integral(noise, np.ones_like, high=r)
        above = integral(noise, np.ones_like, low=r)
        assert float(noise.cdf(r)) == pytest.approx(below, rel=1e-11)
        assert 1.0 - float(noise.cdf(r)) == pytest.approx(above, abs=1e-15, rel=1e-11)
        assert float(noise.quantile(below)) == pytest.approx(r, rel=1e-6, abs=1e-10)
    for level in (1e-30, 1e-4, 0.3, 0.5, 0.7, 0.99):
        assert integral(noise, np.ones_like, high=float(noise.quantile(level))) == pytest.approx(level, rel=1e-11)
    np.testing.assert_array_equal(noise.quantile([0.0, 1.0]), [-np.inf, np.inf])
    np.testing.assert_array_equal(noise.cdf([-np.inf, np.inf]), [0.0, 1.0])


@pytest.mark.slow_cases("0.004-pinball(C=3, quantile=0.2)")
@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("sd", [0.004, 0.04, 0.9])
def test_cdf_with_a_gaussian_is_an_integral(noise, sd):
    """In the middle and in both tails, down to masses far below one."""
    y = np.array([-20.0 * sd - 1.0, -0.13, 0.0, 0.05, 0.6])
    expected = [integral(noise, lambda r, at=at: special.ndtr((at - r) / sd), width=2 * sd) for at in y]
    np.testing.assert_allclose(noise.predictive_cdf(y, 0.0, sd**2), expected, rtol=1e-8)
    np.testing.assert_allclose(noise.predictive_cdf(y + 2.0, 2.0, sd**2), expected, rtol=1e-6)


@pytest.mark.parametrize(("noise", "sd"), [(absolute(2.0), 14.0), (epsilon_insensitive(10.0, 0.1), 2.8)], ids=str)
def test_cdf_with_a_wide_gaussian_is_an_integral(noise, sd):
    """The noise decays by e²⁸ in a standard deviation."""
    y = sd * np.array([-7.0, -1.0, 0.01, 3.0])
    expected = [integral(noise, lambda r, at=at: special.ndtr((at - r) / sd), width=0.1 * sd) for at in y]
    np.testing.assert_allclose(noise.predictive_cdf(y, 0.0, sd**2), expected, rtol=1e-10)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_draws_are_quantiles_of_uniform_numbers(noise):
    uniform = np.random.default_rng(5).random((3, 2))
    np.testing.assert_array_equal(noise.sample((3, 2), random_seed=5), noise.quantile(uniform))


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_mean_and_variance_are_integrals(noise):
    mean = integral(noise, lambda r: r)
    assert noise.mean == pytest.approx(mean, abs=1e-13)
    assert noise.variance == pytest.approx(integral(noise, lambda r: (r - mean) ** 2), rel=1e-11)


def test_a_loss_near_its_knot_loses_no_digits():
    r = 0.3 + np.array([1e-7, 1e-5])  # beyond the knot of the flat piece
    np.testing.assert_allclose(soft_insensitive(2.0, 0.5, 0.4).loss(r), (r - 0.3) ** 2 / 0.8, rtol=1e-6)


@pytest.mark.parametrize("noise", [soft_insensitive(1.0, 1.0, 0.3), absolute(1.0), gaussian(1.0)], ids=str)
@pytest.mark.parametrize("variance", [1e-20, 1e-32, 1e-299])
def test_f_of_nearly_no_variance_leaves_the_noise(noise, variance):
    y = np.array([-30.0, -5.0, -1.3, -0.7, 0.0, 1.0, 2.0, 20.0])
    np.testing.assert_allclose(noise.predictive_cdf(y, 0.0, variance), noise.cdf(y), rtol=1e-12)


@pytest.mark.parametrize("C", [1e6, 1e9, 1e13])
def test_nearly_no_noise_leaves_f(C):
    y = np.array([-9.0, -1.0, 0.0, 3.0])
    np.testing.assert_allclose(
        soft_insensitive(C, 1 / C, 0.3).predictive_cdf(y, 0.0, 1.0), stats.norm.cdf(y), rtol=1e-9
    )

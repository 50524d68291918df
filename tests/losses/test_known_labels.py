"""The factor of a known label: its moments against quadrature, its derivatives, and its weights."""

import time

import numpy as np
import pytest
from scipy import stats

from bsvr_pp.core.losses.factors import tilted_moments
from bsvr_pp.core.losses.registry import KNOWN_LABELS, LIKELIHOODS, label_probability
from bsvr_pp.losses import NoiseModel

F = np.array([-30.0, -1.4, -1.0, -0.3, 0.0, 0.8, 1.0, 2.5, 30.0])


def known_label(C, reach=1e4):
    return NoiseModel(LIKELIHOODS["known_label"], {"C": C, "reach": reach})


def moments(mean, variance, label, C, weight=1.0, reach=1e4):
    """Log Z, score, mean and variance of f, and derivative of log Z by C."""
    sites = known_label(C, reach).weighted([weight]).sites(np.array([label]))
    found = tilted_moments(np.array([label - mean]), np.array([variance]), sites)
    log_z, score, residual, spread, by = (np.ravel(each) for each in found)
    return log_z[0], score[0], label - residual[0], spread[0], by[0]


def by_quadrature(mean, variance, label, C, weight, reach=1e4):
    """The same by rules of 200 points between kinks and many other places: 13 digits of mpmath in these cases."""
    sd, pull = variance**0.5, label * weight * C * variance
    kinks, wide = {-1 - reach, -1, 0, 1, 1 + reach}, {mean + k * sd for k in range(-30, 31, 3)}
    ends = np.array(sorted(kinks | wide | {mean + k * pull / 4 for k in range(9)}))
    places, shares = np.polynomial.legendre.leggauss(200)
    half = np.diff(ends)[:, None] / 2
    f = ends[:-1, None] + half * (1 + places)
    odds = C * label * (np.clip(f, -1 - reach, 1 + reach) + np.clip(f, -1, 1))
    log_product = stats.norm.logpdf(f, mean, sd) - weight * np.logaddexp(0.0, -odds)
    top = log_product.max()
    product = half * shares * np.exp(log_product - top)
    found = np.sum(f * product) / product.sum()
    return np.log(product.sum()) + top, found, np.sum((f - found) ** 2 * product) / product.sum()


@pytest.mark.parametrize(
    "given",  # mean, variance, label, C, weight, and how far the probability of a wrong label falls
    [
        (0.3, 1.0, 1.0, 0.7, 1.0),
        (-1.0, 0.02, 1.0, 3.0, 1.0),  # at the kink
        (4.0, 9.0, -1.0, 3.0, 1.0),
        (-8.0, 30.0, 1.0, 5.0, 1.0),
        (0.5, 0.01, -1.0, 0.7, 2.5),
        (2.0, 100.0, 1.0, 20.0, 1.0),
        (-1.0, 0.25, 1.0, 8.0, 30.0),
        (0.4, 0.25, 1.0, 2.0, 300.0),
        (1.0, 0.1, 1.0, 0.01, 1.0),
        (1.0 - 1.2962187952018167, 0.08423781756974161, 1.0, 13.558362274541022 / 2, 1.0),  # Newton steps alternate
        (0.3, 1.0, 1.0, 0.8, 1.0, 1.5),
        (-6.0, 4.0, 1.0, 0.8, 1.0, 0.5),
        (2.0, 30.0, -1.0, 0.8, 1.0, 3.0),
    ],
)
def test_moments_against_quadrature(given):
    mean, variance, label, C, weight, *reach = given
    log_z, score, f, spread, by_C = moments(*given)
    np.testing.assert_allclose([log_z, f, spread], by_quadrature(*given), rtol=1e-8, atol=1e-9)
    assert score == pytest.approx((f - mean) / variance, rel=1e-7)

    def value(C, *reach):
        return moments(mean, variance, label, C, weight, *reach)[0]

    h = 1e-5 * C
    slope = (value(C + h, *reach) - value(C - h, *reach)) / (2 * h)
    assert by_C == pytest.approx(slope, rel=1e-5, abs=0.0 if reach else 1e-7)
    for at in reach:
        sites = known_label(C, at).sites(np.array([label]))
        by_reach = tilted_moments(np.array([label - mean]), np.array([variance]), sites)[4][1, 0]
        assert by_reach == pytest.approx((value(C, at + 1e-5) - value(C, at - 1e-5)) / 2e-5, rel=1e-4)


@pytest.mark.parametrize(("C", "weight"), [(0.7, 1e4), (0.7, 1e6), (30.0, 1e6), (1e9, 1.0), (1e9, 1e6)])
def test_a_large_weight_or_penalty_needs_few_panels(C, weight):
    """The largest panel was inverse to both: a weight of 300 took a hundred times as long as one."""
    mean, variance = np.linspace(-4, 4, 41), np.full(41, 2.0)

    def seconds(C, weight):
        sites = known_label(C).weighted(np.full(41, weight)).sites(np.ones(41))
        times = []
        for _ in range(5):
            began = time.perf_counter()
            found = tilted_moments(1.0 - mean, variance, sites)
            times.append(time.perf_counter() - began)
        assert np.isfinite(found[0]).all() and (found[3] > 0).all()
        return min(times)

    assert seconds(C, weight) < 20 * seconds(0.7, 1.0)


def test_a_label_on_the_wrong_side_makes_f_less_certain():
    """The factor is not log-concave at y·f = -1."""
    assert moments(-1.0, 0.02, 1.0, 3.0)[3] > 0.02 * 1.05


@pytest.mark.parametrize("C", [0.2, 2.0, 40.0])
def test_probabilities_are_shares_of_the_hinge_and_sum_to_one(C):
    noise = known_label(C)
    above, below = (noise.log_likelihood(np.full(F.size, label), F) for label in (1.0, -1.0))
    np.testing.assert_allclose(np.exp(above), label_probability(F, C), rtol=1e-12)
    np.testing.assert_allclose(np.exp(above) + np.exp(below), 1.0, rtol=1e-12)
    averages = np.exp(noise.predictive_log_density(np.ones(F.size), F, 2.0))  # the masses are of equal steps
    np.testing.assert_allclose(averages, KNOWN_LABELS.masses(noise.parameters, F, 2.0)[1], atol=1e-5)

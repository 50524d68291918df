"""The factor of a known label: its moments against mpmath, its derivatives, and its weights."""

import time

import mpmath
import numpy as np
import pytest

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


def by_mpmath(mean, variance, label, C, weight, reach=1e4):
    def product(f):
        odds = C * label * (min(max(f, -1 - reach), 1 + reach) + min(max(f, -1), 1))
        return mpmath.npdf(f, mean, mpmath.sqrt(variance)) * (1 + mpmath.exp(-odds)) ** -weight

    sd = mpmath.sqrt(variance)
    pull = label * weight * C * variance
    ends = sorted(
        {mean + k * sd for k in range(-30, 31, 3)}
        | {mean + k * pull / 4 for k in range(9)}
        | {-1 - reach, -1, 0, 1, 1 + reach}
    )
    mass, first, second = (mpmath.quad(lambda f, k=k: f**k * product(f), ends) for k in range(3))
    return float(mpmath.log(mass)), float(first / mass), float(second / mass - (first / mass) ** 2)


@pytest.mark.slow_cases("2.0-100.0-1.0-20.0-1.0", "4.0-9.0--1.0-3.0-1.0", "0.5-0.01--1.0-0.7-2.5")
@pytest.mark.parametrize(
    ("mean", "variance", "label", "C", "weight"),
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
    ],
)
def test_moments_against_mpmath(mean, variance, label, C, weight):
    log_z, score, f, spread, by_C = moments(mean, variance, label, C, weight)
    with mpmath.workdps(25):
        expected = by_mpmath(mean, variance, int(label), C, weight)
    np.testing.assert_allclose([log_z, f, spread], expected, rtol=1e-8, atol=1e-9)
    assert score == pytest.approx((f - mean) / variance, rel=1e-7)
    h = 1e-5 * C
    differences = [moments(mean, variance, label, C + s * h, weight)[0] for s in (1, -1)]
    assert by_C == pytest.approx((differences[0] - differences[1]) / (2 * h), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("mean", "variance", "label", "reach"), [(0.3, 1.0, 1.0, 1.5), (-6.0, 4.0, 1.0, 0.5), (2.0, 30.0, -1.0, 3.0)]
)
def test_labels_that_may_be_wrong_everywhere_against_mpmath(mean, variance, label, reach):
    log_z, score, f, spread, by_C = moments(mean, variance, label, 0.8, reach=reach)
    with mpmath.workdps(25):
        expected = by_mpmath(mean, variance, int(label), 0.8, 1.0, reach)
    np.testing.assert_allclose([log_z, f, spread], expected, rtol=1e-8, atol=1e-9)
    assert score == pytest.approx((f - mean) / variance, rel=1e-7)

    def slope(C, by_reach):
        return moments(mean, variance, label, 0.8 + C, reach=reach + by_reach)[0]

    assert by_C == pytest.approx((slope(1e-5, 0.0) - slope(-1e-5, 0.0)) / 2e-5, rel=1e-5)
    sites = known_label(0.8, reach).sites(np.array([label]))
    by_reach = tilted_moments(np.array([label - mean]), np.array([variance]), sites)[4][1, 0]
    assert by_reach == pytest.approx((slope(0.0, 1e-5) - slope(0.0, -1e-5)) / 2e-5, rel=1e-4)


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


def test_the_maximum_is_found_where_newton_steps_alternate():
    log_z, _, f, spread, _ = moments(1.0 - 1.2962187952018167, 0.08423781756974161, 1.0, 13.558362274541022 / 2)
    with mpmath.workdps(25):
        expected = by_mpmath(1.0 - 1.2962187952018167, 0.08423781756974161, 1, 13.558362274541022 / 2, 1.0)
    np.testing.assert_allclose([log_z, f, spread], expected, rtol=1e-8, atol=1e-9)


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

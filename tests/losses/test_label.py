"""Sollich's factors against their formulas, their slopes against differences, and the class probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from bsvr_pp.losses import gaussian, hinge, soft_insensitive
from bsvr_pp.losses.label import Known, Logistic, MeanKnown, average_probability, label_probability
from bsvr_pp.losses.likelihood import noise_likelihood

Y = np.array([1.0, -1.0, 1.0, -1.0])
F = np.array([[0.3, -0.2, 1.4, 2.0], [-1.7, 0.6, 0.0, -3.0]])
LINE = np.linspace(-4, 4, 81)

FACTORS = {
    "hinge": lambda C: noise_likelihood(hinge(C), Y),
    "known": Known,
    "mean known": MeanKnown,
    "logistic": lambda C: Logistic(C, Y),
}


def known(f, C):
    return sum(np.exp(-C * np.maximum(1 - s * f, 0)) for s in (-1, 1)) * expit(2 * C)


@pytest.mark.parametrize("C", [0.2, 2.0, 40.0, np.array([0.5, 1.0, 2.0, 9.0])])
def test_the_logs_are_those_of_the_paper(C):
    kappa = -np.log1p(np.exp(-2 * C))
    assert np.allclose(
        FACTORS["hinge"](C)(F), (kappa - C * np.maximum(0, 1 - Y * F)).sum(axis=1), rtol=1e-12, atol=1e-13
    )
    assert np.allclose(noise_likelihood(hinge(C), Y)(F), hinge(C=C).log_density(1 - Y * F).sum(axis=1), rtol=1e-12)
    assert np.allclose(Logistic(C, Y)(F), np.log(expit(C * Y * F)).sum(axis=1), rtol=1e-12)
    nu = known(F, C)
    assert np.allclose(Known(C)(F), np.log(nu).sum(axis=1), rtol=1e-12, atol=1e-14)
    assert np.allclose(MeanKnown(C)(F), 4 * np.log(nu.mean(axis=1)), rtol=1e-12, atol=1e-14)


def test_the_power_of_the_mean():
    once, thrice = (MeanKnown(2.0, count=k) for k in (4, 12))
    assert np.allclose(once(F), MeanKnown(2.0)(F), rtol=1e-14)
    assert np.allclose(thrice(F), 3 * once(F), rtol=1e-14)
    (by_f, by_C), (by_f_once, by_C_once) = thrice.slopes(F), once.slopes(F)
    assert np.allclose(by_f, 3 * by_f_once, rtol=1e-14) and np.allclose(by_C["C"], 3 * by_C_once["C"], rtol=1e-14)


def test_a_label_is_known_at_the_margin_and_nu_is_the_sum_over_labels():
    assert np.allclose(Known(3.0)([[1.0, -1.0]]), 0.0, atol=1e-15)
    parts = [noise_likelihood(hinge(3.0), [s])([[0.4]])[0] for s in (-1, 1)]
    assert np.isclose(np.logaddexp(*parts), Known(3.0)([[0.4]])[0], rtol=1e-14)


def test_many_points_do_not_overflow():
    f = np.zeros((1, 5000))
    assert np.isclose(Known(0.1)(f)[0], 5000 * np.log(known(0.0, 0.1)), rtol=1e-12)


@pytest.mark.parametrize("kind", FACTORS)
def test_slopes_against_differences(kind):
    C, h, factor = np.array([0.5, 1.0, 2.0, 3.0]), 1e-6, FACTORS[kind]
    by_f, by_parameter = factor(C).slopes(F)
    for i in range(4):
        e = h * np.eye(4)[i]
        d_f = (factor(C)(F + e) - factor(C)(F - e)) / (2 * h)
        d_C = (factor(C + e)(F) - factor(C - e)(F)) / (2 * h)
        smooth = np.abs(F[:, i]) > 0  # ν has a kink at 0
        assert np.allclose(by_f[smooth, i], d_f[smooth], atol=1e-8)
        assert np.allclose(by_parameter["C"][:, i], d_C, atol=1e-8)
    whole = factor(2.0).slopes(F)[1]["C"]
    assert np.allclose(whole, (factor(2.0 + h)(F) - factor(2.0 - h)(F)) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("noise", [soft_insensitive(3.0, 0.5, 0.4), gaussian(np.array([0.5, 1.0, 2.0, 3.0]))], ids=repr)
def test_slopes_of_any_noise_against_differences(noise):
    likelihood, h = noise_likelihood(noise, Y), 1e-6
    assert np.allclose(likelihood(F), noise.log_density(Y - F).sum(axis=1), rtol=1e-12)
    by_f, by_parameter = likelihood.slopes(F)
    for i in range(4):
        e = h * np.eye(4)[i]
        assert np.allclose(by_f[:, i], (likelihood(F + e) - likelihood(F - e)) / (2 * h), atol=1e-7)
    for name, value in noise.parameters.items():
        moved = [type(noise)(noise.kind, {**noise.parameters, name: value + s * h}) for s in (1, -1)]
        change = np.subtract(*(noise_likelihood(other, Y)(F) for other in moved)) / (2 * h)
        found = by_parameter[name] if np.ndim(value) == 0 else by_parameter[name].sum(axis=1)
        assert found.shape == (2,) and np.allclose(found, change, atol=1e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Known(0.0), "C must be a number > 0"),
        (lambda: Known([[1.0]]), "C must be a number > 0"),
        (lambda: MeanKnown(1.0, 0), "count must be an integer of at least 1"),
        (lambda: Logistic(1.0, [0.5]), r"y must hold the labels -1 and \+1, got 0.5"),
        (lambda: Logistic(1.0, [1.0])(np.zeros((1, 3))), "y must have 3 values"),
        (lambda: Known([1.0, 2.0])(np.zeros((1, 3))), "C must be one number or 3"),
        (lambda: noise_likelihood(hinge(1.0), [0.5]), "y must hold the labels"),
    ],
)
def test_errors_name_the_argument(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("C", [0.3, 2.0, 8.0])
def test_the_probability_is_the_share_of_the_label(C):
    plus, minus = (np.exp(hinge(C=C).log_density(1 - s * LINE)) for s in (1, -1))
    assert np.allclose(label_probability(LINE, C), plus / (plus + minus), rtol=1e-12)
    inside, outside = np.abs(LINE) <= 1, np.abs(LINE) > 1
    assert np.allclose(label_probability(LINE, C)[inside], 1 / (1 + np.exp(-2 * C * LINE[inside])), rtol=1e-12)
    z = LINE[outside]
    assert np.allclose(label_probability(LINE, C)[outside], 1 / (1 + np.exp(-C * (z + np.sign(z)))), rtol=1e-12)
    assert (label_probability([-1e6, 1e6], C) == [0, 1]).all()


def test_the_average_over_a_gaussian():
    rng = np.random.default_rng(0)
    for mean, variance, C in ((0.3, 1.0, 2.0), (-1.2, 0.2, 5.0), (2.0, 9.0, 1.0)):
        draws = label_probability(mean + np.sqrt(variance) * rng.standard_normal(400_000), C)
        assert abs(average_probability(mean, variance, C) - draws.mean()) < 5 * draws.std() / np.sqrt(400_000)
    assert np.allclose(average_probability(LINE, 0.0, 2.0), label_probability(LINE, 2.0), rtol=1e-12)
    assert np.allclose(average_probability(0.0, 3.0, 2.0), 0.5, rtol=1e-12)
    with pytest.raises(ValueError, match="variance must be >= 0"):
        average_probability(0.0, -1.0, 1.0)


def test_an_average_does_not_exceed_one_by_rounding():
    """Sums of products round differently for different numbers of rows."""
    for n in (20, 333, 419):
        assert average_probability(np.full(n, 40.0), np.linspace(0.0, 1.0, n), 5.0).max() <= 1.0

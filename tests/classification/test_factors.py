"""Sollich's factors against their formulas, and their slopes against differences."""

import numpy as np
import pytest
from scipy.special import expit
from svm_toy import Hinge, Logistic

from bsvr_pp.approximations import annealed
from bsvr_pp.classification.normaliser import Known, MeanKnown
from bsvr_pp.losses import hinge

Y = np.array([1.0, -1.0, 1.0, -1.0])
F = np.array([[0.3, -0.2, 1.4, 2.0], [-1.7, 0.6, 0.0, -3.0]])

FACTORS = {
    "hinge": lambda C: Hinge(C, Y),
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
    assert np.allclose(Hinge(C, Y)(F), hinge(C=C).log_density(1 - Y * F).sum(axis=1), rtol=1e-12)
    assert np.allclose(Logistic(C, Y)(F), np.log(expit(C * Y * F)).sum(axis=1), rtol=1e-12)
    nu = known(F, C)
    assert np.allclose(Known(C)(F), np.log(nu).sum(axis=1), rtol=1e-12, atol=1e-14)
    assert np.allclose(MeanKnown(C)(F), 4 * np.log(nu.mean(axis=1)), rtol=1e-12, atol=1e-14)


def test_the_power_of_the_mean():
    once, thrice = (MeanKnown(2.0, weight=k) for k in (1.0, 3.0))
    assert np.allclose(thrice(F), 3 * once(F), rtol=1e-14)
    (by_f, by_C), (by_f_once, by_C_once) = thrice.slopes(F), once.slopes(F)
    assert np.allclose(by_f, 3 * by_f_once, rtol=1e-14) and np.allclose(by_C["C"], 3 * by_C_once["C"], rtol=1e-14)


def test_a_label_is_known_at_the_margin_and_nu_is_the_sum_over_labels():
    assert np.allclose(Known(3.0)([[1.0, -1.0]]), 0.0, atol=1e-15)
    parts = [Hinge(3.0, [s])([[0.4]])[0] for s in (-1, 1)]
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Known(0.0), "C must be a number > 0"),
        (lambda: Known([[1.0]]), "C must be a number > 0"),
        (lambda: Logistic(1.0, [1.0])(np.zeros((1, 3))), "y must have 3 values"),
        (lambda: Known([1.0, 2.0])(np.zeros((1, 3))), "C must be one number or 3"),
        (lambda: annealed(np.eye(4), None, Known([1.0, 2.0])), "C must be one number or 4"),
    ],
)
def test_errors_name_the_argument(make, words):
    with pytest.raises(ValueError, match=words):
        make()

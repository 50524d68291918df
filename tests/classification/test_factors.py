"""Sollich's factors against their formulas, and their slopes against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from bsvr_pp.classification.factors import Factors
from bsvr_pp.losses import hinge

Y = np.array([1.0, -1.0, 1.0, -1.0])
F = np.array([[0.3, -0.2, 1.4, 2.0], [-1.7, 0.6, 0.0, -3.0]])


def survival(f, C):
    return sum(np.exp(-C * np.maximum(1 - s * f, 0)) for s in (-1, 1)) * expit(2 * C)


@pytest.mark.parametrize("C", [0.2, 2.0, 40.0, np.array([0.5, 1.0, 2.0, 9.0])])
def test_the_logs_are_those_of_the_paper(C):
    assert np.allclose(Factors("hinge", C, Y).log(F), hinge(C=C).log_density(1 - Y * F).sum(axis=1), rtol=1e-12)
    assert np.allclose(Factors("logistic", C, Y).log(F), np.log(expit(C * Y * F)).sum(axis=1), rtol=1e-12)
    nu = survival(F, C)
    assert np.allclose(Factors("survival", C).log(F), np.log(nu).sum(axis=1), rtol=1e-12, atol=1e-14)
    assert np.allclose(Factors("mean_survival", C).log(F), 4 * np.log(nu.mean(axis=1)), rtol=1e-12, atol=1e-14)


def test_the_power_of_the_mean_survival():
    once, thrice = (Factors("mean_survival", 2.0, count=k) for k in (4, 12))
    assert np.allclose(once.log(F), Factors("mean_survival", 2.0).log(F), rtol=1e-14)
    assert np.allclose(thrice.log(F), 3 * once.log(F), rtol=1e-14)
    for a, b in zip(thrice.slopes(F), once.slopes(F), strict=True):
        assert np.allclose(a, 3 * b, rtol=1e-14)


def test_the_survival_is_one_at_the_margin_and_the_sum_over_labels():
    assert np.allclose(Factors("survival", 3.0).log([[1.0, -1.0]]), 0.0, atol=1e-15)
    parts = [Factors("hinge", 3.0, [s]).log([[0.4]])[0] for s in (-1, 1)]
    assert np.isclose(np.logaddexp(*parts), Factors("survival", 3.0).log([[0.4]])[0], rtol=1e-14)


def test_many_points_do_not_overflow():
    f = np.zeros((1, 5000))
    assert np.isclose(Factors("survival", 0.1).log(f)[0], 5000 * np.log(survival(0.0, 0.1)), rtol=1e-12)


@pytest.mark.parametrize("kind", ["hinge", "survival", "mean_survival", "logistic"])
def test_slopes_against_differences(kind):
    C, h = np.array([0.5, 1.0, 2.0, 3.0]), 1e-6
    y = Y if kind in ("hinge", "logistic") else None
    by_f, by_C = Factors(kind, C, y).slopes(F)
    for i in range(4):
        e = h * np.eye(4)[i]
        d_f = (Factors(kind, C, y).log(F + e) - Factors(kind, C, y).log(F - e)) / (2 * h)
        d_C = (Factors(kind, C + e, y).log(F) - Factors(kind, C - e, y).log(F)) / (2 * h)
        smooth = np.abs(F[:, i]) > 0  # ν has a kink at 0
        assert np.allclose(by_f[smooth, i], d_f[smooth], atol=1e-8)
        assert np.allclose(by_C[:, i], d_C, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("probit", 1.0), "kind must be one of hinge"),
        (("hinge", 0.0, [1.0]), "C must be a finite number > 0"),
        (("hinge", 1.0), "y must be given for hinge"),
        (("survival", 1.0, [1.0]), "y must be None for survival"),
        (("hinge", 1.0, [0.5]), "y must be an .n,. array of the labels"),
        (("hinge", [1.0, 2.0], [1.0]), "C must be one number or 1"),
        (("survival", 1.0, None, 3), "count must be at least 1, and None but for mean_survival"),
        (("mean_survival", 1.0, None, 0), "count must be at least 1"),
    ],
)
def test_errors_name_the_argument(arguments, words):
    with pytest.raises(ValueError, match=words):
        Factors(*arguments)

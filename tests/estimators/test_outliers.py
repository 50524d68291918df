"""Gross errors among the targets are set aside; what noise or a steep function explains is kept."""

from __future__ import annotations

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators.outliers import gross_errors, kept_rows

LINE = np.linspace(-3.0, 3.0, 80)[:, None]
TRUTH = np.sin(2.0 * LINE[:, 0])
FAST = {"restarts": 1, "random_state": 0}


def targets(seed=0):
    return TRUTH + 0.1 * np.random.default_rng(seed).normal(size=80)


def found(y, mean=None, deviation=1.0, unit=1.0, X=LINE):
    mean = np.zeros(len(y)) if mean is None else mean
    return np.flatnonzero(gross_errors(X[: len(y)], y, mean, np.full(len(y), deviation), unit)).tolist()


def laplace(n=80):
    return np.random.default_rng(3).laplace(size=n)


@pytest.mark.parametrize("size", [-1e6, -100.0, 100.0, 1e6])
def test_a_residual_of_another_order_is_a_gross_error(size):
    y = laplace()
    y[7] = size
    assert found(y) == [7]
    assert found(y, deviation=1e-3) == [7]  # the scale is that of the residuals


def test_what_is_small_for_the_target_is_none():
    """A step of a function that is known exactly has residuals far beyond the others."""
    y = 1e-6 * laplace()
    y[7] = 0.9
    assert found(y, unit=1.0) == []
    assert found(y, unit=0.1) == [7]


@pytest.mark.parametrize(
    ("rows", "expected"), [([40], [40]), ([40, 41], [40, 41]), ([40, 41, 42], []), ([40, 42], [40, 42])]
)
def test_three_neighbours_hold_a_peak(rows, expected):
    y = laplace()
    y[rows] = 50.0
    assert found(y) == expected


def test_a_peak_is_seen_from_rows_that_are_explained_by_their_neighbours():
    """The row in the middle has no residual, since its neighbours predict it."""
    y, mean = laplace(), np.zeros(80)
    y[40:43] = 50.0
    mean[41] = 50.0
    assert found(y, mean) == []


def test_neighbours_on_the_other_side_do_not_agree():
    y = laplace()
    y[40:43] = 50.0, -50.0, 50.0
    assert found(y) == [40, 41, 42]


def test_many_few_and_no_scale():
    y = laplace()
    y[::8] = 100.0 * (-1.0) ** np.arange(10)
    assert len(found(y)) == 0  # an eighth of the rows are no errors
    assert found(np.array([0.1, -0.1, 0.2, -0.2, 99.0])) == []
    y = laplace()
    y[7] = 1e3
    assert found(y, unit=0.0) == []


def test_rows_return_when_they_are_explained():
    """The first fit is poor and blames two rows; the second, without them, explains one of them."""
    y = laplace()
    y[10], y[30] = 100.0, 200.0
    fits = []

    def fit(kept):
        fits.append(kept.copy())
        mean = np.zeros(80)
        if len(fits) > 1:
            mean[10] = 100.0
        return mean, np.ones(80)

    kept = kept_rows(fit, LINE, y)
    assert np.flatnonzero(~kept).tolist() == [30]
    assert [int((~rows).sum()) for rows in fits] == [0, 2, 1]


@pytest.mark.parametrize("size", [1e2, 1e6])
@pytest.mark.parametrize("rows", [[33], [5, 21, 38, 52, 70]])
def test_gross_errors_change_neither_function_nor_noise(rows, size):
    y = targets()
    y[rows] = size
    with pytest.warns(UserWarning, match=f"gross errors among 80 .* rows {rows[0]}"):
        machine = bp.BayesianSVR(**FAST).fit(LINE, y)
    assert machine.outliers_.tolist() == rows
    assert np.sqrt(np.mean((machine.predict(LINE) - TRUTH) ** 2)) <= 0.06
    assert np.diff(machine.predict_interval(LINE, 0.9)).mean() <= 2.0 * 2.0 * 1.645 * 0.1
    assert machine.dual_coef_.shape == (80,)
    assert (machine.dual_coef_[rows] == 0.0).all()
    assert not set(rows) & set(machine.support_)
    assert machine.n_support_ == machine.support_.size > 0
    again = bp.BayesianSVR.from_result(machine.result_)
    np.testing.assert_array_equal(again.outliers_, rows)
    np.testing.assert_allclose(again.dual_coef_, machine.dual_coef_, atol=1e-9)


def test_gross_errors_can_be_kept():
    y = targets()
    y[33] = 100.0
    machine = bp.BayesianSVR(outliers="keep", **FAST).fit(LINE, y)
    assert machine.outliers_.size == 0
    assert np.diff(machine.predict_interval(LINE, 0.9)).mean() > 4.0 * 1.645 * 0.1


NOISES = {
    "laplace": lambda rng, n: rng.laplace(size=n),
    "student": lambda rng, n: rng.standard_t(3, size=n),
    "skewed": lambda rng, n: rng.gamma(1.0, size=n),
}


@pytest.mark.parametrize("noise", NOISES)
def test_long_tails_are_noise(noise, recwarn):
    """At most one row in a hundred is set aside."""
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 2))
        y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * NOISES[noise](rng, 150)
        lost.append(bp.BayesianSVR(ard=False, **FAST).fit(X, y).outliers_.size)
    assert sum(lost) <= 0.01 * 450


@pytest.mark.parametrize("height", [5.0, 20.0, 100.0])
def test_a_narrow_peak_is_kept(height):
    y = targets()
    y[40:43] += height
    assert bp.BayesianSVR(**FAST).fit(LINE, y).outliers_.size == 0


def test_a_step_without_noise_is_kept():
    assert bp.BayesianSVR(**FAST).fit(LINE, (LINE[:, 0] > 0.01).astype(float)).outliers_.size == 0


def test_targets_of_which_most_are_equal_lose_no_row():
    y = np.where(np.arange(80) % 10 == 0, 5.0 + np.arange(80.0), 0.0)
    assert bp.BayesianSVR(**FAST).fit(LINE, y).outliers_.size == 0

"""Gross errors, and targets of far wider noise, are set aside; what noise or a steep function explains is kept."""

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators.outliers import ScaledFit, determining_rows, gross_errors, listed
from bsvr_pp.estimators.training_data import merge_rows

LINE = np.linspace(-3.0, 3.0, 80)[:, None]
TRUTH = np.sin(2.0 * LINE[:, 0])
FAST = {"inference": "mean_field", "restarts": 1, "random_state": 0}


def targets(seed=0):
    return TRUTH + 0.1 * np.random.default_rng(seed).normal(size=80)


def found(y, mean=None, deviation=1.0, unit=1.0, X=LINE):
    mean = np.zeros(len(y)) if mean is None else mean
    return np.flatnonzero(gross_errors(X[: len(y)], y, mean, np.full(len(y), deviation), unit)).tolist()


def laplace(n=80):
    return np.random.default_rng(3).laplace(size=n)


@pytest.mark.parametrize(
    ("rows", "expected"), [([40], [40]), ([40, 41], [40, 41]), ([40, 41, 42], []), ([40, 42], [40, 42])]
)
def test_three_neighbours_hold_a_peak(rows, expected):
    y = laplace()
    y[rows] = 50.0
    assert found(y) == expected


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


@pytest.mark.slow_cases("rows1-100.0")
@pytest.mark.parametrize(("rows", "size"), [([33], 1e6), ([5, 21, 38, 52, 70], 1e2)])
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


def test_a_message_counts_many_rows():
    assert listed(np.array([3, 17])) == "rows 3, 17"
    assert listed(np.arange(5, 17)) == "12 rows, rows 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, ..."


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


@pytest.mark.slow_cases("student", "laplace", "skewed")
@pytest.mark.parametrize("noise", NOISES)
def test_long_tails_are_noise(noise, recwarn):
    """At most one row in a hundred is set aside, also of a fit with noise scales, from 200 rows on."""
    lost = []
    for seed, n in enumerate([150, 150, 220]):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 2))
        y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * NOISES[noise](rng, n)
        lost.append(bp.BayesianSVR(ard=False, **FAST).fit(X, y).outliers_.size)
    assert sum(lost) <= 0.01 * 520


@pytest.mark.slow_cases("-50.0")
@pytest.mark.parametrize("moved", [0.0, -50.0])
def test_large_positive_targets_that_are_set_aside_may_need_logarithms(moved):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.exp(0.5 * X[:, 0] + 1.5 * rng.normal(size=200)) + moved
    end = (
        r"\(outliers=\"keep\" keeps them; log_targets=True describes noise that grows"
        if moved == 0.0
        else "keeps them\\)"
    )
    with pytest.warns(UserWarning, match=end):
        bp.BayesianSVR(kernel="rbf", **FAST).fit(X, y)


@pytest.mark.parametrize("height", [5.0, 100.0])
def test_a_narrow_peak_is_kept(height):
    y = targets()
    y[40:43] += height
    assert bp.BayesianSVR(**FAST).fit(LINE, y).outliers_.size == 0


@pytest.mark.slow
def test_a_step_without_noise_is_kept():
    assert bp.BayesianSVR(**FAST).fit(LINE, (LINE[:, 0] > 0.01).astype(float)).outliers_.size == 0


def test_targets_that_no_noise_describes_are_warned_of():
    """A third is -999: f is between the two kinds, and intervals hold neither."""
    y = np.where(np.arange(80) % 10 < 3, -999.0, targets())
    with pytest.warns(UserWarning, match="intervals of 90 % hold only [0-9]+ % of the targets: .* two kinds"):
        bp.BayesianSVR(kernel="rbf", **FAST).fit(LINE, y)


@pytest.mark.slow
def test_targets_of_which_most_are_equal_lose_no_row():
    y = np.where(np.arange(80) % 10 == 0, 5.0 + np.arange(80.0), 0.0)
    assert bp.BayesianSVR(**FAST).fit(LINE, y).outliers_.size == 0


def rows_of_fits(fits, kept=None, y=None, error=1.0):
    """The rows chosen from fits with these gains of the log density and precisions, and the fits that ran.

    The errors of the first fit are 1, and later ones ``error``.
    """
    tried = []

    def fit(rows, last):
        assert last == (len(tried) or None)
        gain, precision = fits[len(tried)]
        tried.append(np.flatnonzero(~rows).tolist())
        errors = np.full(20, 1.0 if last is None else error)
        return ScaledFit(np.broadcast_to(gain, (20,)), np.asarray(precision), errors, len(tried))

    kept = np.ones(20, dtype=bool) if kept is None else kept
    near, best = determining_rows(fit, kept, np.arange(20) if y is None else y, np.ones(20))
    return np.flatnonzero(~near).tolist(), best.fit, tried


ONE, SOME = np.ones(20), np.where(np.arange(20) < 4, 0.1, 1.0)


def test_rows_of_far_wider_noise_are_left_out_if_all_are_more_probable():
    assert rows_of_fits([(0.0, ONE)]) == ([], 1, [[]])
    assert rows_of_fits([(0.0, SOME), (1.0, SOME)]) == ([0, 1, 2, 3], 2, [[], [0, 1, 2, 3]])
    noise = np.random.default_rng(0).normal(size=20)
    for gain in (-1.0, 0.0, np.nan, 0.1 + noise - noise.mean()):
        assert rows_of_fits([(0.0, SOME), (gain, SOME)]) == ([], 1, [[], [0, 1, 2, 3]])
    assert rows_of_fits([(0.0, SOME), (1.0, SOME)], error=1.05)[1] == 2
    assert rows_of_fits([(0.0, SOME), (1.0, SOME)], error=1.2)[1] == 1  # f explained a part of them


@pytest.mark.slow
def test_a_jump_in_a_corner_is_not_noise():
    rng = np.random.default_rng([1, 6])
    X = rng.uniform(size=(200, 3))
    corner = (X[:, 1] > 0.75) & (X[:, 2] > 0.8)
    y = X[:, 0] + 10.0 * corner + 0.1 * rng.normal(size=200)
    assert not corner[bp.BayesianSVR(random_state=0).fit(X, y).outliers_].any()


def test_most_rows_are_never_left_out_and_gross_errors_do_not_return():
    most = np.where(np.arange(20) < 11, 0.1, 1.0)
    assert rows_of_fits([(0.0, most)]) == ([], 1, [[]])
    kept = np.arange(20) != 19
    assert rows_of_fits([(0.0, SOME), (1.0, SOME)], kept) == ([0, 1, 2, 3, 19], 2, [[19], [0, 1, 2, 3, 19]])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_gross_errors_depend_on_the_shares_of_the_weights(scale):
    y = laplace()
    y[[7, 40, 41, 42]] = 100.0, 50.0, 50.0, 50.0  # an error, and a peak
    rows = gross_errors(LINE, y, np.zeros(80), np.ones(80), 1.0, np.full(80, scale))
    assert np.flatnonzero(rows).tolist() == [7]
    often = np.where(np.arange(80) == 7, 3.0, 1.0)
    assert not gross_errors(LINE, y, np.zeros(80), np.ones(80), 1.0, scale * often).any()


def contaminated(seed, share, n=220):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 12.0, n))[:, None]
    wrong = rng.permutation(n)[: int(share * n)]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    y[wrong] += rng.choice([-1.0, 1.0], wrong.size) * rng.uniform(2.0, 4.0, wrong.size)
    return X, y, wrong


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.15, 0.3])
def test_many_wrong_targets_are_found_and_count_for_the_noise(share):
    """They are within six robust standard deviations of the target, and no gross errors."""
    X, y, wrong = contaminated(0, share)
    with pytest.warns(UserWarning, match="far wider noise"):
        svr = bp.BayesianSVR(random_state=0).fit(X, y)
    assert np.isin(wrong, svr.outliers_).mean() >= 0.95
    assert np.isin(svr.outliers_, wrong).mean() >= 0.95
    kept = bp.BayesianSVR(random_state=0, outliers="keep").fit(X, y)
    error, error_kept = (np.abs(each.predict(X) - np.sin(X[:, 0])).mean() for each in (svr, kept))
    assert error < 0.03 and error < 0.95 * error_kept
    scales = svr.noise_scales_
    assert scales.weights[scales.factors >= 8].sum() == pytest.approx(share, abs=0.05)
    low, high = svr.predict_interval(X, 0.5).T
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_the_log_density_of_a_row_that_is_left_out_is_that_of_its_prediction():
    X, y, _ = contaminated(1, 0.2)
    with pytest.warns(UserWarning, match="far wider noise"):
        svr = bp.BayesianSVR(inference="mean_field", random_state=0).fit(X, y)
    far = np.isin(np.arange(len(y)), svr.outliers_)
    _, log_density, _ = svr._fit.with_scales(merge_rows(X, y, None).taken(far).in_units(svr._fit.units))
    expected = svr.predict_distribution(X[far]).logpdf(y[far])
    np.testing.assert_allclose(log_density[-far.sum() :], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_equal_targets_and_quantiles_lose_no_row():
    """Equal targets would be the narrow noise, and a quantile is that of all targets."""
    X, y, _ = contaminated(0, 0.2)
    assert bp.BayesianSVR(noise="pinball", quantile=0.3, **FAST).fit(X, y).outliers_.size == 0
    rng = np.random.default_rng(1)
    equal = np.where(rng.random(220) < 0.6, 1.0, 2.0 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=220))
    assert bp.BayesianSVR(**FAST).fit(X, equal).outliers_.size == 0


@pytest.mark.slow_cases("220-auto")
@pytest.mark.parametrize(("n", "blocks"), [(220, "auto"), pytest.param(600, 150, marks=pytest.mark.slow)])
def test_errors_on_one_side_do_not_move_predictions(n, blocks):
    rng = np.random.default_rng(0)
    X, wrong = rng.uniform(-2.0, 2.0, (n, 2)), rng.random(n) < 0.1
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    y = f + 0.1 * rng.normal(size=n) + np.where(wrong, rng.uniform(2.0, 5.0, n), 0.0)
    with pytest.warns(UserWarning, match="are set aside"):
        machine = bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0, blocks=blocks).fit(X, y)
    assert machine.outliers_.tolist() == np.flatnonzero(wrong).tolist()
    assert np.abs(machine.predict(X) - f).mean() < 0.08

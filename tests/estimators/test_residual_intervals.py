"""Intervals from residuals: coverage, scales by hand, the test's level and power."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import SVR

import bsvr_pp as bp
from bsvr_pp.estimators.residual_intervals import gaussian_or_laplace

FAMILIES = ["gaussian", "laplace", "laplace_trimmed", "histogram"]


def data(n=400, seed=0, noise="laplace"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    error = {"laplace": rng.laplace(scale=0.3, size=n), "gaussian": rng.normal(scale=0.3, size=n)}[noise]
    return X, X[:, 0] - 2 * X[:, 1] + error


def test_scales_by_hand():
    X, y = data()
    found = {each: bp.ResidualIntervals(LinearRegression(), family=each, random_state=0).fit(X, y) for each in FAMILIES}
    residuals = found["gaussian"].residuals_
    absolute = np.abs(residuals)
    first = absolute.mean()
    expected = {
        "gaussian": np.sqrt(np.mean(residuals**2)),
        "laplace": first,
        "laplace_trimmed": absolute[absolute <= 5 * np.sqrt(2) * first].mean(),
    }
    for family, scale in expected.items():
        np.testing.assert_allclose(found[family].scale_, [scale])
    s = 0.1
    ends = {"gaussian": stats.norm.ppf(1 - s) * expected["gaussian"], "laplace": -expected["laplace"] * np.log(2 * s)}
    for family, end in ends.items():
        interval = found[family].predict_interval(X[:3], coverage=0.8)
        np.testing.assert_allclose(interval, found[family].predict(X[:3])[:, None] + [-end, end])
    interval = found["histogram"].predict_interval(X[:1], coverage=0.8)[0]
    np.testing.assert_allclose(interval - found["histogram"].predict(X[:1]), np.sort(residuals)[[39, 359]])


def test_trimming_ignores_what_is_very_extreme():
    X, y = data()
    y[7] += 500
    plain, trimmed = (
        bp.ResidualIntervals(LinearRegression(), family=f, random_state=0).fit(X, y)
        for f in ("laplace", "laplace_trimmed")
    )
    assert plain.scale_ > 1.0
    assert trimmed.scale_ < 0.7 * plain.scale_


def test_p_values_at_both_ends():
    """Equal absolute residuals have the smallest statistic there is, 1/√l, and a single residual the largest, 1."""
    equal, single = gaussian_or_laplace([1.0, -1.0] * 10), gaussian_or_laplace(np.eye(20)[0])
    assert (equal.statistic, single.statistic) == (pytest.approx(20**-0.5), 1.0)
    assert (equal.p_value, single.p_value) == (1.0, 1 / 10_001)
    assert (equal.family, single.family) == ("gaussian", "laplace")


@pytest.mark.parametrize("family", FAMILIES)
def test_coverage(family):
    X, y = data()
    X_new, y_new = data(4000, seed=1)
    found = bp.ResidualIntervals(LinearRegression(), family=family, random_state=0).fit(X, y)
    for coverage in (0.8, 0.95):
        low, high = found.predict_interval(X_new, coverage=coverage).T
        assert np.mean((low <= y_new) & (y_new <= high)) == pytest.approx(coverage, abs=0.06)
    quantiles = found.predict_quantiles(X_new[:5], [0.1, 0.5, 0.9])
    assert (np.diff(quantiles, axis=1) > 0).all()


def test_the_test_has_its_level_and_power():
    rng = np.random.default_rng(3)
    rejected = np.mean([gaussian_or_laplace(rng.normal(size=60)).family == "laplace" for _ in range(1000)])
    assert rejected == pytest.approx(0.05, abs=0.025)
    assert np.mean([gaussian_or_laplace(rng.laplace(size=60)).family == "laplace" for _ in range(200)]) > 0.7
    z = rng.laplace(size=50)
    assert gaussian_or_laplace(z).statistic == pytest.approx(gaussian_or_laplace(-1e6 * z).statistic)


def test_a_fold_of_rows_of_weight_0_is_left_out():
    X, y = data(20)
    weighted = bp.ResidualIntervals(LinearRegression(), cv=LeaveOneOut()).fit(X, y, np.arange(20) != 3)
    found = bp.ResidualIntervals(LinearRegression(), cv=LeaveOneOut()).fit(np.delete(X, 3, 0), np.delete(y, 3))
    assert weighted.scale_ == pytest.approx(found.scale_)


def test_auto_follows_the_test():
    for noise in ("gaussian", "laplace"):
        found = bp.ResidualIntervals(LinearRegression(), random_state=0).fit(*data(noise=noise))
        assert found.family_ == found.test_.family == noise


def test_the_dependence_of_the_scale_is_a_rank_correlation_of_the_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-5, 1, (300, 1)), rng.normal(5, 1, (300, 1))])
    y = X[:, 0] + rng.normal(size=600) * np.where(X[:, 0] > 0, 2.0, 0.1)
    found, weighted = (
        bp.ResidualIntervals(LinearRegression(), random_state=0).fit(X, y, weight) for weight in (None, 1.0 + (y > 0))
    )
    for each in (found, weighted):
        size, predicted = np.abs(each.residuals_), y - each.residuals_
        np.testing.assert_allclose(each.scale_dependence_, stats.spearmanr(size, predicted))
    assert found.scale_dependence_[0] > 0.5
    assert found.scale_dependence_[1] < 1e-6
    assert np.ptp(np.ptp(found.predict_interval([[-5.0], [5.0]]), axis=1)) < 1e-9


def test_around_a_grid_search():
    X, y = data(80)
    search = GridSearchCV(SVR(), {"C": [1.0, 100.0]}, cv=3)
    assert bp.ResidualIntervals(search, cv=3, random_state=0).fit(X, y).score(X, y) > 0.9


@pytest.mark.slow
def test_a_regressor_that_chooses_columns_by_name_is_given_the_table():
    X = pd.DataFrame(data(60)[0], columns=["a", "b"]).assign(town=["Ulm", "Bonn", "Kiel"] * 20)
    y = X["a"] + (X["town"] == "Ulm")
    chosen = ColumnTransformer([("a", "passthrough", ["a"]), ("town", OneHotEncoder(), ["town"])])
    search = GridSearchCV(make_pipeline(chosen, LinearRegression()), {"linearregression__positive": [False]})
    with config_context(enable_metadata_routing=True):
        search.estimator[-1].set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = bp.ResidualIntervals(search, random_state=0).fit(X, y, np.repeat([0.0, 1.0, 2.0], 20))
    np.testing.assert_allclose(found.predict(X[20:]), y[20:])
    one = make_pipeline(ColumnTransformer([("a", "passthrough", ["a"])]), LinearRegression())
    found = bp.ResidualIntervals(one, random_state=0).fit(X[["a", "b"]], X["a"])
    np.testing.assert_allclose(found.predict(X[["a", "b"]].to_numpy()), X["a"])  # an array in the place of numbers
    one = make_pipeline(FunctionTransformer(lambda table: table[["a"]]), LinearRegression())
    found = bp.ResidualIntervals(one, random_state=0).fit(X[["a", "b"]], X["a"])
    np.testing.assert_allclose(found.predict(X[["a", "b"]]), X["a"])


def test_gaps_of_new_rows_are_filled_as_the_warning_says():
    X = pd.DataFrame(data(60)[0], columns=["a", "b"])
    found = bp.ResidualIntervals(LinearRegression(), random_state=0).fit(X, X["a"])
    with pytest.warns(UserWarning, match="column 'a' has 1 gaps.* filled with the median"):
        assert found.predict(X[:1].assign(a=np.nan)) == pytest.approx(X["a"].median())


@pytest.mark.skipif(
    not (Path(os.environ.get("BSVR_PP_DATA", "../shared/data")) / "auto_mpg.csv").exists(),
    reason="the papers' data are not at hand (BSVR_PP_DATA)",
)
def test_the_paper_s_finding_on_real_data():
    """The test favours Laplace on mpg (Lin & Weng 2004, section V); 80 % intervals cover about 80 %."""
    from bsvr_pp.datasets import load

    train, test = load("auto_mpg").split(0.2, 0)
    center, width = train.X.mean(axis=0), train.X.std(axis=0)
    machine = SVR(C=10 * train.y.std(), epsilon=0.1 * train.y.std(), gamma=1 / train.X.shape[1])
    found = bp.ResidualIntervals(machine, random_state=0).fit((train.X - center) / width, train.y)
    assert found.family_ == "laplace"
    low, high = found.predict_interval((test.X - center) / width, coverage=0.8).T
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(0.8, abs=0.12)


def test_bad_arguments_of_the_test_are_named():
    with pytest.raises(ValueError, match="not all 0"):
        gaussian_or_laplace(np.zeros(5))
    with pytest.raises(ValueError, match="alpha must lie strictly between 0 and 1, got 2"):
        gaussian_or_laplace([1.0, -1.0], alpha=2)


def test_residuals_are_those_of_cross_validation():
    X, y = data(60)
    found = bp.ResidualIntervals(LinearRegression(), cv=3, random_state=0).fit(X, y)
    folds = KFold(3, shuffle=True, random_state=0)
    np.testing.assert_array_equal(found.residuals_, y - cross_val_predict(LinearRegression(), X, y, cv=folds))
    numbers = [(train.tolist(), test.tolist()) for train, test in folds.split(X)]
    masks = [[np.isin(np.arange(len(y)), part) for part in fold] for fold in numbers]
    for cv in (numbers, masks):
        same = bp.ResidualIntervals(LinearRegression(), cv=cv).fit(X, y)
        np.testing.assert_array_equal(same.residuals_, found.residuals_)


def test_repeated_targets_of_an_input_are_not_held_out_together():
    x = np.repeat([0.0, 1.0], 150)
    y = (np.random.default_rng(0).random(300) < np.where(x > 0, 0.8, 0.2)) * 1.0
    one, other = (
        bp.ResidualIntervals(LinearRegression(), family="gaussian", cv=cv, random_state=0).fit(x[:, None], y).scale_
        for cv in (5, KFold(5, shuffle=True, random_state=0))
    )
    assert one == pytest.approx(other, rel=0.08)


def test_constant_predictions_have_no_dependence_of_the_scale():
    X, y = data(30)
    found = bp.ResidualIntervals(DummyRegressor(strategy="constant", constant=0.0), cv=3, random_state=0).fit(X, y)
    assert found.scale_dependence_ == (0.0, 1.0)


def test_equal_rows_are_in_one_fold_around_any_regressor():
    """A pipeline takes no weights: copies of a row were tested on each other."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (40, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.laplace(size=40)
    twice, svr = (np.vstack([X, X]), np.concatenate([y, y])), SVR(C=100.0)
    alone, piped = (bp.ResidualIntervals(e, random_state=0).fit(*twice) for e in (svr, make_pipeline(svr)))
    assert piped.scale_ == pytest.approx(alone.scale_, rel=0.02)
    np.testing.assert_array_equal(piped.residuals_[:40], piped.residuals_[40:])
    np.testing.assert_array_equal(piped.predict(X), SVR(C=100.0).fit(*twice).predict(X))

"""Sample weights of the estimators: whole weights are repeated rows, and weight 0 leaves a row out."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import bsvr_pp as bp
from bsvr_pp.model.priors import location_and_scale, quantiles_of


def data(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.laplace(size=n)
    y[3] += 40.0  # a gross error
    weight = rng.choice([0.0, 1.0, 1.0, 1.0, 2.0, 3.0], size=n)
    weight[3] = 1.0
    rows = rng.permutation(np.repeat(np.arange(n), weight.astype(int)))
    return X, y, weight, rows


def fitted(make, X, y, weight=None):
    with warnings.catch_warnings(action="ignore"):
        return make().fit(X, y, sample_weight=weight)


ESTIMATORS = {
    "mean field": lambda: bp.BayesianSVR(random_state=0),
    "laplace": lambda: bp.BayesianSVR("huber", inference="laplace", restarts=2, random_state=0),
    "LSSVR": lambda: bp.LSSVR(),
    "LSSVR loo": lambda: bp.LSSVR(selection="loo"),
    "BayesianLSSVR": lambda: bp.BayesianLSSVR(lengthscale=1.0),
    "residuals": lambda: bp.ResidualIntervals(random_state=0),
    "histogram": lambda: bp.ResidualIntervals(family="histogram", random_state=0),
}


@pytest.mark.slow_cases("mean field", "laplace")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_whole_weights_are_repeated_rows_in_any_order(name):
    X, y, weight, rows = data()
    one, many = fitted(ESTIMATORS[name], X, y, weight), fitted(ESTIMATORS[name], X[rows], y[rows])
    np.testing.assert_allclose(one.predict(X), many.predict(X), rtol=1e-6)
    for method in ("predict_interval", "predict_f"):
        if hasattr(one, method):
            np.testing.assert_allclose(getattr(one, method)(X), getattr(many, method)(X), rtol=1e-6, atol=1e-9)
    compared = 0
    for attribute, value in vars(one).items():
        if attribute.endswith("_") and isinstance(value, float):
            assert getattr(many, attribute) == pytest.approx(value, rel=1e-6, nan_ok=True), attribute
            compared += 1
    assert compared >= 2 or name in ("residuals", "histogram")
    if hasattr(one, "outliers_"):
        assert one.outliers_.tolist() == [3] and rows[many.outliers_].tolist() == [3]
    if hasattr(one, "dual_coef_"):
        assert one.dual_coef_.shape == y.shape
        np.testing.assert_allclose(np.bincount(rows, many.dual_coef_, minlength=len(y)), one.dual_coef_, rtol=1e-6)
        assert (one.dual_coef_[weight == 0] == 0).all()


@pytest.mark.slow
def test_the_support_vector_machine_inside_is_described():
    X, y, weight, _ = data()
    machine = fitted(lambda: bp.BayesianSVR(kernel="rbf", random_state=0), X, y, weight)
    assert (np.abs(machine.dual_coef_) <= machine.C_ * weight * (1 + 1e-9)).all()
    np.testing.assert_allclose(machine.support_vectors_, X[machine.support_])
    point = machine._fit.point
    U, V = X / machine.lengthscale_, machine.support_vectors_ / machine.lengthscale_
    squares = ((U[:, None] - V) ** 2).sum(axis=2)
    K = (float(point["amplitude"]) * machine.unit_) ** 2 * np.exp(-0.5 * squares)
    f = machine.intercept_ + K @ machine.dual_coef_[machine.support_]
    kept = (weight > 0) & (np.arange(len(y)) != 3)
    inside = machine.dual_coef_[kept] == 0
    tube = (1 - machine.beta_) * machine.epsilon_
    jitter = 1e-6 * machine.unit_**2 * np.abs(machine.dual_coef_).max()
    assert (np.abs((y - f)[kept][inside]) <= tube + jitter).all()
    assert np.corrcoef(f[kept], machine.predict(X[kept]))[0, 1] > 0.99


@pytest.mark.slow_cases("options1")
@pytest.mark.parametrize("options", [{}, {"probability": "map", "evidence": "joint"}])
def test_weights_of_labels_are_repeated_rows(options):
    X, y, weight, rows = data()
    labels = np.where(y > 0, "b", "a")

    def make():
        return bp.BayesianSVC(random_state=0, **options)

    one, many = fitted(make, X, labels, weight), fitted(make, X[rows], labels[rows])
    np.testing.assert_allclose(one.predict_proba(X), many.predict_proba(X), rtol=1e-6)
    assert one.log_evidence_ == pytest.approx(many.log_evidence_, rel=1e-9)
    assert (np.abs(one.dual_coef_) <= one.C_ * weight * (1 + 1e-9)).all()


@pytest.mark.slow
def test_class_weights_multiply_sample_weights():
    X, y, weight, _ = data()
    labels = np.where(y > 0.3, "b", "a")
    options = {"random_state": 0}
    by_class = bp.BayesianSVC(class_weight={"a": 1, "b": 3, "c": 9}, **options).fit(X, labels, sample_weight=weight)
    by_row = bp.BayesianSVC(**options).fit(X, labels, sample_weight=weight * np.where(labels == "b", 3.0, 1.0))
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), rtol=1e-9)
    balanced = bp.BayesianSVC(class_weight="balanced", **options).fit(X, labels, sample_weight=weight)
    total = [weight[labels == name].sum() for name in ("a", "b")]
    factor = np.where(labels == "a", sum(total) / (2 * total[0]), sum(total) / (2 * total[1]))
    by_row = bp.BayesianSVC(**options).fit(X, labels, sample_weight=weight * factor)
    np.testing.assert_allclose(balanced.predict_proba(X), by_row.predict_proba(X), rtol=1e-9)


def test_weights_are_routed():
    X, y, weight, _ = data()
    machine = bp.LSSVR(gamma=10.0, lengthscale=1.0)
    by_hand = make_pipeline(StandardScaler(), machine)
    alone = fitted(lambda: bp.LSSVR(gamma=10.0, lengthscale=1.0), StandardScaler().fit_transform(X), y, weight)
    with sklearn.config_context(enable_metadata_routing=True):
        machine.set_fit_request(sample_weight=True)
        by_hand[0].set_fit_request(sample_weight=False)
        by_hand.fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(by_hand.predict(X), alone.predict(StandardScaler().fit_transform(X)), rtol=1e-9)
        scored = machine.set_score_request(sample_weight=True)
        scores = cross_val_score(scored, X, y, params={"sample_weight": weight}, cv=4)
        assert np.isfinite(scores).all()
        asked = bp.ResidualIntervals(SVR().set_fit_request(sample_weight=True), random_state=0)
        refused = bp.ResidualIntervals(SVR().set_fit_request(sample_weight=False), random_state=0)
        asked.fit(X, y, sample_weight=weight)
        refused.fit(X, y, sample_weight=weight)
    inside = SVR().fit(X, y)
    np.testing.assert_allclose(refused.predict(X), inside.predict(X))
    assert np.abs(asked.predict(X) - refused.predict(X)).max() > 1e-3


@pytest.mark.slow
def test_sampled_hyperparameters_have_weights():
    X, y, weight, rows = data(16)
    method = bp.NUTS(latent=bp.MeanField(), draws=20, tune=40, chains=1)
    make = lambda: bp.BayesianSVR("huber", kernel="rbf", ard=False, inference=method, random_state=0)  # noqa: E731
    one, many = fitted(make, X, y, weight), fitted(make, X[rows], y[rows])
    np.testing.assert_allclose(one.predict(X), many.predict(X), rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12), st.integers(0, 1000))
def test_quantiles_depend_on_the_shares_of_the_weights(weight, seed):
    """Ties, two rows and one dominating weight among them; equal weights give the quantiles of NumPy."""
    rng = np.random.default_rng(seed)
    w, levels = np.array(weight), np.array([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
    values, order = rng.integers(0, 5, w.size).astype(float), rng.permutation(w.size)
    found = quantiles_of(values, levels, w)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(found, -quantiles_of(-values, 1.0 - levels, w), **close)
    np.testing.assert_allclose(found, quantiles_of(values[order], levels, w[order]), **close)
    assert (np.diff(found) >= -1e-9).all() and values.min() <= found[0] and found[-1] <= values.max() + 1e-9
    for scale in (1e-4, 1e4):
        np.testing.assert_allclose(found, quantiles_of(values, levels, scale * w), **close)
        equal = quantiles_of(values, levels, np.full(w.size, scale * w[0]))
        np.testing.assert_allclose(equal, np.quantile(values, levels), **close)
        if np.ptp(values) > 0:
            location, unit = location_and_scale(values, w)
            np.testing.assert_allclose(location_and_scale(-values, scale * w), (-location, unit), **close)


MIRRORED = {
    "mean field": lambda: bp.BayesianSVR(kernel="rbf", restarts=1, outliers="keep", random_state=0),
    "LSSVR": lambda: bp.LSSVR(),
    "residuals": lambda: bp.ResidualIntervals(bp.LSSVR(gamma=10.0, lengthscale=1.0), random_state=0),
}


@pytest.mark.slow_cases("0.0001-mean field", "0.025-mean field", "10000.0-mean field")
@pytest.mark.parametrize("name", MIRRORED)
@pytest.mark.parametrize("scale", [1e-4, 1 / 40, 1e4])
def test_the_fit_of_the_mirrored_targets_is_the_mirror_image(name, scale):
    X, y, weight, _ = data()
    weight = scale * (weight + 0.5)
    one, other = (fitted(MIRRORED[name], X, sign * y, weight) for sign in (1.0, -1.0))
    size = 1e-5 * np.abs(y).max()
    np.testing.assert_allclose(other.predict(X), -one.predict(X), atol=size)
    np.testing.assert_allclose(other.predict_distribution(X).std(), one.predict_distribution(X).std(), rtol=1e-4)
    if name == "mean field":
        plain = fitted(MIRRORED[name], X, y, weight / scale)
        assert (other.location_, other.unit_) == pytest.approx((-one.location_, one.unit_), rel=1e-9)
        assert (plain.location_, plain.unit_) == pytest.approx((one.location_, one.unit_), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_distributions_of_residuals_depend_on_the_shares_of_the_weights(scale):
    X, y, weight, _ = data()
    for family in ("auto", "laplace_trimmed", "histogram"):
        make = partial(bp.ResidualIntervals, LinearRegression(), family=family, random_state=0)
        one, other = fitted(make, X, y, weight), fitted(make, X, y, scale * weight)
        assert one.test_[:3] == pytest.approx(other.test_[:3]) and one.family_ == other.family_
        np.testing.assert_allclose(one.predict_interval(X), other.predict_interval(X), rtol=1e-7)


@pytest.mark.slow_cases("BayesianSVR", "BayesianSVC")
@pytest.mark.parametrize("make", [bp.BayesianSVR, bp.LSSVR, bp.ResidualIntervals, bp.BayesianSVC])
def test_a_small_sum_of_the_weights_is_named_in_one_warning(make):
    X, y, _, _ = data()
    y = np.sign(y) if make is bp.BayesianSVC else y
    options = {"restarts": 1, "inference": "mean_field"} if make is bp.BayesianSVR else {}
    for weight, named in ((np.full(40, 1 / 40), True), (0.01, True), (np.arange(40) < 6, False), (np.ones(40), False)):
        with warnings.catch_warnings(record=True, action="always") as caught:
            make(**options).fit(X, y, sample_weight=weight)
        said = [str(each.message) for each in caught if "sample_weight has the sum" in str(each.message)]
        assert len(said) == named
        if named:
            total = np.broadcast_to(weight, 40).sum()
            assert f"has the sum {total:.3g}, so that 40 rows" in said[0] and "average to 1" in said[0]


def test_weights_may_be_whole_numbers_flags_or_a_series():
    X, y, weight, _ = data()
    plain = bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X, y, sample_weight=weight)
    for same in (weight.astype(int), pd.Series(weight, index=np.arange(40)[::-1]), list(weight)):
        again = bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X, y, sample_weight=same)
        np.testing.assert_array_equal(again.predict(X), plain.predict(X))
        assert plain.score(X, y, same) == plain.score(X, y, weight)
        assert bp.scorers.neg_crps(plain, X, y, same) == bp.scorers.neg_crps(plain, X, y, weight)
    flags = weight > 0
    kept = bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X, y, sample_weight=flags)
    without = bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X[flags], y[flags])
    np.testing.assert_allclose(kept.predict(X), without.predict(X), rtol=1e-9)


@pytest.mark.parametrize("make", [bp.BayesianSVR, bp.LSSVR, bp.BayesianLSSVR, bp.ResidualIntervals, bp.BayesianSVC])
def test_bad_weights_are_refused_by_name(make):
    X, y, _, _ = data()
    y, machine = np.sign(y) if make is bp.BayesianSVC else y, make()
    bad = [
        (-np.ones(40), "sample_weight must be >= 0, got -1"),
        (np.zeros(40), "sample_weight must not be zero for all rows"),
        (np.ones(39), "sample_weight must have 40 values as X has rows, got 39"),
        (np.full(40, np.nan), "sample_weight must be finite, got nan"),
        ("a", "sample_weight must be an array of numbers"),
        (np.ones((40, 2)), r"sample_weight must be an \(n,\) array"),
    ]
    for weight, message in bad:
        with pytest.raises(ValueError, match=message):
            machine.fit(X, y, sample_weight=weight)
    if make is not bp.ResidualIntervals:  # its weights are relative
        with pytest.raises(ValueError, match=r"sample_weight must be at most 1e\+08, got 1e\+200: .* divide inverse"):
            machine.fit(X, y, sample_weight=np.full(40, 1e200))
    machine.set_params(**{"inference": "mean_field"} if make is bp.BayesianSVR else {}).fit(X, y)
    scores = [partial(score, machine) for score in (bp.scorers.log_density, bp.scorers.neg_crps)]
    for score in [machine.score, *(scores if hasattr(machine, "predict_distribution") else [])]:
        for weight, _ in bad[:-1]:
            with pytest.raises(ValueError, match="sample_weight must"):
                score(X, y, sample_weight=weight)


def test_a_regressor_without_weights_is_refused():
    from sklearn.neighbors import KNeighborsRegressor

    X, y, weight, _ = data()
    with pytest.raises(ValueError, match="estimator must take sample_weight in its fit, got KNeighbors"):
        bp.ResidualIntervals(KNeighborsRegressor()).fit(X, y, sample_weight=weight)
    assert bp.ResidualIntervals(KNeighborsRegressor()).fit(X, y).residuals_.shape == y.shape

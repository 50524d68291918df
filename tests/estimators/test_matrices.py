"""Estimators of kernels that are matrices, or functions of objects, beside those of inputs."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

import bsvr_pp as bp
from bsvr_pp.inference.approximate import MeanField, solve_at

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(50, 2)), RNG.normal(size=(9, 2))
F = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.1 * RNG.laplace(size=50)
CLASSES = np.digitize(Y, [-0.5, 0.5])
LABELS = np.where(Y > 0, "yes", "no")


def rbf(A, B):
    return np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(axis=2))


def linear(A, B):
    return A @ B.T


K, K_NEW = rbf(X, X), rbf(NEW, X)
L, L_NEW, L_OWN = linear(X, X), linear(NEW, X), (NEW**2).sum(axis=1)
SVR = {"kernel": "precomputed", "inference": "mean_field", "restarts": 1, "random_state": 0}


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(**SVR).fit(K, Y)


def known(kernel):
    """The function of inputs with the prior of the amplitude of a matrix whose mean diagonal is 1."""
    return lambda Z: pm.HalfStudentT("amplitude", nu=3.0, sigma=1.0, shape=1)[0] ** 2 * kernel


@pytest.mark.slow_cases("soft_insensitive")
@pytest.mark.parametrize("noise", ["soft_insensitive", "gaussian"])
def test_the_model_is_that_of_the_kernel_of_the_inputs(noise):
    """At the same hyperparameters; the kernel of standardised inputs is in units of the given ones."""
    one = bp.BayesianSVR(noise, **SVR, outliers="keep").fit(K, Y)
    other = bp.BayesianSVR(
        noise,
        kernel=known(pm.gp.cov.ExpQuad(2, ls=1.0 / X.std(axis=0))),
        inference="mean_field",
        restarts=1,
        outliers="keep",
    ).fit(X, Y)
    first, second = one._fit, other._fit
    posterior = solve_at(second.problem, MeanField(), first.point)
    assert np.isclose(posterior.log_evidence, first.fitted.posteriors[0].log_evidence, rtol=1e-8)
    moments = posterior.predict(*second.problem.cross(first.point, second.units.inputs(NEW)))
    mean, sd = one.predict_f(K_NEW)
    np.testing.assert_allclose(mean, first.units.location + first.units.unit * moments[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sd, first.units.unit * np.sqrt(moments[1]), rtol=1e-5)
    np.testing.assert_allclose(other.predict(NEW), one.predict(K_NEW), atol=0.02)
    np.testing.assert_array_equal(one.support_vectors_, K[one.support_])
    assert one.n_features_in_ == 50 and not hasattr(one, "lengthscale_") and one.kernel_ == "precomputed"


@pytest.mark.slow_cases("1e-06")
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_a_matrix_does_not_matter(svr, unit):
    other = bp.BayesianSVR(**SVR).fit(unit * K, Y)
    np.testing.assert_allclose(other.predict(unit * K_NEW), svr.predict(K_NEW), rtol=1e-5)
    np.testing.assert_allclose(unit * other.factors_, svr.factors_, rtol=1e-4)


def test_the_diagonal_is_the_common_one_or_is_given(svr):
    for one, other in zip(
        svr.predict(K_NEW, return_std=True), svr.predict(K_NEW, return_std=True, diagonal=np.ones(9)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    wider = svr.predict_interval(K_NEW, 0.8, diagonal=np.full(9, 2.0))
    assert (np.ptp(wider, axis=1) > np.ptp(svr.predict_interval(K_NEW, 0.8), axis=1)).all()
    uneven = bp.BayesianSVR(**SVR).fit(L, F)
    mean, sd = uneven.predict(L_NEW, return_std=True, diagonal=L_OWN)
    np.testing.assert_allclose(uneven.predict(L_NEW), mean, rtol=1e-12)
    np.testing.assert_allclose(uneven.predict_distribution(L_NEW, L_OWN).std(), sd)
    np.testing.assert_allclose(uneven.predict_quantiles(L_NEW, [0.5], diagonal=L_OWN)[:, 0], mean, atol=0.3)
    assert uneven.predict_f(L_NEW, L_OWN)[1].shape == (9,)
    for call in (
        lambda: uneven.predict(L_NEW, return_std=True),
        lambda: uneven.predict_f(L_NEW),
        lambda: uneven.predict_interval(L_NEW),
        lambda: uneven.predict_quantiles(L_NEW, [0.5]),
        lambda: uneven.predict_distribution(L_NEW),
        lambda: uneven.predict_table(L_NEW),
        lambda: uneven.predict_survival_function(L_NEW, [0.0]),
    ):
        with pytest.raises(ValueError, match=r"diagonal must have the value k\(x, x\) of each new row"):
            call()


@pytest.mark.parametrize("cls", [bp.BayesianSVC, pytest.param(bp.BayesianOrdinalSVC, marks=pytest.mark.slow)])
def test_classes(cls):
    one = cls(kernel="precomputed", random_state=0).fit(K, LABELS if cls is bp.BayesianSVC else CLASSES)
    P = one.predict_proba(K_NEW)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    expected = np.sin(2.0 * NEW[:, 0]) + 0.5 * NEW[:, 1]
    right = np.where(expected > 0, "yes", "no") if cls is bp.BayesianSVC else np.digitize(expected, [-0.5, 0.5])
    assert np.mean(one.predict(K_NEW) == right) > 0.7 and one.shares_ == [1.0] and one.factors_ > 0
    other = cls(kernel="precomputed", random_state=0).fit(L, LABELS if cls is bp.BayesianSVC else CLASSES)
    with pytest.raises(ValueError, match="diagonal must have"):
        other.predict_proba(L_NEW)
    P = other.predict_proba(L_NEW, diagonal=L_OWN)  # the class needs no diagonal: it follows from the mean
    chosen = np.argmax(P, axis=1) if cls is bp.BayesianSVC else (np.cumsum(P, axis=1) < 0.5).sum(axis=1)
    np.testing.assert_array_equal(other.predict(L_NEW), other.classes_[chosen])


def test_three_classes_need_the_diagonal():
    svc = bp.BayesianSVC(kernel="precomputed", random_state=0).fit(L, CLASSES)
    P, odds = (of(L_NEW, diagonal=L_OWN) for of in (svc.predict_proba, svc.decision_function))
    assert svc.factors_.shape == (3, 1) and P.shape == odds.shape == (9, 3)
    with pytest.raises(ValueError, match="diagonal must have"):
        svc.predict(L_NEW)
    np.testing.assert_array_equal(svc.predict(L_NEW, diagonal=L_OWN), np.argmax(P, axis=1))
    by_mean = svc.set_params(probability="mean").predict_proba(L_NEW)  # which has no variance
    np.testing.assert_array_equal(svc.predict(L_NEW), np.argmax(by_mean, axis=1))


@pytest.mark.slow
def test_several_matrices_have_an_amplitude_each():
    noise = linear(*2 * [RNG.normal(size=(50, 3))])
    several = bp.BayesianSVR(**SVR).fit(np.stack([1e3 * K, noise, L], axis=2), Y)
    assert np.isclose(several.shares_.sum(), 1.0) and several.shares_[1] < 0.01 < several.shares_[0]
    new = np.stack([1e3 * K_NEW, np.zeros((9, 50)), L_NEW], axis=2)
    own = np.stack([np.full(9, 1e3), np.zeros(9), L_OWN], axis=1)
    assert several.predict(new, return_std=True, diagonal=own)[1].shape == (9,)
    scores = cross_val_score(bp.BayesianSVR(**SVR), np.stack([K, L], axis=2), Y, cv=3)
    assert scores.min() > 0.5


@pytest.mark.slow
def test_cross_validation_cuts_rows_and_columns():
    cut = np.arange(50) % 2 == 0
    by_hand = bp.BayesianSVR(**SVR).fit(K[np.ix_(cut, cut)], Y[cut]).score(K[np.ix_(~cut, cut)], Y[~cut])
    folds = [(np.flatnonzero(cut), np.flatnonzero(~cut))]
    grid = GridSearchCV(bp.BayesianSVR(**SVR), {"noise": ["huber", "soft_insensitive"]}, cv=folds, refit=False)
    assert np.isclose(grid.fit(K, Y).cv_results_["mean_test_score"][1], by_hand)


@pytest.mark.slow
def test_gross_errors_and_scales_of_the_noise_go_by_the_kernel():
    """They were found among the rows that are near in the matrix, as among the inputs."""
    rng = np.random.default_rng(1)
    Z = rng.uniform(-3, 3, size=(240, 1))
    y = np.sin(Z[:, 0]) + np.where(Z[:, 0] > 0, 0.4, 0.03) * rng.normal(size=240)
    y[[5, 77]] += [9.0, -8.0]
    new = np.array([[-2.0], [2.0]])
    order = rng.permutation(240)
    with warnings.catch_warnings(action="ignore"):
        svr = bp.BayesianSVR(**SVR).fit(rbf(Z, Z)[np.ix_(order, order)], y[order])
        of_inputs = bp.BayesianSVR(kernel="rbf", inference="mean_field", random_state=0).fit(Z, y)
    assert sorted(order[svr.outliers_]) == of_inputs.outliers_.tolist() == [5, 77]
    sd = svr.predict(rbf(new, Z[order]), return_std=True)[1]
    assert svr.noise_scales_.several and sd[1] > 4 * sd[0]
    np.testing.assert_allclose(sd, of_inputs.predict(new, return_std=True)[1], rtol=0.25)


@pytest.mark.slow
def test_weights_intervals_tables_and_saved_fits(tmp_path, svr):
    weight = np.where(np.arange(50) < 10, 0.0, 1.0)
    kept = bp.BayesianSVR(**SVR).fit(K[10:, 10:], Y[10:])
    weighted = bp.BayesianSVR(**SVR).fit(pd.DataFrame(K), Y, sample_weight=weight)
    np.testing.assert_allclose(weighted.predict(K_NEW), kept.predict(K_NEW[:, 10:]), rtol=1e-6)
    ends = np.stack([Y - 0.1, Y + 0.1], axis=1)
    assert bp.BayesianSVR(**SVR, intervals=True).fit(K, ends).score(K_NEW, np.sin(2 * NEW[:, 0]) + NEW[:, 1] / 2) > 0.7
    svr.save(tmp_path / "svr.nc")
    for other in (bp.BayesianSVR.load(tmp_path / "svr.nc"), pickle.loads(pickle.dumps(svr))):
        for one, found in zip(svr.predict(K_NEW, return_std=True), other.predict(K_NEW, return_std=True), strict=True):
            np.testing.assert_allclose(found, one, rtol=1e-9)
        np.testing.assert_allclose(other.factors_, svr.factors_)


@pytest.mark.slow
def test_repeated_rows_are_one_row_with_their_weight():
    """Also if eigenvalues of rounding are set to 0."""
    weight = np.where(np.arange(50) % 3 == 0, 3, 1)
    rows = np.repeat(np.arange(50), weight)
    one = bp.BayesianSVC(kernel="precomputed", random_state=0).fit(K, Y > 0, sample_weight=weight)
    many = bp.BayesianSVC(kernel="precomputed", random_state=0).fit(K[np.ix_(rows, rows)], Y[rows] > 0)
    np.testing.assert_allclose(many.predict_proba(K_NEW[:, rows]), one.predict_proba(K_NEW), rtol=1e-6)
    assert len(many._fit.rows.y) == 50


def test_a_constant_in_a_matrix_changes_nothing_and_features_far_from_zero_are_warned_of(svr):
    shifted = bp.BayesianSVR(**SVR).fit(K + 1e4, Y)
    np.testing.assert_allclose(shifted.predict(K_NEW + 1e4), svr.predict(K_NEW), atol=0.02)
    far = X + 1e3
    with pytest.warns(UserWarning, match="features far from 0.*KernelCenterer"):
        bp.BayesianSVR(**SVR).fit(far @ far.T, X[:, 0])


def shared_letters(A, B):
    counts = [np.array([[word.count(letter) for letter in "abc"] for word in words], float) for words in (A, B)]
    return counts[0] @ counts[1].T


def test_objects():
    """The predictions of a matrix, whose diagonal is known; cross-validation cuts the list."""
    words = ["".join(RNG.choice(list("abc"), RNG.integers(2, 7))) for _ in range(40)]
    y = np.array([word.count("a") - word.count("b") for word in words]) + 0.1 * RNG.normal(size=40)
    kernel = bp.PairwiseKernel(shared_letters)
    svr = bp.BayesianSVR(**SVR | {"kernel": kernel}).fit(words, y)
    new = ["aaaa", "cbbb"]
    matrix = bp.BayesianSVR(**SVR).fit(shared_letters(words, words), y)
    expected = matrix.predict(shared_letters(new, words), return_std=True, diagonal=[16.0, 10.0])
    np.testing.assert_allclose(svr.predict(new, return_std=True), expected, rtol=1e-9)
    assert np.abs(svr.predict(new) - [4.0, -3.0]).max() < 0.3
    assert cross_val_score(bp.BayesianSVR(**SVR | {"kernel": kernel}), words, y, cv=3).min() > 0.9
    with pytest.raises(ValueError, match="pickle the estimator"):
        bp.BayesianSVR.from_result(svr.result_)


def test_the_function_takes_lists_whatever_holds_the_objects(svr):
    def function(A, B):
        assert isinstance(A, list) and isinstance(B, list)
        return rbf(np.array(A), np.array(B))

    for given in (X, pd.Series(list(X), index=np.arange(50)[::-1])):
        model = bp.BayesianSVR(**SVR | {"kernel": bp.PairwiseKernel(function)}).fit(given, Y)
        np.testing.assert_array_equal(model.predict(NEW, return_std=True), svr.predict(K_NEW, return_std=True))

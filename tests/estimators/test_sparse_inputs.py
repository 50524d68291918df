"""Sparse inputs: the models are those of the same inputs, dense, in one unit and not centred."""

import pickle

import numpy as np
import pytest
from scipy import sparse

import bsvr_pp as bp
from bsvr_pp.estimators.standard_fit import StandardModel
from bsvr_pp.estimators.training_data import Units
from bsvr_pp.inference.approximate import MeanField, solve_at

RNG = np.random.default_rng(0)
N, D = 60, 30
COUNTS = RNG.poisson(0.4, size=(N + 9, D)).astype(float)
F = COUNTS @ RNG.normal(size=D)
F /= F.std()
X, NEW = sparse.csr_array(COUNTS[:N]), sparse.csr_array(COUNTS[N:])
Y = F[:N] + 0.1 * RNG.laplace(size=N)
LABELS = np.where(np.median(Y) < Y, "yes", "no")
SVR = {"inference": "mean_field", "restarts": 1, "random_state": 0, "outliers": "keep"}
KERNELS = ["linear", "rbf", "rational_quadratic"]


def at_the_same_point(estimator, fit, model):
    """Log evidence of a dense model at the point of a fit to sparse inputs, and moments of f at new inputs."""
    scale = estimator._columns.matrix.scale
    d = Units(np.zeros(D), np.full(D, scale))
    place = fit.rows.X[:, -1].astype(int)
    inputs = estimator._columns.matrix.rows.toarray()[place] * scale
    rows = type(fit.rows)(d.inputs(inputs), fit.rows.y, fit.rows.weight, fit.rows.place, fit.rows.share)
    problem = model.problem(rows)
    posterior = solve_at(problem, MeanField(), fit.point)
    return posterior.log_evidence, posterior.predict(*problem.cross(fit.point, d.inputs(COUNTS[N:])))


@pytest.mark.slow_cases("rational_quadratic", "rbf")
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_regression_is_that_of_dense_inputs_at_the_same_hyperparameters(kernel):
    svr = bp.BayesianSVR(kernel=kernel, **SVR).fit(X, Y)
    fit = svr._fit
    evidence, (mean, variance) = at_the_same_point(svr, fit, StandardModel("soft_insensitive", kernel, False, 0.8))
    assert np.isclose(fit.fitted.log_evidence, evidence, rtol=1e-8)
    found = svr.predict_f(NEW)
    np.testing.assert_allclose(found[0], fit.units.location + fit.units.unit * mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], fit.units.unit * np.sqrt(variance), rtol=1e-5)
    assert np.isclose(svr._columns.matrix.scale, np.sqrt(COUNTS[:N].var(axis=0).sum()))
    assert svr.kernel_ == kernel and np.corrcoef(svr.predict(NEW), F[N:])[0, 1] > 0.8
    np.testing.assert_allclose(svr.lengthscale_, svr._columns.matrix.scale / fit.point["inverse_lengthscale"])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_classification_is_that_of_dense_inputs(kernel):
    svc = bp.BayesianSVC(kernel=kernel, probability="mean").fit(X, LABELS)
    (fit,) = svc._fit.binaries
    evidence, (mean, _) = at_the_same_point(svc, fit, StandardModel("known_label", kernel, False))
    assert np.isclose(fit.fitted.log_evidence, evidence, rtol=1e-8)
    (part,) = fit.components()
    np.testing.assert_allclose(part.moments(svc._new_rows(NEW))[0], mean, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.coo_array])
def test_the_kind_of_sparse_matrix_does_not_matter(container):
    svr = bp.BayesianSVR(**SVR).fit(X, Y)
    other = bp.BayesianSVR(**SVR).fit(container(X), Y)
    np.testing.assert_array_equal(other.predict(container(NEW)), svr.predict(NEW))
    np.testing.assert_array_equal(svr.predict(NEW.toarray()), svr.predict(NEW))
    assert svr.kernel_ == "rational_quadratic" and svr.n_features_in_ == D
    np.testing.assert_allclose(svr.support_vectors_.toarray(), COUNTS[:N][svr.support_], rtol=1e-12)


@pytest.mark.slow
def test_the_unit_of_the_inputs_does_not_matter():
    svr = bp.BayesianSVR(**SVR).fit(X, Y)
    np.testing.assert_allclose(bp.BayesianSVR(**SVR).fit(1e6 * X, Y).predict(1e6 * NEW), svr.predict(NEW), rtol=1e-5)


def test_weights_and_repeated_rows():
    weight = np.arange(N) % 3
    one = bp.BayesianSVR(**SVR).fit(X, Y, sample_weight=weight)
    other = bp.BayesianSVR(**SVR).fit(X[np.repeat(np.arange(N), weight)], np.repeat(Y, weight))
    np.testing.assert_array_equal(one.predict(NEW), other.predict(NEW))
    assert one.dual_coef_.shape == (N,) and (one.dual_coef_[weight == 0] == 0.0).all()


@pytest.mark.slow
def test_classes_options_and_several_targets():
    svc = bp.BayesianSVC(random_state=0).fit(X, np.digitize(Y, [-1.0, 0.0]))
    assert svc.predict_proba(NEW).shape == (9, 3) and svc.lengthscale_.shape == (3, D)
    gaps = np.where(np.arange(N) < 20, np.nan, -Y)
    both = bp.BayesianSVR(**SVR).fit(X, np.stack([Y, gaps], axis=1)).predict(NEW)
    np.testing.assert_allclose(both[:, 0], bp.BayesianSVR(**SVR).fit(X, Y).predict(NEW), rtol=1e-9)
    assert np.corrcoef(both.T)[0, 1] < -0.9
    intervals = bp.BayesianSVR(**SVR, intervals=True).fit(X, np.stack([Y - 0.2, Y + 0.2], axis=1))
    assert np.corrcoef(intervals.predict(NEW), F[N:])[0, 1] > 0.8
    with pytest.warns(UserWarning, match="are set aside: "):
        wrong = bp.BayesianSVR(kernel="linear", random_state=0).fit(X, np.where(np.arange(N) == 5, 90.0, Y))
    assert wrong.outliers_.tolist() == [5]


@pytest.mark.slow
def test_saved_fits(tmp_path):
    for made, y in ((bp.BayesianSVR(**SVR), Y), (bp.BayesianSVC(kernel="linear", random_state=0), LABELS)):
        fitted = made.fit(X, y)
        predict = "predict_interval" if y is Y else "predict_proba"
        fitted.save(tmp_path / "fit.nc")
        for other in (type(made).load(tmp_path / "fit.nc"), pickle.loads(pickle.dumps(fitted))):
            np.testing.assert_allclose(getattr(other, predict)(NEW), getattr(fitted, predict)(NEW), rtol=1e-9)
            np.testing.assert_allclose(other.lengthscale_, fitted.lengthscale_)
    result = fitted.result_
    del result["sparse"]["indptr"]
    with pytest.raises(ValueError, match="result lacks /sparse/indptr"):
        bp.BayesianSVC.from_result(result)


def columns_of(rng, *more):
    A = sparse.random_array((60, 30), density=0.15, rng=rng, format="csr")
    y = A @ rng.normal(size=30) + 0.02 * rng.normal(size=60)
    return sparse.csr_array(sparse.hstack([A, *more])), y


@pytest.mark.parametrize("kernel", ["linear", pytest.param("rbf", marks=pytest.mark.slow)])
def test_a_large_constant_column_hides_no_other(kernel):
    X, y = columns_of(np.random.default_rng(0), np.full((60, 1), 1e3))
    assert bp.BayesianSVR(kernel=kernel, random_state=0).fit(X[:40], y[:40]).score(X[40:], y[40:]) > 0.9


@pytest.mark.slow
def test_a_column_or_row_of_nearly_all_variance_is_named():
    rng = np.random.default_rng(0)
    X, y = columns_of(rng, 1e3 * rng.normal(size=(60, 1)))
    with pytest.warns(UserWarning, match="column 30 has 100 % of the variance of sparse X"):
        bp.BayesianSVR(kernel="linear", random_state=0).fit(X, y)
    rows = X[:, :30].toarray()
    rows[7] *= 1e4
    with pytest.warns(UserWarning, match="row 7 has 9. % of the variance of sparse X"):
        bp.BayesianSVR(kernel="linear", random_state=0).fit(sparse.csr_array(rows), y)


@pytest.mark.slow
def test_inputs_of_zeros_alone_are_saved(tmp_path):
    X, y = sparse.csr_array((40, 30)), np.random.default_rng(0).normal(size=40)
    svr = bp.BayesianSVR(kernel="rbf", random_state=0).fit(X, y)
    svr.save(tmp_path / "zeros.nc")
    np.testing.assert_array_equal(bp.BayesianSVR.load(tmp_path / "zeros.nc").predict(X), svr.predict(X))

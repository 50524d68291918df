"""Fewer than four rows for each input: rows that are left out judge the lengthscales and the noise of predictions."""

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators.training_data import as_given

RNG = np.random.default_rng(4)
X = RNG.normal(size=(230, 30))
OF_ALL = X.sum(axis=1) / 30**0.5 + 0.3 * RNG.normal(size=230)
TARGETS = {"all": OF_ALL, "one": 2.0 * X[:, 0] + 0.3 * RNG.normal(size=230)}
FIXED = {"kernel": "rbf", "inference": "mean_field", "restarts": 1, "random_state": 0}


def covered(svr, y):
    low, high = svr.predict_interval(X[30:]).T
    return np.mean((low < y[30:]) & (y[30:] < high))


@pytest.mark.slow_cases("all")
@pytest.mark.parametrize("inputs", TARGETS)
def test_rows_that_are_left_out_choose_lengthscales_and_widen_intervals(inputs, tmp_path):
    y = TARGETS[inputs]
    svr = bp.BayesianSVR(**FIXED).fit(X[:30], y[:30])
    own = bp.BayesianSVR(ard=True, noise_scales=False, **FIXED).fit(X[:30], y[:30])
    assert covered(own, y) < 0.7
    assert 0.85 < covered(svr, y) < 0.99
    shape = svr.result_["posterior"]["inverse_lengthscale"].shape[2:]
    if inputs == "all":
        assert shape == ()
        assert svr.score(X[30:], y[30:]) > own.score(X[30:], y[30:]) + 0.2
    else:
        assert shape == (30,)
        assert svr.noise_scales_.several
        np.testing.assert_allclose(svr.predict(X[30:]), own.predict(X[30:]))
    svr.save(tmp_path / "model.nc")
    loaded = bp.BayesianSVR.load(tmp_path / "model.nc")
    np.testing.assert_allclose(loaded.predict_interval(X[30:]), svr.predict_interval(X[30:]))


def test_random_rows_do_not_depend_on_the_order_the_unit_or_the_sign_of_the_targets():
    """Also with whole numbers as targets, and repeated inputs with targets on both sides of the median."""
    rng = np.random.default_rng(0)
    inputs, y = X[np.arange(40) // 2, :8], rng.integers(0, 5, 40).astype(float)
    y[:2] = np.median(y) + np.array([-1.0, 1.0])
    expected = as_given(inputs, y).mixed(0)
    order = rng.permutation(40)
    for rows, sign in ((order, 1.0), (np.arange(40), 0.1)):
        found = as_given(inputs[rows], sign * y[rows] + 0.3).mixed(0)
        np.testing.assert_array_equal(inputs[rows][found], inputs[expected])
        np.testing.assert_array_equal(y[rows][found], y[expected])
    np.testing.assert_array_equal(inputs[as_given(inputs, -y).mixed(0)], inputs[expected])


@pytest.mark.slow_cases("32-8-0", "19-8-0")
@pytest.mark.parametrize(("rows", "columns", "equal"), [(32, 8, 0), (19, 8, 0), (24, 8, 12)])
def test_more_rows_and_equal_targets_are_not_judged(rows, columns, equal):
    inputs, y = X[:rows, :columns], TARGETS["all"][:rows].copy()
    y[:equal] = 0.5
    found = [bp.BayesianSVR(ard=ard, **FIXED).fit(inputs, y).predict_interval(inputs) for ard in ("auto", True)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("inputs", ["all", pytest.param("one", marks=pytest.mark.slow)])
def test_labels_with_few_rows_for_each_input_are_predicted(inputs, tmp_path):
    labels = TARGETS[inputs] > 0.0
    svc = bp.BayesianSVC(kernel="rbf", random_state=0).fit(X[:60], labels[:60])
    known = [np.log(np.where(labels[60:], p, 1.0 - p)).mean() for p in (svc.predict_proba(X[60:])[:, 1], 0.5)]
    assert known[0] > known[1] + 0.1
    log = np.log(svc.lengthscale_ / X[:60].std(axis=0))
    log -= log.mean()
    assert np.std(log) < 0.1 if inputs == "all" else np.flatnonzero(log < -1.0).tolist() == [0]
    svc.save(tmp_path / "model.nc")
    loaded = bp.BayesianSVC.load(tmp_path / "model.nc")
    np.testing.assert_allclose(loaded.predict_proba(X[60:]), svc.predict_proba(X[60:]))

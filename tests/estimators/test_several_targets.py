"""Several targets: each is fitted as if it were alone, by the rows that have it."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score

import bsvr_pp as bp

RNG = np.random.default_rng(0)
N = 60
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(7, 2))
Y = np.column_stack([np.sin(X[:, 0]), 2.0 * X[:, 1], X[:, 0] + X[:, 1]]) + 0.1 * RNG.normal(size=(N, 3))
Y[10:20, 0] = Y[5:12, 1] = Y[11] = np.nan
SEEN = ~np.isnan(Y)
TABLE = pd.DataFrame(Y, columns=["height", "mass", "time"])
OPTIONS = {"kernel": "rbf", "inference": "mean_field", "restarts": 1, "random_state": 0}


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(**OPTIONS).fit(X, TABLE)


@pytest.fixture(scope="module")
def alone():
    """Estimators of each target by the rows that have it."""
    return [bp.BayesianSVR(**OPTIONS).fit(X[at], y[at]) for y, at in zip(Y.T, SEEN.T, strict=True)]


PREDICTIONS = {  # and the shape for one target
    "predict": (lambda svr: svr.predict(NEW), (7,)),
    "sd": (lambda svr: svr.predict(NEW, return_std=True)[1], (7,)),
    "f": (lambda svr: svr.predict_f(NEW)[1], (7,)),
    "quantiles": (lambda svr: svr.predict_quantiles(NEW, [0.1, 0.5, 0.6, 0.9]), (7, 4)),
    "interval": (lambda svr: svr.predict_interval(NEW, 0.8), (7, 2)),
    "survival": (lambda svr: svr.predict_survival_function(NEW, [0.0, 1.0, 2.0, 3.0]), (7, 4)),
}


@pytest.mark.slow_cases("predict")
@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_those_of_each_target_alone(svr, alone, name):
    predict, (n, *rest) = PREDICTIONS[name]
    found = predict(svr)
    assert found.shape == (n, 3, *rest)
    for j, one in enumerate(alone):
        np.testing.assert_allclose(found[:, j], predict(one), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(predict(svr.estimators_[j]), predict(one), rtol=1e-10, atol=1e-12)


def test_draws_of_targets_are_independent(svr, alone):
    drawn = svr.sample_y(NEW, 2000, random_state=3)
    assert drawn.shape == (7, 3, 2000)
    np.testing.assert_allclose(drawn[:, 0], alone[0].sample_y(NEW, 2000, random_state=3), rtol=1e-10, atol=1e-12)
    for of_row in drawn:
        assert np.abs(np.corrcoef(of_row) - np.eye(3)).max() < 0.1


def test_tables_and_distributions(svr, alone):
    for name in ("predict_table", "predict_uncertainty"):
        found = getattr(svr, name)(NEW)
        for target, one in zip(TABLE, alone, strict=True):
            pd.testing.assert_frame_equal(found[target], getattr(one, name)(NEW))
    found = svr.predict_distribution(NEW)
    assert isinstance(found, list)
    np.testing.assert_allclose(found[2].sf(0.5), alone[2].predict_distribution(NEW).sf(0.5))


def test_attributes_are_those_of_each_estimator(svr, alone):
    assert svr.target_names_ == ["height", "mass", "time"]
    numbers = "C_", "epsilon_", "noise_variance_", "log_evidence_", "intercept_", "n_support_", "lengthscale_"
    for one, own, seen in zip(svr.estimators_, alone, SEEN.T, strict=True):
        for name in numbers:
            np.testing.assert_allclose(getattr(one, name), getattr(own, name), rtol=1e-10)
        assert one.kernel_ == "rbf" and one.converged_ == own.converged_
        assert one.dual_coef_.shape == (N,) and (one.dual_coef_[~seen] == 0.0).all()
        np.testing.assert_allclose(one.dual_coef_[seen], own.dual_coef_, atol=1e-10)
        np.testing.assert_array_equal(one.support_, np.flatnonzero(seen)[own.support_])
        np.testing.assert_array_equal(one.support_vectors_, own.support_vectors_)
    for name in (*numbers, "converged_", "dual_coef_", "support_", "support_vectors_", "warping_"):
        assert not hasattr(svr, name)
    with pytest.raises(AttributeError, match="machine is of one target, got 3: take one of estimators_"):
        svr.support_vectors_  # noqa: B018
    with pytest.raises(AttributeError, match="estimators_ are of several targets"):
        alone[0].estimators_  # noqa: B018
    named = bp.BayesianSVR(**OPTIONS).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    assert named.target_names_ == ["y0", "y1", "y2"]
    assert named.estimators_[0].relevance_.index.tolist() == ["a", "b"]
    assert named.predict(pd.DataFrame(NEW, columns=["a", "b"])).shape == (7, 3)


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing(svr):
    for many in (bp.LocalBlocks(n_jobs=2), "auto"):
        with joblib.parallel_config(n_jobs=2):
            other = bp.BayesianSVR(**OPTIONS, blocks=many).fit(X, Y)
        np.testing.assert_array_equal(other.predict(NEW), svr.predict(NEW))


@pytest.mark.slow
def test_the_score_is_the_mean_over_targets(svr, alone):
    assert np.isclose(
        svr.score(X, Y), np.mean([a.score(X[s], y[s]) for a, s, y in zip(alone, SEEN.T, Y.T, strict=True)])
    )
    whole = SEEN.all(axis=1)
    weight = np.arange(N) + 1.0
    expected = r2_score(Y[whole], svr.predict(X[whole]), sample_weight=weight[whole])
    assert np.isclose(svr.score(X[whole], TABLE[whole], weight[whole]), expected)
    assert cross_val_score(bp.BayesianSVR(**OPTIONS), X, Y, cv=3).min() > 0.8


@pytest.mark.slow
def test_options():
    weight = np.where(np.arange(N) < 20, 0.0, 2.0)
    weighted = bp.BayesianSVR(**OPTIONS).fit(X, Y, sample_weight=weight)
    one = bp.BayesianSVR(**OPTIONS).fit(X[20:], Y[20:, 1], sample_weight=weight[20:])
    np.testing.assert_allclose(weighted.predict(NEW)[:, 1], one.predict(NEW), rtol=1e-10)
    logs = bp.BayesianSVR(**OPTIONS, log_targets=True).fit(X, np.exp(Y))
    np.testing.assert_allclose(np.log(logs.predict(NEW)), bp.BayesianSVR(**OPTIONS).fit(X, Y).predict(NEW), rtol=1e-6)
    K, new = (np.exp(-0.5 * ((A[:, None] - X) ** 2).sum(axis=2)) for A in (X, NEW))
    matrix, seen = OPTIONS | {"kernel": "precomputed"}, SEEN[:, 0]
    of_matrix = bp.BayesianSVR(**matrix).fit(K, Y).predict(new)[:, 0]
    one = bp.BayesianSVR(**matrix).fit(K, np.where(seen, Y[:, 0], Y[0, 0]), sample_weight=seen)
    np.testing.assert_allclose(of_matrix, one.predict(new), rtol=1e-10)
    one = bp.BayesianSVR(**matrix).fit(K[np.ix_(seen, seen)], Y[seen, 0])
    np.testing.assert_allclose(of_matrix, one.predict(new[:, seen]), atol=0.003)  # where a flat search ends


def test_two_columns_that_may_be_ends_are_named():
    ends = np.stack([Y[20:, 2], Y[20:, 2] + 1.0], axis=1)
    with pytest.warns(UserWarning, match="second nowhere below the first.* intervals=True takes them as"):
        svr = bp.BayesianSVR(**OPTIONS).fit(X[20:], ends)
    assert svr.predict(NEW).shape == (7, 2)


@pytest.mark.slow
def test_warnings_name_the_target_and_the_line_of_the_caller():
    """Also of targets that are fitted in threads."""
    wrong = TABLE.assign(**{"mass": TABLE["mass"].where(TABLE.index != 40, 50.0)})
    for shared in (False, True):
        with pytest.warns(UserWarning, match="target 'mass': gross errors among 60 .* rows 40 ") as caught:
            bp.BayesianSVR(**OPTIONS, shared=shared, blocks=bp.LocalBlocks("auto", n_jobs=2)).fit(X, wrong)
        assert [each.filename for each in caught] == [__file__]

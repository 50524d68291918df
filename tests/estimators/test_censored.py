"""Targets of estimators that are intervals: forms of y, censoring that is not ignored, survival functions, scores."""

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators.validation import IntervalTargets, SeveralTargets, concordance, targets_of
from bsvr_pp.inference.prediction.distribution import LOGARITHM
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from bsvr_pp.model.row_kinds import representative

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (40, 1))
F = np.sin(X[:, 0])
LATENT = F + 0.1 * RNG.laplace(size=40)
LIMIT = 0.4
ENDS = np.stack([np.minimum(LATENT, LIMIT), np.where(LATENT < LIMIT, LATENT, np.inf)], axis=1)
OPTIONS = {"kernel": "rbf", "restarts": 1, "random_state": 0}


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(intervals=True, **OPTIONS).fit(X, ENDS)


def test_forms_of_targets():
    for exact in ([1.0, 2.0], np.ones((3, 1))):
        assert not isinstance(targets_of(exact, allowed=True), IntervalTargets)
    for ends in (np.ones((3, 2)), np.ones((3, 2), object), pd.DataFrame(np.ones((3, 2))).convert_dtypes()):
        np.testing.assert_array_equal(targets_of(ends, allowed=True).ends, np.ones((3, 2)), strict=True)
    assert isinstance(targets_of(np.ones((3, 2)), allowed=False), SeveralTargets)
    survival = np.array([(True, 1.0), (False, 2.0)], dtype=[("event", bool), ("time", float)])
    np.testing.assert_array_equal(targets_of(survival, allowed=False).ends, [[1.0, 1.0], [2.0, np.inf]])
    given = IntervalTargets.of(np.array([[0.0, 2.0], [2.0, np.inf]]))
    logs = given.rows(np.zeros((2, 1)), given.y, np.ones(2)).on_scale(LOGARITHM)
    np.testing.assert_allclose(logs.ends, [[-np.inf, np.log(2.0)], [np.log(2.0), np.inf]])
    np.testing.assert_allclose(logs.y, [np.log(2.0)] * 2)
    wide = IntervalTargets.of(np.array([[-9.0, 2.0], [2.0, 2.0]]))  # its middle is no possible target
    np.testing.assert_allclose(
        wide.rows(np.zeros((2, 1)), wide.y, np.ones(2)).on_scale(LOGARITHM).ends[0, 1], np.log(2.0)
    )


def test_concordance_counts_known_pairs():
    ends = np.array([[1.0, 1.0], [2.0, np.inf], [3.0, 3.0], [3.0, np.inf]])
    # Known: 0 before 1, 2 and 3; 2 before 3, which was still without event at 3.
    assert concordance(ends, [0.0, 1.0, 2.0, 3.0]) == 1.0
    assert concordance(ends, [3.0, 2.0, 1.0, 0.0]) == 0.0
    assert concordance(ends, [0.0, 0.0, 2.0, 2.0]) == (0.5 + 1 + 1 + 0.5) / 4
    with pytest.raises(ValueError, match="y must have targets whose order is known, got none among 2"):
        concordance([[1.0, np.inf], [2.0, np.inf]], [1.0, 2.0])


def test_survival_function_agrees_with_quantiles_and_decreases(svr):
    new = [[0.0], [1.5]]
    quantiles = svr.predict_quantiles(new, [0.2, 0.5, 0.9])
    for row, levels in zip(range(2), quantiles, strict=True):
        np.testing.assert_allclose(svr.predict_survival_function(new, levels)[row], [0.8, 0.5, 0.1], atol=1e-7)
    assert svr.score(X, ENDS) > 0.9


def test_all_times_take_one_computation_of_f(svr, monkeypatch):
    calls, found = [], NoiseScales.at  # which each component is asked for with its moments of f
    monkeypatch.setattr(NoiseScales, "at", lambda *given: calls.append(1) or found(*given))
    new, times = [[-1.0], [0.5], [1.5]], [-0.5, 0.3, 1.2]
    table = svr.predict_table(new, times=times)
    members = len(calls)
    np.testing.assert_array_equal(table.iloc[:, 4:], svr.predict_survival_function(new, times))
    assert len(calls) == 2 * members and list(table.columns[4:]) == ["P(> -0.5)", "P(> 0.3)", "P(> 1.2)"]
    pd.testing.assert_frame_equal(table.iloc[:, :4], svr.predict_table(new))
    np.testing.assert_array_equal(svr.predict_survival_function(new, [0.3])[:, 0], table["P(> 0.3)"])


@pytest.mark.slow
def test_a_far_end_says_nothing_and_gross_errors_are_set_aside(svr):
    """Before, ends at 1e6 decided the unit of the targets, and one error made all noise wide."""
    ends = np.where(np.isinf(ENDS), 1e6, ENDS)
    np.testing.assert_allclose(bp.BayesianSVR(intervals=True, **OPTIONS).fit(X, ends).predict(X), svr.predict(X))
    given = representative([0.0, -1e6, 0.2, 0.0, 1.0, 2.0], [0.0, 0.1, 1e6, 2.0, 1.0, 2.0])
    np.testing.assert_allclose(given, [0.0, 0.1, 0.2, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(representative([0.0, 0.1], [1e6, 1e6]), [5e5, 5e5 + 0.05])  # all are as wide
    ends = ENDS.copy()
    ends[np.flatnonzero(LATENT < LIMIT)[3]] = -1e4
    with pytest.warns(UserWarning, match="are set aside"):
        wrong = bp.BayesianSVR(intervals=True, **OPTIONS).fit(X, ends)
    assert wrong.outliers_.tolist() == [np.flatnonzero(LATENT < LIMIT)[3]]
    np.testing.assert_allclose(wrong.predict(X), svr.predict(X), atol=0.1)


@pytest.mark.slow
def test_equal_ends_are_ordinary_targets():
    options = OPTIONS | {"outliers": "keep"}
    plain = bp.BayesianSVR(**options).fit(X, LATENT)
    exact = bp.BayesianSVR(intervals=True, **options).fit(X, np.stack([LATENT, LATENT], axis=1))
    assert exact.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(exact.predict(X), plain.predict(X), atol=1e-3)
    assert exact.score(X, LATENT) == pytest.approx(plain.score(X, LATENT), abs=1e-3)


@pytest.mark.slow
def test_log_targets_and_files(svr):
    observed = np.isfinite(ENDS[:, 1])
    survival = np.array(list(zip(observed, np.exp(ENDS[:, 0]), strict=True)), dtype=[("event", bool), ("time", float)])
    times = bp.BayesianSVR(log_targets=True, **OPTIONS).fit(X, survival)
    np.testing.assert_allclose(times.predict(X), np.exp(svr.predict(X)), rtol=1e-6)
    np.testing.assert_allclose(
        times.predict_survival_function(X[:2], np.exp([0.1, 0.5])), svr.predict_survival_function(X[:2], [0.1, 0.5])
    )
    assert times.score(X, survival) == pytest.approx(svr.score(X, ENDS))
    assert (times.sample_y(X[:3], 5) > 0).all()
    again = bp.BayesianSVR.from_result(times.result_)
    np.testing.assert_allclose(again.predict(X), times.predict(X), rtol=1e-10)
    with pytest.raises(ValueError, match="return_std must be False with log_targets=True"):
        times.predict(X, return_std=True)
    with pytest.raises(ValueError, match="times must be positive"):
        times.predict_survival_function(X, [-1.0])
    with pytest.raises(ValueError, match="sample_weight is for exact targets"):
        times.score(X, survival, np.full(40, 2.0))

"""The estimator on many rows: blocks, their hyperparameters, and what it says about them."""

import json
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators import base
from bsvr_pp.estimators.training_data import as_given
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from tests.helpers import small_stages, wave


@pytest.fixture(scope="module")
def small():
    """Stages of hyperparameters with few rows."""
    with small_stages():
        yield


@pytest.fixture(scope="module")
def fitted(small):
    X, y = wave(300)
    return bp.BayesianSVR(kernel="rational_quadratic", blocks=60, random_state=0, outliers="keep").fit(X, y), X, y


@pytest.mark.slow
def test_attributes_are_in_the_order_of_the_rows(fitted):
    svr, X, _ = fitted
    assert svr.blocks_.n == len(X)
    assert svr.blocks_.sizes.max() <= 60
    assert svr.dual_coef_.shape == (300,)
    assert set(svr.support_) == set(np.flatnonzero(svr.dual_coef_))
    assert np.abs(svr.dual_coef_).max() <= svr.C_ * (1 + 1e-8)


@pytest.mark.slow_cases("blocks2-8", "auto-None")
@pytest.mark.parametrize(
    ("blocks", "neighbours"), [("auto", None), (150, None), (bp.LocalBlocks(150, neighbours=8), 8)]
)
def test_repeated_inputs_are_not_predicted_from_copies_of_one(small, monkeypatch, blocks, neighbours):
    monkeypatch.setattr(base, "_DENSE", 100)
    rng = np.random.default_rng(0)
    at = np.arange(10.0)
    x, between = np.repeat(at, 30), np.linspace(0.5, 8.5, 9)
    y = np.sin(x) + 0.2 * rng.normal(size=300)
    svr = bp.BayesianSVR(kernel="rbf", blocks=blocks, restarts=1, random_state=0, outliers="keep").fit(x[:, None], y)
    error = np.mean(np.abs(svr.predict_f(between[:, None])[0] - np.sin(between)))
    assert (svr.blocks_ is None) == (blocks == "auto") and svr.neighbours_ == neighbours
    assert error > 0.3 if neighbours else error < 0.05


@pytest.mark.slow
def test_what_happened_to_the_hyperparameters_is_in_the_result(fitted):
    svr, *_ = fitted
    record = json.loads(svr.result_.attrs["at_size"])
    assert set(record) == {"subset", "neighbourhoods", "kept", "converged", "message"}
    assert record["converged"] and svr.converged_
    better = max(("subset", "neighbourhoods"), key=lambda stage: record[stage]["log_density"])
    assert record["kept"] == better
    kept = record[better]["hyperparameters"]
    assert kept["C"] == pytest.approx(float(svr.result_["posterior"]["C"][0, 0]))
    assert record["subset"]["hyperparameters"] != record["neighbourhoods"]["hyperparameters"]
    assert json.loads(bp.BayesianSVR.from_result(svr.result_).result_.attrs["at_size"]) == record


@pytest.mark.slow
def test_threads_do_not_change_a_bit(fitted):
    svr, X, y = fitted
    two = bp.BayesianSVR(**svr.get_params() | {"blocks": bp.LocalBlocks(60, n_jobs=2)}).fit(X, y)
    assert two.log_evidence_ == svr.log_evidence_
    np.testing.assert_array_equal(two.dual_coef_, svr.dual_coef_)
    np.testing.assert_array_equal(two.predict(X[:50]), svr.predict(X[:50]))


@pytest.mark.slow
@pytest.mark.parametrize("noise_scales", [False, True])
def test_joint_draws_have_the_distribution_of_each_prediction(fitted, noise_scales):
    svr = bp.BayesianSVR.from_result(fitted[0].result_).set_params(noise_scales=noise_scales)
    scales = NoiseScales(np.array([0.25, 4.0]), np.array([0.7, 0.3]), 0.0)
    svr._fit = replace(svr._fit, found=replace(svr._fit.fitted, scales=scales))
    new = np.array([[3.0], [3.05], [9.0]])
    drawn, expected = svr.sample_y(new, 20_000, random_state=1), svr.predict_distribution(new)
    levels = np.array([[0.05], [0.25], [0.5], [0.75], [0.95]])
    np.testing.assert_allclose((expected.ppf(levels)[:, None] >= drawn.T).mean(axis=1), levels * np.ones(3), atol=0.015)
    if not noise_scales:
        one = svr.predict_distribution(new[:1])
        inputs = svr._standardised(new)
        (part,) = one.joint.args[0]()
        f = part.deviations(inputs, 4000, np.random.default_rng(0))
        assert np.corrcoef(f[:, 0], f[:, 1])[0, 1] > 0.9 > 0.1 > abs(np.corrcoef(f[:, 0], f[:, 2])[0, 1])


@pytest.mark.slow
def test_blocks_are_announced_only_if_nobody_asked_for_them(small, monkeypatch):
    monkeypatch.setattr("bsvr_pp.estimators.base._DENSE", 100)
    monkeypatch.setattr("bsvr_pp.estimators.base._ROWS", 60)
    X, y = wave(150)
    options = {"kernel": "rbf", "random_state": 0, "restarts": 1, "outliers": "keep"}
    with pytest.warns(UserWarning, match="150 rows are fitted in local blocks"):
        svr = bp.BayesianSVR(**options).fit(X, y)
    assert len(svr.blocks_) > 1
    with warnings.catch_warnings(action="error"):
        assert bp.BayesianSVR(**options).fit(X[:90], y[:90]).blocks_ is None


@pytest.mark.parametrize("n", [7, 30])
def test_few_rows_in_blocks(n):
    X, y = wave(n)
    svr = bp.BayesianSVR(blocks=5, random_state=0, restarts=1, outliers="keep").fit(X, y)
    assert svr.blocks_.sizes.max() <= 5
    assert np.isfinite(svr.predict(X)).all()


def test_the_number_of_threads_is_that_of_the_estimator_or_of_its_surroundings():
    with joblib.parallel_config(n_jobs=2):
        with bp.LocalBlocks().threads():
            assert joblib.effective_n_jobs(None) == 2
        with bp.LocalBlocks(n_jobs=1).threads():
            assert joblib.effective_n_jobs(None) == 1


def test_blocks_are_of_more_rows_than_one_holds():
    assert [bp.LocalBlocks().divides(n) for n in (2000, 2001)] == [False, True]
    assert [bp.LocalBlocks(500).divides(n) for n in (300, 500, 900)] == [False, False, True]
    assert not bp.LocalBlocks(None).divides(1_000_000)
    assert (bp.LocalBlocks().rows, bp.LocalBlocks(500).rows) == (1000, 500)


@pytest.mark.slow
def test_scales_of_the_noise_are_not_learned_where_the_own_block_predicts(small, monkeypatch):
    def learned(*given, **options):
        raise AssertionError

    monkeypatch.setattr("bsvr_pp.estimators.regression_fit.choose_neighbours", learned)
    X, y = wave(150)
    blocks = bp.LocalBlocks(60, neighbours=None)
    svr = bp.BayesianSVR(blocks=blocks, restarts=1, random_state=0, outliers="keep").fit(X, y)
    assert not svr.noise_scales_.several


@pytest.mark.slow
def test_the_number_of_nearest_rows_is_chosen_and_kept(small, monkeypatch, tmp_path):
    monkeypatch.setattr("bsvr_pp.estimators.base._NEAREST", (3, 12))
    X, y = wave(150)
    options = {"restarts": 1, "random_state": 0, "outliers": "keep"}
    svr = bp.BayesianSVR(blocks=60, **options).fit(X, y)
    one_noise = bp.BayesianSVR(blocks=60, noise_scales=False, **options).fit(X, y)
    given, dense = (bp.BayesianSVR(blocks=bp.LocalBlocks(size, 12), **options).fit(X, y) for size in (60, None))
    assert [each.neighbours_ for each in (svr, one_noise, given, dense)] == [12, 12, 12, None]
    assert not one_noise.noise_scales_.several
    np.testing.assert_allclose(svr.predict_f(X[:9]), given.predict_f(X[:9]))
    svr.save(tmp_path / "svr.nc")
    loaded = bp.BayesianSVR.load(tmp_path / "svr.nc")
    np.testing.assert_array_equal(loaded.predict_interval(X[:9]), svr.predict_interval(X[:9]))
    loaded.set_params(blocks=bp.LocalBlocks(60, neighbours=3))
    assert not np.allclose(loaded.predict_f(X[:9]), svr.predict_f(X[:9]))


@pytest.mark.slow
def test_weights_that_leave_rows_out_and_repeat_none_are_no_weights_of_blocks(small):
    """Before, weights 0 and 1 were refused where equal rows stand twice."""
    X, y = wave(150)
    X, y = np.vstack([X, X[:20]]), np.append(y, y[:20])
    weight = np.ones(170)
    weight[3] = 0.0
    options = {"blocks": bp.LocalBlocks(60, neighbours=None), "restarts": 1, "random_state": 0, "outliers": "keep"}
    weighted = bp.BayesianSVR(**options).fit(X, y, weight)
    without = bp.BayesianSVR(**options).fit(np.delete(X, 3, axis=0), np.delete(y, 3))
    assert weighted.blocks_.n == 150 and weighted.log_evidence_ == without.log_evidence_


def test_a_weight_in_blocks_is_a_number_of_equal_rows(small):
    """At the same hyperparameters and in the same blocks: truth are repeated rows."""
    X, y = wave(60)
    weight = np.random.default_rng(1).integers(1, 4, 60)
    weighted = bp.BayesianSVR(blocks=30, restarts=1, random_state=0, kernel="rbf").fit(X, y, weight.astype(float))
    fit = weighted._fit
    times = fit.rows.weight.astype(int)
    label, X, y = (np.repeat(each, times, axis=0) for each in (fit.blocks.label, fit.rows.X, fit.rows.y))
    once = as_given(X, y)
    problem = fit.model.problem(once, replace(fit.blocks, label=label))
    posterior = solve_at(problem, bp.MeanField(), fit.point)
    assert posterior.log_evidence == pytest.approx(fit.fitted.log_evidence, abs=0.02 * 60)
    means = posterior.mean[np.append(0, np.cumsum(times))[:-1]]
    np.testing.assert_allclose(fit.fitted.posteriors[0].mean, means, atol=0.05)


@pytest.mark.slow
def test_rows_with_weights_are_added_to_blocks(small):
    X, y = wave(120)
    svr = bp.BayesianSVR(blocks=60, restarts=1, random_state=0).fit(X, y)
    before = svr.predict_f(X[:2])[1]
    svr.add(X[:2], y[:2], [1.0, 5.0])
    assert svr.blocks_.n == 122
    assert sorted(svr._fit.rows.weight[-2:]) == [1.0, 5.0]
    assert (svr.predict_f(X[:2])[1] < before).all()

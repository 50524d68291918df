"""Rows that are added: the solve with all rows, merged rows, weights, intervals, blocks and saving."""

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.approximate import solve_at

N, NEW = 40, 5


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N + NEW, 2))
    return X, 5.0 + np.sin(X[:, 0]) + 0.2 * rng.laplace(size=N + NEW)


def svr(**options):
    return bp.BayesianSVR(**{"kernel": "rbf", "restarts": 1, "random_state": 0, "outliers": "keep"} | options)


def assert_solved(machine):
    """The state is that of a new solve with all rows, at each point of the hyperparameters."""
    fitted, latent = machine._fit.fitted, machine._fit.method.latent
    for found, point in zip(fitted.posteriors, fitted.points, strict=True):
        expected = solve_at(machine._fit.problem, latent, point)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-5)
        assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-6)
    assert machine.converged_ and fitted.weights.sum() == pytest.approx(1.0)


@pytest.mark.slow_cases(
    "{'kernel': 'main_effects'}",
    "{'noise': 'gaussian'}",
    "{'blocks': 15}",
    "{'log_targets': True}",
    "{'inference': 'laplace', 'noise': 'huber'}",
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"inference": "laplace", "noise": "huber"},
        {"noise": "gaussian"},
        {"kernel": "main_effects"},
        {"log_targets": True},
        {"blocks": 15},
        {"inference": "mean_field"},
    ],
    ids=str,
)
def test_it_is_the_solve_with_all_rows(options):
    X, y = data()
    machine = svr(**options).fit(X[:N], y[:N])
    learned = machine.location_, machine.unit_, machine.C_
    assert machine.add(X[N:-1], y[N:-1]).add(X[-1:], y[-1:]) is machine
    assert (machine.location_, machine.unit_, machine.C_) == learned
    assert machine.dual_coef_.size == N + NEW
    assert_solved(machine)


@pytest.mark.slow
def test_points_of_the_hyperparameters_get_the_weights_of_all_rows():
    X, y = data()
    machine = svr().fit(X[:N], y[:N])
    fitted = machine._fit.fitted
    before, evidences = fitted.weights, np.array([each.log_evidence for each in fitted.posteriors])
    at_once, one_by_one = pickle_of(machine).add(X[N:], y[N:]), pickle_of(machine)
    for i in range(N, N + NEW):
        one_by_one.add(X[i : i + 1], y[i : i + 1])
    after = at_once._fit.fitted
    rise = np.array([each.log_evidence for each in after.posteriors]) - evidences
    expected = before * np.exp(rise - rise.max())
    np.testing.assert_allclose(after.weights, expected / expected.sum(), rtol=1e-6)
    assert np.ptp(after.weights[1:]) > 0.01 and after.weights[0] == 0.0
    np.testing.assert_allclose(one_by_one._fit.fitted.weights, after.weights, rtol=1e-4)
    assert at_once.result_["members"].sizes["member"] == before.size


def test_rows_in_blocks_join_the_region_that_holds_them():
    X, y = data()
    machine = svr(blocks=15).fit(X[:N], y[:N])
    blocks, before = machine.blocks_, machine._fit.fitted.posteriors[0].mean
    machine.add(X[-1:], y[-1:])
    own = blocks.assign((X[-1:] - machine.mean_) / machine.scale_)[0]
    assert machine.blocks_.label.tolist() == [*blocks.label, own]
    after, others = machine._fit.fitted.posteriors[0].mean, blocks.label != own
    np.testing.assert_array_equal(after[:N][others], before[others])
    assert (after[:N][~others] != before[~others]).all()


@pytest.mark.slow
def test_repeated_rows_and_weights_are_one_thing():
    X, y = data()
    machine = svr(inference="mean_field").fit(X[:N], y[:N])
    once, twice = (pickle_of(machine) for _ in range(2))
    once.add(X[[0, -1]], y[[0, -1]], [2.0, 3.0])
    twice.add(X[[0, 0, -1, -1, -1]], y[[0, 0, -1, -1, -1]])
    assert len(once._fit.rows.y) == len(twice._fit.rows.y) == N + 1
    assert sorted(once._fit.rows.weight) == sorted(twice._fit.rows.weight) == [1.0] * (N - 1) + [3.0, 3.0]
    np.testing.assert_allclose(once.predict(X), twice.predict(X), atol=1e-6)
    assert once.dual_coef_.sum() == pytest.approx(twice.dual_coef_.sum())
    assert_solved(once)
    weightless = pickle_of(machine).add(X[-2:], y[-2:], [0.0, 1.0])
    np.testing.assert_allclose(weightless.predict(X), pickle_of(machine).add(X[-1:], y[-1:]).predict(X), atol=1e-6)


def pickle_of(machine):
    return bp.BayesianSVR.from_result(machine.result_)


@pytest.mark.slow
def test_intervals_take_intervals():
    X, y = data()
    ends = np.stack([y, np.where(np.arange(y.size) % 3 == 0, np.inf, y)], axis=1)
    machine = svr(intervals=True).fit(X[:N], ends[:N]).add(X[N:-1], ends[N:-1]).add(X[-1:], ends[-1:])
    assert_solved(machine)
    with pytest.raises(ValueError, match="y must be intervals, as for fit, got exact targets"):
        machine.add(X[-1:], y[-1:])


def test_a_saved_estimator_goes_on():
    X, y = data()
    machine = svr().fit(X[:N], y[:N]).add(X[N:-1], y[N:-1])
    again = pickle_of(machine)
    for each in (machine, again):
        each.add(X[-1:], y[-1:])
    np.testing.assert_allclose(again.predict(X), machine.predict(X), atol=1e-6)

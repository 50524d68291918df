"""Probabilities of classes from models of each against the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.metrics import log_loss

import bsvr_pp as bp
from bsvr_pp.estimators import svc
from bsvr_pp.estimators.svc import Coupling, join_pairs

PROBABILITY = st.floats(0.0, 1.0)
COUPLING = st.builds(Coupling, PROBABILITY, st.floats(0.0, 0.5))


def drawn(P, rng):
    return (P.cumsum(axis=1) < rng.random(len(P))[:, None]).sum(axis=1)


def of_labels(P, y):
    return Coupling.of_left_out(P, y, np.ones(len(y)))


@given(COUPLING, arrays(float, (5, 4), elements=PROBABILITY))
def test_joined_probabilities_sum_to_one_and_keep_the_order(coupling, P):
    joined = coupling.join(P)
    np.testing.assert_allclose(joined.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(coupling.join(P[:, ::-1])[:, ::-1], joined, rtol=1e-9)
    first, second = P[:, :1] >= P[:, 1:], joined[:, :1] >= joined[:, 1:] * (1 - 1e-9)
    assert (second | ~first).all()


def test_probabilities_of_a_partition_are_kept():
    """Models that are right about their class have probabilities that add up to 1."""
    rng = np.random.default_rng(1)
    P = rng.dirichlet([0.5, 1.0, 1.5], 20_000)
    found = of_labels(P, drawn(P, rng))
    assert found.power < 0.05
    assert found.rate < 0.01
    two = np.stack([P[:, 0], 1.0 - P[:, 0]], axis=1)
    assert of_labels(two, drawn(two, rng)).power < 0.05
    np.testing.assert_allclose(Coupling().join(P), P, atol=1e-14)


@pytest.mark.parametrize("rate", [0.0, 0.15])
def test_classes_of_which_exactly_one_is_true_have_odds(rate):
    """Truth: independent classes, of all draws those with one class; some labels are then random."""
    rng = np.random.default_rng(2)
    P = rng.random((60_000, 3))
    chosen = rng.random(P.shape) < P
    one = chosen.sum(axis=1) == 1
    P, y = P[one], chosen[one].argmax(axis=1)
    y = np.where(rng.random(len(y)) < rate, rng.integers(3, size=len(y)), y)
    found = of_labels(P, y)
    assert found.power > 0.93
    assert found.rate == pytest.approx(rate, abs=0.01)


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(3)
    P, weight = rng.dirichlet([1.0, 1.0, 1.0], 40) ** 1.3, rng.integers(1, 4, 40)
    y = drawn(P / P.sum(axis=1, keepdims=True), rng)
    np.testing.assert_allclose(
        Coupling.of_left_out(P, y, weight.astype(float)),
        of_labels(np.repeat(P, weight, axis=0), np.repeat(y, weight)),
        atol=2e-3,
    )


@pytest.mark.slow
def test_wine_is_told_apart_as_clearly_as_its_rows_left_out():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:107], order[107:]
    machine = bp.BayesianSVC(random_state=0).fit(X[train], y[train])
    found = log_loss(y[test], machine.predict_proba(X[test]))
    each = 1.0 / (1.0 + np.exp(-machine.decision_function(X[test])))
    assert found < 0.6 * log_loss(y[test], each / each.sum(axis=1, keepdims=True))
    assert found < 0.07
    assert (machine.predict(X[test]) == machine.classes_[each.argmax(axis=1)]).all()
    again = bp.BayesianSVC.from_result(machine.result_)
    np.testing.assert_array_equal(again.predict_proba(X[test]), machine.predict_proba(X[test]))


@given(arrays(float, (3, 4), elements=st.floats(0.01, 1.0)))
def test_pairs_of_probabilities_give_these(P):
    P = P / P.sum(axis=1, keepdims=True)
    R = P[:, :, None] / (P[:, :, None] + P[:, None, :])
    np.testing.assert_allclose(join_pairs(R), P, atol=1e-6)
    np.testing.assert_allclose(join_pairs(R[:, ::-1, ::-1])[:, ::-1], join_pairs(R), atol=1e-9)


def test_pairs_that_contradict_one_another_have_probabilities():
    certain = np.array([[[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 1, 1], [0, 0, 1], [0, 0, 0]]], dtype=float)
    np.testing.assert_allclose(join_pairs(certain), [[1 / 3, 1 / 3, 1 / 3], [1, 0, 0]], atol=1e-6)


def nested(n, seed):
    """Four classes by the distance from the origin of three inputs."""
    X = np.random.default_rng(seed).standard_normal((n, 3))
    return X, np.digitize(np.linalg.norm(X, axis=1), [1.0, 1.54, 2.03])


@pytest.mark.slow
def test_nested_classes_have_models_of_pairs():
    """The second and third class, between others, are found against each of them and not against all."""
    (X, y), (X_test, y_test) = nested(120, 0), nested(500, 1)
    machine = bp.BayesianSVC(random_state=0).fit(X, y)
    P, alone = machine.predict_proba(X_test), Coupling.of_left_out(*machine._fit.left_out[:3])
    assert len(machine._fit.pairs) == 6
    rest = 1.0 / (1.0 + np.exp(-machine._log_odds(X_test)))
    assert log_loss(y_test, P) < 0.8 * log_loss(y_test, alone.join(rest))
    other = bp.BayesianSVC(random_state=0).fit(X[::-1], 3 - y[::-1])
    np.testing.assert_allclose(other.predict_proba(X_test)[:, ::-1], P, atol=1e-3)


@pytest.mark.slow
def test_models_of_pairs_are_those_of_their_rows(monkeypatch):
    monkeypatch.setattr(svc, "_LOSS", 0.0)
    monkeypatch.setattr(svc, "_GAIN", -np.inf)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 1))
    y, X_new = np.digitize(X[:, 0] + 0.2 * rng.standard_normal(30), [-0.3, 0.4]), np.linspace(-1, 1, 7)[:, None]
    machine = bp.BayesianSVC(kernel="linear", C=1.0, random_state=0).fit(X, y)
    assert {"class_2", "pair_0_1", "pair_1_2"} < set(machine.result_.children)
    P = machine.predict_proba(X_new)
    inputs = machine._fit.units.inputs(np.array([[-0.9], [0.05], [0.9]]))
    for (i, j), pair in zip(machine._fit.of_two, machine._fit.pairs, strict=True):
        odds = pair.log_odds(inputs, "average", None)
        assert odds[i] < 0.0 < odds[j]
        assert pair.rows.weight.sum() == np.isin(y, (i, j)).sum()
    np.testing.assert_array_equal(machine.predict(X_new), P.argmax(axis=1))
    np.testing.assert_allclose(machine.decision_function(X_new), np.log(P / (1.0 - P)), atol=1e-8)
    again = bp.BayesianSVC.from_result(machine.result_)
    np.testing.assert_allclose(again.predict_proba(X_new), P, atol=1e-10)
    twice = bp.BayesianSVC(kernel="linear", C=1.0, random_state=0).fit(X, y, sample_weight=np.full(30, 2.0))
    repeated = bp.BayesianSVC(kernel="linear", C=1.0, random_state=0).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    np.testing.assert_allclose(twice.predict_proba(X_new), repeated.predict_proba(X_new), atol=1e-9)
    matrix = bp.BayesianSVC(kernel="precomputed", C=1.0, random_state=0).fit(X @ X.T, y)
    again, given = bp.BayesianSVC.from_result(matrix.result_), (X_new @ X.T, X_new[:, 0] ** 2)
    np.testing.assert_allclose(again.predict_proba(*given), matrix.predict_proba(*given), atol=1e-10)
    assert len(again._fit.pairs) == 3 and (matrix.predict(*given) == machine.predict(X_new)).all()
    machine.probability = "mean"
    odds = np.exp(machine.decision_function(X_new))
    np.testing.assert_allclose(machine.predict_proba(X_new), (odds / (1 + odds)) / (odds / (1 + odds)).sum(1)[:, None])


@pytest.mark.slow
def test_two_classes_that_a_line_separates():
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(np.flatnonzero((y == 1) | (y == 7)))
    X, y = X[chosen], y[chosen]
    machine = bp.BayesianSVC(random_state=0).fit(X[:200], y[:200])
    P = machine.predict_proba(X[200:])
    model = 1.0 / (1.0 + np.exp(-machine.decision_function(X[200:])))
    assert log_loss(y[200:], P) < 0.7 * log_loss(y[200:], model)
    assert ((P[:, 1] > 0.5) == (model > 0.5)).all()
    machine.probability = "mean"
    assert log_loss(y[200:], machine.predict_proba(X[200:])) == pytest.approx(
        log_loss(y[200:], 1.0 / (1.0 + np.exp(-machine.decision_function(X[200:]))))
    )


@pytest.mark.slow_cases("options0")
@pytest.mark.parametrize("options", [{"evidence": "naive", "steps": 2}, {"evidence": "conditional", "steps": 0}])
def test_labels_that_are_normalised_together_are_not_sharpened(options):
    X = np.linspace(-2, 2, 24)[:, None]
    machine = bp.BayesianSVC(random_state=0, **options).fit(X, X[:, 0] > 0.2)
    model = 1.0 / (1.0 + np.exp(-machine.decision_function(X)))
    np.testing.assert_allclose(machine.predict_proba(X)[:, 1], model, rtol=1e-9)


@pytest.mark.slow
def test_classes_that_start_from_others_find_their_optimum():
    X, y = make_blobs(90, centers=5, cluster_std=2.5, random_state=3)
    together = bp.BayesianSVC(random_state=0).fit(X, y)
    alone = [bp.BayesianSVC(random_state=0).fit(X, y == k).log_evidence_ for k in range(5)]
    each = [binary.fitted.log_evidence for binary in together._fit.binaries]
    np.testing.assert_allclose(each, alone, atol=1.0)
    assert together.converged_

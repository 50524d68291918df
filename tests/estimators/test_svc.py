"""The estimator: agreement of its parts, and the support vector machine inside."""

import time
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from sklearn.metrics import log_loss
from sklearn.svm import SVC

import bsvr_pp as bp
from bsvr_pp.approximations import find_mode
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.datasets import data_folder, load
from bsvr_pp.estimators.svc import BinaryFit
from bsvr_pp.losses import hinge
from tests.helpers import small_stages


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [1.0, 30.0] + [5.0, 0.0]
    y = np.where((X[:, 0] - 5) + 0.4 * rng.standard_normal(n) > 0, "b", "a")
    return X, y


@pytest.mark.slow_cases("map-conditional", "average-pointwise")
@pytest.mark.parametrize(("probability", "evidence"), [("average", "pointwise"), ("map", "conditional")])
def test_labels_are_the_most_probable_ones(probability, evidence):
    X, y = data()
    machine = bp.BayesianSVC(probability=probability, evidence=evidence, random_state=1).fit(X, y)
    P = machine.predict_proba(X)
    assert machine.classes_.tolist() == ["a", "b"] and np.allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(machine.predict_log_proba(X), np.log(P))
    assert (machine.predict(X) == machine.classes_[P.argmax(axis=1)]).all()
    assert machine.score(X, y) > 0.8


def test_three_classes_one_against_the_rest():
    rng = np.random.default_rng(2)
    index = np.repeat([0, 1, 2], 20)
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])[index] + 0.6 * rng.standard_normal((60, 2))
    machine = bp.BayesianSVC(random_state=1).fit(X, np.array([7, 3, 5])[index])
    assert machine.classes_.tolist() == [3, 5, 7] and len(machine._fit.binaries) == 3
    assert machine.lengthscale_.shape == (3, 2) and machine.C_.shape == (3,)
    assert machine.score(X, np.array([7, 3, 5])[index]) > 0.95
    assert np.allclose(machine.predict_proba(X).sum(axis=1), 1)
    odds = machine.decision_function(X)
    assert odds.shape == (60, 3) and machine.intercept_.shape == (3,)
    assert (machine.classes_[odds.argmax(axis=1)] == machine.predict(X)).all()


@pytest.mark.slow_cases("conditional")
@pytest.mark.parametrize("evidence", ["conditional", "pointwise"])
def test_an_input_that_does_not_matter_gets_a_long_scale(evidence):
    X, y = data(80)
    machine = bp.BayesianSVC(evidence=evidence, random_state=2).fit(X, y)
    assert machine.relevance_[0] > 1.5 * machine.relevance_[1]
    assert machine.lengthscale_[1] > 30 * machine.lengthscale_[0]  # on the scale of the inputs as given
    assert np.isfinite(machine.log_evidence_) and (machine.log_evidence_error_ > 0) == (evidence == "conditional")
    assert machine.log_evidence_error_ < 0.2
    assert machine.log_evidence_ > 80 * np.log(0.5)
    again = bp.BayesianSVC(evidence=evidence, random_state=2).fit(X, y)
    assert (again.predict_proba(X) == machine.predict_proba(X)).all()


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "pima_train.csv").is_file(), reason="needs the papers' data")
def test_pima():
    train, test = load("pima_train"), load("pima_test")
    machine = bp.BayesianSVC(random_state=0).fit(train.X, train.y)
    assert log_loss(test.y, machine.predict_proba(test.X)) < 0.455
    assert machine.score(test.X, test.y) > 0.76


def periodic(Z):
    return pm.gp.cov.Periodic(Z.shape[1], period=4.0, ls=pm.LogNormal("lengthscale", 0.0, 0.5))


@pytest.mark.slow_cases("linear")
@pytest.mark.parametrize("kernel", ["linear", pytest.param("matern32", marks=pytest.mark.slow), periodic])
def test_kernels(kernel):
    X, y = data()
    machine = bp.BayesianSVC(kernel=kernel, random_state=1).fit(X, y)
    assert machine.score(X, y) > 0.8
    np.testing.assert_allclose(machine.support_vectors_, X[machine.support_])
    assert hasattr(machine, "amplitude_") == (kernel not in ("linear", periodic))
    assert hasattr(machine, "lengthscale_") == (kernel is not periodic)
    if kernel == "linear":  # the log odds are monotonic along a line
        along = machine.decision_function(np.linspace(X.min(axis=0), X.max(axis=0), 50))
        assert (np.diff(along) > 0).all() or (np.diff(along) < 0).all()


@pytest.mark.slow
def test_the_decision_function_is_that_of_the_machine_inside():
    """With probability "map" the log odds are 2·C·f where |f| <= 1, and C·(f ± 1) beyond."""
    X, y = data()
    machine = bp.BayesianSVC(evidence="conditional", probability="map", steps=0, random_state=1).fit(X, y)
    U, V = X / machine.lengthscale_, machine.support_vectors_ / machine.lengthscale_
    centre = machine.mean_ / machine.lengthscale_
    squares = ((U[:, None] - V) ** 2).sum(axis=2)
    K = machine.amplitude_ * np.exp(-0.5 * squares) + machine.linear_ * (U - centre) @ (V - centre).T
    f = machine.intercept_ + K @ machine.dual_coef_[machine.support_]
    odds = machine.C_ * (f + np.clip(f, -1.0, 1.0))
    np.testing.assert_allclose(machine.decision_function(X), odds, atol=1e-4)
    assert ((machine.decision_function(X) > 0) == (machine.predict(X) == "b")).all()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_a_saved_classifier_is_the_same(tmp_path, classes):
    X, y = data(30)
    labels = np.where(X[:, 1] > 20, "c", y) if classes == 3 else y
    weight = np.where(np.arange(30) < 5, 2.0, 1.0)
    machine = bp.BayesianSVC(random_state=1).fit(X, labels, weight)
    machine.save(tmp_path / "svc.nc")
    again = bp.BayesianSVC.load(tmp_path / "svc.nc")
    np.testing.assert_allclose(again.predict_proba(X), machine.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(again.dual_coef_, machine.dual_coef_, atol=1e-9)
    assert (again.predict(X) == machine.predict(X)).all()
    assert np.array_equal(again.support_, machine.support_)
    np.testing.assert_equal(again.log_evidence_, machine.log_evidence_)


@pytest.mark.slow
def test_its_machine_is_that_of_scikit_learn_with_the_same_kernel():
    """With a flat offset: both leave it unpenalised."""
    X, y = data(50)
    machine = bp.BayesianSVC(kernel="rbf", random_state=0).fit(X, y)
    labels = np.where(y == machine.classes_[1], 1.0, -1.0)
    U = (X - machine.mean_) / machine.lengthscale_
    squares = ((U[:, None] - U) ** 2).sum(axis=2)
    K = machine.amplitude_ * np.exp(-0.5 * squares) + machine.linear_ * U @ U.T + 1e-5 * np.eye(50)
    np.testing.assert_allclose((K + machine.offset_) @ machine.dual_coef_, find_f(machine, X), atol=1e-3)
    mode = find_mode(K + 1e6, labels, hinge(machine.C_))
    svc = SVC(C=machine.C_, kernel="precomputed", tol=1e-10).fit(K, labels)
    np.testing.assert_allclose(mode.f, svc.decision_function(K), atol=1e-4)
    dual, theirs = mode.dual_coef, np.zeros(50)
    theirs[svc.support_] = svc.dual_coef_[0]
    objective = [labels @ a - 0.5 * a @ K @ a for a in (dual, theirs)]
    assert objective[0] == pytest.approx(objective[1], rel=1e-4)


def find_f(machine, X):
    """The machine inside by its own attributes, from the log odds at its mode."""
    odds = machine.set_params(probability="map").decision_function(X) / machine.C_
    return np.where(np.abs(odds) <= 2, odds / 2, odds - np.sign(odds))


@pytest.mark.slow
def test_the_penalty_may_be_fixed():
    X, y = data()
    free = bp.BayesianSVC(random_state=0).fit(X, y)
    for evidence, C in (("pointwise", 3.0), ("conditional", 0.5)):
        fixed = bp.BayesianSVC(C=C, evidence=evidence, random_state=0).fit(X, y)
        assert fixed.C_ == C and fixed.n_support_.shape == (2,) and fixed.n_support_.sum() == fixed.support_.size
        assert (np.abs(fixed.dual_coef_) <= C * (1 + 1e-9)).all()
        again = bp.BayesianSVC.from_result(fixed.result_)
        np.testing.assert_allclose(again.predict_proba(X), fixed.predict_proba(X), rtol=1e-9)
    at_optimum = bp.BayesianSVC(C=free.C_, random_state=0).fit(X, y)
    np.testing.assert_allclose(at_optimum.predict_proba(X), free.predict_proba(X), atol=0.02)


@pytest.mark.slow
def test_many_rows_are_fitted_in_blocks():
    X, y = data(300)
    with small_stages(_SUBSET=80, _LIMIT=4):
        machine = bp.BayesianSVC(blocks=100, random_state=0).fit(X, y)
    dense = bp.BayesianSVC(random_state=0).fit(X[:150], y[:150])
    new, labels = data(400, seed=1)
    assert len(machine.blocks_) >= 3 and dense.blocks_ is None
    expected = dense.predict_proba(new[:20])
    dense.set_params(blocks=bp.LocalBlocks(neighbours=5))  # which are of fits in blocks
    np.testing.assert_array_equal(dense.predict_proba(new[:20]), expected)
    assert log_loss(labels, machine.predict_proba(new)) < 1.15 * log_loss(labels, dense.predict_proba(new))
    assert (machine.predict(new) == machine.classes_[machine.predict_proba(new).argmax(axis=1)]).all()
    assert machine.dual_coef_.shape == (300,) and machine.n_support_.sum() == machine.support_.size


@pytest.mark.slow
def test_classes_in_threads_are_those_of_one():
    """From the fourth on, which start at the median of the first three."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 10)
    X = rng.normal(size=(60, 2)) + 3.0 * np.stack([np.cos(y), np.sin(y)], axis=1)
    found = [bp.BayesianSVC(blocks=bp.LocalBlocks(n_jobs=n), random_state=0).fit(X, y).predict_proba(X) for n in (1, 2)]
    np.testing.assert_array_equal(*found)
    assert (found[0].argmax(axis=1) == y).mean() > 0.8


@pytest.mark.slow
def test_names_of_classes_the_order_of_rows_and_signs_do_not_matter():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(75, 2)), rng.normal(size=(20, 2))
    f = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * rng.normal(size=75)
    y = np.argsort(np.argsort(f)) // 15  # five classes of the same size
    expected = bp.BayesianSVC(random_state=0).fit(X, y).predict_proba(new)
    rows = rng.permutation(75)
    same, other = np.arange(5), np.array([3, 0, 4, 1, 2])
    for names, at, sign in ((other, np.arange(75), 1.0), (same, rows, 1.0), (same, rows, [-1.0, 1.0])):
        found = bp.BayesianSVC(random_state=0).fit(sign * X[at], names[y[at]]).predict_proba(sign * new)[:, names]
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_labels_of_all_rows_together_have_no_blocks():
    X, y = data(60)
    with pytest.raises(ValueError, match="blocks is for evidence='pointwise', got 20 with 'conditional'"):
        bp.BayesianSVC(blocks=20, evidence="conditional").fit(X, y)
    with pytest.warns(bp.ConvergenceWarning, match="still moving after 2 steps"):
        svc = bp.BayesianSVC(evidence="conditional", steps=2).fit(X, y)
    assert svc.blocks_ is None
    svc.blocks = 20  # which may change after the fit
    assert bp.BayesianSVC.from_result(svc.result_).blocks == 20


@pytest.mark.slow
def test_far_from_the_data_the_probability_returns_to_one_half():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    machine = bp.BayesianSVC(kernel=lambda Z: 4.0 * pm.gp.cov.ExpQuad(1, ls=0.5), random_state=0)
    far = machine.fit(X, X[:, 0] > 0).predict_proba([[30.0], [-30.0]])
    assert far[0, 1] == pytest.approx(far[1, 1], abs=1e-6) and abs(far[0, 1] - 0.5) < 0.1


@pytest.mark.slow_cases("False-0.0")
@pytest.mark.parametrize(("converged", "evidence"), [(False, 0.0), (True, -100.0)])
def test_a_search_that_learned_nothing_is_repeated_from_more_starts(monkeypatch, converged, evidence):
    X, y = data()
    fit, starts = BinaryFit.of_rows.__func__, []

    def of_rows(cls, model, units, rows, method, options, **more):
        found = fit(cls, model, units, rows, method, options, **more)
        starts.append(options.restarts)
        if len(starts) > 1:
            return found
        return found.changed(found=replace(found.found, converged=converged, log_evidence=evidence))

    monkeypatch.setattr(BinaryFit, "of_rows", classmethod(of_rows))
    svc = bp.BayesianSVC(random_state=0).fit(X, y)
    assert starts == [1, 3] and svc.converged_ and 60 * np.log(0.5) < svc.log_evidence_ < 0.0


@pytest.mark.slow
def test_large_weights_take_no_more_evaluations_and_time():
    X, y = data()
    seconds = {}
    for each in (1.0, 1e4):
        machine = bp.BayesianSVC(random_state=0).fit(X, y, np.full(60, each))  # compiles
        began = time.process_time()
        machine.fit(X, y, np.full(60, each))
        seconds[each] = time.process_time() - began
        assert machine.converged_
    assert seconds[1e4] < 10 * seconds[1.0] + 1.0


@pytest.mark.slow_cases("400-shares0", "1900-shares1")
@pytest.mark.parametrize(("n", "shares"), [(400, (0.2, 0.8)), (1900, (0.1, 0.5, 0.8))])
def test_repeated_inputs_have_the_shares_of_their_labels(n, shares):
    """Equal rows with one label are one row: its label is not left out with all its copies, nor explained by jitter."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, len(shares), n)
    y = rng.random(n) < np.array(shares)[x]
    svc = bp.BayesianSVC(random_state=0).fit(np.eye(len(shares))[x], y)
    found = np.array([y[x == k].mean() for k in range(len(shares))])
    np.testing.assert_allclose(svc.predict_proba(np.eye(len(shares)))[:, 1], found, atol=0.03)
    best = np.sum(np.where(y, np.log(found[x]), np.log1p(-found[x])))
    assert best - 15.0 < svc.log_evidence_ < best


@pytest.mark.slow
def test_the_label_of_a_row_is_left_out_once():
    X, y = data(30)
    svc = bp.BayesianSVC(kernel="linear", random_state=0).fit(np.vstack([X, X[:1]]), np.append(y, y[:1]))
    (fit,) = svc._fit.binaries
    i = int(np.flatnonzero(fit.rows.weight == 2.0)[0])
    (posterior,), z = fit.fitted.posteriors, np.linspace(-12.0, 12.0, 20001)
    f, cavity = posterior.cavity_mean[i] + posterior.cavity_variance[i] ** 0.5 * z, np.exp(-0.5 * z**2)
    p = label_probability(f, **fit.noise.parameters)
    own = p if fit.rows.y[i] > 0 else 1.0 - p
    assert fit.left_out[i] == pytest.approx(np.sum(cavity * own * p) / np.sum(cavity * own), abs=1e-6)


@pytest.mark.slow
def test_log_odds_of_the_machine_are_exact_with_a_large_penalty():
    X, y = data(40)
    svc = bp.BayesianSVC(C=300.0, kernel="linear", probability="map", random_state=0).fit(X, y)
    u = (X - svc.mean_) / svc.lengthscale_
    f = svc.linear_ * u @ (u[svc.support_].T @ svc.dual_coef_[svc.support_]) + svc.intercept_
    np.testing.assert_allclose(svc.decision_function(X), 300.0 * (f + np.clip(f, -1.0, 1.0)), rtol=1e-6, atol=1e-3)
    np.testing.assert_array_equal(svc.predict(X), np.where(f > 0, "b", "a"))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.02, 0.2])
def test_the_lapse_is_about_the_share_of_wrong_labels(wrong):
    rng = np.random.default_rng(1)
    x, chance = rng.uniform(-3, 3, 500), rng.random(500)
    y, share = (x > 0) ^ (chance < wrong), np.mean(chance < wrong)
    svc = bp.BayesianSVC(random_state=0).fit(x[:, None], y)
    assert svc.lapse_ == pytest.approx(share, abs=0.06)
    assert svc.predict_proba([[-3.0], [3.0]])[:, 1] == pytest.approx([share, 1 - share], abs=0.08)


@pytest.mark.slow_cases("2.0-0.2-2", "3.0-0.1-0", "4.0-0.2-2")
@pytest.mark.parametrize(("apart", "wrong", "seed"), [(2.0, 0.1, 0), (2.0, 0.2, 2), (3.0, 0.1, 0), (4.0, 0.2, 2)])
def test_wrong_labels_in_separated_classes_leave_no_constant(apart, wrong, seed):
    rng = np.random.default_rng(seed)
    inputs, classes = rng.normal(size=(300, 2)), np.repeat([0, 1], 150)
    inputs += apart * (2.0 * classes[:, None] - 1.0)
    flipped = np.where(rng.random(300) < wrong, 1 - classes, classes)
    svc = bp.BayesianSVC(random_state=0).fit(inputs, flipped)
    probability = svc.predict_proba(inputs)[:, 1]
    assert np.mean((probability > 0.5) == classes) > 0.98
    assert svc.log_evidence_ > 300 * np.log(0.5) + 30.0
    assert probability[classes == 1].mean() == pytest.approx(1.0 - wrong, abs=0.06)


@pytest.mark.slow
def test_numbers_of_persons_are_found_as_an_input():
    """A search from one start ends where they hardly count, at a log loss of .59."""
    rng = np.random.default_rng(2017)
    person = rng.integers(1, 41, 1400)
    effect, x = 2.0 * rng.normal(size=41), rng.normal(size=(1400, 2))
    p = 1.0 / (1.0 + np.exp(-effect[person] - x[:, 0]))
    X, y = np.column_stack([person, x]), rng.random(1400) < p
    svc = bp.BayesianSVC(random_state=0).fit(X[:400], y[:400])
    assert log_loss(y[400:], svc.predict_proba(X[400:])) < 0.55

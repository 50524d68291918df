"""Predictions of f from the nearest rows of each new input, against brute force and the whole model."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.inference.prediction import neighbours
from bsvr_pp.inference.prediction.neighbours import moments_given, nearest_rows
from bsvr_pp.model.reader import read_model
from tests.helpers import moments_from_neighbours, process_model

AT = {"amplitude": 1.0, "inverse_lengthscale": np.array([0.5, 2.0]), "C": 8.0, "epsilon": 0.1}
UNITS = np.array([2.0, 0.5])


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return read_model(bp.default_model(X, np.sin(X.sum(axis=1)) + 0.1 * rng.laplace(size=60), kernel="rbf"))


NEW = np.random.default_rng(1).normal(size=(25, 2))


def test_each_new_input_is_given_its_nearest_rows(problem):
    point = problem.complete(AT)
    found = moments_from_neighbours(problem, point, NEW, 12)[:2]
    for i in (0, 7, 24):
        rows = np.argsort((((problem.inputs - NEW[i]) / UNITS) ** 2).sum(axis=1))[:12]
        part = problem.take(rows)
        K, mean, noise = part.at(point)
        exact = mean_field(K, part.targets, noise, mean=mean).predict(*part.cross(point, NEW[[i]]))
        np.testing.assert_allclose([found[0][i], found[1][i]], np.ravel(exact), rtol=2e-3, atol=1e-4)


def test_a_prediction_does_not_depend_on_the_other_new_inputs(problem):
    point = problem.complete(AT)
    together = moments_from_neighbours(problem, point, NEW, 10)[:2]
    alone = moments_from_neighbours(problem, point, NEW[4:5], 10)[:2]
    np.testing.assert_allclose(np.ravel(alone), np.array(together)[:, 4], rtol=1e-9)


def test_an_input_of_infinite_lengthscale_does_not_count(problem):
    """In the search for neighbours; the covariance is that of the hyperparameters."""
    at = problem.complete(AT | {"inverse_lengthscale": np.array([0.5, 1e-9])})
    moved = NEW + np.array([0.0, 100.0])
    found, same = (moments_from_neighbours(problem, at, X, 8)[:2] for X in (NEW, moved))
    np.testing.assert_allclose(found[0], same[0], rtol=1e-9)


def test_predict_and_the_estimator_give_these_moments():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.random.default_rng(1).normal(size=40)
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, blocks=bp.LocalBlocks(20, neighbours=10)).fit(X, y)
    f, sd = svr.predict_f(NEW)
    inputs = (NEW - svr.mean_) / svr.scale_
    found = moments_from_neighbours(svr._fit.problem, svr._fit.point, inputs, 10)
    np.testing.assert_allclose(f, svr.location_ + svr.unit_ * found[0], rtol=1e-9)
    np.testing.assert_allclose(sd, svr.unit_ * np.sqrt(found[1]), rtol=1e-9)
    again = bp.BayesianSVR.from_result(svr.result_)
    np.testing.assert_allclose(again.predict_f(NEW)[0], f, rtol=1e-6)
    svr.set_params(blocks=bp.LocalBlocks(20, neighbours=None))
    assert not np.allclose(svr.predict_f(NEW)[0], f)


@pytest.mark.slow
def test_draws_and_the_mode_have_no_neighbours(problem):
    at, model = problem.complete(AT), problem.model
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    found = bp.predict(result, NEW, model=model, neighbours=12)
    np.testing.assert_allclose(found["f_mean"], moments_from_neighbours(problem, at, NEW, 12)[0], rtol=1e-9)
    mode = bp.fit(bp.MAP(), model, hyperparameters=at, progressbar=False)
    with pytest.raises(ValueError, match="neighbours=12 takes the result of an approximation that integrates f out"):
        bp.predict(mode, NEW, model=model, neighbours=12)


def test_half_of_the_nearest_rows_are_not_censored():
    """Before, f among censored rows alone rose to ten times the largest target."""
    x = np.linspace(0.0, 3.0, 61)
    low, high = np.minimum(x, 1.01), np.where(x < 1.01, x, np.inf)
    kernel, ends = 100.0 + pm.gp.cov.ExpQuad(1, ls=1.0), {"lower": low, "upper": high}
    problem = read_model(process_model(bp.Interval, x[:, None], kernel=lambda: kernel, **ends, C=20.0, epsilon=0.01))
    near = nearest_rows(problem, {}, np.array([[2.96], [0.3], [1.0]]), 8)
    assert {*near[0, :4]} == {57, 58, 59, 60} and (near[0, 4:] <= 20).all() and {*near[1]} == {*range(2, 10)}
    assert all(np.unique(each).size == 8 for each in near)
    with pytest.warns(UserWarning, match="all 4 nearest rows of 1 of 2 new inputs are censored on one side"):
        moments_given(problem, {}, np.array([[2.9], [0.1]]), np.array([[57, 58, 59, 60], [0, 1, 2, 3]]))


def test_failures_are_counted_in_a_warning(problem, monkeypatch):
    solve = neighbours.nearest_moments

    def failing(*given, **options):
        return solve(*given, **options)._replace(converged=np.zeros(len(given[0]), dtype=bool))

    monkeypatch.setattr(neighbours, "nearest_moments", failing)
    with pytest.warns(bp.ConvergenceWarning, match="on the 8 nearest rows did not converge for 25 of 25 new inputs"):
        moments_from_neighbours(problem, problem.complete(AT), NEW, 8)[:2]


@pytest.mark.parametrize("inputs", [4, 60])
def test_nearest_rows_are_those_of_all_distances(inputs):
    """A tree finds them, and all distances if there are many inputs; parts of the rows are searched one by one."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(300, inputs)), rng.normal(size=(20, inputs))
    expected = np.linalg.norm(new[:, None] - rows, axis=2)
    parts = [(np.arange(100), rows[:100]), (np.arange(100, 300), rows[100:])]
    distance, near = neighbours.nearest_in(parts, new, 7)
    np.testing.assert_array_equal(near, np.argsort(expected, axis=1)[:, :7])
    np.testing.assert_allclose(distance, np.sort(expected, axis=1)[:, :7], rtol=1e-9)

"""Predictions of f from the nearest rows of each new input, against brute force and the whole model."""

from __future__ import annotations

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.inference.neighbours import _groups, moments_from_neighbours
from bsvr_pp.model.problem import read_model

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
    found = moments_from_neighbours(problem, point, NEW, 12, UNITS)
    assert found.converged.all()
    for i in (0, 7, 24):
        rows = np.argsort((((problem.inputs - NEW[i]) / UNITS) ** 2).sum(axis=1))[:12]
        part = problem.subset(rows)
        K, mean, noise = part.at(point)
        exact = mean_field(K, part.targets, noise, mean=mean).predict(*part.cross(point, NEW[[i]]))
        np.testing.assert_allclose([found.mean[i], found.variance[i]], np.ravel(exact), rtol=1e-3, atol=1e-5)


def test_as_many_neighbours_as_rows_are_the_whole_model(problem):
    point = problem.complete(AT)
    K, mean, noise = problem.at(point)
    whole = mean_field(K, problem.targets, noise, mean=mean)
    sites = whole.dual_coef + whole.site_precision * (whole.mean - mean), whole.site_precision
    exact = whole.predict(*problem.cross(point, NEW))
    for given in (None, sites):
        found = moments_from_neighbours(problem, point, NEW, 500, UNITS, sites=given)
        np.testing.assert_allclose([found.mean, found.variance], exact, rtol=1e-3, atol=1e-4)


def test_a_prediction_does_not_depend_on_the_other_new_inputs(problem):
    point = problem.complete(AT)
    together = moments_from_neighbours(problem, point, NEW, 10, UNITS)
    alone = moments_from_neighbours(problem, point, NEW[4:5], 10, UNITS)
    np.testing.assert_allclose(alone.mean, together.mean[4:5], rtol=1e-9)
    np.testing.assert_allclose(alone.variance, together.variance[4:5], rtol=1e-9)


def test_an_input_of_infinite_lengthscale_does_not_count(problem):
    """In the search for neighbours; the covariance is that of the hyperparameters."""
    at = problem.complete(AT | {"inverse_lengthscale": np.array([0.5, 1e-9])})
    moved = NEW + np.array([0.0, 100.0])
    found, same = (moments_from_neighbours(problem, at, X, 8, np.array([2.0, np.inf])) for X in (NEW, moved))
    np.testing.assert_allclose(found.mean, same.mean, rtol=1e-9)


def test_groups_hold_every_new_input_once_and_few_rows():
    near = np.random.default_rng(0).integers(0, 50, (40, 6))
    groups = list(_groups(near, np.arange(40)[::-1], 12))
    assert np.concatenate(groups).tolist() == list(range(40))[::-1]
    assert all(np.unique(near[group]).size <= 12 for group in groups) and max(map(len, groups)) > 1

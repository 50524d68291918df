"""Posteriors of results that are kept: taken where everything is the same, bounded, dropped with the model."""

import gc
import weakref

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import Covariance
from bsvr_pp.datasets import sinc
from bsvr_pp.inference import fitted
from bsvr_pp.inference.fitted import keep, posterior_of
from bsvr_pp.model.reader import read_model

AT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}


@pytest.fixture
def solved():
    """A problem, and a solve of it at a lengthscale."""
    data = sinc(20, random_seed=1)
    problem = read_model(bp.default_model(data.X, data.y, kernel="rbf"))

    def solve(lengthscale=2.0):
        K, mean, noise = problem.at(problem.complete({**AT, "inverse_lengthscale": 1 / lengthscale}))
        return K, mean, bp.MeanField().solve(K, problem.targets, noise, mean)

    return problem, solve


def test_a_kept_posterior_is_taken_where_vectors_covariance_and_mean_are_the_same(solved):
    problem, solve = solved
    K, mean, found = solve()
    keep(problem, found)
    vectors = found.dual_coef, found.site_precision
    again, _, _ = solve()
    assert again is not K
    assert posterior_of(problem, again, mean, *vectors).factor.sites is found.factor.sites
    other = Covariance(K.dense() + 0.1 * np.eye(20))
    for changed in (
        (other, mean, *vectors),
        (K, mean + 1.0, *vectors),
        (K, mean, 2.0 * vectors[0], vectors[1]),
        (K, mean, vectors[0], 2.0 * vectors[1]),
    ):
        posterior = posterior_of(problem, *changed)
        assert posterior.factor.sites is not found.factor.sites
        np.testing.assert_allclose(posterior.mean, changed[1] + changed[0].matvec(changed[2]))
        inverse = np.linalg.inv(changed[0].dense()) + np.diag(changed[3])
        np.testing.assert_allclose(posterior.variance, np.diag(np.linalg.inv(inverse)), rtol=1e-5)


@pytest.fixture
def others_frozen():
    """Collections look only at what is made from here on."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_what_is_kept_goes_with_its_model(others_frozen):
    data = sinc(12, random_seed=1)
    problem = read_model(bp.default_model(data.X, data.y, kernel="rbf"))
    K, mean, noise = problem.at(problem.complete(AT))
    keep(problem, bp.MeanField().solve(K, problem.targets, noise, mean))
    kept = weakref.ref(fitted._KEPT[problem.model][0].factor)
    gc.collect()
    assert kept() is not None
    del problem
    gc.collect()
    assert kept() is None

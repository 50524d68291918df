"""Models are read back right, and refused with a sentence where they cannot be."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.fgraph import clone_model

import bsvr_pp as bp
from bsvr_pp.model.problem import restricted
from bsvr_pp.model.reader import read_model

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.sin(X[:, 0])


def build():
    with pm.Model() as model:
        lengthscale = pm.InverseGamma("lengthscale", 3, 1, shape=2)
        slope = pm.Normal("slope", shape=2)
        C = pm.LogNormal("C", 1, 1)
        mean = pm.gp.mean.Linear(coeffs=slope, intercept=2.0)
        gp = bp.GP(mean_func=mean, cov_func=pm.gp.cov.Matern52(2, ls=lengthscale) + pm.gp.cov.Constant(3.0))
        f = gp.prior("f", X=pm.Data("X", X))
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=Y)
    return model


POINT = {"lengthscale": np.array([1.0, 2.0]), "C": 4.0}


@pytest.mark.slow_cases("<lambda>")
@pytest.mark.parametrize("copy", [lambda m: m, clone_model])
def test_covariance_mean_and_noise_at_a_point(copy):
    problem = read_model(copy(build()))
    assert problem.hyperparameters == ("lengthscale", "C")
    K, mean, noise = problem.at(POINT)
    d = np.sqrt((((X[:, None] - X) / [1.0, 2.0]) ** 2).sum(-1))
    matern = (1 + np.sqrt(5) * d + 5 / 3 * d**2) * np.exp(-np.sqrt(5) * d)
    np.testing.assert_allclose(K.dense(), matern + 3 + X @ X.T + 1e-6 * np.eye(8), atol=1e-6)
    np.testing.assert_allclose(mean, 2.0)
    assert noise.parameters == {"C": 4.0, "epsilon": pytest.approx(0.1), "beta": pytest.approx(0.3)}
    K_star, diagonal, new_mean = problem.cross(POINT, X[:3])
    np.testing.assert_allclose(K_star, K.dense()[:3] - 1e-6 * np.eye(8)[:3], atol=1e-6)
    np.testing.assert_allclose(diagonal, 4.0 + (X[:3] ** 2).sum(axis=1))
    np.testing.assert_allclose(new_mean, mean[:3])


@pytest.mark.slow
def test_one_reading_serves_other_data():
    """X a pm.Data or an array, another pm.Data in the noise: values are those of a model made with the data."""
    rng = np.random.default_rng(0)

    def build(X, y, width, data):
        with pm.Model() as model:
            C = pm.LogNormal("C", 0, 1)
            epsilon = pm.Data("width", width)
            at = pm.Data("X", X) if data else X
            f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=at)
            bp.EpsilonInsensitive("y", mu=f, C=C, epsilon=epsilon, observed=pm.Data("t", y) if data else y)
        return read_model(model)

    sets = [(rng.normal(size=(n, 2)), rng.normal(size=n), 0.1 * n) for n in (5, 8)]
    point, new = {"C": 2.0}, rng.normal(size=(3, 2))
    for data in (True, False):
        first, second = (build(*each, data) for each in sets)
        first.at(point)  # compiled for the first data
        moved = first.with_data(sets[1][0], sets[1][1], width=sets[1][2])
        for a, b in zip(moved.cross(point, new), second.cross(point, new), strict=True):
            np.testing.assert_array_equal(a, b)
        (K, _, noise), (truth, _, expected) = moved.at(point), second.at(point)
        v = rng.normal(size=8)
        np.testing.assert_allclose(K @ v if isinstance(K, np.ndarray) else K.matvec(v), truth.matvec(v))
        assert noise.parameters == expected.parameters
        assert first.noise_at(point).parameters["epsilon"] == 0.5  # the first reading is what it was


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The sum_to_1")
def test_transforms_that_leave_out_a_part_of_a_prior():
    T = pm.distributions.transforms
    with pm.Model() as model:
        top = pm.HalfCauchy("top", 1.0)
        pm.Uniform("to top", 0.0, top)
        pm.Dirichlet("sparse", np.full(3, 0.05))
        pm.Dirichlet("simplex", np.ones(3), default_transform=T.sum_to_1)
        pm.ZeroSumNormal("zero sum", shape=3)
        pm.Beta("odds", 0.05, 0.05)
        pm.VonMises("angle", 0.0, 1.0)
        pm.HalfFlat("flat")
        pm.Exponential("none", 1.0, default_transform=None)
        pm.Normal("wide", transform=T.Interval(-9.0, 9.0))
        pm.Normal("ordered", shape=2, transform=T.ordered, initval=[0.0, 1.0])
        pm.HalfNormal("ordered log", shape=2, transform=T.ordered, initval=[1.0, 2.0])
        pm.LogNormal("inside", default_transform=T.Interval(1.0, 2.0))
        pm.Uniform("narrow", 0.0, 5.0, default_transform=T.Interval(0.0, 1.0))
    assert restricted(model, model.free_RVs) == ["ordered", "ordered log", "inside", "narrow"]


def test_log_priors_are_those_of_pymc():
    """Of hyperparameters that depend on one another, bounds included, truncated, of several entries, and mixtures.

    PyMC copies the parents of the last ones, and of what is observed of hyperparameters.
    """
    X = np.linspace(-1, 1, 5)[:, None]
    with pm.Model() as model:
        top = pm.Exponential("top", 1.0)
        C = pm.Uniform("C", 0.5 * top, 20.0 + top)
        epsilon = pm.Truncated("epsilon", pm.Normal.dist(0.0, top), lower=0.01, upper=1.0)
        weights = pm.Dirichlet("weights", np.ones(2))
        scale = pm.Mixture("scale", weights, [pm.HalfNormal.dist(1.0), pm.HalfNormal.dist(5.0)])
        inverse = pm.HalfNormal("inverse", sigma=scale, shape=2)
        custom = pm.CustomDist("custom", scale, dist=lambda scale, size: pt.exp(pm.Normal.dist(0.0, scale, size=size)))
        pm.Censored("censored", pm.Normal.dist(top, 1.0), lower=None, upper=custom)
        pm.Censored("seen", pm.Normal.dist(top, 0.05), lower=None, upper=2.0, observed=[0.5, 2.0])
        pm.GaussianRandomWalk("walk", sigma=scale, init_dist=pm.Normal.dist(0.0, 1.0), observed=np.arange(3.0))
        pm.Potential("potential", -custom)
        kernel = pm.gp.cov.ExpQuad(1, ls=1.0 / inverse[0])
        f = bp.GP(cov_func=kernel + pm.gp.cov.Constant(inverse[1])).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.5, observed=X[:, 0])
    problem = read_model(model)
    expected = model.logp(vars=problem.prior_terms, jacobian=False, sum=False)
    compiled = problem.compile_on(problem.values, [*problem.log_priors(), *expected])
    rng, initial = np.random.default_rng(0), model.initial_point()
    for _ in range(3):
        values = [rng.normal(size=initial[value.name].shape) for value in problem.values]
        found = compiled(*values, *problem.given_data)
        for mine, theirs in zip(found[: len(expected)], found[len(expected) :], strict=True):
            np.testing.assert_allclose(np.sum(mine), np.sum(theirs), rtol=1e-12)

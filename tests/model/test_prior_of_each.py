"""Priors of many sets of inputs at once, against one after the other."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py
from pytensor.graph.replace import vectorize_graph

import bsvr_pp as bp
from bsvr_pp.model.reader import read_model

cov = pm.gp.cov
KERNELS = {
    "rational_quadratic": lambda ls: 2.0 * cov.RatQuad(2, alpha=1.5, ls=ls) + 10.0,
    "active_dims": lambda ls: cov.ExpQuad(2, ls=1.0, active_dims=[1]) * cov.Matern52(2, ls=ls),
    "linear": lambda ls: cov.Linear(2, c=ls) + cov.WhiteNoise(0.1),
    "polynomial": lambda ls: cov.Polynomial(2, c=ls, d=2, offset=1.0),
    "periodic": lambda ls: cov.Periodic(2, period=ls, ls=1.0),
    "constant": lambda ls: cov.Constant(2.0),
    "scaled": lambda ls: cov.ScaledCov(2, cov.ExpQuad(2, ls=ls), lambda x, a: pt.exp(a * x[:, 0]), (0.3,)),
    "warped": lambda ls: cov.WarpedInput(2, cov.Matern32(2, ls=ls), lambda x, a: pt.tanh(a * x), (0.5,)),
}


@wrap_py(itypes=[pt.dmatrix, pt.dmatrix], otypes=[pt.dmatrix])
def laplacian(A, B):
    return np.exp(-np.abs(A[:, None] - B).sum(axis=2))


class Own(cov.Covariance):
    """A covariance by an operation of one's own."""

    def full(self, X, Xs=None):
        return laplacian(pt.as_tensor_variable(X), pt.as_tensor_variable(X if Xs is None else Xs))

    def diag(self, X):
        return pt.ones(X.shape[0])


KERNELS["own"] = lambda ls: Own(2)
MEANS = {"zero": None, "constant": pm.gp.mean.Constant(0.7), "linear": pm.gp.mean.Linear(coeffs=np.ones(2))}


def priors(kernel, mean):
    """A problem, hyperparameters, sets of inputs, and the prior of each set."""
    rng = np.random.default_rng(0)
    X, sets = rng.normal(size=(6, 2)), rng.normal(size=(4, 5, 2))
    with pm.Model() as model:
        ls = pm.HalfNormal("ls", 1.0, shape=2)
        options = {} if MEANS[mean] is None else {"mean_func": MEANS[mean]}
        f = bp.GP(cov_func=KERNELS[kernel](ls), **options).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=1.0, epsilon=0.1, beta=0.3, observed=np.zeros(6))
    problem = read_model(model)
    point = problem.complete({"ls": np.array([0.5, 2.0])})
    return problem, point, sets, problem.prior_of_each(point, sets)


@pytest.mark.slow_cases("warped-linear")
@pytest.mark.parametrize(
    ("kernel", "mean"), [*((each, "linear") for each in KERNELS), ("linear", "zero"), ("linear", "constant")]
)
def test_each_set_has_its_own_prior(kernel, mean):
    problem, point, sets, (K, means) = priors(kernel, mean)
    assert K.shape == (4, 5, 5) and means.shape == (4, 5)
    for i, one in enumerate(sets):
        part = problem.with_data(one, np.zeros(5))
        covariance, expected, _ = part.at(point)
        np.testing.assert_allclose(K[i], covariance.dense() - problem.prior.jitter * np.eye(5), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(means[i], expected, rtol=1e-12)


def test_sets_are_taken_one_by_one_where_they_are_not_vectorised_rightly(monkeypatch):
    def wrong(graphs, replace):
        return [2.0 * graph for graph in vectorize_graph(graphs, replace)]

    expected = priors("warped", "linear")[3]
    monkeypatch.setattr("bsvr_pp.model.problem.vectorize_graph", wrong)
    for found, right in zip(priors("warped", "linear")[3], expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)

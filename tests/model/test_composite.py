"""Sums of processes, linear terms and offsets are read as one process with the right covariance and mean."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.model.problem import read_model

N = 12
RNG = np.random.default_rng(0)
X, Z, GROUP = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 3)), RNG.integers(0, 4, N)
AT = 0.7  # of every hyperparameter
RBF = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1) / AT**2) + 1e-6 * np.eye(N)
DISTANCE = np.sqrt(3) * np.abs(Z[:, :1] - Z[:, :1].T) / 2
MATERN = (1 + DISTANCE) * np.exp(-DISTANCE) + 1e-6 * np.eye(N)
LINEAR = AT**2 * Z @ Z.T
ROWS = Z.sum(axis=1)


def other(v):
    return bp.GP(cov_func=pm.gp.cov.Matern32(1, ls=2.0)).prior("h", X=v["Z"][:, :1])


# Location as a function of the model's variables, covariance, mean, coefficients, and data that new rows need.
SUMS = {
    "linear": (lambda v: v["f"] + v["Z"] @ v["b"], RBF + LINEAR, ROWS, ["b"], ["Z"]),
    "intercept": (lambda v: v["f"] + v["a"], RBF + 4.0, 0.0, ["a"], []),
    "difference": (lambda v: v["f"] - pm.math.dot(v["Z"], v["b"]) - 3.0, RBF + LINEAR, -ROWS - 3.0, ["b"], ["Z"]),
    "constant matrix": (lambda v: v["f"] + pm.math.dot(Z, v["b"]), RBF + LINEAR, ROWS, ["b"], [None]),
    "columns of X": (lambda v: v["f"] + X[:, 1] * v["a"] / 2, RBF + np.outer(X[:, 1], X[:, 1]), 0.0, ["a"], []),
    "groups": (
        lambda v: pm.Deterministic("eta", v["f"] + v["u"][GROUP]),
        RBF + AT**2 * (GROUP[:, None] == GROUP),
        0.0,
        ["u"],
        [None],
    ),
    "nonlinear": (lambda v: v["f"] + pm.math.exp(v["b"][0]) * Z[:, 0], RBF, np.exp(AT) * Z[:, 0], [], [None]),
    "twice": (lambda v: 2 * v["f"], 4 * RBF, 0.0, [], []),
    "minus": (lambda v: v["a"] - v["f"], RBF + 4.0, 0.0, ["a"], []),
    "f and f": (lambda v: v["f"] + v["f"], 4 * RBF, 0.0, [], []),
    "two processes": (lambda v: v["f"] + other(v), RBF + MATERN, 0.0, [], ["Z"]),
    "all": (
        lambda v: 2.0 + v["f"] + v["Z"] @ v["b"] + (other(v) + v["a"]),
        RBF + MATERN + LINEAR + 4.0,
        2.0 + ROWS,
        ["b", "a"],
        ["Z"],
    ),
}


def build(mu):
    with pm.Model() as model:
        s, ls = pm.HalfNormal("s"), pm.LogNormal("ls")
        v = {
            "b": pm.Normal("b", 1.0, s, shape=3),
            "a": pm.Normal("a", 0.0, 2.0),
            "u": pm.Normal("u", 0.0, s, shape=4),
            "Z": pm.Data("Z", Z),
        }
        v["f"] = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=ls)).prior("f", X=pm.Data("X", X))
        pm.Normal("y", mu=mu(v), sigma=0.3, observed=np.sin(X[:, 0]))
    return model


@pytest.mark.parametrize("kind", SUMS)
def test_covariance_and_mean_are_those_of_dense_algebra(kind):
    mu, covariance, mean, coefficients, needed = SUMS[kind]
    problem = read_model(build(mu))
    assert set(problem.composite.variables) == set(coefficients)
    assert set(problem.hyperparameters) == {"s", "ls", "a", "b", "u"} - set(coefficients)
    assert [block.name for block in problem.columns.data] == needed
    assert problem.n_inputs == 2
    assert problem.prior.name == ("eta" if kind == "groups" else "mu")
    point = {name: np.full(problem.shape_of(name), AT) for name in problem.hyperparameters}
    K, offset, _ = problem.at(point)
    np.testing.assert_allclose(K.dense(), covariance, atol=1e-10)
    np.testing.assert_allclose(offset, np.broadcast_to(mean, (N,)), atol=1e-12)


REFUSED = {
    "exp": (lambda v: pm.math.exp(v["f"]), "and Exp of f is not"),
    "product": (lambda v: v["f"] + v["a"] * v["b"][0], "and Mul of a and b is not"),
    "product of f": (lambda v: v["f"] + v["f"] * v["a"], "and Mul of a and f is not"),
    "without f": (lambda v: v["Z"] @ v["b"], "the latent function f is no part of mu of y"),
    "one of two": (lambda v: (v["f"], other(v))[0], "the latent function h is no part of mu of y"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_sum_is_refused(kind):
    mu, reason = REFUSED[kind]
    with pytest.raises(bp.ModelError, match=reason):
        read_model(build(mu))


def test_a_coefficient_on_which_something_else_depends_is_a_hyperparameter():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        c = pm.Normal("c", b)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=X)
        pm.Normal("y", mu=f + a + b + c, sigma=pm.math.exp(a), observed=np.zeros(N))
    assert read_model(model).hyperparameters == ("a",)


def test_copies_of_a_model_are_read_alike():
    model = build(SUMS["all"][0])
    expected, found = read_model(model), read_model(model.copy())
    point = {name: np.full(expected.shape_of(name), AT) for name in expected.hyperparameters}
    np.testing.assert_allclose(found.at(point)[0].dense(), expected.at(point)[0].dense(), rtol=1e-14)
    fixed = read_model(pm.do(model, {"ls": 0.7}))
    assert set(fixed.hyperparameters) == {"s", "u"}


def test_other_data_change_the_rows():
    model = build(SUMS["linear"][0])
    point = {"s": AT, "ls": AT, "a": 0.0, "u": np.zeros(4)}
    read_model(model).at(point)
    with model:
        pm.set_data({"Z": 2 * Z})
    np.testing.assert_allclose(read_model(model).at(point)[0].dense(), RBF + 4 * LINEAR, atol=1e-10)

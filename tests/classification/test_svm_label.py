"""The label of a support vector machine: masses, draws, gradients, and the mode as scikit-learn finds it."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

F = np.array([-40.0, -1.3, -1.0, -0.2, 0.0, 0.7, 1.0, 2.5])


def masses(f, C):
    label = pt.ivector()
    logp = pytensor.function([label], pm.logp(bp.SVMLabel.dist(f=f, C=C, shape=f.shape), label), mode="FAST_COMPILE")
    return [np.exp(logp(np.full(f.size, k, dtype="int32"))) for k in (-1, 0, 1)]


@pytest.mark.slow_cases("30.0")
@pytest.mark.parametrize("C", [0.1, 0.6, 2.0, 30.0])
def test_masses_are_those_of_the_paper_and_sum_to_one(C):
    below, unknown, above = masses(F, C)
    kappa = 1 / (1 + np.exp(-2 * C))
    assert np.allclose(above, kappa * np.exp(-C * np.maximum(1 - F, 0)), rtol=1e-13)
    assert np.allclose(below, kappa * np.exp(-C * np.maximum(1 + F, 0)), rtol=1e-13)
    assert (unknown >= 0).all() and np.allclose(below + unknown + above, 1.0, atol=1e-14)
    assert (unknown[np.abs(F) == 1] == 0).all()


def test_other_values_have_no_mass_and_the_cdf_sums_them():
    y = bp.SVMLabel.dist(f=0.3, C=1.5)
    p = np.exp(pm.logp(y, [-2, -1, 0, 1, 2]).eval(mode="FAST_COMPILE"))
    assert p[0] == p[4] == 0
    assert np.allclose(np.exp(pm.logcdf(y, [-2, -1, 0, 1, 2]).eval(mode="FAST_COMPILE")), np.cumsum(p), atol=1e-14)


def test_draws_have_these_masses():
    f = np.array([-1.5, 0.2, 0.9])
    draws = pm.draw(bp.SVMLabel.dist(f=np.tile(f, (40_000, 1)), C=1.2), random_seed=1)
    found = np.array([(draws == k).mean(axis=0) for k in (-1, 0, 1)])
    assert np.abs(found - masses(f, 1.2)).max() < 0.012


@pytest.mark.slow
def test_gradients_are_finite_everywhere():
    f, C = pt.dvector(), pt.dscalar()
    for label in (-1, 0, 1):
        logp = pm.logp(bp.SVMLabel.dist(f=f, C=C, shape=f.shape), np.full(F.size, label))
        inner = pt.switch(pt.isinf(logp), 0.0, logp).sum()
        gradient = pytensor.function([f, C], pytensor.grad(inner, [f, C]), mode="FAST_COMPILE")
        assert all(np.isfinite(g).all() for g in gradient(F, 2.0))


def problem(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(n) > 0, 1, -1)
    return X, y


def model(X, y):
    kernel, C = 2.0 * pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.Constant(3.0), lambda: pm.LogNormal("C", 0, 1)
    return process_model(bp.SVMLabel, X, kernel=lambda: kernel, prior={"jitter": 0.0}, C=C, observed=y)


def test_a_model_is_read_back():
    X, y = problem()
    read = read_model(model(X, y))
    assert read.loss.name == "hinge" and read.hyperparameters == ("C",)
    K, _, noise = read.at({"C": 1.5})
    assert noise.parameters["C"] == 1.5 and (read.targets == y).all()
    assert np.allclose(K.dense(), 3 + 2 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)))


def test_unknown_labels_are_refused():
    X, y = problem(6)
    y[2] = 0
    with pytest.raises(bp.ModelError, match=r"must be labels -1 and \+1, got 0"):
        read_model(model(X, y))

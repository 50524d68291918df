"""The three evidences against quadrature, limits and each other, and their gradients against differences."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from problems import factor_grid
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from svm_toy import Hinge

import bsvr_pp as bp
from bsvr_pp.approximations import find_mode
from bsvr_pp.classification.normaliser import Known, MeanKnown
from bsvr_pp.losses import hinge
from bsvr_pp.model.distributions import observe_weighted
from tests.helpers import process_model

X3, Y3 = np.array([[0.0], [0.4], [1.5]]), np.array([1, 1, -1])
COPIES = np.array([2, 1, 3])
ANNEALED = bp.Annealed(groups=16, moves=4, efficiency=0.93)
QUICK = bp.Annealed(particles=300, groups=16, moves=4, efficiency=0.93)


def model(X, y, weight=None):
    with pm.Model() as built:
        C = pm.LogNormal("C", 0, 1)
        ls = pm.LogNormal("lengthscale", 0, 1)
        amplitude = pm.LogNormal("amplitude", 0, 1)
        f = bp.GP(cov_func=amplitude * pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X=X, jitter=1e-6)
        if weight is None:
            bp.SVMLabel("y", f=f, C=C, observed=y)
        else:
            observe_weighted("y", bp.SVMLabel.dist(f=f, C=C), pm.Data("weight", weight), y)
    return built


def covariance(X, lengthscale, amplitude, **_):
    return amplitude * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + 1e-6 * np.eye(len(X))


POINT = {"C": 2.0, "lengthscale": 0.7, "amplitude": 1.5}


@cache
def quadrature(part, C, **kernel):
    """Log of the naive evidence or of a normaliser; several tests need each of them."""
    factor = {"naive": lambda C: Hinge(C, Y3), "conditional": Known, "joint": MeanKnown}[part](C)
    return logsumexp(factor_grid(covariance(X3, **kernel), factor)[1])


@pytest.mark.slow_cases("joint", "conditional")
@pytest.mark.parametrize("kind", ["naive", "conditional", "joint"])
def test_three_points_against_quadrature(kind):
    with model(X3, Y3):
        found = bp.log_evidence(ANNEALED, hyperparameters=POINT, kind=kind, random_seed=1)
    assert found.converged and 0 < found.standard_error < 0.03
    exact = quadrature("naive", **POINT) - (0.0 if kind == "naive" else quadrature(kind, **POINT))
    assert abs(found.value - exact) < 4 * found.standard_error


@pytest.mark.slow_cases("naive", "conditional", "joint")
@pytest.mark.parametrize("kind", ["naive", "conditional", "joint"])
def test_a_weight_is_a_number_of_equal_rows(kind):
    weighted = model(X3, Y3, COPIES.astype(float))
    repeated = model(np.repeat(X3, COPIES, axis=0), np.repeat(Y3, COPIES))
    options = {"hyperparameters": POINT, "kind": kind, "random_seed": 1}
    found, expected = (bp.log_evidence(ANNEALED, each, **options) for each in (weighted, repeated))
    assert abs(found.value - expected.value) < 4 * np.hypot(found.standard_error, expected.standard_error)


def test_laplace_is_the_paper_s_formula():
    """(32): the prefactor at the mode, and I + L_m K_m of the marginal points."""
    rng = np.random.default_rng(5)
    X = np.sort(rng.random((25, 1)), axis=0)
    y = np.where(np.sin(9 * X[:, 0]) > 0, 1, -1)
    C, K = 2.0, covariance(X, 0.2, 1.5)
    mode = find_mode(K, y.astype(float), hinge(C=C))
    m, alpha = mode.support == 1, y * mode.dual_coef
    L = 2 * np.pi * (alpha[m] * (C - alpha[m]) / C) ** 2
    value = -0.5 * alpha @ (y * mode.f) - C * np.maximum(1 - y * mode.f, 0).sum() - 25 * np.log1p(np.exp(-2 * C))
    value -= 0.5 * np.linalg.slogdet(np.eye(m.sum()) + L[:, None] * K[np.ix_(m, m)])[1]
    point = {"C": C, "lengthscale": 0.2, "amplitude": 1.5}
    found = bp.log_evidence(bp.Laplace(), model(X, y), hyperparameters=point, kind="naive")
    assert m.sum() > 2 and np.isclose(found.value, value, rtol=1e-8) and found.standard_error == 0


@pytest.mark.slow
def test_mean_field_is_close_to_annealing():
    rng = np.random.default_rng(6)
    X = np.sort(rng.random((40, 1)), axis=0)
    y = np.where(np.sin(9 * X[:, 0]) + 0.3 * rng.standard_normal(40) > 0, 1, -1)
    point = {"C": 2.0, "lengthscale": 0.1, "amplitude": 1.25}
    built = model(X, y)
    chain = bp.log_evidence(QUICK, built, hyperparameters=point, kind="naive", random_seed=1)
    field = bp.log_evidence(bp.MeanField(), built, hyperparameters=point, kind="naive")
    assert abs(chain.value - field.value) < 0.02 * 40
    assert chain.standard_error < 0.03


@pytest.mark.parametrize("kind", ["conditional", "joint"])
def test_labels_are_guesses_as_C_vanishes(kind):
    """Each label has probability ½ at C = 0."""
    found = bp.log_evidence(QUICK, model(X3, Y3), hyperparameters=POINT | {"C": 1e-6}, kind=kind, random_seed=1)
    assert abs(found.value + 3 * np.log(2)) < 1e-5 + 4 * found.standard_error


@pytest.mark.slow_cases("conditional")
@pytest.mark.parametrize("kind", ["conditional", pytest.param("joint", marks=pytest.mark.slow)])
def test_a_large_amplitude_is_classification_without_noise(kind):
    """The orthant probability of the labels, whatever C is."""
    K = covariance(X3, 0.7, 1.0)
    sign = np.diag(Y3.astype(float))
    orthant = np.log(multivariate_normal(np.zeros(3), sign @ K @ sign).cdf(np.zeros(3)))
    for C in (1.0, 3.0):
        point = {"C": C, "lengthscale": 0.7, "amplitude": 1e8}
        found = bp.log_evidence(ANNEALED, model(X3, Y3), hyperparameters=point, kind=kind, random_seed=2)
        assert abs(found.value - orthant) < 4 * found.standard_error + 1e-3


def test_models_that_are_not_of_labels_are_refused():
    real = process_model(pm.Normal, X3, sigma=1.0, observed=[0.0, 1.0, 2.0])
    with pytest.raises(bp.ModelError, match=r"use bp\.log_evidence"):
        bp.log_evidence(QUICK, real, kind="conditional")
    with pm.Model():
        gp = bp.GP(mean_func=pm.gp.mean.Constant(1.0), cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        bp.SVMLabel("y", f=gp.prior("f", X=X3), C=1.0, observed=Y3)
        with pytest.raises(bp.ModelError, match="must be zero"):
            bp.log_evidence(QUICK, kind="conditional")


def test_a_conditional_evidence_above_its_bound_is_reported(recwarn):
    """Where C is large and the amplitude small few particles find the functions that survive."""
    X = np.linspace(0, 1, 50)[:, None]
    y = np.where(np.sin(9 * X[:, 0]) > 0, 1, -1)
    far = {"C": 6.0, "lengthscale": 0.05, "amplitude": 0.05}
    built = model(X, y)
    with pytest.warns(UserWarning, match="at most -log 2"):
        few = bp.Annealed(particles=5, groups=4, moves=4)
        bp.log_evidence(few, built, hyperparameters=far, kind="conditional", random_seed=1)
    recwarn.clear()
    more = bp.Annealed(particles=30, groups=16, moves=4, efficiency=0.93)
    near = far | {"C": 1.0}
    bp.log_evidence(more, built, hyperparameters=near, kind="conditional", random_seed=1)
    assert not [w for w in recwarn if "at most" in str(w.message)]

"""Class probabilities: the formula (11), and the three predictions against quadrature."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from test_chaining import grid

import bsvr_pp as bp
from bsvr_pp.approximations import find_mode
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.probability import Draws, average_probability, label_probability
from bsvr_pp.losses import hinge

F = np.linspace(-4, 4, 81)
X2, Y2, NEW = np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[-0.5], [0.3], [0.9], [3.0]])


@pytest.mark.parametrize("C", [0.3, 2.0, 8.0])
def test_the_probability_is_the_share_of_the_label(C):
    plus, minus = (np.exp(hinge(C=C).log_density(1 - s * F)) for s in (1, -1))
    assert np.allclose(label_probability(F, C), plus / (plus + minus), rtol=1e-12)
    inside, outside = np.abs(F) <= 1, np.abs(F) > 1
    assert np.allclose(label_probability(F, C)[inside], 1 / (1 + np.exp(-2 * C * F[inside])), rtol=1e-12)
    z = F[outside]
    assert np.allclose(label_probability(F, C)[outside], 1 / (1 + np.exp(-C * (z + np.sign(z)))), rtol=1e-12)
    assert (label_probability([-1e6, 1e6], C) == [0, 1]).all()


def test_the_average_over_a_gaussian():
    rng = np.random.default_rng(0)
    for mean, variance, C in ((0.3, 1.0, 2.0), (-1.2, 0.2, 5.0), (2.0, 9.0, 1.0)):
        draws = label_probability(mean + np.sqrt(variance) * rng.standard_normal(400_000), C)
        assert abs(average_probability(mean, variance, C) - draws.mean()) < 5 * draws.std() / np.sqrt(400_000)
    assert np.allclose(average_probability(F, 0.0, 2.0), label_probability(F, 2.0), rtol=1e-12)
    assert np.allclose(average_probability(0.0, 3.0, 2.0), 0.5, rtol=1e-12)
    with pytest.raises(ValueError, match="variance must be >= 0"):
        average_probability(0.0, -1.0, 1.0)


def model(X=X2, y=Y2, C=2.0):
    with pm.Model() as built:
        f = bp.GP(cov_func=1.5 * pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=C, observed=y)
    return built


def kernel(A, B):
    return 1.5 * np.exp(-0.5 * ((A - B.T) / 0.8) ** 2)


def test_predictions_against_quadrature():
    K, K_star = kernel(X2, X2) + 1e-6 * np.eye(2), kernel(NEW, X2)
    f, level = grid(K, Factors("hinge", 2.0, Y2))
    weight = np.exp(level - logsumexp(level))
    means = f @ np.linalg.solve(K, K_star.T)
    rest = 1.5 - np.einsum("ij,ij->i", K_star @ np.linalg.inv(K), K_star)
    average = [weight @ average_probability(m, v, 2.0) for m, v in zip(means.T, rest, strict=True)]
    arguments = {"method": bp.Chaining(particles=2000), "random_seed": 1}
    assert np.allclose(bp.class_probability(NEW, model(), **arguments), average, atol=0.01)
    at_mean = label_probability(weight @ means, 2.0)
    assert np.allclose(bp.class_probability(NEW, model(), probability="mean", **arguments), at_mean, atol=0.02)
    mode = find_mode(K, Y2.astype(float), hinge(C=2.0))
    at_mode = label_probability(K_star @ mode.dual_coef, 2.0)
    assert np.allclose(bp.class_probability(NEW, model(), probability="map"), at_mode, rtol=1e-8)
    field = bp.class_probability(NEW, model(), method=bp.MeanField())
    assert np.allclose(field, average, atol=0.03)
    assert np.allclose(bp.class_probability(NEW, model(), method=bp.Laplace(), probability="mean"), at_mode, rtol=1e-8)


def test_draws_of_the_prior_give_the_prior_back():
    rng = np.random.default_rng(1)
    K = kernel(X2, X2)
    draws = Draws(K, rng.multivariate_normal([0, 0], K, size=20_000))
    sample = draws.sample(kernel(NEW, X2), np.full(4, 1.5), 2)
    assert np.allclose(np.cov(sample.T).diagonal(), 1.5, rtol=0.05)
    assert np.abs(draws.mean(kernel(NEW, X2))).max() < 0.05


def test_average_predictions_are_more_moderate_than_those_at_the_mean():
    average, at_mean = (
        bp.class_probability(NEW, model(), method=bp.MeanField(), probability=p) for p in ("average", "mean")
    )
    assert (np.abs(average - 0.5) < np.abs(at_mean - 0.5)).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"probability": "median"}, ValueError, "probability must be 'average'"),
        ({"method": bp.MAP()}, TypeError, "method must be Laplace"),
        ({"X_new": [0.0]}, ValueError, "X_new must be an \\(n_new, 1\\) array"),
        ({"model": model(C=np.array([1.0, 2.0]))}, ValueError, "C has a value for each training point"),
    ],
)
def test_errors_name_the_argument(change, error, words):
    with pytest.raises(error, match=words):
        bp.class_probability(**({"X_new": NEW, "model": model()} | change))
    with pytest.raises(ValueError, match="f must be a"):
        Draws(np.eye(2), np.zeros((3, 4)))


def test_an_average_does_not_exceed_one_by_rounding():
    """Sums of products round differently for different numbers of rows."""
    for n in (20, 333, 419):
        assert average_probability(np.full(n, 40.0), np.linspace(0.0, 1.0, n), 5.0).max() <= 1.0

"""Class probabilities: the three predictions against quadrature."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
from problems import factor_grid
from scipy.special import logsumexp

import bsvr_pp as bp
from bsvr_pp import classification
from bsvr_pp.approximations import find_mode
from bsvr_pp.core.losses.noise import noise_likelihood
from bsvr_pp.core.losses.registry import average_probability, label_probability
from bsvr_pp.losses import hinge

X2, Y2, NEW = np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[-0.5], [0.3], [0.9], [3.0]])


def model(X=X2, y=Y2, C=2.0):
    with pm.Model() as built:
        f = bp.GP(cov_func=1.5 * pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=C, observed=y)
    return built


def kernel(A, B):
    return 1.5 * np.exp(-0.5 * ((A - B.T) / 0.8) ** 2)


def test_predictions_against_quadrature():
    K, K_star = kernel(X2, X2) + 1e-6 * np.eye(2), kernel(NEW, X2)
    f, level = factor_grid(K, noise_likelihood(hinge(2.0), Y2))
    weight = np.exp(level - logsumexp(level))
    means = f @ np.linalg.solve(K, K_star.T)
    rest = 1.5 - np.einsum("ij,ij->i", K_star @ np.linalg.inv(K), K_star)
    average = [weight @ average_probability(m, v, 2.0) for m, v in zip(means.T, rest, strict=True)]
    fine, options = bp.Annealed(particles=2000, groups=16), {"random_seed": 1}
    assert np.allclose(classification.class_probability(fine, NEW, model(), **options), average, atol=0.01)
    at_mean = label_probability(weight @ means, 2.0)
    assert np.allclose(
        classification.class_probability(fine, NEW, model(), probability="mean", **options), at_mean, atol=0.02
    )
    mode = find_mode(K, Y2.astype(float), hinge(C=2.0))
    at_mode = label_probability(K_star @ mode.dual_coef, 2.0)
    assert np.allclose(classification.class_probability(fine, NEW, model(), probability="map"), at_mode, rtol=1e-8)
    field = classification.class_probability(bp.MeanField(), NEW, model())
    assert np.allclose(field, average, atol=0.03)
    assert np.allclose(
        classification.class_probability(bp.Laplace(), NEW, model(), probability="mean"), at_mode, rtol=1e-8
    )


def test_average_predictions_are_more_moderate_than_those_at_the_mean():
    average, at_mean = (
        classification.class_probability(bp.MeanField(), NEW, model(), probability=p) for p in ("average", "mean")
    )
    assert (np.abs(average - 0.5) < np.abs(at_mean - 0.5)).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"probability": "median"}, ValueError, "probability must be 'average'"),
        ({"method": bp.MAP()}, TypeError, "method must have an evidence"),
        ({"X_new": [0.0]}, ValueError, "X_new must be an \\(n_new, 1\\) array"),
        ({"model": model(C=np.array([1.0, 2.0]))}, ValueError, "C has a value for each training point"),
    ],
)
def test_errors_name_the_argument(change, error, words):
    with pytest.raises(error, match=words):
        classification.class_probability(**({"method": bp.MeanField(), "X_new": NEW, "model": model()} | change))

"""Class probabilities: averages over the posterior against quadrature."""

import numpy as np
import pytest
from problems import factor_grid
from scipy.special import expit, logsumexp
from svm_toy import Hinge, LatentDraws

import bsvr_pp as bp
from bsvr_pp.approximations import Covariance
from bsvr_pp.core.losses.registry import average_probability, label_probability
from bsvr_pp.losses import hinge
from tests.helpers import process_model

X2, Y2, NEW = np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[-0.5], [0.3], [0.9], [3.0]])


def kernel(A, B):
    return 1.5 * np.exp(-0.5 * ((A - B.T) / 0.8) ** 2)


def test_draws_of_the_prior_give_the_prior_back():
    rng = np.random.default_rng(1)
    K = kernel(X2, X2)
    draws = LatentDraws(Covariance(K), rng.multivariate_normal([0, 0], K, size=20_000))
    sample = draws.sample(kernel(NEW, X2), np.full(4, 1.5), 2)
    assert np.allclose(np.cov(sample.T).diagonal(), 1.5, rtol=0.05)
    assert np.abs(draws.mean(kernel(NEW, X2))).max() < 0.05


@pytest.mark.slow
def test_predictions_against_quadrature():
    K, K_star = kernel(X2, X2) + 1e-6 * np.eye(2), kernel(NEW, X2)
    f, level = factor_grid(K, Hinge(2.0, Y2))
    weight = np.exp(level - logsumexp(level))
    means = f @ np.linalg.solve(K, K_star.T)
    rest = 1.5 - np.einsum("ij,ij->i", K_star @ np.linalg.inv(K), K_star)
    average = [weight @ average_probability(m, v, 2.0) for m, v in zip(means.T, rest, strict=True)]
    rng = np.random.default_rng(1)
    fine = bp.Annealed(particles=2000, groups=16)
    draws = LatentDraws(Covariance(K), fine.posterior(Covariance(K), Y2.astype(float), hinge(2.0), np.zeros(2), rng).f)
    sampled = label_probability(draws.sample(K_star, np.full(4, 1.5), rng), 2.0)
    np.testing.assert_allclose(sampled.mean(axis=0), average, atol=0.01)
    np.testing.assert_allclose(
        label_probability(draws.mean(K_star), 2.0), label_probability(weight @ means, 2.0), atol=0.02
    )
    built = process_model(bp.SVMLabel, X2, ls=0.8, factor=1.5, C=2.0, observed=Y2)
    found = bp.predict(bp.fit(bp.MeanField(), built, progressbar=False), NEW, model=built)
    field, at_mean = found["y_probability"].values, label_probability(found["f_mean"].values, 2.0)
    np.testing.assert_allclose(field, average, atol=0.03)
    assert (np.abs(field - 0.5) < np.abs(at_mean - 0.5)).all()


def clouds(name):
    """Labels of Gaussian clouds."""
    n, d, distance, flipped, share, classes = {
        "separable": (40, 2, 6.0, 0.0, 0.5, 2),
        "flipped": (60, 2, 4.0, 0.1, 0.5, 2),
        "rare": (80, 2, 2.5, 0.0, 0.12, 2),
        "three classes": (50, 2, 2.5, 0.0, 0.5, 3),
        "one input": (50, 1, 2.0, 0.0, 0.5, 2),
        "ten inputs": (50, 10, 2.0, 0.0, 0.5, 2),
    }[name]
    rng = np.random.default_rng(0)
    y = (rng.random(n) < share).astype(int) if classes == 2 else rng.integers(3, size=n)
    X = rng.standard_normal((n, d))
    X[:, 0] += distance * (y > 0)
    X[:, -1] += distance * (y > 1)
    return X, (y + (rng.random(n) < flipped)) % classes, 2.0 * rng.standard_normal((60, d))


BOUNDS = {
    **{"separable": 0.035, "flipped": 0.025, "rare": 0.025},
    **{"three classes": 0.02, "one input": 0.01, "ten inputs": 0.02},
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_probabilities_of_a_fit_against_exact_draws(name, bound):
    """Truth: annealed draws of f at the learned hyperparameters, where the factor of a label is not log-concave."""
    X, y, new = clouds(name)
    svc = bp.BayesianSVC(random_state=0).fit(X, y)
    inputs = svc._standardised(new)
    for binary in svc._fit.binaries:
        problem, point = binary.problem, binary.point
        K, mean, noise = problem.at(point)
        draws = bp.Annealed(particles=600, groups=32, moves=8).posterior(
            K, problem.targets, noise, mean, np.random.default_rng(2)
        )
        cross, variance, _ = problem.cross(point, inputs)
        weights = K.solve(cross.T)
        rest = np.maximum(variance - np.einsum("ij,ji->i", cross, weights), 0.0)
        f = draws.f.reshape(-1, len(mean)) @ weights
        truth = average_probability(f, rest, **binary.noise.parameters).mean(axis=0)
        found = expit(binary.log_odds(inputs, "average", None))
        assert np.abs(found - truth).max() < bound
        assert np.abs(found - truth).mean() < 0.25 * bound

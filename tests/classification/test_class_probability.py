"""Class probabilities: averages over the posterior against quadrature."""

import numpy as np
import pymc as pm
from problems import factor_grid
from scipy.special import logsumexp
from svm_toy import LatentDraws

import bsvr_pp as bp
from bsvr_pp.approximations import Covariance
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


def test_draws_of_the_prior_give_the_prior_back():
    rng = np.random.default_rng(1)
    K = kernel(X2, X2)
    draws = LatentDraws(Covariance(K), rng.multivariate_normal([0, 0], K, size=20_000))
    sample = draws.sample(kernel(NEW, X2), np.full(4, 1.5), 2)
    assert np.allclose(np.cov(sample.T).diagonal(), 1.5, rtol=0.05)
    assert np.abs(draws.mean(kernel(NEW, X2))).max() < 0.05


def test_predictions_against_quadrature():
    K, K_star = kernel(X2, X2) + 1e-6 * np.eye(2), kernel(NEW, X2)
    f, level = factor_grid(K, noise_likelihood(hinge(2.0), Y2))
    weight = np.exp(level - logsumexp(level))
    means = f @ np.linalg.solve(K, K_star.T)
    rest = 1.5 - np.einsum("ij,ij->i", K_star @ np.linalg.inv(K), K_star)
    average = [weight @ average_probability(m, v, 2.0) for m, v in zip(means.T, rest, strict=True)]
    rng = np.random.default_rng(1)
    fine = bp.Annealed(particles=2000, groups=16).posterior(
        Covariance(K), Y2.astype(float), hinge(2.0), np.zeros(2), rng
    )
    draws = LatentDraws(Covariance(K), fine.f)
    sampled = label_probability(draws.sample(K_star, np.full(4, 1.5), rng), 2.0)
    np.testing.assert_allclose(sampled.mean(axis=0), average, atol=0.01)
    np.testing.assert_allclose(
        label_probability(draws.mean(K_star), 2.0), label_probability(weight @ means, 2.0), atol=0.02
    )
    built = model()
    field = bp.predict(bp.fit(bp.MeanField(), built, progressbar=False), NEW, model=built)["y_probability"].values
    np.testing.assert_allclose(field, average, atol=0.03)
    at_mean = label_probability(
        bp.predict(bp.fit(bp.MeanField(), built, progressbar=False), NEW, model=built)["f_mean"].values, 2.0
    )
    assert (np.abs(field - 0.5) < np.abs(at_mean - 0.5)).all()

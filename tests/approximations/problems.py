"""Problems and losses that the tests of the approximations share."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import multivariate_normal

from bsvr_pp.core.approximations.smc import bridge
from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, hinge, huber, pinball, soft_insensitive

REGRESSION = [
    soft_insensitive(10.0, 0.1, 0.3),
    soft_insensitive(5.0, 0.3, 0.05),
    soft_insensitive(6.0, 0.2, 0.0),
    epsilon_insensitive(8.0, 0.2),
    huber(6.0, 0.1),
    absolute(4.0),
    gaussian(20.0),
    pinball(6.0, 0.3),
]
LOSSES = [*REGRESSION, hinge(2.0)]


def smooth(n=30, seed=0, noise=None):
    """Kernel matrix and targets of a sine with an outlier (labels for the hinge)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, (n, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)
    y[n // 2] += 2
    if noise is not None and noise.name == "hinge":
        y = np.where(y > 0, 1.0, -1.0)
    return np.exp(-0.5 * (X - X.T) ** 2) + 0.5 + 1e-6 * np.eye(n), y


def exact_gaussian_process(K, y, precision):
    """Log evidence, posterior mean and covariance of f under Gaussian noise."""
    S = K + np.eye(y.size) / precision
    log_evidence = -0.5 * np.linalg.slogdet(2 * np.pi * S)[1] - 0.5 * y @ np.linalg.solve(S, y)
    return log_evidence, K @ np.linalg.solve(S, y), K - K @ np.linalg.solve(S, K)


def reverse_annealed(f, K, y, likelihood, powers, seed):
    """Move draws f of the posterior back to the start: log evidence and standard error, from above for few powers."""
    path, rng = bridge(K, y, likelihood, None), np.random.default_rng(seed)
    values, log_weight = path.log_ratio(f), np.zeros(len(f))
    for high, low in itertools.pairwise(powers[::-1]):
        log_weight += (low - high) * values
        f, values = path.move(f, values, low, 10, rng)
    weight = np.exp(log_weight - log_weight.max())
    log_mean = np.log(weight.mean()) + log_weight.max()
    return path.log_mass - log_mean, weight.std() / weight.mean() / np.sqrt(len(f))


def assert_gradient_matches_differences(
    approximate, gradient, K, y, noise, mean, h=1e-6, rel=1e-5, abs=1e-5, **options
):
    """Central differences along a random symmetric change of K, along a random mean, by every parameter."""
    rng = np.random.default_rng(1)
    n = y.size
    log_evidence, by = gradient(K, y, noise, mean=mean, **options)

    def value(K, noise, mean):
        return approximate(K, y, noise, mean=mean, **options).log_evidence

    assert log_evidence == pytest.approx(value(K, noise, mean), rel=1e-9)
    direction, along = rng.normal(size=(n, n)), rng.normal(size=n)
    direction = (direction + direction.T) / n
    pairs = {
        "K": (value(K + h * direction, noise, mean), value(K - h * direction, noise, mean), np.sum(by.K * direction)),
        "mean": (value(K, noise, mean + h * along), value(K, noise, mean - h * along), by.mean @ along),
    }
    for name, at in noise.parameters.items():
        assert np.shape(by.parameters[name]) == np.shape(at)
        if np.min(at) <= 10 * h:
            continue
        step = h * (1.0 if np.ndim(at) == 0 else rng.normal(size=n))
        up, down = (replace(noise, parameters={**noise.parameters, name: at + s * step}) for s in (1, -1))
        pairs[name] = (value(K, up, mean), value(K, down, mean), np.sum(by.parameters[name] * step) / h)
    for name, (up, down, analytic) in pairs.items():
        assert analytic == pytest.approx((up - down) / (2 * h), rel=rel, abs=abs), name


def likelihood_of(noise, y):
    """Log likelihood of draws of f (draws, n)."""
    return lambda f: (noise.log_likelihood(y, f) * noise.weight).sum(axis=1)


def factor_grid(K, factor):
    """Nodes of Gauss-Legendre between the kinks, and the log of prior times factor times weight (up to 3 points)."""
    x, w = np.polynomial.legendre.leggauss(12)
    ends = np.array([-9.0, -3.5, -1.0, 0.0, 1.0, 3.5, 9.0])
    half = np.diff(ends)[:, None] / 2
    side, weight = (ends[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    f = np.stack(np.meshgrid(*[side] * len(K), indexing="ij"), axis=-1).reshape(-1, len(K))
    cell = sum(np.meshgrid(*[np.log(weight)] * len(K), indexing="ij")).ravel()
    return f, multivariate_normal(np.zeros(len(K)), K).logpdf(f) + factor(f) + cell


# C, ε, squared lengthscale, bias variance, signal variance
LOW, HIGH = np.log([0.1, 0.001, 0.01, 0.001, 0.01]), np.log([1000, 2, 100, 1000, 100])
BETAS = (0.0, 1e-6, 0.01, 0.1, 0.3, 1.0)


def from_the_box(index, n=100):
    """A setting drawn log-uniformly from the whole range, on noisy sinc or on five inputs with repeated rows."""
    rng = np.random.default_rng(index)
    if index % 2:
        X = rng.normal(size=(n, 5))
        X[n // 2 : n // 2 + n // 5] = X[: n // 5]
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)
    else:
        X = rng.uniform(-10, 10, (n, 1))
        y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=n)
        y[rng.choice(n, n // 20, replace=False)] += 5 * rng.normal(size=n // 20)
        X = X / X.std()
    C, epsilon, squared, bias, signal = np.exp(rng.uniform(LOW, HIGH))
    beta = rng.choice(BETAS)
    distance = ((X[:, None] - X) ** 2).sum(-1)
    K = signal * np.exp(-0.5 * distance / squared) + bias + 1e-6 * np.eye(n)
    return K, y, soft_insensitive(C, epsilon, beta)


def duality_gap(K, y, noise, dual_coef):
    """Relative duality gap of Chu, Keerthi & Ong 2004, (17) and (29), from the dual coefficients only.

    It is infinite if a coefficient exceeds C.
    """
    wide = np.longdouble
    C, epsilon, beta = (wide(noise.parameters[name]) for name in ("C", "epsilon", "beta"))
    a = dual_coef.astype(wide)
    if np.abs(a).max() > C * (1 + wide(1e-12)):
        return np.inf
    f = K.astype(wide) @ a
    excess = np.abs(y - f) - (1 - beta) * epsilon
    width = 2 * beta * epsilon
    u = np.clip(excess / width, 0, 1) if width > 0 else np.asarray(excess >= 0, dtype=wide)
    loss = 0.5 * width * u**2 + np.maximum(excess - width, 0)
    quadratic = 0.5 * (a @ f)
    primal = C * loss.sum() + quadratic
    dual = y @ a - quadratic - ((1 - beta) * epsilon * np.abs(a) + beta * epsilon / C * a**2).sum()
    return float((primal - dual) / (1 + abs(primal) + abs(dual)))


def moment_mismatch(K, y, noise, dual_coef, site_precision):
    """Largest difference between the moments of the posterior and of the tilted distributions.

    Means in posterior standard deviations, variances relative (Gao, Gunn & Harris 2002, (3.10) and (3.12)).
    """
    mean = (K.astype(np.longdouble) @ dual_coef.astype(np.longdouble)).astype(float)
    root = np.sqrt(site_precision)
    factor = cholesky(np.eye(y.size) + root[:, None] * K * root, lower=True)
    half = solve_triangular(factor, root[:, None] * K, lower=True)
    kept = np.sum(solve_triangular(factor, np.eye(y.size), lower=True) ** 2, axis=0)  # Σ_ii over the cavity variance
    precise = site_precision * np.diag(K) > 1e-2
    variance = np.where(
        precise, (1 - kept) / np.where(precise, site_precision, 1), np.diag(K) - np.sum(half**2, axis=0)
    )
    cavity_variance = variance / kept
    _, tilted_mean, tilted_variance = noise.tilted(mean - cavity_variance * dual_coef, cavity_variance, y)
    return float(
        max(np.max(np.abs(tilted_mean - mean) / np.sqrt(variance)), np.max(np.abs(tilted_variance / variance - 1)))
    )

"""Problems used by benchmarks and tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.losses import NoiseModel, soft_insensitive

__all__ = ["data", "from_the_box", "wave", "with_ends"]

Array = NDArray[np.float64]

# C, ε, squared lengthscale, bias variance, signal variance
LOW, HIGH = np.log([0.1, 0.001, 0.01, 0.001, 0.01]), np.log([1000, 2, 100, 1000, 100])
BETAS = (0.0, 1e-6, 0.01, 0.1, 0.3, 1.0)


def wave(X: Array, weights: Array) -> Array:
    """A smooth function of all inputs."""
    out: Array = np.sin(2.0 * X @ weights) + 0.5 * np.cos(X[:, 0])
    return out


def data(n: int, d: int) -> tuple[Array, Array, Array, Array]:
    """Training inputs and targets, test inputs and noise-free targets."""
    weights = np.random.default_rng(d).normal(size=d)
    weights /= np.linalg.norm(weights)
    rng = np.random.default_rng(n + d)
    X, X_test = rng.normal(size=(n, d)), rng.normal(size=(1000, d))
    return X, wave(X, weights) + 0.2 * rng.normal(size=n), X_test, wave(X_test, weights)


def from_the_box(index: int, n: int = 100, jitter: float = 1e-6, ends: bool = False) -> tuple[Array, Array, NoiseModel]:
    """A setting drawn log-uniformly from the whole range, on noisy sinc or on five inputs with repeated rows.

    With ``ends`` most targets are known only to lie in intervals (`with_ends`).
    """
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
    K = signal * np.exp(-0.5 * distance / squared) + bias + jitter * np.eye(n)
    noise = soft_insensitive(C, epsilon, beta)
    return K, y, with_ends(index, y, noise) if ends else noise


def with_ends(index: int, y: Array, noise: NoiseModel) -> NoiseModel:
    """Ends around the targets: a quarter exact, a quarter censored on either side, and half of any width."""
    rng = np.random.default_rng([index, 1])
    kind = rng.integers(8, size=y.size)
    width = np.exp(rng.uniform(*np.log([1e-9, 10.0]), size=y.size))
    lower, upper = y - width * rng.random(y.size), y + width * rng.random(y.size)
    lower, upper = np.where(kind == 0, -np.inf, lower), np.where(kind == 1, np.inf, upper)
    return noise.between(np.where(kind > 5, y, lower), np.where(kind > 5, y, upper))

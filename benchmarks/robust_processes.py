"""Two robust Gaussian processes from the literature as peers: Student-t noise, and robust conjugate regression (RCGP).

Both have a Gaussian kernel with one lengthscale an input, and zero mean. Their hyperparameters (logarithms of the
amplitude, of the variance of the noise, and of the lengthscales) maximise an objective with its gradient, by L-BFGS
from one start, 0. Both posteriors are those of Gaussian targets z with one noise variance v a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

Array = NDArray[np.float64]

_BOUNDS = np.log([(1e-3, 1e3), (1e-5, 1e1), (1e-2, 1e3)])  # of amplitude, variance of the noise and lengthscales
_JITTER = 1e-8
_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class _Process:
    """A Gaussian process at hyperparameters, whose targets z have noise of variance v."""

    X: Array
    amplitude: float
    lengthscales: Array
    z: Array
    v: Array

    def kernel(self, X: Array) -> Array:
        """Covariances (m, n) of new inputs and the rows."""
        return self.amplitude * np.exp(-0.5 * cdist(X / self.lengthscales, self.X / self.lengthscales, "sqeuclidean"))

    def solved(self) -> tuple[Array, Array, Array, float]:
        """K, (K + diag v)⁻¹, its product with z, and the log determinant of K + diag v."""
        K = self.kernel(self.X)
        factor = cholesky(K + np.diag(self.v + _JITTER * self.amplitude), lower=True)
        inverse = cho_solve((factor, True), np.eye(len(K)))
        return K, inverse, inverse @ self.z, 2.0 * float(np.sum(np.log(np.diag(factor))))

    def gradient(self, G: Array, K: Array) -> tuple[float, Array]:
        """Derivatives by log amplitude and log lengthscales of a function whose derivative by K is G."""
        P, X = 0.5 * (G + G.T) * K, self.X / self.lengthscales
        return float(P.sum()), 2.0 * (P.sum(axis=1) @ X**2 - np.einsum("ik,ij,jk->k", X, P, X, optimize=True))

    def mean(self, X: Array) -> Array:
        """Posterior mean of the function at new inputs."""
        return self.kernel(X) @ self.solved()[2]


def _split(point: Array) -> tuple[float, float, Array]:
    """Amplitude, variance of the noise, and lengthscales."""
    values = np.exp(point)
    return float(values[0]), float(values[1]), values[2:]


def _maximised(objective: Callable[[Array], tuple[float, Array]], d: int, iterations: int) -> Array:
    """The best point of an objective with its gradient."""

    def negative(point: Array) -> tuple[float, Array]:
        value, gradient = objective(point)
        return -value, -gradient

    start = np.zeros(2 + d)  # a smaller variance of the noise leads RCGP to optima that are much worse
    bounds = [*_BOUNDS[:2], *[_BOUNDS[2]] * d]
    found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations})
    return np.asarray(found.x)


@dataclass
class StudentProcess:
    """A Gaussian process with Student-t noise of ``nu`` degrees of freedom, by variational inference (Kuss 2006).

    The noise is a scale mixture: y = f + N(0, σ²/λ), λ ~ Gamma(ν/2, ν/2). With q(f)·q(λ) the bound of the evidence is,
    for the optimal q(f), log N(y|0, K + σ²/E[λ]) and terms of λ; q(λ) is optimised at each point of the search.
    """

    nu: float = 4.0
    iterations: int = 100

    def bound(self, X: Array, y: Array, point: Array, rate: Array, updates: int = 100) -> tuple[float, Array, Array]:
        """The bound, its gradient by the hyperparameters, and the rates of q(λ), which start at ``rate`` (n,)."""
        amplitude, variance, lengthscales = _split(point)
        shape, alpha = 0.5 * (self.nu + 1.0), 0.5 * self.nu
        for _ in range(updates):
            v = variance * rate / shape
            process = _Process(X, amplitude, lengthscales, y, v)
            K, inverse, dual, log_det = process.solved()
            new = alpha + 0.5 * ((v * dual) ** 2 + v - v**2 * np.diag(inverse)) / variance
            if np.max(np.abs(np.log(new / rate))) < 1e-4:
                break
            rate = new
        of_scales = 0.5 * (digamma(shape) - np.log(shape)) + gammaln(shape) - gammaln(alpha) - 0.5 * digamma(shape)
        of_scales = of_scales - alpha * np.log(rate / alpha) - shape * (alpha - rate) / rate
        value = -0.5 * (y @ dual + log_det + len(y) * _LOG_2PI) + float(np.sum(of_scales))
        G = 0.5 * (np.outer(dual, dual) - inverse)
        by_amplitude, by_lengthscales = process.gradient(G, K)
        return value, np.r_[by_amplitude, np.diag(G) @ v, by_lengthscales], rate

    def fit(self, X: Array, y: Array) -> Self:
        """Choose hyperparameters and scales."""
        rate = np.full(len(y), 0.5 * (self.nu + 1.0))

        def objective(point: Array) -> tuple[float, Array]:
            nonlocal rate
            value, gradient, rate = self.bound(X, y, point, rate, 10)
            return value, gradient

        point = _maximised(objective, X.shape[1], self.iterations)
        rate = self.bound(X, y, point, rate)[2]
        amplitude, variance, lengthscales = _split(point)
        self.process_ = _Process(X, amplitude, lengthscales, y, variance * rate / (0.5 * (self.nu + 1.0)))
        return self

    def predict(self, X: Array) -> Array:
        """Posterior mean."""
        return self.process_.mean(X)


@dataclass
class RobustConjugateProcess:
    """Robust and conjugate Gaussian process regression (Altamirano, Briol & Knoblauch 2024).

    The loss is score matching with weights w² = β²/(1 + y²/c²), β² = σ²/2. As a function of f it is that of Gaussian
    targets z = y - σ²·d log w²/dy of variances v = σ⁴/(2w²). The hyperparameters maximise the leave-one-out densities
    of the targets; c is the quantile of |y| that a share ``wrong`` exceeds.
    """

    wrong: float = 0.1
    iterations: int = 200

    def targets(self, y: Array, variance: float) -> tuple[Array, Array]:
        """The Gaussian targets and their variances, both linear in the variance of the noise."""
        c2 = np.quantile(np.abs(y), 1.0 - self.wrong) ** 2
        return y + 2.0 * variance * y / (c2 + y**2), variance * (1.0 + y**2 / c2)

    def left_out(self, X: Array, y: Array, point: Array) -> tuple[float, Array]:
        """Sum of the leave-one-out log densities of the targets, and its gradient."""
        amplitude, variance, lengthscales = _split(point)
        z, v = self.targets(y, variance)
        process = _Process(X, amplitude, lengthscales, z, v)
        K, inverse, dual, _ = process.solved()
        precision = np.diag(inverse)
        residual = y - z + dual / precision
        spread = 1.0 / precision - v + variance
        value = -0.5 * float(np.sum(_LOG_2PI + np.log(spread) + residual**2 / spread))
        by_residual, by_spread = -residual / spread, 0.5 * (residual**2 / spread - 1.0) / spread
        by_dual = inverse @ (by_residual / precision)
        by_precision = -(by_residual * dual + by_spread) / precision**2
        G = -np.outer(by_dual, dual) - (inverse * by_precision) @ inverse  # by K + diag v
        by_amplitude, by_lengthscales = process.gradient(G, K)
        by_z, by_v = by_dual - by_residual, np.diag(G) - by_spread
        by_variance = (z - y) @ by_z + v @ by_v + variance * by_spread.sum()
        return value, np.r_[by_amplitude, by_variance, by_lengthscales]

    def fit(self, X: Array, y: Array) -> Self:
        """Choose the hyperparameters."""
        point = _maximised(lambda point: self.left_out(X, y, point), X.shape[1], self.iterations)
        amplitude, variance, lengthscales = _split(point)
        self.process_ = _Process(X, amplitude, lengthscales, *self.targets(y, variance))
        return self

    def predict(self, X: Array) -> Array:
        """Posterior mean."""
        return self.process_.mean(X)

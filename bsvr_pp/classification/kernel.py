"""The prior of `bp.BayesianSVC`: a Gaussian kernel with a length scale an input, and the variance of the offset.

    K(x, x') = amplitude·exp(-½ Σ_j (x_j - x'_j)²/lengthscale_j²) + offset

Hyperparameters are a vector of logs: C, amplitude, offset, then one length scale or one an input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.classification.gradient import MassGradient

__all__ = ["JITTER", "LabelPrior"]

Array = NDArray[np.float64]

JITTER = 1e-6  # share of the amplitude on the diagonal


@dataclass(frozen=True, slots=True)
class LabelPrior:
    """Kernel and C at given hyperparameters.

    Parameters
    ----------
    logs : (4,) or (3 + d,) array
        Logs of C, amplitude, offset and the length scales.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.kernel import LabelPrior
    >>> prior = LabelPrior(np.log([2.0, 1.0, 0.5, 1.0]))
    >>> prior.cross(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4).tolist()
    [[1.5, 1.1065]]
    """

    logs: Array

    @property
    def C(self) -> float:
        """Inverse noise scale."""
        return float(np.exp(self.logs[0]))

    @property
    def amplitude(self) -> float:
        """Variance of f without its offset."""
        return float(np.exp(self.logs[1]))

    @property
    def offset(self) -> float:
        """Variance of the offset, B² of Sollich 2002, (3)."""
        return float(np.exp(self.logs[2]))

    @property
    def lengthscale(self) -> Array:
        """Length scale of all inputs, (1,), or of each, (d,)."""
        scales: Array = np.exp(self.logs[3:])
        return scales

    def _shape(self, A: Array, B: Array) -> Array:
        a, b = A / self.lengthscale, B / self.lengthscale
        square = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * a @ b.T
        shape: Array = np.exp(-0.5 * np.maximum(square, 0.0))
        return shape

    def cross(self, A: Array, B: Array) -> Array:
        """Covariance of f at the rows of A with f at those of B."""
        return self.amplitude * self._shape(A, B) + self.offset

    def covariance(self, X: Array) -> Array:
        """Covariance of f at the training inputs, with its jitter."""
        shape = self._shape(X, X)
        shape[np.diag_indices_from(shape)] = 1.0 + JITTER
        return self.amplitude * shape + self.offset

    def variance(self, n: int) -> Array:
        """Variance of f at n new inputs."""
        return np.full(n, self.amplitude + self.offset)

    def gradient(self, X: Array, by: MassGradient) -> Array:
        """Chain rule from K and C to the logs."""
        part = by.K * (self.covariance(X) - self.offset)
        out = np.empty(self.logs.size)
        out[:3] = self.C * float(np.sum(by.C)), part.sum(), self.offset * by.K.sum()
        # Σ_kl part_kl (x_k - x_l)² for each input
        square = 2.0 * (part.sum(axis=1) @ (X * X) - np.einsum("kj,kl,lj->j", X, part, X, optimize=True))
        by_input = square / self.lengthscale**2
        out[3:] = by_input if self.logs.size == 3 + X.shape[1] else by_input.sum()
        return out

"""The prior of `bp.BayesianSVC`: a linear function, an offset, and a smooth deviation.

    K(x, x') = amplitude·exp(-½ |u - u'|²) + linear·u·u' + offset,    u_j = x_j/lengthscale_j

Without its linear part a smooth boundary takes a large amplitude and long length scales, which the evidence hardly
tells from shorter ones. Hyperparameters are a vector of logs: C, amplitude, offset, linear, then one length scale or
one an input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.classification.gradient import MassGradient

__all__ = ["JITTER", "LabelPrior"]

Array = NDArray[np.float64]

JITTER = 1e-6  # share of amplitude + linear on the diagonal
_FIRST = 4  # place of the length scales among the logs


@dataclass(frozen=True, slots=True)
class LabelPrior:
    """Kernel and C at given hyperparameters.

    Parameters
    ----------
    logs : (5,) or (4 + d,) array
        Logs of C, amplitude, offset, linear and the length scales.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.kernel import LabelPrior
    >>> prior = LabelPrior(np.log([2.0, 1.0, 0.5, 0.1, 1.0]))
    >>> prior.cross(np.array([[1.0]]), np.array([[1.0], [2.0]])).round(4).tolist()
    [[1.6, 1.3065]]
    """

    logs: Array

    @property
    def C(self) -> float:
        """Inverse noise scale."""
        return float(np.exp(self.logs[0]))

    @property
    def amplitude(self) -> float:
        """Variance of the deviation from a linear function."""
        return float(np.exp(self.logs[1]))

    @property
    def offset(self) -> float:
        """Variance of the offset, B² of Sollich 2002, (3)."""
        return float(np.exp(self.logs[2]))

    @property
    def linear(self) -> float:
        """Variance of the slopes of the linear part, a length scale of each input."""
        return float(np.exp(self.logs[3]))

    @property
    def lengthscale(self) -> Array:
        """Length scale of all inputs, (1,), or of each, (d,)."""
        scales: Array = np.exp(self.logs[_FIRST:])
        return scales

    @property
    def jitter(self) -> float:
        """The multiple of the identity in `covariance`."""
        return JITTER * (self.amplitude + self.linear)

    def _parts(self, A: Array, B: Array) -> tuple[Array, Array]:
        """Covariances of the deviation and of the linear part."""
        a, b = A / self.lengthscale, B / self.lengthscale
        product = a @ b.T
        square = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * product
        return self.amplitude * np.exp(-0.5 * np.maximum(square, 0.0)), self.linear * product

    def cross(self, A: Array, B: Array) -> Array:
        """Covariance of f at the rows of A with f at those of B."""
        deviation, line = self._parts(A, B)
        covariance: Array = deviation + line + self.offset
        return covariance

    def covariance(self, X: Array) -> Array:
        """Covariance of f at the training inputs, with its jitter."""
        K = self.cross(X, X)
        K[np.diag_indices_from(K)] = self.variance(X) + self.jitter
        return K

    def variance(self, X: Array) -> Array:
        """Variance of f at each row of X."""
        return np.asarray(self.amplitude + self.linear * ((X / self.lengthscale) ** 2).sum(axis=1) + self.offset)

    def gradient(self, X: Array, by: MassGradient) -> Array:
        """Chain rule from K and C to the logs."""
        deviation, line = (by.K * part for part in self._parts(X, X))
        trace = JITTER * float(np.trace(by.K))
        out = np.empty(self.logs.size)
        out[:2] = self.C * float(np.sum(by.C)), deviation.sum() + self.amplitude * trace
        out[2:_FIRST] = self.offset * by.K.sum(), line.sum() + self.linear * trace
        # of the linear part -2 Σ_kl by_kl·linear·x_k·x_l, of the deviation Σ_kl deviation_kl (x_k - x_l)²
        products = np.einsum("kj,kl,lj->j", X, deviation + self.linear * by.K, X, optimize=True)
        by_input = 2.0 * (deviation.sum(axis=1) @ (X * X) - products) / self.lengthscale**2
        out[_FIRST:] = by_input if self.logs.size == _FIRST + X.shape[1] else by_input.sum()
        return out

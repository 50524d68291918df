"""Gradients of Sollich's log masses as averages over draws (Sollich 2002, section 5).

For log M = log ∫ N(f; 0, K) q(f) df, and the average over the density under the integral,

    d log M/dC = <d log q/dC>,    d log M/dK = ½(<f̂ f̂ᵀ> - K⁻¹) = ½ <g f̂ᵀ>,    f̂ = K⁻¹f, g = d log q/df,

the last by parts: g is bounded by C, so that its average has the smaller error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from bsvr_pp.classification.factors import Factors

__all__ = ["MassGradient", "mass_gradient"]

Array = NDArray[np.float64]


class MassGradient(NamedTuple):
    """Gradient of a log mass: by the covariance, (n, n) and symmetric, and by C, a number or (n,) as C is."""

    K: Array
    C: float | Array

    def minus(self, other: MassGradient) -> MassGradient:
        """Gradient of a ratio of masses."""
        return MassGradient(self.K - other.K, self.C - other.C)


def mass_gradient(K: ArrayLike, factors: Factors, f: ArrayLike) -> MassGradient:
    """Gradient of log ∫ N(f; 0, K) q(f) df from draws of the density under the integral.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance, positive definite.
    factors : Factors
        q.
    f : (draws, n) array
        Draws, such as those of `bsvr_pp.classification.chaining.chained`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.chaining import chained
    >>> from bsvr_pp.classification.factors import Factors
    >>> factors = Factors("logistic", 1.0, [1.0])
    >>> gradient = mass_gradient([[1.0]], factors, chained([[1.0]], factors, random_seed=1).f)
    >>> bool(abs(gradient.C) < 0.05)  # the mass is ½ for every C
    True
    """
    covariance, draws = np.asarray(K, dtype=np.float64), np.asarray(f, dtype=np.float64)
    if covariance.ndim != 2 or draws.ndim != 2 or covariance.shape != (draws.shape[1],) * 2:
        raise ValueError(f"K must be (n, n) and f (draws, n), got shapes {covariance.shape} and {draws.shape}")
    by_f, by_C = factors.slopes(draws)
    # <g f̂ᵀ> = <g fᵀ>K⁻¹
    cross = cho_solve(cho_factor(covariance), draws.T @ by_f / len(draws))
    mean_C = by_C.mean(axis=0)
    return MassGradient(0.25 * (cross + cross.T), mean_C if np.ndim(factors.C) else float(mean_C.sum()))

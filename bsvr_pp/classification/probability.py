"""Class probabilities of Sollich's model: of the label at a latent value (11), and three predictions of it.

average  <P(y|f)> over the posterior of f (33)
mean     P(y|<f>) at the posterior mean (36)
map      P(y|f*) at the mode, the support vector classifier (37)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit

from bsvr_pp.checks import generator
from bsvr_pp.classification.chaining import prior_factor

__all__ = ["Draws", "average_probability", "label_probability", "log_odds"]

Array = NDArray[np.float64]

# Nodes of the standard normal; equal steps are exact to rounding for what is smooth on their scale.
_Z = np.linspace(-8.0, 8.0, 801)
_WEIGHT = np.exp(-0.5 * _Z**2)
_WEIGHT /= _WEIGHT.sum()
_CHUNK = 1000


def log_odds(f: ArrayLike, C: ArrayLike) -> Array:
    """Log of P(+1|f)/P(-1|f) at the latent value f: 2C·f up to |f| = 1, C·(f + sgn f) beyond (Sollich 2002, (11))."""
    value = np.asarray(f, dtype=np.float64)
    odds: Array = np.asarray(C, dtype=np.float64) * (value + np.clip(value, -1.0, 1.0))
    return odds


def label_probability(f: ArrayLike, C: ArrayLike) -> Array:
    """P(+1|f), the probability of the label +1 given that it is known (Sollich 2002, (10) and (11)).

    Examples
    --------
    >>> from bsvr_pp.classification.probability import label_probability
    >>> label_probability([-2.0, 0.0, 0.5], 2.0).round(4).tolist()
    [0.0025, 0.5, 0.8808]
    """
    return np.asarray(expit(log_odds(f, C)))


def average_probability(mean: ArrayLike, variance: ArrayLike, C: float) -> Array:
    """Average of P(+1|f) over a Gaussian posterior of f, elementwise (Sollich 2002, (33)).

    Examples
    --------
    >>> from bsvr_pp.classification.probability import average_probability
    >>> average_probability([0.5, 0.5, 0.0], [0.0, 1.0, 4.0], 2.0).round(4).tolist()
    [0.8808, 0.6755, 0.5]
    """
    m, v = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64))
    if not (v >= 0).all():
        raise ValueError(f"variance must be >= 0, got {v[~(v >= 0)].flat[0]}")
    flat, sd = np.ravel(m), np.sqrt(np.ravel(v))
    parts = [
        label_probability(flat[i : i + _CHUNK, None] + sd[i : i + _CHUNK, None] * _Z, C) @ _WEIGHT
        for i in range(0, flat.size, _CHUNK)
    ]
    found = np.concatenate(parts) if parts else flat
    return np.reshape(np.minimum(found, 1.0), m.shape)  # the weights sum to 1 up to rounding


@dataclass(frozen=True, slots=True)
class Draws:
    """A posterior of f as equally weighted draws at the training inputs.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance of the training inputs.
    f : (draws, n) array
        Draws, such as those of `bsvr_pp.classification.chaining.chained`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.probability import Draws
    >>> posterior = Draws(np.eye(2), np.array([[1.0, -1.0], [3.0, -1.0]]))
    >>> posterior.mean([[1.0, 0.0]]).round(6).tolist()
    [2.0]
    """

    K: Array
    f: Array
    _factor: Array = field(init=False, repr=False)
    _white: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        factor = prior_factor(self.K)
        if self.f.ndim != 2 or self.f.shape[1] != len(factor):
            raise ValueError(f"f must be a (draws, {len(factor)}) array, got shape {self.f.shape}")
        object.__setattr__(self, "_factor", factor)
        object.__setattr__(self, "_white", solve_triangular(factor, self.f.T, lower=True))

    def mean(self, K_star: ArrayLike) -> Array:
        """Posterior mean of f at new inputs, from their covariance with the training inputs (n_new, n)."""
        half = solve_triangular(self._factor, np.asarray(K_star, dtype=np.float64).T, lower=True)
        return np.asarray(half.T @ self._white.mean(axis=1))

    def sample(
        self, K_star: ArrayLike, k_star_diag: ArrayLike, random_seed: int | np.random.Generator | None = None
    ) -> Array:
        """One draw of f at new inputs for each draw at the training inputs, (draws, n_new)."""
        half = solve_triangular(self._factor, np.asarray(K_star, dtype=np.float64).T, lower=True)
        rest = np.maximum(np.asarray(k_star_diag) - np.einsum("ij,ij->j", half, half), 0.0)
        noise = generator(random_seed).standard_normal((len(self.f), rest.size))
        draws: Array = self._white.T @ half + np.sqrt(rest) * noise
        return draws

    def average_probability(
        self, K_star: ArrayLike, k_star_diag: ArrayLike, C: float, random_seed: int | np.random.Generator | None = None
    ) -> Array:
        """Average of P(+1|f) at new inputs over the posterior (33)."""
        return np.asarray(label_probability(self.sample(K_star, k_star_diag, random_seed), C).mean(axis=0))

"""A posterior of the latent function as draws: its mean, and draws of f, at new inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import generator, numbers
from bsvr_pp.approximations.covariance import Covariance, as_covariance

__all__ = ["LatentDraws"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatentDraws:
    """Equally weighted draws of f at the training inputs.

    Parameters
    ----------
    K : (n, n) array or Covariance
        Prior covariance of the training inputs.
    f : (draws, n) array
        Draws, such as those of `annealed`.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations.draws import LatentDraws
    >>> posterior = LatentDraws(np.eye(2), np.array([[1.0, -1.0], [3.0, -1.0]]))
    >>> posterior.mean([[1.0, 0.0]]).round(6).tolist()
    [2.0]
    """

    K: ArrayLike | Covariance
    f: Array
    _prior: Covariance = field(init=False, repr=False)
    _white: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        prior = as_covariance(self.K)
        draws = numbers("f", self.f, ("draws", prior.size))
        object.__setattr__(self, "_prior", prior)
        object.__setattr__(self, "_white", prior.whiten(draws.T))

    def mean(self, K_star: ArrayLike) -> Array:
        """Posterior mean of f at new inputs, from their covariance with the training inputs (n_new, n)."""
        half = self._prior.whiten(np.asarray(K_star, dtype=np.float64).T)
        return np.asarray(half.T @ self._white.mean(axis=1))

    def sample(
        self, K_star: ArrayLike, k_star_diag: ArrayLike, random_seed: int | np.random.Generator | None = None
    ) -> Array:
        """One draw of f at each new input (n_new) for each draw at the training inputs, (draws, n_new)."""
        half = self._prior.whiten(np.asarray(K_star, dtype=np.float64).T)
        rest = np.maximum(np.asarray(k_star_diag) - np.einsum("ij,ij->j", half, half), 0.0)
        noise = generator(random_seed).standard_normal((len(self.f), rest.size))
        draws: Array = self._white.T @ half + np.sqrt(rest) * noise
        return draws

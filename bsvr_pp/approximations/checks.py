"""Checks of the arguments that all approximations share: (K, y, noise, mean)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.checks import numbers
from bsvr_pp.compiler import compiled
from bsvr_pp.losses import NoiseModel
from bsvr_pp.pieces import Pieces

__all__ = ["check_noise", "checked_powers", "checked_prior", "checked_problem"]

Array = NDArray[np.float64]


@compiled
def _symmetry(K: Array) -> tuple[float, float, float]:
    """Largest |K - Kᵀ|, |K|, and |k_ij| beyond √(k_ii·k_jj); tile by tile, since columns are far apart in memory."""
    n, tile = K.shape[0], 64
    difference, largest, excess = 0.0, 0.0, 0.0
    sd = np.sqrt(np.diag(K))
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i + 1)):
                    size = abs(K[i, j])
                    difference = max(difference, abs(K[i, j] - K[j, i]))
                    largest = max(largest, size)
                    if size > (1.0 + 1e-8) * sd[i] * sd[j]:
                        excess = max(excess, size)
    return difference, largest, excess


def checked_prior(K: ArrayLike, mean: ArrayLike | None) -> tuple[Array, Array]:
    """The covariance (n, n) and the mean (n,), 0 by default.

    Raises
    ------
    ValueError
        Naming the argument, what it is and what is allowed.
    """
    covariance = numbers("K", K, ("n", "n"))
    n = covariance.shape[0]
    asymmetry, largest, excess = _symmetry(covariance)
    if asymmetry > 1e-8 * largest:
        raise ValueError(f"K must be symmetric, K - K.T reaches {asymmetry:.3g}")
    if (np.diag(covariance) < 0).any():
        raise ValueError(f"K must have no negative diagonal, got {np.diag(covariance).min():.3g}")
    if excess > 0.0:
        raise ValueError("K must be positive semidefinite, and has a covariance beyond the variances of its two points")
    offset = np.zeros(n) if mean is None else numbers("mean", mean, ("n",))
    if offset.size != n:
        raise ValueError(f"mean must have {n} values as K has rows, got {offset.size}")
    return covariance, offset


def checked_problem(
    K: ArrayLike, y: ArrayLike, noise: NoiseModel, mean: ArrayLike | None
) -> tuple[Array, Array, Array, Pieces]:
    """The covariance, y - mean, the mean and the sites, all of one length n.

    Raises
    ------
    ValueError
        Naming the argument, what it is and what is allowed.
    """
    check_noise(noise)
    targets = numbers("y", y, ("n",))
    covariance, offset = checked_prior(K, mean)
    if targets.size != offset.size:
        raise ValueError(f"y must have {offset.size} values as K has rows, got {targets.size}")
    return covariance, targets - offset, offset, noise.sites(targets)


def check_noise(noise: object) -> None:
    """Refuse what is not a noise model.

    Raises
    ------
    TypeError
        Saying what it is.
    """
    if not isinstance(noise, NoiseModel):
        raise TypeError(f"noise must be a noise model of bsvr_pp.losses, such as laplace(C=1.0), got {noise!r}")


def checked_powers(powers: ArrayLike) -> Array:
    """Powers of an annealing path: ascending from 0 to 1.

    Raises
    ------
    ValueError
        If they are something else.
    """
    ladder = numbers("powers", powers)
    if ladder.ndim != 1 or ladder.size < 2 or ladder[0] != 0 or ladder[-1] != 1 or not (np.diff(ladder) > 0).all():
        raise ValueError(f"powers must ascend from 0 to 1, got {powers!r}")
    return ladder

"""Checks of the arguments that all approximations share: (K, y, noise, mean)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.compiler import compiled
from bsvr_pp.pieces import Pieces

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["check_count", "checked_levels", "checked_prior", "checked_problem"]

Array = NDArray[np.float64]


def _floats(name: str, given: ArrayLike, n_axes: int) -> Array:
    try:
        array = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {type(given).__name__}") from None
    if np.ndim(given) != n_axes or array.size == 0:
        wanted = "(n,)" if n_axes == 1 else "(n, n)"
        raise ValueError(f"{name} must be an {wanted} array with n >= 1, got shape {np.shape(given)}")
    if not np.isfinite(array.sum()) and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


@compiled
def _asymmetry(K: Array) -> tuple[float, float]:
    """Largest |K - Kᵀ| and largest |K|, tile by tile, since columns are far apart in memory."""
    n, tile = K.shape[0], 64
    difference, largest = 0.0, 0.0
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i + 1)):
                    difference = max(difference, abs(K[i, j] - K[j, i]))
                    largest = max(largest, abs(K[i, j]))
    return difference, largest


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least ``least``.

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.
    """
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def checked_prior(K: ArrayLike, mean: ArrayLike | None) -> tuple[Array, Array]:
    """The covariance (n, n) and the mean (n,), 0 by default.

    Raises
    ------
    ValueError
        Naming the argument, what it is and what is allowed.
    """
    covariance = _floats("K", K, 2)
    n = covariance.shape[0]
    if covariance.shape != (n, n):
        raise ValueError(f"K must be an (n, n) array, got shape {covariance.shape}")
    asymmetry, largest = _asymmetry(covariance)
    if asymmetry > 1e-8 * largest:
        raise ValueError(f"K must be symmetric, K - K.T reaches {asymmetry:.3g}")
    if (np.diag(covariance) < 0).any():
        raise ValueError(f"K must have no negative diagonal, got {np.diag(covariance).min():.3g}")
    offset = np.zeros(n) if mean is None else _floats("mean", mean, 1)
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
    targets = _floats("y", y, 1)
    covariance, offset = checked_prior(K, mean)
    if targets.size != offset.size:
        raise ValueError(f"y must have {offset.size} values as K has rows, got {targets.size}")
    return covariance, targets - offset, offset, noise.sites(targets)


def checked_levels(quantiles: ArrayLike) -> Array:
    """Levels of quantiles as a vector of numbers between 0 and 1."""
    levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}")
    return levels

"""Checks of the common arguments of all approximations: (K, y, noise, mean)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.approximations.covariance import Covariance, as_covariance
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.pieces import Pieces

__all__ = ["check_noise", "checked_mean", "checked_powers", "checked_problem"]

Array = NDArray[np.float64]


def checked_mean(mean: ArrayLike | None, n: int) -> Array:
    """Check the prior mean (n,), which is 0 by default.

    Raises
    ------
    ValueError
        If it has another length, or is not finite.
    """
    offset = np.zeros(n) if mean is None else numbers("mean", mean, ("n",))
    if offset.size != n:
        raise ValueError(f"mean must have {n} values as K has rows, got {offset.size}")
    return offset


def checked_problem(
    K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, mean: ArrayLike | None
) -> tuple[Covariance, Array, Array, Pieces]:
    """Check the arguments, and return the covariance, y - mean, the mean and the sites, all of length n.

    Raises
    ------
    ValueError
        Naming the argument, what it is and what is allowed.
    """
    check_noise(noise)
    targets = numbers("y", y, ("n",))
    covariance = as_covariance(K)
    offset = checked_mean(mean, covariance.size)
    if targets.size != offset.size:
        raise ValueError(f"y must have {offset.size} values as K has rows, got {targets.size}")
    return covariance, noise.reference(targets) - offset, offset, noise.sites(targets)


def check_noise(noise: object) -> None:
    """Check that an object is a noise model.

    Raises
    ------
    TypeError
        If it is not.
    """
    if not isinstance(noise, NoiseModel):
        raise TypeError(f"noise must be a noise model of bsvr_pp.losses, such as laplace(C=1.0), got {noise!r}")


def checked_powers(powers: ArrayLike) -> Array:
    """Check the powers of an annealing path, which increase from 0 to 1.

    Raises
    ------
    ValueError
        If they do not.
    """
    ladder = numbers("powers", powers)
    if ladder.ndim != 1 or ladder.size < 2 or ladder[0] != 0 or ladder[-1] != 1 or not (np.diff(ladder) > 0).all():
        raise ValueError(f"powers must ascend from 0 to 1, got {powers!r}")
    return ladder

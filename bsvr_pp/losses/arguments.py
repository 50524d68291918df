"""Checks of the arguments of a noise model: parameters, ends of intervals, and arrays of one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.losses.tables import PARAMETERS

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["aligned", "check_targets", "check_variance", "checked_ends", "checked_parameter", "of_intervals"]

Array = NDArray[np.float64]


def checked_ends(lower: ArrayLike, upper: ArrayLike) -> Array:
    """Check the ends of intervals, and return them as an (n, 2) array.

    Raises
    ------
    ValueError
        Naming the end, its value and what is allowed.
    """
    low, high = (numbers(name, end, infinite=True) for name, end in (("lower", lower), ("upper", upper)))
    if low.ndim > 1 or high.ndim > 1 or not (low.size == high.size or 1 in (low.size, high.size)):
        raise ValueError(f"lower and upper must be (n,) arrays of one length, got shapes {low.shape} and {high.shape}")
    ends = np.stack(np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high)), axis=1)
    bad = ~(ends[:, 0] <= ends[:, 1])
    if bad.any():
        a, b = ends[bad][0]
        raise ValueError(f"lower must be at most upper, got {a} > {b} in row {np.flatnonzero(bad)[0]}")
    unknown = ~np.isfinite(ends).any(axis=1)
    if unknown.any():
        raise ValueError(
            f"lower or upper must be finite, got {tuple(ends[unknown][0].tolist())} in row "
            f"{np.flatnonzero(unknown)[0]}: drop targets of which nothing is known"
        )
    return ends


def checked_parameter(name: str, given: ArrayLike) -> float | Array:
    """Convert a parameter to a float or an (n,) array; a ValueError states the allowed values."""
    try:
        value = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an (n,) array, got {given!r}") from None
    if value.ndim > 1 or value.size == 0:
        raise ValueError(f"{name} must be a number or an (n,) array, got shape {value.shape}")
    parameter = PARAMETERS[name]
    bad = ~(np.isfinite(value) & parameter.holds(value))
    if bad.any():
        raise ValueError(
            f"{name} must be finite and {parameter.allowed}, got {np.atleast_1d(value)[np.atleast_1d(bad)][0]}"
        )
    return float(value) if value.ndim == 0 else value


def check_targets(noise: NoiseModel, targets: Array) -> None:
    """Check that there is a target for each point of a noise model, and that labels are labels.

    Raises
    ------
    ValueError
        Naming what differs.
    """
    if noise.ends is not None and len(noise.ends) != targets.size:
        raise ValueError(f"y must have {len(noise.ends)} values as there are intervals, got {targets.size}")
    if noise.n_points not in (None, 1, targets.size):
        raise ValueError(
            f"parameters of {noise.name} have {noise.n_points} values, y has {targets.size}: they must agree"
        )
    if noise.kind.classification and not np.isin(targets, (-1.0, 1.0)).all():
        odd = targets[~np.isin(targets, (-1.0, 1.0))][0]
        raise ValueError(f"y must hold the labels -1 and +1 for the {noise.name} loss, got {odd}")
    if noise.weight is not None and noise.weight.size != targets.size:
        raise ValueError(f"weight has {noise.weight.size} values, y has {targets.size}: they must agree")


def aligned(**given: ArrayLike) -> list[Array]:
    """Broadcast arguments to arrays of one shape."""
    arrays = {name: numbers(name, value) for name, value in given.items()}
    try:
        return [*np.broadcast_arrays(*arrays.values())]
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape, got {shapes}") from None


def check_variance(variance: Array) -> None:
    """Check that no variance is negative.

    Raises
    ------
    ValueError
        Naming the value.
    """
    if not (variance >= 0).all():
        raise ValueError(f"variance must be >= 0, got {variance[~(variance >= 0)].flat[0]}")


def of_intervals(n: int, *arrays: Array) -> list[Array]:
    """Broadcast arrays of one shape to the n intervals of a noise model.

    Raises
    ------
    ValueError
        If their length is another.
    """
    try:
        return [np.array(np.broadcast_to(array, (n,))) for array in arrays]
    except ValueError:
        raise ValueError(f"mean must have {n} values, one per interval, got {arrays[0].size}") from None

"""Checks of arguments: each refusal names the argument, its value and what is allowed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_count", "check_share", "check_size", "checked_levels", "generator", "is_number", "numbers"]

Array = NDArray[np.float64]

_LARGEST = 1e150  # so that squares are finite


def numbers(
    name: str, given: ArrayLike | None, shape: tuple[int | str, ...] | None = None, *, infinite: bool = False
) -> Array:
    """An argument as a C-contiguous array of real numbers, finite ones but where asked for.

    Parameters
    ----------
    name : str
        Of the argument.
    given : array_like
        Its value.
    shape : tuple, optional
        A number where an axis must have that length, a name where any length of at least 1 will do, the same wherever
        the name stands; () for a number. By default any shape.
    infinite : bool
        Whether ±inf is allowed.

    Raises
    ------
    ValueError
        If it is something else.

    Examples
    --------
    >>> from bsvr_pp.checks import numbers
    >>> numbers("X", [[1, 2]], ("n", "d"))
    array([[1., 2.]])
    >>> numbers("y", [1.0, float("nan")], ("n",))
    Traceback (most recent call last):
    ValueError: y must be finite, got nan
    """
    try:
        array = np.asarray(given)
        real = given is not None and array.dtype.kind != "c"
        array = np.asarray(array, dtype=np.float64, order="C") if real else np.empty(0)
    except (TypeError, ValueError):
        real = False
    if not real:
        kind = given.dtype if isinstance(given, np.ndarray) else type(given).__name__
        raise ValueError(f"{name} must be an array of numbers, got {kind}")
    if shape is not None:
        sizes: dict[str, int] = {}
        pairs = zip(shape, array.shape, strict=False)
        wanted = [sizes.setdefault(axis, size) if isinstance(axis, str) else axis for axis, size in pairs]
        if not shape and array.ndim:
            raise ValueError(f"{name} must be a number, got shape {array.shape}")
        if array.ndim != len(shape) or tuple(wanted) != array.shape:
            article, axes = "an" if str(shape[0])[0] in "nl" else "a", str(shape).replace("'", "")
            raise ValueError(f"{name} must be {article} {axes} array, got shape {array.shape}")
        if array.size == 0:
            raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    with np.errstate(all="ignore"):
        finite = bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())  # the sum is quick
    if not finite and (not infinite or np.isnan(array).any()):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def is_number(value: object) -> bool:
    """Whether a value is a finite number, and not True or False."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least ``least``.

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_share(name: str, value: object) -> None:
    """Refuse what is not a number strictly between 0 and 1.

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.
    """
    if not is_number(value) or not 0 < value < 1:  # type: ignore[operator]
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def check_size(name: str, values: Array) -> None:
    """Refuse data whose squares overflow.

    Raises
    ------
    ValueError
        Naming the argument and the value.
    """
    if values.size and np.abs(values).max() > _LARGEST:
        raise ValueError(f"{name} must stay within ±{_LARGEST:g}, got {np.abs(values).max():g}: use other units")


def checked_levels(quantiles: ArrayLike) -> Array:
    """Levels of quantiles as a vector of numbers strictly between 0 and 1.

    Raises
    ------
    ValueError
        If they are something else.
    """
    levels = np.atleast_1d(numbers("quantiles", quantiles))
    if levels.ndim != 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}")
    return levels


def generator(random_seed: int | np.random.Generator | None) -> np.random.Generator:
    """The generator of a seed.

    Raises
    ------
    ValueError
        If it is no seed.
    """
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_seed must be an integer of at least 0, a Generator or None, got {random_seed!r}"
        ) from None

"""Types of arrays and graphs, errors, checks of arguments, and warnings.

Each error names the argument, its value and what is allowed; a warning names the line of the caller.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd
    from pytensor.tensor.variable import TensorVariable


Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.generic]  # of any type
type Tensor = TensorVariable
type Number = TensorVariable | Array | float  # arithmetic of numbers or graphs

_PACKAGE = str(Path(__file__).parents[1])  # warnings do not name its lines
_LARGEST = 1e150  # so that squares are finite
_SMALLEST = 1e-150  # so that squares of differences are not 0
_ROUNDING = 1e-12  # of the largest value: smaller differences have lost most of their digits


class ModelError(ValueError):
    """The inference cannot be applied to the model; the message states what to change."""


class NotRead(ModelError):
    """The model is none that methods of this package read; `bp.NUTS()` samples it as PyMC does."""


def _index_of(data: Any, axis: int) -> pd.Index | None:
    """Return the labels of an axis of an array of xarray, if it has some; None of other data."""
    known = type(data).__name__ == "DataArray" and data.ndim > axis
    return data.indexes.get(data.dims[axis]) if known else None


def names_of(table: object) -> tuple[str, ...]:
    """Return names of the columns of a table, or words that label those of an array; none of anything else."""
    labels = _index_of(table, 1) if getattr(table, "ndim", 0) == 2 else None
    words = () if labels is None or labels.dtype.kind not in "OTU" else labels
    return tuple(map(str, getattr(table, "columns", words)))


def check_names(name: str, table: object, names: tuple[str, ...]) -> None:
    """Check that a table, if given, has the columns of these names, if any, in their order."""
    given = names_of(table) if names else ()
    if names and not given and {*names_of(getattr(table, "T", None))} == {*names}:
        given = ("rows of these names",)
    if given and given != names:
        raise ValueError(f"{name} must have the columns {', '.join(names)}, in this order, got {', '.join(given)}")


def check_unmasked(name: str, given: object) -> None:
    """Check that no entry is masked: the numbers below a mask would be used as data."""
    if isinstance(given, np.ma.MaskedArray) and (count := np.ma.count_masked(given)):
        raise ValueError(f"{name} must have no masked entries, got {count}: leave them out, or fill them")


def check_no_times(name: str, dtype: np.dtype) -> None:
    """Check that data are no dates or durations, whose numbers count any unit of time."""
    if dtype.kind in "mM":
        raise ValueError(f"{name} must be numbers, got {dtype}: subtract a date, and divide by a unit of time")


def numbers(
    name: str, given: ArrayLike | None, shape: tuple[int | str, ...] | None = None, *, infinite: bool = False
) -> Array:
    """Convert to a C-contiguous array of real numbers; they must be finite unless ``infinite`` is set.

    In ``shape`` a number is the length of an axis. A name is any length of at least 1, the same for equal names. () is
    a single number, and None any shape.
    """
    check_unmasked(name, given)
    try:
        array = np.asarray(given)
        real = given is not None and array.dtype.kind not in "cmM"  # whose numbers count any unit of time
        array = np.asarray(array, dtype=np.float64, order="C") if real else np.empty(0)
    except (TypeError, ValueError):
        real = False
    if not real:
        kind = getattr(given, "dtype", type(given).__name__)
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
        finite = bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())  # the sum is a fast first check
    if not finite and (not infinite or np.isnan(array).any()):
        raise ValueError(f"{name} must be finite, got {array[np.isnan(array) if infinite else ~np.isfinite(array)][0]}")
    return array


def is_number(value: object) -> bool:
    """Return whether a value is a finite number, and not True or False."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    """Check that a value is one of several names."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Check that an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_fields(name: str, record: object, wanted: Collection[str]) -> dict[str, Any]:
    """Check that a record of a file has exactly the ``wanted`` fields; return them in this order."""
    found = record if isinstance(record, dict) else {}
    for kind, names in (("lacks", set(wanted) - set(found)), ("has the unknown", set(found) - set(wanted))):
        if names or not isinstance(record, dict):
            raise ValueError(f"{name} {kind} {', '.join(sorted(names))}: it is damaged, or of another version")
    return {field: found[field] for field in wanted}


def check_count(name: str, value: object, least: int) -> None:
    """Check that a value is an integer of at least ``least``."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_jitter(jitter: object) -> None:
    """Check the number that is added to the diagonal of a covariance."""
    if not (is_number(jitter) and jitter >= 0):  # type: ignore[operator]
        raise ValueError(f"jitter must be a number of at least 0, got {jitter!r}")


def check_positive(name: str, values: Array, *, or_zero: bool = False) -> None:
    """Check that all numbers of an array are > 0, or >= 0."""
    good = values >= 0 if or_zero else values > 0
    if not good.all():
        raise ValueError(f"{name} must be {'>=' if or_zero else '>'} 0, got {values[~good].flat[0]}")


def check_share(name: str, value: object, *, closed: bool = False) -> None:
    """Check that a value is a number strictly between 0 and 1, or with ``closed`` also one of these."""
    if not (is_number(value) and (0 < value < 1 or (closed and value in (0, 1)))):  # type: ignore[operator]
        raise ValueError(f"{name} must lie {'' if closed else 'strictly '}between 0 and 1, got {value!r}")


def check_size(name: str, values: Array) -> None:
    """Check that the squares of data do not overflow."""
    # A float: the bound is beyond the range of 32-bit numbers.
    largest = max(float(values.max()), -float(values.min())) if values.size else 0.0  # without a copy of the data
    if largest > _LARGEST:
        raise ValueError(f"{name} must stay within ±{_LARGEST:g}, got {largest:g}: use other units")


def check_spread(name: str, values: Array, least: float = _ROUNDING) -> None:
    """Check the size of finite training data, (n,) or (n, d), and that their spread is not below ``least`` of it."""
    check_size(name, values)
    columns = values.reshape(len(values), -1)
    low, high = columns.min(axis=0), columns.max(axis=0)
    size, varies = np.maximum(np.abs(low), np.abs(high)), high > low
    scale = np.where(size > 0, size, 1.0)
    spread = scale * np.std(columns / scale, axis=0)
    for j in np.flatnonzero(varies & (spread < least * size)):
        raise ValueError(
            f"{name} must have a standard deviation of at least {least:g} of its size, got {spread[j]:g} at "
            f"{size[j]:g}: the differences are lost in rounding, subtract an offset"
        )
    for j in np.flatnonzero(varies & (spread < _SMALLEST)):
        raise ValueError(
            f"{name} must have a standard deviation of at least {_SMALLEST:g}, got {spread[j]:g}: use other units"
        )


def check_varies(name: str, values: Array) -> None:
    """Check that the targets are not all equal, since they would have no scale."""
    if np.ptp(values) == 0:
        raise ValueError(f"{name} must not be constant, got {values[0]} throughout")


def checked_levels(quantiles: ArrayLike) -> Array:
    """Convert levels of quantiles to a vector of numbers strictly between 0 and 1."""
    levels = np.atleast_1d(numbers("quantiles", quantiles))
    if levels.ndim != 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}")
    return levels


def checked_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Check the weights of n rows: numbers of at least 0, or one number for all; by default 1."""
    if sample_weight is None:
        return np.ones(n)
    given = np.full(n, sample_weight) if is_number(sample_weight) else sample_weight
    weight = numbers("sample_weight", given, ("n",))
    if weight.size != n:
        raise ValueError(f"sample_weight must have {n} values as X has rows, got {weight.size}")
    check_positive("sample_weight", weight, or_zero=True)
    if not weight.any():
        raise ValueError("sample_weight must not be zero for all rows")
    return weight


def labels_of(data: object) -> pd.Index | None:
    """Return the row labels of data of pandas, xarray or Dask, None of other data."""
    of_array = _index_of(data, 0)
    index = getattr(data, "index", None) if of_array is None else of_array
    known = getattr(index, "compute", lambda: index)()
    return known if hasattr(known, "equals") else None


def check_order(X: object, /, **others: object) -> None:
    """Check that data with the row labels of X have them in its order: rows are matched by their places."""
    known = {name: labels_of(given) for name, given in others.items()}
    labels = labels_of(X) if any(own is not None for own in known.values()) else None
    for name, own in known.items():
        if own is None or labels is None or own.equals(labels):
            continue
        moved = (i for i, (one, other) in enumerate(zip(own, labels, strict=True)) if one != other)
        if own.size == labels.size and Counter(own) == Counter(labels) and (i := next(moved, None)) is not None:
            raise ValueError(
                f"{name} has the row labels of X in another order, {own[i]} beside {labels[i]} at row {i}: use "
                f"{name}.loc[X.index] if labels say which rows belong together, and {name}.to_numpy() if places do"
            )


def agree(found: Array, expected: Array, tolerance: float) -> bool:
    """Return whether two arrays differ by at most the ``tolerance`` times the largest finite expected number."""
    largest = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, 0.0, tolerance * largest, True)


def mixed_rows(seed: int, X: Array, y: Array, *first: Array) -> Rows:
    """Return rows of X (n, d) and y (n,) in a random order that does not depend on theirs; ``first`` sorts first."""
    order = np.lexsort((y, np.einsum("ij,j", X, np.cos(np.arange(X.shape[1]))), *first))
    return order[np.random.default_rng(seed).permutation(order.size)]


def generator(random_seed: int | np.random.Generator | None, name: str = "random_seed") -> np.random.Generator:
    """Return the random number generator of a seed."""
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an integer of at least 0, a Generator or None, got {random_seed!r}") from None


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package from which it was called."""
    warnings.warn(message, kind, skip_file_prefixes=(_PACKAGE,))

"""Checks and scales used by all estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from bsvr_pp._checks import check_share, check_size, check_spread, check_varies

__all__ = ["ends", "seeded", "validated", "widths"]

Array = NDArray[np.float64]


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Data as arrays of numbers, by scikit-learn's checks; words among them are refused by name.

    Training data, which come with y, must vary by more than rounding, and numeric targets must not be constant.
    """
    try:
        if not isinstance(y, str) and options.get("y_numeric") and np.asarray(y).dtype.kind in "US":
            y = np.asarray(y).astype(np.float64)
        found = validate_data(estimator, X, y, dtype=np.float64, **options)
    except (TypeError, ValueError) as error:
        if "float" not in str(error):
            raise
        raise type(error)(f"X and y must be arrays of numbers: {error}") from None
    for name, values in zip("Xy", found if isinstance(found, tuple) else (found,), strict=False):
        if values.dtype.kind == "f":
            check_size(name, values)
            if isinstance(found, tuple):
                check_spread(name, values)
    if isinstance(found, tuple) and options.get("y_numeric"):
        check_varies("y", found[1])
    return found


def seeded(random_state: Any) -> np.random.Generator:
    """Return the generator of a random_state as in scikit-learn."""
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise ValueError(
            f"random_state must be an integer of at least 0, a RandomState or None, got {random_state!r}"
        ) from None


def ends(coverage: Any) -> list[float]:
    """Levels of the ends of the central interval of a given coverage."""
    check_share("coverage", coverage)
    return [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]


def widths(values: Array, weight: Array | None = None) -> Array:
    """Standard deviation of each column, of rows with weights; 1 for a constant column."""
    spread = np.sqrt(np.average((values - np.average(values, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
    tiny = 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    out: Array = np.where(spread > tiny, spread, 1.0)
    return out

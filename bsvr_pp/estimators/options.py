"""Checks and scales that the estimators share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ends", "is_number", "widths"]

Array = NDArray[np.float64]


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and not True or False."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def ends(coverage: Any) -> list[float]:
    """Levels of the ends of the central interval of a given coverage."""
    if not (is_number(coverage) and 0 < coverage < 1):
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
    return [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]


def widths(values: Array) -> Array:
    """Standard deviation of each column; 1 where a column does not vary."""
    spread = values.std(axis=0)
    tiny = 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    out: Array = np.where(spread > tiny, spread, 1.0)
    return out

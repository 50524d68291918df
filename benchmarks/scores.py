"""The continuous ranked probability score of all benchmarks, from 99 quantiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS = np.linspace(0.01, 0.99, 99)


def crps(y: Array, quantiles: Array) -> float:
    """Mean score of targets (m,) from their quantiles at `LEVELS` (99, m), in the units of y."""
    excess = y - quantiles
    loss = np.maximum(LEVELS[:, None] * excess, (LEVELS[:, None] - 1.0) * excess)
    return float(2.0 * np.mean(loss))

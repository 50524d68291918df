"""Maximisation with noisy gradients: Adam (Kingma & Ba 2015) with decreasing steps.

`bsvr_pp.inference.quasi_newton` needs consistent values and gradients, which averages over particles do not give.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["stochastic_ascent"]

Array = NDArray[np.float64]

_DECAY, _DECAY_SQUARE = 0.8, 0.95


def stochastic_ascent(
    gradient: Callable[[Array], Array], start: Array, *, steps: int, rate: float = 0.2
) -> tuple[Array, Array]:
    """Maximise a function with unbiased, noisy gradients.

    Parameters
    ----------
    gradient : callable
        Function that returns a noisy gradient at a point.
    start : (k,) array
        Start point.
    steps : int
        Number of steps, at least 1.
    rate : float
        Size of the first steps; in the second half it decreases to 0.

    Returns
    -------
    (k,) array, (steps, k) array
        The average of the last third of the steps, and the points after each step.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.inference.stochastic import stochastic_ascent
    >>> rng = np.random.default_rng(0)
    >>> best, _ = stochastic_ascent(lambda x: 3.0 - x + 0.1 * rng.standard_normal(1), np.zeros(1), steps=200)
    >>> bool(abs(best[0] - 3.0) < 0.1)
    True
    """
    x, first, second = np.array(start, dtype=np.float64), np.zeros(start.size), np.zeros(start.size)
    trace = np.empty((steps, start.size))
    for step in range(steps):
        slope = gradient(x)
        first += (1 - _DECAY) * (slope - first)
        second += (1 - _DECAY_SQUARE) * (slope**2 - second)
        size = np.sqrt(second / (1 - _DECAY_SQUARE ** (step + 1))) + 1e-12
        x = x + rate * min(1.0, 2.0 * (1.0 - step / steps)) * first / (1 - _DECAY ** (step + 1)) / size
        trace[step] = x
    return trace[-max(steps // 3, 1) :].mean(axis=0), trace

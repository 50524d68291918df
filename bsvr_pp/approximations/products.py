"""Products K·a that keep their digits under a large bias variance.

With a bias variance of 10⁶ every entry of K is about 10⁶ while the dual coefficients sum to about 0: K·a cancels, and
residuals would be known to 1e-6 at best. Here the constant is a term of its own, and only the sum of a, taken without
rounding errors, meets it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.compiler import compiled

__all__ = ["add", "product", "total", "without_level"]

Array = NDArray[np.float64]


@compiled
def without_level(K: Array) -> tuple[Array, float]:
    """K less its smallest entry, and that entry, where it is large: a bias variance cancels digits in K·a.

    Both parts are exact, as the difference of numbers within a factor of two is.
    """
    level = K[0].min()
    if level < 10.0 * (K[0, 0] - level):
        return K, 0.0
    level = K.min()
    if level < 10.0 * (K.max() - level):
        return K, 0.0
    return K - level, level


@compiled
def product(rest: Array, level: float, x: Array) -> Array:
    """(rest + level)·x over the nonzero entries of x alone."""
    used = np.flatnonzero(x)
    if 2 * used.shape[0] > x.shape[0]:
        out = np.dot(rest, x)
    else:
        out = np.zeros(x.shape[0])
        for j in used:
            out += x[j] * rest[j]
    if level > 0.0:
        out += level * total(x)
    return out


@compiled
def add(a: Array, size: float, step: Array, block: NDArray[np.int64], level: float) -> None:
    """Add size·step to a; what rounding takes from the sum goes to the smallest coefficient of the block.

    A large constant in K multiplies that sum, and the smallest coefficient has the finest rounding.
    """
    lost = 0.0
    for i in range(a.shape[0]):
        move = size * step[i]
        new = a[i] + move
        back = new - a[i]
        lost += (a[i] - (new - back)) + (move - back)
        a[i] = new
    if level > 0.0 and block.shape[0] > 0:
        least = block[np.argmin(np.abs(a[block]))]
        a[least] += lost


@compiled
def total(x: Array) -> float:
    """Sum of x with the rounding errors of each addition kept (Neumaier)."""
    running, lost = 0.0, 0.0
    for value in x:
        new = running + value
        lost += (running - new) + value if abs(running) >= abs(value) else (value - new) + running
        running = new
    return running + lost

"""The Moreau envelope of the energies, and the exact line search on it.

A kink has no curvature for a Newton step. The envelope min_e E(r - e) + e²/(2h) has one, has the same range of slopes,
and is equal to E for h = 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._compiler import compiled
from bsvr_pp.losses.intervals import interval_energy, is_interval
from bsvr_pp.losses.pieces import Pieces

__all__ = ["line_search", "ramps", "subgradient"]

Array = NDArray[np.float64]


@compiled
def subgradient(s: float, h: float, k: int, knots: Array, slope: Array, curvature: Array) -> tuple[float, float]:
    """Slope a of the envelope of energy k at s = r + h·a, and da/ds; whole tables, because rows of them cost time."""
    m = knots.shape[1]
    if s < knots[k, 0] + h * slope[k, 0]:
        rate = curvature[k, 0] / (1.0 + h * curvature[k, 0])
        return slope[k, 0] + rate * (s - knots[k, 0] - h * slope[k, 0]), rate
    for j in range(1, m):
        end = knots[k, j] + h * slope[k, j + 1]
        if s < end:
            jump = slope[k, j + 1] - slope[k, j]
            if jump <= 0.0:
                return slope[k, j], 0.0
            start = knots[k, j - 1] + h * slope[k, j]
            rate = jump / (end - start)
            # From the nearer end: a must reach the bound without rounding errors.
            if s - start < end - s:
                return slope[k, j] + rate * (s - start), rate
            return slope[k, j + 1] - rate * (end - s), rate
    last = float(curvature[k, m] / (1.0 + h * curvature[k, m]))
    return slope[k, m] + last * (s - knots[k, m - 1] - h * slope[k, m]), last


@compiled
def ramps(h: float, pieces: Pieces) -> tuple[Array, Array, Array, Array, Array]:
    """The slope of each envelope as a sum of ramps, which is fast to evaluate.

    Curved pieces and kinks rise by ``rise`` from ``low`` to ``high``, at ``rate``; returns the first slope (k,), and
    low, high, rate, rise (k, ramps).
    """
    knots, slope, curvature = pieces.knots, pieces.slope, pieces.curvature
    k, m = knots.shape
    low, high, rate, rise = (np.zeros((k, m + 1)), np.zeros((k, m + 1)), np.zeros((k, m + 1)), np.zeros((k, m + 1)))
    used = 0
    for j in range(m + 1):
        some = False
        for row in range(k):
            if 0 < j < m:
                low[row, used] = knots[row, j - 1] + h * slope[row, j]
                high[row, used] = knots[row, j] + h * slope[row, j + 1]
                rise[row, used] = max(slope[row, j + 1] - slope[row, j], 0.0)
                rate[row, used] = rise[row, used] / (high[row, used] - low[row, used]) if rise[row, used] > 0.0 else 0.0
            else:
                end = knots[row, max(j - 1, 0)] + h * slope[row, j]
                low[row, used], high[row, used] = (-np.inf, end) if j == 0 else (end, np.inf)
                rate[row, used] = curvature[row, j] / (1.0 + h * curvature[row, j])
                rise[row, used] = 0.0
            some = some or rate[row, used] > 0.0
        used += some
    first = slope[:, 0].copy()
    return first, low[:, :used].copy(), high[:, :used].copy(), rate[:, :used].copy(), rise[:, :used].copy()


@compiled
def line_search(
    r: Array,
    a: Array,
    step: Array,
    change: Array,
    noise: float,
    rising: tuple[Array, Array, Array, Array, Array],
    pieces: Pieces,
) -> float:
    """Find the minimum along a + size·step of the objective, whose derivative is increasing and piecewise linear.

    ``r`` = t - K·a; ``change`` = K·step has errors up to ``noise``. If K is singular, a full step may not change f, and
    rounding errors must not shorten such a step. With intervals the derivative is increasing and smooth in between.
    """
    accuracy = 1e-14 if pieces.ends.shape[0] == 0 else 1e-11
    first, lows, highs, rates, rises = rising
    low, high, size = 0.0, np.inf, 1.0
    curvature = np.dot(step, change)
    slope_at_start = np.dot(a, change)
    for _ in range(100):
        slope, rise = slope_at_start + size * curvature, curvature
        scale, doubt = abs(slope_at_start), 0.0
        for i in range(r.shape[0]):
            k = i if first.shape[0] > 1 else 0
            s = r[i] - size * change[i]
            if is_interval(i, pieces.ends):
                _, value, rate = interval_energy(s, i, k, pieces)
                slope -= value * change[i]
                scale += abs(value * change[i])
                rise += rate * change[i] * change[i]
                continue
            value, rate = first[k], 0.0
            for q in range(lows.shape[1]):
                if s >= highs[k, q]:
                    value += rises[k, q]
                elif s > lows[k, q]:
                    up, down = s - lows[k, q], highs[k, q] - s
                    # From the nearer end, as in subgradient.
                    value += rates[k, q] * up if up < down else rises[k, q] - rates[k, q] * down
                    rate += rates[k, q]
            slope -= value * change[i]
            scale += abs(value * change[i])
            doubt += rate * abs(change[i]) * noise
            rise += rate * change[i] * change[i]
        if abs(slope) <= accuracy * scale + doubt:
            return size
        if slope < 0.0:
            low = size
        else:
            high = size
        trial = size - slope / rise if rise > 0.0 else 2.0 * size
        if not (low < trial < high):
            trial = 0.5 * (low + high) if high < np.inf else 2.0 * low
        if abs(trial - size) <= 1e-15 * size or trial > 1e8:
            return size
        size = trial
    return low

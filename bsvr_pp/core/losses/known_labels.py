"""The factor of a label whose log odds are piecewise linear in f: moments of a Gaussian times it.

The factor is (1 + exp(E))^-w, where E is minus the log odds of the label and w its weight. For the hinge, normalised at
each point, E = C·[hinge(y·f) - hinge(-y·f)] has the slope 2C in the gap |f| < 1 and C outside (Sollich 2002, (11)). The
log of Gaussian times factor is concave on each piece, so that its mass lies around its maximum there; at y·f = -1 the
factor is not log-concave, and the product may have a larger variance than the Gaussian. The integrals are sums over
panels of Gauss-Legendre nodes, narrow where E is near 0, with errors about 1e-10.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, pi, sqrt

from numba import types

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, compiled, separate
from bsvr_pp.core.losses.pieces import FEW_NODES, FEW_WEIGHTS, ROW, Row, extent, reach

_NEGLIGIBLE = 45.0  # a piece whose peak is below e⁻⁴⁵ of the largest is ignored
_STEPS = 40  # largest number of steps to the maximum on a piece
_PANEL = 3.0  # largest width of a panel, in standard deviations of the Gaussian
_CHANGE, _MOST = 4.0, 12.0  # largest change of E on a panel at E = 0, and anywhere


@compiled
def log_share(energy: float) -> tuple[float, float]:
    """Log of 1/(1 + exp(E)), and minus its derivative by E."""
    small = exp(-abs(energy))
    return -max(energy, 0.0) - log1p(small), (1.0 if energy > 0.0 else small) / (1.0 + small)


@compiled
def _peak(shift: float, variance: float, count: float, value: float, slope: float, low: float, high: float) -> float:
    """Maximum of the concave -(s + shift)²/(2·variance) - count·log(1 + exp(value + slope·s)) on [low, high]."""
    ends = -shift, -shift - variance * count * slope  # where the share is 0, and 1
    left, right = min(ends), max(ends)
    if left >= high:
        return high
    if right <= low:
        return low
    left, right = max(left, low), min(right, high)
    s = min(max(-shift, left), right)
    for _ in range(_STEPS):
        _, share = log_share(value + slope * s)
        rise = -(s + shift) / variance - count * share * slope
        if rise > 0.0:
            left = s
        else:
            right = s
        step = rise / (1.0 / variance + count * share * (1.0 - share) * slope * slope)
        new = s + step
        if not left < new < right:
            new = 0.5 * (left + right)
        if abs(new - s) <= 1e-3 * sqrt(variance):
            return new
        s = new
    return s


@separate(types.UniTuple(types.float64, 4), types.float64, types.float64, types.float64, ROW, MATRIX)
def tilted_label(
    mean: float, variance: float, count: float, row: Row, moments: Array
) -> tuple[float, float, float, float]:
    """Moments of a Gaussian of s = t - f times (1 + exp(E(s)))^-count, for a linear E on each piece.

    Returns the log of the integral, the mean of s - mean, the variance of s, and the derivative of the log of the
    integral by the mean of f. ``moments`` (m+1, 3) is filled as by `tilted_row`, with shares times count(1 - p) of the
    probability p of the label.
    """
    knots, at_knots, slope, _ = row
    pieces, top = slope.shape[0], -inf
    for j in range(pieces):
        anchor, low, high = extent(j, knots)
        moments[j, 0], moments[j, 1], moments[j, 2] = 0.0, 0.0, -inf
        if low < high:
            shift, value = anchor - mean, at_knots[max(j - 1, 0)]
            place = _peak(shift, variance, count, value, slope[j], low, high)
            level = -0.5 * (place + shift) ** 2 / variance + count * log_share(value + slope[j] * place)[0]
            moments[j, 1], moments[j, 2] = place, level
            top = max(top, level)
    mass, first, second, rise = 0.0, 0.0, 0.0, 0.0
    for j in range(pieces):
        place, level = moments[j, 1], moments[j, 2]
        moments[j, 1] = moments[j, 2] = 0.0
        if level < top - _NEGLIGIBLE:
            continue
        anchor, low, high = extent(j, knots)
        shift, value = anchor - mean, at_knots[max(j - 1, 0)]
        steep = -(place + shift) / variance - count * log_share(value + slope[j] * place)[1] * slope[j]
        low = max(low, place - reach(max(steep, 0.0), 1.0 / variance))
        high = min(high, place + reach(max(-steep, 0.0), 1.0 / variance))
        unit = knots[j] - knots[j - 1] if 0 < j < pieces - 1 else 1.0
        by_share, by_first, by_second = 0.0, 0.0, 0.0
        s = low
        while s < high:
            change = min(_CHANGE + 0.5 * abs(value + slope[j] * s), _MOST) / max(count, 1.0)
            width = min(high - s, _PANEL * sqrt(variance), change / abs(slope[j]))
            for i in range(FEW_NODES.shape[0]):
                at = s + width * FEW_NODES[i]
                log_p, share = log_share(value + slope[j] * at)
                distance = at + shift
                density = width * FEW_WEIGHTS[i] * exp(-0.5 * distance * distance / variance + count * log_p - top)
                mass += density
                first += density * distance
                second += density * distance * distance
                density *= count * share
                by_share += density
                by_first += density * at
                by_second += density * at * at
            s += width
        if by_share > 0.0:
            moments[j, 0] = by_share
            moments[j, 1], moments[j, 2] = by_first / by_share / unit, by_second / by_share / (unit * unit)
            rise += by_share * slope[j]
    for j in range(pieces):
        moments[j, 0] /= mass
    first /= mass
    return top + log(mass) - 0.5 * log(2.0 * pi * variance), first, max(second / mass - first * first, 0.0), rise / mass

"""Targets that are known only to lie in an interval: the mass of the noise between two residuals.

The factor of such a point is P(lower < f + r ≤ upper), r the noise, as a function of f: the integral of exp(-E(r))/Z
from s + low to s + high, with s = t - f and the ends ``low`` and ``high`` relative to t. It is log-concave in f and in
the ends, because exp(-E) is log-concave (Prékopa 1973). One end may be infinite.

All quantities are sums over pieces of integrals by nodes, scaled by the largest integrand, so that they hold in both
tails. Positions are measured from an end, so that a narrow interval loses no digits. With <.> the mean over the
interval and p the normalised density at its ends, the derivatives of the log mass by s have two forms each,

    L' = p(high) - p(low) = -<E'>,      L'' = p(low)E'(low) - p(high)E'(high) - L'² = var(E') - <E''>,

of which the one with smaller rounding errors is used: the first in a wide interval, the second in a narrow one.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
from numba import types
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR, compiled
from bsvr_pp._separate import separate
from bsvr_pp.losses.pieces import energy, energy_on, mean_d_energy, peak_integrals, reach

__all__ = ["NEGLIGIBLE", "ROW", "Row", "lowest_energy", "mass_gradients", "mass_row"]

Array = NDArray[np.float64]
type Row = tuple[Array, Array, Array, Array]  # knots, value, slope and curvature of a row of `Pieces`

ROW = types.UniTuple(VECTOR, 4)
NEGLIGIBLE = 45.0  # a part whose mass is below e⁻⁴⁵ of the largest is ignored
_NARROW = 1e-5  # width times slope below which an interval in one piece is treated as a point


@separate(types.UniTuple(types.float64, 5), types.float64, types.float64, types.float64, ROW, MATRIX)
def mass_row(s: float, low: float, high: float, row: Row, moments: Array) -> tuple[float, float, float, float, float]:
    """Log of the integral of exp(-E(r)) over r from s + low to s + high > s + low, and its two derivatives by s.

    Also returns the densities exp(-E)/mass at the ends, 0 at an infinite one. ``moments`` (m+1, 3) are filled as by
    `tilted_row`.
    """
    knots, value, slope, curvature = row
    n_knots = knots.shape[0]
    base, start, end = _positions(s, low, high)
    best, best_piece = -inf, 0
    # moments temporarily holds: log of the largest integrand, its position, steepness.
    for j in range(n_knots + 1):
        anchor = knots[max(j - 1, 0)] - base
        lower = start if j == 0 else max(anchor, start)
        upper = end if j == n_knots else min(knots[j] - base, end)
        moments[j, 0] = -inf
        if not lower < upper:
            continue
        place, steepness = lowest_energy(lower, upper, anchor, slope[j], curvature[j])
        level = -energy_on(place - anchor, j, knots, value, slope, curvature)
        moments[j, 0], moments[j, 1], moments[j, 2] = level, place, steepness
        farthest = reach(steepness, curvature[j])
        score = level + log(min(farthest, upper - place) + min(farthest, place - lower))
        if score > best:
            best, best_piece = score, j
    top = moments[best_piece, 0]
    mass, slope_sum, size, bend = 0.0, 0.0, 0.0, 0.0
    slopes = np.zeros((n_knots + 1, 2))  # mean and variance of E' in each piece
    for j in range(n_knots + 1):
        level, place, steepness = moments[j, 0], moments[j, 1], moments[j, 2]
        moments[j] = 0.0
        if level == -inf:
            continue
        anchor = knots[max(j - 1, 0)] - base
        lower = start if j == 0 else max(anchor, start)
        upper = end if j == n_knots else min(knots[j] - base, end)
        farthest = reach(steepness, curvature[j])
        left, right = -min(farthest, place - lower), min(farthest, upper - place)
        if level + log(right - left) < best - NEGLIGIBLE:
            continue
        part, t1, t2 = peak_integrals(steepness, curvature[j], left, right)
        part *= exp(level - top)
        slopes[j, 0] = slope[j] + curvature[j] * ((place - anchor) + t1)
        slopes[j, 1] = curvature[j] * curvature[j] * max(t2 - t1 * t1, 0.0)
        mass += part
        slope_sum += part * slopes[j, 0]
        size += part * abs(slopes[j, 0])
        bend += part * curvature[j]
        unit = knots[j] - knots[j - 1] if 0 < j < n_knots else 1.0
        at = place - anchor
        moments[j, 0] = part
        moments[j, 1] = (at + t1) / unit
        moments[j, 2] = (at * at + 2.0 * at * t1 + t2) / (unit * unit)
    log_mass = top + log(mass)
    mean, size, bend, spread = slope_sum / mass, size / mass, bend / mass, 0.0
    for j in range(n_knots + 1):
        moments[j, 0] /= mass
        deviation = slopes[j, 0] - mean
        spread += moments[j, 0] * (slopes[j, 1] + deviation * deviation)
        if 0 < j < n_knots and knots[j] == knots[j - 1] and start < knots[j] - base < end:
            bend += max(slope[j + 1] - slope[j], 0.0) * exp(-value[j] - log_mass)
    at_low, slope_low, at_high, slope_high = 0.0, 0.0, 0.0, 0.0
    if low > -inf:
        e, slope_low, _, _ = energy(base + start, knots, value, slope, curvature)
        at_low = exp(-e - log_mass)
    if high < inf:
        e, slope_high, _, _ = energy(base + end, knots, value, slope, curvature)
        at_high = exp(-e - log_mass)
    first = -mean if size < at_low + at_high else at_high - at_low
    rising, falling = at_low * slope_low, at_high * slope_high
    if spread + bend < abs(rising) + abs(falling) + first * first:
        second = spread - bend
    else:
        second = rising - falling - first * first
    return log_mass, first, min(second, 0.0), at_low, at_high


@compiled
def _positions(s: float, low: float, high: float) -> tuple[float, float, float]:
    """Residual of a finite end, from which positions are measured, and start and end of the interval from there."""
    if low > -inf:
        return s + low, 0.0, high - low
    if high < inf:
        return s + high, -inf, 0.0
    return 0.0, -inf, inf


@compiled
def lowest_energy(lower: float, upper: float, anchor: float, slope: float, curvature: float) -> tuple[float, float]:
    """Position of the lowest energy of a piece between two positions, and the modulus of the slope (0 inside)."""
    if curvature > 0.0:
        place = min(max(anchor - slope / curvature, lower), upper)
    elif slope > 0.0 or (slope == 0.0 and lower > -inf):
        place = lower
    else:
        place = upper
    steepness = 0.0 if lower < place < upper else abs(slope + curvature * (place - anchor))
    return place, steepness


_GRADIENTS = types.Tuple((types.float64, MATRIX, MATRIX, VECTOR, VECTOR))


@separate(_GRADIENTS, types.float64, types.float64, types.float64, ROW, types.Array(types.float64, 3, "C"), MATRIX)
def mass_gradients(
    s: float, low: float, high: float, row: Row, d_energy: Array, moments: Array
) -> tuple[float, Array, Array, Array, Array]:
    """Derivatives of the log mass L and of L' and L'' by s, for the gradient of Laplace's approximation.

    Returns the third derivative of L by s; the derivatives of L, L' and L'' by low and high (2, 3), and by each
    parameter (p, 3), from those of E in ``d_energy`` (p, m+1, 3); and E' and E'' at the ends, 0 at an infinite one.
    """
    n_parameters = d_energy.shape[0]
    knots, value, slope, curvature = row
    _, first, second, at_low, at_high = mass_row(s, low, high, row, moments)
    base, start, end = _positions(s, low, high)
    slopes, curvatures, pieces = np.zeros(2), np.zeros(2), np.zeros(2, dtype=np.int64)
    density = np.array([-at_low, at_high])
    for side in range(2):
        if density[side] != 0.0 or (side == 0 and low > -inf) or (side == 1 and high < inf):
            at = base + (start if side == 0 else end)
            _, slopes[side], curvatures[side], pieces[side] = energy(at, knots, value, slope, curvature)
    by_ends, by_parameters = np.zeros((2, 3)), np.zeros((n_parameters, 3))
    for p in range(n_parameters):
        by_parameters[p, 0] = -mean_d_energy(moments, d_energy[p])
    by_ends[0, 0], by_ends[1, 0] = -at_low, at_high
    one_piece = low > -inf and high < inf and pieces[0] == pieces[1]
    if one_piece and (end - start) * (abs(slopes[0]) + sqrt(curvatures[0])) < _NARROW:
        # A point in the middle: L' = -E', L'' = -E'', and each end moves the middle by half of its change.
        j = pieces[0]
        by_ends[:, 1] = -0.5 * curvature[j]
        for p in range(n_parameters):
            by_parameters[p, 1] = -_d_slope(base + 0.5 * (start + end), j, knots, d_energy[p])
            by_parameters[p, 2] = -_d_curvature(j, knots, d_energy[p])
        return 0.0, by_ends, by_parameters, slopes, curvatures
    # L' = Σ ±p, with dp/dx = -p·E' at an end x and d log(mass)/dx = ±p; L'' = -Σ ±p·E' - L'².
    third = -2.0 * first * second
    for side in range(2):
        falls = -density[side] * (slopes[side] + first)
        third -= falls * slopes[side] + density[side] * curvatures[side]
        by_ends[side, 1] = falls
        mixed = -density[side] * (slopes[0] * density[0] + slopes[1] * density[1])
        moved = density[side] * (curvatures[side] - slopes[side] * slopes[side])
        by_ends[side, 2] = -(moved + mixed) - 2.0 * first * falls
        for p in range(n_parameters):
            if density[side] != 0.0:
                at = base + (start if side == 0 else end)
                j = pieces[side]
                u = at - knots[max(j - 1, 0)]
                if 0 < j < knots.shape[0]:
                    u /= knots[j] - knots[j - 1]
                c = d_energy[p, j]
                change = -density[side] * (c[0] + u * (c[1] + u * c[2]) + by_parameters[p, 0])
                by_parameters[p, 1] += change
                by_parameters[p, 2] -= change * slopes[side] + density[side] * _d_slope(at, j, knots, d_energy[p])
    for p in range(n_parameters):
        by_parameters[p, 2] -= 2.0 * first * by_parameters[p, 1]
    return third, by_ends, by_parameters, slopes, curvatures


@compiled
def _d_slope(r: float, j: int, knots: Array, d_energy: Array) -> float:
    """Derivative of E'(r) on piece j by a parameter whose derivatives of E are ``d_energy``."""
    width = knots[j] - knots[j - 1] if 0 < j < knots.shape[0] else 1.0
    u = (r - knots[max(j - 1, 0)]) / width
    return (d_energy[j, 1] + 2.0 * d_energy[j, 2] * u) / width


@compiled
def _d_curvature(j: int, knots: Array, d_energy: Array) -> float:
    """Derivative of E'' on piece j by a parameter."""
    width = knots[j] - knots[j - 1] if 0 < j < knots.shape[0] else 1.0
    return 2.0 * d_energy[j, 2] / (width * width)

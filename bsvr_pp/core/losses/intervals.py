"""Targets known only to lie in an interval: the mass P(lower < f + r ≤ upper) of the noise r, as a function of f.

It is the integral of exp(-E(r))/Z from s + low to s + high, s = t - f, by nodes on each piece. It is scaled by the
largest integrand and measured from an end, to be accurate in both tails and in narrow intervals. The derivatives of its
log have two forms each; the form with smaller rounding errors is used (docs/explanation/intervals.md).
"""

from __future__ import annotations

from math import erfc, exp, inf, log, pi, sqrt

import numpy as np
from numba import types

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, compiled, separate
from bsvr_pp.core.losses.pieces import (
    ROW,
    Row,
    d_curvature,
    d_energy_at,
    d_slope,
    energy,
    energy_on,
    extent,
    mean_d_energy,
    nodes_for,
    peak,
    peak_integrals,
    reach,
    width_of,
)

_NEGLIGIBLE = 45.0  # a part whose mass is below e⁻⁴⁵ of the largest is ignored
_NARROW = 1e-5  # width times slope below which an interval in one piece is treated as a point
_TAIL = 9.0  # standard deviations beyond which a Gaussian cdf is its tail
_HALF_LOG_2PI = 0.5 * log(2.0 * pi)
_NEAR = 3.0  # standard deviations up to which truncated moments are differences
_ROOT_HALF, _ROOT_HALF_PI = sqrt(0.5), sqrt(0.5 * pi)
_FULL = 9.5  # standard deviations that hold all mass of a Gaussian, up to e⁻⁴⁵


@separate(types.UniTuple(types.float64, 5), types.float64, types.float64, types.float64, ROW, MATRIX)
def mass_row(s: float, low: float, high: float, row: Row, moments: Array) -> tuple[float, float, float, float, float]:
    """Return log ∫ exp(-E) from s + low to s + high, its derivatives by s, densities at the ends; fill ``moments``."""
    knots, value, slope, curvature = row
    n_knots = knots.shape[0]
    base, start, end = _positions(s, low, high)
    best, top = _find_peaks(base, start, end, row, moments)
    mass, mean, spread, size, bend = 0.0, 0.0, 0.0, 0.0, 0.0  # mean and spread of E'
    for j in range(n_knots + 1):
        level, place, steepness = moments[j, 0], moments[j, 1], moments[j, 2]
        moments[j] = 0.0
        if level == -inf:
            continue
        anchor, lower, upper = _part(j, base, start, end, knots)
        farthest = reach(steepness, curvature[j])
        left, right = -min(farthest, place - lower), min(farthest, upper - place)
        if level + log(right - left) < best - _NEGLIGIBLE:
            continue
        part, t1, t2 = peak_integrals(steepness, curvature[j], left, right)
        part *= exp(level - top)
        rise = slope[j] + curvature[j] * ((place - anchor) + t1)
        deviation, within = rise - mean, curvature[j] * curvature[j] * max(t2 - t1 * t1, 0.0)
        spread += part * (within + deviation * deviation * mass / (mass + part))
        mass += part
        mean += deviation * part / mass
        size += part * abs(rise)
        bend += part * curvature[j]
        unit = width_of(j, knots)
        at = place - anchor
        moments[j, 0] = part
        moments[j, 1] = (at + t1) / unit
        moments[j, 2] = (at * at + 2.0 * at * t1 + t2) / (unit * unit)
    log_mass = top + log(mass)
    size, bend, spread = size / mass, bend / mass, spread / mass
    for j in range(n_knots + 1):
        moments[j, 0] /= mass
        if 0 < j < n_knots and knots[j] == knots[j - 1] and start < knots[j] - base < end:
            bend += max(slope[j + 1] - slope[j], 0.0) * exp(-value[j] - log_mass)
    at_low, slope_low, at_high, slope_high = 0.0, 0.0, 0.0, 0.0
    if low > -inf:
        e, slope_low, _, _ = energy(base + start, row)
        at_low = exp(-e - log_mass)
    if high < inf:
        e, slope_high, _, _ = energy(base + end, row)
        at_high = exp(-e - log_mass)
    first = -mean if size < at_low + at_high else at_high - at_low
    rising, falling = at_low * slope_low, at_high * slope_high
    if spread + bend < abs(rising) + abs(falling) + first * first:
        second = spread - bend
    else:
        second = rising - falling - first * first
    return log_mass, first, min(second, 0.0), at_low, at_high


@compiled
def _part(j: int, base: float, start: float, end: float, knots: Array) -> tuple[float, float, float]:
    """Return the anchor of piece j, and the ends of its part of an interval, as positions from ``base``."""
    anchor = knots[max(j - 1, 0)] - base
    lower = start if j == 0 else max(anchor, start)
    return anchor, lower, end if j == knots.shape[0] else min(knots[j] - base, end)


@compiled
def _find_peaks(base: float, start: float, end: float, row: Row, moments: Array) -> tuple[float, float]:
    """Fill ``moments`` with log of the largest integrand, its place, steepness; logs of most mass and its peak."""
    knots, _, slope, curvature = row
    best, top = -inf, -inf
    for j in range(knots.shape[0] + 1):
        anchor, lower, upper = _part(j, base, start, end, knots)
        moments[j, 0] = -inf
        if not lower < upper:
            continue
        place, steepness, left, right = peak(lower, upper, -slope[j], curvature[j], anchor)
        level = -energy_on(place - anchor, j, row)
        moments[j, 0], moments[j, 1], moments[j, 2] = level, place, steepness
        score = level + log(right - left)
        if score > best:
            best, top = score, level
    return best, top


@compiled
def _positions(s: float, low: float, high: float) -> tuple[float, float, float]:
    """Return the residual of a finite end, and start and end of the interval as positions from it."""
    if low > -inf:
        return s + low, 0.0, high - low
    if high < inf:
        return s + high, -inf, 0.0
    return 0.0, -inf, inf


_GRADIENTS = types.Tuple((types.float64, MATRIX, MATRIX))


@separate(_GRADIENTS, types.float64, types.float64, types.float64, ROW, types.Array(types.float64, 3, "C"), MATRIX)
def mass_gradients(
    s: float, low: float, high: float, row: Row, d_energy: Array, moments: Array
) -> tuple[float, Array, Array]:
    """Return the third derivative of the log mass L by s; L, L' and L'' by both ends (2, 3) and parameters (p, 3)."""
    n_parameters = d_energy.shape[0]
    knots, _, _, curvature = row
    _, first, second, at_low, at_high = mass_row(s, low, high, row, moments)
    base, start, end = _positions(s, low, high)
    slopes, curvatures, pieces = np.zeros(2), np.zeros(2), np.zeros(2, dtype=np.int64)
    density = np.array([-at_low, at_high])
    for side in range(2):
        if density[side] != 0.0 or (side == 0 and low > -inf) or (side == 1 and high < inf):
            at = base + (start if side == 0 else end)
            _, slopes[side], curvatures[side], pieces[side] = energy(at, row)
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
            by_parameters[p, 1] = -d_slope(base + 0.5 * (start + end), j, knots, d_energy[p])
            by_parameters[p, 2] = -d_curvature(j, knots, d_energy[p])
        return 0.0, by_ends, by_parameters
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
                at, j = base + (start if side == 0 else end), pieces[side]
                change = -density[side] * (d_energy_at(at, j, knots, d_energy[p]) + by_parameters[p, 0])
                by_parameters[p, 1] += change
                by_parameters[p, 2] -= change * slopes[side] + density[side] * d_slope(at, j, knots, d_energy[p])
    for p in range(n_parameters):
        by_parameters[p, 2] -= 2.0 * first * by_parameters[p, 1]
    return third, by_ends, by_parameters


@compiled
def _window(first: float, last: float, width: float) -> tuple[float, float, float, float]:
    """Return log mass, mean from the maximum, variance and maximum of exp(-½x²) on [first, last] of ``width``."""
    if first <= -_FULL and last >= _FULL:
        return _HALF_LOG_2PI, 0.0, 1.0, 0.0
    if width > 0.5 and first < _NEAR and last > -_NEAR:
        # Differences lose less than two digits here.
        a, b = max(first, -_FULL), min(last, _FULL)
        at_first, at_last = exp(-0.5 * a * a), exp(-0.5 * b * b)
        if first > 0.0:
            mass = erfc(a * _ROOT_HALF) - erfc(b * _ROOT_HALF)
        elif last < 0.0:
            mass = erfc(-b * _ROOT_HALF) - erfc(-a * _ROOT_HALF)
        else:
            mass = 2.0 - erfc(b * _ROOT_HALF) - erfc(-a * _ROOT_HALF)
        mass *= _ROOT_HALF_PI
        mean = (at_first - at_last) / mass
        spread = 1.0 + (a * at_first - b * at_last) / mass - mean * mean
        return log(mass), mean, max(spread, 0.0), 0.0
    if first > 0.0:
        place, left, right = first, 0.0, min(reach(first, 1.0), width)
    elif last < 0.0:
        place, left, right = last, -min(reach(-last, 1.0), width), 0.0
    else:
        place, left, right = 0.0, max(first, -_FULL), min(last, _FULL)
    mass, t1, t2 = peak_integrals(abs(place), 1.0, left, right)
    return -0.5 * place * place + log(mass), t1, max(t2 - t1 * t1, 0.0), place


@compiled
def _cuts(low: float, high: float, sd: float) -> Array:
    """Return where the mass of a Gaussian between two ends, as a function of their place, changes its form."""
    if low == -inf:
        return np.array([high - _TAIL * sd, high, high + _TAIL * sd])
    if high == inf:
        return np.array([low - _TAIL * sd, low, low + _TAIL * sd])
    width, middle = (high - low) / sd, low + 0.5 * (high - low)
    if width <= 2.0:
        return np.array([low - _TAIL * sd, middle, high + _TAIL * sd])
    if width < 2.0 * _TAIL:
        return np.array([low - _TAIL * sd, low, middle, high, high + _TAIL * sd])
    return np.array([low - _TAIL * sd, low, low + _TAIL * sd, high - _TAIL * sd, high, high + _TAIL * sd])


@separate(types.UniTuple(types.float64, 5), types.float64, types.float64, types.float64, types.float64, ROW, MATRIX)
def tilted_interval(
    center: float, variance: float, low: float, high: float, row: Row, moments: Array
) -> tuple[float, float, float, float, float]:
    """Integrate N(f; mean, variance)·exp(-E(r)) over lower < f + r ≤ upper.

    With f = mean + sd·x and z = y - mean this integrates exp(-E(r))·∫φ(x)dx over x from (z + low - r)/sd to (z + high -
    r)/sd. ``center`` is z, and the ends are relative to y. The inner integral and its moments belong to a truncated
    Gaussian. The outer one has nodes around the largest integrand of each piece, between the places where the inner one
    changes its form. Returns the log of the integral, mean and variance of x, and the derivatives of the log by the
    ends; fills ``moments`` (m+1, 3) as `tilted_row` does.
    """
    knots, _, slope, curvature = row
    sd = sqrt(variance)
    below, above, width = center + low, center + high, (high - low) / sd  # -inf or inf where an end is
    cells, best_cell, best = _cells((below, above, width), sd, row)
    top = cells[best_cell, 4]
    at = knots[max(int(cells[best_cell, 0]) - 1, 0)] + cells[best_cell, 3]
    _, t1, _, where = _window((below - at) / sd, (above - at) / sd, width)
    center_x = where + t1
    moments[:] = 0.0
    mass, first_x, second_x, by_low, by_high = 0.0, 0.0, 0.0, 0.0, 0.0
    for cell in range(cells.shape[0]):
        j = int(cells[cell, 0])
        lower, upper, place, level = cells[cell, 1], cells[cell, 2], cells[cell, 3], cells[cell, 4]
        farthest = reach(cells[cell, 5], cells[cell, 6])
        left, right = -min(farthest, place - lower), min(farthest, upper - place)
        if level + log(right - left) < best - _NEGLIGIBLE:
            continue
        anchor = knots[max(j - 1, 0)]
        e = energy_on(place, j, row)
        rise, half = slope[j] + curvature[j] * place, 0.5 * curvature[j]
        x_low, x_high = (below - (anchor + place)) / sd, (above - (anchor + place)) / sd
        unit = width_of(j, knots)
        nodes, weights = nodes_for(cells[cell, 5], curvature[j] + 1.0 / variance, left, right)
        for q in range(nodes.shape[0]):
            t = left + (right - left) * nodes[q]
            here = -(e + t * (rise + half * t)) - top
            a, b = x_low - t / sd, x_high - t / sd
            log_inner, t1, spread, where = _window(a, b, width)
            scale = weights[q] * (right - left)
            weight = scale * exp(here + log_inner)
            deviation = (where - center_x) + t1
            mass += weight
            first_x += weight * deviation
            second_x += weight * (deviation * deviation + spread)
            if a > -inf:
                by_low -= scale * exp(here - 0.5 * a * a)
            if b < inf:
                by_high += scale * exp(here - 0.5 * b * b)
            u = (place + t) / unit
            moments[j, 0] += weight
            moments[j, 1] += weight * u
            moments[j, 2] += weight * u * u
    for j in range(moments.shape[0]):
        if moments[j, 0] > 0.0:
            moments[j, 1] /= moments[j, 0]
            moments[j, 2] /= moments[j, 0]
            moments[j, 0] /= mass
    first_x /= mass
    return (
        top + log(mass) - _HALF_LOG_2PI,
        center_x + first_x,
        max(second_x / mass - first_x * first_x, 0.0),
        by_low / (mass * sd),
        by_high / (mass * sd),
    )


@compiled
def _cells(interval: tuple[float, float, float], sd: float, row: Row) -> tuple[Array, int, float]:
    """Return parts of pieces, between the places where the inner integral changes its form, whose integrand may count.

    Each row (cells, 7) has piece, lower and upper end, place of the largest integrand, log of it, steepness, curvature.
    Also the row of most mass, and the log of this mass.
    """
    knots, below, above = row[0], interval[0], interval[1]
    cuts = _cuts(below, above, sd)
    n_cuts = cuts.shape[0]
    cells = np.empty((knots.shape[0] + 1 + n_cuts, 7))
    n_cells, best, best_cell = 0, -inf, 0
    for j in range(knots.shape[0] + 1):
        anchor, first, last = extent(j, knots)
        lower = first
        for q in range(n_cuts + 1 if first < last else 0):
            upper = last if q == n_cuts else min(cuts[q] - anchor, last)
            if not lower < upper:
                continue
            outer = q == 0 or q == n_cuts
            place, level, steepness, bend = _peak((lower, upper, anchor), interval, sd, j, outer, row)
            farthest = reach(steepness, bend)
            score = level + log(min(farthest, upper - place) + min(farthest, place - lower))
            cells[n_cells, 0], cells[n_cells, 1], cells[n_cells, 2], cells[n_cells, 3] = j, lower, upper, place
            cells[n_cells, 4], cells[n_cells, 5], cells[n_cells, 6] = level, steepness, bend
            if score > best:
                best, best_cell = score, n_cells
            n_cells += 1
            lower = upper
    return cells[:n_cells], best_cell, best


@compiled
def _peak(
    cell: tuple[float, float, float], interval: tuple[float, float, float], sd: float, j: int, outer: bool, row: Row
) -> tuple[float, float, float, float]:
    """Find roughly the largest integrand of a cell: place, log, |slope|, least curvature (Newton in a bracket)."""
    (lower, upper, anchor), (below, above, width), (_, _, slope, curvature) = cell, interval, row
    first, last = lower, upper
    # Start where a Gaussian at the nearest end of the interval would have its maximum.
    target = (below if below > -inf else above) - anchor
    bend = curvature[j] + 1.0 / (sd * sd)
    place = min(max((target / (sd * sd) - slope[j]) / bend, lower), upper)
    steepness, closest = 0.0, 0.0
    for trial in range(80):
        at = anchor + place
        log_inner, t1, spread, where = _window((below - at) / sd, (above - at) / sd, width)
        rise = (where + t1) / sd - slope[j] - curvature[j] * place
        closest = max(1.0 - spread, 0.0) / (sd * sd)
        bend = curvature[j] + closest
        steepness = abs(rise)
        if (place == lower and rise <= 0.0) or (place == upper and rise >= 0.0):
            break
        if rise * rise <= 0.02 * bend:  # the maximum is higher by less than 0.01
            steepness = 0.0
            break
        if rise > 0.0:
            first = place
        else:
            last = place
        moved = place + rise / bend if bend > 0.0 else (inf if rise > 0.0 else -inf)
        if trial % 8 == 7 or not first < moved < last:
            # Beyond a bracket, an end of the cell is tried first.
            if moved >= last and last == upper and last < inf and place != upper and trial % 8 != 7:
                moved = upper
            elif moved <= first and first == lower and first > -inf and place != lower and trial % 8 != 7:
                moved = lower
            elif first > -inf and last < inf:
                moved = 0.5 * (first + last)
            elif last == inf:
                moved = place + (sd + abs(place)) * 2.0
            else:
                moved = place - (sd + abs(place)) * 2.0
        if moved == place:
            break
        place = moved
    level = log_inner - energy_on(place, j, row)
    if lower < place < upper:
        steepness = 0.0
    return place, level, steepness, curvature[j] + (closest if outer else 0.0)

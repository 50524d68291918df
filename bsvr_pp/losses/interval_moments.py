"""Moments of a Gaussian times the factor of a target that is known only to lie in an interval.

With f = mean + sd·x the factor's integral is one over the noise r and over x, whose ends depend on r
(`tilted_interval`). The inner integral is that of a truncated Gaussian. The outer one is taken by nodes around the
largest integrand of each piece of the noise, so that neither tail underflows, and the variance is a sum of squares.
"""

from __future__ import annotations

from math import erfc, exp, inf, log, pi, sqrt

import numpy as np
from numba import types
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, compiled
from bsvr_pp._separate import separate
from bsvr_pp.losses.intervals import NEGLIGIBLE, ROW, Row, lowest_energy
from bsvr_pp.losses.pieces import (
    FEW_NODES,
    FEW_WEIGHTS,
    NODES,
    SOME_NODES,
    SOME_WEIGHTS,
    WEIGHTS,
    energy,
    energy_on,
    peak_integrals,
    reach,
)

__all__ = ["tilted_interval"]

Array = NDArray[np.float64]

_TAIL = 9.0  # standard deviations beyond which a Gaussian cdf is its tail
_HALF_LOG_2PI = 0.5 * log(2.0 * pi)
_NEAR = 3.0  # standard deviations up to which truncated moments are differences
_ROOT_HALF, _ROOT_HALF_PI = sqrt(0.5), sqrt(0.5 * pi)
_FULL = 9.5  # standard deviations that hold all mass of a Gaussian, up to e⁻⁴⁵


@compiled
def _window(first: float, last: float, width: float) -> tuple[float, float, float, float]:
    """Log mass, mean and variance of exp(-½x²) on [first, last], and the place of its maximum.

    The mean is relative to this place; ``width`` = last - first, exactly.
    """
    if first <= -_FULL and last >= _FULL:
        return _HALF_LOG_2PI, 0.0, 1.0, 0.0
    if width > 0.5 and first < _NEAR and last > -_NEAR:
        # Differences lose less than two digits here.
        a, b, at_first, at_last = 0.0, 0.0, 0.0, 0.0
        if first > -_FULL:
            a, at_first = first, exp(-0.5 * first * first)
        if last < _FULL:
            b, at_last = last, exp(-0.5 * last * last)
        if first > 0.0:
            mass = erfc(first * _ROOT_HALF) - (erfc(last * _ROOT_HALF) if last < _FULL else 0.0)
        elif last < 0.0:
            mass = erfc(-last * _ROOT_HALF) - (erfc(-first * _ROOT_HALF) if first > -_FULL else 0.0)
        else:
            mass = 2.0
            if last < _FULL:
                mass -= erfc(last * _ROOT_HALF)
            if first > -_FULL:
                mass -= erfc(-first * _ROOT_HALF)
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
    """Where the mass of a Gaussian between two ends, as a function of their place, changes its form."""
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

    With f = mean + sd·x and z = y - mean the integral is that of exp(-E(r))·∫φ(x)dx over x from (z + low - r)/sd to
    (z + high - r)/sd; ``center`` is z, and the ends are relative to y. The inner integral and its moments are those of
    a truncated Gaussian; the outer one is taken by nodes around the largest integrand of each piece, between the places
    where the inner one changes its form. Returns the log of the integral, mean and variance of x, and the derivatives
    of the log by the ends; ``moments`` (m+1, 3) are filled as by `tilted_row`.
    """
    knots, value, slope, curvature = row
    n_knots, sd = knots.shape[0], sqrt(variance)
    below = center + low  # -inf or inf where the end is
    above = center + high
    width = (high - low) / sd
    cuts = _cuts(below, above, sd)
    n_cuts = cuts.shape[0]
    # Each cell: piece, lower and upper end, place of the largest integrand, log of it, steepness, curvature.
    cells = np.empty((n_knots + 1 + n_cuts, 7))
    n_cells, best, best_cell = 0, -inf, 0
    # The largest integrand is at least as high as at 0, or where the slope of the noise is that of the Gaussian tail.
    edge = min(max(0.0, below), above)
    steepest = max(abs(slope[0]), abs(slope[n_knots])) * variance
    bottom = -inf
    for shrunk in (0.0, edge, edge - min(steepest, edge) if edge > 0.0 else edge + min(steepest, -edge)):
        log_inner = _window((below - shrunk) / sd, (above - shrunk) / sd, width)[0]
        bottom = max(bottom, log_inner - energy(shrunk, knots, value, slope, curvature)[0])
    bottom -= NEGLIGIBLE + 15.0
    for j in range(n_knots + 1):
        anchor = knots[max(j - 1, 0)]
        first = -inf if j == 0 else 0.0
        last = inf if j == n_knots else (0.0 if j == 0 else knots[j] - anchor)
        if not first < last:
            continue
        lower = first
        for q in range(n_cuts + 1):
            upper = last if q == n_cuts else min(cuts[q] - anchor, last)
            if not lower < upper:
                continue
            outer = q == 0 or q == n_cuts
            lowest, _ = lowest_energy(lower, upper, 0.0, slope[j], curvature[j])
            nearest = max(max(below - (anchor + upper), (anchor + lower) - above), 0.0) / sd
            bound = -energy_on(lowest, j, knots, value, slope, curvature) - 0.5 * nearest * nearest
            if bound < bottom:
                lower = upper
                continue
            place, level, steepness, bend = _peak(lower, upper, anchor, below, above, width, sd, j, outer, row)
            farthest = reach(steepness, bend)
            score = level + log(min(farthest, upper - place) + min(farthest, place - lower))
            cells[n_cells, 0], cells[n_cells, 1], cells[n_cells, 2] = j, lower, upper
            cells[n_cells, 3], cells[n_cells, 4], cells[n_cells, 5], cells[n_cells, 6] = place, level, steepness, bend
            if score > best:
                best, best_cell = score, n_cells
            n_cells += 1
            lower = upper
    top = cells[best_cell, 4]
    anchor = knots[max(int(cells[best_cell, 0]) - 1, 0)]
    at = anchor + cells[best_cell, 3]
    _, t1, _, where = _window((below - at) / sd, (above - at) / sd, width)
    center_x = where + t1
    moments[:] = 0.0
    mass, first_x, second_x, by_low, by_high = 0.0, 0.0, 0.0, 0.0, 0.0
    for cell in range(n_cells):
        j = int(cells[cell, 0])
        lower, upper, place, level = cells[cell, 1], cells[cell, 2], cells[cell, 3], cells[cell, 4]
        farthest = reach(cells[cell, 5], cells[cell, 6])
        left, right = -min(farthest, place - lower), min(farthest, upper - place)
        if level + log(right - left) < best - NEGLIGIBLE:
            continue
        anchor = knots[max(j - 1, 0)]
        e = energy_on(place, j, knots, value, slope, curvature)
        rise, half = slope[j] + curvature[j] * place, 0.5 * curvature[j]
        x_low, x_high = (below - (anchor + place)) / sd, (above - (anchor + place)) / sd
        unit = knots[j] - knots[j - 1] if 0 < j < n_knots else 1.0
        one_sided, length = left == 0.0 or right == 0.0, max(-left, right)
        drop = length * (cells[cell, 5] + 0.5 * (curvature[j] + 1.0 / variance) * length)
        nodes, weights = NODES, WEIGHTS
        if drop <= (4.0 if one_sided else 1.0):
            nodes, weights = FEW_NODES, FEW_WEIGHTS
        elif one_sided or drop <= 8.0:
            nodes, weights = SOME_NODES, SOME_WEIGHTS
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
    for j in range(n_knots + 1):
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
def _peak(
    lower: float,
    upper: float,
    anchor: float,
    below: float,
    above: float,
    width: float,
    sd: float,
    j: int,
    outer: bool,
    row: Row,
) -> tuple[float, float, float, float]:
    """Largest value of log of exp(-E) times the inner integral on a cell: place, log, |slope|, least curvature there.

    It is concave, so that Newton's method in a bracket finds its maximum; a rough place is enough.
    """
    first, last = lower, upper
    knots, value, slope, curvature = row
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
    level = log_inner - energy_on(place, j, knots, value, slope, curvature)
    if lower < place < upper:
        steepness = 0.0
    return place, level, steepness, curvature[j] + (closest if outer else 0.0)

"""The table of pieces: one noise model, or one label, as a convex piecewise quadratic energy.

The site of a point is exp(-E(r)) with E = C·loss. Inference needs only the table of a loss. On a piece Gaussian times
site is a truncated Gaussian, exponential or uniform density. Gauss-Legendre nodes on the part with the mass (down to
e⁻⁴⁵ of its peak) avoid cancellation, with errors about 1e-14.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np
from numba import typeof, types
from numba.extending import register_jitable

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate, vectorized

type Row = tuple[Array, Array, Array, Array]  # knots, value, slope and curvature of a row of `Pieces`

ROW = types.UniTuple(VECTOR, 4)


def _gauss(n: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1.0), 0.5 * weights


# The integrand exp(-drop) is cut at drop = _DROP; the nodes resolve it up to rounding errors on any such interval.
# Fewer nodes suffice if it drops less, or only on one side of its peak.
_DROP = 45.0
NODES, WEIGHTS = _gauss(40)
SOME_NODES, SOME_WEIGHTS = _gauss(24)
FEW_NODES, FEW_WEIGHTS = _gauss(12)
FEWEST_NODES, FEWEST_WEIGHTS = _gauss(6)
_LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_EXP = tuple(1.0 / float(np.prod(np.arange(1.0, k + 1.0))) for k in range(13))  # Taylor coefficients
_LARGEST = 700.0  # exponent, up to which the exponential is a normal number
# Width of a curved piece, over the change of its slope, below which it counts as a kink.
_SMALLEST = 1e-290
# A piece whose mass is below e⁻⁶⁰ of the largest is ignored.
_NEGLIGIBLE = 60.0


class Pieces(NamedTuple):
    """Energies E(r) of k sites with m knots: one row (k = 1) for all points, or one row per point.

    Piece 0 is (-inf, knot 0], piece j = [knot j-1, knot j], piece m = [knot m-1, inf). The anchor of piece 0 is
    knot 0, of piece j >= 1 knot j-1, and on piece j

        E(r) = value[anchor] + slope[j]·(r - anchor) + ½·curvature[j]·(r - anchor)².

    A kink is a piece of zero width. Its subgradients run from slope[j] to slope[j+1], as on a curved piece, where
    slope[j+1] = slope[j] + curvature[j]·width. For every inner piece the *compliance* width/(slope[j+1] - slope[j]) is
    therefore the derivative of the residual by the slope, 0 at a kink. A piece with slope[j+1] = slope[j] is linear.

    The derivative of E by a parameter at fixed r is c₀ + c₁u + c₂u². On bounded pieces u = (r - anchor)/width, and on
    the two unbounded ones u = r - anchor. At a kink u is the place of the subgradient between slope[j] and slope[j+1].
    It is bounded for every beta, epsilon >= 0.
    """

    knots: Array  # (k, m), residuals where the pieces meet, ascending; equal knots make a kink
    value: Array  # (k, m), E at the knots
    slope: Array  # (k, m+1), dE/dr of each piece at its anchor (at a kink: the left one)
    curvature: Array  # (k, m+1), d²E/dr² of each piece, 0 on linear pieces and kinks
    d_energy: Array  # (p, k, m+1, 3), the coefficients c of the derivative by each parameter
    log_normalizer: Array  # (k,), log of the integral of exp(-E) over r
    d_log_normalizer: Array  # (p, k), its derivatives by the parameters
    labels: Array  # (k,), number w > 0 of labels with the log odds -E, whose factor is (1 + exp(E))^-w; 0 for exp(-E)
    ends: Array  # (k, 2), ends of an interval relative to t (`core.losses.intervals`), equal for an exact target


def empty(n_parameters: int, n_rows: int, n_knots: int) -> Pieces:
    """Make a table of zeros."""
    return Pieces(
        np.zeros((n_rows, n_knots)),
        np.zeros((n_rows, n_knots)),
        np.zeros((n_rows, n_knots + 1)),
        np.zeros((n_rows, n_knots + 1)),
        np.zeros((n_parameters, n_rows, n_knots + 1, 3)),
        np.zeros(n_rows),
        np.zeros((n_parameters, n_rows)),
        np.zeros(n_rows),
        np.zeros((n_rows, 2)),
    )


PIECES = typeof(empty(1, 1, 1))
empty = compiled(empty)


@compiled
def row_at(k: int, pieces: Pieces) -> Row:
    """Return the row k of the table."""
    return pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]


@compiled
def energy_on(s: float, j: int, row: Row) -> float:
    """Return the energy at distance s from the anchor of piece j, from its nearer knot (no cancellation)."""
    knots, value, slope, curvature = row
    if j > 0 and j < knots.shape[0]:
        back = s - (knots[j] - knots[j - 1])
        if s > -back:
            return value[j] + back * (slope[j + 1] + 0.5 * curvature[j] * back)
    return value[max(j - 1, 0)] + s * (slope[j] + 0.5 * curvature[j] * s)


@compiled
def energy(r: float, row: Row) -> tuple[float, float, float, int]:
    """Return the energy, slope, curvature and piece of one site at the residual r (right-hand values at a knot)."""
    knots, _, slope, curvature = row
    j = 0
    while j < knots.shape[0] and r >= knots[j]:
        j += 1
    s = r - knots[max(j - 1, 0)]
    return energy_on(s, j, row), slope[j] + curvature[j] * s, curvature[j], j


@compiled
def extent(j: int, knots: Array) -> tuple[float, float, float]:
    """Return the anchor of piece j, and its lower and upper end as distances from it."""
    anchor = knots[max(j - 1, 0)]
    if j == 0:
        return anchor, -inf, 0.0
    return anchor, 0.0, knots[j] - anchor if j < knots.shape[0] else inf


@compiled
def width_of(j: int, knots: Array) -> float:
    """Return the width of piece j, 1 of the two unbounded ones: the unit of u in `Pieces.d_energy`."""
    return knots[j] - knots[j - 1] if 0 < j < knots.shape[0] else 1.0


@compiled
def d_energy_at(r: float, j: int, knots: Array, d_energy: Array) -> float:
    """Return dE/dθ at r on piece j, which has a width; ``d_energy`` (m+1, 3) belongs to the parameter θ."""
    u, c = (r - knots[max(j - 1, 0)]) / width_of(j, knots), d_energy[j]
    return c[0] + u * (c[1] + u * c[2])


@compiled
def d_slope(r: float, j: int, knots: Array, d_energy: Array) -> float:
    """Return dE'/dθ at r on piece j, 0 at a kink."""
    width = width_of(j, knots)
    u = (r - knots[max(j - 1, 0)]) / width
    return (d_energy[j, 1] + 2.0 * d_energy[j, 2] * u) / width if width > 0.0 else 0.0


@compiled
def d_curvature(j: int, knots: Array, d_energy: Array) -> float:
    """Return dE''/dθ on piece j, which has a width."""
    width = width_of(j, knots)
    return 2.0 * d_energy[j, 2] / (width * width)


@compiled
def reach(slope: float, precision: float) -> float:
    """Return the distance over which slope·t + ½·precision·t² grows to _DROP."""
    return 2.0 * _DROP / (slope + sqrt(slope * slope + 2.0 * precision * _DROP))  # inf if both are 0


@compiled
def peak(
    lower: float, upper: float, slope: float, precision: float, anchor: float = 0.0
) -> tuple[float, float, float, float]:
    """Find the maximum of the concave q = slope·(s - anchor) - ½·precision·(s - anchor)² for s in [lower, upper].

    Returns the place s* of the maximum, the modulus of q' there (0 inside), and two distances from s*. They are the
    ends of the interval where exp(q - q(s*)) > e⁻⁴⁵.
    """
    if precision > 0.0:
        place = min(max(anchor + slope / precision, lower), upper)
    else:
        place = upper if slope > 0.0 or (slope == 0.0 and lower == -inf) else lower
    steepness = 0.0 if lower < place < upper else abs(slope - precision * (place - anchor))
    farthest = reach(steepness, precision)
    return place, steepness, -min(farthest, place - lower), min(farthest, upper - place)


@compiled
def nodes_for(steepness: float, precision: float, left: float, right: float) -> tuple[Array, Array]:
    """Return nodes and weights on [0, 1] that are enough for exp(-steepness·|t| - ½·precision·t²) on [left, right]."""
    farthest, one_sided = max(-left, right), left == 0.0 or right == 0.0
    drop = farthest * (steepness + 0.5 * precision * farthest)
    if drop <= 0.3:
        return FEWEST_NODES, FEWEST_WEIGHTS
    if drop <= (4.0 if one_sided else 1.0):
        return FEW_NODES, FEW_WEIGHTS
    if one_sided or drop <= 8.0:
        return SOME_NODES, SOME_WEIGHTS
    return NODES, WEIGHTS


@compiled
def peak_integrals(steepness: float, precision: float, left: float, right: float) -> tuple[float, float, float]:
    """Return mass of exp(-steepness·|t| - ½·precision·t²) on [left, right] and the first two moments of t under it."""
    width = right - left
    nodes, weights = nodes_for(steepness, precision, left, right)
    mass, first, second = _sums(steepness, 0.5 * precision, left, width, nodes, weights)
    return mass * width, first / mass, second / mass


@vectorized
def decay(u: float) -> float:
    """Return exp(-u) for u >= 0 without branches, as 2⁻ⁿ·exp(r), |r| <= ln(2)/2, by its series; e^-700 above 700."""
    bounded = min(u, _LARGEST)
    n = np.floor(bounded * _LOG2E + 0.5)
    r = (n * LN2_HIGH - bounded) + n * LN2_LOW
    value = _EXP[12]
    for k in range(11, -1, -1):
        value = _EXP[k] + r * value
    return value * np.int64((1023 - np.int64(np.int32(n))) << 52).view(np.float64)


@separate(types.UniTuple(types.float64, 3), *(types.float64,) * 4, VECTOR, VECTOR, by=vectorized)
def _sums(
    steepness: float, half: float, left: float, width: float, nodes: Array, weights: Array
) -> tuple[float, float, float]:
    """Return sums of exp(-steepness·|t| - half·t²)·(1, t, t²) over the nodes."""
    mass, first, second = 0.0, 0.0, 0.0
    for i in range(nodes.shape[0]):
        t = left + width * nodes[i]
        distance = abs(t)
        weight = weights[i] * decay(distance * (steepness + half * distance))
        mass += weight
        first += weight * t
        second += weight * t * t
    return mass, first, second


@separate(types.UniTuple(types.float64, 4), types.float64, types.float64, types.float64, ROW, MATRIX)
def tilted_row(
    center: float, precision: float, tilt: float, row: Row, moments: Array
) -> tuple[float, float, float, float]:
    """Integrate exp(-½·precision·(r - center)² + tilt·(r - center) - E(r)) over r, piece by piece; precision >= 0.

    Returns the log of the integral (inf where it diverges), the mean of r - center, the variance of r and the mean of
    dE/dr. ``moments`` (m+1, 3) gets the share of each piece in the mass, and the means of u and u² in it
    (`Pieces.d_energy`).
    """
    knots, _, slope, curvature = row
    n_knots = knots.shape[0]
    best, best_piece = -inf, 0
    # moments temporarily holds: log of the peak, its position in r - center, steepness.
    for j in range(n_knots + 1):
        anchor, lower, upper = extent(j, knots)
        shift = anchor - center
        moments[j, 0] = -inf
        if upper == lower:
            continue
        total = precision + curvature[j]
        linear = tilt - slope[j] - precision * shift
        place, steepness, left, right = peak(lower, upper, linear, total)
        at = shift + place
        level = at * (tilt - 0.5 * precision * at) - energy_on(place, j, row)
        moments[j, 0] = level
        moments[j, 1] = place
        moments[j, 2] = steepness
        score = level + log(right - left)
        if score > best:
            best, best_piece = score, j
    if best == inf:
        return inf, 0.0, inf, 0.0
    reference = moments[best_piece, 1] + knots[max(best_piece - 1, 0)]
    top = moments[best_piece, 0]
    mass, first, second, slope_sum, terms = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(n_knots + 1):
        level, place, steepness = moments[j, 0], moments[j, 1], moments[j, 2]
        moments[j, 0], moments[j, 1], moments[j, 2] = 0.0, 0.0, 0.0
        if level == -inf:
            continue
        anchor, lower, upper = extent(j, knots)
        total = precision + curvature[j]
        farthest = reach(steepness, total)
        left, right = -min(farthest, place - lower), min(farthest, upper - place)
        if level + log(right - left) < best - _NEGLIGIBLE:
            continue
        piece_mass, t1, t2 = peak_integrals(steepness, total, left, right)
        piece_mass *= exp(level - top)
        offset = anchor - reference + place
        mass += piece_mass
        first += piece_mass * (offset + t1)
        second += piece_mass * (offset * offset + 2.0 * offset * t1 + t2)
        rise = piece_mass * (slope[j] + curvature[j] * (place + t1))
        slope_sum += rise
        terms += abs(rise)
        unit = upper if 0 < j < n_knots else 1.0
        moments[j, 0] = piece_mass
        moments[j, 1] = (place + t1) / unit
        moments[j, 2] = (place * place + 2.0 * place * t1 + t2) / (unit * unit)
    for j in range(n_knots + 1):
        moments[j, 0] /= mass
    first /= mass
    variance = max(second / mass - first * first, 0.0)
    offset, mean_slope = reference - center + first, slope_sum / mass
    if terms / mass > precision * (abs(reference) + abs(center)):  # where steep pieces on both sides cancel
        mean_slope = tilt - precision * offset
    return top + log(mass), offset, variance, mean_slope


@compiled
def mean_d_energy(moments: Array, d_energy: Array) -> float:
    """Return the mean of dE/dθ under the density whose piece moments `tilted_row` filled in; d_energy is (m+1, 3)."""
    total = 0.0
    for j in range(moments.shape[0]):
        if moments[j, 0] > 0.0:
            total += moments[j, 0] * (d_energy[j, 0] + d_energy[j, 1] * moments[j, 1] + d_energy[j, 2] * moments[j, 2])
    return total


@register_jitable
def _fill_row(curve: Array, row: Row) -> None:
    """Fill knots, value, slope and curvature of a row of the table from its curve, 3m + 3 entries."""
    knots, value, slope, curvature = row
    m = value.shape[0]
    for j in range(m):
        knots[j], value[j] = curve[j], curve[m + j]
    for j in range(m + 1):
        slope[j] = curve[2 * m + j]
    curvature[0], curvature[m] = curve[3 * m + 1], curve[3 * m + 2]
    for j in range(1, m):
        width, rise = knots[j] - knots[j - 1], slope[j + 1] - slope[j]
        kink = width < _SMALLEST * rise
        if kink:
            knots[j] = knots[j - 1]
        curvature[j] = 0.0 if kink or rise <= 0.0 else rise / (width if width > 0.0 else 1.0)


@register_jitable
def _fill_derivative(d: Array, row: Row, d_energy: Array) -> None:
    """Fill ``d_energy`` (m + 1, 3) by a parameter from the derivative of the curve.

    On a bounded piece E = v + s·w·u + ½·Δ·w·u² with u = (r - knot)/w and the change Δ of the slope. Its derivatives at
    fixed r have no division by the width w. They are exact for every width, 0 included.
    """
    knots, value, slope, curvature = row
    m = value.shape[0]
    for j in range(m + 1):
        anchor, c = max(j - 1, 0), d_energy[j]
        c[0] = d[m + anchor] - slope[j] * d[anchor]
        if 0 < j < m:
            width, rise = knots[j] - knots[j - 1], slope[j + 1] - slope[j]
            d_width, d_rise = d[j] - d[j - 1], d[2 * m + j + 1] - d[2 * m + j]
            c[1] = width * d[2 * m + j] - rise * d[anchor]
            c[2] = 0.5 * (width * d_rise - rise * d_width)
        else:
            c[1] = d[2 * m + j] - curvature[j] * d[anchor]
            c[2] = 0.5 * d[3 * m + (1 if j == 0 else 2)]


@separate(PIECES, MATRIX, types.float64[:, :, ::1], VECTOR, types.boolean)
def of_curves(values: Array, derivatives: Array, labels: Array, log_odds: bool) -> Pieces:
    """Make the table from energies as curves (k, 3m + 3), derivatives (p, k, 3m + 3), and labels, if any.

    With ``log_odds`` the energies are minus the log odds of the labels, whose factors have no other normaliser.
    """
    count, rows, m = derivatives.shape[0], values.shape[0], values.shape[1] // 3 - 1
    pieces, moments = empty(count, rows, m), np.empty((m + 1, 3))
    for k in range(rows):
        row = row_at(k, pieces)
        _fill_row(values[k], row)
        for p in range(count):
            _fill_derivative(derivatives[p, k], row, pieces.d_energy[p, k])
        if log_odds:
            pieces.labels[k] = 1.0
        elif labels.shape[0] > 0:  # at |f| = 1 one of the two labels has the energy 0 (Sollich 2002, (4))
            highest, _, _, j = energy(2.0 * labels[k], row)
            pieces.log_normalizer[k] = log1p(exp(-highest))
            for p in range(count):
                d_highest = d_energy_at(2.0 * labels[k], j, row[0], pieces.d_energy[p, k])
                pieces.d_log_normalizer[p, k] = -d_highest / (1.0 + exp(min(highest, 600.0)))
        else:
            pieces.log_normalizer[k] = tilted_row(0.0, 0.0, 0.0, row, moments)[0]
            for p in range(count):
                pieces.d_log_normalizer[p, k] = -mean_d_energy(moments, pieces.d_energy[p, k])
    return pieces

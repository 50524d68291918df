"""The factor of a row: p(y|f)^weight of an exact target or a label, or the probability of the interval of a target.

A row of weight w counts like w equal rows. One site of weight w matches the moments of the whole factor. This is more
accurate than w sites of one row each, so the estimators merge equal rows.

The factor of a known label is (1 + exp(E))^-w, with E minus its log odds, linear on each piece (Sollich 2002, (11)).
"""

from __future__ import annotations

from math import copysign, exp, inf, log, log1p, pi, sqrt

import numpy as np
from numba import types

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate
from bsvr_pp.core.losses.intervals import mass_row, tilted_interval
from bsvr_pp.core.losses.pieces import (
    FEW_NODES,
    FEW_WEIGHTS,
    PIECES,
    ROW,
    Pieces,
    Row,
    d_energy_at,
    empty,
    energy,
    extent,
    mean_d_energy,
    row_at,
    tilted_row,
)

_NEGLIGIBLE = 45.0  # a piece whose peak is below e⁻⁴⁵ of the largest is ignored
_STEPS = 40  # largest number of steps to the maximum on a piece
_PANEL = 3.0  # largest width of a panel, in standard deviations of the Gaussian
_CHANGE = 4.0  # largest change of E on a panel where the factor bends
_FALL = 5.0  # largest fall of the log density on a panel at its maximum
_HALVINGS = 60  # of a panel on which it falls more


@separate(PIECES, PIECES, MATRIX, VECTOR)
def of_rows(pieces: Pieces, ends: Array, weight: Array) -> Pieces:
    """Return the table of n rows with relative ends (n, 2) and weights (n,) > 0; one row if all are equal."""
    plain = np.all(weight == 1.0) and np.all(ends[:, 0] == ends[:, 1])
    return pieces if plain else take(pieces, 0, ends, weight)


@compiled
def take(pieces: Pieces, first: int, ends: Array, weight: Array) -> Pieces:
    """Return rows of the points from ``first`` on, with ends (n, 2) and weights (n,), which multiply energies."""
    n, n_parameters, n_knots = weight.shape[0], pieces.d_energy.shape[0], pieces.knots.shape[1]
    out = empty(n_parameters, n, n_knots)
    for i in range(n):
        k, w = row_of(first + i, pieces), weight[i]
        out.ends[i, 0], out.ends[i, 1] = ends[i, 0], ends[i, 1]
        out.log_normalizer[i] = w * pieces.log_normalizer[k]
        out.labels[i] = w * pieces.labels[k]
        if pieces.labels[k] > 0.0:
            w = 1.0  # its log odds stay the same
        for j in range(n_knots):
            out.knots[i, j], out.value[i, j] = pieces.knots[k, j], w * pieces.value[k, j]
        for p in range(n_parameters):
            out.d_log_normalizer[p, i] = w * pieces.d_log_normalizer[p, k]
        for j in range(n_knots + 1):
            out.slope[i, j], out.curvature[i, j] = w * pieces.slope[k, j], w * pieces.curvature[k, j]
            for p in range(n_parameters):
                for power in range(3):
                    out.d_energy[p, i, j, power] = w * pieces.d_energy[p, k, j, power]
    return out


@compiled
def row_of(i: int, pieces: Pieces) -> int:
    """Return the row of the table of point i."""
    return i if pieces.knots.shape[0] > 1 else 0


@compiled
def is_interval(k: int, pieces: Pieces) -> bool:
    """Return whether the target of a row of the table is an interval."""
    return pieces.ends[k, 0] < pieces.ends[k, 1]


@compiled
def site_energy(s: float, k: int, pieces: Pieces) -> tuple[float, float, float]:
    """Return minus the log factor of row k without its normaliser, at s = t - f, and its two derivatives by s."""
    if is_interval(k, pieces):
        moments = np.empty((pieces.slope.shape[1], 3))
        mass = mass_row(s, pieces.ends[k, 0], pieces.ends[k, 1], row_at(k, pieces), moments)
        return -mass[0], -mass[1], -mass[2]
    return energy(s, row_at(k, pieces))[:3]


@compiled
def site_derivatives(s: float, k: int, pieces: Pieces, by_parameters: Array) -> tuple[float, float, float, float]:
    """Return log factor of row k at s = t - f, right-hand derivatives by s and ends; fill ``by_parameters`` (p,)."""
    row = row_at(k, pieces)
    if is_interval(k, pieces):
        moments = np.empty((pieces.slope.shape[1], 3))
        log_mass, by_s, _, at_low, at_high = mass_row(s, pieces.ends[k, 0], pieces.ends[k, 1], row, moments)
        for q in range(by_parameters.shape[0]):
            by_parameters[q] = -mean_d_energy(moments, pieces.d_energy[q, k]) - pieces.d_log_normalizer[q, k]
        return log_mass - pieces.log_normalizer[k], by_s, -at_low, at_high
    at_s, rise, _, j = energy(s, row)
    value, share, count = -at_s, 1.0, pieces.labels[k]
    if count > 0.0:
        value, share = log_share(at_s)
        value, share = count * value, count * share
    for q in range(by_parameters.shape[0]):
        by_parameters[q] = -share * d_energy_at(s, j, row[0], pieces.d_energy[q, k]) - pieces.d_log_normalizer[q, k]
    return value - pieces.log_normalizer[k], -share * rise, 0.0, 0.0


@separate(types.Tuple((VECTOR, VECTOR, VECTOR, VECTOR, MATRIX)), VECTOR, VECTOR, PIECES)
def tilted_moments(mean: Array, variance: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array, Array]:
    """Return moments of a Gaussian of y - f (mean, variance) times the factor of each row, normalised.

    Returns (n,) arrays: log Z, its derivative by the mean of f (the mean of dE/dr), mean of y - f, and variance. Also
    returns the (p + 2, n) derivatives of log Z by the parameters of the loss and both ends, 0 for exact targets.
    """
    n, n_parameters = mean.shape[0], pieces.d_energy.shape[0]
    log_mass, score, residual, tilted_variance = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    derivatives, moments = np.zeros((n_parameters + 2, n)), np.empty((pieces.slope.shape[1], 3))
    for i in range(n):
        k = row_of(i, pieces)
        row = row_at(k, pieces)
        if is_interval(k, pieces):
            low, high, sd = pieces.ends[k, 0], pieces.ends[k, 1], sqrt(variance[i])
            found = tilted_interval(mean[i], variance[i], low, high, row, moments)
            log_z, x, spread, derivatives[n_parameters, i], derivatives[n_parameters + 1, i] = found
            score[i], residual[i], tilted_variance[i] = x / sd, mean[i] - sd * x, variance[i] * spread
        elif pieces.labels[k] > 0.0:
            found_label = tilted_label(mean[i], variance[i], pieces.labels[k], row, moments)
            log_z, offset, tilted_variance[i], score[i] = found_label
            residual[i] = mean[i] + offset
        else:
            log_z, offset, tilted_variance[i], score[i] = tilted_row(mean[i], 1.0 / variance[i], 0.0, row, moments)
            residual[i] = mean[i] + offset
            log_z -= 0.5 * log(2.0 * pi * variance[i])
        log_mass[i] = log_z - pieces.log_normalizer[k]
        for p in range(n_parameters):
            derivatives[p, i] = -mean_d_energy(moments, pieces.d_energy[p, k]) - pieces.d_log_normalizer[p, k]
    return log_mass, score, residual, tilted_variance, derivatives


@compiled
def log_factors(f: Array, t: Array, pieces: Pieces) -> Array:
    """Return the log of each factor p(y_i|f_i), for draws of f (draws, n)."""
    out = np.empty(f.shape)
    for i in range(f.shape[1]):
        k = row_of(i, pieces)
        row, exact = row_at(k, pieces), not is_interval(k, pieces)  # once for all draws: views of arrays are expensive
        count = pieces.labels[k]
        for p in range(f.shape[0]):
            s = t[i] - f[p, i]
            at_s = energy(s, row)[0] if exact else site_energy(s, k, pieces)[0]
            if count > 0.0:
                at_s = -count * log_share(at_s)[0]
            out[p, i] = -at_s - pieces.log_normalizer[k]
    return out


@compiled
def log_share(energy: float) -> tuple[float, float]:
    """Return the log of 1/(1 + exp(E)), and minus its derivative by E."""
    small = exp(-abs(energy))
    return -max(energy, 0.0) - log1p(small), (1.0 if energy > 0.0 else small) / (1.0 + small)


@compiled
def _peak(shift: float, variance: float, count: float, value: float, slope: float, low: float, high: float) -> float:
    """Maximise the concave -(s + shift)²/(2·variance) - count·log(1 + exp(value + slope·s)) on [low, high]."""
    ends = -shift, -shift - variance * count * slope  # where the share is 0, and 1
    left, right = min(ends), max(ends)
    if left >= high:
        return high
    if right <= low:
        return low
    left, right = max(left, low), min(right, high)
    s, last = min(max(-shift, left), right), inf
    for _ in range(_STEPS):
        _, share = log_share(value + slope * s)
        rise = -(s + shift) / variance - count * share * slope
        if rise > 0.0:
            left = s
        else:
            right = s
        curvature = 1.0 / variance + count * share * (1.0 - share) * slope * slope
        new = s + rise / curvature
        if not (left < new < right and abs(new - s) < 0.5 * last):  # Newton's steps may also alternate
            new = 0.5 * (left + right)
        last = abs(new - s)
        if last <= 1e-3 / sqrt(curvature):
            return new
        s = new
    return s


@separate(types.UniTuple(types.float64, 4), types.float64, types.float64, types.float64, ROW, MATRIX)
def tilted_label(
    mean: float, variance: float, count: float, row: Row, moments: Array
) -> tuple[float, float, float, float]:
    """Return moments of a Gaussian of s = t - f times (1 + exp(E(s)))^-count, for a linear E on each piece.

    Returns the log of the integral, the mean of s - mean, the variance of s, and the derivative of the log by the mean
    of f. ``moments`` (m+1, 3) is filled as by `tilted_row`, with shares times count(1 - p) of the probability p of the
    label.
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
    mass, first, second, rise, log_count = 0.0, 0.0, 0.0, 0.0, log(max(count, 1.0))
    for j in range(pieces):
        place, level = moments[j, 1], moments[j, 2]
        moments[j, 1] = moments[j, 2] = 0.0
        if level < top - _NEGLIGIBLE:
            continue
        anchor, low, high = extent(j, knots)
        shift, value = anchor - mean, at_knots[max(j - 1, 0)]
        unit = knots[j] - knots[j - 1] if 0 < j < pieces - 1 else 1.0
        by_share, by_first, by_second = 0.0, 0.0, 0.0
        for end in (low, high):  # panels from the maximum to either end, while there is something to integrate
            s, here = place, level
            while s != end and here > top - _NEGLIGIBLE:
                at_s = value + slope[j] * s
                change = _CHANGE + 0.5 * max(at_s, -at_s - log_count, 0.0)
                width = min(abs(end - s), _PANEL * sqrt(variance))
                if slope[j] != 0.0:
                    width = min(width, change / abs(slope[j]))
                begin, before = s, here
                for _ in range(_HALVINGS):
                    s = end if width == abs(end - begin) else begin + copysign(width, end - begin)
                    here = -0.5 * (s + shift) ** 2 / variance + count * log_share(value + slope[j] * s)[0]
                    if before - here <= _FALL + 2.0 * (top - before):
                        break
                    width *= 0.5
                if s == begin:  # a fall between two numbers
                    break
                for i in range(FEW_NODES.shape[0]):
                    at = begin + (s - begin) * FEW_NODES[i]
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
        if by_share > 0.0:
            moments[j, 0] = by_share
            moments[j, 1], moments[j, 2] = by_first / by_share / unit, by_second / by_share / (unit * unit)
            rise += by_share * slope[j]
    for j in range(pieces):
        moments[j, 0] /= mass
    first /= mass
    return top + log(mass) - 0.5 * log(2.0 * pi * variance), first, max(second / mass - first * first, 0.0), rise / mass

"""Compiled elementwise functions of the noise density, computed from its table of pieces."""

from __future__ import annotations

from math import erfc, exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._compiler import compiled
from bsvr_pp.losses.interval_moments import tilted_interval
from bsvr_pp.losses.pieces import NODES, WEIGHTS, Pieces, energy, energy_on, peak, peak_integrals, tilted_row

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_LOWER_TAIL = 1e-6  # probability below which the tail of the Gaussian beyond nine standard deviations may count


@compiled
def energies(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """E(r), elementwise."""
    return _column(r, rows, pieces, 0)


@compiled
def slopes(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """dE/dr, elementwise."""
    return _column(r, rows, pieces, 1)


@compiled
def curvatures(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """d²E/dr², elementwise."""
    return _column(r, rows, pieces, 2)


@compiled
def _column(r: Array, rows: Rows, pieces: Pieces, column: int) -> Array:
    out = np.empty(r.shape[0])
    for i in range(r.shape[0]):
        k = rows[i]
        found = energy(r[i], pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k])
        out[i] = found[0] if column == 0 else (found[1] if column == 1 else found[2])
    return out


@compiled
def mean_variance(pieces: Pieces) -> tuple[Array, Array]:
    """Mean and variance of the noise of each row."""
    n = pieces.knots.shape[0]
    mean, variance = np.empty(n), np.empty(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    for k in range(n):
        _, mean[k], variance[k], _ = tilted_row(
            0.0, 0.0, 0.0, pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k], moments
        )
    return mean, variance


@compiled
def log_tail(r: float, upper_tail: bool, k: int, pieces: Pieces) -> float:
    """Log of the mass of the noise below r, or above it."""
    knots, slope = pieces.knots[k], pieces.slope[k]
    n_knots = knots.shape[0]
    mass, top = 0.0, -inf
    for j in range(n_knots + 1):
        anchor = knots[max(j - 1, 0)]
        lower = -inf if j == 0 else 0.0
        upper = inf if j == n_knots else (0.0 if j == 0 else knots[j] - anchor)
        if upper_tail:
            lower = max(lower, r - anchor)
        else:
            upper = min(upper, r - anchor)
        if not lower < upper:
            continue
        precision = pieces.curvature[k, j]
        place, steepness, left, right = peak(lower, upper, -slope[j], precision)
        log_piece = -energy_on(place, j, knots, pieces.value[k], slope, pieces.curvature[k])
        log_piece += log(peak_integrals(steepness, precision, left, right)[0])
        if log_piece > top:
            mass = mass * exp(top - log_piece) + 1.0 if top > -inf else 1.0
            top = log_piece
        else:
            mass += exp(log_piece - top)
    return top + log(mass) - pieces.log_normalizer[k] if top > -inf else -inf


@compiled
def cdf(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """Mass below r, elementwise."""
    out = np.empty(r.shape[0])
    for i in range(r.shape[0]):
        if np.isnan(r[i]):
            out[i] = np.nan
        elif r[i] <= 0.0:
            out[i] = exp(log_tail(r[i], False, rows[i], pieces)) if r[i] > -inf else 0.0
        else:
            out[i] = 1.0 - exp(log_tail(r[i], True, rows[i], pieces)) if r[i] < inf else 1.0
    return out


@compiled
def _solve_tail(log_q: float, upper_tail: bool, k: int, pieces: Pieces) -> float:
    """Residual whose tail has the log mass log_q: Newton's method on the log tail.

    The density is log-concave, so the log tail is a concave function of r: from anywhere Newton's first step lands
    in the tail beyond the root and all later ones approach it monotonically; in a linear piece at the end of the
    table the first step is exact.
    """
    knots = pieces.knots[k]
    sign = -1.0 if upper_tail else 1.0
    r = knots[0] if not upper_tail else knots[-1]
    # Start from the last knot that still lies beyond the root, if there is one.
    for j in range(knots.shape[0]):
        knot = knots[knots.shape[0] - 1 - j] if upper_tail else knots[j]
        if log_tail(knot, upper_tail, k, pieces) <= log_q:
            r = knot
    for _ in range(200):
        log_mass = log_tail(r, upper_tail, k, pieces)
        energy_at_r = energy(r, knots, pieces.value[k], pieces.slope[k], pieces.curvature[k])[0]
        log_hazard = -energy_at_r - pieces.log_normalizer[k] - log_mass
        step = sign * (log_q - log_mass) * exp(-log_hazard)
        moved = r + step
        if abs(moved - r) <= 4e-16 * abs(moved) or abs(log_q - log_mass) < 1e-15:
            return moved
        r = moved
    return r


@compiled
def quantile(q: Array, rows: Rows, pieces: Pieces) -> Array:
    """Residual with mass q below it, elementwise."""
    out = np.empty(q.shape[0])
    for i in range(q.shape[0]):
        if q[i] <= 0.0:
            out[i] = -inf
        elif q[i] >= 1.0:
            out[i] = inf
        elif q[i] <= 0.5:
            out[i] = _solve_tail(log(q[i]), False, rows[i], pieces)
        else:
            out[i] = _solve_tail(log(1.0 - q[i]), True, rows[i], pieces)
    return out


@compiled
def convolved_cdf(y: Array, mean: Array, sd: Array, rows: Rows, pieces: Pieces) -> Array:
    """P(f + r <= y) for Gaussian f and the noise r of each row, elementwise; sd may be 0.

    With z = y - mean it is the mass of the noise below z - 9 sd, plus the integral of the noise density times
    Φ((z - r)/sd) over z ± 9 sd, by nodes on each piece and side of z. In the lower tail, where the rest of the Gaussian
    counts, it is the mass of the interval below y.
    """
    out = np.empty(y.shape[0])
    n_knots = pieces.knots.shape[1]
    moments = np.empty((n_knots + 1, 3))
    for i in range(y.shape[0]):
        k = rows[i]
        knots, value, slope, curvature = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
        z, reach = y[i] - mean[i], 9.0 * sd[i]
        total = exp(log_tail(z - reach, False, k, pieces))
        for side in range(2 if reach > 0.0 else 0):
            low, high = (z - reach, z) if side == 0 else (z, z + reach)
            for j in range(n_knots + 1):
                anchor = knots[max(j - 1, 0)]
                lower = low if j == 0 else max(low, knots[j - 1])
                upper = high if j == n_knots else min(high, knots[j])
                if upper <= lower:
                    continue
                place, _, left, right = peak(lower - anchor, upper - anchor, -slope[j], curvature[j])
                for q in range(NODES.shape[0]):
                    s = place + left + (right - left) * NODES[q]
                    log_density = -energy_on(s, j, knots, value, slope, curvature) - pieces.log_normalizer[k]
                    below = 0.5 * erfc((anchor + s - z) / (sd[i] * sqrt(2.0)))
                    total += (right - left) * WEIGHTS[q] * exp(log_density) * below
        if total < _LOWER_TAIL and reach > 0.0:
            log_mass = tilted_interval(z, sd[i] * sd[i], -inf, 0.0, knots, value, slope, curvature, moments)[0]
            total = exp(log_mass - pieces.log_normalizer[k])
        out[i] = min(total, 1.0)
    return out

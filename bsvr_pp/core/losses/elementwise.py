"""Compiled elementwise functions of the noise density, computed from its table of pieces."""

from __future__ import annotations

from math import exp, inf, log, pi, sqrt

import numpy as np
from numba import types
from numpy.typing import NDArray
from scipy.special import erfcx

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import VECTOR, compiled, separate, vectorized
from bsvr_pp.core.losses.intervals import mass_row, tilted_interval
from bsvr_pp.core.losses.pieces import (
    PIECES,
    Pieces,
    Row,
    decay,
    energy,
    energy_on,
    extent,
    nodes_for,
    peak,
    peak_integrals,
    row_at,
    tilted_row,
)

Rows = NDArray[np.intp]
Mixture = tuple[Array, Array, Array, Rows]  # weights, means and variances of f, and rows of the table of the noise

_POINT = 1e-14  # a smaller standard deviation, times the largest density of the noise, is taken as 0
_STEEP = 1e-3  # slope·sd, or width/sd of a flat piece, above which integration by parts is exact
_REACH = 9.0  # standard deviations beyond which a Gaussian is negligible
_NEAR_TAIL = 3e-5  # relative error of the probability below which a step is the last
_NO_WEIGHT = 1e-16  # a smaller weight of a component is taken as 0
_FAR_TAIL = 1e-6  # probability below which the tail of the Gaussian beyond nine standard deviations may count


def _mills_table(cells: int = 32, degree: int = 9) -> Array:
    """Return coefficients (cells, degree + 1) of polynomials for the Mills ratio over t = 4/(4 + x), on cells of t."""
    u = 0.5 + 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    t = (np.arange(cells)[:, None] + u) / cells
    ratio = sqrt(0.5 * pi) * erfcx((4.0 / t - 4.0) * sqrt(0.5)) / t
    return np.ascontiguousarray(np.linalg.solve(np.vander(u), ratio.T).T)


_MILLS = _mills_table()


@compiled
def energies(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """Return E(r) and its two derivatives, (3, n)."""
    out = np.empty((3, r.shape[0]))
    for i in range(r.shape[0]):
        out[0, i], out[1, i], out[2, i], _ = energy(r[i], row_at(rows[i], pieces))
    return out


@compiled
def mean_variance(pieces: Pieces) -> tuple[Array, Array]:
    """Return the mean and variance of the noise of each row."""
    n = pieces.knots.shape[0]
    mean, variance = np.empty(n), np.empty(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    for k in range(n):
        _, mean[k], variance[k], _ = tilted_row(0.0, 0.0, 0.0, row_at(k, pieces), moments)
    return mean, variance


@compiled
def log_mgf(t: float, pieces: Pieces) -> Array:
    """Return the log of the mean of exp(t·r) for the noise r of each row; inf where it diverges."""
    out, moments = np.empty(pieces.knots.shape[0]), np.empty((pieces.slope.shape[1], 3))
    for k in range(out.shape[0]):
        _, _, slope, curvature = row = row_at(k, pieces)
        if (curvature[-1] == 0.0 and slope[-1] <= t) or (curvature[0] == 0.0 and slope[0] >= t):
            out[k] = inf
        else:
            out[k] = tilted_row(0.0, 0.0, t, row, moments)[0] - pieces.log_normalizer[k]
    return out


@vectorized
def _mills(x: float) -> float:
    """Return the Mills ratio P(X > x)/p(x) of a normal X, for x >= 0."""
    t = 4.0 / (4.0 + x)
    cell = min(int(t * _MILLS.shape[0]), _MILLS.shape[0] - 1)
    u, total = t * _MILLS.shape[0] - cell, 0.0
    for c in range(_MILLS.shape[1]):
        total = total * u + _MILLS[cell, c]
    return t * total


@compiled
def _mass(lower: float, upper: float, j: int, row: Row) -> float:
    """Return the integral of exp(-E) between two distances from the anchor of piece j."""
    place, steepness, left, right = peak(lower, upper, -row[2][j], row[3][j])
    return exp(-energy_on(place, j, row)) * peak_integrals(steepness, row[3][j], left, right)[0]


@separate(types.float64, *(types.float64,) * 6, VECTOR, VECTOR, by=vectorized)
def _shares(
    steepness: float, half: float, left: float, width: float, shift: float, rate: float, nodes: Array, weights: Array
) -> float:
    """Sum of exp(-steepness·|t| - half·t²)·√(2π)·P(X > rate·|shift + t|) over the nodes, for normal X."""
    total = 0.0
    for i in range(nodes.shape[0]):
        t = left + width * nodes[i]
        distance, x = abs(t), abs(shift + t) * rate
        total += weights[i] * decay(distance * (steepness + half * distance) + 0.5 * x * x) * _mills(x)
    return total


@compiled
def _tail_by_nodes(lower: float, upper: float, z: float, sd: float, sign: float, j: int, row: Row) -> float:
    """Integrate exp(-E)·Φ(sign·(z - r)/sd) over r on piece j; ends and z are distances from its anchor."""
    low, high, total = max(lower, z - _REACH * sd), min(upper, z + _REACH * sd), 0.0
    if sign > 0.0 and lower < low:
        total += _mass(lower, min(low, upper), j, row)
    elif sign < 0.0 and upper > high:
        total += _mass(max(high, lower), upper, j, row)
    for side in range(2):
        first, last = (low, min(high, z)) if side == 0 else (max(low, z), high)
        if last <= first:
            continue
        place, steepness, left, right = peak(first, last, -row[2][j], row[3][j])
        nodes, weights = nodes_for(steepness, row[3][j] + 1.0 / (sd * sd), left, right)
        # With the smaller of the two shares of the Gaussian.
        of_peak = exp(-energy_on(place, j, row)) * (right - left) / sqrt(2.0 * pi)
        smaller = of_peak * _shares(steepness, 0.5 * row[3][j], left, right - left, place - z, 1.0 / sd, nodes, weights)
        total += smaller if (side == 0) == (sign < 0.0) else _mass(first, last, j, row) - smaller
    return total


@compiled
def convolve(
    z: float, sd: float, upper_tail: bool, k: int, pieces: Pieces, moments: Array
) -> tuple[float, float, float]:
    """Return P(g + r <= z), or P(g + r >= z), with density and its negative derivative, for Gaussian g and the noise r.

    The mean of g is 0, and sd may be 0. The density has a closed form on each piece. The probability is integrated by
    parts on flat and linear pieces, and by nodes on others. In the far tail it is the mass of the interval beyond z.
    """
    knots, value, slope, curvature = row = row_at(k, pieces)
    n_knots, scale = knots.shape[0], exp(-pieces.log_normalizer[k])
    low, high = (0.0, inf) if upper_tail else (-inf, 0.0)
    if sd * scale < _POINT:
        log_mass = mass_row(z, low, high, row, moments)[0] - pieces.log_normalizer[k]
        at_z, rise, _, _ = energy(z, row)
        height = exp(-at_z) * scale
        return min(exp(log_mass), 1.0), height, height * rise
    sign, precision = (-1.0 if upper_tail else 1.0), 1.0 / (sd * sd)
    total, density, fall = 0.0, 0.0, 0.0
    at_lower, share_lower = 0.0, 0.0  # exp(-E) at the lower end, times density and probability of the Gaussian there
    for j in range(n_knots + 1):
        anchor, lower, upper = extent(j, knots)
        if upper == lower:
            continue
        at_upper, share_upper = 0.0, 0.0
        if j < n_knots:
            height, x = exp(-value[j]), (knots[j] - z) / sd
            at_upper = height * exp(-0.5 * x * x) / (sqrt(2.0 * pi) * sd)
            share_upper = at_upper * sd * _mills(abs(x))
            if sign * x < 0.0:
                share_upper = height - share_upper
        # Up to a constant, E and the Gaussian are ½·root²·(distance from the top)² on this piece.
        root = sqrt(curvature[j] + precision)
        top = ((z - anchor) * precision - slope[j]) / (root * root)
        below, above = root * (lower - top), root * (upper - top)
        from_lower = at_lower * _mills(abs(below)) / root if j > 0 else 0.0
        from_upper = at_upper * _mills(abs(above)) / root if j < n_knots else 0.0
        mass = from_lower - from_upper if below >= 0.0 else from_upper - from_lower
        if below < 0.0 < above:
            x = (slope[j] + curvature[j] * top) * sd
            mass = exp(-energy_on(top, j, row) - 0.5 * x * x) / (sd * root) - from_lower - from_upper
        density += mass
        fall += (slope[j] + curvature[j] * top) * mass + curvature[j] / (root * root) * (at_lower - at_upper)
        if sign * (anchor + (upper if upper_tail else lower) - z) < _REACH * sd:
            whole = sign * (z - anchor - (lower if upper_tail else upper)) > _REACH * sd
            if whole:
                total += _mass(lower, upper, j, row)
            elif curvature[j] == 0.0 and slope[j] == 0.0 and upper > _STEEP * sd:
                total += (z - anchor) * (share_lower - share_upper) + upper * share_upper
                total += sign * sd * sd * (at_lower - at_upper)
            elif curvature[j] == 0.0 and abs(slope[j]) * sd > _STEEP:
                total += (share_lower - share_upper - sign * mass) / slope[j]
            else:
                total += _tail_by_nodes(lower, upper, z - anchor, sd, sign, j, row)
        at_lower, share_lower = at_upper, share_upper
    total *= scale
    if total < _FAR_TAIL:
        total = exp(tilted_interval(z, sd * sd, low, high, row, moments)[0]) * scale
    return min(total, 1.0), density * scale, fall * scale


@compiled
def convolved_cdf(y: Array, mean: Array, sd: Array, upper_tail: Array, rows: Rows, pieces: Pieces) -> Array:
    """Return P(f + r <= y), or P(f + r >= y), for Gaussian f and the noise r, elementwise; sd may be 0."""
    out, moments = np.empty(y.shape[0]), np.empty((pieces.slope.shape[1], 3))
    for i in range(y.shape[0]):
        out[i] = convolve(y[i] - mean[i], sd[i], upper_tail[i], rows[i], pieces, moments)[0]
    return out


@compiled
def _solve_mixture(
    level: float, z: float, below: float, above: float, mixture: Mixture, pieces: Pieces, moments: Array
) -> tuple[float, float, float]:
    """Find a quantile of a mixture between bounds (Halley or bisection); also density and negative log derivative."""
    weights, means, variances, rows = mixture
    upper_tail = level > 0.5
    target, sign = (1.0 - level, -1.0) if upper_tail else (level, 1.0)
    density, rate = 0.0, 0.0
    last, before_last = inf, inf  # sizes of steps
    for _ in range(200):
        tail, density, fall = 0.0, 0.0, 0.0
        for c in range(weights.shape[0]):
            if weights[c] > _NO_WEIGHT:
                found = convolve(z - means[c], sqrt(variances[c]), upper_tail, rows[c], pieces, moments)
                tail += weights[c] * found[0]
                density += weights[c] * found[1]
                fall += weights[c] * found[2]
        if (tail < target) == upper_tail:
            above = min(above, z)
        else:
            below = max(below, z)
        distance = log(target / tail) if tail > 0.0 else inf
        moved = inf
        if density > 0.0:
            step, rate = sign * distance * tail / density, fall / density
            turn = 1.0 - 0.5 * step * (rate + sign * density / tail)
            moved = z + (step / turn if 0.5 < turn < 2.0 else step)
        inside = below <= moved <= above and abs(moved - z) <= 0.5 * before_last
        if not inside and above - below <= 4e-16 * max(abs(above), abs(below)):
            break
        moved = moved if inside else 0.5 * (below + above)
        step, z = moved - z, moved
        last, before_last = abs(step), last
        if inside:
            density *= 1.0 - rate * step
            # The relative error of the tail after a step is of the order of its third power.
            if max(abs(step * rate), abs(distance)) <= _NEAR_TAIL or abs(step) <= 4e-16 * abs(z):
                break
    return z, density, rate


@compiled
def mixture_quantiles(
    levels: Array, probits: Array, weights: Array, means: Array, variances: Array, rows: Rows, pieces: Pieces
) -> Array:
    """Return quantiles (levels, n) of mixtures of f + noise, by `_solve_mixture`.

    Weights, means, variances and rows of the table are (components, n); levels (levels, n) do not descend. The search
    starts at the normal approximation, and for further levels at an extrapolation of the last two quantiles and their
    slopes.
    """
    out, moments = np.empty(levels.shape), np.empty((pieces.slope.shape[1], 3))
    noise_mean, noise_variance = mean_variance(pieces)
    for i in range(levels.shape[1]):
        mixture = weights[:, i].copy(), means[:, i].copy(), variances[:, i].copy(), rows[:, i].copy()
        each = means[:, i] + noise_mean[mixture[3]]
        mean = float(np.sum(mixture[0] * each))
        sd = sqrt(np.sum(mixture[0] * (mixture[2] + noise_variance[mixture[3]] + (each - mean) ** 2)))
        # The normal quantile at which the search was last, and coefficients of a polynomial of the distance from it.
        at, z, slope, bend, cubic, quartic = 0.0, mean, sd, 0.0, 0.0, 0.0
        for q in range(levels.shape[0]):
            p, step = levels[q, i], probits[q, i] - at
            if q == 0 or step > 0.0:
                low, high = mean - sd * sqrt((1.0 - p) / p), mean + sd * sqrt(p / (1.0 - p))  # Cantelli's inequality
                start = z + step * (slope + step * (bend + step * (cubic + step * quartic)))
                low, last, last_slope, at = low if q == 0 else max(low, z), z, slope, probits[q, i]
                z, density, rate = _solve_mixture(p, min(max(start, low), high), low, high, mixture, pieces, moments)
                slope = exp(-0.5 * at * at) / (sqrt(2.0 * pi) * density) if density > 0.0 else 0.0
                bend = 0.5 * slope * (slope * rate - at)
                if q > 0:  # the polynomial also has the quantile before and its slope
                    missing = (z - step * (slope - step * bend) - last) / step
                    quartic = (3.0 * missing - last_slope + slope - 2.0 * step * bend) / step**3
                    cubic = missing / step**2 + step * quartic
            out[q, i] = z
    return out


@separate(VECTOR, VECTOR, types.int64[::1], PIECES)
def quantile(q: Array, rows: Rows, pieces: Pieces) -> Array:
    """Return the residual with mass q below it, elementwise: a quantile of a mixture of one, with f = 0."""
    one, zero = np.ones((1, q.size)), np.zeros((1, q.size))
    return mixture_quantiles(q.reshape(one.shape), zero, one, zero, zero, rows.reshape(one.shape), pieces)[0]

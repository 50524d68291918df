"""Compiled elementwise functions of the noise density, computed from its table of pieces."""

from __future__ import annotations

from math import exp, inf, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import compiled, vectorized
from bsvr_pp.core.losses.intervals import tilted_interval
from bsvr_pp.core.losses.pieces import (
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

_STEP = 0.01  # largest relative difference of variances between which quantiles are interpolated
_POINT = 1e-14  # a smaller standard deviation, times the largest density of the noise, is taken as 0
_STEEP = 1e-3  # slope·sd, or width/sd of a flat piece, above which the integral over a piece by parts is exact
_REACH = 9.0  # standard deviations within which a Gaussian counts
_NEAR_TAIL = 3e-5  # relative error of the probability below which a step is the last
NO_WEIGHT = 1e-16  # a smaller weight of a component is taken as 0
_FAR_TAIL = 1e-6  # probability below which the tail of the Gaussian beyond nine standard deviations may count


def _mills_table(cells: int = 32, degree: int = 9) -> Array:
    """Coefficients (cells, degree + 1) of polynomials for the Mills ratio over t = 4/(4 + x), on cells of t."""
    u = 0.5 + 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    t = (np.arange(cells)[:, None] + u) / cells
    ratio = sqrt(0.5 * pi) * erfcx((4.0 / t - 4.0) * sqrt(0.5)) / t
    return np.ascontiguousarray(np.linalg.solve(np.vander(u), ratio.T).T)


_MILLS = _mills_table()


@compiled
def energies(r: Array, rows: Rows, pieces: Pieces) -> Array:
    """E(r) and its two derivatives, (3, n)."""
    out = np.empty((3, r.shape[0]))
    for i in range(r.shape[0]):
        out[0, i], out[1, i], out[2, i], _ = energy(r[i], row_at(rows[i], pieces))
    return out


@compiled
def mean_variance(pieces: Pieces) -> tuple[Array, Array]:
    """Mean and variance of the noise of each row."""
    n = pieces.knots.shape[0]
    mean, variance = np.empty(n), np.empty(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    for k in range(n):
        _, mean[k], variance[k], _ = tilted_row(0.0, 0.0, 0.0, row_at(k, pieces), moments)
    return mean, variance


@compiled
def log_mgf(t: float, pieces: Pieces) -> Array:
    """Log of the mean of exp(t·r) for the noise r of each row; inf where it diverges."""
    out, moments = np.empty(pieces.knots.shape[0]), np.empty((pieces.slope.shape[1], 3))
    for k in range(out.shape[0]):
        _, _, slope, curvature = row = row_at(k, pieces)
        if (curvature[-1] == 0.0 and slope[-1] <= t) or (curvature[0] == 0.0 and slope[0] >= t):
            out[k] = inf
        else:
            out[k] = tilted_row(0.0, 0.0, t, row, moments)[0] - pieces.log_normalizer[k]
    return out


@compiled
def log_tail(r: float, upper_tail: bool, k: int, pieces: Pieces) -> float:
    """Log of the mass of the noise below r, or above it."""
    knots, _, slope, curvature = row = row_at(k, pieces)
    mass, top = 0.0, -inf
    for j in range(knots.shape[0] + 1):
        anchor, lower, upper = extent(j, knots)
        if upper_tail:
            lower = max(lower, r - anchor)
        else:
            upper = min(upper, r - anchor)
        if not lower < upper:
            continue
        place, steepness, left, right = peak(lower, upper, -slope[j], curvature[j])
        log_piece = log(peak_integrals(steepness, curvature[j], left, right)[0]) - energy_on(place, j, row)
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
        log_hazard = -energy(r, row_at(k, pieces))[0] - pieces.log_normalizer[k] - log_mass
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


@vectorized
def _mills(x: float) -> float:
    """Mills ratio P(X > x)/p(x) of a normal X, for x >= 0."""
    t = 4.0 / (4.0 + x)
    cell = min(int(t * _MILLS.shape[0]), _MILLS.shape[0] - 1)
    u, total = t * _MILLS.shape[0] - cell, 0.0
    for c in range(_MILLS.shape[1]):
        total = total * u + _MILLS[cell, c]
    return t * total


@compiled
def _mass(lower: float, upper: float, j: int, row: Row) -> float:
    """Integral of exp(-E) between two distances from the anchor of piece j."""
    place, steepness, left, right = peak(lower, upper, -row[2][j], row[3][j])
    return exp(-energy_on(place, j, row)) * peak_integrals(steepness, row[3][j], left, right)[0]


@vectorized
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
    """Integral of exp(-E)·Φ(sign·(z - r)/sd) between two distances of r from the anchor of piece j, and of z too."""
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
def convolved(
    z: float, sd: float, upper_tail: bool, k: int, pieces: Pieces, moments: Array
) -> tuple[float, float, float]:
    """P(g + r <= z), or P(g + r >= z), with density and its negative derivative, for Gaussian g and the noise r.

    The mean of g is 0, sd may be 0, and r is the noise of row k. The density is in closed form on each piece. Then so
    is the probability on flat and linear ones, by parts; on others it is found by nodes. In the far tail, where the
    Gaussian beyond its reach counts, it is the mass of the interval beyond z. ``moments`` (m + 1, 3) is overwritten.
    """
    knots, value, slope, curvature = row = row_at(k, pieces)
    n_knots, scale = knots.shape[0], exp(-pieces.log_normalizer[k])
    if sd * scale < _POINT:
        height = exp(-energy(z, row)[0]) * scale
        return exp(log_tail(z, upper_tail, k, pieces)), height, height * energy(z, row)[1]
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
        low, high = (0.0, inf) if upper_tail else (-inf, 0.0)
        total = exp(tilted_interval(z, sd * sd, low, high, row, moments)[0]) * scale
    return min(total, 1.0), density * scale, fall * scale


@compiled
def convolved_cdf(y: Array, mean: Array, sd: Array, upper_tail: bool, rows: Rows, pieces: Pieces) -> Array:
    """P(f + r <= y), or P(f + r >= y), for Gaussian f and the noise r, elementwise; sd may be 0."""
    out, moments = np.empty(y.shape[0]), np.empty((pieces.slope.shape[1], 3))
    for i in range(y.shape[0]):
        out[i] = convolved(y[i] - mean[i], sd[i], upper_tail, rows[i], pieces, moments)[0]
    return out


@compiled
def _four_weights(u: float) -> tuple[float, float, float, float]:
    """Weights of the values at -1, 0, 1 and 2 in the cubic through them at u."""
    a, b, c = u + 1.0, u - 1.0, u - 2.0
    return -u * b * c / 6.0, a * b * c / 2.0, -a * u * c / 2.0, a * u * b / 6.0


@compiled
def interpolated(places: Array, lines: Array, table: Array) -> Array:
    """Interpolate a table at places (m, n) on lines (n,), both in steps; places beyond the table have its ends."""
    out, values, end = np.empty(places.shape), np.empty(table.shape[1]), table.shape[1] - 2
    for i in range(places.shape[1]):
        at = min(max(int(lines[i]), 1), table.shape[0] - 3)
        a, b, c, d = _four_weights(lines[i] - at)
        for j in range(values.shape[0]):
            values[j] = a * table[at - 1, j] + b * table[at, j] + c * table[at + 1, j] + d * table[at + 2, j]
        for q in range(places.shape[0]):
            place = min(max(places[q, i], 1.0), float(end))
            k = min(int(place), end - 1)
            a, b, c, d = _four_weights(place - k)
            out[q, i] = a * values[k - 1] + b * values[k] + c * values[k + 1] + d * values[k + 2]
    return out


@compiled
def _cubic(u: float, width: float, first: float, second: float, first_slope: float, second_slope: float) -> float:
    """Value at u of the cubic with these values and slopes at 0 and 1, two places that are ``width`` apart."""
    return (
        first
        + u * u * (3.0 - 2.0 * u) * (second - first)
        + u * (1.0 - u) * width * ((1.0 - u) * first_slope - u * second_slope)
    )


@compiled
def convolved_quantile(levels: Array, variance: Array, rows: Rows, pieces: Pieces) -> Array:
    """Quantiles of g + r for Gaussian g of mean 0 and the noise r; 0 < level < 1, variance >= 0.

    The elements are in the order of row, level, then variance. For one row and level the quantile z is a function of
    the variance v alone, with the derivative dz/dv = -½·p'(z)/p(z), where p is the density of g + r (by the heat
    equation). The equation is solved at some of the elements; those between two that differ by less than `_STEP` in
    log v are found by cubic Hermite interpolation in log v, with an error of the cdf below 1e-12.
    """
    n = levels.shape[0]
    out = np.empty(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    i = 0
    while i < n:
        level, row = levels[i], rows[i]
        # Half of the level lies below the noise quantile of half of the level, or below -9 sd.
        lowest = _solve_tail(log(0.5 * level), False, row, pieces)
        highest = _solve_tail(log(0.5 - 0.5 * level), True, row, pieces)
        start = _solve_tail(log(min(level, 1.0 - level)), level > 0.5, row, pieces)
        out[i], slope = _solve_convolved(level, variance[i], start, lowest, highest, row, pieces, moments)
        while i + 1 < n and levels[i + 1] == level and rows[i + 1] == row:
            j = i + 1
            while j + 1 < n and levels[j + 1] == level and rows[j + 1] == row:
                if variance[j + 1] > (1.0 + _STEP) * variance[i]:
                    break
                j += 1
            if variance[j] == variance[i]:
                out[i + 1 : j + 1] = out[i]
            else:
                out[j], next_slope = _solve_convolved(level, variance[j], out[i], lowest, highest, row, pieces, moments)
                width = log(variance[j] / variance[i]) if variance[i] > 0.0 else 0.0
                for k in range(i + 1, j):
                    u = log(variance[k] / variance[i]) / width
                    out[k] = _cubic(u, width, out[i], out[j], slope, next_slope)
                slope = next_slope
            i = j
        i += 1
    return out


@compiled
def _solve_convolved(
    level: float, variance: float, start: float, lowest: float, highest: float, k: int, pieces: Pieces, moments: Array
) -> tuple[float, float]:
    """Solve for one quantile, and return it with its derivative by log variance."""
    upper_tail = level > 0.5
    if sqrt(variance) * exp(-pieces.log_normalizer[k]) < _POINT:
        return _solve_tail(log(1.0 - level if upper_tail else level), upper_tail, k, pieces), 0.0
    reach = 9.0 * sqrt(variance)
    low, high = lowest - reach, highest + reach
    mixture = np.ones(1), np.zeros(1), np.full(1, variance), np.full(1, k)
    z = _solve_mixture(level, min(max(start, low), high), low, high, mixture, pieces, moments)[0]
    _, density, fall = convolved(z, sqrt(variance), upper_tail, k, pieces, moments)
    return z, 0.5 * variance * fall / density if density > 0.0 else 0.0


@compiled
def _solve_mixture(
    level: float, z: float, below: float, above: float, mixture: Mixture, pieces: Pieces, moments: Array
) -> tuple[float, float, float]:
    """Quantile of a mixture between two bounds, the density there, and its negative logarithmic derivative nearby.

    Halley's method on the log tail, with bisection where it leaves the bounds, or where two steps did not halve its
    step: for several components it may go to and fro.
    """
    weights, means, variances, rows = mixture
    upper_tail = level > 0.5
    target, sign = (1.0 - level, -1.0) if upper_tail else (level, 1.0)
    density, rate = 0.0, 0.0
    last, before_last = inf, inf  # sizes of steps
    for _ in range(200):
        tail, density, fall = 0.0, 0.0, 0.0
        for c in range(weights.shape[0]):
            if weights[c] > NO_WEIGHT:
                found = convolved(z - means[c], sqrt(variances[c]), upper_tail, rows[c], pieces, moments)
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
def _quintic(u: float, width: float, first: Array, second: Array) -> float:
    """Value at u of the polynomial with given values and two derivatives (3,) at 0 and 1, ``width`` apart."""
    w = 1.0 - u
    at_first = first[0] * (1.0 + 3.0 * u + 6.0 * u * u) + width * u * (
        first[1] * (1.0 + 3.0 * u) + 0.5 * width * u * first[2]
    )
    at_second = second[0] * (1.0 + 3.0 * w + 6.0 * w * w) - width * w * (
        second[1] * (1.0 + 3.0 * w) - 0.5 * width * w * second[2]
    )
    return w * w * w * at_first + u * u * u * at_second


@compiled
def mixture_quantiles(
    levels: Array,
    probits: Array,
    weights: Array,
    means: Array,
    variances: Array,
    pieces: Pieces,
    lowest: Array,
    highest: Array,
) -> Array:
    """Quantiles (levels, n) of mixtures of f + noise; weights, means and variances of f are (components, n).

    Levels (levels, n), which do not descend, come with their normal quantiles; all results lie between ``lowest`` and
    ``highest`` (n,). The search for a quantile starts where the last two and their derivatives by the normal quantile
    lead to.
    """
    components, n = means.shape
    of_point = 1 if pieces.knots.shape[0] > components else 0  # whether each point has a row of the table
    out, moments = np.empty((levels.shape[0], n)), np.empty((pieces.slope.shape[1], 3))
    last, now = np.empty(3), np.empty(3)  # quantile and its two derivatives at the last two levels
    for i in range(n):
        rows = np.arange(components) * (n * of_point + 1 - of_point) + i * of_point
        mixture = weights[:, i].copy(), means[:, i].copy(), variances[:, i].copy(), rows
        at_last, at_now, known = 0.0, 0.0, 0
        for q in range(levels.shape[0]):
            p = probits[q, i]
            if known > 0 and p == at_now:
                out[q, i] = out[q - 1, i]
                continue
            below, above = out[q - 1, i] if known > 0 else lowest[i], highest[i]
            z = 0.5 * (below + above)
            if known == 1:
                width = p - at_now
                z = now[0] + width * (now[1] + 0.5 * width * now[2])
            elif known > 1:
                width = at_now - at_last
                z = _quintic((p - at_last) / width, width, last, now)
            z, density, rate = _solve_mixture(
                levels[q, i], min(max(z, below), above), below, above, mixture, pieces, moments
            )
            out[q, i] = z
            last, now = now, last
            at_last, at_now, known = at_now, p, known + 1
            slope = exp(-0.5 * p * p) / (sqrt(2.0 * pi) * density) if density > 0.0 else 0.0
            now[0], now[1], now[2] = z, slope, slope * (slope * rate - p)
    return out

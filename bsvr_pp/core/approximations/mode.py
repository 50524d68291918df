"""The mode of the latent function: exact solution of the dual of support vector regression.

A semismooth Newton method determines the piece of each point; it factors K + compliance only on the off-bound block
(docs/explanation/mode.md). A kink has no curvature for a Newton step. Its Moreau envelope min_e E(r - e) + e²/(2h) has
one, and the same range of slopes. The method of multipliers decreases h and shifts the energies by h·(last a), which
does not change the optimum. The energy of an interval is smooth: Newton's method uses its exact derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import typeof, types
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.approximations.posterior import blockwise, checked_problem
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import VECTOR, compiled, separate
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.covariance.sites import solve_block
from bsvr_pp.core.covariance.structure import STRUCTURE, Structure, add, product
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.factors import is_interval, row_of, site_energy
from bsvr_pp.core.losses.pieces import PIECES, Pieces, energy, row_at, width_of

NO_SUPPORT, OFF_BOUND, ON_BOUND = 0, 1, 2
TOLERANCE = 1e-8  # largest relative duality gap that counts as converged
TARGET = 1e-12  # relative duality gap that ends the iteration
MAX_OUTER = 40
MAX_NEWTON = 100
FLAT = 1e-14  # curvature times prior variance below which the energy of an interval is linear
_SMALL_STEP = 1e-8  # step of intervals, relative to the largest coefficient, after which Newton's method has converged


@dataclass(frozen=True, slots=True)
class Mode:
    """The most probable latent function; equations of Chu, Keerthi & Ong 2004."""

    dual_coef: Array  # (n,), a with f = mean + K·a; α - α* of (30)
    f: Array  # (n,), at the inputs, in the target's units
    support: NDArray[np.int64]  # (n,), 0 not a support vector, 1 off-bound, 2 on-bound
    objective: float  # Σ E_i + ½ aᵀK·a, without normalisers (17)
    duality_gap: float  # (primal - dual)/(1 + |primal| + |dual|)
    n_iter: int  # number of factorisations of the off-bound block
    converged: bool  # whether the gap is at most 1e-8


class DualSolution(NamedTuple):
    """Solution of the dual: coefficients, kind of each point, primal objective, relative gap, factorisations."""

    dual_coef: Array
    support: NDArray[np.int64]
    objective: float
    gap: float
    iterations: int


@shared
@blockwise
def find_mode(K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None) -> Mode:
    """Find the mode of the latent function: support vector regression with the bias in the kernel.

    Parameters
    ----------
    K, y, noise, mean
        As in `laplace`.

    Returns
    -------
    Mode
        ``dual_coef``, ``f``, ``support`` (0 not a support vector, 1 off-bound, 2 on-bound), ``objective``, ``n_iter``,
        ``duality_gap``, and ``converged`` if the gap is at most 1e-8.

    Raises
    ------
    ValueError
        If the shapes do not fit, or values are not finite, or K is not symmetric.

    <on_arrays>
    >>> mode = find_mode(np.eye(2), [1.0, 0.05], epsilon_insensitive(C=0.5, epsilon=0.1))
    >>> mode.dual_coef.tolist(), mode.support.tolist()
    ([0.5, 0.0], [2, 0])
    """
    covariance, residual, offset, pieces = checked_problem(K, y, noise, mean, mode=True)
    found = mode_core(covariance.structure, residual, pieces, np.zeros(residual.size))
    f = offset + covariance.matvec(found.dual_coef)
    return Mode(found.dual_coef, f, found.support, found.objective, found.gap, found.iterations, found.gap <= TOLERANCE)


def duality_gap(K: Covariance, y: Array, noise: NoiseModel, dual_coef: Array, mean: Array) -> float:
    """Return the relative duality gap of dual coefficients (n,), 0 at the mode."""
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    return float(_gap(covariance.structure, residual, dual_coef, pieces)[1])


_DUAL_SOLUTION = typeof(DualSolution(np.ones(1), np.arange(1), 1.0, 1.0, 1))


@separate(_DUAL_SOLUTION, STRUCTURE, VECTOR, PIECES, VECTOR)
def mode_core(K: Structure, t: Array, pieces: Pieces, start: Array) -> DualSolution:
    """Compute the mode for t = y - mean, from any start a."""
    a = start.copy()
    # 1 for points with a table, whose kinks need the envelope, and 0 for intervals.
    table = np.where(pieces.ends[:, 0] < pieces.ends[:, 1], 0.0, 1.0)
    best, best_gap, best_objective = a, np.inf, np.inf
    h, least = _envelope(t, pieces)
    n_iter = 0
    worse = 0
    for _ in range(MAX_OUTER):
        a, steps = _newton(K, t + h * table * a, a, h, pieces)
        n_iter += steps
        objective, gap = _gap(K, t, a, pieces)
        worse = 0 if gap < 0.5 * best_gap else worse + 1
        if gap < best_gap:
            best, best_gap, best_objective = a.copy(), gap, objective
        if best_gap <= TARGET or (worse >= 3 and best_gap <= TOLERANCE):
            break
        h = max(0.3 * h, least)
    if h > least:
        # The active set is found: solve for the dual coefficients on it without the compliance of the multipliers.
        a, steps = _newton(K, t + least * table * best, best, least, pieces)
        n_iter += steps
        objective, gap = _gap(K, t, a, pieces)
        if gap <= max(best_gap, 10.0 * TARGET):
            best, best_gap, best_objective = a, gap, objective
    return DualSolution(best, _support(best, pieces), best_objective, best_gap, n_iter)


@compiled
def _envelope(t: Array, pieces: Pieces) -> tuple[float, float]:
    """Return first and last h: a tenth of the targets' scale over C; none if the stiffest piece is a tenth as soft."""
    steepest, stiffest = 0.0, np.inf
    m = pieces.knots.shape[1]
    for k in range(pieces.knots.shape[0]):
        for j in range(1, m):
            jump = pieces.slope[k, j + 1] - pieces.slope[k, j]
            if jump > 0.0:
                stiffest = min(stiffest, (pieces.knots[k, j] - pieces.knots[k, j - 1]) / jump)
                steepest = max(steepest, abs(pieces.slope[k, j]), abs(pieces.slope[k, j + 1]))
    scale = 0.1 * max(np.std(t), 1e-3 * np.max(np.abs(t)), 1e-300) / steepest
    if steepest == 0.0 or stiffest > 0.1 * scale:  # the former is Gaussian noise
        return 0.0, 0.0
    return scale, 1e-14 * scale


@separate(types.Tuple((VECTOR, types.int64)), STRUCTURE, VECTOR, VECTOR, types.float64, PIECES)
def _newton(K: Structure, t: Array, start: Array, h: float, pieces: Pieces) -> tuple[Array, int]:
    """Minimise Σ Eʰ(t - K·a) + ½ aᵀK·a, Eʰ their Moreau envelopes; returns a and the number of steps."""
    n = t.shape[0]
    a, f = start.copy(), product(K, start)
    target, rate = np.empty(n), np.empty(n)
    step = np.empty(n)
    largest = np.max(K.variance)
    steps = 0
    while steps < MAX_NEWTON:
        steps += 1
        for i in range(n):
            k = row_of(i, pieces)
            if is_interval(k, pieces):
                _, target[i], rate[i] = site_energy(t[i] - f[i], k, pieces)
                if rate[i] * K.variance[i] < FLAT:
                    rate[i] = 0.0
            else:
                target[i], rate[i] = _envelope_slope(t[i] - f[i], k, h, pieces)
            step[i] = target[i] - a[i]
        block = np.flatnonzero(rate > 0.0)
        if block.shape[0] > 0 and not _newton_step(K, rate, step, block):
            break
        change = product(K, step)
        noise = 2e-16 * largest * np.max(np.abs(step))
        size = _line_search(t - f, a, step, change, noise, h, pieces)
        add(a, size, step, block, K.constant)
        f += size * change
        settled = size == 0.0 or abs(size - 1.0) < 1e-9
        longest, steepest, moved = 0.0, 0.0, 0.0
        for i in range(n):
            longest = max(longest, abs(size * step[i]))
            steepest = max(steepest, abs(a[i]))
            k = row_of(i, pieces)
            if is_interval(k, pieces):
                moved = max(moved, abs(size * step[i]))
            elif settled:
                settled = rate[i] == _envelope_slope(t[i] - f[i], k, h, pieces)[1]
        if (settled and moved <= _SMALL_STEP * steepest) or longest <= 1e-13 * steepest:
            break
    # On linear pieces a full step reaches the slope exactly; an excess over a bound is a rounding error.
    m = pieces.knots.shape[1]
    for i in range(n):
        k = row_of(i, pieces)
        if is_interval(k, pieces):
            continue
        if pieces.curvature[k, 0] == 0.0:
            a[i] = max(a[i], pieces.slope[k, 0])
        if pieces.curvature[k, m] == 0.0:
            a[i] = min(a[i], pieces.slope[k, m])
    return a, steps


@compiled
def _newton_step(K: Structure, rate: Array, step: Array, block: NDArray[np.int64]) -> bool:
    """Turn step = target - a into the Newton step: on the block (K + 1/rate) d = step/rate - K d_rest."""
    fixed = step.copy()
    fixed[block] = 0.0
    pushed = product(K, fixed)
    right = step[block] / rate[block] - pushed[block]
    if not solve_block(K, rate[block], right, block):
        return False
    step[block] = right
    return True


@compiled
def _envelope_slope(s: float, k: int, h: float, pieces: Pieces) -> tuple[float, float]:
    """Return the slope a of the envelope of energy k at s = r + h·a, and da/ds, 0 on linear pieces."""
    m, value = pieces.knots.shape[1], pieces.slope[k, 0]
    for j in range(m + 1):
        bottom, top = pieces.slope[k, j], pieces.slope[k, min(j + 1, m) if j > 0 else 0]
        low = pieces.knots[k, j - 1] + h * bottom if j > 0 else -np.inf
        if s <= low:
            break
        high = pieces.knots[k, j] + h * top if j < m else np.inf
        if s < high:
            if 0 < j < m:
                rate = (top - bottom) / (high - low)
            else:
                rate = pieces.curvature[k, j] / (1.0 + h * pieces.curvature[k, j])
            # From the nearer end: a must reach the bound without rounding errors.
            up, down = s - low, high - s
            return (bottom + rate * up if up < down else top - rate * down), rate
        value = top
    return value, 0.0


@compiled
def _line_search(r: Array, a: Array, step: Array, change: Array, noise: float, h: float, pieces: Pieces) -> float:
    """Find the minimum along a + size·step of the objective, whose derivative is increasing and piecewise linear.

    ``r`` = t - K·a; ``change`` = K·step has errors up to ``noise``. If K is singular, a full step may not change f, and
    rounding errors must not shorten such a step. With intervals the derivative is increasing and smooth in between.
    """
    accuracy = 1e-11 if np.any(pieces.ends[:, 0] < pieces.ends[:, 1]) else 1e-14
    low, high, size = 0.0, np.inf, 1.0
    curvature = np.dot(step, change)
    slope_at_start = np.dot(a, change)
    for _ in range(100):
        slope, rise = slope_at_start + size * curvature, curvature
        scale, doubt = abs(slope_at_start), 0.0
        for i in range(r.shape[0]):
            k = row_of(i, pieces)
            s = r[i] - size * change[i]
            if is_interval(k, pieces):
                _, value, rate = site_energy(s, k, pieces)
            else:
                value, rate = _envelope_slope(s, k, h, pieces)
                doubt += rate * abs(change[i]) * noise
            slope -= value * change[i]
            scale += abs(value * change[i])
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


@compiled
def _residuals(a: float, knots: Array, slope: Array, curvature: Array) -> tuple[float, float]:
    """Return the interval of residuals where a is a subgradient."""
    m, low, high = knots.shape[0], np.inf, -np.inf
    for j in range(m + 1):
        inside = 0 < j < m
        if (j > 0 and a < slope[j]) or (j < m and a > (slope[j + 1] if inside else slope[0])):
            continue
        left, right = knots[j - 1] if j > 0 else -np.inf, knots[j] if j < m else np.inf
        rise = slope[j + 1] - slope[j] if inside else curvature[j]
        if rise > 0.0:
            left = right = knots[max(j - 1, 0)] + width_of(j, knots) * ((a - slope[j]) / rise)
        low, high = min(low, left), max(high, right)
    return low, high


@compiled
def locate(a: float, r: float, support: int, k: int, pieces: Pieces) -> tuple[int, float]:
    """Return the piece of a point at the mode and its coordinate u, from a if it is off-bound, otherwise from r."""
    knots, slope = pieces.knots[k], pieces.slope[k]
    m = knots.shape[0]
    if support == OFF_BOUND:
        for j in range(1, m):
            jump = slope[j + 1] - slope[j]
            if jump > 0.0 and slope[j] <= a <= slope[j + 1]:
                return j, (a - slope[j]) / jump
        j = 0 if a < slope[0] else m
        return j, (a - slope[j]) / pieces.curvature[k, j]
    if support == ON_BOUND:
        # Use the bound: a residual at the knot may be off the piece by a rounding error.
        j = 0 if a - slope[0] < slope[m] - a else m
    else:
        j = 0
        while j < m and (slope[j] < a - 1e-9 * (slope[m] - slope[0]) or (j > 0 and slope[j + 1] > slope[j])):
            j += 1
    width = width_of(j, knots)
    return j, (r - knots[max(j - 1, 0)]) / width if width > 0.0 else 0.0


@compiled
def _gap(K: Structure, t: Array, a: Array, pieces: Pieces) -> tuple[float, float]:
    """Return objective at a, and the relative gap Σ E(r) + E*(a) - a·r by areas under slopes: no large terms cancel."""
    f = product(K, a)
    quadratic = 0.5 * np.dot(a, f)
    primal, gap = quadratic, 0.0
    for i in range(t.shape[0]):
        k = row_of(i, pieces)
        knots, _, slope, curvature = row = row_at(k, pieces)
        r = t[i] - f[i]
        if is_interval(k, pieces):
            at_r, target, rate = site_energy(r, k, pieces)
            primal += at_r
            gap += 0.5 * (target - a[i]) ** 2 / (rate + 1.0 / max(K.variance[i], 1e-300))
            continue
        at_r = energy(r, row)[0]
        primal += at_r
        low, high = _residuals(a[i], knots, slope, curvature)
        nearest = min(max(r, low), high)
        if nearest != r:
            gap += max(at_r - energy(nearest, row)[0] - a[i] * (r - nearest), 0.0)
    return primal, gap / (1.0 + abs(primal) + abs(primal - gap))


@compiled
def _support(a: Array, pieces: Pieces) -> NDArray[np.int64]:
    """Return 0 (no support vector), 1 (off-bound) or 2 (on-bound); 0 is relative to the largest a, not to bounds."""
    n, m = a.shape[0], pieces.knots.shape[1]
    kind = np.empty(n, dtype=np.int64)
    zero = 1e-10 * np.max(np.abs(a))
    for i in range(n):
        k = row_of(i, pieces)
        low, high = pieces.slope[k, 0], pieces.slope[k, m]
        edge = 1e-10 * max(abs(low), abs(high))
        if is_interval(k, pieces):
            kind[i] = NO_SUPPORT
        elif pieces.curvature[k, 0] > 0.0:
            kind[i] = OFF_BOUND  # quadratic to the ends, Gaussian noise has no bounds
        elif abs(a[i]) <= zero:
            kind[i] = NO_SUPPORT
        elif a[i] <= low + edge or a[i] >= high - edge:
            kind[i] = ON_BOUND
        else:
            kind[i] = OFF_BOUND
    return kind

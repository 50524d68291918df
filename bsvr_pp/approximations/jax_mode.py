"""The mode of the latent function in JAX: the method of `bsvr_pp.approximations.mode` for a processor or a GPU.

Newton steps, line search, multipliers and tolerances are the same, so that both find the same active set. All steps run
in one loop, in which a point off the block has the rate 0: there is no branch for each point, and problems of one size
are solved together by `jax.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bsvr_pp.approximations.jax_pieces import energy_at, pick
from bsvr_pp.approximations.jax_sites import Structure, solve
from bsvr_pp.approximations.mode import (
    MAX_NEWTON,
    MAX_OUTER,
    NO_SUPPORT,
    OFF_BOUND,
    ON_BOUND,
    TARGET,
    TOLERANCE,
)
from bsvr_pp.losses.pieces import Pieces

__all__ = ["MAX_STEPS", "Mode", "Place", "find_mode", "locate"]

MAX_STEPS = MAX_OUTER * MAX_NEWTON
_MAX_SEARCH = 100  # steps of a line search


class Mode(NamedTuple):
    """Solution of the dual, as `bsvr_pp.approximations.mode.DualSolution`.

    Attributes
    ----------
    dual_coef, shift : (n,) arrays
        a and K·a.
    support : (n,) array of int
        0 not a support vector, 1 off-bound, 2 on-bound.
    objective : float
        Σ E_i + ½ aᵀK·a.
    gap : float
        Relative duality gap.
    iterations : int
        Number of factorisations from the last start.
    converged : bool
        Whether the gap is at most 1e-8, and the search has ended.
    """

    dual_coef: Array
    shift: Array
    support: Array
    objective: Array
    gap: Array
    iterations: Array
    converged: Array


class _Ramps(NamedTuple):
    """The slope of each envelope: on piece j it rises at ``rate`` from ``start`` at ``low`` to ``end`` at ``high``."""

    low: Array
    high: Array
    start: Array
    end: Array
    rate: Array

    def at(self, s: Array) -> tuple[Array, Array]:
        """Slope a of the envelope at s = r + h·a, and da/ds."""
        piece = (s[:, None] >= self.high[:, :-1]).sum(axis=1)
        low, high, start, end, rate = (pick(row, piece) for row in self)
        up, down = s - low, high - s
        # From the nearer end: a must reach the bound without rounding errors.
        return jnp.where(up < down, start + rate * up, end - rate * down), rate


class _State(NamedTuple):
    """A stage is a minimisation at one h, of targets shifted by h·(the a at its beginning)."""

    again: Array  # whether this is the second start
    polishing: Array
    ended: Array
    stage: Array
    steps: Array  # of the stage
    iterations: Array
    worse: Array  # stages without progress
    h: Array
    shifted: Array
    a: Array
    f: Array
    best_a: Array
    best_f: Array
    best_gap: Array
    best_objective: Array


def find_mode(K: Structure, t: Array, pieces: Pieces, used: Array, start: Array, max_steps: int = MAX_STEPS) -> Mode:
    """Find the mode for t = y - mean.

    Parameters
    ----------
    K : Structure
        Prior covariance.
    t : (n,) array
        Targets minus prior mean.
    pieces : Pieces
        Table of the loss with one row per point.
    used : (n,) array of bool
        Rows that are data.
    start : (n,) array
        Dual coefficients at which the search begins; if it fails, it begins again at zeros.
    max_steps : int
        Largest number of factorisations from each start.
    """
    n = t.shape[0]
    first, least = _envelope(t, pieces, used)
    lowest = jnp.where(pieces.curvature[:, 0] == 0.0, pieces.slope[:, 0], -jnp.inf)
    highest = jnp.where(pieces.curvature[:, -1] == 0.0, pieces.slope[:, -1], jnp.inf)
    largest = jnp.max(jnp.where(used, K.variance, 0.0))  # entry of K

    def rates(ramps: _Ramps, s: Array) -> tuple[Array, Array]:
        value, rate = ramps.at(s)
        return jnp.where(used, value, 0.0), jnp.where(used, rate, 0.0)

    def begin(s: _State, a: Array, f: Array, h: Array, polishing: Array) -> _State:
        """The first state of the next stage."""
        return s._replace(shifted=t + h * a, a=a, f=f, h=h, polishing=polishing, steps=jnp.asarray(0))

    def newton(s: _State) -> tuple[_State, Array]:
        """One step, and whether it was the last of the stage."""
        ramps = _ramps(s.h, pieces)
        target, rate = rates(ramps, s.shifted - s.f)
        block, step = rate > 0.0, target - s.a
        pushed = K.times(jnp.where(block, 0.0, step))
        right = jnp.where(block, step / jnp.where(block, rate, 1.0) - pushed, 0.0)
        step = jnp.where(block, solve(K, rate, right), step)
        solved = jnp.isfinite(step).all()
        change = K.times(step)
        noise = 2e-16 * largest * jnp.max(jnp.abs(step))
        size = _line_search(rates, ramps, s.shifted - s.f, s.a, step, change, noise)
        a, f = _add(s.a, size * step, block, K.constant), s.f + size * change
        settled = (size == 0.0) | (jnp.abs(size - 1.0) < 1e-9)
        settled = settled & (rate == rates(ramps, s.shifted - f)[1]).all()
        still = jnp.max(jnp.abs(size * step)) <= 1e-13 * jnp.max(jnp.abs(a))
        over = ~solved | settled | still | (s.steps + 1 == MAX_NEWTON)
        moved = s._replace(
            a=jnp.where(solved, a, s.a),
            f=jnp.where(solved, f, s.f),
            steps=s.steps + 1,
            iterations=s.iterations + 1,
        )
        return moved, over

    def after_stage(s: _State) -> _State:
        """What follows a stage: another with a smaller h, the last without any, a second start, or the end."""
        # On linear pieces a full step reaches the slope exactly; what is left beyond a bound is rounding.
        a = jnp.clip(s.a, lowest, highest)
        f = K.times(a)
        objective, gap = _gap(t, a, f, pieces, used)
        better = jnp.where(s.polishing, gap <= jnp.maximum(s.best_gap, 10.0 * TARGET), gap < s.best_gap)
        progress = better & (gap < 0.5 * s.best_gap)
        s = s._replace(
            worse=jnp.where(progress, 0, s.worse + 1),
            stage=s.stage + 1,
            best_a=jnp.where(better, a, s.best_a),
            best_f=jnp.where(better, f, s.best_f),
            best_gap=jnp.where(better, gap, s.best_gap),
            best_objective=jnp.where(better, objective, s.best_objective),
        )
        found = (s.best_gap <= TARGET) | ((s.worse >= 3) & (s.best_gap <= TOLERANCE))
        found = found | (s.stage == MAX_OUTER) | ~jnp.isfinite(objective)
        # The active set is found: solve for the dual coefficients on it without the compliance of the multipliers.
        polish = found & ~s.polishing & (s.h > least) & (s.best_gap < jnp.inf)
        next_a, next_f = jnp.where(polish, s.best_a, a), jnp.where(polish, s.best_f, f)
        h = jnp.where(found, least, jnp.maximum(0.3 * s.h, least))
        ended = s.polishing | (found & ~polish)
        return begin(s, next_a, next_f, h, polish)._replace(ended=ended)

    def step(s: _State) -> _State:
        moved, over = newton(s)
        new = _where(over, after_stage(moved), moved)
        failed = (new.ended | (new.iterations == max_steps)) & ~(new.ended & (new.best_gap <= TOLERANCE)) & ~new.again
        return _where(failed, cold._replace(again=jnp.asarray(True)), new)

    def state(a: Array) -> _State:
        none, no, infinite = jnp.asarray(0), jnp.asarray(False), jnp.asarray(jnp.inf)
        f = K.times(a)
        return _State(
            jnp.all(a == 0.0), no, no, none, none, none, none, first, t + first * a, a, f, a, f, infinite, infinite
        )

    cold = state(jnp.zeros(n))
    begun = state(jnp.where(used, start, 0.0))
    end = jax.lax.while_loop(lambda s: ~s.ended & (s.iterations < max_steps), step, begun)
    converged = end.ended & (end.best_gap <= TOLERANCE)
    support = _support(end.best_a, pieces, used)
    return Mode(end.best_a, end.best_f, support, end.best_objective, end.best_gap, end.iterations, converged)


class Place(NamedTuple):
    """Where each point is at the mode.

    Attributes
    ----------
    piece : (n,) array of int
        Its piece.
    u : (n,) array
        Its coordinate, as in `Pieces.d_energy`.
    width, rise : (n,) arrays
        Width of the piece and rise of its slope, per unit of the residual if it is unbounded.
    """

    piece: Array
    u: Array
    width: Array
    rise: Array


def locate(mode: Mode, r: Array, pieces: Pieces) -> Place:
    """Find the piece of each point, from a if it is off-bound, otherwise from r; as `bsvr_pp.approximations.mode`."""
    a, knots, slope, m = mode.dual_coef, pieces.knots, pieces.slope, pieces.knots.shape[1]
    column, inner, unbounded = a[:, None], _inner(pieces), _unbounded(pieces)
    bends = (inner.jump > 0.0) & (slope <= column) & (column <= inner.end)
    outer = jnp.where(a < slope[:, 0], 0, m)
    bent = jnp.where(bends.any(axis=1), jnp.argmax(bends, axis=1), outer)
    # By the bound it sits at: a residual at the knot may be a rounding error off the piece.
    bound = jnp.where(a - slope[:, 0] < slope[:, -1] - a, 0, m)
    edge = column - 1e-9 * (slope[:, -1:] - slope[:, :1])
    straight = ((slope >= edge) & (inner.jump <= 0.0)) | (np.arange(m + 1) == m)
    off_bound = mode.support == OFF_BOUND
    piece = jnp.select([off_bound, mode.support == ON_BOUND], [bent, bound], jnp.argmax(straight, axis=1))
    width = pick(jnp.where(unbounded, 1.0, inner.width), piece)
    rise = pick(jnp.where(unbounded, pieces.curvature, inner.jump), piece)
    by_slope = (a - pick(slope, piece)) / jnp.where(rise > 0.0, rise, 1.0)
    distance = r - pick(knots, jnp.maximum(piece - 1, 0))
    by_residual = jnp.where(width > 0.0, distance / jnp.where(width > 0.0, width, 1.0), 0.0)
    return Place(piece, jnp.where(off_bound, by_slope, by_residual), width, rise)


def _where(condition: Array, one: _State, other: _State) -> _State:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), one, other)


class _Inner(NamedTuple):
    """Of each piece the width, the slope at the right end, and its rise from the left; no rise on the unbounded two."""

    width: Array
    end: Array
    jump: Array


def _inner(pieces: Pieces) -> _Inner:
    slope, knots = pieces.slope, pieces.knots
    end = jnp.concatenate([slope[:, :1], slope[:, 2:], slope[:, -1:]], axis=1)
    width = jnp.pad(knots[:, 1:] - knots[:, :-1], ((0, 0), (1, 1)))
    return _Inner(width, end, jnp.maximum(end - slope, 0.0))


def _envelope(t: Array, pieces: Pieces, used: Array) -> tuple[Array, Array]:
    """First and last h of the Moreau envelope, as `bsvr_pp.approximations.mode`."""
    inner = _inner(pieces)
    rising = (inner.jump > 0.0) & used[:, None]
    stiffest = jnp.min(jnp.where(rising, inner.width / jnp.where(rising, inner.jump, 1.0), jnp.inf))
    steepest = jnp.max(jnp.where(rising, jnp.maximum(jnp.abs(pieces.slope), jnp.abs(inner.end)), 0.0))
    size = jnp.maximum(jnp.std(t, where=used), 1e-3 * jnp.max(jnp.where(used, jnp.abs(t), 0.0)))
    scale = 0.1 * jnp.maximum(size, 1e-300) / jnp.where(steepest > 0.0, steepest, 1.0)
    scale = jnp.where((steepest == 0.0) | (stiffest > 0.1 * scale), 0.0, scale)
    return scale, 1e-14 * scale


def _ramps(h: Array, pieces: Pieces) -> _Ramps:
    knots, slope, curvature = pieces.knots, pieces.slope, pieces.curvature
    _, end, jump = _inner(pieces)
    edge = jnp.full_like(knots[:, :1], jnp.inf)
    low = jnp.concatenate([-edge, knots + h * slope[:, 1:]], axis=1)
    high = jnp.concatenate([knots + h * end[:, :-1], edge], axis=1)
    inner = jnp.where(jump > 0.0, jump / jnp.where(high > low, high - low, 1.0), 0.0)
    rate = jnp.where(_unbounded(pieces), curvature / (1.0 + h * curvature), inner)
    return _Ramps(low, high, slope, jnp.where(jump > 0.0, end, slope), rate)


def _unbounded(pieces: Pieces) -> NDArray[np.bool_]:
    """Which pieces reach to infinity."""
    return np.arange(pieces.slope.shape[1]) % pieces.knots.shape[1] == 0


def _line_search(
    rates: Callable[[_Ramps, Array], tuple[Array, Array]], ramps: _Ramps, r: Array, a: Array, step: Array, change: Array, noise: Array
) -> Array:
    """Find the minimum along a + size·step, as `bsvr_pp.approximations.moreau_envelope.line_search`."""
    curvature, slope_at_start = step @ change, a @ change

    def search(s: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, size, _, count = s
        value, rate = rates(ramps, r - size * change)
        parts = value * change
        slope = slope_at_start + size * curvature - parts.sum()
        scale = jnp.abs(slope_at_start) + jnp.abs(parts).sum()
        doubt = (rate * jnp.abs(change)).sum() * noise
        rise = curvature + (rate * change * change).sum()
        found = jnp.abs(slope) <= 1e-14 * scale + doubt
        low, high = jnp.where(slope < 0.0, size, low), jnp.where(slope < 0.0, high, size)
        trial = jnp.where(rise > 0.0, size - slope / jnp.where(rise > 0.0, rise, 1.0), 2.0 * size)
        middle = jnp.where(high < jnp.inf, 0.5 * (low + high), 2.0 * low)
        trial = jnp.where((low < trial) & (trial < high), trial, middle)
        found = found | (jnp.abs(trial - size) <= 1e-15 * size) | (trial > 1e8) | ~jnp.isfinite(trial)
        return low, high, jnp.where(found, size, trial), found, count + 1

    begin = (jnp.asarray(0.0), jnp.asarray(jnp.inf), jnp.asarray(1.0), jnp.asarray(False), jnp.asarray(0))
    low, _, size, found, _ = jax.lax.while_loop(lambda s: ~s[3] & (s[4] < _MAX_SEARCH), search, begin)
    return jnp.where(found, size, low)


def _add(a: Array, move: Array, block: Array, constant: Array) -> Array:
    """a + move; the rounding error of the sum is added to the smallest coefficient of the block."""
    new = a + move
    back = new - a
    lost = jnp.sum((a - (new - back)) + (move - back))
    place = jnp.argmin(jnp.where(block, jnp.abs(new), jnp.inf))
    return new.at[place].add(jnp.where((constant > 0.0) & block.any(), lost, 0.0))


def _gap(t: Array, a: Array, f: Array, pieces: Pieces, used: Array) -> tuple[Array, Array]:
    """Objective at a, and the relative duality gap, as `bsvr_pp.approximations.mode`."""
    r = t - f
    at_r = energy_at(r, pieces)
    low, high = _place(a, pieces)
    nearest = jnp.minimum(jnp.maximum(r, low), high)
    excess = jnp.where(nearest == r, 0.0, jnp.maximum(at_r - energy_at(nearest, pieces) - a * (r - nearest), 0.0))
    gap = jnp.where(used, excess, 0.0).sum()
    primal = 0.5 * a @ f + jnp.where(used, at_r, 0.0).sum()
    return primal, gap / (1.0 + jnp.abs(primal) + jnp.abs(primal - gap))


def _place(a: Array, pieces: Pieces) -> tuple[Array, Array]:
    """Interval of residuals where a is a subgradient, as `bsvr_pp.approximations.mode`."""
    knots, slope, curvature = pieces.knots, pieces.slope, pieces.curvature
    column, (width, end, jump) = a[:, None], _inner(pieces)
    bends = jump > 0.0
    left = jnp.concatenate([jnp.full_like(knots[:, :1], -jnp.inf), knots], axis=1)
    right = jnp.concatenate([knots, jnp.full_like(knots[:, :1], jnp.inf)], axis=1)
    bent = left + width * ((column - slope) / jnp.where(bends, jump, 1.0))
    inside = (slope <= column) & (column <= end)
    inside = inside.at[:, 0].set(a <= slope[:, 0]).at[:, -1].set(a >= slope[:, -1])
    low = jnp.min(jnp.where(inside, jnp.where(bends, bent, left), jnp.inf), axis=1)
    high = jnp.max(jnp.where(inside, jnp.where(bends, bent, right), -jnp.inf), axis=1)
    for j, beyond in ((0, a < slope[:, 0]), (-1, a >= slope[:, -1])):
        curved = beyond & (curvature[:, j] > 0.0)
        at = knots[:, j] + (a - slope[:, j]) / jnp.where(curved, curvature[:, j], 1.0)
        low, high = jnp.where(curved, at, low), jnp.where(curved, at, high)
    return low, high


def _support(a: Array, pieces: Pieces, used: Array) -> Array:
    """Kind of each point, as `bsvr_pp.approximations.mode`."""
    low, high = pieces.slope[:, 0], pieces.slope[:, -1]
    edge = 1e-10 * jnp.maximum(jnp.abs(low), jnp.abs(high))
    zero = (jnp.abs(a) <= 1e-10 * jnp.max(jnp.abs(a))) | ~used
    bound = (a <= low + edge) | (a >= high - edge)
    kinds = jnp.select([zero, bound], [NO_SUPPORT, ON_BOUND], OFF_BOUND)
    return jnp.where((pieces.curvature[:, 0] > 0.0) & used, OFF_BOUND, kinds)

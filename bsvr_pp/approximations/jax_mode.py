"""The mode of the latent function in JAX: the method of `bsvr_pp.approximations.mode` for a processor or a GPU.

Newton steps, line search, multipliers and tolerances are the same, so that both find the same active set. All steps run
in one loop, in which a point off the block has the rate 0: there is no branch for each point, and problems of one size
are solved together by `jax.vmap`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bsvr_pp.approximations.jax_envelope import bends, envelope, first_and_last, line_search, unbounded
from bsvr_pp.approximations.jax_pieces import energy_at, pick
from bsvr_pp.approximations.jax_sites import Structure, solve
from bsvr_pp.approximations.mode import MAX_NEWTON, MAX_OUTER, NO_SUPPORT, OFF_BOUND, ON_BOUND, TARGET, TOLERANCE
from bsvr_pp.losses.pieces import Pieces

__all__ = ["MAX_STEPS", "Mode", "Place", "find_mode", "locate"]

MAX_STEPS = MAX_OUTER * MAX_NEWTON


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
        Whether the search has ended, and the gap is at most 1e-8.
    """

    dual_coef: Array
    shift: Array
    support: Array
    objective: Array
    gap: Array
    iterations: Array
    converged: Array


class _State(NamedTuple):
    """A step of Newton's method; a stage is a minimisation at one h, of targets shifted by h·(its first a)."""

    last_attempt: Array
    polishing: Array  # whether this is the last stage
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


def find_mode(
    K: Structure, t: Array, pieces: Pieces, used: Array, start: Array, max_steps: int = MAX_STEPS, attempts: int = 2
) -> Mode:
    """Find the mode for t = y - mean.

    Parameters
    ----------
    K : Structure
        Prior covariance.
    t : (n,) array
        Targets minus prior mean.
    pieces : Pieces
        Table of the loss with one row per point, of zeros for rows that are no data.
    used : (n,) array of bool
        Rows that are data.
    start : (n,) array
        Dual coefficients at which the search begins.
    max_steps : int
        Largest number of factorisations from each start.
    attempts : int
        Number of starts: 1, or 2 with zeros.
    """
    first, least = first_and_last(t, pieces, used)
    lowest = jnp.where(pieces.curvature[:, 0] == 0.0, pieces.slope[:, 0], -jnp.inf)
    highest = jnp.where(pieces.curvature[:, -1] == 0.0, pieces.slope[:, -1], jnp.inf)
    largest = jnp.max(K.variance)  # entry of K

    def newton(s: _State) -> tuple[_State, Array]:
        """One step, and whether it is the last of its stage."""
        slopes, r = envelope(s.h, pieces), s.shifted - s.f
        target, rate = slopes.subgradient(r)
        block, step = rate > 0.0, target - s.a
        pushed = K.times(jnp.where(block, 0.0, step))
        right = jnp.where(block, step / jnp.where(block, rate, 1.0) - pushed, 0.0)
        step = jnp.where(block, solve(K, rate, right), step)
        solved = jnp.isfinite(step).all()
        change = K.times(step)
        size = line_search(slopes, r, s.a, step, change, 2e-16 * largest * jnp.max(jnp.abs(step)))
        a, f = _add(s.a, size * step, block, K.constant), s.f + size * change
        settled = (size == 0.0) | (jnp.abs(size - 1.0) < 1e-9)
        settled = settled & (rate == slopes.subgradient(s.shifted - f)[1]).all()
        still = jnp.max(jnp.abs(size * step)) <= 1e-13 * jnp.max(jnp.abs(a))
        last = ~solved | settled | still | (s.steps + 1 == MAX_NEWTON)
        a, f = jnp.where(solved, a, s.a), jnp.where(solved, f, s.f)
        return s._replace(a=a, f=f, steps=s.steps + 1, iterations=s.iterations + 1), last

    def next_stage(s: _State) -> _State:
        """What follows a stage: one with a smaller h, the last one, or the end."""
        # On linear pieces a full step reaches the slope exactly; what is left beyond a bound is rounding.
        a = jnp.clip(s.a, lowest, highest)
        f = K.times(a)
        objective, gap = _gap(t, a, f, pieces)
        better = jnp.where(s.polishing, gap <= jnp.maximum(s.best_gap, 10.0 * TARGET), gap < s.best_gap)
        worse = jnp.where(gap < 0.5 * s.best_gap, 0, s.worse + 1)
        best_a, best_f = jnp.where(better, a, s.best_a), jnp.where(better, f, s.best_f)
        best_gap = jnp.where(better, gap, s.best_gap)
        found = (best_gap <= TARGET) | ((worse >= 3) & (best_gap <= TOLERANCE))
        found = found | (s.stage + 1 == MAX_OUTER) | ~jnp.isfinite(objective)
        # The active set is found: solve for the dual coefficients on it without the compliance of the multipliers.
        polish = found & ~s.polishing & (s.h > least)
        a, f = jnp.where(polish, best_a, a), jnp.where(polish, best_f, f)
        h = jnp.where(polish, least, jnp.maximum(0.3 * s.h, least))
        return s._replace(
            polishing=polish,
            ended=s.polishing | (found & ~polish),
            stage=s.stage + 1,
            steps=jnp.zeros_like(s.steps),
            worse=worse,
            h=h,
            shifted=t + h * a,
            a=a,
            f=f,
            best_a=best_a,
            best_f=best_f,
            best_gap=best_gap,
            best_objective=jnp.where(better, objective, s.best_objective),
        )

    def begin(a: Array, last_attempt: Array) -> _State:
        f, none, no, infinite = K.times(a), jnp.asarray(0), jnp.asarray(False), jnp.asarray(jnp.inf)
        shifted = t + first * a
        return _State(
            last_attempt, no, no, none, none, none, none, first, shifted, a, f, a, f, infinite, infinite
        )  # fmt: skip

    def step(s: _State) -> _State:
        moved, last = newton(s)
        new = _where(last, next_stage(moved), moved)
        failed = (new.ended | (new.iterations == max_steps)) & ~_converged(new)
        return _where(failed & ~new.last_attempt, anew, new)

    anew = begin(jnp.zeros_like(t), jnp.asarray(True))
    start = jnp.where(used, start, 0.0)
    begun = begin(start, jnp.all(start == 0.0) | (attempts == 1))
    end = jax.lax.while_loop(lambda s: ~s.ended & (s.iterations < max_steps), step, begun)
    support = _support(end.best_a, pieces)
    return Mode(end.best_a, end.best_f, support, end.best_objective, end.best_gap, end.iterations, _converged(end))


class Place(NamedTuple):
    """Where each point is at the mode.

    Attributes
    ----------
    piece : (n,) array of int
        Its piece.
    u : (n,) array
        Its coordinate, as in `Pieces.d_energy`.
    width, rise : (n,) arrays
        Width of the piece, 1 if it is unbounded, and rise of its slope over this width.
    """

    piece: Array
    u: Array
    width: Array
    rise: Array


def locate(mode: Mode, r: Array, pieces: Pieces) -> Place:
    """Find the piece of each point, from a if it is off-bound, otherwise from r; as `bsvr_pp.approximations.mode`."""
    a, knots, slope, m = mode.dual_coef, pieces.knots, pieces.slope, pieces.knots.shape[1]
    column, (width, end, jump) = a[:, None], bends(pieces)
    bent = (jump > 0.0) & (slope <= column) & (column <= end)
    outer = jnp.where(a < slope[:, 0], 0, m)
    by_slope = jnp.where(bent.any(axis=1), jnp.argmax(bent, axis=1), outer)
    # By the bound it sits at: a residual at the knot may be a rounding error off the piece.
    by_bound = jnp.where(a - slope[:, 0] < slope[:, -1] - a, 0, m)
    reached = slope >= column - 1e-9 * (slope[:, -1:] - slope[:, :1])
    straight = (reached & (jump <= 0.0)) | (np.arange(m + 1) == m)
    off_bound, on_bound = mode.support == OFF_BOUND, mode.support == ON_BOUND
    piece = jnp.select([off_bound, on_bound], [by_slope, by_bound], jnp.argmax(straight, axis=1))
    outside = unbounded(pieces)
    width = pick(jnp.where(outside, 1.0, width), piece)
    rise = pick(jnp.where(outside, pieces.curvature, jump), piece)
    of_slope = (a - pick(slope, piece)) / jnp.where(rise > 0.0, rise, 1.0)
    distance = r - pick(knots, jnp.maximum(piece - 1, 0))
    of_residual = jnp.where(width > 0.0, distance / jnp.where(width > 0.0, width, 1.0), 0.0)
    return Place(piece, jnp.where(off_bound, of_slope, of_residual), width, rise)


def _converged(s: _State) -> Array:
    return s.ended & (s.best_gap <= TOLERANCE)


def _where(condition: Array, one: _State, other: _State) -> _State:
    chosen: _State = jax.tree.map(partial(jnp.where, condition), one, other)
    return chosen


def _add(a: Array, move: Array, block: Array, constant: Array) -> Array:
    """Add; the rounding error of the sum is added to the smallest coefficient of the block, as in the compiled core."""
    new = a + move
    back = new - a
    lost = jnp.sum((a - (new - back)) + (move - back))
    place = jnp.argmin(jnp.where(block, jnp.abs(new), jnp.inf))
    return new.at[place].add(jnp.where((constant > 0.0) & block.any(), lost, 0.0))


def _gap(t: Array, a: Array, f: Array, pieces: Pieces) -> tuple[Array, Array]:
    """Objective at a, and the relative duality gap, as `bsvr_pp.approximations.mode`."""
    r = t - f
    at_r, (low, high) = energy_at(r, pieces), _residuals(a, pieces)
    nearest = jnp.minimum(jnp.maximum(r, low), high)
    excess = jnp.maximum(at_r - energy_at(nearest, pieces) - a * (r - nearest), 0.0)
    gap = jnp.where(nearest == r, 0.0, excess).sum()
    primal = 0.5 * a @ f + at_r.sum()
    return primal, gap / (1.0 + jnp.abs(primal) + jnp.abs(primal - gap))


def _residuals(a: Array, pieces: Pieces) -> tuple[Array, Array]:
    """Interval of residuals where a is a subgradient."""
    knots, slope, curvature = pieces.knots, pieces.slope, pieces.curvature
    column, (width, end, jump) = a[:, None], bends(pieces)
    infinite, bent = jnp.full_like(knots[:, :1], jnp.inf), jump > 0.0
    left, right = jnp.concatenate([-infinite, knots], axis=1), jnp.concatenate([knots, infinite], axis=1)
    inside = (slope <= column) & (column <= end)
    inside = inside.at[:, 0].set(a <= slope[:, 0]).at[:, -1].set(a >= slope[:, -1])
    at = left + width * ((column - slope) / jnp.where(bent, jump, 1.0))
    low = jnp.min(jnp.where(inside, jnp.where(bent, at, left), jnp.inf), axis=1)
    high = jnp.max(jnp.where(inside, jnp.where(bent, at, right), -jnp.inf), axis=1)
    for j, beyond in ((0, a < slope[:, 0]), (-1, a >= slope[:, -1])):
        curved = beyond & (curvature[:, j] > 0.0)
        point = knots[:, j] + (a - slope[:, j]) / jnp.where(curved, curvature[:, j], 1.0)
        low, high = jnp.where(curved, point, low), jnp.where(curved, point, high)
    return low, high


def _support(a: Array, pieces: Pieces) -> Array:
    """Kind of each point, as `bsvr_pp.approximations.mode`."""
    low, high, size = pieces.slope[:, 0], pieces.slope[:, -1], jnp.abs(a)
    edge = 1e-10 * jnp.maximum(jnp.abs(low), jnp.abs(high))
    bound = (a <= low + edge) | (a >= high - edge)
    kinds = jnp.select([size <= 1e-10 * jnp.max(size), bound], [NO_SUPPORT, ON_BOUND], OFF_BOUND)
    return jnp.where(pieces.curvature[:, 0] > 0.0, OFF_BOUND, kinds)

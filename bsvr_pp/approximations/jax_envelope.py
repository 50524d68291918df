"""The Moreau envelope of the energies in JAX, and the exact line search on it.

The computations are those of `bsvr_pp.approximations.mode` for all points at once, with a table of one row
per point.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bsvr_pp.approximations.jax_pieces import pick
from bsvr_pp.losses.pieces import Pieces

__all__ = ["Bends", "Envelope", "bends", "envelope", "first_and_last", "line_search", "unbounded"]

_MAX_STEPS = 100  # of a line search


class Bends(NamedTuple):
    """How pieces bend.

    Attributes
    ----------
    width, end, jump : (n, m + 1) arrays
        Width of each piece, slope at its right end, and rise of the slope over it; 0 for the width and the rise of the
        two unbounded pieces.
    """

    width: Array
    end: Array
    jump: Array


def bends(pieces: Pieces) -> Bends:
    """Compute how pieces bend."""
    knots, slope = pieces.knots, pieces.slope
    width = jnp.pad(knots[:, 1:] - knots[:, :-1], ((0, 0), (1, 1)))
    end = jnp.concatenate([slope[:, :1], slope[:, 2:], slope[:, -1:]], axis=1)
    return Bends(width, end, jnp.maximum(end - slope, 0.0))


def unbounded(pieces: Pieces) -> NDArray[np.bool_]:
    """Return which of the m + 1 pieces are unbounded."""
    return np.arange(pieces.slope.shape[1]) % pieces.knots.shape[1] == 0


class Envelope(NamedTuple):
    """The slope of each envelope, a piecewise linear function of s = r + h·a.

    Attributes
    ----------
    low, high : (n, m + 1) arrays
        Ends of the pieces.
    first, last : (n, m + 1) arrays
        Slopes there; the one at the finite end is that of an unbounded piece.
    rate : (n, m + 1) array
        Derivative of the slope.
    """

    low: Array
    high: Array
    first: Array
    last: Array
    rate: Array

    def subgradient(self, s: Array) -> tuple[Array, Array]:
        """Slope a of the envelope at s, and da/ds."""
        piece = (s[:, None] >= self.high[:, :-1]).sum(axis=1)
        low, high, first, last, rate = (pick(values, piece) for values in self)
        up, down = s - low, high - s
        # From the nearer end: a must reach the bound without rounding errors.
        return jnp.where(up < down, first + rate * up, last - rate * down), rate


def envelope(h: Array, pieces: Pieces) -> Envelope:
    """The envelope min_e E(r - e) + e²/(2h) of each energy."""
    knots, slope, curvature = pieces.knots, pieces.slope, pieces.curvature
    _, end, jump = bends(pieces)
    infinite = jnp.full_like(knots[:, :1], jnp.inf)
    low = jnp.concatenate([-infinite, knots + h * slope[:, 1:]], axis=1)
    high = jnp.concatenate([knots + h * end[:, :-1], infinite], axis=1)
    inner = jnp.where(jump > 0.0, jump / jnp.where(high > low, high - low, 1.0), 0.0)
    rate = jnp.where(unbounded(pieces), curvature / (1.0 + h * curvature), inner)
    return Envelope(low, high, slope, jnp.where(jump > 0.0, end, slope), rate)


def first_and_last(t: Array, pieces: Pieces, used: Array) -> tuple[Array, Array]:
    """First and last h of the search for the mode: a tenth of the targets' scale over C, or none for soft pieces."""
    width, end, jump = bends(pieces)
    bent = jump > 0.0
    stiffest = jnp.min(jnp.where(bent, width / jnp.where(bent, jump, 1.0), jnp.inf))
    steepest = jnp.max(jnp.where(bent, jnp.maximum(jnp.abs(pieces.slope), jnp.abs(end)), 0.0))
    size = jnp.maximum(jnp.std(t, where=used), 1e-3 * jnp.max(jnp.where(used, jnp.abs(t), 0.0)))
    scale = 0.1 * jnp.maximum(size, 1e-300) / jnp.where(steepest > 0.0, steepest, 1.0)
    scale = jnp.where((steepest == 0.0) | (stiffest > 0.1 * scale), 0.0, scale)
    return scale, 1e-14 * scale


def line_search(slopes: Envelope, r: Array, a: Array, step: Array, change: Array, noise: Array) -> Array:
    """Find the minimum along a + size·step of the objective; arguments as in the compiled core."""
    curvature, slope_at_start = step @ change, a @ change

    def search(s: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, size, _, count = s
        value, rate = slopes.subgradient(r - size * change)
        parts = value * change
        slope = slope_at_start + size * curvature - parts.sum()
        scale = jnp.abs(slope_at_start) + jnp.abs(parts).sum()
        doubt = (rate * jnp.abs(change)).sum() * noise
        rise = curvature + (rate * change * change).sum()
        low, high = jnp.where(slope < 0.0, size, low), jnp.where(slope < 0.0, high, size)
        trial = jnp.where(rise > 0.0, size - slope / jnp.where(rise > 0.0, rise, 1.0), 2.0 * size)
        middle = jnp.where(high < jnp.inf, 0.5 * (low + high), 2.0 * low)
        trial = jnp.where((low < trial) & (trial < high), trial, middle)
        found = (jnp.abs(slope) <= 1e-14 * scale + doubt) | (jnp.abs(trial - size) <= 1e-15 * size)
        found = found | (trial > 1e8) | ~jnp.isfinite(trial)
        return low, high, jnp.where(found, size, trial), found, count + 1

    begin = jnp.asarray(0.0), jnp.asarray(jnp.inf), jnp.asarray(1.0), jnp.asarray(False), jnp.asarray(0)
    low, _, size, found, _ = jax.lax.while_loop(lambda s: ~s[3] & (s[4] < _MAX_STEPS), search, begin)
    return jnp.where(found, size, low)

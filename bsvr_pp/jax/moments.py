"""Tables of pieces and moments of their sites in JAX: `bsvr_pp.losses.registry` and `.factors` for arrays of points.

All points and pieces are integrated at once, with forty nodes a piece, so that there is no branch for each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bsvr_pp.losses.pieces import NODES, WEIGHTS, Pieces
from bsvr_pp.losses.registry import LOSSES, curve

__all__ = ["noise_precision", "table", "tilted_moments"]

_DROP = 45.0  # the integrand is cut where it is e⁻⁴⁵ of its peak
_SMALLEST = 1e-290  # width of a curved piece, over the change of its slope, below which it counts as a kink


def table(loss: str, parameters: Array, y: Array) -> Pieces:
    """The table of a loss for targets (n,), with sample weights if there is a row of them after the parameters."""
    row = LOSSES[loss]
    count = len(row.parameters)
    pieces = _pieces(*curve(row, parameters[:count], y, _side_by_side), None if row.targets.one_table else y)
    if parameters.shape[0] == count:
        return pieces
    weight = parameters[count]
    column = weight[:, None]
    return Pieces(
        jnp.broadcast_to(pieces.knots, (weight.shape[0], pieces.knots.shape[1])),
        column * pieces.value,
        column * pieces.slope,
        column * pieces.curvature,
        column[..., None] * pieces.d_energy,
        weight * pieces.log_normalizer,
        weight * pieces.d_log_normalizer,
        pieces.ends,
    )


def _side_by_side(parts: Sequence[Any], like: Array) -> Array:
    return jnp.stack(jnp.broadcast_arrays(*parts, like)[:-1], axis=-1)


def _pieces(values: Array, derivatives: Sequence[Array], labels: Array | None) -> Pieces:
    """The table of curves (k, 3m + 3) and of their derivatives, as `bsvr_pp.losses.registry` makes it row by row."""
    knots, value, slope, outer, width, rise = _parts(values)
    kink = width < _SMALLEST * rise
    width = jnp.where(kink, 0.0, width)
    knots = jnp.concatenate([knots[:, :1], jnp.where(kink, knots[:, :-1], knots[:, 1:])], axis=1)
    inner = jnp.where(kink | (rise <= 0.0), 0.0, rise / jnp.where(width > 0.0, width, 1.0))
    # The two unbounded pieces, whose curvatures are given, as pieces of width 1.
    curvature, rises = _between(outer, inner), _between(outer, rise)
    widths = _between(jnp.ones_like(outer), width)
    d_energy = []
    for each in derivatives:
        d_knots, d_value, d_slope, d_outer, d_width, d_rise = _parts(each)
        d_rises, d_widths = _between(d_outer, d_rise), _between(jnp.zeros_like(outer), d_width)
        at, level = _at_anchor(d_knots), _at_anchor(d_value)
        terms = level - slope * at, widths * d_slope - rises * at, 0.5 * (widths * d_rises - rises * d_widths)
        d_energy.append(jnp.stack(terms, axis=-1))
    zero, by = jnp.zeros(knots.shape[0]), jnp.stack(d_energy)
    made = Pieces(knots, value, slope, curvature, by, zero, jnp.zeros(by.shape[:2]), jnp.zeros((0, 2)))
    if labels is None:
        log_mass, _, _, d_parameters = _integrate(zero, zero, made)
        return made._replace(log_normalizer=log_mass, d_log_normalizer=d_parameters)
    # Sollich 2002, (4): the sum over the labels where |f| = 1, of which one has energy 0.
    right = labels > 0.0
    r = jnp.where(right, 2.0, -2.0)
    highest = jnp.where(right, value[:, -1] + r * slope[:, -1], value[:, 0] + r * slope[:, 0])
    c0, c1, c2 = jnp.moveaxis(jnp.where(right[:, None], by[:, :, -1], by[:, :, 0]), -1, 0)
    d_highest = c0 + r * (c1 + r * c2)
    return made._replace(
        log_normalizer=jnp.log1p(jnp.exp(-highest)),
        d_log_normalizer=-d_highest / (1.0 + jnp.exp(jnp.minimum(highest, 600.0))),
    )


def _parts(values: Array) -> tuple[Array, ...]:
    """Knots, value, slope and outer curvatures of curves, with widths and rises of the slope of the bounded pieces."""
    m = values.shape[1] // 3 - 1
    knots, slope = values[:, :m], values[:, 2 * m : 3 * m + 1]
    return knots, values[:, m : 2 * m], slope, values[:, 3 * m + 1 :], jnp.diff(knots), jnp.diff(slope)[:, 1:]


def _between(ends: Array, inner: Array) -> Array:
    return jnp.concatenate([ends[:, :1], inner, ends[:, 1:]], axis=1)


def _at_anchor(values: Array) -> Array:
    """Values at the knots (k, m) as values at the anchors of the pieces (k, m + 1)."""
    return jnp.concatenate([values[:, :1], values], axis=1)


def tilted_moments(mean: Array, variance: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Moments of N(r; mean, variance)·exp(-E(r))/normaliser for each point.

    Returns log Z, d log Z/d(mean of f), the variance, and d log Z/d(each parameter of the loss) (p, n).
    """
    log_mass, tilted, score, d_parameters = _integrate(mean, 1.0 / variance, pieces)
    log_mass = log_mass - 0.5 * jnp.log(2.0 * np.pi * variance) - pieces.log_normalizer
    return log_mass, score, tilted, d_parameters - pieces.d_log_normalizer


def noise_precision(pieces: Pieces) -> Array:
    """One over the variance of the noise, (k,), or 1 where the site is not the density of a noise."""
    zero = jnp.zeros(pieces.knots.shape[0])
    variance = _integrate(zero, zero, pieces)[1]
    proper = jnp.isfinite(variance) & (variance > 0.0)
    return jnp.where(proper, 1.0 / jnp.where(proper, variance, 1.0), 1.0)


def _integrate(center: Array, precision: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Integrate exp(-½·precision·(r - center)² - E(r)) over r for each point.

    Returns log mass, variance of r, mean of dE/dr, and the derivatives of the log mass by the parameters (p, n).
    """
    knots, value, slope, curvature = pieces[:4]
    center, precision = center[:, None], precision[:, None]
    edge = jnp.full_like(knots[:, :1], jnp.inf)
    anchor = _at_anchor(knots)
    width = jnp.concatenate([knots[:, 1:] - knots[:, :-1], edge], axis=1)
    lower = jnp.concatenate([-edge, jnp.zeros_like(width)], axis=1)
    upper = jnp.concatenate([jnp.zeros_like(edge), width], axis=1)
    total = precision + curvature
    linear = -slope - precision * (anchor - center)
    place, steepness = _peak(lower, upper, linear, total)
    denominator = steepness + jnp.sqrt(steepness**2 + 2.0 * total * _DROP)
    reach = jnp.where(denominator > 0.0, 2.0 * _DROP / jnp.where(denominator > 0.0, denominator, 1.0), jnp.inf)
    left, right = -jnp.minimum(reach, place - lower), jnp.minimum(reach, upper - place)
    extent = right - left
    there = jnp.broadcast_to(upper > lower, extent.shape) & (extent > 0.0)
    at = anchor - center + place
    level = -0.5 * precision * at**2 - _energy(place, knots, value, slope, curvature)
    level = jnp.where(there, level, -jnp.inf)
    extent, steepness, total = (
        jnp.where(there, extent, 1.0),
        jnp.where(there, steepness, 0.0),
        jnp.where(there, total, 0.0),
    )

    t = left[..., None] + extent[..., None] * NODES
    distance = jnp.abs(t)
    weight = WEIGHTS * jnp.exp(-distance * (steepness[..., None] + 0.5 * total[..., None] * distance))
    mass = weight.sum(axis=-1)
    t1, t2 = (weight * t).sum(axis=-1) / mass, (weight * t * t).sum(axis=-1) / mass

    best = jnp.argmax(level + jnp.log(extent), axis=1, keepdims=True)
    top = jnp.take_along_axis(level, best, axis=1)
    reference = jnp.take_along_axis(jnp.broadcast_to(anchor + place, level.shape), best, axis=1)
    share = mass * extent * jnp.exp(level - top)
    whole = share.sum(axis=1)
    share = share / whole[:, None]
    offset = anchor - reference + place
    first = (share * (offset + t1)).sum(axis=1)
    variance = (share * (offset**2 + 2.0 * offset * t1 + t2)).sum(axis=1) - first**2
    score = (share * (slope + curvature * (place + t1))).sum(axis=1)
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper) & (upper > lower)
    unit = jnp.where(bounded, upper, 1.0)
    u = (place + t1) / unit
    u2 = (place**2 + 2.0 * place * t1 + t2) / unit**2
    by = pieces.d_energy
    d_parameters = -(share * (by[..., 0] + by[..., 1] * u + by[..., 2] * u2)).sum(axis=-1)
    return jnp.log(whole) + top[:, 0], jnp.maximum(variance, 0.0), score, d_parameters


def _peak(lower: Array, upper: Array, slope: Array, precision: Array) -> tuple[Array, Array]:
    """Place of the maximum of slope·s - ½·precision·s² on [lower, upper], and the modulus of its slope there."""
    curved = precision > 0.0
    inside = jnp.clip(slope / jnp.where(curved, precision, 1.0), lower, upper)
    first = (slope < 0.0) | ((slope == 0.0) & (lower > -jnp.inf))
    place = jnp.where(curved, inside, jnp.where(first, lower, upper))
    steepness = jnp.abs(slope - precision * place)
    return place, jnp.where((place > lower) & (place < upper), 0.0, steepness)


def _energy(s: Array, knots: Array, value: Array, slope: Array, curvature: Array) -> Array:
    """Energy at the distance s from the anchor of each piece, from the nearer of its two knots (no cancellation)."""
    forward = _at_anchor(value) + s * (slope + 0.5 * curvature * s)
    edge = jnp.full_like(knots[:, :1], jnp.inf)
    width = jnp.concatenate([edge, knots[:, 1:] - knots[:, :-1], edge], axis=1)
    inner = jnp.isfinite(width)
    back = s - jnp.where(inner, width, 0.0)
    value_right, slope_right = (
        jnp.concatenate([value, value[:, -1:]], axis=1),
        jnp.concatenate([slope[:, 1:], slope[:, -1:]], axis=1),
    )
    backward = value_right + back * (slope_right + 0.5 * curvature * back)
    return jnp.where(inner & (s > -back), backward, forward)

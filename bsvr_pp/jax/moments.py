"""Tables of pieces and moments of their sites in JAX: `bsvr_pp.losses.registry` and `.factors` for arrays of points.

All points and pieces are integrated at once, with forty nodes a piece, so that there is no branch for each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bsvr_pp.losses.pieces import NODES, WEIGHTS, Pieces, d_label_energy, fill_derivative, fill_row, label_energy
from bsvr_pp.losses.registry import LOSSES, curve

_DROP = 45.0  # the integrand is cut where it is e⁻⁴⁵ of its peak


def table(loss: str, parameters: Array, y: Array) -> Pieces:
    """The table of a loss for targets (n,), with sample weights if there is a row of them after the parameters."""
    row = LOSSES[loss]
    count = len(row.parameters)
    labels = None if row.targets.one_table else y
    pieces = _pieces(*curve(row, parameters[:count], y), labels, parameters[0] if labels is None else y)
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
        jnp.zeros_like(weight),
        pieces.ends,
    )


def _pieces(entries: Sequence[Any], derivatives: Sequence[Any], labels: Array | None, like: Array) -> Pieces:
    """The table of a curve and of its derivatives, as `bsvr_pp.losses.pieces` makes it; ``like`` is (k,)."""
    m = len(entries) // 3 - 1
    row = tuple(np.empty(size, dtype=object) for size in (m, m, m + 1, m + 1))
    fill_row(entries, row)
    by = [np.empty((m + 1, 3), dtype=object) for _ in derivatives]
    for d_energy, derivative in zip(by, derivatives, strict=True):
        fill_derivative(derivative, row, d_energy)

    def columns(parts: Any) -> Array:
        return jnp.stack(jnp.broadcast_arrays(*parts, like)[:-1], axis=-1)

    zero = jnp.zeros_like(like)
    coefficients = jnp.stack([jnp.stack([columns(c) for c in d_energy], axis=-2) for d_energy in by])
    knots, value, slope, curvature = map(columns, row)
    nothing = jnp.zeros(coefficients.shape[:2])
    made = Pieces(knots, value, slope, curvature, coefficients, zero, nothing, zero, jnp.zeros((0, 2)))
    if labels is None:
        log_mass, _, _, d_parameters = _integrate(zero, zero, made)
        return made._replace(log_normalizer=log_mass, d_log_normalizer=d_parameters)
    highest = label_energy(labels, row)
    d_highest = jnp.stack([d_label_energy(labels, d_energy) for d_energy in by])
    return made._replace(
        log_normalizer=jnp.log1p(jnp.exp(-highest)),
        d_log_normalizer=-d_highest / (1.0 + jnp.exp(jnp.minimum(highest, 600.0))),
    )


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
    extent = jnp.where(there, extent, 1.0)
    steepness, total = jnp.where(there, steepness, 0.0), jnp.where(there, total, 0.0)

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
    value_right = jnp.concatenate([value, value[:, -1:]], axis=1)
    slope_right = jnp.concatenate([slope[:, 1:], slope[:, -1:]], axis=1)
    backward = value_right + back * (slope_right + 0.5 * curvature * back)
    return jnp.where(inner & (s > -back), backward, forward)

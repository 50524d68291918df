"""Tables of pieces and moments of their sites in JAX: `bsvr_pp.losses.registry` and `.pieces` for arrays of points.

A table has the same fields as that of the compiled core. All points and pieces are integrated at once, with forty nodes
a piece, so that there is no branch for each point: this is what a GPU does best.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array

from bsvr_pp.losses import LOSSES
from bsvr_pp.losses.pieces import NODES, WEIGHTS, Pieces

__all__ = ["TABLES", "by_row", "energy_at", "local_moments", "noise_precision", "pick", "table", "tilted_moments"]

_DROP = 45.0  # the integrand is cut where it is e⁻⁴⁵ of its peak
_SMALLEST = 1e-290  # width of a curved piece, over C, below which it counts as a kink


def _soft_insensitive(parameters: Array, y: Array) -> Pieces:
    """The table of Chu, Keerthi & Ong 2004, (11); parameters C, epsilon, beta."""
    C, epsilon, beta = parameters
    inner, outer = (1.0 - beta) * epsilon, (1.0 + beta) * epsilon
    kink = outer - inner < _SMALLEST * C
    outer = jnp.where(kink, inner, outer)
    width, zero = outer - inner, jnp.zeros_like(C)
    half, curvature = 0.5 * C * width, jnp.where(kink, 0.0, C / jnp.where(kink, 1.0, width))
    bend = C * epsilon
    by_C = [
        [0.5 * width, -1.0 + zero, zero],
        [0.5 * width, -width, 0.5 * width],
        [zero, zero, zero],
        [zero, zero, 0.5 * width],
        [0.5 * width, 1.0 + zero, zero],
    ]
    by_epsilon = [
        [-C, zero, zero],
        [-C, C * (1.0 + beta), -C * beta],
        [zero, zero, zero],
        [zero, -C * (1.0 - beta), -C * beta],
        [-C, zero, zero],
    ]
    by_beta = [[zero, row * bend, -row * bend] for row in (0.0, 1.0, 0.0, 1.0, 0.0)]
    return _normalized(
        _columns([-outer, -inner, inner, outer]),
        _columns([half, zero, zero, half]),
        _columns([-C, -C, zero, zero, C]),
        _columns([zero, curvature, zero, curvature, zero]),
        _derivatives([by_C, by_epsilon, by_beta]),
    )


def _at_beta(beta: float, parameters: Array, y: Array) -> Pieces:
    """The soft insensitive table at a fixed beta; parameters C, epsilon."""
    table = _soft_insensitive(jnp.vstack([parameters, jnp.full_like(parameters[:1], beta)]), y)
    return table._replace(d_energy=table.d_energy[:2], d_log_normalizer=table.d_log_normalizer[:2])


def _laplace(parameters: Array, y: Array) -> Pieces:
    """Energy C·|r|; parameter C."""
    C = parameters[0]
    zero, one = jnp.zeros_like(C), jnp.ones_like(C)
    by_C = [[zero, -one, zero], [zero, zero, zero], [zero, one, zero]]
    nothing = _columns([zero, zero])
    return _normalized(nothing, nothing, _columns([-C, -C, C]), _columns([zero] * 3), _derivatives([by_C]))


def _pinball(parameters: Array, y: Array) -> Pieces:
    """Energy C·(quantile·r for r > 0, (quantile - 1)·r for r < 0); parameters C, quantile."""
    C, quantile = parameters
    zero = jnp.zeros_like(C)
    by_C = [[zero, quantile - 1.0, zero], [zero, zero, zero], [zero, quantile, zero]]
    by_quantile = [[zero, C, zero], [zero, zero, zero], [zero, C, zero]]
    low, nothing = C * (quantile - 1.0), _columns([zero, zero])
    slope = _columns([low, low, C * quantile])
    return _normalized(nothing, nothing, slope, _columns([zero] * 3), _derivatives([by_C, by_quantile]))


def _gaussian(parameters: Array, y: Array) -> Pieces:
    """Energy ½C·r²; parameter C, the precision."""
    C = parameters[0]
    zero, half = jnp.zeros_like(C), jnp.full_like(C, 0.5)
    nothing = _columns([zero])
    by_C = [[zero, zero, half]] * 2
    return _normalized(nothing, nothing, _columns([zero, zero]), _columns([C, C]), _derivatives([by_C]))


def _hinge(parameters: Array, y: Array) -> Pieces:
    """Energy C·max(0, y·r) for labels y = ±1, normalised over the labels; parameter C."""
    C = jnp.broadcast_to(parameters[0], y.shape)
    zero, right = jnp.zeros_like(C), y > 0.0
    slope = _columns([jnp.where(right, 0.0, -C), jnp.where(right, 0.0, -C), jnp.where(right, C, 0.0)])
    by_C = [[zero, jnp.where(right, 0.0, -1.0), zero], [zero] * 3, [zero, jnp.where(right, 1.0, 0.0), zero]]
    nothing = _columns([zero, zero])
    return Pieces(
        nothing,
        nothing,
        slope,
        jnp.zeros_like(slope),
        _derivatives([by_C]),
        jnp.log1p(jnp.exp(-2.0 * C)),
        (-2.0 / (1.0 + jnp.exp(2.0 * jnp.minimum(C, 300.0))))[None],
        jnp.zeros((0, 2)),
    )


TABLES: dict[str, Callable[[Array, Array], Pieces]] = {
    "soft_insensitive": _soft_insensitive,
    "epsilon_insensitive": partial(_at_beta, 0.0),
    "huber": partial(_at_beta, 1.0),
    "laplace": _laplace,
    "gaussian": _gaussian,
    "pinball": _pinball,
    "hinge": _hinge,
}


def _columns(parts: list[Array]) -> Array:
    """Put (k,) arrays side by side, (k, m)."""
    return jnp.stack(parts, axis=-1)


def _derivatives(rows: list[list[list[Array]]]) -> Array:
    """Coefficients c₀, c₁, c₂ by parameter and piece, as (p, k, m+1, 3)."""
    return jnp.stack([_columns([_columns(piece) for piece in each]).swapaxes(-1, -2) for each in rows])


def _normalized(knots: Array, value: Array, slope: Array, curvature: Array, d_energy: Array) -> Pieces:
    """The table with the log normaliser of the noise, and its derivatives."""
    zero = jnp.zeros(knots.shape[0])
    table = Pieces(knots, value, slope, curvature, d_energy, zero, jnp.zeros(d_energy.shape[:2]), jnp.zeros((0, 2)))
    log_mass, _, _, _, d_parameters = _integrate(zero, zero, table)
    return table._replace(log_normalizer=log_mass, d_log_normalizer=d_parameters)


def table(loss: str, parameters: Array, y: Array) -> Pieces:
    """The table of a loss for targets (n,), with sample weights if there is a row of them after the parameters."""
    count = len(LOSSES[loss].parameters)
    pieces = TABLES[loss](parameters[:count], y)
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


def tilted_moments(mean: Array, variance: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Moments of N(r; mean, variance)·exp(-E(r))/normaliser for each point; `bsvr_pp.losses.pieces.tilted_moments`.

    Returns
    -------
    log_mass, score, tilted_variance : (n,) arrays
        log Z, d log Z/d(mean of f) = mean of dE/dr, variance.
    d_parameters : (p, n) array
        d log Z/d(each parameter of the loss).
    """
    log_mass, _, tilted, score, d_parameters = _integrate(mean, 1.0 / variance, pieces)
    log_mass = log_mass - 0.5 * jnp.log(2.0 * np.pi * variance) - pieces.log_normalizer
    return log_mass, score, tilted, d_parameters - pieces.d_log_normalizer


def local_moments(r: Array, a: Array, pieces: Pieces) -> tuple[Array, Array, Array]:
    """Moments of exp(a·(ρ - r) - E(ρ)) over ρ for each point, with a table of one row per point.

    Returns
    -------
    log_mass, offset : (n,) arrays
        Log of the integral, which is infinite or NaN where it diverges, and the mean of ρ - r.
    d_energy : (p, n) array
        Mean of dE/d(each parameter of the loss).
    """
    log_mass, offset, _, _, d_parameters = _integrate(r, jnp.zeros_like(r), pieces, a)
    return log_mass, offset, -d_parameters


def energy_at(r: Array, pieces: Pieces) -> Array:
    """Energy of each point at its residual, with a table of one row per point."""
    knots, value, slope, curvature = pieces[:4]
    anchor = jnp.concatenate([knots[:, :1], knots], axis=1)
    piece = (r[:, None] >= knots).sum(axis=1)
    return pick(_energy(r[:, None] - anchor, knots, value, slope, curvature), piece)


def by_row(pieces: Pieces, used: Array) -> Pieces:
    """The table with one row for each of n points, of zeros for those that are not used (n,)."""
    column = used[:, None]
    knots, value, slope, curvature = (jnp.where(column, field, 0.0) for field in pieces[:4])
    return Pieces(
        knots,
        value,
        slope,
        curvature,
        jnp.where(column[..., None], pieces.d_energy, 0.0),
        jnp.where(used, pieces.log_normalizer, 0.0),
        jnp.where(used, pieces.d_log_normalizer, 0.0),
        pieces.ends,
    )


def pick(values: Array, piece: Array) -> Array:
    """The value of one piece of each point, from (n, m + 1) values of all."""
    return jnp.take_along_axis(values, piece[:, None], axis=1)[:, 0]


def noise_precision(pieces: Pieces) -> Array:
    """One over the variance of the noise, (k,), or 1 where the site is not the density of a noise."""
    zero = jnp.zeros(pieces.knots.shape[0])
    variance = _integrate(zero, zero, pieces)[2]
    proper = jnp.isfinite(variance) & (variance > 0.0)
    return jnp.where(proper, 1.0 / jnp.where(proper, variance, 1.0), 1.0)


def _integrate(
    center: Array, precision: Array, pieces: Pieces, tilt: Array | None = None
) -> tuple[Array, Array, Array, Array, Array]:
    """Integrate exp(-½·precision·(r - center)² + tilt·(r - center) - E(r)) over r for each point.

    Returns log mass, mean of r - center, variance of r, mean of dE/dr, and the derivatives of the log mass by the
    parameters (p, n).
    """
    knots, value, slope, curvature = pieces[:4]
    center, precision = center[:, None], precision[:, None]
    tilt = jnp.zeros_like(center) if tilt is None else tilt[:, None]
    edge = jnp.full_like(knots[:, :1], jnp.inf)
    anchor = jnp.concatenate([knots[:, :1], knots], axis=1)
    width = jnp.concatenate([knots[:, 1:] - knots[:, :-1], edge], axis=1)
    lower = jnp.concatenate([-edge, jnp.zeros_like(width)], axis=1)
    upper = jnp.concatenate([jnp.zeros_like(edge), width], axis=1)
    total = precision + curvature
    linear = tilt - slope - precision * (anchor - center)
    place, steepness = _peak(lower, upper, linear, total)
    denominator = steepness + jnp.sqrt(steepness**2 + 2.0 * total * _DROP)
    reach = jnp.where(denominator > 0.0, 2.0 * _DROP / jnp.where(denominator > 0.0, denominator, 1.0), jnp.inf)
    left, right = -jnp.minimum(reach, place - lower), jnp.minimum(reach, upper - place)
    extent = right - left
    there = jnp.broadcast_to(upper > lower, extent.shape) & (extent > 0.0)
    at = anchor - center + place
    level = at * (tilt - 0.5 * precision * at) - _energy(place, knots, value, slope, curvature)
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
    return (
        jnp.log(whole) + top[:, 0],
        (reference - center)[:, 0] + first,
        jnp.maximum(variance, 0.0),
        score,
        d_parameters,
    )


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
    value_left = jnp.concatenate([value[:, :1], value], axis=1)
    forward = value_left + s * (slope + 0.5 * curvature * s)
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

"""Laplace's sites of targets that are known to lie in an interval.

The energy of such a point is S(s) = -log mass of the noise between s + low and s + high (`bsvr_pp.losses.intervals`),
s = t - f. Its exact curvature is S''. The curvature "local" is W = 2π/I², with the integral I over the residual of
exp(a·(ρ - s) - S(ρ) + S(s)), and a = S'(s). Exchanging the two integrals gives it in closed form:

    log I = log ∫ exp(a·ρ) dρ (from -high to -low) + log ∫ exp(a·(x - s) - E(x)) dx + S(s).
"""

from __future__ import annotations

from math import exp, inf, log, log1p, pi, sinh, tanh

import numpy as np
from numba import types
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR
from bsvr_pp._separate import separate
from bsvr_pp.losses.intervals import interval_energy, mass_gradients
from bsvr_pp.losses.pieces import PIECES, Pieces, mean_d_energy, tilted_row

__all__ = ["FLAT", "add_interval_gradient", "interval_site"]

Array = NDArray[np.float64]

FLAT = 1e-14  # curvature times prior variance below which an energy is linear
_EDGE = 1e-13  # distance of a from the slope of a linear tail, relative to it, that is a rounding error


@separate(
    types.UniTuple(types.float64, 2), types.float64, types.float64, types.int64, types.int64, PIECES, types.boolean
)
def interval_site(a: float, s: float, i: int, k: int, pieces: Pieces, local: bool) -> tuple[float, float]:
    """W of interval i, whose energies are in row k, and d(log W)/da."""
    knots, value, slope, curvature = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
    low, high = pieces.ends[i, 0], pieces.ends[i, 1]
    moments = np.empty((pieces.slope.shape[1], 3))
    energy, _, bend = interval_energy(s, i, k, pieces)
    if not local:
        if bend <= 0.0:
            return 0.0, 0.0
        third = mass_gradients(s, low, high, knots, value, slope, curvature, pieces.d_energy[:, k].copy(), moments)[0]
        return bend, -third / (bend * bend)
    m = knots.shape[0]
    edge = _EDGE * max(abs(slope[0]), abs(slope[m]))
    if (curvature[0] == 0.0 and a <= slope[0] + edge) or (curvature[m] == 0.0 and a >= slope[m] - edge):
        return 0.0, 0.0  # in a linear tail the integral diverges
    log_width, middle, _, _ = _exponential(a, low, high)
    log_noise, offset, _, _ = tilted_row(s, 0.0, a, knots, value, slope, curvature, moments)
    if log_width == inf or log_noise == inf:
        return 0.0, 0.0
    return 2.0 * pi * exp(-2.0 * (log_width + log_noise + energy)), -2.0 * (middle + offset)


@separate(types.UniTuple(types.float64, 4), types.float64, types.float64, types.float64)
def _exponential(a: float, low: float, high: float) -> tuple[float, float, float, float]:
    """Log of ∫ exp(a·ρ) dρ from -high to -low, and its derivatives by a, low and high; inf where it diverges."""
    if low == -inf or high == inf:
        rate = a if high == inf else -a
        if rate <= 0.0 or (low == -inf and high == inf):
            return inf, 0.0, 0.0, 0.0
        end = low if high == inf else high
        return -a * end - log(rate), -end - 1.0 / a, (-a if high == inf else 0.0), (0.0 if high == inf else -a)
    width, middle = high - low, -(low + 0.5 * (high - low))
    y = 0.5 * a * width
    if abs(y) < 1e-3:
        log_shape, langevin = y * y / 6.0, y / 3.0 * (1.0 - y * y / 15.0)
    elif abs(y) < 1.0:
        log_shape, langevin = log(sinh(y) / y), 1.0 / tanh(y) - 1.0 / y
    else:
        log_shape = abs(y) + log1p(-exp(-2.0 * abs(y))) - log(2.0 * abs(y))
        langevin = 1.0 / tanh(y) - 1.0 / y
    by_low = -exp(y - log_shape) / width
    by_high = exp(-y - log_shape) / width
    return a * middle + log(width) + log_shape, middle + 0.5 * width * langevin, by_low, by_high


@separate(
    types.void,
    types.float64,
    types.float64,
    types.int64,
    types.int64,
    PIECES,
    types.boolean,
    types.float64,
    types.float64,
    types.float64,
    types.float64,
    MATRIX,
    VECTOR,
)
def add_interval_gradient(
    a: float,
    s: float,
    i: int,
    k: int,
    pieces: Pieces,
    local: bool,
    precision: float,
    d_log_w: float,
    moving: float,
    pushed: float,
    d_parameters: Array,
    d_ends: Array,
) -> None:
    """Add the derivatives of Laplace's evidence by the parameters, and by the ends, that come from one interval.

    Parameters
    ----------
    a, s, i, k, pieces, local
        As `interval_site`.
    precision, d_log_w : float
        W, and the derivative of the evidence by log W.
    moving, pushed : float
        Derivative of the evidence by a through W, and K times (K + 1/S'')⁻¹ times these derivatives.
    d_parameters : (p, rows) array
        To whose column k is added.
    d_ends : (2,) array
        To which is added.
    """
    knots, value, slope, curvature = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
    low, high = pieces.ends[i, 0], pieces.ends[i, 1]
    moments = np.empty((pieces.slope.shape[1], 3))
    d_energy = pieces.d_energy[:, k].copy()
    _, by_ends, by_parameters, _, _ = mass_gradients(s, low, high, knots, value, slope, curvature, d_energy, moments)
    sited = precision > 0.0
    by_width = np.zeros(2)
    if local and sited:
        _, _, by_width[0], by_width[1] = _exponential(a, low, high)
        tilted_row(s, 0.0, a, knots, value, slope, curvature, moments)
    # a = S' moves with a parameter by (I + S''K)⁻¹ dS', and W with a.
    by_slope = pushed - moving if local else pushed
    for p in range(by_parameters.shape[0]):
        total = by_parameters[p, 0] - pieces.d_log_normalizer[p, k] + by_slope * by_parameters[p, 1]
        if sited and local:
            total += 2.0 * d_log_w * (mean_d_energy(moments, d_energy[p]) + by_parameters[p, 0])
        elif sited:
            total -= d_log_w * by_parameters[p, 2] / precision
        d_parameters[p, k] += total
    for q in range(2):
        total = by_ends[q, 0] + by_slope * by_ends[q, 1]
        if sited and local:
            total -= 2.0 * d_log_w * (by_width[q] - by_ends[q, 0])
        elif sited:
            total -= d_log_w * by_ends[q, 2] / precision
        d_ends[q] += total

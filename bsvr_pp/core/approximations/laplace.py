"""Laplace's approximation of the evidence around the mode, with its exact gradient (docs/explanation/laplace.md).

    log p(y) ≈ -Σ E_i(r_i) - ½ aᵀK·a - Σ log Z_i - ½ log|I + W½ K W½|        (Chu, Keerthi & Ong 2004, (36)-(37))

Curvature "exact" has W_i = d²E_i/df², and integrates a kink with the linear form ∓a_i of the prior (Sollich 2002,
(31)). Curvature "local" integrates the whole site with this form, W = 2π/I², I = ∫ exp(a·(ρ - r) - E(ρ) + E(r)) dρ.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, pi, tanh
from typing import Literal

import numpy as np
from numba import types
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.approximations.mode import FLAT, OFF_BOUND, ON_BOUND, TOLERANCE, locate, mode_core
from bsvr_pp.core.approximations.posterior import (
    GRADIENTS,
    OUTCOME,
    Gradient,
    Gradients,
    LatentPosterior,
    Outcome,
    blockwise,
    checked_problem,
    from_outcome,
    mark_failed,
    named_gradient,
)
from bsvr_pp.core.arrays import Array, numbers
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.covariance.sites import factor_sites, pull_back, site_inverse, solve_block
from bsvr_pp.core.covariance.structure import STRUCTURE, Structure, given_array, product
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.factors import is_interval, row_of, site_energy
from bsvr_pp.core.losses.intervals import mass_gradients
from bsvr_pp.core.losses.pieces import (
    PIECES,
    Pieces,
    d_curvature,
    d_slope,
    energy,
    mean_d_energy,
    row_at,
    tilted_row,
    width_of,
)

Curvature = Literal["exact", "local"]

_EDGE = 1e-13  # relative distance of a from the slope of a linear tail that is a rounding error


@shared
@blockwise
def laplace(
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    curvature: Curvature = "exact",
    start: ArrayLike | None = None,
) -> LatentPosterior:
    """Compute Laplace's approximation of the posterior and evidence of the latent function.

    Parameters
    ----------
    K : (n, n) array, Covariance or BlockDiagonal
        Prior covariance; a `Covariance` also contains its jitter, or a low-rank root.
    y : (n,) array
        Targets.
    noise : NoiseModel
        A loss of `bsvr_pp.losses`.
    mean : (n,) array, optional
        Prior mean at the inputs.
    curvature : {"exact", "local"}
        "exact" (Chu, Keerthi & Ong 2004, (36)-(37)) is sparse but discontinuous in the hyperparameters; "local", the
        locally integrated curvature, is dense and continuous.
    start : (2, n) array, optional
        Dual coefficients and site precisions of a similar problem, without blocks, from which the search starts.

    Returns
    -------
    LatentPosterior

    Raises
    ------
    ValueError
        If an argument has the wrong shape or is not finite.

    <on_arrays>
    >>> posterior = laplace(np.eye(1), [1.0], gaussian(C=1.0))
    >>> bool(np.isclose(posterior.log_evidence, -0.5 * np.log(4 * np.pi) - 0.25))
    True
    """
    local = is_local(curvature)
    covariance, residual, offset, pieces = checked_problem(K, y, noise, mean, mode=True)
    begin = np.zeros((2, residual.size)) if start is None else np.array(numbers("start", start, (2, residual.size)))
    found, _ = laplace_value(covariance.structure, residual, pieces, local, begin)
    return from_outcome(covariance, offset, found)


def laplace_gradient(
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    curvature: Curvature = "exact",
) -> tuple[float, Gradient]:
    """Compute log evidence and gradient of `laplace` (Chu, Keerthi & Ong 2004, (38)-(40)), for any kernel and loss."""
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean, mode=True)
    start = np.zeros((2, residual.size))
    return named_gradient(noise, *laplace_core(covariance.structure, residual, pieces, is_local(curvature), start))


def is_local(curvature: str) -> bool:
    if curvature not in ("exact", "local"):
        raise ValueError(f"curvature must be 'exact' or 'local', got {curvature!r}")
    return curvature == "local"


@separate(types.Tuple((OUTCOME, VECTOR)), STRUCTURE, VECTOR, PIECES, types.boolean, MATRIX)
def laplace_value(K: Structure, t: Array, pieces: Pieces, local: bool, start: Array) -> tuple[Outcome, Array]:
    """Return the approximation for t = y - mean, and d(log W)/da, from the first row of ``start`` (2, n)."""
    n = t.shape[0]
    mode = mode_core(K, t, pieces, start[0])
    if not mode.gap <= TOLERANCE and np.any(start[0] != 0.0):
        mode = mode_core(K, t, pieces, np.zeros(n))
    a, support = mode.dual_coef, mode.support
    f = product(K, a)
    precision, d_log_a = np.zeros(n), np.zeros(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    log_evidence = -mode.objective
    for i in range(n):
        k = row_of(i, pieces)
        log_evidence -= pieces.log_normalizer[k]
        if is_interval(k, pieces):
            precision[i], d_log_a[i] = _interval_curvature(a[i], t[i] - f[i], k, pieces, local)
            if precision[i] * K.variance[i] < FLAT:
                precision[i] = 0.0
        elif local and support[i] != ON_BOUND:
            precision[i], d_log_a[i] = _local_curvature(a[i], t[i] - f[i], k, pieces, moments)
        elif support[i] == OFF_BOUND:
            precision[i], d_log_a[i] = _curvature(a[i], k, pieces)
    sites = factor_sites(K, precision, np.flatnonzero(precision > 0.0))
    log_evidence -= 0.5 * sites.log_det
    converged = mode.gap <= TOLERANCE and sites.factored
    return Outcome(a, precision, log_evidence, support, converged, mode.iterations, mode.gap, 0.0, sites), d_log_a


@separate(types.Tuple((OUTCOME, GRADIENTS)), STRUCTURE, VECTOR, PIECES, types.boolean, MATRIX)
def laplace_core(K: Structure, t: Array, pieces: Pieces, local: bool, start: Array) -> tuple[Outcome, Gradients]:
    """Return the approximation and its gradient, 0 if it has not converged."""
    n, n_parameters = t.shape[0], pieces.d_energy.shape[0]
    found, d_log_a = laplace_value(K, t, pieces, local, start)
    d_parameters, d_ends = np.zeros((n_parameters, pieces.knots.shape[0])), np.zeros((n, 2))
    if not found.converged:
        return mark_failed(found), Gradients(np.zeros(given_array(K).shape), np.zeros(n), d_parameters, d_ends)
    a, precision, support, points = found.dual_coef, found.site_precision, found.support, found.sites.points
    d_t = -a
    f = product(K, a)
    inverse, diagonal = site_inverse(K, found.sites)
    d_log_w = np.zeros(n)
    d_log_w[points] = -0.5 * (1.0 - diagonal / precision[points])  # -½(1 - B⁻¹_ii), B = I + W½KW½
    # The mode depends on the hyperparameters, and W on the mode.
    moving = d_log_w * d_log_a
    pull = _mode_adjoint(K, t - f, a, support, moving, pieces)
    d_t += pull
    pushed = product(K, pull)
    by_K = pull_back(K, points, inverse, a, pull)
    moments = np.empty((pieces.slope.shape[1], 3))
    for i in range(n):
        k = row_of(i, pieces)
        r = t[i] - f[i]
        if is_interval(k, pieces):
            by_site = precision[i], d_log_w[i], moving[i], pushed[i]
            by_row, by_ends = _interval_gradient(a[i], r, k, pieces, local, by_site)
            d_ends[i, 0], d_ends[i, 1] = by_ends[0], by_ends[1]
            for p in range(n_parameters):
                d_parameters[p, k] += by_row[p]
            continue
        j, u = locate(a[i], r, support[i], k, pieces)
        jump = _jump(j, k, pieces)
        if precision[i] > 0.0 and local:
            tilted_row(r, 0.0, a[i], row_at(k, pieces), moments)
        for p in range(n_parameters):
            c = pieces.d_energy[p, k, j]
            at_mode = c[0] + u * (c[1] + u * c[2])
            total = -at_mode - pieces.d_log_normalizer[p, k]
            if precision[i] > 0.0:
                if local:
                    total += d_log_w[i] * -2.0 * (at_mode - mean_d_energy(moments, pieces.d_energy[p, k]))
                else:
                    total += d_log_w[i] * _d_log_curvature(a[i], j, k, p, pieces)
            if support[i] == OFF_BOUND:
                total += pull[i] * (c[1] + 2.0 * c[2] * u) / jump
            else:
                knots = pieces.knots[k]
                total -= pushed[i] * d_slope(knots[max(j - 1, 0)], j, knots, pieces.d_energy[p, k])
            d_parameters[p, k] += total
    return found, Gradients(by_K, d_t, d_parameters, d_ends)


@compiled
def _jump(j: int, k: int, pieces: Pieces) -> float:
    """Return the rise of the slope over u = 0..1 of a curved piece or kink."""
    m = pieces.knots.shape[1]
    if j == 0 or j == m:
        return pieces.curvature[k, j]
    return pieces.slope[k, j + 1] - pieces.slope[k, j]


@compiled
def _kink(j: int, k: int, pieces: Pieces) -> tuple[int, int]:
    """Return first and last piece of the run of zero-width pieces around piece j."""
    first, last = j, j
    while first > 1 and pieces.knots[k, first - 2] == pieces.knots[k, first - 1]:
        first -= 1
    while last + 1 < pieces.knots.shape[1] and pieces.knots[k, last + 1] == pieces.knots[k, last]:
        last += 1
    return first, last


@compiled
def _curvature(a: float, k: int, pieces: Pieces) -> tuple[float, float]:
    """Return W of the piece whose slope is a, and d(log W)/da: the curvature, or Sollich 2002, (31), at a kink."""
    j, _ = locate(a, 0.0, OFF_BOUND, k, pieces)
    if pieces.curvature[k, j] > 0.0:
        return pieces.curvature[k, j], 0.0
    first, last = _kink(j, k, pieces)
    low, high = a - pieces.slope[k, first], pieces.slope[k, last + 1] - a
    if low <= 0.0 or high <= 0.0:
        return 0.0, 0.0
    return 2.0 * pi * (low * high / (low + high)) ** 2, 2.0 / low - 2.0 / high


@compiled
def _local_curvature(a: float, r: float, k: int, pieces: Pieces, moments: Array) -> tuple[float, float]:
    """Return W = 2π/I² and d(log W)/da; at the mode E(r) - a·r, and therefore I, depends on a alone."""
    row = row_at(k, pieces)
    log_mass, offset, _, _ = tilted_row(r, 0.0, a, row, moments)
    if log_mass == inf:
        return 0.0, 0.0
    return 2.0 * pi * exp(-2.0 * (log_mass + energy(r, row)[0])), -2.0 * offset


@separate(types.UniTuple(types.float64, 2), types.float64, types.float64, types.int64, PIECES, types.boolean)
def _interval_curvature(a: float, s: float, k: int, pieces: Pieces, local: bool) -> tuple[float, float]:
    """Return W of an interval, and d(log W)/da.

    The energy S(s) is minus the log mass of the noise between s + low and s + high, s = t - f. In the local curvature,
    exchanging the integrals over the residual and over the noise gives, with a = S'(s),

        log I = log ∫ exp(a·ρ) dρ (from -high to -low) + log ∫ exp(a·(x - s) - E(x)) dx + S(s).
    """
    _, _, slope, curvature = row = row_at(k, pieces)
    low, high = pieces.ends[k, 0], pieces.ends[k, 1]
    moments = np.empty((pieces.slope.shape[1], 3))
    at_s, _, bend = site_energy(s, k, pieces)
    if not local:
        if bend <= 0.0:
            return 0.0, 0.0
        third = mass_gradients(s, low, high, row, pieces.d_energy[:, k].copy(), moments)[0]
        return bend, -third / (bend * bend)
    m = slope.shape[0] - 1
    edge = _EDGE * max(abs(slope[0]), abs(slope[m]))
    if (curvature[0] == 0.0 and a <= slope[0] + edge) or (curvature[m] == 0.0 and a >= slope[m] - edge):
        return 0.0, 0.0  # in a linear tail the integral diverges
    log_width, middle, _, _ = _exponential(a, low, high)
    log_noise, offset, _, _ = tilted_row(s, 0.0, a, row, moments)
    if log_width == inf or log_noise == inf:
        return 0.0, 0.0
    return 2.0 * pi * exp(-2.0 * (log_width + log_noise + at_s)), -2.0 * (middle + offset)


@separate(types.UniTuple(types.float64, 4), types.float64, types.float64, types.float64)
def _exponential(a: float, low: float, high: float) -> tuple[float, float, float, float]:
    """Return log of ∫ exp(a·ρ) dρ from -high to -low, and its derivatives by a, low and high; inf where it diverges."""
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
    else:
        log_shape = abs(y) + log1p(-exp(-2.0 * abs(y))) - log(2.0 * abs(y))
        langevin = 1.0 / tanh(y) - 1.0 / y
    by_low = -exp(y - log_shape) / width
    by_high = exp(-y - log_shape) / width
    return a * middle + log(width) + log_shape, middle + 0.5 * width * langevin, by_low, by_high


@compiled
def _d_log_curvature(a: float, j: int, k: int, p: int, pieces: Pieces) -> float:
    """Return the derivative of log W by parameter p at fixed a, for exact curvature."""
    knots, d_energy = pieces.knots[k], pieces.d_energy[p, k]
    if pieces.curvature[k, j] > 0.0:
        return d_curvature(j, knots, d_energy) / pieces.curvature[k, j]
    first, last = _kink(j, k, pieces)
    low, high = a - pieces.slope[k, first], pieces.slope[k, last + 1] - a
    d_low = -d_slope(knots[first - 1], first - 1, knots, d_energy)
    d_high = d_slope(knots[last], last + 1, knots, d_energy)
    return 2.0 * (d_low / low + d_high / high - (d_low + d_high) / (low + high))


@compiled
def _mode_adjoint(K: Structure, r: Array, a: Array, support: NDArray[np.int64], moving: Array, pieces: Pieces) -> Array:
    """Apply (K + compliance)⁻¹ to d(log evidence)/da on the off-bound points and curved intervals, 0 elsewhere."""
    n = a.shape[0]
    out, rate, floor = np.zeros(n), np.zeros(n), 1e-12 * np.mean(K.variance)
    if not np.any(moving != 0.0):
        return out
    for i in range(n):
        k = row_of(i, pieces)
        if is_interval(k, pieces):
            bend = site_energy(r[i], k, pieces)[2]
            rate[i] = bend if bend * K.variance[i] >= FLAT else 0.0
        elif support[i] == OFF_BOUND:
            j, _ = locate(a[i], 0.0, OFF_BOUND, k, pieces)
            rate[i] = 1.0 / max(width_of(j, pieces.knots[k]) / _jump(j, k, pieces), floor)
    block = np.flatnonzero(rate > 0.0)
    solution = moving[block]
    if block.shape[0] > 0 and solve_block(K, rate[block], solution, block):
        out[block] = solution
    return out


_BY_SITE = types.UniTuple(types.float64, 4)


@separate(types.UniTuple(VECTOR, 2), types.float64, types.float64, types.int64, PIECES, types.boolean, _BY_SITE)
def _interval_gradient(
    a: float, s: float, k: int, pieces: Pieces, local: bool, by_site: tuple[float, float, float, float]
) -> tuple[Array, Array]:
    """Return derivatives by the parameters (p,) and ends (2,) from one interval; `laplace_core` makes ``by_site``."""
    precision, d_log_w, moving, pushed = by_site
    row, low, high = row_at(k, pieces), pieces.ends[k, 0], pieces.ends[k, 1]
    moments = np.empty((pieces.slope.shape[1], 3))
    d_energy = pieces.d_energy[:, k].copy()
    _, by_ends, by_parameters = mass_gradients(s, low, high, row, d_energy, moments)
    sited = precision > 0.0
    by_width = np.zeros(2)
    if local and sited:
        _, _, by_width[0], by_width[1] = _exponential(a, low, high)
        tilted_row(s, 0.0, a, row, moments)
    # a = S' moves with a parameter by (I + S''K)⁻¹ dS', and W with a.
    by_slope = pushed - moving if local else pushed
    d_parameters, d_ends = np.empty(by_parameters.shape[0]), np.empty(2)
    for p in range(by_parameters.shape[0]):
        total = by_parameters[p, 0] - pieces.d_log_normalizer[p, k] + by_slope * by_parameters[p, 1]
        if sited and local:
            total += 2.0 * d_log_w * (mean_d_energy(moments, d_energy[p]) + by_parameters[p, 0])
        elif sited:
            total -= d_log_w * by_parameters[p, 2] / precision
        d_parameters[p] = total
    for q in range(2):
        d_ends[q] = by_ends[q, 0] + by_slope * by_ends[q, 1]
        if sited and local:
            d_ends[q] -= 2.0 * d_log_w * (by_width[q] - by_ends[q, 0])
        elif sited:
            d_ends[q] -= d_log_w * by_ends[q, 2] / precision
    return d_parameters, d_ends

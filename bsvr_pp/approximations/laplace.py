"""Laplace's approximation of the evidence around the mode, with its exact gradient.

    log p(y) ≈ -Σ E_i(r_i) - ½ aᵀK·a - Σ log Z_i - ½ log|I + W½ K W½|

(Chu, Keerthi & Ong 2004, (36)-(37)). Curvature "exact" takes W_i = d²E_i/df² at the mode, which is zero but for
off-bound support vectors; at a kink, where that derivative does not exist, the prior's tilt ∓a_i is integrated over
the kink (Sollich 2002, (31); Gao et al. 2002). It is sparse, and jumps when a point crosses a knot. Curvature
"local" integrates the whole site along that tilt, W = 2π/I², I = ∫ exp(a·(ρ - r) - E(ρ) + E(r)) dρ: dense and
continuous in all hyperparameters.
"""

from __future__ import annotations

from math import exp, pi
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.approximations.checks import checked_problem
from bsvr_pp.approximations.mode import OFF_BOUND, ON_BOUND, TOLERANCE, locate, mode_core
from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.approximations.products import Covariance, product, solve_block, split
from bsvr_pp.approximations.sites import Sites, factor_sites, site_inverse
from bsvr_pp.compiler import compiled
from bsvr_pp.pieces import Pieces, energy_on, mean_d_energy, piece_index, tilted_row

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["Gradient", "laplace", "laplace_core", "laplace_gradient"]

Array = NDArray[np.float64]
Curvature = Literal["exact", "local"]


class Gradient(NamedTuple):
    """Gradient of a log evidence.

    Attributes
    ----------
    K : (n, n) array
        By the prior covariance: the change for a symmetric dK is the sum of K∘dK.
    mean : (n,) array
        By the prior mean; by the targets it is the negative.
    parameters : dict
        By each parameter of the loss, of the parameter's shape.
    """

    K: Array
    mean: Array
    parameters: dict[str, float | Array]


def laplace(
    K: ArrayLike,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    curvature: Curvature = "exact",
    jitter: float = 0.0,
) -> LatentPosterior:
    """Laplace's approximation of the posterior and evidence of the latent function.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance.
    y : (n,) array
        Targets.
    noise : NoiseModel
        Any loss of `bsvr_pp.losses`.
    mean : (n,) array, optional
        Prior mean at the inputs.
    curvature : {"exact", "local"}
        "exact" as Chu, Keerthi & Ong 2004, (36)-(37), sparse and with jumps in the hyperparameters; "local" the
        locally integrated curvature, dense and continuous.
    jitter : float
        The multiple of the identity that K contains; where it is known, smooth kernels on few inputs cost n·rank².

    Returns
    -------
    LatentPosterior

    Raises
    ------
    ValueError
        If an argument has the wrong shape or is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import laplace
    >>> from bsvr_pp.losses import gaussian
    >>> posterior = laplace(np.eye(1), [1.0], gaussian(C=1.0))
    >>> bool(np.isclose(posterior.log_evidence, -0.5 * np.log(4 * np.pi) - 0.25))
    True
    """
    local = _is_local(curvature)
    matrix, residual, offset, pieces = checked_problem(K, y, noise, mean)
    covariance = split(matrix, jitter)
    nowhere = np.zeros((2, residual.size))
    log_evidence, a, precision, support, gap, n_iter, converged = laplace_value(
        covariance, residual, pieces, local, nowhere
    )[:7]
    return from_sites(
        matrix,
        offset,
        a,
        precision,
        float(log_evidence),
        support,
        converged=converged,
        n_iter=n_iter,
        duality_gap=gap,
    )


def laplace_gradient(
    K: ArrayLike,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    curvature: Curvature = "exact",
    jitter: float = 0.0,
) -> tuple[float, Gradient]:
    """Log evidence of `laplace` and its gradient: Chu, Keerthi & Ong 2004, (38)-(40), for any kernel and loss.

    Parameters and errors are those of `laplace`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import laplace_gradient
    >>> from bsvr_pp.losses import gaussian
    >>> value, gradient = laplace_gradient(np.eye(1), [1.0], gaussian(C=1.0))
    >>> gradient.K.round(6).tolist(), gradient.mean.round(6).tolist()
    ([[-0.125]], [0.5])
    """
    local = _is_local(curvature)
    matrix, residual, _, pieces = checked_problem(K, y, noise, mean)
    covariance, nowhere = split(matrix.copy(), jitter), np.zeros((2, residual.size))
    value, d_K, d_residual, d_parameters = laplace_core(covariance, residual, pieces, local, nowhere)[:4]
    return value, Gradient(d_K, -d_residual, named_parameters(noise, d_parameters))


def named_parameters(noise: NoiseModel, d_parameters: Array) -> dict[str, float | Array]:
    """Rows of the (p, k) gradient by name, each of its parameter's shape."""
    return {
        name: float(row.sum()) if np.ndim(value) == 0 else row
        for (name, value), row in zip(noise.parameters.items(), d_parameters, strict=True)
    }


def _is_local(curvature: str) -> bool:
    if curvature not in ("exact", "local"):
        raise ValueError(f"curvature must be 'exact' or 'local', got {curvature!r}")
    return curvature == "local"


@compiled
def laplace_value(
    K: Covariance, t: Array, pieces: Pieces, local: bool, start: Array
) -> tuple[float, Array, Array, NDArray[np.int64], float, int, bool, Array, Sites]:
    """Value for t = y - mean; ``start`` (2, n) has the a to seek the mode from.

    Returns log evidence, a, W, support, gap, iterations, converged, d(log W)/da and the factored sites.
    """
    n = t.shape[0]
    a, support, objective, gap, n_iter = mode_core(K, t, pieces, start[0])
    if not gap <= TOLERANCE and np.any(start[0] != 0.0):
        a, support, objective, gap, n_iter = mode_core(K, t, pieces, np.zeros(n))
    f = product(K, a)
    precision, d_log_a = np.zeros(n), np.zeros(n)
    moments = np.empty((pieces.slope.shape[1], 3))
    log_evidence = -objective
    for i in range(n):
        k = i if pieces.knots.shape[0] > 1 else 0
        log_evidence -= pieces.log_normalizer[k]
        if support[i] == ON_BOUND or (not local and support[i] != OFF_BOUND):
            continue
        if local:
            precision[i], d_log_a[i] = _local_curvature(a[i], t[i] - f[i], k, pieces, moments)
        else:
            precision[i], d_log_a[i] = _curvature(a[i], k, pieces)
    sites = factor_sites(K, precision, np.flatnonzero(precision > 0.0))
    converged = gap <= TOLERANCE and sites.factored
    log_evidence -= 0.5 * sites.log_det
    return log_evidence, a, precision, support, gap, n_iter, converged, d_log_a, sites


@compiled
def laplace_core(
    K: Covariance, t: Array, pieces: Pieces, local: bool, start: Array
) -> tuple[float, Array, Array, Array, int, bool, Array]:
    """Value and gradient for t = y - mean, sought from a and W, the rows of ``start``, or from zeros.

    Returns log evidence, its derivatives by K (in place of ``K.matrix``), t and the (p, k) parameters, iterations,
    converged, and a and W.
    """
    n, n_parameters = t.shape[0], pieces.d_energy.shape[0]
    log_evidence, a, precision, support, _, n_iter, converged, d_log_a, sites = laplace_value(
        K, t, pieces, local, start
    )
    state = np.empty((2, n))
    state[0], state[1] = a, precision
    d_t = -a
    d_parameters = np.zeros((n_parameters, pieces.knots.shape[0]))
    if not converged:
        K.matrix[:] = 0.0
        return -np.inf, K.matrix, np.zeros(n), d_parameters, n_iter, False, state
    f = product(K, a)
    inverse = site_inverse(K, sites)
    d_log_w = np.zeros(n)
    for p in range(sites.points.shape[0]):  # -½(1 - B⁻¹_ii), B = I + W½KW½
        i = sites.points[p]
        d_log_w[i] = -0.5 * (1.0 - inverse[p, p] / precision[i])
    # The mode moves with the hyperparameters, and W with the mode.
    moving = d_log_w * d_log_a
    pull = _mode_adjoint(K, a, support, moving, pieces)
    d_t += pull
    pushed = product(K, pull)
    _by_covariance(K.matrix, a, pull, sites.points, inverse)
    moments = np.empty((pieces.slope.shape[1], 3))
    for i in range(n):
        k = i if pieces.knots.shape[0] > 1 else 0
        r = t[i] - f[i]
        j, u = locate(a[i], r, support[i], k, pieces)
        jump = _jump(j, k, pieces)
        if precision[i] > 0.0 and local:
            tilted_row(
                r,
                0.0,
                a[i],
                pieces.knots[k],
                pieces.value[k],
                pieces.slope[k],
                pieces.curvature[k],
                moments,
            )
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
                total -= pushed[i] * _d_slope(j, 0.0, k, p, pieces)
            d_parameters[p, k] += total
    return log_evidence, K.matrix, d_t, d_parameters, n_iter, True, state


@compiled
def _by_covariance(out: Array, a: Array, pull: Array, index: NDArray[np.int64], inverse: Array) -> None:
    """Derivative by K: ½aaᵀ - ½(pull·aᵀ + a·pullᵀ) - ½(K + W⁻¹)⁻¹ on the sites."""
    n = a.shape[0]
    for i in range(n):
        x, y = 0.5 * (a[i] - pull[i]), -0.5 * a[i]
        for j in range(n):
            out[i, j] = x * a[j] + y * pull[j]
    for p in range(index.shape[0]):
        for q in range(index.shape[0]):
            out[index[p], index[q]] -= 0.5 * inverse[p, q]


@compiled
def _jump(j: int, k: int, pieces: Pieces) -> float:
    """Rise of the slope over u = 0..1 of a curved piece or kink."""
    m = pieces.knots.shape[1]
    if j == 0 or j == m:
        return pieces.curvature[k, j]
    return pieces.slope[k, j + 1] - pieces.slope[k, j]


@compiled
def _kink(j: int, k: int, pieces: Pieces) -> tuple[int, int]:
    """First and last piece of the run of zero-width pieces around piece j."""
    first, last = j, j
    while first > 1 and pieces.knots[k, first - 2] == pieces.knots[k, first - 1]:
        first -= 1
    while last + 1 < pieces.knots.shape[1] and pieces.knots[k, last + 1] == pieces.knots[k, last]:
        last += 1
    return first, last


@compiled
def _curvature(a: float, k: int, pieces: Pieces) -> tuple[float, float]:
    """W of the piece whose slope is a, and d(log W)/da: the curvature, or Sollich 2002, (31), at a kink."""
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
    """W = 2π/I² and d(log W)/da; I depends on a alone, because E(r) - a·r does at the mode."""
    knots = pieces.knots[k]
    log_mass, offset, _, _ = tilted_row(
        r, 0.0, a, knots, pieces.value[k], pieces.slope[k], pieces.curvature[k], moments
    )
    if log_mass == np.inf:
        return 0.0, 0.0
    j = piece_index(r, knots)
    at_r = energy_on(r - knots[max(j - 1, 0)], j, knots, pieces.value[k], pieces.slope[k], pieces.curvature[k])
    return 2.0 * pi * exp(-2.0 * (log_mass + at_r)), -2.0 * offset


@compiled
def _d_slope(j: int, u: float, k: int, p: int, pieces: Pieces) -> float:
    """Derivative of the slope of piece j at u by parameter p."""
    c = pieces.d_energy[p, k, j]
    rise = c[1] + 2.0 * c[2] * u
    if j == 0 or j == pieces.knots.shape[1]:
        return rise
    width = pieces.knots[k, j] - pieces.knots[k, j - 1]
    return rise / width if width > 0.0 else 0.0


@compiled
def _d_log_curvature(a: float, j: int, k: int, p: int, pieces: Pieces) -> float:
    """Derivative of log W by parameter p at fixed a, for exact curvature."""
    m = pieces.knots.shape[1]
    curvature = pieces.curvature[k, j]
    if curvature > 0.0:
        width = pieces.knots[k, j] - pieces.knots[k, j - 1] if 0 < j < m else 1.0
        return 2.0 * pieces.d_energy[p, k, j, 2] / (width * width * curvature)
    first, last = _kink(j, k, pieces)
    low, high = a - pieces.slope[k, first], pieces.slope[k, last + 1] - a
    d_low = -_d_slope(first - 1, 1.0 if first > 1 else 0.0, k, p, pieces)
    d_high = _d_slope(last + 1, 0.0, k, p, pieces)
    return 2.0 * (d_low / low + d_high / high - (d_low + d_high) / (low + high))


@compiled
def _mode_adjoint(K: Covariance, a: Array, support: NDArray[np.int64], moving: Array, pieces: Pieces) -> Array:
    """(K + compliance)⁻¹ applied to d(log evidence)/da on the off-bound points, 0 elsewhere."""
    out = np.zeros(a.shape[0])
    if not np.any(moving != 0.0):
        return out
    block = np.flatnonzero(support == OFF_BOUND)
    m = block.shape[0]
    if m == 0:
        return out
    floor = 0.0
    for i in range(a.shape[0]):
        floor += 1e-12 * K.matrix[i, i] / a.shape[0]
    rate = np.empty(m)
    for p in range(m):
        i = block[p]
        k = i if pieces.knots.shape[0] > 1 else 0
        j, _ = locate(a[i], 0.0, OFF_BOUND, k, pieces)
        inner = 0 < j < pieces.knots.shape[1]
        width = pieces.knots[k, j] - pieces.knots[k, j - 1] if inner else 1.0
        rate[p] = 1.0 / max(width / _jump(j, k, pieces), floor)
    solution = moving[block]
    if solve_block(K, rate, solution, block):
        out[block] = solution
    return out

"""Mean field (TAP) for support vector noise, as expectation propagation with closed moments (Gao et al. 2002).

Site i has the precision τ_i and the dual coefficient a_i; its cavity has the variance v_i = 1/(1/Σ_ii - τ_i) and

    log Z = -½ log|I + √τK√τ| - ½ aᵀK·a + Σ [log Z_i + ½ log(1 + τ_i v_i) + ½ v_i a_i²]

is stationary in the sites: its gradient needs no derivative of the sites (docs/explanation/mean-field.md).

A new input may have a separate posterior on its k nearest rows (Gramacy & Apley 2015), at a cost of k³. The posteriors
of two inputs do not belong to one model, so there are no joint draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.approximations.laplace import laplace_value
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
    sites_of,
)
from bsvr_pp.core.arrays import Array, check_share, numbers
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate
from bsvr_pp.core.covariance.covariance import Covariance, check_covariance
from bsvr_pp.core.covariance.sites import (
    Sites,
    apply_inverse,
    factor_sites,
    marginals,
    pull_back,
    site_inverse,
    solve_by_root,
)
from bsvr_pp.core.covariance.structure import (
    STRUCTURE,
    Structure,
    add,
    cholesky,
    cholesky_solve,
    given_array,
    loses_digits,
    product,
    split,
    whole_root,
    without_root,
)
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.factors import row_of, take, tilted_moments
from bsvr_pp.core.losses.pieces import PIECES, Pieces

TARGET = 1e-8  # moment mismatch that ends the sweeps
TOLERANCE = 1e-6  # moment mismatch that counts as converged if rounding errors stop the sweeps earlier
_MAX_SWEEPS = 1000
_PATIENCE = 100  # number of sweeps without progress after which it stops,
_STALLED = 30  # and after which damping is at most 0.5, without acceleration: labels far on the wrong side oscillate
_DAMPING = 0.3  # smallest damping: 0.01 took up to twice the sweeps, and often did not converge with wrong labels
_MEMORY = 3  # number of differences of sweeps in Anderson acceleration
_NO_SITE = 1e-13  # precision of a site, relative to that of the prior, which changes nothing
_NEAR = 0.1  # mismatch below which the acceleration is used


@shared
@blockwise
def mean_field(
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    start: ArrayLike | None = None,
    mismatch: float = TARGET,
) -> LatentPosterior:
    """Compute the mean-field posterior and evidence of the latent function (Gao, Gunn & Harris 2002).

    Parameters
    ----------
    K, y, noise, mean
        As in `laplace`.
    start : (2, n) array, optional
        Dual coefficients and site precisions of a similar problem, without blocks, from which the sweeps start, to a
        mismatch of 1e-6. By default they start at the prior.
    mismatch : float
        Difference of moments, in standard deviations, that ends the sweeps.

    Returns
    -------
    LatentPosterior
        ``converged`` is true if the moments match within ``mismatch`` or 1e-6 standard deviations; its ``mismatch`` is
        the largest difference.

    Raises
    ------
    ValueError
        If an argument has the wrong shape or is not finite.

    <on_arrays>
    >>> posterior = mean_field(np.eye(2), [1.0, -1.0], soft_insensitive(C=2.0, epsilon=0.1, beta=0.3))
    >>> posterior.converged, posterior.mean.round(3).tolist()
    (True, [0.726, -0.726])
    """
    covariance, residual, offset, pieces = checked_problem(K, y, noise, mean)
    check_share("mismatch", mismatch)
    sites, rough = np.zeros((2, residual.size)), mismatch
    if start is not None:
        given = np.array(numbers("start", start, sites.shape))
        sites, rough = of_sites(covariance.structure, given), max(TOLERANCE, mismatch)
    found, _ = mean_field_value(covariance.structure, residual, pieces, sites, rough, mismatch)
    return from_outcome(covariance, offset, found)


def mean_field_gradient(
    K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None
) -> tuple[float, Gradient]:
    """Return the log evidence of `mean_field` and its gradient at the fixed point."""
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    return named_gradient(
        noise, *mean_field_core(covariance.structure, residual, pieces, np.zeros((2, residual.size)), TARGET)
    )


@separate(types.Tuple((OUTCOME, MATRIX)), STRUCTURE, VECTOR, PIECES, MATRIX, types.float64, types.float64)
def mean_field_value(
    K: Structure, t: Array, pieces: Pieces, start: Array, rough: float, target: float
) -> tuple[Outcome, Array]:
    """Find the `fixed_point` from ``start`` to a mismatch ``rough``, or else to the target from other starts.

    The other starts are the prior and Laplace's sites, also without the root, which fails for very narrow sites. A
    matrix whose products lose the digits that the noise leaves of f gets a root.
    """
    prior = np.zeros_like(start)
    if loses_digits(K, start[1], rough):
        K = whole_root(K)
    found = fixed_point(K, t, pieces, rough, start)
    ended = not found[0].converged and found[0].iterations < _PATIENCE  # by rounding errors, or a failed factorisation
    if ended and K.root.shape[1] == 0 and K.matrix.shape[0] > 0:
        K = whole_root(K)
        found = fixed_point(K, t, pieces, rough, start)
    if not found[0].converged and (rough > target or np.any(start != 0.0)):
        found = fixed_point(K, t, pieces, target, prior)
    if found[0].converged or pieces.labels[0] > 0.0:  # labels have no mode
        return found
    sites = of_sites(K, sites_of(laplace_value(K, t, pieces, True, prior)[0]))
    found = fixed_point(K, t, pieces, target, sites)
    if found[0].converged or K.root.shape[1] == 0 or K.matrix.shape[0] == 0:
        return found
    return fixed_point(without_root(K), t, pieces, target, sites)


@compiled
def of_sites(K: Structure, sites: Array) -> Array:
    """Return the sites (ν, τ), with ν = a + τ·K·a the precision times the location, of rows a and τ."""
    out = sites.copy()
    out[0] += sites[1] * product(K, sites[0])
    return out


@separate(types.Tuple((OUTCOME, MATRIX)), STRUCTURE, VECTOR, PIECES, types.float64, MATRIX)
def fixed_point(K: Structure, t: Array, pieces: Pieces, target: float, start: Array) -> tuple[Outcome, Array]:
    """Find the fixed point for t = y - mean from the sites (ν, τ) of ``start``, 0 for the prior; derivatives by all."""
    n = t.shape[0]
    a, now = np.zeros(n), np.concatenate((start[1], start[0]))
    tau, nu = now[:n], now[n:]
    damping, most, best, last, since = 1.0, 1.0, np.inf, np.inf, 0
    out_value, out_a, out_tau = -np.inf, a.copy(), tau.copy()
    out_parameters = np.zeros((pieces.d_energy.shape[0] + 2, n))
    past_sites, past_steps, n_past = np.empty((_MEMORY + 1, 2 * n)), np.empty((_MEMORY + 1, 2 * n)), 0
    sweep, latest = 0, False  # whether the sites factored last are the best
    sites = factor_sites(K, tau, _points(K, tau))
    workspace = np.empty(0)  # one for all sweeps
    while sweep < _MAX_SWEEPS and sites.factored:
        if workspace.size < sites.triangle.size:
            workspace = np.empty(sites.triangle.size)
        inverse = workspace[: sites.triangle.size].reshape(sites.triangle.shape)
        sweep += 1
        accuracy = max(target, min(1e-2 * last, 1e-4))
        mu = _refine(K, tau, nu, a, sites, 1 if accuracy > TARGET else 2)
        here = _moments(t, pieces, now, a, mu, marginals(K, sites, inverse, accuracy), sites.log_det)
        mismatch = here.mismatch
        if not here.finite:
            break
        since = 0 if mismatch < 0.9 * best else since + 1
        latest = mismatch < best
        if latest:
            best, out_value, out_parameters = mismatch, here.value, here.parameters
            out_a, out_tau = a.copy(), tau.copy()
        most = 0.5 if since >= _STALLED else most
        damping = min(most, 1.1 * damping if mismatch < last else max(0.7 * damping, _DAMPING))
        rounded = best <= TOLERANCE or loses_digits(K, tau, best)
        if best <= target or (rounded and since >= 8) or since >= _PATIENCE:
            break
        scale = np.concatenate((here.variance, np.sqrt(here.variance)))  # of τ and ν, so that all points count alike
        if mismatch > last:
            n_past = 0  # forget the past after a step that was worse
        last = mismatch
        if damping > 0.5 and mismatch < _NEAR:
            n_past = _accelerate(now, here.step, scale, past_sites, past_steps, n_past)
        else:
            now += damping * here.step
            n_past = 0
        sites, latest = factor_sites(K, tau, _points(K, tau)), False
    if not latest:
        sites = factor_sites(K, out_tau, _points(K, out_tau))
    converged = best <= max(target, TOLERANCE)
    nothing = np.empty(0, dtype=np.int64)
    return Outcome(out_a, out_tau, out_value, nothing, converged, sweep, 0.0, best, sites), out_parameters


@compiled
def _points(K: Structure, tau: Array) -> NDArray[np.int64]:
    """Return the points with a site; precisions that change no variance become 0, as in the linear tails of a loss."""
    for i in range(tau.shape[0]):
        if tau[i] * K.variance[i] < _NO_SITE:
            tau[i] = 0.0
    return np.flatnonzero(tau)


class _Moments(NamedTuple):
    """The evidence of a sweep, its mismatch of moments, and what follows from them."""

    value: float
    mismatch: float
    finite: bool
    variance: Array  # of the posterior
    step: Array  # (2n,), to the sites τ and ν with the moments of the factors
    parameters: Array  # derivatives of the evidence


@compiled
def _moments(
    t: Array, pieces: Pieces, now: Array, a: Array, mu: Array, variances: tuple[Array, Array], log_det: float
) -> _Moments:
    """Return moments at the sites τ and ν (2n,) and a, with μ = K·a, from posterior and cavity variances."""
    tau, nu = now[: t.shape[0]], now[t.shape[0] :]
    least = 1e-20 * max(np.max(t * t), 1e-200)  # variance used for 0, such as a linear kernel at 0
    variance, cavity_variance = np.maximum(variances[0], least), np.maximum(variances[1], least)
    cavity_mean = mu - cavity_variance * a
    log_z, score, _, tilted, d_parameters = tilted_moments(t - cavity_mean, cavity_variance, pieces)
    matched, precision = cavity_mean + cavity_variance * score, np.maximum(1.0 / tilted - 1.0 / cavity_variance, 0.0)
    step = np.concatenate((precision - tau, score + precision * matched - nu))
    # The second is the change of tilted / variance where this is > 0.
    mismatch = max(np.max(np.abs(matched - mu) / np.sqrt(variance)), np.max(np.abs(precision - tau) * variance))
    value = np.sum(log_z + 0.5 * np.log1p(cavity_variance * tau) + 0.5 * cavity_variance * a * a)
    value -= 0.5 * np.dot(a, mu) + 0.5 * log_det
    finite = bool(np.isfinite(value + np.sum(score) + np.sum(tilted)))
    return _Moments(value, mismatch, finite, variance, step, d_parameters)


@separate(types.int64, VECTOR, VECTOR, VECTOR, MATRIX, MATRIX, types.int64)
def _accelerate(now: Array, step: Array, scale: Array, past_sites: Array, past_steps: Array, n_past: int) -> int:
    """Accelerate the sites τ and ν in place (Anderson 1965), by least squares; return how many sweeps it remembers."""
    m = min(n_past, _MEMORY)
    for p in range(m if n_past > m else 0):
        for i in range(now.size):
            past_sites[p, i], past_steps[p, i] = past_sites[p + 1, i], past_steps[p + 1, i]
    for i in range(now.size):
        past_sites[m, i], past_steps[m, i] = now[i], step[i]
    new = now + step
    if m > 0:
        changes = (past_steps[1 : m + 1] - past_steps[:m]) * scale
        normal, right = np.dot(changes, changes.T), np.dot(changes, step * scale)
        size = np.max(np.diag(normal))
        for p in range(m):
            normal[p, p] += 1e-14 * size
        weights = right.reshape(1, m)
        if size > 0.0 and cholesky(normal) == 0:
            cholesky_solve(normal, weights)
            for p in range(m):
                new -= weights[0, p] * (past_sites[p + 1] - past_sites[p] + past_steps[p + 1] - past_steps[p])
    for i in range(now.size):
        now[i] = max(new[i], 0.0) if 2 * i < now.size else new[i]  # the first half is τ
    return m + 1


@separate(types.Tuple((OUTCOME, GRADIENTS)), STRUCTURE, VECTOR, PIECES, MATRIX, types.float64)
def mean_field_core(K: Structure, t: Array, pieces: Pieces, start: Array, target: float) -> tuple[Outcome, Gradients]:
    """Find the fixed point from the sites (ν, τ) of ``start`` (zeros are the prior), and its gradient."""
    n = t.shape[0]
    found, by_point = mean_field_value(K, t, pieces, start, target, min(target, TARGET))
    p = pieces.d_energy.shape[0]
    d_parameters = np.zeros((p, pieces.knots.shape[0]))
    if not found.converged:
        nothing = np.zeros(given_array(K).shape), np.zeros(n), d_parameters, np.zeros((n, 2))
        return mark_failed(found), Gradients(*nothing)
    for q in range(p):
        for i in range(n):
            d_parameters[q, row_of(i, pieces)] += by_point[q, i]
    by_K = pull_back(K, found.sites.points, site_inverse(K, found.sites)[0], found.dual_coef, np.zeros(n))
    return found, Gradients(by_K, -found.dual_coef, d_parameters, np.ascontiguousarray(by_point[p:].T))


@compiled
def _refine(K: Structure, tau: Array, nu: Array, a: Array, sites: Sites, steps: int) -> Array:
    """Solve a + τ·K·a = ν in place from the last a, by steps of refinement; returns K·a. A root needs neither.

    The correction (I - R·K)·missing is R·missing/τ, without cancellation for sites that are narrow relative to the
    prior. Without a site a = ν.
    """
    if K.root.shape[1] > 0 and sites.points.size > 0:
        return solve_by_root(K, sites, tau, nu, a)
    mu = product(K, a)
    narrow, wide = np.zeros_like(a), np.zeros_like(a)
    for _ in range(steps):
        for i in range(a.shape[0]):
            missing = nu[i] - tau[i] * mu[i] - a[i]
            if tau[i] * K.variance[i] > 1.0:
                narrow[i] = missing / tau[i]
            else:
                wide[i] = missing
        change = wide.copy()
        change[sites.points] += apply_inverse(K, sites, (narrow - product(K, wide))[sites.points])
        add(a, 1.0, change, sites.points, K.constant)
        mu = product(K, a)
    return mu


_STACK = types.Array(types.float64, 3, "C")
MISMATCH = 1e-3  # moment mismatch that ends the sweeps of predictions
_TOLERANCE = 1e-2  # moment mismatch that counts as converged if rounding errors stop the sweeps earlier


class NearestMoments(NamedTuple):
    """Moments (m,) of f at new inputs."""

    mean: Array
    variance: Array
    converged: NDArray[np.bool_]


def nearest_moments(
    K: ArrayLike,
    mean: ArrayLike,
    y: Array,
    noise: NoiseModel,
    *,
    jitter: float = 0.0,
    start: Array | None = None,
    mismatch: float = MISMATCH,
) -> NearestMoments:
    """Compute moments of f at m new inputs by mean field, each given its own k rows, which follow it in the prior.

    K is (m, 1 + k, 1 + k) without the jitter, ``mean`` (m, 1 + k), y (m, k); parameters of the noise that differ
    between rows are (m·k,) arrays. The sweeps start at the sites ``start`` (m, 2, k) of `of_sites`, by default at the
    prior, and end at a moment ``mismatch``.
    """
    m, k = y.shape
    prior, offset = numbers("K", K, (m, 1 + k, 1 + k)), numbers("mean", mean, (m, 1 + k))
    covariance = prior[:, 1:, 1:] + jitter * np.eye(k)
    for each in covariance:
        check_covariance(each)
    residual = noise.reference(y.ravel()).reshape(m, k) - offset[:, 1:]
    cross, diagonal = prior[:, 0, 1:].copy(), prior[:, 0, 0].copy()
    begin = np.zeros((m, 2, k)) if start is None else start
    given = covariance, float(jitter), residual, noise.sites(y.ravel()), cross, diagonal, begin, mismatch
    found, variance, converged = _each(*given)
    return NearestMoments(offset[:, 0] + found, np.maximum(variance, 0.0), converged > 0)


@separate(types.UniTuple(VECTOR, 3), _STACK, types.float64, MATRIX, PIECES, MATRIX, VECTOR, _STACK, types.float64)
def _each(
    K: Array, jitter: float, t: Array, pieces: Pieces, cross: Array, diagonal: Array, start: Array, mismatch: float
) -> tuple[Array, Array, Array]:
    """Return the mean minus prior mean, variance, and 1 if the solve converged, of each new input."""
    m, k = t.shape
    mean, variance, converged, each = np.empty(m), np.empty(m), np.zeros(m), np.ones(k)
    for i in range(m):
        structure, table = split(K[i], jitter), pieces
        if pieces.knots.shape[0] > 1:
            table = take(pieces, i * k, pieces.ends[i * k : (i + 1) * k], each)
        found, _ = mean_field_value(structure, t[i], table, start[i], mismatch, TARGET)
        mean[i] = np.dot(cross[i], found.dual_coef)
        sites, at_sites = found.sites, cross[i][found.sites.points]
        if sites.half.shape[1] > structure.root.shape[1] + 1:  # (K + τ⁻¹)⁻¹ by the root of the sweeps cancels digits
            dense = factor_sites(structure, found.site_precision, sites.points)
            if dense.factored:
                sites = dense
            else:
                structure = whole_root(structure)
        variance[i] = diagonal[i] - np.dot(at_sites, apply_inverse(structure, sites, at_sites))
        converged[i] = 1.0 if found.mismatch <= _TOLERANCE else 0.0
    return mean, variance, converged

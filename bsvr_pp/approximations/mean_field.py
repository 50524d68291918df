"""Mean field (TAP) for support vector noise, as expectation propagation with closed moments.

The mean-field equations of Gao, Gunn & Harris 2002 are the fixed point of expectation propagation with one
Gaussian site a data point: the posterior with site i replaced by the exact site has the mean and variance of the
posterior itself. A site is kept as its precision τ_i and the dual coefficient a_i (so that the mean is m + K·a);
then the cavity of point i has variance v = 1/(1/Σ_ii - τ_i) and mean μ_i - v·a_i, no digits are lost where a site
hardly matters, and the evidence is

    log Z = -½ log|I + √τK√τ| - ½ aᵀK·a + Σ [log Z_i + ½ log(1 + τ_i v_i) + ½ v_i a_i²].

It is smooth in all hyperparameters, and stationary in the sites, so that its gradient is explicit.

Sweeps update all sites at once, from the mode with locally integrated curvature; damping adapts, and near the fixed
point Anderson's acceleration combines the last sweeps. The sites are log-concave, so that precisions stay >= 0 and
cavities proper.
"""

from __future__ import annotations

from math import log1p, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.approximations.checks import checked_problem
from bsvr_pp.approximations.lapack import cholesky, cholesky_solve
from bsvr_pp.approximations.laplace import Gradient, laplace_value, named_parameters
from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.approximations.products import Covariance, add, product, split
from bsvr_pp.approximations.sites import Sites, apply_inverse, factor_sites, marginals, site_inverse
from bsvr_pp.compiler import compiled
from bsvr_pp.pieces import Pieces, tilted_moments

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["mean_field", "mean_field_core", "mean_field_gradient", "mean_field_trace"]

Array = NDArray[np.float64]

_TARGET = 1e-8  # moment mismatch that ends the sweeps
TOLERANCE = 1e-6  # moment mismatch that counts as converged where rounding stops them earlier
_MAX_SWEEPS = 1000
_PATIENCE = 100  # sweeps without progress after which it gives up
_MEMORY = 3  # differences of sweeps that Anderson's acceleration combines
_NEAR = 0.1  # mismatch below which it is used
_TRACED = 200  # sweeps of a trace


def mean_field(
    K: ArrayLike, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None, jitter: float = 0.0
) -> LatentPosterior:
    """Mean-field posterior and evidence of the latent function (Gao, Gunn & Harris 2002).

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
    jitter : float
        The multiple of the identity that K contains; where it is known, smooth kernels on few inputs cost n·rank².

    Returns
    -------
    LatentPosterior
        ``converged`` says whether the moments match within 1e-6 standard deviations; ``mismatch`` how well (1e-8
        and better, but where rounding does not allow it).

    Raises
    ------
    ValueError
        If an argument has the wrong shape or is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import mean_field
    >>> from bsvr_pp.losses import soft_insensitive
    >>> posterior = mean_field(np.eye(2), [1.0, -1.0], soft_insensitive(C=2.0, epsilon=0.1, beta=0.3))
    >>> posterior.converged, posterior.mean.round(3).tolist()
    (True, [0.726, -0.726])
    """
    covariance, residual, offset, pieces = checked_problem(K, y, noise, mean)
    log_evidence, a, precision, _, n_iter, mismatch, support, gap = mean_field_value(
        split(covariance, jitter), residual, pieces, _MAX_SWEEPS
    )
    return from_sites(
        covariance,
        offset,
        a,
        precision,
        float(log_evidence),
        support,
        converged=mismatch <= TOLERANCE,
        n_iter=n_iter,
        duality_gap=gap,
        mismatch=mismatch,
    )


def mean_field_gradient(
    K: ArrayLike, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None, jitter: float = 0.0
) -> tuple[float, Gradient]:
    """Log evidence of `mean_field` and its gradient, explicit at the fixed point.

    Parameters and errors are those of `mean_field`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import mean_field_gradient
    >>> from bsvr_pp.losses import gaussian
    >>> value, gradient = mean_field_gradient(np.eye(1), [1.0], gaussian(C=1.0))
    >>> gradient.K.round(6).tolist(), gradient.mean.round(6).tolist()
    ([[-0.125]], [0.5])
    """
    matrix, residual, _, pieces = checked_problem(K, y, noise, mean)
    covariance, nowhere = split(matrix, jitter), np.zeros((2, residual.size))
    value, d_K, d_residual, d_parameters = mean_field_core(covariance, residual, pieces, nowhere)[:4]
    return value, Gradient(d_K, -d_residual, named_parameters(noise, d_parameters))


def mean_field_trace(
    K: ArrayLike, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None, jitter: float = 0.0
) -> tuple[Array, Array]:
    """How `mean_field` converges: what it would return after one sweep, after two, and so on.

    Parameters and errors are those of `mean_field`.

    Returns
    -------
    mismatch, log_evidence : (sweeps,) arrays
        Largest mismatch of moments, in posterior standard deviations, and the evidence, of the best sweep so far; of
        the first 200 sweeps at most.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import mean_field_trace
    >>> from bsvr_pp.losses import soft_insensitive
    >>> mismatch, _ = mean_field_trace(np.eye(2), [1.0, -1.0], soft_insensitive(C=2.0, epsilon=0.1, beta=0.3))
    >>> bool(mismatch[0] > 1e-2 > 1e-8 >= mismatch[-1])
    True
    """
    matrix, residual, _, pieces = checked_problem(K, y, noise, mean)
    covariance = split(matrix, jitter)
    # Sweeps are few: to begin anew for each costs less than to keep a history in the compiled loop.
    n_iter = mean_field_value(covariance, residual, pieces, _MAX_SWEEPS)[4]
    ends = [mean_field_value(covariance, residual, pieces, sweeps) for sweeps in range(1, min(n_iter, _TRACED) + 1)]
    return np.array([end[5] for end in ends]), np.array([end[0] for end in ends])


@compiled
def mean_field_value(
    K: Covariance, t: Array, pieces: Pieces, max_sweeps: int
) -> tuple[float, Array, Array, Array, int, float, NDArray[np.int64], float]:
    """`_fixed_point`, by dense algebra where the root of K has lost the digits that very narrow sites need."""
    nowhere = np.zeros((2, t.shape[0]))
    found = _fixed_point(K, t, pieces, max_sweeps, nowhere)
    if found[5] <= TOLERANCE or K.root.shape[1] == 0 or max_sweeps < _MAX_SWEEPS:
        return found
    dense = Covariance(K.matrix, K.matrix - K.level, K.level, np.empty((t.shape[0], 0)), K.jitter)
    return _fixed_point(dense, t, pieces, max_sweeps, nowhere)


@compiled
def _fixed_point(
    K: Covariance, t: Array, pieces: Pieces, max_sweeps: int, start: Array
) -> tuple[float, Array, Array, Array, int, float, NDArray[np.int64], float]:
    """Fixed point for t = y - mean, from a and τ, the rows of ``start``, or from Laplace's where these are zero.

    Returns log evidence, a, τ, (p, n) derivatives by the parameters, sweeps, mismatch, and of the mode support and gap
    (unknown where the start was given).
    """
    n = t.shape[0]
    a, tau, support, gap = start[0].copy(), start[1].copy(), np.empty(0, dtype=np.int64), np.nan
    if not np.any(start != 0.0):
        _, a, tau, support, gap, _, _, _, _ = laplace_value(K, t, pieces, True, start)
    nu = a + tau * product(K, a)
    everywhere = np.arange(n)
    damping, best, last, since = 1.0, np.inf, np.inf, 0
    least = 1e-20 * max(np.max(t * t), 1e-200)  # variance that stands for none, as of a linear kernel at 0
    out_value, out_a, out_tau = -np.inf, a.copy(), tau.copy()
    out_parameters = np.zeros((pieces.d_energy.shape[0], n))
    step = np.empty(2 * n)
    past_sites, past_steps, n_past = np.empty((_MEMORY + 1, 2 * n)), np.empty((_MEMORY + 1, 2 * n)), 0
    sweep = 0
    while sweep < max_sweeps:
        sweep += 1
        sites = factor_sites(K, tau, everywhere)
        if not sites.factored:
            break
        mu = _refine(K, tau, nu, a, sites)
        variance, cavity_variance = marginals(K, tau, sites)
        variance, cavity_variance = np.maximum(variance, least), np.maximum(cavity_variance, least)
        cavity_mean = mu - cavity_variance * a
        log_z, score, _, tilted, d_parameters = tilted_moments(t - cavity_mean, cavity_variance, pieces)
        mismatch, value = 0.0, -0.5 * np.dot(a, mu) - 0.5 * sites.log_det
        for i in range(n):
            v = cavity_variance[i]
            matched = cavity_mean[i] + v * score[i]
            mismatch = max(
                mismatch,
                abs(matched - mu[i]) / sqrt(variance[i]),
                abs(tilted[i] / variance[i] - 1.0),
            )
            value += log_z[i] + 0.5 * log1p(v * tau[i]) + 0.5 * v * a[i] * a[i]
        if not np.isfinite(value + np.sum(score) + np.sum(tilted)):  # max() passes over NaN
            break
        if mismatch < best:
            since = 0 if mismatch < 0.9 * best else since + 1
            best, out_value, out_parameters = mismatch, value, d_parameters
            out_a[:] = a
            out_tau[:] = tau
        else:
            since += 1
        damping = min(1.0, 1.1 * damping) if mismatch < last else max(0.7 * damping, 0.01)
        if best <= _TARGET or (best <= TOLERANCE and since >= 8) or since >= _PATIENCE:
            break
        scale = np.concatenate((variance, np.sqrt(variance)))  # of τ and ν, so that all points count alike
        for i in range(n):
            precision = max(1.0 / tilted[i] - 1.0 / cavity_variance[i], 0.0)
            step[i] = precision - tau[i]
            step[n + i] = score[i] + precision * (cavity_mean[i] + cavity_variance[i] * score[i]) - nu[i]
        if mismatch > last:
            n_past = 0  # what a step has made worse is no guide
        last = mismatch
        if damping > 0.5 and mismatch < _NEAR:
            n_past = _accelerate(tau, nu, step, scale, past_sites, past_steps, n_past)
        else:
            tau += damping * step[:n]
            nu += damping * step[n:]
            n_past = 0
    return out_value, out_a, out_tau, out_parameters, sweep, best, support, gap


@compiled
def _accelerate(
    tau: Array, nu: Array, step: Array, scale: Array, past_sites: Array, past_steps: Array, n_past: int
) -> int:
    """One step of Anderson's acceleration (1965) on the sites, in place; returns how many sweeps it remembers.

    The combination of the last sweeps whose steps cancel best, in least squares, takes the place of the last one.
    """
    n = tau.shape[0]
    if n_past == _MEMORY + 1:
        past_sites[:-1] = past_sites[1:].copy()
        past_steps[:-1] = past_steps[1:].copy()
        n_past -= 1
    past_sites[n_past, :n] = tau
    past_sites[n_past, n:] = nu
    past_steps[n_past] = step
    m = n_past
    new = past_sites[m] + step
    if m > 0:
        changes = (past_steps[1 : m + 1] - past_steps[:m]) * scale
        normal, right = np.dot(changes, changes.T), np.dot(changes, step * scale)
        size = 0.0
        for p in range(m):
            size = max(size, normal[p, p])
        for p in range(m):
            normal[p, p] += 1e-14 * size
        weights = right.reshape(1, m)
        if size > 0.0 and cholesky(normal) == 0:
            cholesky_solve(normal, weights)
            for p in range(m):
                new -= weights[0, p] * (past_sites[p + 1] - past_sites[p] + past_steps[p + 1] - past_steps[p])
    for i in range(n):
        tau[i] = max(new[i], 0.0)
        nu[i] = new[n + i]
    return n_past + 1


@compiled
def mean_field_core(
    K: Covariance, t: Array, pieces: Pieces, start: Array
) -> tuple[float, Array, Array, Array, int, bool, Array]:
    """Value and gradient for t = y - mean, sought from a and τ, the rows of ``start``, or from Laplace's (zeros).

    Returns log evidence, its derivatives by K, t and the (p, k) parameters, sweeps, converged, and a and τ.
    """
    n, k = t.shape[0], pieces.knots.shape[0]
    begun = np.any(start != 0.0)
    if begun:
        found = _fixed_point(K, t, pieces, _MAX_SWEEPS, start)
    if not begun or not found[5] <= TOLERANCE:
        found = mean_field_value(K, t, pieces, _MAX_SWEEPS)
    value, a, tau, by_point, sweeps, mismatch, _, _ = found
    state = np.empty((2, n))
    state[0], state[1] = a, tau
    d_parameters = np.zeros((pieces.d_energy.shape[0], k))
    if not mismatch <= TOLERANCE:
        return -np.inf, np.zeros((n, n)), np.zeros(n), d_parameters, sweeps, False, state
    for i in range(n):
        d_parameters[:, i if k > 1 else 0] += by_point[:, i]
    d_K = site_inverse(K, factor_sites(K, tau, np.arange(n)))
    for i in range(n):
        for j in range(n):
            d_K[i, j] = 0.5 * (a[i] * a[j] - d_K[i, j])
    return value, d_K, -a, d_parameters, sweeps, True, state


@compiled
def _refine(K: Covariance, tau: Array, nu: Array, a: Array, sites: Sites) -> Array:
    """Solve a + τ·K·a = ν in place from the last a, by two steps of refinement; returns K·a."""
    mu = product(K, a)
    for _ in range(2):
        missing = nu - tau * mu - a
        add(a, 1.0, missing - apply_inverse(K, sites, product(K, missing)), sites.points, K.level)
        mu = product(K, a)
    return mu

"""Mean field in JAX: the sweeps of `bsvr_pp.approximations.mean_field`, for one problem or many.

The equations, the damping and the acceleration are the same, so that both find the same fixed point. Here the sweeps
begin without sites and, where that fails, with those of Gaussian noise of the same variance; K is dense, and there is
no branch for each point: problems of one size are solved together by `jax.vmap`, and smaller ones are padded by rows
whose sites stay at zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from bsvr_pp.approximations.mean_field import TARGET, TOLERANCE
from bsvr_pp.jax.moments import noise_precision, table, tilted_moments

_MAX_SWEEPS = 1000
_OF_A_BATCH = 25  # largest number of sweeps of a batch, which waits for its slowest problem
_PATIENCE = 100  # number of sweeps without progress after which it stops
_MEMORY = 3  # number of differences of sweeps in Anderson acceleration
_NEAR = 0.1  # mismatch below which the acceleration is used
_LARGE = 10.0  # least constant in K, over the spread of its entries, that is kept apart


class Found(NamedTuple):
    """A mean-field posterior and the gradient of its evidence; where it did not converge -inf and zeros.

    ``shift`` is K·dual_coef, ``mismatch`` the largest difference of moments in posterior standard deviations,
    ``iterations`` the number of sweeps from the start that converged; ``by_parameters`` (p, n) is as if each point had
    parameters of its own.
    """

    value: Array
    dual_coef: Array
    site_precision: Array
    shift: Array
    variance: Array
    cavity_variance: Array
    by_K: Array
    by_parameters: Array
    iterations: Array
    mismatch: Array
    converged: Array

    @property
    def by_residual(self) -> Array:
        """Derivative by t = y - prior mean, (..., n)."""
        return jnp.where(self.converged[..., None], -self.dual_coef, 0.0)

    @property
    def sites(self) -> Array:
        """Dual coefficients and site precisions, (..., 2, n)."""
        return jnp.stack([self.dual_coef, self.site_precision], axis=-2)


class _State(NamedTuple):
    """Sites τ and ν, the best solution so far, and what damping and acceleration remember."""

    attempt: Array
    tau: Array
    nu: Array
    a: Array
    damping: Array
    last: Array
    since: Array
    sweep: Array
    ended: Array
    best: Found
    past_sites: Array
    past_steps: Array
    n_past: Array


@partial(jax.jit, static_argnames=("loss", "target", "max_iterations", "attempts"))
def solve(
    loss: str,
    K: Array,
    t: Array,
    y: Array,
    parameters: Array,
    used: Array,
    start: Array,
    *,
    target: float = TARGET,
    max_iterations: int = _MAX_SWEEPS,
    attempts: int = 2,
) -> Found:
    """Solve one problem.

    ``t`` (n,) are the targets minus the prior mean. ``parameters`` (p, 1 or n) are those of the loss, and after them
    the sample weights, if there are any. ``used`` (n,) are the rows that are data; K of others may be that of any row.
    ``start`` (2, n) are the dual coefficients and site precisions from which the sweeps begin; they end at the mismatch
    ``target``. Of the ``attempts`` the second begins with the sites of Gaussian noise.
    """
    pieces = table(loss, parameters, y)
    n, p = t.shape[0], pieces.d_energy.shape[0]
    times = _product(K)
    nothing = jnp.zeros((0, 0))  # instead of the derivative by K, until the end
    least = 1e-20 * jnp.maximum(jnp.max(jnp.where(used, t * t, 0.0)), 1e-200)

    def sweep(s: _State) -> _State:
        sites = factor_sites(K, s.tau, least)
        a, mu = s.a, times(s.a)
        for _ in range(2):
            missing = s.nu - s.tau * mu - a
            a = a + missing - sites.apply_inverse(times(missing))
            mu = times(a)
        variance, v = sites.variance, sites.cavity_variance
        cavity_mean = mu - v * a
        log_z, score, tilted, by = tilted_moments(t - cavity_mean, v, pieces)
        terms = log_z + 0.5 * jnp.log1p(v * s.tau) + 0.5 * v * a * a
        value = jnp.where(used, terms, 0.0).sum() - 0.5 * (a @ mu + sites.log_det)
        by_mean = jnp.abs(cavity_mean + v * score - mu) / jnp.sqrt(variance)
        mismatch = jnp.where(used, jnp.maximum(by_mean, jnp.abs(tilted / variance - 1.0)), 0.0).max()
        finite = jnp.isfinite(value + jnp.where(used, score + tilted, 0.0).sum() + mismatch)
        mismatch = jnp.where(finite, mismatch, jnp.inf)

        here = Found(value, a, s.tau, mu, variance, v, nothing, by, s.sweep, mismatch, finite)
        best = jax.tree.map(partial(jnp.where, mismatch < s.best.mismatch), here, s.best)
        since = jnp.where(mismatch < 0.9 * s.best.mismatch, 0, s.since + 1)
        ended = ~finite | (best.mismatch <= target) | (since >= _PATIENCE)
        ended = ended | ((best.mismatch <= TOLERANCE) & (since >= 8))
        damping = jnp.where(mismatch < s.last, jnp.minimum(1.0, 1.1 * s.damping), jnp.maximum(0.7 * s.damping, 0.01))
        precision = jnp.where(used, jnp.maximum(1.0 / tilted - 1.0 / v, 0.0), 0.0)
        nu = jnp.where(used, score + precision * (cavity_mean + v * score), 0.0)
        move = jnp.concatenate([precision - s.tau, nu - s.nu])
        n_past = jnp.where(mismatch > s.last, 0, s.n_past)  # what a step has made worse is no guide
        sites = jnp.concatenate([s.tau, s.nu])
        scale = jnp.where(jnp.tile(used, 2), jnp.concatenate([variance, jnp.sqrt(variance)]), 0.0)
        past_sites = jnp.concatenate([s.past_sites[1:], sites[None]])
        past_steps = jnp.concatenate([s.past_steps[1:], move[None]])
        quick = (damping > 0.5) & (mismatch < _NEAR)
        new = jnp.where(quick, _accelerated(past_sites, past_steps, scale, n_past), sites + damping * move)
        return _State(
            attempt=s.attempt,
            tau=jnp.maximum(new[:n], 0.0),
            nu=new[n:],
            a=a,
            damping=damping,
            last=mismatch,
            since=since,
            sweep=s.sweep + 1,
            ended=ended,
            best=best,
            past_sites=past_sites,
            past_steps=past_steps,
            n_past=jnp.where(quick, jnp.minimum(n_past + 1, _MEMORY), 0),
        )

    def begin(tau: Array, nu: Array, a: Array, attempt: int) -> _State:
        infinite, no = jnp.asarray(jnp.inf), jnp.asarray(False)
        none, zero, memory = jnp.asarray(0), jnp.zeros(n), jnp.zeros((_MEMORY + 1, 2 * n))
        found = Found(-infinite, zero, zero, zero, zero, zero, nothing, jnp.zeros((p, n)), none, infinite, no)
        one = jnp.asarray(1.0)
        return _State(jnp.asarray(attempt), tau, nu, a, one, infinite, none, none, no, found, memory, memory, none)

    of_noise = jnp.where(used, noise_precision(pieces), 0.0)
    gaussian = begin(of_noise, of_noise * t, jnp.zeros(n), 1)

    def step(s: _State) -> _State:
        new = sweep(s)
        if attempts == 1:
            return new
        failed = (new.ended | (new.sweep == max_iterations)) & ~(new.best.mismatch <= enough) & (s.attempt == 0)
        return jax.tree.map(partial(jnp.where, failed), gaussian, new)

    enough = max(target, TOLERANCE)
    a, tau = jnp.where(used, start, 0.0)
    first = begin(tau, a + tau * times(a), a, 0)
    end = jax.lax.while_loop(lambda s: ~s.ended & (s.sweep < max_iterations), step, first)
    found, converged = end.best, end.best.mismatch <= enough
    by_K = pull_back(factor_sites(K, found.site_precision), found.dual_coef)
    return found._replace(
        value=jnp.where(converged, found.value, -jnp.inf),
        by_K=jnp.where(converged, by_K, 0.0),
        by_parameters=jnp.where(used & converged, found.by_parameters, 0.0),
        iterations=end.sweep,
        converged=converged,
    )


def solve_batch(loss: str, *arrays: Array, **options: Any) -> Found:
    """Solve b problems of m rows: the arrays of `solve` with a first axis more."""
    one = partial(solve, loss, **options)
    if arrays[0].shape[0] == 1:  # libraries have other routines for batches
        return jax.tree.map(lambda x: x[None], one(*(x[0] for x in arrays)))
    return jax.vmap(partial(one, max_iterations=_OF_A_BATCH, attempts=1))(*arrays)


def by_parameters(found: Found, parameters: Array) -> Array:
    """Derivatives by the parameters as they were given, (..., p, k); 0 by the weights."""
    rows = found.by_parameters
    if parameters.shape[-1] == 1:
        rows = rows.sum(axis=-1, keepdims=True)
    weights = jnp.zeros((*rows.shape[:-2], parameters.shape[-2] - rows.shape[-2], rows.shape[-1]))
    return jnp.concatenate([rows, weights], axis=-2)


def _accelerated(past_sites: Array, past_steps: Array, scale: Array, n_past: Array) -> Array:
    """Anderson's acceleration (1965): the sites after the combination of the last steps that cancels best.

    The last row is the present one; ``n_past`` of those before it count.
    """
    counts = jnp.arange(_MEMORY) >= _MEMORY - n_past
    changes = jnp.where(counts[:, None], (past_steps[1:] - past_steps[:-1]) * scale, 0.0)
    normal, right = changes @ changes.T, changes @ (past_steps[-1] * scale)
    size = jnp.max(jnp.diagonal(normal))
    ridge = jnp.where(counts, 1e-14 * size, 1.0)
    triangle = jnp.linalg.cholesky(normal + jnp.diag(ridge))
    half = solve_triangular(triangle, right, lower=True)
    weights = solve_triangular(triangle, half, lower=True, trans=1)
    usable = (size > 0.0) & jnp.isfinite(weights).all()
    moves = jnp.where(counts[:, None], past_sites[1:] - past_sites[:-1] + past_steps[1:] - past_steps[:-1], 0.0)
    return past_sites[-1] + past_steps[-1] - jnp.where(usable, weights, 0.0) @ moves


class Sites(NamedTuple):
    """Sites of precisions τ on K, which is factored as L·Lᵀ = I + √τK√τ: √τ, L⁻¹, log|L·Lᵀ|, and the variances."""

    root: Array
    inverse: Array
    log_det: Array
    variance: Array
    cavity_variance: Array

    def apply_inverse(self, x: Array) -> Array:
        """R·x with R = (K + τ⁻¹)⁻¹ over the sites."""
        return self.root * (self.inverse.T @ (self.inverse @ (self.root * x)))


def factor_sites(K: Array, tau: Array, least: Array | float = 0.0) -> Sites:
    """Factor the sites of precisions τ (n,), 0 at points without a site; NaN on failure.

    Variances are at least ``least``.
    """
    n, root, prior = tau.shape[0], jnp.sqrt(tau), jnp.diagonal(K)
    triangle = jnp.linalg.cholesky(jnp.eye(n) + root[:, None] * K * root)
    both = solve_triangular(triangle, jnp.hstack([jnp.eye(n), root[:, None] * K]), lower=True)
    inverse, explained = both[:, :n], both[:, n:]
    kept = (inverse * inverse).sum(axis=0)
    wide = tau * prior <= 1.0
    narrow = (1.0 - kept) / jnp.where(wide, 1.0, tau)
    variance = jnp.maximum(jnp.where(wide, prior - (explained * explained).sum(axis=0), narrow), least)
    log_det = 2.0 * jnp.log(jnp.diagonal(triangle)).sum()
    return Sites(root, inverse, log_det, variance, jnp.maximum(variance / kept, least))


def pull_back(sites: Sites, a: Array) -> Array:
    """Derivative of the evidence by K: ½aaᵀ - ½R with R = (K + τ⁻¹)⁻¹ over the sites."""
    half = sites.inverse * sites.root
    return 0.5 * (jnp.outer(a, a) - half.T @ half)


def _product(K: Array) -> Callable[[Array], Array]:
    """The function x ↦ K·x, which keeps a large constant in K apart; both parts are exact."""
    low, high = K.min(), K.max()
    constant = jnp.where(low >= _LARGE * (high - low), low, 0.0)
    rest = K - constant
    return lambda x: rest @ x + constant * total(x)


def total(x: Array) -> Array:
    """Sum of x (n,), without rounding errors of terms that cancel.

    High parts of all terms, multiples of one power of two, add up exactly in any order (Rump, Ogita & Oishi 2008,
    algorithm 3.2).
    """
    exponent = jnp.frexp(jnp.max(jnp.abs(x)))[1] + (x.shape[0] + 1).bit_length()
    unit = jnp.ldexp(jnp.ones(()), exponent)
    high = (x + unit) - unit
    return high.sum() + (x - high).sum()

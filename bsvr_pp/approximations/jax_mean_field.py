"""Mean field in JAX: the sweeps of `bsvr_pp.approximations.mean_field` for a processor or a GPU, one problem or many.

The equations, the damping and the acceleration are the same, so that both find the same fixed point. Here the sweeps
begin without sites and, where that fails, with those of Gaussian noise of the same variance; K is dense, and there is
no branch for each point: problems of one size are solved together by `jax.vmap`, and smaller ones are padded by rows
whose sites stay at zero.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from bsvr_pp.approximations.jax_outcome import Found
from bsvr_pp.approximations.jax_pieces import noise_precision, tilted_moments
from bsvr_pp.approximations.jax_sites import factor_sites, pull_back, split
from bsvr_pp.losses.pieces import Pieces

__all__ = ["MAX_SWEEPS", "mean_field"]


TARGET = 1e-8  # moment mismatch that ends the sweeps
TOLERANCE = 1e-6  # moment mismatch that counts as converged if rounding errors stop the sweeps earlier
MAX_SWEEPS = 1000
_PATIENCE = 100  # number of sweeps without progress after which it stops
_MEMORY = 3  # number of differences of sweeps in Anderson acceleration
_NEAR = 0.1  # mismatch below which the acceleration is used


class _State(NamedTuple):
    """Sites τ and ν, the best so far, and what damping and acceleration remember."""

    attempt: Array
    tau: Array
    nu: Array
    a: Array
    damping: Array
    last: Array
    since: Array
    sweep: Array
    ended: Array
    best: Array
    value: Array
    best_a: Array
    best_tau: Array
    best_variance: Array
    best_cavity: Array
    parameters: Array
    past_sites: Array
    past_steps: Array
    n_past: Array


@partial(jax.jit, static_argnames=("target", "max_iterations", "attempts"))
def mean_field(
    K: Array,
    t: Array,
    pieces: Pieces,
    used: Array,
    start: Array | None = None,
    *,
    target: float = TARGET,
    max_iterations: int = MAX_SWEEPS,
    attempts: int = 2,
) -> Found:
    """Mean-field evidence, its gradient and the sites.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance; the entries of rows that are not used may be those of any row.
    t : (n,) array
        Targets minus prior mean.
    pieces : Pieces
        Table of the loss, from `bsvr_pp.approximations.jax_pieces.TABLES`.
    used : (n,) array of bool
        Rows that are data; the others fill up a batch.
    start : (2, n) array, optional
        Dual coefficients and site precisions from which the sweeps begin; by default zeros.
    target : float
        Moment mismatch that ends the sweeps.
    max_iterations : int
        Largest number of sweeps from each start.
    attempts : int
        Number of starts: 1, or 2 with the sites of Gaussian noise.
    """
    n, p = t.shape[0], pieces.d_energy.shape[0]
    structure = split(K)
    times = structure.times
    least = 1e-20 * jnp.maximum(jnp.max(jnp.where(used, t * t, 0.0)), 1e-200)

    def sweep(s: _State) -> _State:
        sites = factor_sites(structure, s.tau, least)
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

        better = mismatch < s.best
        since = jnp.where(better & (mismatch < 0.9 * s.best), 0, s.since + 1)
        best = jnp.where(better, mismatch, s.best)
        ended = ~finite | (best <= target) | ((best <= TOLERANCE) & (since >= 8)) | (since >= _PATIENCE)
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
            value=jnp.where(better, value, s.value),
            best_a=jnp.where(better, a, s.best_a),
            best_tau=jnp.where(better, s.tau, s.best_tau),
            best_variance=jnp.where(better, variance, s.best_variance),
            best_cavity=jnp.where(better, v, s.best_cavity),
            parameters=jnp.where(better, by, s.parameters),
            past_sites=past_sites,
            past_steps=past_steps,
            n_past=jnp.where(quick, jnp.minimum(n_past + 1, _MEMORY), 0),
        )

    def begin(tau: Array, nu: Array, a: Array, attempt: int) -> _State:
        zero, memory, none = jnp.zeros(n), jnp.zeros((_MEMORY + 1, 2 * n)), jnp.asarray(0)
        infinite, parameters, no = jnp.asarray(jnp.inf), jnp.zeros((p, n)), jnp.asarray(False)
        return _State(
            jnp.asarray(attempt), tau, nu, a, jnp.asarray(1.0), infinite, none, none, no, infinite, -infinite,
            zero, zero, zero, zero, parameters, memory, memory, none,
        )  # fmt: skip

    of_noise = jnp.where(used, noise_precision(pieces), 0.0)
    gaussian = begin(of_noise, of_noise * t, jnp.zeros(n), 1)

    def step(s: _State) -> _State:
        new = sweep(s)
        if attempts == 1:
            return new
        failed = (new.ended | (new.sweep == max_iterations)) & ~(new.best <= enough) & (s.attempt == 0)
        return jax.tree.map(partial(jnp.where, failed), gaussian, new)

    enough = max(target, TOLERANCE)
    a, tau = jnp.zeros((2, n)) if start is None else jnp.where(used, start, 0.0)
    first = begin(tau, a + tau * times(a), a, 0)
    end = jax.lax.while_loop(lambda s: ~s.ended & (s.sweep < max_iterations), step, first)
    converged = end.best <= enough
    by_K = pull_back(factor_sites(structure, end.best_tau), end.best_a)
    keep = jnp.where(converged, 1.0, 0.0)
    return Found(
        value=jnp.where(converged, end.value, -jnp.inf),
        dual_coef=end.best_a,
        site_precision=end.best_tau,
        shift=times(end.best_a),
        variance=end.best_variance,
        cavity_variance=end.best_cavity,
        support=jnp.zeros(0, dtype=int),
        by_K=jnp.where(converged, by_K, 0.0),
        by_residual=-keep * end.best_a,
        by_parameters=jnp.where(used & converged, end.parameters, 0.0),
        iterations=end.sweep,
        gap=jnp.asarray(0.0),
        mismatch=end.best,
        converged=converged,
    )


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

"""Laplace's approximation with locally integrated curvature in JAX: `bsvr_pp.approximations.laplace` for a device.

The mode is found exactly (`bsvr_pp.approximations.jax_mode`). Evidence and gradient are the explicit ones there, as in
the compiled core. Exact curvature is not computed here: its evidence is discontinuous.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bsvr_pp.approximations.jax_mode import MAX_STEPS, Place, find_mode, locate
from bsvr_pp.approximations.jax_outcome import Found
from bsvr_pp.approximations.jax_pieces import by_row, energy_at, local_moments
from bsvr_pp.approximations.jax_sites import Structure, factor_sites, pull_back, solve, split
from bsvr_pp.approximations.mode import OFF_BOUND, ON_BOUND
from bsvr_pp.losses.pieces import Pieces

__all__ = ["laplace_local"]


@partial(jax.jit, static_argnames=("max_iterations", "attempts"))
def laplace_local(
    K: Array,
    t: Array,
    pieces: Pieces,
    used: Array,
    start: Array | None = None,
    *,
    max_iterations: int = MAX_STEPS,
    attempts: int = 2,
) -> Found:
    """Laplace evidence with locally integrated curvature, its gradient and the sites.

    Parameters
    ----------
    K, t, pieces, used
        As in `bsvr_pp.approximations.jax_mean_field.mean_field`.
    start : (2, n) array, optional
        Its first row is where the search for the mode begins; by default at zeros.
    max_iterations : int
        Largest number of factorisations of that search from each start.
    attempts : int
        Number of starts: 1, or 2 with zeros.
    """
    structure, pieces = split(K), by_row(pieces, used)
    begin = jnp.zeros_like(t) if start is None else start[0]
    mode = find_mode(structure, t, pieces, used, begin, max_iterations, attempts)
    a, r = mode.dual_coef, t - mode.shift
    log_mass, offset, mean_d_energy = local_moments(r, a, pieces)
    with_site = used & (mode.support != ON_BOUND) & jnp.isfinite(log_mass)
    log_mass, offset, mean_d_energy = (jnp.where(with_site, x, 0.0) for x in (log_mass, offset, mean_d_energy))
    precision = jnp.where(with_site, 2.0 * np.pi * jnp.exp(-2.0 * (log_mass + energy_at(r, pieces))), 0.0)
    sites = factor_sites(structure, precision)
    value = -mode.objective - pieces.log_normalizer.sum() - 0.5 * sites.log_det
    converged = mode.converged & jnp.isfinite(value)

    d_log_w = -0.5 * precision * sites.variance  # -½(1 - B⁻¹_ii), B = I + W½KW½
    # The mode depends on the hyperparameters, and W on the mode: d(log W)/da = -2·offset.
    bends, place = mode.support == OFF_BOUND, locate(mode, r, pieces)
    pull = _mode_adjoint(structure, place, bends, -2.0 * d_log_w * offset, used)
    at_mode, by_mode = _by_parameters(pieces, place, bends, pull, structure.times(pull))
    by_curvature = -2.0 * d_log_w * (at_mode - mean_d_energy)
    by_parameters = by_curvature + by_mode - at_mode - pieces.d_log_normalizer
    return Found(
        value=jnp.where(converged, value, -jnp.inf),
        dual_coef=a,
        site_precision=precision,
        shift=mode.shift,
        variance=sites.variance,
        cavity_variance=sites.cavity_variance,
        support=mode.support,
        by_K=jnp.where(converged, pull_back(sites, a, pull), 0.0),
        by_residual=jnp.where(converged, pull - a, 0.0),
        by_parameters=jnp.where(converged, by_parameters, 0.0),
        iterations=mode.iterations,
        gap=mode.gap,
        mismatch=jnp.asarray(0.0),
        converged=converged,
    )


def _mode_adjoint(K: Structure, place: Place, bends: Array, moving: Array, used: Array) -> Array:
    """(K + compliance)⁻¹ applied to d(log evidence)/da on the off-bound points, 0 elsewhere."""
    floor = 1e-12 * jnp.mean(K.variance, where=used)
    compliance = jnp.maximum(place.width / jnp.where(bends, place.rise, 1.0), floor)
    solution = solve(K, jnp.where(bends, 1.0 / compliance, 0.0), jnp.where(bends, moving, 0.0))
    return jnp.where(bends & jnp.isfinite(solution).all(), solution, 0.0)


def _by_parameters(pieces: Pieces, place: Place, bends: Array, pull: Array, pushed: Array) -> tuple[Array, Array]:
    """Derivatives by each parameter, (p, n): of the energies at the mode, and of the evidence through the mode."""
    of_piece = jnp.take_along_axis(pieces.d_energy, place.piece[None, :, None, None], axis=2)[:, :, 0]
    (c0, c1, c2), (_, u, width, rise) = jnp.moveaxis(of_piece, 2, 0), place
    at_bend = pull * (c1 + 2.0 * c2 * u) / jnp.where(bends, rise, 1.0)
    d_slope = jnp.where(width > 0.0, c1 / jnp.where(width > 0.0, width, 1.0), 0.0)
    return c0 + u * (c1 + u * c2), jnp.where(bends, at_bend, -pushed * d_slope)

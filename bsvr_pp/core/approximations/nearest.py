"""A mean-field posterior of its own for each new input, on its nearest rows (Gramacy & Apley 2015), of the cost k³.

The posteriors of two inputs do not belong to one model, so that there are no joint draws. The cavities have the density
of each row given the others, which shows whether the noise near an input is wider or narrower than elsewhere.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.approximations.mean_field import TARGET, fixed_point, mean_field_value
from bsvr_pp.core.approximations.posterior import Outcome
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import numbers
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate
from bsvr_pp.core.covariance.covariance import check_covariance
from bsvr_pp.core.covariance.sites import apply_inverse, marginals
from bsvr_pp.core.covariance.structure import Structure, product, split
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.factors import take, tilted_moments
from bsvr_pp.core.losses.pieces import PIECES, Pieces

_STACK = types.Array(types.float64, 3, "C")
_SWEEPS = 1000  # largest number of sweeps of a solve
_MISMATCH = 1e-4  # moment mismatch that ends the sweeps
_TOLERANCE = 1e-2  # moment mismatch that counts as converged if rounding errors stop the sweeps earlier


class NearestMoments(NamedTuple):
    """Moments (m,) of f at new inputs, and the mean log density (m, s) of their rows for each factor of the noise."""

    mean: Array
    variance: Array
    converged: NDArray[np.bool_]
    log_density: Array


def nearest_moments(
    K: ArrayLike, mean: ArrayLike, y: Array, noise: NoiseModel, *, jitter: float = 0.0, factors: ArrayLike = ()
) -> NearestMoments:
    """Moments of f at m new inputs, each given its own k rows, which follow it in the prior, by mean field.

    K is (m, 1 + k, 1 + k) without the jitter, ``mean`` (m, 1 + k), y (m, k); parameters of the noise that differ
    between rows are (m·k,) arrays. Of noise whose width is multiplied by ``factors`` the densities of the rows are
    wanted.
    """
    m, k = y.shape
    prior, offset = numbers("K", K, (m, 1 + k, 1 + k)), numbers("mean", mean, (m, 1 + k))
    covariance = prior[:, 1:, 1:] + jitter * np.eye(k)
    for each in covariance:
        check_covariance(each)
    residual = noise.reference(y.ravel()).reshape(m, k) - offset[:, 1:]
    cross, diagonal = prior[:, 0, 1:].copy(), prior[:, 0, 0].copy()
    sites, widths = noise.sites(y.ravel()), np.array(factors, dtype=np.float64)
    found, variance, converged, density = _each(covariance, float(jitter), residual, sites, cross, diagonal, widths)
    return NearestMoments(offset[:, 0] + found, np.maximum(variance, 0.0), converged > 0, density)


@separate(types.Tuple((VECTOR, VECTOR, VECTOR, MATRIX)), _STACK, types.float64, MATRIX, PIECES, MATRIX, VECTOR, VECTOR)
def _each(
    K: Array, jitter: float, t: Array, pieces: Pieces, cross: Array, diagonal: Array, factors: Array
) -> tuple[Array, Array, Array, Array]:
    """Mean minus prior mean, variance, 1 if the solve converged, and `_log_density`, of each new input."""
    m, k = t.shape
    mean, variance, converged = np.empty(m), np.empty(m), np.zeros(m)
    density = np.empty((m, factors.shape[0]))
    nowhere, each = np.zeros((2, k)), np.ones(k)
    for i in range(m):
        structure, table = split(K[i], jitter), pieces
        if pieces.knots.shape[0] > 1:
            table = take(pieces, i * k, pieces.ends[i * k : (i + 1) * k], each)
        found, _ = fixed_point(structure, t[i], table, _SWEEPS, _MISMATCH, nowhere)
        if not found.converged:  # without a root, which is too inaccurate for very narrow sites, and from the mode
            found, _ = mean_field_value(structure, t[i], table, _SWEEPS, TARGET)
        mean[i] = np.dot(cross[i], found.dual_coef)
        at_sites = cross[i][found.sites.points]
        variance[i] = diagonal[i] - np.dot(at_sites, apply_inverse(found.sites, at_sites))
        converged[i] = 1.0 if found.mismatch <= _TOLERANCE else 0.0
        if factors.shape[0] > 0:
            _log_density(structure, t[i], table, found, factors, density[i])
    return mean, variance, converged, density


@compiled
def _log_density(K: Structure, t: Array, pieces: Pieces, found: Outcome, factors: Array, out: Array) -> None:
    """Mean log density of the rows given the others, into ``out``, for noise wider by each factor, as of t/factor."""
    _, variance = marginals(K, found.sites, np.empty(found.sites.triangle.shape), _MISMATCH)
    variance = np.maximum(variance, 1e-20 * max(np.max(t * t), 1e-200))
    residual = t - product(K, found.dual_coef) + variance * found.dual_coef
    for q in range(factors.shape[0]):
        log_z = tilted_moments(residual / factors[q], variance / factors[q] ** 2, pieces)[0]
        out[q] = np.mean(log_z) - log(factors[q])

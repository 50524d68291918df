"""Moments of a Gaussian times the factor of a data point, for all points of a table."""

from __future__ import annotations

from math import log, pi, sqrt

import numpy as np
from numba import types
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR
from bsvr_pp._separate import separate
from bsvr_pp.losses.interval_moments import tilted_interval
from bsvr_pp.losses.intervals import is_interval
from bsvr_pp.losses.pieces import PIECES, Pieces, mean_d_energy, tilted_row

__all__ = ["tilted_moments"]

Array = NDArray[np.float64]


@separate(types.Tuple((VECTOR, VECTOR, VECTOR, VECTOR, MATRIX)), VECTOR, VECTOR, PIECES)
def tilted_moments(mean: Array, variance: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array, Array]:
    """Moments of N(r; mean, variance)·exp(-E(r))/normaliser for each point, or of f where the target is an interval.

    Parameters
    ----------
    mean, variance : (n,) arrays
        The Gaussian in the residual: y minus the mean of f, and the variance of f.
    pieces : Pieces
        The sites.

    Returns
    -------
    log_mass, score, residual, tilted_variance : (n,) arrays
        log Z, d log Z/d(mean of f) = mean of dE/dr, mean of y - f, variance.
    d_parameters : (p, n) or (p + 2, n) array
        d log Z/d(each parameter of the loss); with intervals also d log Z/d(each end), 0 for exact targets.
    """
    n = mean.shape[0]
    n_parameters, n_pieces = pieces.d_energy.shape[0], pieces.slope.shape[1]
    log_mass, score, residual, tilted_variance = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    d_parameters = np.zeros((n_parameters + (2 if pieces.ends.shape[0] > 0 else 0), n))
    moments = np.empty((n_pieces, 3))
    for i in range(n):
        k = i if pieces.knots.shape[0] > 1 else 0
        if is_interval(i, pieces.ends):
            sd = sqrt(variance[i])
            log_z, x, spread, d_parameters[-2, i], d_parameters[-1, i] = tilted_interval(
                mean[i],
                variance[i],
                pieces.ends[i, 0],
                pieces.ends[i, 1],
                pieces.knots[k],
                pieces.value[k],
                pieces.slope[k],
                pieces.curvature[k],
                moments,
            )
            score[i], residual[i], tilted_variance[i] = x / sd, mean[i] - sd * x, variance[i] * spread
            log_mass[i] = log_z - pieces.log_normalizer[k]
        else:
            log_z, offset, tilted_variance[i], score[i] = tilted_row(
                mean[i],
                1.0 / variance[i],
                0.0,
                pieces.knots[k],
                pieces.value[k],
                pieces.slope[k],
                pieces.curvature[k],
                moments,
            )
            residual[i] = mean[i] + offset
            log_mass[i] = log_z - 0.5 * log(2.0 * pi * variance[i]) - pieces.log_normalizer[k]
        for p in range(n_parameters):
            d_parameters[p, i] = -mean_d_energy(moments, pieces.d_energy[p, k]) - pieces.d_log_normalizer[p, k]
    return log_mass, score, residual, tilted_variance, d_parameters

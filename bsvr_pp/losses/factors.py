"""The factor of a row: p(y|f)^weight of an exact target, or the probability of the interval in which its target lies.

A row of weight w counts like w equal rows with the same f: energies and log normaliser are w times those of one row.
For the mode and for exact inference one row of weight w is the same as w rows. For expectation propagation it is not: w
sites of one row each approximate the same factor w times, while one site of weight w matches the moments of the whole
factor, which is more accurate. The estimators therefore merge equal rows into one row with a weight.
"""

from __future__ import annotations

from math import log, pi, sqrt

import numpy as np
from numba import types
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR, compiled
from bsvr_pp._separate import separate
from bsvr_pp.losses.interval_moments import tilted_interval
from bsvr_pp.losses.intervals import mass_row
from bsvr_pp.losses.pieces import PIECES, Pieces, empty, energy, mean_d_energy, tilted_row

__all__ = ["is_interval", "of_rows", "row_of", "site_derivatives", "site_energy", "tilted_moments"]

Array = NDArray[np.float64]


@separate(PIECES, PIECES, MATRIX, VECTOR)
def of_rows(pieces: Pieces, ends: Array, weight: Array) -> Pieces:
    """The table of n rows with ends (n, 2) relative to t, equal where the target is exact, and weights (n,) > 0.

    It has one row for all where the table has and all are exact and of weight 1. Intervals have no weights.
    """
    n, plain = weight.shape[0], True
    for i in range(n):
        plain = plain and weight[i] == 1.0 and ends[i, 0] == ends[i, 1]
    if plain:
        return pieces
    out = empty(pieces.d_energy.shape[0], n, pieces.knots.shape[1])
    for i in range(n):
        k, w = row_of(i, pieces), weight[i]
        out.ends[i] = ends[i]
        out.knots[i] = pieces.knots[k]
        out.value[i] = w * pieces.value[k]
        out.slope[i] = w * pieces.slope[k]
        out.curvature[i] = w * pieces.curvature[k]
        out.d_energy[:, i] = w * pieces.d_energy[:, k]
        out.log_normalizer[i] = w * pieces.log_normalizer[k]
        out.d_log_normalizer[:, i] = w * pieces.d_log_normalizer[:, k]
    return out


@compiled
def row_of(i: int, pieces: Pieces) -> int:
    """Row of the table of point i."""
    return i if pieces.knots.shape[0] > 1 else 0


@compiled
def is_interval(k: int, pieces: Pieces) -> bool:
    """Return whether the target of a row of the table is an interval."""
    return pieces.ends[k, 0] < pieces.ends[k, 1]


@compiled
def site_energy(s: float, k: int, pieces: Pieces) -> tuple[float, float, float]:
    """Minus the log of the factor of row k without its normaliser, at s = t - f, and its two derivatives by s."""
    row = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
    if is_interval(k, pieces):
        moments = np.empty((pieces.slope.shape[1], 3))
        mass = mass_row(s, pieces.ends[k, 0], pieces.ends[k, 1], row, moments)
        return -mass[0], -mass[1], -mass[2]
    found = energy(s, row[0], row[1], row[2], row[3])
    return found[0], found[1], found[2]


@compiled
def site_derivatives(s: float, k: int, pieces: Pieces, by_parameters: Array) -> tuple[float, float, float, float]:
    """Log factor of row k at s = t - f, and its derivatives by s and both ends, and by the parameters (p,), filled in.

    At a kink they are those from the right.
    """
    row = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
    if is_interval(k, pieces):
        moments = np.empty((pieces.slope.shape[1], 3))
        log_mass, by_s, _, at_low, at_high = mass_row(s, pieces.ends[k, 0], pieces.ends[k, 1], row, moments)
        for q in range(by_parameters.shape[0]):
            by_parameters[q] = -mean_d_energy(moments, pieces.d_energy[q, k]) - pieces.d_log_normalizer[q, k]
        return log_mass - pieces.log_normalizer[k], by_s, -at_low, at_high
    knots = row[0]
    at_s, rise, _, j = energy(s, knots, row[1], row[2], row[3])
    u = s - knots[max(j - 1, 0)]
    if 0 < j < knots.shape[0]:  # the piece never has zero width
        u /= knots[j] - knots[j - 1]
    for q in range(by_parameters.shape[0]):
        c = pieces.d_energy[q, k, j]
        by_parameters[q] = -(c[0] + u * (c[1] + u * c[2])) - pieces.d_log_normalizer[q, k]
    return -at_s - pieces.log_normalizer[k], -rise, 0.0, 0.0


@separate(types.Tuple((VECTOR, VECTOR, VECTOR, VECTOR, MATRIX)), VECTOR, VECTOR, PIECES)
def tilted_moments(mean: Array, variance: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array, Array]:
    """Moments of a Gaussian times the factor of each row, normalised, for a Gaussian of y - f with mean and variance.

    Returns (n,) arrays: log Z, its derivative by the mean of f (the mean of dE/dr), mean of y - f, and variance;
    and the (p + 2, n) derivatives of log Z by the parameters of the loss and both ends, 0 for exact targets.
    """
    n, n_parameters = mean.shape[0], pieces.d_energy.shape[0]
    log_mass, score, residual, tilted_variance = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    derivatives, moments = np.zeros((n_parameters + 2, n)), np.empty((pieces.slope.shape[1], 3))
    for i in range(n):
        k = row_of(i, pieces)
        knots, value, slope, curvature = pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k]
        if is_interval(k, pieces):
            low, high, sd = pieces.ends[k, 0], pieces.ends[k, 1], sqrt(variance[i])
            log_z, x, spread, derivatives[n_parameters, i], derivatives[n_parameters + 1, i] = tilted_interval(
                mean[i], variance[i], low, high, (knots, value, slope, curvature), moments
            )
            score[i], residual[i], tilted_variance[i] = x / sd, mean[i] - sd * x, variance[i] * spread
        else:
            log_z, offset, tilted_variance[i], score[i] = tilted_row(
                mean[i], 1.0 / variance[i], 0.0, knots, value, slope, curvature, moments
            )
            residual[i] = mean[i] + offset
            log_z -= 0.5 * log(2.0 * pi * variance[i])
        log_mass[i] = log_z - pieces.log_normalizer[k]
        for p in range(n_parameters):
            derivatives[p, i] = -mean_d_energy(moments, pieces.d_energy[p, k]) - pieces.d_log_normalizer[p, k]
    return log_mass, score, residual, tilted_variance, derivatives

"""Rows that do not determine the latent function: gross errors, and targets whose noise is far wider than most.

The tails of support vector noise are exponential, so a single gross error determines its scale. If some targets have
far wider noise than the others, one scale is too wide for most rows, and the function too smooth. Such rows are left
out of the fit, but are used for the mixture of the scales.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from bsvr_pp.core.arrays import Array, Mask
from bsvr_pp.inference.prediction.neighbours import is_far
from bsvr_pp.model.priors import mostly_equal, quantiles_of

_PROBABILITY = 1e-3  # that Laplace noise has a row beyond the limit
_LARGE = 6.0  # smallest residual of a gross error, in robust standard deviations of the target
_NEAREST, _PEAK = 4, 3  # neighbours of a row, and rows that confirm a peak
_MOST = 0.1  # largest share of gross errors
_FEWEST = 10  # rows, below which a robust scale is unreliable
ROUNDS = 5  # largest number of fits, each without rows that the last one found
_LISTED = 10
_QUARTILES = 1.349  # distance of the quartiles of a Gaussian, in standard deviations
# Ratio of errors above which f explained a part of the rows. On eleven simulated sets of 250 rows it is .99 to 1.005
# where the noise of some is wider, 1.03 to 1.05 for noise with two modes, and 1.28 to 3 for jumps that the first fit
# explains.
_MISSED = 1.1
HALF = 0.5  # smallest share of the rows that determine f


class ScaledFit[F](NamedTuple):
    """A fit; for all rows (n,) log density and error given the others, and the mean of 1/scale of the noise."""

    log_density: Array
    precision: Array
    error: Array
    fit: F


def gross_errors(X: Array, y: Array, mean: Array, deviation: Array, unit: float, weight: ArrayLike = 1.0) -> Mask:
    """Return rows that no noise of the family explains, from ``mean`` and ``deviation`` given the others."""
    n, residual = y.size, y - mean
    times = np.broadcast_to(weight, y.shape)
    found = np.zeros(n, dtype=bool)
    size = np.abs(residual) / deviation
    median = float(quantiles_of(size, 0.5, weight))
    if n < _FEWEST or median == 0.0 or unit == 0.0 or mostly_equal(y, weight):
        return found
    # Laplace noise, which has the longest tails, exceeds this with probability 1/1000 in a set of this size. The other
    # limit keeps a step of a function that is known exactly.
    limit = median * np.log(n / _PROBABILITY) / np.log(2.0)
    suspect = (size > limit) & (np.abs(residual) > _LARGE * unit)
    if not suspect.any() or times[suspect].sum() > _MOST * times.sum():
        return found
    # A neighbour agrees if its target is half as far away on the same side: a few such rows confirm a narrow peak.
    rows = np.flatnonzero(suspect)
    nearest = cKDTree(X).query(X[rows], k=_NEAREST + 1)[1]
    away = (y[nearest] - mean[rows, None]) * np.sign(residual[rows, None])
    agree = away >= 0.5 * np.abs(residual[rows, None])
    links = coo_array((np.ones(agree.sum()), (np.repeat(rows, agree.sum(axis=1)), nearest[agree])), shape=(n, n))
    group = connected_components(links, directed=False)[1]
    found[rows] = np.bincount(group, times / np.median(times))[group[rows]] < _PEAK
    return found


def robust_width(y: Array, weight: ArrayLike = 1.0) -> float:
    """Return the standard deviation of targets, by their quartiles."""
    return float(np.subtract(*quantiles_of(y, [0.75, 0.25], weight))) / _QUARTILES


def determining_rows[F](
    fit: Callable[[Mask, F | None], ScaledFit[F]], kept: Mask, y: Array, weight: Array
) -> tuple[Mask, ScaledFit[F]]:
    """Leave rows of far wider noise out of a fit while this raises the log density of all by two standard errors.

    If the errors of the rows themselves increase without them, f explained a part of them, and they stay. A fit may
    begin from the last one.
    """
    near, first = kept, fit(kept, None)
    best = first
    for _ in range(0 if mostly_equal(y[kept], weight[kept]) else ROUNDS):
        trial = kept.copy()
        trial[kept] = ~is_far(best.precision[kept])
        if (trial == near).all() or weight[trial].sum() < HALF * weight[kept].sum():
            break
        found = fit(trial, best.fit)
        gain = (weight * (found.log_density - best.log_density))[kept]
        far = weight * (kept & ~trial)
        if not gain.sum() > 2.0 * np.sqrt(gain.size) * gain.std() or far @ found.error > _MISSED * (far @ first.error):
            break
        near, best = trial, found
    return near, best


def listed(rows: NDArray[np.intp]) -> str:
    """List the numbers of at most ten rows: rows 3, 17; of more, how many there are."""
    first = "rows " + ", ".join(map(str, rows[:_LISTED]))
    return f"{rows.size} rows, {first}, ..." if rows.size > _LISTED else first

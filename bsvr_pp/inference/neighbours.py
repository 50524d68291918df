"""The latent function at new inputs, each given its own nearest training rows.

The nearest rows are those of a k-d tree on the inputs in units of their lengthscales, or of their standard deviations
if the kernel has none. `bsvr_pp.approximations.nearest` has the mathematics.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from bsvr_pp.approximations.nearest import NearestMoments, nearest_moments
from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.optimize import lengthscales
from bsvr_pp.model.problem import Point, Problem

__all__ = ["moments_from_neighbours", "moments_of_rows", "nearest_others", "nearest_rows", "sample_weights"]

Array = NDArray[np.float64]

_ENTRIES = 65536  # number of entries of the covariances that are computed together; they stay in the cache
_TREE = 200_000  # largest number of rows of a tree for training rows


def moments_from_neighbours(
    problem: Problem,
    point: Point,
    X: Array,
    neighbours: int,
    factors: ArrayLike | None = None,
    *,
    progress: str = "",
) -> tuple[Array, Array, Array]:
    """Mean and variance (m,) of f at new inputs (m, d), by mean field on the nearest rows of each, not by blocks.

    For ``factors`` (s,) of the width of the noise also, (m, s), the mean over the nearest rows of their log densities
    given the others (`approximations.NearestMoments`). Warns if mean field does not converge for some inputs.
    """
    return _moments(problem, point, X, nearest_rows(problem, point, X, neighbours), factors, progress)


def moments_of_rows(
    problem: Problem,
    point: Point,
    rows: NDArray[np.int64],
    neighbours: int,
    factors: ArrayLike | None = None,
    *,
    progress: str = "",
) -> tuple[Array, Array, Array]:
    """`moments_from_neighbours` at training rows of given numbers, each from its nearest rows without itself."""
    near = nearest_others(problem, point, rows, neighbours)
    return _moments(problem, point, problem.inputs[rows], near, factors, progress)


def nearest_rows(problem: Problem, point: Point, X: Array, count: int) -> NDArray[np.int64]:
    """Numbers of the nearest training rows of each input, nearest first; all rows if there are fewer than ``count``."""
    unit = _unit(problem, point)
    found = _tree(problem, unit).query(X / unit, k=np.arange(1, min(count, problem.targets.size) + 1))
    return np.asarray(found[1], dtype=np.int64)


def nearest_others(problem: Problem, point: Point, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Numbers of the nearest training rows of some training rows, without the row itself."""
    unit, n = _unit(problem, point), problem.targets.size
    X, count = problem.inputs[rows], min(count, n - 1)
    distance, near = np.empty((rows.size, 0)), np.empty((rows.size, 0), dtype=np.int64)
    for at in range(0, n, _TREE):  # one tree of all rows would have to be in memory
        some = cKDTree(problem.inputs[at : at + _TREE] / unit)
        found = some.query(X / unit, k=np.arange(1, min(count + 1, some.n) + 1))
        distance, near = np.hstack([distance, found[0]]), np.hstack([near, at + found[1]])
        kept = np.argsort(distance, axis=1, kind="stable")[:, : count + 1]
        distance, near = np.take_along_axis(distance, kept, axis=1), np.take_along_axis(near, kept, axis=1)
    # Among many equal rows the row itself may not be found: then the last is left out.
    other = near != rows[:, None]
    other[other.all(axis=1), -1] = False
    return near[other].reshape(rows.size, count)


def _unit(problem: Problem, point: Point) -> Array:
    """Units of the inputs in which rows are near."""
    unit = lengthscales(problem, point)
    return np.where(np.ptp(problem.inputs, axis=0) > 0, problem.inputs.std(axis=0), 1.0) if unit is None else unit


def _moments(
    problem: Problem, point: Point, X: Array, near: NDArray[np.int64], factors: ArrayLike | None, progress: str
) -> tuple[Array, Array, Array]:
    """Moments of f at inputs, given the rows ``near`` (m, k) of each, and the densities of these rows."""
    count = near.shape[1]
    noise = problem.noise_at(point).weighted(sample_weights(problem, point))
    size, jitter = max(1, _ENTRIES // count**2), problem.prior.jitter

    def of_group(i: int) -> NearestMoments:
        new = slice(i * size, (i + 1) * size)
        rows = near[new]
        K, mean = problem.prior_of_each(point, np.concatenate([X[new, None], problem.inputs[rows]], axis=1))
        return nearest_moments(
            K[:, 1:, 1:] + jitter * np.eye(count),
            problem.targets[rows],
            noise.at(rows.ravel()),
            K[:, 0, 1:],
            K[:, 0, 0],
            jitter=jitter,
            mean=mean[:, 1:],
            mean_star=mean[:, 0],
            factors=factors,
        )

    parts = each_block(of_group, -(-len(X) // size), progress)
    mean, variance, converged, log_density = (np.concatenate(each) for each in zip(*parts, strict=True))
    if not converged.all():
        bad = len(X) - np.count_nonzero(converged)
        warnings.warn(
            f"mean field on the {count} nearest rows did not converge for {bad} of {len(X)} new inputs",
            ConvergenceWarning,
            stacklevel=3,
        )
    return mean, variance, log_density


def sample_weights(problem: Problem, point: Point) -> Array | None:
    """Sample weights of the training rows; None if they have none."""
    if problem.weight is None:
        return None
    (weight,) = problem.function("weight", lambda: problem.compile([problem.weight]))(*problem.arguments(point))
    return np.asarray(weight)


def _tree(problem: Problem, unit: Array) -> cKDTree:
    """The tree of the inputs in these units; the last one of a problem is kept, since its inputs come in chunks."""
    kept = problem.cached("tree of the inputs", list)
    if not kept or not np.array_equal(kept[0][0], unit):
        kept[:] = [(unit, cKDTree(problem.inputs / unit))]
    tree: cKDTree = kept[0][1]
    return tree

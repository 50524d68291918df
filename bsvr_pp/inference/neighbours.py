"""The latent function at new inputs, each given its own nearest training rows.

The nearest rows are those of a k-d tree on the inputs in units of their lengthscales, or of their standard deviations
if the kernel has none. `bsvr_pp.approximations.nearest` has the mathematics.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bsvr_pp.approximations.block_diagonal import each_block
from bsvr_pp.approximations.nearest import NearestMoments, nearest_moments
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.optimize import lengthscales
from bsvr_pp.model.prior_of_each import prior_of_each
from bsvr_pp.model.problem import Point, Problem

__all__ = ["moments_from_neighbours"]

Array = NDArray[np.float64]

_ENTRIES = 65536  # number of entries of the covariances that are computed together; they stay in the cache


def moments_from_neighbours(
    problem: Problem,
    point: Point,
    X: Array,
    neighbours: int,
    *,
    progress: str = "",
) -> tuple[Array, Array]:
    """Mean and variance of f at new inputs, by mean field on the nearest rows of each.

    Parameters
    ----------
    problem : Problem
        The model with its training data; its blocks are not used.
    point : dict
        Hyperparameters.
    X : (m, d) array
        New inputs.
    neighbours : int
        Number of nearest rows; all rows if there are fewer.
    progress : str
        What a progress bar says; none if it is empty.

    Returns
    -------
    mean, variance : (m,) arrays

    Warns
    -----
    ConvergenceWarning
        If mean field did not converge for some of them.
    """
    unit = lengthscales(problem, point)
    if unit is None:
        unit = np.where(np.ptp(problem.inputs, axis=0) > 0, problem.inputs.std(axis=0), 1.0)
    tree = _tree(problem, unit)
    count = min(neighbours, problem.targets.size)
    near = np.asarray(tree.query(X / unit, k=np.arange(1, count + 1))[1], dtype=np.int64)
    noise = problem.noise_at(point).weighted(_weights(problem, point))
    size, jitter = max(1, _ENTRIES // count**2), problem.prior.jitter

    def of_group(i: int) -> NearestMoments:
        new = slice(i * size, (i + 1) * size)
        rows = near[new]
        K, mean = prior_of_each(problem, point, np.concatenate([X[new, None], problem.inputs[rows]], axis=1))
        return nearest_moments(
            K[:, 1:, 1:] + jitter * np.eye(count),
            problem.targets[rows],
            noise.at(rows.ravel()),
            K[:, 0, 1:],
            K[:, 0, 0],
            jitter=jitter,
            mean=mean[:, 1:],
            mean_star=mean[:, 0],
        )

    parts = each_block(of_group, -(-len(X) // size), progress)
    mean, variance, converged = (np.concatenate(each) for each in zip(*parts, strict=True))
    if not converged.all():
        bad = len(X) - np.count_nonzero(converged)
        warnings.warn(
            f"mean field on the {count} nearest rows did not converge for {bad} of {len(X)} new inputs",
            ConvergenceWarning,
            stacklevel=2,
        )
    return mean, variance


def _weights(problem: Problem, point: Point) -> Array | None:
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

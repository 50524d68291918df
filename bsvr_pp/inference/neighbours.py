"""The latent function at new inputs, each given its own nearest training rows.

The nearest rows are those of a k-d tree on the inputs in units of their lengthscales, or of their standard deviations
if the kernel has none. New inputs that lie close to each other share the computation of the prior covariance.
`bsvr_pp.approximations.nearest` has the mathematics.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bsvr_pp.approximations.block_diagonal import each_block
from bsvr_pp.approximations.nearest import NearestMoments, nearest_moments
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.optimize import lengthscales
from bsvr_pp.model.problem import Point, Problem

__all__ = ["moments_from_neighbours"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_SHARED = 4  # largest number of rows in one covariance, in units of the number of neighbours


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
    place = np.empty(problem.targets.size, dtype=np.int64)
    place[tree.indices] = np.arange(problem.targets.size)
    noise_of_rows = problem.noise_at(point)
    groups = list(_groups(near, np.argsort(place[near[:, 0]], kind="stable"), _SHARED * count))

    def of_group(i: int) -> NearestMoments:
        new = groups[i]
        rows, local = np.unique(near[new], return_inverse=True)
        part = problem.subset(rows)
        K, mean, _ = part.at(point)
        K_star, diagonal, offset = part.cross(point, X[new])
        return nearest_moments(
            *(K, part.targets, noise_of_rows.at(rows), K_star, diagonal, local.reshape(near[new].shape)),
            mean=mean,
            mean_star=offset,
        )

    parts = each_block(of_group, len(groups), progress)
    order = np.argsort(np.concatenate(groups), kind="stable")
    mean, variance, converged = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
    if not converged.all():
        bad = len(X) - np.count_nonzero(converged)
        warnings.warn(
            f"mean field on the {count} nearest rows did not converge for {bad} of {len(X)} new inputs",
            ConvergenceWarning,
            stacklevel=2,
        )
    return mean, variance


def _tree(problem: Problem, unit: Array) -> cKDTree:
    """The tree of the inputs in these units; the last one of a problem is kept, since its inputs come in chunks."""
    kept = problem.cached("tree of the inputs", list)
    if not kept or not np.array_equal(kept[0][0], unit):
        kept[:] = [(unit, cKDTree(problem.inputs / unit))]
    tree: cKDTree = kept[0][1]
    return tree


def _groups(near: Rows, order: Rows, most: int) -> Iterator[Rows]:
    """New inputs, in a given order, in groups whose neighbours are at most ``most`` rows together."""
    group: list[int] = []
    rows: set[int] = set()
    for i in order.tolist():
        joined = rows.union(near[i].tolist())
        if group and len(joined) > most:
            yield np.array(group)
            group, joined = [], set(near[i].tolist())
        group.append(i)
        rows = joined
    yield np.array(group)

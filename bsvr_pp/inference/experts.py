"""The latent function at new inputs: of one block, or combined from the nearest blocks.

The posterior of f at a new input is that of the block whose region holds it. The combination of several blocks is a
generalised product of experts (Deisenroth & Ng 2015, (12)-(13)): precisions are averaged, with weights proportional to
the decrease of differential entropy from prior to posterior, which sum to one so that the prior is recovered far from
the data (Cohen et al. 2020). It smooths the borders between blocks, and is not the predictive of the block model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.model.problem import Point, Problem

__all__ = ["CHUNK", "Gaussian", "combined", "moments_of_f", "part_of"]

Array = NDArray[np.float64]
Gaussian = Callable[[Array, Array, Array], tuple[Array, Array]]

CHUNK = 2000  # number of new inputs that are processed together


def moments_of_f(
    problem: Problem, point: Point, X: Array, gaussian: Callable[[int], Gaussian], nearest: int
) -> tuple[Array, Array]:
    """Mean and variance of f at new inputs.

    Parameters
    ----------
    problem : Problem
        The model.
    point : dict
        Hyperparameters.
    X : (m, d) array
        New inputs.
    gaussian : callable
        Function from the number of a block (0 if there are none) to the function that maps the prior covariance with
        its rows, the prior variance and the prior mean at new inputs to mean and variance of f. It is called once for
        each block that is needed.
    nearest : int
        Number of blocks that are combined; 1 is the model itself.

    Returns
    -------
    mean, variance : (m,) arrays
    """
    if problem.blocks is None:
        mean, variance, _ = _chunked(problem, point, X, gaussian(0))
        return mean, variance
    near = problem.blocks.nearest(X, nearest)
    used, place = np.unique(near, return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    wanted = np.split(order, np.cumsum(np.bincount(place.ravel()))[:-1])  # positions in near, for each block
    columns = near.shape[1]

    def found(i: int) -> tuple[Array, ...]:
        return _chunked(problem.part(int(used[i])), point, X[wanted[i] // columns], gaussian(int(used[i])))

    out = np.empty((3, near.size))
    for positions, moments in zip(wanted, each_block(found, used.size), strict=True):
        out[:, positions] = moments
    mean, variance, prior = out.reshape(3, *near.shape)
    return (mean[:, 0], variance[:, 0]) if columns == 1 else combined(mean, variance, prior)


def combined(means: Array, variances: Array, prior: Array) -> tuple[Array, Array]:
    """Combine Gaussians by the generalised product of experts with entropy weights.

    Parameters
    ----------
    means, variances, prior : (m, k) arrays
        Posterior mean, posterior variance and prior variance of f from each of k blocks.

    Returns
    -------
    mean, variance : (m,) arrays

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.inference.experts import combined
    >>> mean, variance = combined(np.array([[1.0, 9.0]]), np.array([[0.5, 2.0]]), np.array([[2.0, 2.0]]))
    >>> mean.tolist(), variance.tolist()  # the second block knows nothing here
    ([1.0], [0.5])
    """
    least = 1e-15 * np.maximum(prior.max(axis=1, keepdims=True), 1e-300)
    safe = np.maximum(variances, least)
    entropy = np.maximum(0.5 * np.log(np.maximum(prior, least) / safe), 0.0)
    total = entropy.sum(axis=1, keepdims=True)
    weight = np.where(total > 0, entropy / np.where(total > 0, total, 1.0), 1.0 / means.shape[1])
    precision = weight / safe
    variance = 1.0 / precision.sum(axis=1)
    return (precision * means).sum(axis=1) * variance, variance


def part_of(problem: Problem, block: int) -> tuple[Problem, NDArray[np.int64] | slice]:
    """The problem of a block, and its rows; without blocks the problem itself and all rows."""
    if problem.blocks is None:
        return problem, slice(None)
    return problem.part(block), problem.blocks.rows(block)


def _chunked(problem: Problem, point: Point, X: Array, gaussian: Gaussian) -> tuple[Array, ...]:
    """Mean, variance and prior variance of f from the rows of one block."""
    chunks = []
    for at in range(0, len(X), CHUNK):
        cross = problem.cross(point, X[at : at + CHUNK])
        chunks.append((*gaussian(*cross), cross[1]))
    return tuple(np.concatenate(each) for each in zip(*chunks, strict=True))

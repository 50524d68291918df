"""Prior covariances and means of many small sets of inputs at once.

The graph of the prior for one set is vectorised: an operation of PyTensor then has the sets along its first axis, and
is called once instead of once for each set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.replace import vectorize_graph

if TYPE_CHECKING:
    from bsvr_pp.model.problem import Problem

__all__ = ["prior_of_each"]

Array = NDArray[np.float64]


def prior_of_each(problem: Problem, point: Mapping[str, ArrayLike], X: Array) -> tuple[Array, Array]:
    """Prior covariance (m, r, r), without jitter, and prior mean (m, r) of each of m sets of inputs (m, r, d).

    A kernel that PyTensor cannot vectorise is called once for each set.
    """
    m, r, d = X.shape
    compiled, at_once = problem.function("prior of each", lambda: _compile(problem, d))
    given = problem.arguments(point)
    parts = [compiled(*given, X)] if at_once else [compiled(*given, one) for one in X]
    K = [np.broadcast_to(part[0], (m if at_once else 1, r, r)) for part in parts]
    mean = [np.broadcast_to(part[1], (m if at_once else 1, r)) for part in parts]
    return np.concatenate(K), np.concatenate(mean)


def _compile(problem: Problem, d: int) -> tuple[Any, bool]:
    """Return a function of the sets, or of one set, and whether it is of all."""
    one, many = pt.matrix(shape=(None, d)), pt.tensor3(shape=(None, None, d))
    covariance, mean = problem.prior_at(one)
    graphs = [covariance.smooth, mean]
    try:
        return problem.compile(vectorize_graph(graphs, {one: many}), extra=[many]), True
    except (NotImplementedError, TypeError, ValueError):
        return problem.compile(graphs, extra=[one]), False

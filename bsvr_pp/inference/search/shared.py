"""Hyperparameters of a kernel that several problems share, each of which has noise of its own.

The objective is the sum of their log evidences, with the priors of what is shared counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.graph.traversal import ancestors

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.inference.protocol import IntegratesLatent
from bsvr_pp.inference.search.optimize import Optimum, SearchObjective, tolerance_of
from bsvr_pp.inference.search.quasi_newton import ascend
from bsvr_pp.model.problem import Point, Problem

_SHARE = 0.3  # of the tolerance of one problem: of a sum, with more values, some searches ended 2 nats below


class SharedObjective:
    """The sum of the `SearchObjective` of problems that share all hyperparameters but those of their noise.

    Its x (k,) has the unconstrained values that are shared, and then those of the noise of each problem. Options
    are those of `SearchObjective`.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        method: IntegratesLatent,
        fixed: Point | None = None,
        warm_starts: bool = True,
        density: bool = False,
    ) -> None:
        first, count = problems[0], len(problems)
        above = set(ancestors(first.parameters)) if count > 1 else set()
        of_noise = [str(variable.name) for variable in first.variables if variable in above]
        shared = [str(term.name) for term in first.prior_terms if term.name not in of_noise]
        self._each = [
            SearchObjective(problem, method, fixed or {}, "posterior", warm_starts, density, shared if j else ())
            for j, problem in enumerate(problems)
        ]
        own = self._each[0].are_of(of_noise)
        self._places = np.tile(np.cumsum(~own) - 1, (count, 1))  # of the values of each problem in x
        self._places[:, own] = np.sum(~own) + np.arange(own.sum() * count).reshape(count, -1)
        self._size = np.sum(~own) + own.sum() * count

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Value and gradient (k,) at x (k,); -inf and zeros if a solve fails."""
        if len(self._each) == 1:
            return self._each[0](x)
        found = each_block(lambda j: self._each[j](x[self._places[j]]), len(self._each))
        value, gradient = sum(each for each, _ in found), np.zeros_like(x)
        for place, (_, slope) in zip(self._places, found, strict=True):
            gradient[place] += slope
        return (value, gradient) if np.isfinite(value) else (-np.inf, np.zeros_like(x))

    def pack(self, points: Sequence[Point], first: int = 0) -> Array:
        """The x (k,) of a point of each problem; what is shared is that of the ``first``."""
        x = np.empty(self._size)
        for j in (*range(len(points)), first):
            x[self._places[j]] = self._each[j].pack(points[j])
        return x

    def unpack(self, x: Array) -> list[Point]:
        """The point of each problem."""
        return [each.unpack(x[place]) for each, place in zip(self._each, self._places, strict=True)]

    def highest(self) -> Array:
        """Upper limits (k,) of x, which are those of noise, as of `SearchObjective.highest`."""
        x = np.empty(self._size)
        for place, each in zip(self._places, self._each, strict=True):
            x[place] = each.highest()
        return x


def maximize_shared(
    problems: Sequence[Problem], method: IntegratesLatent, points: Sequence[Point], tolerance: float | None = None
) -> list[Optimum]:
    """Maximise the sum of the evidences; return the optimum as one of each problem.

    ``points`` are optima of each problem alone. The search starts where the sum is largest: at what is shared of one of
    them, or at the mean, the largest or the smallest of each value. Where problems depend on different inputs, all of
    one alone are constants in the inputs of the others, and so is their mean: the sum may have an optimum there.
    """
    objective = SharedObjective(problems, method)
    starts = [objective.pack(points, j) for j in range(len(points))]
    starts += [of_each(starts, axis=0) for of_each in (np.mean, np.max, np.min)]
    start = max(starts, key=lambda x: objective(x)[0])
    n = sum(problem.targets.size for problem in problems)
    tolerance = tolerance_of(_SHARE * method.search.tolerance if tolerance is None else tolerance, n)
    found = ascend(objective, start, n, tolerance=tolerance, highest=objective.highest())
    end = found.value, found.converged, found.message, found.n_evaluations
    return [Optimum(point, *end) for point in objective.unpack(found.x)]


def check_alike(problems: Sequence[Problem]) -> None:
    """Check that problems have the same hyperparameters, which a kernel function may make from the inputs."""
    first, *others = ({name: each.shape_of(name) for name in each.hyperparameters} for each in problems)
    for other in others:
        if other != first:
            words = "kernel must have the same hyperparameters for each target with shared=True, got"
            raise ValueError(f"{words} {first} and {other}: use shared=False")

"""The objective of the hyperparameters: log evidence plus log priors, with its gradient, as a function of a vector.

The evidence of blocks is a sum. The function of one block is compiled once with its rows as inputs, and called for each
block, in the threads of joblib; each block is warm-started from its own previous solution. The device of a problem
first evaluates the blocks that it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.initial_point import make_initial_point_fn

from bsvr_pp.approximations.operation import CovarianceGraph, TargetsGraph
from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.inference.protocol import Approximation, Objective
from bsvr_pp.model.problem import Point, Problem

__all__ = ["compile_objective", "initial_point"]

Array = NDArray[np.float64]

_NEAR = 0.1  # largest change of the unconstrained values for which the last solution is a good start


def compile_objective(
    problem: Problem,
    method: Approximation,
    fixed: Point,
    objective: Objective,
    path: bool = False,
) -> tuple[Callable[[Array], tuple[float, Array]], Callable[[Point], Array], Callable[[Array], Point]]:
    """Compile objective and gradient of the free unconstrained values, with functions to pack and unpack.

    With ``path`` a solve is warm-started from the previous solution if that is near; further away a warm start costs
    more sweeps than a new start.
    """
    likelihood = _Likelihood(problem, method, objective)
    at = np.array(np.nan)
    template = problem.to_unconstrained({**initial_point(problem), **fixed})
    all_values = dict(zip(problem.hyperparameters, template, strict=True))

    def flatten(arrays: Sequence[Array]) -> RaveledVars:
        pairs = zip(problem.hyperparameters, arrays, strict=True)
        return DictToArrayBijection.map({name: array for name, array in pairs if name not in fixed})

    shapes = flatten(template).point_map_info

    def pack(point: Point) -> Array:
        return flatten(problem.to_unconstrained({**point, **fixed})).data

    def split(x: Array) -> list[Array]:
        return list(DictToArrayBijection.rmap(RaveledVars(x, shapes), all_values).values())

    def unpack(x: Array) -> Point:
        return {**problem.to_constrained(split(x)), **fixed}

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal at
        near = path and np.abs(x - at).max(initial=0.0) <= _NEAR
        value, gradient = likelihood(split(x), warm=near)
        flat = flatten(gradient).data
        if not np.isfinite(value) or not np.isfinite(flat).all():
            return -np.inf, np.zeros_like(x)
        if path:
            likelihood.keep()
            at = x.copy()
        return float(value), flat

    return evaluate, pack, unpack


class _Likelihood:
    """Log evidence and its gradient by the unconstrained values, with the log priors if they are in the objective.

    It keeps the solution of each block, from which the next solve starts.
    """

    def __init__(self, problem: Problem, method: Approximation, objective: Objective) -> None:
        self._problem, self._method, self._objective = problem, method, objective
        self._parts = problem.parts
        self._on_device = problem.device.evidences(problem, method)
        self._together = problem.blocks is None and objective == "posterior" and self._on_device is None
        self._of_priors = None
        if objective == "posterior" and not self._together:
            self._of_priors = problem.function("priors", self._compile_priors)
        self._starts = self._found = [np.zeros((2, part.targets.size)) for part in self._parts]

    def __call__(self, values: list[Array], *, warm: bool) -> tuple[float, list[Array]]:
        """Value and gradient; with ``warm`` the solves start from the solutions that were kept."""
        if not warm:
            self._starts = [np.zeros_like(start) for start in self._starts]
        found = {} if self._on_device is None else self._on_device(values, self._starts)
        out = self._on_processor(values, found)
        self._found = [sites for _, sites, *_ in out]
        terms = [[value, *gradient] for value, _, *gradient in out]
        if self._of_priors is not None:
            terms.append(self._of_priors(*values, *self._problem.given_data))
        total, *gradient = (sum(term[1:], start=term[0]) for term in zip(*terms, strict=True))
        return total, gradient

    def _on_processor(self, values: list[Array], known: dict[int, Any]) -> list[Any]:
        """Value, sites and gradient of each block, where they are not known."""
        left = [b for b in range(len(self._parts)) if b not in known]
        if not left:
            return [known[b] for b in range(len(self._parts))]
        data, of_part = self._problem.data.values(), self._of_part

        def solved(i: int) -> Any:
            part, start = self._parts[left[i]], self._starts[left[i]]
            return of_part(*values, part.rows.matrix, *data, part.targets, start)

        out = [solved(0)] if len(self._parts) == 1 else each_block(solved, len(left))
        found = {**known, **dict(zip(left, out, strict=True))}
        return [found[b] for b in range(len(self._parts))]

    @property
    def _of_part(self) -> Any:
        """The compiled function of one block."""
        key = f"{'posterior' if self._together else 'evidence'} by {self._method!r}"
        return self._problem.function(key, self._compile_part)

    def keep(self) -> None:
        """Keep the solutions of the last call."""
        self._starts = self._found

    def _compile_part(self) -> Any:
        problem = self._problem
        y, start = pt.vector(), pt.matrix()  # without names, which data may have
        targets = TargetsGraph.of(*problem.ends.graph(y), problem.weight)
        K = CovarianceGraph(problem.smooth, problem.prior.jitter)
        given = problem.loss.name, K, problem.mean, targets, problem.parameters, start
        evidence, _, sites = self._method.evidence_graph(*given)
        total, sites = problem.model.replace_rvs_by_values([evidence, sites])
        if self._together:
            total = total + problem.model.logp(vars=problem.variables, jacobian=False)
        gradients = pt.grad(total, problem.values, disconnected_inputs="ignore")
        return problem.compile_on(problem.values, [total, sites, *gradients], [y, start])

    def _compile_priors(self) -> Any:
        problem = self._problem
        total = problem.model.logp(vars=problem.variables, jacobian=False)
        gradients = pt.grad(total, problem.values, disconnected_inputs="ignore")
        return problem.compile_on(problem.values, [total, *gradients])


def initial_point(problem: Problem) -> Point:
    """Return the initial point of the model, as hyperparameters."""

    def compute() -> Point:
        function = problem.function("initial", lambda: make_initial_point_fn(model=problem.model))
        values = function(0)
        return problem.to_constrained([values[value.name] for value in problem.values])

    point: Point = problem.cached("initial", compute)
    return point

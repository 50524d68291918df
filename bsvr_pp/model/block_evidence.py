"""The log evidence of all blocks as one operation in a PyTensor graph.

The kernel and the evidence of one block are one graph, which a scan applies to the rows of each block and whose values
and gradients it adds up. The gradients are outputs of the operation, so that a gradient of the model needs no second
pass over the blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from bsvr_pp.approximations.operation import CovarianceGraph
from bsvr_pp.model.problem import Problem

__all__ = ["BlockEvidence"]


class BlockEvidence:
    """Log evidence of a problem with blocks as a graph.

    Parameters
    ----------
    problem : Problem
        The model, with blocks.
    method : method that integrates f out
        Its ``evidence_graph`` is that of a block.

    Attributes
    ----------
    inputs : list of variables
        X, and the variables of the model on which kernel and prior mean depend.
    """

    def __init__(self, problem: Problem, method: Any) -> None:
        self._problem, self._method = problem, method
        found = set(ancestors([problem.smooth, problem.mean]))
        used = [problem.model[name] for name in problem.hyperparameters + tuple(problem.data)]
        self._leaves = [v for v in used if v in found]
        self.inputs = [pt.as_tensor_variable(problem.X), *self._leaves]

    @property
    def n_inputs(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    def graph(self, y: Any, parameters: list[Any], X: Any, *leaves: Any) -> Any:
        """Log evidence of the targets y (n,), given the parameters of the loss, X (n, d) and the kernel's variables."""
        problem = self._problem
        assert problem.blocks is not None
        order = problem.blocks.order
        given = [*(pt.as_tensor_variable(p) for p in parameters), *leaves]
        outer = [pt.matrix("X_in_blocks"), pt.vector("y_in_blocks"), *(v.type() for v in given)]
        total, gradients = self._summed(outer, len(parameters))

        def pullback(_: Any, outputs: list[Any], cotangents: list[Any]) -> list[Any]:
            nothing = DisconnectedType()
            by = iter(outputs[1:])
            return [nothing(), nothing(), *(cotangents[0] * next(by) if _continuous(v) else nothing() for v in given)]

        # Only the value is differentiable, by the continuous variables.
        connected = [[by, *[False] * len(gradients)] for by in (False, False, *map(_continuous, given))]
        operation = OpFromGraph(
            outer, [total, *gradients], pullback=pullback, connection_pattern=connected, name="BlockEvidence"
        )
        value, *_ = operation(X[order], pt.as_tensor_variable(y)[order], *given)
        return value

    def _summed(self, outer: list[Any], n_parameters: int) -> tuple[Any, list[Any]]:
        """Value, and gradients by the continuous variables, added up over the blocks."""
        problem, offsets = self._problem, self._problem.blocks.offsets  # type: ignore[union-attr]
        X, y, *given = outer
        differentiable = [v for v in given if _continuous(v)]
        start = [pt.constant(np.float64(0.0)), *(pt.zeros_like(v) for v in differentiable)]

        def step(first: Any, last: Any, *state: Any) -> list[Any]:
            sums, (inputs, targets, *values) = state[: len(start)], state[len(start) :]
            rows, parameters, leaves = inputs[first:last], values[:n_parameters], values[n_parameters:]
            K, mean = problem.prior_at(rows)
            smooth, offset = graph_replace([K.smooth, mean], dict(zip(self._leaves, leaves, strict=True)), strict=False)
            covariance = CovarianceGraph(smooth, problem.prior.jitter)
            value = self._method.evidence_graph(problem.loss.name, covariance, offset, targets[first:last], parameters)[
                0
            ]
            wanted = [v for v in values if _continuous(v)]
            gradients = pt.grad(value, wanted, disconnected_inputs="ignore") if wanted else []
            return [s + new for s, new in zip(sums, [value, *gradients], strict=True)]

        sequences = [pt.constant(np.asarray(ends, dtype=np.int64)) for ends in (offsets[:-1], offsets[1:])]
        fixed = [X, y, *given]
        sums = pytensor.scan(step, sequences, start, fixed, return_updates=False, strict=True)
        total, *gradients = [s[-1] for s in (sums if isinstance(sums, list) else [sums])]
        return total, gradients


def _continuous(variable: Any) -> bool:
    return np.dtype(variable.dtype).kind == "f"

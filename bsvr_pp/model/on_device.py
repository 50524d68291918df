"""Prior covariances of many blocks at once on a device: the graphs of a model, compiled to JAX by PyTensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from bsvr_pp.approximations.block_diagonal import Rows, Stack
from bsvr_pp.model.compiled import in_jax

if TYPE_CHECKING:
    from bsvr_pp.model.problem import Problem

__all__ = ["JaxPrior", "prior_in_jax", "stack_at"]


def stack_at(problem: Problem, point: Mapping[str, ArrayLike]) -> Stack | None:
    """How covariances of blocks are made on the device of a problem at given hyperparameters; None without a device.

    Raises
    ------
    ValueError
        If JAX cannot compute the kernel.
    """
    if problem.device is None:
        return None

    def compile_() -> Any:
        import jax

        of_block = problem.compile([problem.smooth], make=in_jax)

        def of_blocks(values: Any, inputs: Any, data: Any, jitter: Any) -> Any:
            smooth = jax.vmap(lambda rows: of_block(*values, rows, *data)[0])(inputs)
            return smooth + jitter * np.eye(smooth.shape[1])

        return jax.jit(of_blocks)

    compiled = problem.function("stack", compile_)
    values, data = problem.arguments(point)[: len(problem.variables)], list(problem.data.values())

    def make(rows: Rows) -> Any:
        return compiled(values, problem.inputs[rows], data, problem.prior.jitter)

    return Stack(problem.device, make)


class JaxPrior(NamedTuple):
    """Functions of JAX of the unconstrained hyperparameters, the inputs (m, d) of one block, and the model's data.

    Attributes
    ----------
    at : callable
        Gives the prior covariance (m, m), the prior mean (m,) or (1,), and the parameters of the loss with the weights
        (p, k).
    pull : callable
        With derivatives by these three as further arguments: the gradient by the hyperparameters, a list.
    """

    at: Callable[..., Any]
    pull: Callable[..., Any]


def prior_in_jax(problem: Problem) -> JaxPrior:
    """Compile the prior of one block of a problem, and its gradient.

    Raises
    ------
    ValueError
        If JAX cannot compute a part of the model.
    """
    parameters = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in problem.site_parameters]
    if any(row.type.shape != (1,) for row in parameters):
        parameters = [pt.broadcast_to(row, (problem.rows.shape[0],)) for row in parameters]
    graphs = [problem.smooth, pt.atleast_1d(problem.mean), pt.stack(parameters)]
    graphs = problem.model.replace_rvs_by_values(graphs)
    by = [pt.matrix(), pt.vector(), pt.matrix()]
    along = sum(pt.sum(graph * direction) for graph, direction in zip(graphs, by, strict=True))
    gradient = pt.grad(along, problem.values, consider_constant=by, disconnected_inputs="ignore")
    at = problem.compile_on(problem.values, graphs, make=in_jax)
    return JaxPrior(at, problem.compile_on(problem.values, gradient, by, make=in_jax))

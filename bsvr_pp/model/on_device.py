"""Prior covariances of many blocks at once on a device: the graphs of a model, compiled to JAX by PyTensor.

PyMC computes squared distances as |x|² + |x'|² - 2x·x', and cuts off negative ones, which are rounding errors. The
derivative has the sign of these errors, and XLA may compute them several times, with different signs: on the diagonal
terms would be left that cancel in exact arithmetic. Here the derivative is that of the distance itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Maximum, Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from bsvr_pp.covariance.block_diagonal import Rows, Stack
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
        return compiled(values, problem.rows.matrix[rows], data, problem.prior.jitter)

    from bsvr_pp.approximations.jax_blocks import posteriors_of_blocks

    return Stack(problem.device, make, posteriors_of_blocks)


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
    _register()
    parameters = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in problem.site_parameters]
    if any(row.type.shape != (1,) for row in parameters):
        parameters = [pt.broadcast_to(row, (problem.matrix.shape[0],)) for row in parameters]
    graphs = [_with_distances(problem.smooth), pt.atleast_1d(problem.mean), pt.stack(parameters)]
    graphs = problem.model.replace_rvs_by_values(graphs)
    by = [pt.matrix(), pt.vector(), pt.matrix()]
    along = sum(pt.sum(graph * direction) for graph, direction in zip(graphs, by, strict=True))
    gradient = pt.grad(along, problem.values, consider_constant=by, disconnected_inputs="ignore")
    at = problem.compile_on(problem.values, graphs, make=in_jax)
    return JaxPrior(at, problem.compile_on(problem.values, gradient, by, make=in_jax))


class NonNegative(Op):
    """Elementwise max(x, 0) of an x that is below 0 only by rounding errors; the derivative is 1 everywhere."""

    __props__ = ()

    def make_node(self, x: Any) -> Apply:
        """Apply to a tensor."""
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        """Compute the output."""
        output_storage[0][0] = np.maximum(inputs[0], 0.0)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output."""
        return [shapes[0]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the cotangent."""
        return [cotangents[0]]


@cache
def _register() -> None:
    """Register the operation in the JAX back end of PyTensor."""
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch.basic import jax_funcify

    @jax_funcify.register(NonNegative)
    def _funcify(op: NonNegative, **kwargs: Any) -> Any:
        return lambda x: jnp.maximum(x, 0.0)


def _with_distances(graph: Any) -> Any:
    """The graph with the squared distances of PyMC as `NonNegative`."""
    found = {v: NonNegative()(v.owner.inputs[0]) for v in ancestors([graph]) if _is_distance(v)}
    return graph_replace([graph], found)[0] if found else graph


def _is_distance(variable: Any) -> bool:
    """Return whether a variable is max(-2·(an inner product) + ..., 0), as `bsvr_pp.model.graphs.quick` leaves it."""
    if not _is(variable, Maximum) or not _is(variable.owner.inputs[0], Add):
        return False
    total, limit = variable.owner.inputs
    products = [term.owner.inputs for term in total.owner.inputs if _is(term, Mul)]
    return _constant(limit) == 0.0 and any(
        any(_constant(x) == -2.0 for x in factors) and any(x.owner and isinstance(x.owner.op, Dot) for x in factors)
        for factors in products
    )


def _is(variable: Any, scalar: type) -> bool:
    """Return whether a variable is the output of an elementwise operation of a kind."""
    op = getattr(variable.owner, "op", None)
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar)


def _constant(variable: Any) -> float | None:
    """Value of a constant number that is broadcast; None for anything else."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return (
        float(np.ravel(variable.data)[0]) if isinstance(variable, pt.Constant) and np.size(variable.data) == 1 else None
    )

"""Graphs of a model in the JAX back end of PyTensor: the prior of a block, and the operations of this package.

PyMC computes squared distances as |x|² + |x'|² - 2x·x', and cuts off negative ones, which are rounding errors. The
derivative has the sign of these errors, and XLA may compute them several times, with different signs: on the diagonal
terms would be left that cancel in exact arithmetic. In the prior the derivative is that of the distance itself.

Mean field of exact targets is computed natively, all other operations by callbacks: they run the compiled core on the
processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.dispatch.basic import jax_funcify
from pytensor.scalar.basic import Add, Maximum, Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from bsvr_pp.approximations.operation import LatentEvidence
from bsvr_pp.cov import FLAT, KernelContraction, KernelMatrix
from bsvr_pp.jax.solve import by_parameters, solve
from bsvr_pp.losses.density import DifferentiableOp
from bsvr_pp.model.problem import Problem

Call = Callable[..., Any]
# From hyperparameters, the inputs (m, d) of one block, and the model's data to the prior covariance (m, m) without its
# jitter, the prior mean (m,) or (1,), and the parameters of the loss with the weights (p, k).
Prior = Call


def prior_at(problem: Problem) -> Prior:
    """Compile the prior of one block at constrained hyperparameters.

    Raises
    ------
    ValueError
        If JAX cannot compute a part of the model, as the next.
    """
    return problem.compile(_graphs(problem), make=_in_jax)


def prior_with_gradient(problem: Problem) -> tuple[Prior, Callable[..., Any]]:
    """Compile the prior of one block at unconstrained hyperparameters, and its gradient.

    The second function takes derivatives by the three results of the first as further arguments, and returns a list.
    """
    graphs = problem.model.replace_rvs_by_values(_graphs(problem))
    by = [pt.matrix(), pt.vector(), pt.matrix()]
    along = sum(pt.sum(graph * direction) for graph, direction in zip(graphs, by, strict=True))
    gradient = pt.grad(along, problem.values, consider_constant=by, disconnected_inputs="ignore")
    at = problem.compile_on(problem.values, graphs, make=_in_jax)
    return at, problem.compile_on(problem.values, gradient, by, make=_in_jax)


def _graphs(problem: Problem) -> list[Any]:
    parameters = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in problem.site_parameters]
    if any(row.type.shape != (1,) for row in parameters):
        parameters = [pt.broadcast_to(row, (problem.matrix.shape[0],)) for row in parameters]
    return [_with_distances(problem.smooth), pt.atleast_1d(problem.mean), pt.stack(parameters)]


def _in_jax(inputs: list[Any], outputs: list[Any]) -> Callable[..., list[Any]]:
    """Compile a graph to a function of JAX, which can be part of others."""
    try:
        function = pytensor.function(inputs, outputs, on_unused_input="ignore", mode="JAX")
    except NotImplementedError as error:
        raise ValueError(f"device must be 'cpu' for this model, a part of which JAX cannot compute: {error}") from None
    compute: Callable[..., list[Any]] = function.vm.jit_fn
    return compute


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


@jax_funcify.register(NonNegative)
def _non_negative(op: NonNegative, **kwargs: Any) -> Any:
    return partial(jnp.maximum, 0.0)


def _with_distances(graph: Any) -> Any:
    """The graph with the squared distances of PyMC as `NonNegative`."""
    found = {v: NonNegative()(v.owner.inputs[0]) for v in ancestors([graph]) if _is_distance(v)}
    return graph_replace([graph], found)[0] if found else graph


def _is_distance(variable: Any) -> bool:
    """Return whether a variable is max(-2·(an inner product) + ..., 0), as `bsvr_pp.model.compiled.quick` leaves it."""
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


@jax_funcify.register(DifferentiableOp)
def _of_core(op: DifferentiableOp, **kwargs: Any) -> Call:
    return _with_gradient(op, _on_the_host(op))


@jax_funcify.register(LatentEvidence)
def _evidence(op: LatentEvidence, **kwargs: Any) -> Call:
    def native(
        K: Any, mean: Any, y: Any, upper: Any, weight: Any, parameters: Any, jitter: Any, start: Any
    ) -> tuple[Any, ...]:
        n, count = mean.shape[0], parameters.shape[0]
        matrix, used = K + jitter * jnp.eye(n), jnp.ones(n, bool)
        given = jnp.vstack([jnp.broadcast_to(parameters, (count, n)), weight])
        found = solve(op.loss, matrix, y - mean, y, given, used, start, target=op.mismatch)
        by, by_t = by_parameters(found, parameters), found.by_residual
        converged = found.converged.astype(float)
        return found.value, found.by_K, -by_t, by_t, jnp.zeros_like(upper), by, converged, found.sites

    natively = op.exact and op.approximation == "mean_field"
    return _with_gradient(op, native if natively else _on_the_host(op))


def _main_effects(X: Any, Z: Any, p: Any) -> Any:
    squares = (X[:, None] - Z[None]) ** 2
    variance, inverse_square = jnp.split(p[:-1], 2)
    e = jnp.exp(-0.5 * inverse_square * squares)
    return (e + p[-1] * e**16) @ variance


def _rational_quadratic(X: Any, Z: Any, p: Any) -> Any:
    h = 0.5 * ((X[:, None] - Z[None]) ** 2 @ p[2:])
    inverse_alpha = jnp.maximum(p[1], FLAT)
    return p[0] * jnp.exp(-jnp.log1p(inverse_alpha * h) / inverse_alpha)


_KERNELS = {"main effects": _main_effects, "rational quadratic": _rational_quadratic}


@jax_funcify.register(KernelMatrix)
def _kernel(op: KernelMatrix, **kwargs: Any) -> Call:
    return _KERNELS[op.kernel]


@jax_funcify.register(KernelContraction)
def _contraction(op: KernelContraction, **kwargs: Any) -> Call:
    def call(X: Any, Z: Any, p: Any, G: Any) -> Any:
        return jax.vjp(lambda p: _KERNELS[op.kernel](X, Z, p), p)[1](G)[0]

    return call


def _on_the_host(op: DifferentiableOp) -> Call:
    """The function of an operation as a callback."""

    def on_the_host(*arrays: Any) -> tuple[Any, ...]:
        return tuple(np.asarray(out) for out in op.function()(*(np.asarray(a, dtype=np.float64) for a in arrays)))

    def call(*arrays: Any) -> Any:
        shapes = op.infer_shape(None, [np.shape(array) for array in arrays])
        outputs = tuple(jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes)
        return jax.pure_callback(on_the_host, outputs, *arrays, vmap_method="sequential")

    return call


def _with_gradient(op: DifferentiableOp, call: Call) -> Call:
    """A function with the inputs, outputs and derivatives of an operation."""
    function = jax.custom_vjp(call)

    def forward(*inputs: Any) -> Any:
        outputs = call(*inputs)
        return outputs, (outputs, [jnp.zeros_like(x) for x in inputs])

    def backward(kept: Any, cotangents: Any) -> Any:
        outputs, found = kept
        for place, output in op.gradients.items():
            by = cotangents[0] * outputs[output]
            # One column of parameters belongs to all rows.
            found[place] = by if by.shape == found[place].shape else by.sum(axis=1, keepdims=True)
        return tuple(found)

    function.defvjp(forward, backward)
    return function

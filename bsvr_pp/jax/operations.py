"""Our operations in the JAX back end of PyTensor: mean field of exact targets natively, all others by callbacks.

A callback runs the compiled core on the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.basic import jax_funcify

from bsvr_pp.approximations.operation import LatentEvidence
from bsvr_pp.jax.solve import by_parameters, solve
from bsvr_pp.losses.density import DifferentiableOp

__all__ = ["register"]

Call = Callable[..., Any]


def register() -> None:
    """Register the operations."""

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


def _on_the_host(op: DifferentiableOp) -> Call:
    """The function of an operation as a callback."""

    def on_the_host(*arrays: Any) -> tuple[Any, ...]:
        return tuple(np.asarray(out) for out in op.function()(*(np.asarray(a, dtype=np.float64) for a in arrays)))

    def call(*arrays: Any) -> Any:
        shapes = op.infer_shape(None, [array.shape for array in arrays])
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

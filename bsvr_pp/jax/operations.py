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

from bsvr_pp.approximations.operation import LatentEvidence, evidence_function
from bsvr_pp.jax.solve import by_parameters, solve
from bsvr_pp.losses.density import LogFactor

__all__ = ["register"]

Call = Callable[..., Any]


def register() -> None:
    """Register the operations."""

    @jax_funcify.register(LatentEvidence)
    def _evidence(op: LatentEvidence, **kwargs: Any) -> Call:
        callback = _on_the_host(evidence_function(op.approximation, op.loss, op.mismatch), _evidence_shapes)

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

        def pull(by: Any, out: Any) -> dict[int, Any]:
            return {place: by * out[i] for i, place in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 5))}

        return _with_gradient(native if op.exact and op.approximation == "mean_field" else callback, pull)

    @jax_funcify.register(LogFactor)
    def _factor(op: LogFactor, **kwargs: Any) -> Call:
        callback = _on_the_host(op.function(), _factor_shapes)
        return _with_gradient(callback, lambda by, out: {0: by * out[1], 1: by[:, None] * out[2], 2: by * out[3]})


def _evidence_shapes(K: Any, mean: Any, lower: Any, upper: Any, weight: Any, *rest: Any) -> list[Any]:
    parameters, _, start = rest
    return [(), K.shape, mean.shape, lower.shape, upper.shape, parameters.shape, (), start.shape]


def _factor_shapes(s: Any, ends: Any, parameters: Any) -> list[Any]:
    return [s.shape, s.shape, ends.shape, (parameters.shape[0], *s.shape)]


def _on_the_host(function: Call, shapes: Callable[..., list[Any]]) -> Call:
    """A function of arrays as a callback; ``shapes`` gives those of its outputs from its inputs."""

    def on_the_host(*arrays: Any) -> tuple[Any, ...]:
        return tuple(np.asarray(out) for out in function(*(np.asarray(a, dtype=np.float64) for a in arrays)))

    def call(*arrays: Any) -> Any:
        outputs = tuple(jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes(*arrays))
        return jax.pure_callback(on_the_host, outputs, *arrays, vmap_method="sequential")

    return call


def _with_gradient(call: Call, pull: Callable[[Any, Any], dict[int, Any]]) -> Call:
    """A function whose first output has derivatives: ``pull`` makes them from its cotangent and the outputs."""
    function = jax.custom_vjp(call)

    def forward(*inputs: Any) -> Any:
        outputs = call(*inputs)
        return outputs, (outputs, [jnp.zeros_like(x) for x in inputs])

    def backward(kept: Any, cotangents: Any) -> Any:
        outputs, nothing = kept
        found = dict(enumerate(nothing)) | pull(cotangents[0], outputs)
        # One column of parameters belongs to all rows.
        pairs = zip(found.values(), nothing, strict=True)
        return tuple(x if x.shape == y.shape else x.sum(axis=1, keepdims=True) for x, y in pairs)

    function.defvjp(forward, backward)
    return function

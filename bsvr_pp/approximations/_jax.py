"""`LatentEvidence` in JAX: mean field and local Laplace natively; exact Laplace and intervals by a callback.

The callback calls the compiled solve on the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from bsvr_pp.approximations.operation import LatentEvidence, evidence_function

__all__ = ["register"]


@cache
def register() -> bool:
    """Register the operation in the JAX back end of PyTensor, if JAX is installed; return whether it is."""
    if find_spec("jax") is None:
        return False
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch.basic import jax_funcify

    from bsvr_pp.approximations.jax_pieces import TABLES
    from bsvr_pp.approximations.jax_solve import SOLVERS, by_parameters, solve

    def native(op: LatentEvidence) -> Callable[..., tuple[Any, ...]]:
        def call(K: Any, t: Any, y: Any, parameters: Any, jitter: Any, start: Any, ends: Any) -> tuple[Any, ...]:
            n = t.shape[0]
            used, matrix = jnp.ones(n, bool), K + jitter * jnp.eye(n)
            found = solve(op.approximation, op.loss, matrix, t, y, parameters, used, start)
            sites = jnp.stack([found.dual_coef, found.site_precision])
            converged, by = found.converged.astype(float), by_parameters(found, parameters)
            return found.value, found.by_K, found.by_residual, by, converged, sites, jnp.zeros_like(ends)

        return call

    def callback(op: LatentEvidence) -> Callable[..., tuple[Any, ...]]:
        compiled = evidence_function(op.approximation, op.loss)

        def on_the_host(*arrays: Any) -> tuple[Any, ...]:
            return tuple(np.asarray(out) for out in compiled(*(np.asarray(a, dtype=np.float64) for a in arrays)))

        def call(K: Any, t: Any, y: Any, parameters: Any, jitter: Any, start: Any, ends: Any) -> Any:
            shapes = [(), K.shape, t.shape, parameters.shape, (), start.shape, ends.shape]
            outputs = tuple(jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes)
            given = (K, t, y, parameters, jitter, start, ends)
            return jax.pure_callback(on_the_host, outputs, *given, vmap_method="sequential")

        return call

    @jax_funcify.register(LatentEvidence)
    def _funcify(op: LatentEvidence, **kwargs: Any) -> Any:
        in_jax, on_the_host = native(op), callback(op)
        possible = op.approximation in SOLVERS and op.loss in TABLES

        def call(K: Any, t: Any, y: Any, parameters: Any, jitter: Any, start: Any, ends: Any) -> Any:
            exact = ends.shape[0] == 0  # no intervals
            return (in_jax if possible and exact else on_the_host)(K, t, y, parameters, jitter, start, ends)

        evidence = jax.custom_vjp(call)

        def forward(K: Any, t: Any, y: Any, parameters: Any, jitter: Any, start: Any, ends: Any) -> Any:
            outputs = call(K, t, y, parameters, jitter, start, ends)
            return outputs, (*outputs[1:4], outputs[6], y, jitter, start)

        def backward(kept: Any, cotangents: Any) -> Any:
            by_K, by_t, by_parameters, by_ends, *others = kept
            by_value = cotangents[0]
            nothing = [0.0 * other for other in others]  # y, jitter, start
            first = by_value * by_K, by_value * by_t, nothing[0], by_value * by_parameters
            return *first, *nothing[1:], by_value * by_ends

        evidence.defvjp(forward, backward)
        return evidence

    return True

"""`LogFactor` in JAX by a callback, which calls the compiled function on the processor; derivatives as in `mass`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

__all__ = ["register"]


@cache
def register(op_type: type[Any], function: Callable[[str], Callable[..., Any]]) -> bool:
    """Register an operation in the JAX back end of PyTensor, if JAX is installed; return whether it is.

    Parameters
    ----------
    op_type : type
        `bsvr_pp.losses.mass.LogFactor`.
    function : callable
        Maps the name of a loss to the function of arrays that the operation evaluates.
    """
    if find_spec("jax") is None:
        return False
    import jax
    from pytensor.link.jax.dispatch.basic import jax_funcify

    @jax_funcify.register(op_type)
    def _funcify(op: Any, **kwargs: Any) -> Any:
        evaluate = function(op.loss)

        def on_the_host(*arrays: Any) -> tuple[Any, ...]:
            return tuple(np.asarray(out) for out in evaluate(*(np.asarray(a, dtype=np.float64) for a in arrays)))

        def call(s: Any, ends: Any, parameters: Any) -> Any:
            outputs = tuple(jax.ShapeDtypeStruct(a.shape, np.float64) for a in (s, s, ends, parameters))
            return jax.pure_callback(on_the_host, outputs, s, ends, parameters, vmap_method="sequential")

        factor = jax.custom_vjp(call)

        def forward(s: Any, ends: Any, parameters: Any) -> Any:
            outputs = call(s, ends, parameters)
            return outputs, outputs[1:]

        def backward(kept: Any, cotangents: Any) -> Any:
            by_s, by_ends, by_parameters = kept
            by = cotangents[0]
            return by * by_s, by[:, None] * by_ends, by * by_parameters

        factor.defvjp(forward, backward)
        return factor

    return True

"""The factor of a target that is known to lie in an interval, as a node of a PyTensor graph.

`log_factor` is the log of P(lower < f + noise ≤ upper), or of the density where both ends are equal, for any noise of
the registry (`bsvr_pp.losses.intervals`). One pass computes the value and its derivatives by f, the ends and each
parameter. The same compiled code is used by PyTensor's Python back end, by Numba, and by JAX through a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bsvr_pp._compiler import compiled, core_stamp
from bsvr_pp._device import load_jax
from bsvr_pp.losses.factors import site_derivatives
from bsvr_pp.losses.pieces import Pieces
from bsvr_pp.losses.registry import LOSSES

__all__ = ["LogFactor", "log_factor", "log_factor_function", "relative_ends"]

Array = NDArray[np.float64]


def log_factor(loss: str, mu: Any, lower: Any, upper: Any, parameters: Sequence[Any]) -> Any:
    """Log probability that mu plus noise of a loss lies in (lower, upper], as a graph, elementwise.

    Equal ends have the density of the noise there; if lower is above upper, or both are infinite, the value is -inf.
    """
    load_jax()
    given = [pt.as_tensor_variable(x).astype("float64") for x in (mu, lower, upper, *parameters)]
    mu, lower, upper, *rest = pt.broadcast_arrays(*given)
    reference, ends = relative_ends(lower.ravel(), upper.ravel())
    rows = pt.stack([p.ravel() for p in rest])
    return LogFactor(loss)(reference - mu.ravel(), ends, rows)[0].reshape(mu.shape)


def relative_ends(lower: Any, upper: Any) -> tuple[Any, Any]:
    """A finite end of each interval (n,), and both ends relative to it (n, 2); infinite ends have no gradients."""
    finite = pt.switch(pt.isinf(lower), 0.0, lower)
    reference = pt.switch(pt.isinf(lower), upper, lower)
    low = pt.switch(pt.isinf(lower), lower, finite - reference)
    high = pt.switch(pt.isinf(upper), upper, upper - reference)
    return reference, pt.stack([low, high], axis=1)


class LogFactor(Op):
    """Log factor of residuals (n,) with relative ends (n, 2) and parameters (p, n), with its derivatives by all."""

    __props__ = ("loss",)

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def make_node(self, s: Any, ends: Any, parameters: Any) -> Apply:
        """Apply to residuals, ends and parameters."""
        return Apply(self, [s, ends, parameters], [pt.dvector(), pt.dvector(), pt.dmatrix(), pt.dmatrix()])

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: Sequence[list[Any]]) -> None:
        """Evaluate."""
        for storage, found in zip(output_storage, _factor(self.loss, False)(*inputs), strict=True):
            storage[0] = found

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs."""
        return [shapes[0], *shapes]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the derivatives, which were computed with the value, times the cotangent of the value."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("the log factor of an interval has no second derivatives")
        by = cotangents[0]
        return [by * outputs[1], by[:, None] * outputs[2], by * outputs[3]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the value is differentiable."""
        return [[True, False, False, False]] * 3


@compiled
def _with_gradients(s: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    n, p = s.shape[0], pieces.d_energy.shape[0]
    value, by_s, by_ends, by_parameters = np.full(n, -np.inf), np.zeros(n), np.zeros((n, 2)), np.zeros((p, n))
    here = np.empty(p)
    for i in range(n):
        low, high = pieces.ends[i, 0], pieces.ends[i, 1]
        if low == high or (low < high and (np.isfinite(low) or np.isfinite(high)) and np.isfinite(s[i])):
            value[i], by_s[i], by_ends[i, 0], by_ends[i, 1] = site_derivatives(s[i], i, pieces, here)
            for q in range(p):
                by_parameters[q, i] = here[q]
    return value, by_s, by_ends, by_parameters


@cache
def _factor(loss: str, for_numba: bool) -> Callable[..., Any]:
    table = LOSSES[loss].table

    def factor(s: Array, ends: Array, parameters: Array) -> Any:
        residual = s.copy()  # contiguous
        pieces = table(parameters.copy(), residual)  # a row for each point, as the parameters have
        for i in range(residual.shape[0]):
            pieces.ends[i, 0], pieces.ends[i, 1] = ends[i, 0], ends[i, 1]
        return _with_gradients(residual, pieces)

    return numba_njit(factor) if for_numba else factor


def log_factor_function(loss: str) -> Callable[..., Any]:
    """The operation on arrays: residuals (n,), relative ends (n, 2), and parameters (p, n)."""
    return _factor(loss, False)


@register_funcify_default_op_cache_key(LogFactor)
def _numba_factor(op: LogFactor, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return _factor(op.loss, True), core_stamp()

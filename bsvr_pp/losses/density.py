"""The log density and the quantiles of any noise as nodes of a PyTensor graph, from its table of pieces.

A noise of the registry has a PyMC distribution through these two operations (`bsvr_pp.model.distributions`). The table
gives the derivatives of the log density by the residual and by each parameter, so that one pass computes value and
gradients. The same compiled code is used by PyTensor's Python back end and by Numba; JAX is not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bsvr_pp._compiler import compiled, core_stamp
from bsvr_pp.losses.elementwise import quantile
from bsvr_pp.losses.pieces import Pieces, energy
from bsvr_pp.losses.registry import LOSSES

__all__ = ["density_with_gradients", "log_density", "noise_quantile"]

Array = NDArray[np.float64]


def log_density(loss: str, r: Any, parameters: Sequence[Any]) -> Any:
    """Log of the noise density exp(-E(r))/Z as a graph, elementwise in r and the parameters of a loss of residuals."""
    flat, rows, shape = _rows(r, parameters)
    return NoiseDensity(loss)(flat, rows)[0].reshape(shape)


def noise_quantile(loss: str, q: Any, parameters: Sequence[Any]) -> Any:
    """Quantile of the noise for the probability q as a graph without gradients, elementwise."""
    flat, rows, shape = _rows(q, parameters)
    return NoiseQuantile(loss)(flat, rows).reshape(shape)


def _rows(values: Any, parameters: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Flat values, parameters as (p, 1) if all are numbers and (p, n) otherwise, and the shape of the result."""
    values = pt.as_tensor_variable(values).astype("float64")
    given = [pt.as_tensor_variable(p).astype("float64") for p in parameters]
    if all(p.type.ndim == 0 for p in given):
        return values.ravel(), pt.stack(given)[:, None], values.shape
    values, *given = pt.broadcast_arrays(values, *given)
    return values.ravel(), pt.stack([p.ravel() for p in given]), values.shape


class _OfTable(Op):
    """A function of values (n,) and parameters (p, k), k = 1 or n, from the table of a loss, in Python and in Numba."""

    __props__ = ("loss",)

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def function(self) -> Callable[..., Any]:
        """The function on arrays, which Numba can compile."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: Sequence[list[Any]]) -> None:
        """Evaluate."""
        found = self.function()(*inputs)
        for storage, value in zip(output_storage, found if len(output_storage) > 1 else [found], strict=True):
            storage[0] = value


class NoiseDensity(_OfTable):
    """Log density of residuals, with its derivatives by both."""

    def make_node(self, r: Any, parameters: Any) -> Apply:
        """Apply to residuals and parameters."""
        return Apply(self, [r, parameters], [pt.dvector(), pt.dvector(), pt.dmatrix()])

    def function(self) -> Callable[..., Any]:
        """Table, then its density."""
        table = LOSSES[self.loss].table

        def density(r: Array, parameters: Array) -> Any:
            return density_with_gradients(r, table(parameters.copy(), r))

        return density

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs."""
        return [shapes[0], shapes[0], (shapes[1][0], shapes[0][0])]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the derivatives, which were computed with the value, times the cotangent of the value."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("the log density of a noise has no second derivatives")
        by_parameters = cotangents[0] * outputs[2]
        if inputs[1].type.shape[1] == 1:
            by_parameters = by_parameters.sum(axis=1, keepdims=True)
        return [cotangents[0] * outputs[1], by_parameters]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the value is differentiable."""
        return [[True, False, False], [True, False, False]]


class NoiseQuantile(_OfTable):
    """Quantiles of the noise at probabilities."""

    def make_node(self, q: Any, parameters: Any) -> Apply:
        """Apply to probabilities and parameters."""
        return Apply(self, [q, parameters], [pt.dvector()])

    def function(self) -> Callable[..., Any]:
        """Table, then its quantiles."""
        table = LOSSES[self.loss].table

        def inverse(q: Array, parameters: Array) -> Any:
            q = q.copy()  # contiguous
            pieces = table(parameters.copy(), q)
            rows = np.arange(q.shape[0]) if pieces.knots.shape[0] > 1 else np.zeros(q.shape[0], np.int64)
            return quantile(q, rows, pieces)

        return inverse

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output."""
        return [shapes[0]]


@compiled
def density_with_gradients(r: Array, pieces: Pieces) -> tuple[Array, Array, Array]:
    """Log density, and its derivatives by the residual and by the parameters (`Pieces`)."""
    n, p = r.shape[0], pieces.d_energy.shape[0]
    value, by_r, by_parameters = np.empty(n), np.empty(n), np.empty((p, n))
    for i in range(n):
        k = i if pieces.knots.shape[0] > 1 else 0
        knots = pieces.knots[k]
        energy_at_r, slope, _, j = energy(r[i], knots, pieces.value[k], pieces.slope[k], pieces.curvature[k])
        value[i] = -energy_at_r - pieces.log_normalizer[k]
        by_r[i] = -slope
        u = r[i] - knots[max(j - 1, 0)]
        if 0 < j < knots.shape[0]:
            u /= knots[j] - knots[j - 1]
        for q in range(p):
            c = pieces.d_energy[q, k, j]
            by_parameters[q, i] = -(c[0] + u * (c[1] + u * c[2])) - pieces.d_log_normalizer[q, k]
    return value, by_r, by_parameters


@register_funcify_default_op_cache_key(_OfTable)
def _numba(op: _OfTable, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return numba_njit(op.function()), core_stamp()

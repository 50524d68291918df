"""The log density, the log mass of an interval and the quantiles of any noise as nodes of a PyTensor graph.

A noise of the registry has a PyMC distribution through these operations (`bsvr_pp.model.distributions`,
`bsvr_pp.model.row_kinds`). The table gives the derivatives by the residual, the ends of an interval and each parameter,
so that one pass computes value and gradients. PyTensor's Python back end and Numba use the same compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType

from bsvr_pp.core.arrays import Array, Tensor
from bsvr_pp.core.compiler import compiled, core_stamp
from bsvr_pp.core.losses.elementwise import quantile
from bsvr_pp.core.losses.factors import of_rows, row_of, site_derivatives
from bsvr_pp.core.losses.pieces import Pieces
from bsvr_pp.core.losses.registry import LOSSES

type Shape = Sequence[Tensor]  # of an input or an output, as graphs
type Graphs = Sequence[Variable]  # inputs or outputs


def log_density(loss: str, r: TensorLike, parameters: Sequence[TensorLike]) -> Tensor:
    """Log of the noise density exp(-E(r))/Z as a graph, elementwise in r and the parameters of a loss of residuals."""
    flat, rows, shape = _rows(r, parameters)
    return LogFactor(loss).of(flat, pt.zeros((2, flat.shape[0])), rows)[0].reshape(shape)


def log_factor(
    loss: str, mu: TensorLike, lower: TensorLike, upper: TensorLike, parameters: Sequence[TensorLike]
) -> Tensor:
    """Log probability that mu plus noise is in (lower, upper]: a density at equal ends, -inf at impossible ones."""
    given = [pt.as_tensor_variable(x).astype("float64") for x in (mu, lower, upper, *parameters)]
    at, low, high, *rest = pt.broadcast_arrays(*given)
    reference, ends = _relative_ends(low.ravel(), high.ravel())
    rows = pt.stack([p.ravel() for p in rest])
    return LogFactor(loss).of(reference - at.ravel(), ends, rows)[0].reshape(at.shape)


def noise_quantile(loss: str, q: TensorLike, parameters: Sequence[TensorLike]) -> Tensor:
    """Quantile of the noise for the probability q as a graph, elementwise."""
    flat, rows, shape = _rows(q, parameters)
    return NoiseQuantile(loss).of(flat, rows)[0].reshape(shape)


def _relative_ends(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """A finite end of each interval (n,), and both ends relative to it (2, n); infinite ends have no gradients."""
    finite = pt.switch(pt.isinf(lower), 0.0, lower)
    reference = pt.switch(pt.isinf(lower), upper, lower)
    low = pt.switch(pt.isinf(lower), lower, finite - reference)
    high = pt.switch(pt.isinf(upper), upper, upper - reference)
    return reference, pt.stack([low, high])


def _rows(given_values: TensorLike, parameters: Sequence[TensorLike]) -> tuple[Tensor, Tensor, Tensor]:
    """Flat values, parameters as (p, 1) if all are numbers and (p, n) otherwise, and the shape of the result."""
    values = pt.as_tensor_variable(given_values).astype("float64")
    given = [pt.as_tensor_variable(p).astype("float64") for p in parameters]
    if all(p.type.ndim == 0 for p in given):
        return values.ravel(), pt.stack(given)[:, None], values.shape
    values, *given = pt.broadcast_arrays(values, *given)
    return values.ravel(), pt.stack([p.ravel() for p in given]), values.shape


class CompiledOp(Op):
    """A function of arrays as a node of a graph: the same compiled code in Python and in Numba."""

    results: ClassVar[tuple[TensorType, ...]]

    def make_node(self, *inputs: TensorLike) -> Apply:
        """Apply to tensors."""
        given = [pt.as_tensor_variable(x).astype("float64") for x in inputs]
        return Apply(self, given, [result() for result in self.results])

    def of(self, *inputs: TensorLike) -> list[Tensor]:
        """The outputs for some inputs, as graphs."""
        return cast(list[Tensor], self.make_node(*inputs).outputs)

    def function(self) -> Callable[..., Array | tuple[Array, ...]]:
        """The function on arrays, which Numba can compile."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: list[list[Array | None]]) -> None:
        """Compute the outputs."""
        found = self.function()(*inputs)
        for storage, value in zip(output_storage, found if len(output_storage) > 1 else [found], strict=True):
            storage[0] = np.asarray(value)


@register_funcify_default_op_cache_key(CompiledOp)
def _numba(op: CompiledOp, node: Apply, **kwargs: object) -> tuple[Callable[..., object], int]:
    return numba_njit(op.function()), core_stamp()


def _like(given: Variable, slopes: Tensor) -> Tensor:
    """Derivatives by an input: one column of it is of all rows."""
    return slopes.sum(axis=1, keepdims=True) if given.type.ndim == 2 and given.type.shape[1] == 1 else slopes


class DifferentiableOp(CompiledOp):
    """An operation whose first output has derivatives as outputs: ``gradients`` maps places of inputs to theirs."""

    gradients: ClassVar[dict[int, int]]
    named: ClassVar[str]  # in an error

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """Return the derivatives times the cotangent of the first output."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError(f"{self.named} has no second derivatives")
        found = [DisconnectedType()() for _ in inputs]
        for place, output in self.gradients.items():
            found[place] = _like(inputs[place], pt.mul(cotangents[0], outputs[output]))
        return found

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Which output depends on which input, where there are derivatives."""
        others = [False] * (len(node.outputs) - 1)
        return [[place in self.gradients, *others] for place in range(len(node.inputs))]


class LogFactor(DifferentiableOp):
    """Log factor of residuals (n,) with relative ends (2, n), equal for a density, parameters (p, k), k = 1 or n."""

    __props__ = ("loss",)
    results = pt.dvector, pt.dvector, pt.dmatrix, pt.dmatrix
    gradients: ClassVar = {0: 1, 1: 2, 2: 3}
    named = "the log density of a noise"

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def function(self) -> Callable[..., tuple[Array, ...]]:
        """Table of the rows, then their factors."""
        table = LOSSES[self.loss].table

        def factor(s: Array, ends: Array, parameters: Array) -> tuple[Array, ...]:
            residual = s.copy()  # contiguous
            pieces = of_rows(
                table(parameters.copy(), residual), np.ascontiguousarray(ends.T), np.ones(residual.shape[0])
            )
            return _with_gradients(residual, pieces)

        return factor

    def infer_shape(self, node: Apply, shapes: Sequence[Shape]) -> list[Shape]:
        """Shapes of the outputs."""
        return [shapes[0], shapes[0], shapes[1], (shapes[2][0], shapes[0][0])]


class NoiseQuantile(CompiledOp):
    """Quantiles of the noise at probabilities."""

    __props__ = ("loss",)
    results = (pt.dvector,)

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def function(self) -> Callable[..., Array]:
        """Table, then its quantiles."""
        table = LOSSES[self.loss].table

        def inverse(q: Array, parameters: Array) -> Array:
            q = q.copy()  # contiguous
            pieces = table(parameters.copy(), q)
            rows = np.arange(q.shape[0]) if pieces.knots.shape[0] > 1 else np.zeros(q.shape[0], np.int64)
            return quantile(q, rows, pieces)

        return inverse

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """Return the derivatives of the smaller tail's mass, from the quantile's derivatives."""
        below = pt.lt(inputs[0], 0.5)
        ends = pt.stack([pt.switch(below, -np.inf, 0.0), pt.switch(below, 0.0, np.inf)])
        log_mass, by_quantile, _, by_parameters = LogFactor(self.loss).of(outputs[0], ends, inputs[1])
        by = pt.true_div(cotangents[0], by_quantile)
        return [pt.switch(below, by, -by) * pt.exp(-log_mass), _like(inputs[1], -by * by_parameters)]

    def infer_shape(self, node: Apply, shapes: Sequence[Shape]) -> list[Shape]:
        """Shape of the output."""
        return [shapes[0]]


@compiled
def _with_gradients(s: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Log factor of each row, and its derivatives by s, ends and parameters; -inf and 0 where there is no interval."""
    n, p = s.shape[0], pieces.d_energy.shape[0]
    value, by_s, by_ends, by_parameters = np.full(n, -np.inf), np.zeros(n), np.zeros((2, n)), np.zeros((p, n))
    here = np.empty(p)
    for i in range(n):
        k = row_of(i, pieces)
        low, high = pieces.ends[k, 0], pieces.ends[k, 1]
        if low == high or (low < high and (np.isfinite(low) or np.isfinite(high)) and np.isfinite(s[i])):
            value[i], by_s[i], by_ends[0, i], by_ends[1, i] = site_derivatives(s[i], k, pieces, here)
            for q in range(p):
                by_parameters[q, i] = here[q]
    return value, by_s, by_ends, by_parameters

"""Compiled functions of arrays as nodes of PyTensor graphs: the evidence of f, and the density of any noise.

`LatentEvidence` computes the log evidence and all its gradients from one solve. Its pullback multiplies them by the
cotangent, so PyTensor handles any kernel, prior and transform around it. The C and Python back ends use the same
machine code, and Numba calls it by its address. There is no shared state, since samplers run chains in threads. If a
solve fails, the value is -inf, the gradients are zero, and the convergence flag is 0.

The PyMC distribution of a noise of the registry uses its log density, log masses of intervals and quantiles
(`bsvr_pp.model.distributions`, `bsvr_pp.model.row_kinds`). Their derivatives come from the table of pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from numba import types
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from bsvr_pp.core.approximations.laplace import laplace_core
from bsvr_pp.core.approximations.mean_field import TARGET, mean_field_core, of_sites
from bsvr_pp.core.approximations.posterior import sites_of
from bsvr_pp.core.arrays import Array, Tensor
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, core_stamp, separate
from bsvr_pp.core.covariance.structure import STRUCTURE, Structure, given_root, split
from bsvr_pp.core.losses.elementwise import quantile
from bsvr_pp.core.losses.factors import of_rows, row_of, site_derivatives
from bsvr_pp.core.losses.pieces import PIECES, Pieces
from bsvr_pp.core.losses.registry import LIKELIHOODS, LOSSES

type Graphs = Sequence[Variable]  # inputs or outputs


def log_factor(
    loss: str, mu: TensorLike, lower: TensorLike, upper: TensorLike, parameters: Sequence[TensorLike]
) -> Tensor:
    """Return the log probability of mu + noise in (lower, upper]: a density at equal ends, -inf at invalid ones."""
    at, low, high, rows, shape = _flat(loss, [mu, lower, upper], parameters)
    reference = pt.switch(pt.isinf(low), high, low)  # a finite end; the ends are relative to it
    ends = pt.stack([pt.switch(pt.isinf(low), low, 0.0), pt.switch(pt.isinf(high), high, high - reference)])
    return LogFactor(loss).of(reference - at, ends, rows)[0].reshape(shape)


def noise_quantile(loss: str, q: TensorLike, parameters: Sequence[TensorLike]) -> Tensor:
    """Return the quantile of the noise for the probability q as a graph, elementwise."""
    flat, rows, shape = _flat(loss, [q], parameters)
    return NoiseQuantile(loss).of(flat, rows)[0].reshape(shape)


def _flat(loss: str, values: Sequence[TensorLike], parameters: Sequence[TensorLike]) -> tuple[Tensor, ...]:
    """Return flat values, parameters, (p, 1) if all are numbers, 0.5 for invalid ones, and the shape of the result."""
    safe = [pt.switch(ok, x, 0.5) for ok, x in zip(valid_parameters(loss, parameters), parameters, strict=True)]
    given = [pt.as_tensor_variable(x).astype("float64") for x in (*values, *safe)]
    count = len(values) if all(p.type.ndim == 0 for p in given[len(values) :]) else len(given)
    alike = pt.broadcast_arrays(*given[:count])
    flat = [x.ravel() for x in (*alike, *given[count:])]
    return *flat[: len(values)], pt.stack(flat[len(values) :]), alike[0].shape


class CompiledOp(Op):
    """A function of arrays as a node of a graph: the same compiled code in Python and in Numba."""

    signature: ClassVar[str]  # axes of inputs and outputs, as in generalised ufuncs of NumPy

    def make_node(self, *inputs: TensorLike) -> Apply:
        """Apply to tensors."""
        given = [pt.as_tensor_variable(x).astype("float64") for x in inputs]
        return Apply(self, given, [pt.tensor(dtype="float64", shape=(None,) * len(axes)) for axes in self._axes(1)])

    def infer_shape(self, node: Apply, shapes: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Return shapes of the outputs."""
        sizes: dict[str, Tensor] = {}
        for axes, shape in zip(self._axes(0), shapes, strict=True):
            sizes = dict(zip(axes, shape, strict=True)) | sizes
        return [[sizes[axis] for axis in axes] for axes in self._axes(1)]

    def _axes(self, side: int) -> list[list[str]]:
        """Return names of the axes of each input or output."""
        return [re.findall(r"\w+", axes) for axes in re.findall(r"\((.*?)\)", self.signature.split("->")[side])]

    def of(self, *inputs: TensorLike) -> list[Tensor]:
        """Return the outputs for some inputs, as graphs."""
        return cast(list[Tensor], self.make_node(*inputs).outputs)

    def function(self) -> Callable[..., Array | tuple[Array, ...]]:
        """Return the function on arrays, which Numba can compile."""
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
    """Return derivatives by an input, summed over rows if it has one column for all."""
    return slopes.sum(axis=1, keepdims=True) if given.type.ndim == 2 and given.type.shape[1] == 1 else slopes


class DifferentiableOp(CompiledOp):
    """An operation with derivatives of its first output as outputs: ``gradients`` maps input to output places."""

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
        """Return which output depends on which input, for the given derivatives."""
        others = [False] * (len(node.outputs) - 1)
        return [[place in self.gradients, *others] for place in range(len(node.inputs))]


class LogFactor(DifferentiableOp):
    """Log factor of residuals (n,) with relative ends (2, n), equal for a density, parameters (p, k), k = 1 or n."""

    __props__ = ("loss",)
    signature = "(n),(2,n),(p,k)->(n),(n),(2,n),(p,n)"
    gradients: ClassVar = {0: 1, 1: 2, 2: 3}
    named = "the log density of a noise"

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def function(self) -> Callable[..., tuple[Array, ...]]:
        """Return the table of the rows, then their factors."""
        table = LOSSES[self.loss].table

        def factor(s: Array, ends: Array, parameters: Array) -> tuple[Array, ...]:
            residual = s.copy()  # contiguous
            pieces = of_rows(
                table(parameters.copy(), residual), np.ascontiguousarray(ends.T), np.ones(residual.shape[0])
            )
            return _with_gradients(residual, pieces)

        return factor


class NoiseQuantile(CompiledOp):
    """Quantiles of the noise at probabilities."""

    __props__ = ("loss",)
    signature = "(n),(p,k)->(n)"

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def function(self) -> Callable[..., Array]:
        """Return the table, then its quantiles."""
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


@compiled
def _with_gradients(s: Array, pieces: Pieces) -> tuple[Array, Array, Array, Array]:
    """Return log factor of each row, its derivatives by s, ends and parameters; -inf and 0 for invalid intervals."""
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


APPROXIMATIONS = ("laplace", "laplace_local", "mean_field")
_LOCAL, _MEAN_FIELD = 1, 2  # their places in it
# In a search errors of the evidence are below 1e-5 nats, of gradients below 1e-4. With 3e-3, steps fail in valleys.
_SEARCH_MISMATCH = 1e-3


class CovarianceGraph(NamedTuple):
    """Prior covariance as a graph: a matrix (n, n), or ``by_root`` a root (n, r), and ``jitter`` on its diagonal."""

    given: TensorVariable
    jitter: TensorLike = 0.0
    by_root: bool = False

    @property
    def smooth(self) -> TensorVariable:
        """The covariance without the jitter."""
        return self.given @ self.given.T if self.by_root else self.given

    @property
    def matrix(self) -> TensorVariable:
        """The covariance including the jitter."""
        return self.smooth + self.jitter * pt.eye(self.given.shape[0])

    @property
    def factor(self) -> TensorVariable:
        """A matrix F with F·Fᵀ equal to the covariance; a root alone has no jitter."""
        return self.given if self.by_root else pt.linalg.cholesky(self.matrix)


class TargetsGraph(NamedTuple):
    """The targets as graphs (n,): lower and upper ends, equal for exact targets, and weights."""

    lower: TensorVariable
    upper: TensorVariable
    weight: TensorVariable

    @classmethod
    def of(cls, lower: TensorLike, upper: TensorLike | None = None, weight: TensorLike = 1.0) -> TargetsGraph:
        """Make it from targets or both their ends, and from weights or one weight for all."""
        given = (lower, lower if upper is None else upper, weight)
        low, high, weights = (pt.as_tensor_variable(each).astype("float64") for each in given)
        return cls(low, high, pt.broadcast_to(weights, low.shape) if weights.ndim == 0 else weights)


class LatentEvidence(DifferentiableOp):
    """Log evidence of targets under a Gaussian process and a noise model.

    Inputs: K (n, n), or ``by_root`` a root (n, r) of it; prior mean (n,); lower and upper ends of the targets and their
    weights (n,); loss parameters (p, k) with k = 1 or n; jitter for K; the solution (2, n) of a similar problem, or
    zeros. Outputs: log evidence, its gradients by K, mean, ends and parameters, 1 or 0 for converged, and the solution.
    This is the dual coefficients and site precisions of Laplace, and of mean field the sites: their precisions times
    locations of f, and precisions, which are good starts for other K. Mean field ends at the ``mismatch`` of moments.
    The error of the evidence is of second order in it, and the error of the gradients of first order.
    """

    __props__ = ("approximation", "loss", "mismatch", "by_root")
    signature = "(n,r),(n),(n),(n),(n),(p,k),(),(2,n)->(),(n,r),(n),(n),(n),(p,k),(),(2,n)"
    gradients: ClassVar = {0: 1, 1: 2, 2: 3, 3: 4, 5: 5}  # none by the weights, the jitter and the start
    named = "LatentEvidence"

    def __init__(self, approximation: str, loss: str, mismatch: float = TARGET, by_root: bool = False) -> None:
        self.approximation, self.loss, self.mismatch, self.by_root = approximation, loss, mismatch, by_root

    def function(self) -> Callable[..., tuple[Array, ...]]:
        """Return the function on arrays, which Numba can compile."""
        which, table = APPROXIMATIONS.index(self.approximation), LIKELIHOODS[self.loss].table
        mismatch, by_root = self.mismatch, self.by_root

        def evidence(
            K: Array, mean: Array, lower: Array, upper: Array, weight: Array, values: Array, jitter: Array, start: Array
        ) -> tuple[Array, ...]:
            valid, covariance, offset, rows, given, sites = _checked(K, mean, lower, upper, weight, values, start)
            if valid and np.isfinite(jitter.item()):
                pieces, columns = table(given, rows[0]), given.shape[1]
                structure = _structure(covariance, jitter.item(), by_root)
                found = _solve(which, structure, offset, rows, pieces, columns, sites, mismatch)
            else:
                found = _failed(covariance, offset, given, sites)
            value, by_K, by_mean, by_lower, by_upper, by_parameters, converged, solution = found
            return np.asarray(value), by_K, by_mean, by_lower, by_upper, by_parameters, np.asarray(converged), solution

        return evidence


# Numba compiles loops several times faster than NumPy functions.
@compiled
def _checked(
    K: Array, mean: Array, lower: Array, upper: Array, weight: Array, parameters: Array, start: Array
) -> tuple[bool, Array, Array, Array, Array, Array]:
    """Return whether inputs are valid; contiguous K, mean, rows (finite and relative ends, weight), rest."""
    n, (p, k) = mean.shape[0], parameters.shape
    covariance, offset, rows = np.empty(K.shape), np.empty(n), np.empty((4, n))
    given, sites = np.empty((p, k)), np.empty((2, n))
    ordered, total = True, 0.0
    for i in range(n):
        reference = upper[i] if np.isinf(lower[i]) else lower[i]
        rows[0, i], rows[3, i], offset[i] = reference, weight[i], mean[i]
        rows[1, i] = lower[i] if np.isinf(lower[i]) else 0.0
        rows[2, i] = upper[i] - reference
        ordered = ordered and lower[i] <= upper[i]
        sites[0, i], sites[1, i] = start[0, i], start[1, i]
        total += reference + mean[i] + weight[i]
        for j in range(K.shape[1]):
            covariance[i, j] = K[i, j]
            total += covariance[i, j]
    for i in range(p):
        for j in range(k):
            given[i, j] = parameters[i, j]
            total += given[i, j]
    return ordered and np.isfinite(total), covariance, offset, rows, given, sites


@separate(STRUCTURE, MATRIX, types.float64, types.boolean)
def _structure(K: Array, jitter: float, by_root: bool) -> Structure:
    """Return the structure of K (adding the jitter in place), or of its root."""
    if by_root:
        return given_root(K, np.full(K.shape[0], jitter))
    for i in range(K.shape[0]):
        K[i, i] += jitter
    return split(K, jitter)


_OUTPUTS = types.Tuple((types.float64, MATRIX, VECTOR, VECTOR, VECTOR, MATRIX, types.float64, MATRIX))


@separate(_OUTPUTS, types.int64, STRUCTURE, VECTOR, MATRIX, PIECES, types.int64, MATRIX, types.float64)
def _solve(
    which: int, K: Structure, mean: Array, rows: Array, table: Pieces, columns: int, start: Array, mismatch: float
) -> tuple[float, Array, Array, Array, Array, Array, float, Array]:
    """Compute the outputs of `LatentEvidence`, and overwrite ``start``; parameters have ``columns`` values each."""
    t, ends = rows[0] - mean, np.ascontiguousarray(rows[1:3].T)
    pieces = of_rows(table, ends, rows[3])
    if which == _MEAN_FIELD:
        start[0] -= start[1] * mean
        found, gradients = mean_field_core(K, t, pieces, start, mismatch)
        solution = of_sites(K, sites_of(found))
        solution[0] += solution[1] * mean
    else:
        found, gradients = laplace_core(K, t, pieces, which == _LOCAL, start)
        solution = sites_of(found)
    by_parameters = np.zeros((pieces.d_energy.shape[0], columns))
    for i in range(by_parameters.shape[0]):  # the table may have one row per point even if the parameters are numbers
        for row in range(pieces.knots.shape[0]):
            by_parameters[i, row if columns > 1 else 0] += gradients.parameters[i, row]
    by_lower, by_upper = gradients.residual.copy(), gradients.ends[:, 1].copy()
    for i in range(t.shape[0]):
        if np.isinf(rows[1, i]):  # t is relative to the upper end
            by_lower[i], by_upper[i] = 0.0, gradients.residual[i]
        else:
            by_lower[i] -= by_upper[i]
    converged = 1.0 if found.converged else 0.0
    return found.value, gradients.K, -gradients.residual, by_lower, by_upper, by_parameters, converged, solution


@compiled
def _failed(
    K: Array, mean: Array, parameters: Array, start: Array
) -> tuple[float, Array, Array, Array, Array, Array, float, Array]:
    """Return the outputs of `LatentEvidence` for inputs that are not finite, or ends in the wrong order."""
    nothing = np.zeros_like(mean)
    return -np.inf, np.zeros_like(K), nothing, nothing.copy(), nothing.copy(), np.zeros_like(parameters), 0.0, start


def are_allowed(loss: str, parameters: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return whether each parameter of a likelihood is allowed, elementwise."""
    known = LIKELIHOODS[loss]
    pairs = zip(known.parameters, parameters, strict=True)
    return [cast(TensorVariable, known.parameter(name).holds(p)) for name, p in pairs]


def valid_parameters(loss: str, parameters: Sequence[TensorLike]) -> list[TensorVariable]:
    """Return whether each parameter is allowed and finite, elementwise."""
    given = [pt.as_tensor_variable(parameter) for parameter in parameters]
    return [ok & (x < np.inf) for ok, x in zip(are_allowed(loss, given), given, strict=True)]


def latent_evidence(
    approximation: str,
    loss: str,
    K: CovarianceGraph | TensorLike,
    mean: TensorLike,
    targets: TargetsGraph | TensorLike,
    parameters: Sequence[TensorLike],
    start: TensorVariable | None = None,
) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    """Return graphs of log evidence, convergence flag, and solution (2, n), a start for similar problems.

    The log evidence is -inf where a parameter is not allowed.
    """
    if approximation != "mean_field" and (refusal := LIKELIHOODS[loss].targets.refusal("mode", name=loss)):
        raise ValueError(refusal)
    known = targets if isinstance(targets, TargetsGraph) else TargetsGraph.of(targets)
    given = [pt.as_tensor_variable(p).astype("float64") for p in parameters]
    rows = [pt.atleast_1d(pt.switch(ok, p, np.nan)) for ok, p in zip(are_allowed(loss, given), given, strict=True)]
    if any(row.type.shape != (1,) for row in rows):
        rows = [pt.broadcast_to(row, known.lower.shape) for row in rows]
    covariance = K if isinstance(K, CovarianceGraph) else CovarianceGraph(pt.as_tensor_variable(K))
    n = known.lower.shape[0]
    offset = pt.broadcast_to(pt.as_tensor_variable(mean), (n,))
    begin = pt.zeros((2, n)) if start is None else start
    mismatch = TARGET if start is None or approximation != "mean_field" else _SEARCH_MISMATCH
    operation = LatentEvidence(approximation, loss, mismatch, covariance.by_root)
    outputs = operation.of(covariance.given, offset, *known, pt.stack(rows), covariance.jitter, begin)
    return outputs[0], outputs[6], outputs[7]

"""The evidence of a latent function as one node of a PyTensor graph.

`LatentEvidence` computes the log evidence and all its gradients from one solve; its pullback multiplies them by the
cotangent, so that any kernel, prior and transform around it is PyTensor's business. The same machine code
serves the C and Python back ends and, called by its address, Numba (whose samplers run chains in threads, so that there
is no shared state). If a solve fails, the value is -inf, the gradients are zero, and the convergence flag is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numba import types
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bsvr_pp._compiler import MATRIX, VECTOR, compiled, core_stamp
from bsvr_pp._separate import separate
from bsvr_pp.approximations.laplace import laplace_core
from bsvr_pp.approximations.mean_field import TARGET, mean_field_core
from bsvr_pp.approximations.solver import sites_of
from bsvr_pp.covariance.structure import split
from bsvr_pp.losses import LOSSES
from bsvr_pp.losses.mass import relative_ends
from bsvr_pp.losses.pieces import PIECES, Pieces, with_ends
from bsvr_pp.losses.weighted import weighted

__all__ = ["APPROXIMATIONS", "CovarianceGraph", "LatentEvidence", "evidence_function", "latent_evidence"]

Array = NDArray[np.float64]

APPROXIMATIONS = ("laplace", "laplace_local", "mean_field")
_LOCAL, _MEAN_FIELD = 1, 2  # their places


class CovarianceGraph(NamedTuple):
    """Prior covariance as a graph, corresponding to `bsvr_pp.approximations.Covariance`.

    Attributes
    ----------
    smooth : (n, n) tensor
        Covariance without the jitter.
    jitter : scalar
        Number added to its diagonal; a smooth kernel with a small jitter has a low-rank root.
    """

    smooth: Any
    jitter: Any = 0.0

    @property
    def matrix(self) -> Any:
        """The covariance including the jitter."""
        return self.smooth + self.jitter * pt.eye(self.smooth.shape[0])


class LatentEvidence(Op):
    """Log evidence of targets under a Gaussian process and a noise model.

    Parameters
    ----------
    approximation : {"laplace", "laplace_local", "mean_field"}
        Method that integrates the latent function out.
    loss : str
        Key of `bsvr_pp.losses.LOSSES`.
    mismatch : float
        Mismatch of the moments at which mean field ends. The error of the evidence is of second order in it, that of
        the gradients of first order.

    Notes
    -----
    Inputs: K (n, n), t = y - mean (n,), y (n,), loss parameters (p, k) with k = 1 or n, or (p + 1, n) with sample
    weights in the last row, jitter for K, a warm start of (2, n) dual coefficients and site precisions from a similar
    problem, or zeros, and the ends of intervals relative to y (n, 2), or (0, 2) where all targets are exact. Outputs:
    log evidence, its gradients by K, t and the parameters (0 for weights), 1 or 0 for converged, the dual coefficients
    and site precisions of the solution, and the gradient by the ends.
    """

    __props__ = ("approximation", "loss", "mismatch")

    def __init__(self, approximation: str, loss: str, mismatch: float = TARGET) -> None:
        self.approximation = approximation
        self.loss = loss
        self.mismatch = mismatch

    def make_node(
        self, K: Any, t: Any, y: Any, parameters: Any, jitter: Any = 0.0, start: Any = None, ends: Any = None
    ) -> Apply:
        """Apply to (K, t, y, parameters, jitter, start, ends)."""
        inputs = [pt.as_tensor_variable(x).astype("float64") for x in (K, t, y, parameters, jitter)]
        inputs.append(pt.zeros((2, inputs[1].shape[0])) if start is None else pt.as_tensor_variable(start))
        inputs.append(pt.zeros((0, 2)) if ends is None else pt.as_tensor_variable(ends).astype("float64"))
        for value, ndim in zip(inputs, (2, 1, 1, 2, 0, 2, 2), strict=True):
            if value.type.ndim != ndim:
                raise TypeError(
                    "LatentEvidence takes K, t, y, parameters, jitter, start, ends of 2, 1, 1, 2, 0, 2, 2 axes, got "
                    f"{value.type.ndim}"
                )
        outputs = [pt.dscalar(), pt.dmatrix(), pt.dvector(), pt.dmatrix(), pt.dscalar(), pt.dmatrix(), pt.dmatrix()]
        return Apply(self, inputs, outputs)

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: Sequence[list[Any]]) -> None:
        """Compute the outputs."""
        results = evidence_function(self.approximation, self.loss, self.mismatch)(*inputs)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = np.asarray(result)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs."""
        return [(), shapes[0], shapes[1], shapes[3], (), shapes[5], shapes[6]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the gradients, which were computed with the value, times the cotangent of the value."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("LatentEvidence has no second derivatives")
        by_value = cotangents[0]
        nothing = DisconnectedType()()
        by_K, by_t, by_parameters, by_ends = (by_value * outputs[i] for i in (1, 2, 3, 6))
        return [by_K, by_t, nothing, by_parameters, nothing, nothing, by_ends]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the value is differentiable, and not by the labels, the jitter or the start."""
        return [[i in (0, 1, 3, 6), *[False] * 6] for i in range(7)]


@cache
def evidence_function(approximation: str, loss: str, mismatch: float = TARGET) -> Callable[..., Any]:
    """The operation on arrays, for Python and for Numba."""
    which, table = APPROXIMATIONS.index(approximation), LOSSES[loss].table
    count = len(LOSSES[loss].parameters)

    def evidence(K: Array, t: Array, y: Array, parameters: Array, jitter: Any, start: Array, ends: Array) -> Any:
        finite, covariance, residual, labels, given, sites = _checked(K, t, y, parameters, jitter, start)
        known = np.zeros(ends.shape)
        for i in range(ends.shape[0]):
            known[i, 0], known[i, 1] = ends[i, 0], ends[i, 1]
            finite = finite and ends[i, 0] <= ends[i, 1]
        if finite:
            pieces = table(given[:count].copy(), labels)
            if given.shape[0] > count:
                pieces = weighted(pieces, given[count].copy())
            pieces = with_ends(pieces, known)
            found = _solve(which, covariance, jitter.item(), residual, pieces, given.shape[1], sites, mismatch)
        else:
            found = _failed(covariance, residual, given, sites, known)
        by_parameters = np.zeros(given.shape)
        for p in range(count):
            for k in range(given.shape[1]):
                by_parameters[p, k] = found[3][p, k]
        return np.asarray(found[0]), found[1], found[2], by_parameters, np.asarray(found[4]), found[5], found[6]

    return evidence


# Loops, since Numba compiles them several times faster than NumPy functions.
@compiled
def _checked(
    K: Array, t: Array, y: Array, parameters: Array, jitter: Any, start: Array
) -> tuple[bool, Array, Array, Array, Array, Array]:
    """Return whether all inputs are finite, and contiguous copies, that of K with its jitter."""
    n, (p, k) = t.shape[0], parameters.shape
    covariance, residual, labels, given, sites = (
        np.empty((n, n)),
        np.empty(n),
        np.empty(n),
        np.empty((p, k)),
        np.empty((2, n)),
    )
    total = 0.0
    for i in range(n):
        residual[i], labels[i], sites[0, i], sites[1, i] = t[i], y[i], start[0, i], start[1, i]
        total += residual[i]
        for j in range(n):
            covariance[i, j] = K[i, j]
            total += covariance[i, j]
        covariance[i, i] += jitter.item()
    for i in range(p):
        for j in range(k):
            given[i, j] = parameters[i, j]
            total += given[i, j]
    return np.isfinite(total), covariance, residual, labels, given, sites


_OUTPUTS = types.Tuple((types.float64, MATRIX, VECTOR, MATRIX, types.float64, MATRIX, MATRIX))


@separate(_OUTPUTS, types.int64, MATRIX, types.float64, VECTOR, PIECES, types.int64, MATRIX, types.float64)
def _solve(
    which: int, K: Array, jitter: float, t: Array, pieces: Pieces, columns: int, start: Array, mismatch: float
) -> tuple[float, Array, Array, Array, float, Array, Array]:
    """Compute the outputs of `LatentEvidence`; ``columns`` is the number of values of each parameter."""
    structure, by_K = split(K, jitter), np.empty_like(K)
    if which == _MEAN_FIELD:
        found, gradients = mean_field_core(structure, t, pieces, start, by_K, mismatch)
    else:
        found, gradients = laplace_core(structure, t, pieces, which == _LOCAL, start, by_K)
    by_parameters = np.zeros((pieces.d_energy.shape[0], columns))
    for i in range(by_parameters.shape[0]):  # labels have one row per point even if the parameters are numbers
        for row in range(pieces.knots.shape[0]):
            by_parameters[i, row if columns > 1 else 0] += gradients.parameters[i, row]
    converged = 1.0 if found.converged else 0.0
    return found.value, by_K, gradients.residual, by_parameters, converged, sites_of(found), gradients.ends


@compiled
def _failed(
    K: Array, t: Array, parameters: Array, start: Array, ends: Array
) -> tuple[float, Array, Array, Array, float, Array, Array]:
    """The outputs of `LatentEvidence` where an input is not finite, or an end is above the other."""
    return -np.inf, np.zeros_like(K), np.zeros_like(t), np.zeros_like(parameters), 0.0, start, np.zeros_like(ends)


@register_funcify_default_op_cache_key(LatentEvidence)
def _numba(op: LatentEvidence, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return numba_njit(evidence_function(op.approximation, op.loss, op.mismatch)), core_stamp()


def latent_evidence(
    approximation: str,
    loss: str,
    K: Any,
    mean: Any,
    y: Any,
    parameters: Sequence[Any],
    start: Any = None,
    mismatch: float = TARGET,
) -> tuple[Any, Any, Any]:
    """Graphs of the log evidence, of its convergence flag, and of the warm start for the next solve.

    Parameters
    ----------
    approximation, loss : str
        As `LatentEvidence`.
    K : CovarianceGraph or tensor
        Prior covariance (n, n).
    mean, y : tensors
        Prior mean (n,), and targets (n,), or (n, 2) ends of intervals; equal ends are an exact target.
    parameters : sequence of tensors
        Parameters of the loss, numbers or (n,) vectors; and after them, if there are any, the sample weights.
    start : (2, n) tensor, optional
        Dual coefficients and site precisions of a similar problem, as a warm start: fewer steps, and the same result up
        to rounding errors.
    mismatch : float
        As `LatentEvidence`.

    Returns
    -------
    log_evidence, converged : scalar tensors
    sites : (2, n) tensor
        Dual coefficients and site precisions.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations.operation import latent_evidence
    >>> value, converged, _ = latent_evidence("laplace", "gaussian", np.eye(1), np.zeros(1), np.ones(1), [1.0])
    >>> round(float(value.eval()), 6)
    -1.515512
    """
    y, ends = pt.as_tensor_variable(y), None
    if y.type.ndim == 2:
        y, ends = relative_ends(y[:, 0], y[:, 1])
    rows = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in parameters]
    if any(row.type.shape != (1,) for row in rows):
        rows = [pt.broadcast_to(row, y.shape) for row in rows]
    smooth, jitter = K if isinstance(K, CovarianceGraph) else (K, 0.0)
    outputs = LatentEvidence(approximation, loss, mismatch)(smooth, y - mean, y, pt.stack(rows), jitter, start, ends)
    return outputs[0], outputs[4], outputs[5]

"""The evidence of a latent function as one node of a PyTensor graph.

`LatentEvidence` computes the log evidence and all its gradients from one solve; its pullback multiplies them by the
cotangent, so that any kernel, prior and transform around it is PyTensor's business. The same machine code (`native`)
serves the C and Python back ends and, called by its name, Numba (whose samplers run chains in threads, so that there is
no shared state). If a solve fails, the value is -inf, the gradients are zero, and the convergence flag is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bsvr_pp._compiler import compiled
from bsvr_pp.approximations.native import APPROXIMATIONS, by_name, flat, from_python
from bsvr_pp.losses import LOSSES

__all__ = ["CovarianceGraph", "LatentEvidence", "evidence_function", "latent_evidence"]

Array = NDArray[np.float64]


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

    Notes
    -----
    Inputs: K (n, n), t = y - mean (n,), y (n,), loss parameters (p, k) with k = 1 or n, jitter for K, and a warm start
    of (2, n) dual coefficients and site precisions from a similar problem, or zeros. Outputs: log evidence, its
    gradients by K, t and the parameters, 1 or 0 for converged, and the dual coefficients and site precisions of the
    solution.
    """

    __props__ = ("approximation", "loss")

    def __init__(self, approximation: str, loss: str) -> None:
        self.approximation = approximation
        self.loss = loss

    def make_node(self, K: Any, t: Any, y: Any, parameters: Any, jitter: Any = 0.0, start: Any = None) -> Apply:
        """Apply to (K, t, y, parameters, jitter, start)."""
        inputs = [pt.as_tensor_variable(x).astype("float64") for x in (K, t, y, parameters, jitter)]
        inputs.append(pt.zeros((2, inputs[1].shape[0])) if start is None else pt.as_tensor_variable(start))
        for value, ndim in zip(inputs, (2, 1, 1, 2, 0, 2), strict=True):
            if value.type.ndim != ndim:
                raise TypeError(
                    "LatentEvidence takes K, t, y, parameters, jitter, start of 2, 1, 1, 2, 0, 2 axes, got "
                    f"{value.type.ndim}"
                )
        outputs = [pt.dscalar(), pt.dmatrix(), pt.dvector(), pt.dmatrix(), pt.dscalar(), pt.dmatrix()]
        return Apply(self, inputs, outputs)

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: Sequence[list[Any]]) -> None:
        """Compute the outputs."""
        results = evidence_function(self.approximation, self.loss)(*inputs)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = np.asarray(result)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs."""
        return [(), shapes[0], shapes[1], shapes[3], (), shapes[5]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the gradients, which were computed with the value, times the cotangent of the value."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("LatentEvidence has no second derivatives")
        by_value = cotangents[0]
        nothing = DisconnectedType()()
        return [by_value * outputs[1], by_value * outputs[2], nothing, by_value * outputs[3], nothing, nothing]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the value is differentiable, and not by the labels, the jitter or the start."""
        return [[i in (0, 1, 3), *[False] * 5] for i in range(6)]


def evidence_function(approximation: str, loss: str) -> Callable[..., Any]:
    """The operation on arrays, for Python."""
    return _evidence(approximation, loss, False)


@cache
def _evidence(approximation: str, loss: str, for_numba: bool) -> Callable[..., Any]:
    solve, which = (by_name if for_numba else from_python)(), APPROXIMATIONS.index(approximation)
    table = LOSSES[loss].table

    def evidence(K: Array, t: Array, y: Array, parameters: Array, jitter: Any, start: Array) -> Any:
        n, p, k = t.shape[0], parameters.shape[0], parameters.shape[1]
        by_t, by_parameters = np.zeros(n), np.zeros((p, k))
        out, sites, by_K = np.zeros(2), start.copy(), np.empty((n, n))
        out[0] = -np.inf
        finite, covariance, residual, labels, given = _checked(K, t, y, parameters, jitter)
        if finite:
            pieces = table(given, labels)
            rows, m = pieces.knots.shape
            numbers, by_row = flat(pieces), np.zeros((p, rows))
            solve(
                which,
                n,
                rows,
                m,
                p,
                jitter.item(),
                covariance.ctypes,
                residual.ctypes,
                numbers.ctypes,
                out.ctypes,
                by_K.ctypes,
                by_t.ctypes,
                by_row.ctypes,
                sites.ctypes,
            )
            _add_up(by_row, by_parameters)
        else:
            by_K[:] = 0.0
        return np.asarray(out[0]), by_K, by_t, by_parameters, np.asarray(out[1]), sites

    return numba_njit(evidence) if for_numba else evidence


# Loops, since Numba compiles them several times faster than NumPy functions.
@compiled
def _checked(K: Array, t: Array, y: Array, parameters: Array, jitter: Any) -> tuple[bool, Array, Array, Array, Array]:
    """Return whether all inputs are finite, K with its jitter, and contiguous copies of the others."""
    n, (p, k) = t.shape[0], parameters.shape
    covariance, residual, labels, given = np.empty((n, n)), np.empty(n), np.empty(n), np.empty((p, k))
    total = 0.0
    for i in range(n):
        residual[i], labels[i] = t[i], y[i]
        total += residual[i]
        for j in range(n):
            covariance[i, j] = K[i, j]
            total += covariance[i, j]
        covariance[i, i] += jitter.item()
    for i in range(p):
        for j in range(k):
            given[i, j] = parameters[i, j]
            total += given[i, j]
    return np.isfinite(total), covariance, residual, labels, given


@compiled
def _add_up(by_row: Array, d_parameters: Array) -> None:
    """Derivatives by the rows of a table (labels have one row per point even if the parameters are numbers)."""
    for i in range(by_row.shape[0]):
        for row in range(by_row.shape[1]):
            d_parameters[i, row if d_parameters.shape[1] > 1 else 0] += by_row[i, row]


@register_funcify_default_op_cache_key(LatentEvidence)
def _numba(op: LatentEvidence, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return _evidence(op.approximation, op.loss, True), _sources()


@cache
def _sources() -> int:
    """Checksum of the code compiled into a wrapper, so that PyTensor's cache on disk never uses an old version.

    The solve is called by its name and is not part of the wrapper.
    """
    package = Path(__file__).parents[1]
    names = ("losses/pieces.py", "losses/tables.py", "approximations/native.py", "approximations/operation.py")
    return crc32(b"".join((package / name).read_bytes() for name in names))


def latent_evidence(
    approximation: str,
    loss: str,
    K: Any,
    mean: Any,
    y: Any,
    parameters: Sequence[Any],
    start: Any = None,
) -> tuple[Any, Any, Any]:
    """Graphs of the log evidence, of its convergence flag, and of the warm start for the next solve.

    Parameters
    ----------
    approximation, loss : str
        As `LatentEvidence`.
    K : CovarianceGraph or tensor
        Prior covariance (n, n).
    mean, y : tensors
        Prior mean and targets (n,).
    parameters : sequence of tensors
        Parameters of the loss, numbers or (n,) vectors.
    start : (2, n) tensor, optional
        Dual coefficients and site precisions of a similar problem, as a warm start: fewer steps, and the same result up
        to rounding errors.

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
    y = pt.as_tensor_variable(y)
    rows = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in parameters]
    if any(row.type.shape != (1,) for row in rows):
        rows = [pt.broadcast_to(row, y.shape) for row in rows]
    smooth, jitter = K if isinstance(K, CovarianceGraph) else (K, 0.0)
    outputs = LatentEvidence(approximation, loss)(smooth, y - mean, y, pt.stack(rows), jitter, start)
    return outputs[0], outputs[4], outputs[5]

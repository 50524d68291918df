"""The evidence of a latent function as one node of a PyTensor graph.

`LatentEvidence` computes the log evidence and all its gradients from one solve; its pullback multiplies them by the
cotangent, so that any kernel, prior and transform around it is PyTensor's business. The same compiled core serves the
C and Python back ends and, called without the interpreter, Numba (whose samplers run chains in threads: there is no
shared state). Where a solve fails the value is -inf, the gradients are zero and the last output says so.
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

from bsvr_pp.approximations.laplace import laplace_core
from bsvr_pp.approximations.mean_field import mean_field_core
from bsvr_pp.approximations.products import Covariance, split
from bsvr_pp.compiler import compiled
from bsvr_pp.losses import LOSSES

__all__ = ["APPROXIMATIONS", "LatentEvidence", "evidence_function", "latent_evidence"]

Array = NDArray[np.float64]

# Raise with every change of a core, or PyTensor's Numba cache on disk keeps the old one.
_CORE_VERSION = 13


@compiled
def _laplace_exact(K: Covariance, t: Array, pieces: Any) -> Any:
    return laplace_core(K, t, pieces, False)


@compiled
def _laplace_local(K: Covariance, t: Array, pieces: Any) -> Any:
    return laplace_core(K, t, pieces, True)


APPROXIMATIONS: dict[str, Callable[..., Any]] = {
    "laplace": _laplace_exact,
    "laplace_local": _laplace_local,
    "mean_field": mean_field_core,
}


class LatentEvidence(Op):
    """Log evidence of targets under a Gaussian process and a noise model.

    Parameters
    ----------
    approximation : {"laplace", "laplace_local", "mean_field"}
        How the latent function is integrated out.
    loss : str
        Key of `bsvr_pp.losses.LOSSES`.

    Notes
    -----
    Inputs: K (n, n), t = y - mean (n,), y (n,), loss parameters (p, k) with k = 1 or n, jitter for K. Outputs: log
    evidence, its gradients by K, t and the parameters, and 1 or 0 for converged.
    """

    __props__ = ("approximation", "loss")

    def __init__(self, approximation: str, loss: str) -> None:
        self.approximation = approximation
        self.loss = loss

    def make_node(self, K: Any, t: Any, y: Any, parameters: Any, jitter: Any = 0.0) -> Apply:
        """Apply to (K, t, y, parameters, jitter)."""
        inputs = [pt.as_tensor_variable(x).astype("float64") for x in (K, t, y, parameters, jitter)]
        for value, ndim in zip(inputs, (2, 1, 1, 2, 0), strict=True):
            if value.type.ndim != ndim:
                raise TypeError(
                    f"LatentEvidence takes K, t, y, parameters, jitter of 2, 1, 1, 2, 0 axes, got {value.type.ndim}"
                )
        outputs = [pt.dscalar(), pt.dmatrix(), pt.dvector(), pt.dmatrix(), pt.dscalar()]
        return Apply(self, inputs, outputs)

    def perform(self, node: Apply, inputs: Sequence[Array], output_storage: Sequence[list[Any]]) -> None:
        """Solve."""
        results = evidence_function(self.approximation, self.loss)(*inputs)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = np.asarray(result)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shapes of the outputs."""
        return [(), shapes[0], shapes[1], shapes[3], ()]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Gradients computed beside the value, times its cotangent."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("LatentEvidence has no second derivatives")
        by_value = cotangents[0]
        nothing = DisconnectedType()()
        return [by_value * outputs[1], by_value * outputs[2], nothing, by_value * outputs[3], nothing]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Only the value is differentiable, and not by the labels or by the jitter beside K."""
        return [[i not in (2, 4), False, False, False, False] for i in range(5)]


def evidence_function(approximation: str, loss: str) -> Callable[..., Any]:
    """The operation on arrays, interpreted here, so that table and core come from Numba's disk cache."""
    return _compiled(approximation, loss, _as_it_is)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _compiled(approximation: str, loss: str, compiler: Callable[..., Any]) -> Callable[..., Any]:
    key = (approximation, loss, compiler)
    if key not in _COMPILED:
        core, table = APPROXIMATIONS[approximation], LOSSES[loss].table

        @compiler
        def evidence(K: Array, t: Array, y: Array, parameters: Array, jitter: Any) -> Any:
            n, k = t.shape[0], parameters.shape[1]
            finite = np.isfinite(np.sum(K)) and np.isfinite(np.sum(t)) and np.isfinite(np.sum(parameters))
            if not finite:
                nothing = np.zeros((parameters.shape[0], k))
                return np.asarray(-np.inf), np.zeros((n, n)), np.zeros(n), nothing, np.asarray(0.0)
            pieces = table(np.ascontiguousarray(parameters), np.ascontiguousarray(y))
            covariance = np.empty((n, n))
            covariance[:] = K
            for i in range(n):
                covariance[i, i] += jitter.item()
            value, d_K, d_t, by_row, _, converged = core(
                split(covariance, jitter.item()), np.ascontiguousarray(t), pieces
            )
            d_parameters = np.zeros((parameters.shape[0], k))
            for row in range(by_row.shape[1]):  # labels have a row a point even where the parameters are numbers
                d_parameters[:, row if k > 1 else 0] += by_row[:, row]
            return np.asarray(value), d_K, d_t, d_parameters, np.asarray(1.0 if converged else 0.0)

        _COMPILED[key] = evidence
    return _COMPILED[key]


_COMPILED: dict[tuple[str, str, Any], Callable[..., Any]] = {}


@register_funcify_default_op_cache_key(LatentEvidence)
def _numba(op: LatentEvidence, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    return _compiled(op.approximation, op.loss, numba_njit), _CORE_VERSION


def latent_evidence(
    approximation: str, loss: str, K: Any, mean: Any, y: Any, parameters: Sequence[Any], jitter: Any = 0.0
) -> tuple[Any, Any]:
    """Graph of the log evidence and of its flag of convergence.

    Parameters
    ----------
    approximation, loss : str
        As `LatentEvidence`.
    K, mean, y : tensors
        Prior covariance (n, n), prior mean and targets (n,).
    parameters : sequence of tensors
        Parameters of the loss, numbers or (n,) vectors.
    jitter : scalar
        What to add to the diagonal of K.

    Returns
    -------
    log_evidence, converged : scalar tensors

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations.ops import latent_evidence
    >>> value, converged = latent_evidence("laplace", "gaussian", np.eye(1), np.zeros(1), np.ones(1), [1.0])
    >>> round(float(value.eval()), 6)
    -1.515512
    """
    y = pt.as_tensor_variable(y)
    rows = [pt.atleast_1d(pt.as_tensor_variable(p).astype("float64")) for p in parameters]
    if any(row.type.shape != (1,) for row in rows):
        rows = [pt.broadcast_to(row, y.shape) for row in rows]
    outputs = LatentEvidence(approximation, loss)(K, y - mean, y, pt.stack(rows), jitter)
    return outputs[0], outputs[4]

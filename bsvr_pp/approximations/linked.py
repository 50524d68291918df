"""Value and gradient of the approximations, under names by which compiled code calls them.

Numba compiles into a function all that it calls. For these solves that takes half a minute, and the function of every
model calls one. So each is compiled once, kept on disk and made known to the linker: what calls it compiles in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite.binding import add_symbol
from numba import carray, cfunc, types
from numba.core.typing import signature
from numpy.typing import NDArray

from bsvr_pp.approximations.laplace import laplace_core
from bsvr_pp.approximations.mean_field import mean_field_core
from bsvr_pp.approximations.products import Covariance, split
from bsvr_pp.compiler import compiled
from bsvr_pp.pieces import Pieces

__all__ = ["APPROXIMATIONS", "by_name", "flat", "from_python"]

Array = NDArray[np.float64]

# n, and the rows, knots and parameters of the table; jitter; K, overwritten by its derivative; t, table; value and
# convergence, other derivatives; the dual coefficients and site precisions to begin with, overwritten by those found.
_SIGNATURE = signature(types.void, *[types.intp] * 4, types.float64, *[types.voidptr] * 7)


@compiled
def flat(pieces: Pieces) -> Array:
    """The table as one array."""
    k, m, p = pieces.knots.shape[0], pieces.knots.shape[1], pieces.d_energy.shape[0]
    numbers = np.empty(_size(k, m, p))
    there = _views(numbers, k, m, p)
    for i in range(k):
        there.log_normalizer[i] = pieces.log_normalizer[i]
        for j in range(m):
            there.knots[i, j], there.value[i, j] = pieces.knots[i, j], pieces.value[i, j]
        for j in range(m + 1):
            there.slope[i, j], there.curvature[i, j] = pieces.slope[i, j], pieces.curvature[i, j]
            for q in range(p):
                for c in range(3):
                    there.d_energy[q, i, j, c] = pieces.d_energy[q, i, j, c]
        for q in range(p):
            there.d_log_normalizer[q, i] = pieces.d_log_normalizer[q, i]
    return numbers


@compiled
def _size(k: int, m: int, p: int) -> int:
    """Numbers in a table of k rows, m knots and p parameters."""
    return k * (2 * m + 2 * (m + 1) + 3 * p * (m + 1) + 1 + p)


@compiled
def _views(numbers: Array, k: int, m: int, p: int) -> Pieces:
    """A table in one array."""
    knots, rest = numbers[: k * m], numbers[k * m :]
    value, rest = rest[: k * m], rest[k * m :]
    slope, rest = rest[: k * (m + 1)], rest[k * (m + 1) :]
    curvature, rest = rest[: k * (m + 1)], rest[k * (m + 1) :]
    d_energy, rest = rest[: 3 * p * k * (m + 1)], rest[3 * p * k * (m + 1) :]
    return Pieces(
        knots.reshape(k, m),
        value.reshape(k, m),
        slope.reshape(k, m + 1),
        curvature.reshape(k, m + 1),
        d_energy.reshape(p, k, m + 1, 3),
        rest[:k],
        rest[k:].reshape(p, k),
    )


@compiled
def _store(found: Any, n: int, k: int, p: int, K: Any, out: Any, d_t: Any, d_parameters: Any, sites: Array) -> None:
    summary = carray(out, (2,), np.float64)
    summary[0], summary[1] = found[0], 1.0 if found[5] else 0.0
    carray(K, (n, n), np.float64)[:] = found[1]  # where it is not there already
    carray(d_t, (n,), np.float64)[:] = found[2]
    carray(d_parameters, (p, k), np.float64)[:] = found[3]
    sites[:] = found[6]


@compiled
def _given(
    n: int, k: int, m: int, p: int, jitter: float, K: Any, t: Any, table: Any, sites: Any
) -> tuple[Covariance, Array, Pieces, Array]:
    covariance, residual = split(carray(K, (n, n), np.float64), jitter), carray(t, (n,), np.float64)
    pieces = _views(carray(table, (_size(k, m, p),), np.float64), k, m, p)
    return covariance, residual, pieces, carray(sites, (2, n), np.float64)


def _laplace(n, k, m, p, jitter, K, t, table, out, d_t, d_parameters, sites):  # type: ignore[no-untyped-def]
    covariance, residual, pieces, start = _given(n, k, m, p, jitter, K, t, table, sites)
    _store(laplace_core(covariance, residual, pieces, False, start), n, k, p, K, out, d_t, d_parameters, start)


def _laplace_local(n, k, m, p, jitter, K, t, table, out, d_t, d_parameters, sites):  # type: ignore[no-untyped-def]
    covariance, residual, pieces, start = _given(n, k, m, p, jitter, K, t, table, sites)
    _store(laplace_core(covariance, residual, pieces, True, start), n, k, p, K, out, d_t, d_parameters, start)


def _mean_field(n, k, m, p, jitter, K, t, table, out, d_t, d_parameters, sites):  # type: ignore[no-untyped-def]
    covariance, residual, pieces, start = _given(n, k, m, p, jitter, K, t, table, sites)
    _store(mean_field_core(covariance, residual, pieces, start), n, k, p, K, out, d_t, d_parameters, start)


APPROXIMATIONS: dict[str, Callable[..., None]] = {
    "laplace": _laplace,
    "laplace_local": _laplace_local,
    "mean_field": _mean_field,
}


@cache
def _entry(approximation: str) -> Any:
    return cfunc(_SIGNATURE, cache=True)(APPROXIMATIONS[approximation])


def from_python(approximation: str) -> Callable[..., None]:
    """The solve for Python; arrays are passed as ``array.ctypes``."""
    entry: Callable[..., None] = _entry(approximation).ctypes
    return entry


@cache
def by_name(approximation: str) -> types.ExternalFunction:
    """The solve for compiled code; arrays are passed as ``array.ctypes``."""
    name = f"bsvr_pp_{approximation}"
    add_symbol(name, _entry(approximation).address)
    return types.ExternalFunction(name, _SIGNATURE)

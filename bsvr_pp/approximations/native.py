"""Value and gradient of the approximations as native symbols, which compiled code calls by name.

Numba compiles all called functions into the caller. For these solves this takes half a minute, and the compiled
function of every model calls one. They are therefore compiled once, stored on disk and registered with the linker, so
that their callers compile in seconds.
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

from bsvr_pp._compiler import cached, compiled
from bsvr_pp.approximations.laplace import laplace_core
from bsvr_pp.approximations.mean_field import mean_field_core
from bsvr_pp.approximations.structure import split
from bsvr_pp.losses.pieces import Pieces

__all__ = ["APPROXIMATIONS", "by_name", "flat", "from_python"]

Array = NDArray[np.float64]

APPROXIMATIONS = ("laplace", "laplace_local", "mean_field")
_LOCAL, _MEAN_FIELD = 1, 2  # their places

_SYMBOL = "bsvr_pp_evidence"
# Place of the approximation; n, and the rows, knots and parameters of the table; jitter; K, t and table; value and
# convergence; derivatives by K, t and the parameters; the dual coefficients and site precisions to begin with, in
# whose place those found are written.
_SIGNATURE = signature(types.void, *[types.intp] * 5, types.float64, *[types.voidptr] * 8)


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


def _evidence(which, n, k, m, p, jitter, K, t, table, out, by_K, by_t, by_parameters, sites):  # type: ignore[no-untyped-def]
    structure, residual = split(carray(K, (n, n), np.float64), jitter), carray(t, (n,), np.float64)
    pieces = _views(carray(table, (_size(k, m, p),), np.float64), k, m, p)
    start, derivative = carray(sites, (2, n), np.float64), carray(by_K, (n, n), np.float64)
    if which == _MEAN_FIELD:
        found, gradients = mean_field_core(structure, residual, pieces, start, derivative)
    else:
        found, gradients = laplace_core(structure, residual, pieces, which == _LOCAL, start, derivative)
    summary = carray(out, (2,), np.float64)
    summary[0], summary[1] = found.value, 1.0 if found.converged else 0.0
    carray(by_t, (n,), np.float64)[:] = gradients.residual
    carray(by_parameters, (p, k), np.float64)[:] = gradients.parameters
    start[0], start[1] = found.dual_coef, found.site_precision


@cache
def _entry() -> Any:
    return cached(cfunc, _SIGNATURE)(_evidence)


def from_python() -> Callable[..., None]:
    """The solve for Python; arrays are passed as ``array.ctypes``."""
    entry: Callable[..., None] = _entry().ctypes
    return entry


@cache
def by_name() -> types.ExternalFunction:
    """The solve for compiled code; arrays are passed as ``array.ctypes``."""
    add_symbol(_SYMBOL, _entry().address)
    return types.ExternalFunction(_SYMBOL, _SIGNATURE)

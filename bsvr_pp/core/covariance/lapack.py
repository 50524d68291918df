"""LAPACK for Numba with info codes.

`numpy.linalg` in Numba raises an exception if a factorisation fails, but inside a sampler a failure must be a value.
These wrappers call the LAPACK of SciPy through named external symbols, which Numba can cache on disk. Arrays are
C-contiguous float64 and are overwritten. A C-ordered lower triangle is the upper triangle of LAPACK; hence the "U"
below.
"""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.extending import get_cython_function_address

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import compiled


def _external(name: str, n_arguments: int) -> types.ExternalFunction:
    symbol = f"bsvr_pp_{name}"
    llvm.add_symbol(symbol, get_cython_function_address("scipy.linalg.cython_lapack", name))
    return types.ExternalFunction(symbol, types.void(*[types.voidptr] * n_arguments))


_dpotrf = _external("dpotrf", 5)
_dpotri = _external("dpotri", 5)
_dpotrs = _external("dpotrs", 8)
_dtrtri = _external("dtrtri", 6)
_dtrtrs = _external("dtrtrs", 10)
_U, _N, _T = (np.frombuffer(letter, dtype=np.uint8) for letter in (b"U", b"N", b"T"))


@compiled
def cholesky(A: Array) -> int:
    """Overwrite the lower triangle of A by L, L·Lᵀ = A; 0, or the row of a failure. LAPACK may pass over NaN."""
    if A.shape[0] == 0:
        return 0
    n, info = np.array([A.shape[0]], dtype=np.int32), np.zeros(1, dtype=np.int32)
    _dpotrf(_U.ctypes, n.ctypes, A.ctypes, n.ctypes, info.ctypes)
    return n[0] if info[0] == 0 and not np.isfinite(A[-1, -1]) else info[0]


@compiled
def cholesky_solve(L: Array, B: Array) -> None:
    """Overwrite each row b of the (k, n) array B by the solution x of L Lᵀ x = b."""
    n, k = np.array([L.shape[0]], dtype=np.int32), np.array([B.shape[0]], dtype=np.int32)
    info = np.zeros(1, dtype=np.int32)
    _dpotrs(_U.ctypes, n.ctypes, k.ctypes, L.ctypes, n.ctypes, B.ctypes, n.ctypes, info.ctypes)


@compiled
def lower_solve(L: Array, B: Array) -> None:
    """Overwrite each row b of the (k, n) array B by the solution x of L x = b."""
    n, k = np.array([L.shape[0]], dtype=np.int32), np.array([B.shape[0]], dtype=np.int32)
    info = np.zeros(1, dtype=np.int32)
    _dtrtrs(_U.ctypes, _T.ctypes, _N.ctypes, n.ctypes, k.ctypes, L.ctypes, n.ctypes, B.ctypes, n.ctypes, info.ctypes)


@compiled
def lower_inverse(L: Array) -> None:
    """Overwrite the lower triangle of L by the lower triangle of L⁻¹."""
    n, info = np.array([L.shape[0]], dtype=np.int32), np.zeros(1, dtype=np.int32)
    _dtrtri(_U.ctypes, _N.ctypes, n.ctypes, L.ctypes, n.ctypes, info.ctypes)


@compiled
def cholesky_inverse(L: Array) -> None:
    """Overwrite L by the full inverse of L Lᵀ."""
    n, info = np.array([L.shape[0]], dtype=np.int32), np.zeros(1, dtype=np.int32)
    _dpotri(_U.ctypes, n.ctypes, L.ctypes, n.ctypes, info.ctypes)
    for i in range(L.shape[0]):
        for j in range(i):
            L[j, i] = L[i, j]

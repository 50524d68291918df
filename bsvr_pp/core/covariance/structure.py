"""The structure of K that the compiled solvers use: a constant, a low-rank root, and accurate products.

A large constant of K multiplies only the sum of a. The sum has no rounding errors, since the terms of K·a cancel. A
smooth kernel of few inputs is constant + root·rootᵀ + diagonal with r « n columns, by pivoted Cholesky factorisation:
products cost n·r and factorisations n·r² (docs/explanation/mean-field.md). A root of up to n columns keeps the digits
that products with K lose where there is hardly any noise.

`numpy.linalg` in Numba raises an exception if a factorisation fails, but inside a sampler a failure must be a value.
The wrappers below call the LAPACK of SciPy through named external symbols, which Numba can cache on disk. Arrays are
C-contiguous float64 and are overwritten. A C-ordered lower triangle is the upper triangle ("U") of LAPACK.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numba import typeof, types
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate

_ROUNDING = 1e-14  # largest error of the root, relative to the largest variance
_DIGITS = 4e-16  # relative rounding error
_MISSED = 1e-13  # largest error of an entry, relative to the largest variance
_LARGE = 1e3  # largest constant over the variance: beyond, rounding errors in K are not smooth
_HALF_WAY = 0.03  # largest remainder after half of the columns, relative to the largest variance


class Structure(NamedTuple):
    """K = constant + rest, or K = constant + root·rootᵀ + diag(diagonal) where the root has columns."""

    matrix: Array  # K, or (0, 0) if only its root is known
    rest: Array  # K minus the constant; not used if there is a root
    constant: float  # 0 where it is small
    root: Array  # (n, r), or (n, 0)
    diagonal: Array  # (n,)
    variance: Array  # (n,), the diagonal of K


STRUCTURE = typeof(Structure(np.eye(1), np.eye(1), 1.0, np.eye(1), np.ones(1), np.ones(1)))


@separate(STRUCTURE, MATRIX, types.float64)
def split(K: Array, jitter: float) -> Structure:
    """Make the structure of a matrix K that contains ``jitter`` on its diagonal.

    A large constant is separated. Both parts are exact, because the difference of numbers within a factor of two is
    exact.
    """
    n = K.shape[0]
    constant, spread = 0.0, np.inf
    low = np.min(K[0])
    if low >= 10.0 * (K[0, 0] - low):
        low = np.min(K)
        spread = np.max(K) - low
        constant = low if low >= 10.0 * spread else 0.0
    root = np.empty((n, 0))
    if constant <= _LARGE * spread:
        most = min(n // 4, 32 + n // 12)
        taken = constant
        while True:  # one call of `_root`, which is compiled into its caller
            root = _root(K, taken, jitter, most)
            if root.shape[1] > 0 or taken == 0.0:
                break
            taken = 0.0  # K minus a constant may be indefinite
        constant = taken if root.shape[1] > 0 else constant
    rest = K - constant if constant > 0.0 and root.shape[1] == 0 else K
    return Structure(K, rest, constant, root, np.full(n, jitter), np.diag(K))


@compiled
def given_root(root: Array, diagonal: Array) -> Structure:
    """Make the structure of root·rootᵀ + diag(diagonal) without the matrix; ``root`` has at least one column."""
    nothing = np.empty((0, 0))
    return Structure(nothing, nothing, 0.0, root, diagonal, diagonal + row_squares(root))


@compiled
def row_squares(rows: Array) -> Array:
    """Return the sum of squares of each row."""
    out = np.zeros(rows.shape[0])
    for i in range(rows.shape[0]):
        for q in range(rows.shape[1]):
            out[i] += rows[i, q] * rows[i, q]
    return out


@compiled
def given_array(K: Structure) -> Array:
    """Return the array from which K was made: the matrix, or the root if only the root is known."""
    return K.matrix if K.matrix.shape[0] > 0 else K.root


@compiled
def without_root(K: Structure) -> Structure:
    """Return the structure with only the matrix, if there is one."""
    if K.matrix.shape[0] == 0:
        return K
    n = K.matrix.shape[0]
    return Structure(K.matrix, K.matrix - K.constant, K.constant, np.empty((n, 0)), K.diagonal, K.variance)


@compiled
def loses_digits(K: Structure, tau: Array, error: float) -> bool:
    """Return whether rounding errors of a matrix, relative to deviations 1/√τ of f, may exceed an error."""
    if K.root.shape[1] > 0 or K.matrix.shape[0] == 0:
        return False
    return bool(_DIGITS * np.max(K.variance) * np.max(tau) * sqrt(tau.size) > error)


@separate(STRUCTURE, STRUCTURE)
def whole_root(K: Structure) -> Structure:
    """Return the structure of a matrix with a root of as many columns as its rank, by LAPACK; K if it is indefinite."""
    m, jitter = K.matrix.shape[0], K.diagonal[0]
    L, work, least = K.matrix - jitter * np.eye(m), np.empty(2 * m), np.array([_ROUNDING * np.max(K.variance)])
    n, order, rank, info = np.full(1, m, np.int32), np.zeros(m, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    _dpstrf(_U.ctypes, n.ctypes, L.ctypes, n.ctypes, order.ctypes, rank.ctypes, least.ctypes, work.ctypes, info.ctypes)
    root = np.zeros((m, rank[0]))
    for p in range(m):
        for q in range(min(p + 1, rank[0])):
            root[order[p] - 1, q] = L[p, q]
    if not _is_root(K.matrix, root, 0.0, jitter, _MISSED * np.max(K.variance)):
        return K
    return Structure(K.matrix, K.matrix, 0.0, root, K.diagonal, K.variance)


@compiled
def root_rows(K: Structure, points: NDArray[np.int64]) -> Array:
    """Return rows of the root G; the column of the constant, if there is one, comes first."""
    extra = 1 if K.constant > 0.0 else 0
    out = np.empty((points.shape[0], K.root.shape[1] + extra))
    for p in range(points.shape[0]):
        if extra == 1:
            out[p, 0] = sqrt(K.constant)
        for q in range(K.root.shape[1]):
            out[p, extra + q] = K.root[points[p], q]
    return out


@compiled
def _root(K: Array, constant: float, jitter: float, most: int) -> Array:
    """Return the root of K - constant - jitter·I by pivoted Cholesky; no columns if it needs more than ``most``."""
    n, noise = K.shape[0], 4e-16 * constant  # of the entries
    columns, nothing = np.empty((most, n)), np.empty((n, 0))
    variance = np.diag(K) - constant - jitter
    largest = variance[np.argmax(variance)]
    if not largest > 0.0:
        return nothing
    r = 0
    while True:
        pivot = np.argmax(variance)
        left = variance[pivot]
        if left <= _ROUNDING * largest + noise:
            break
        # The remainder decreases ever faster, so too large a rank is recognised half-way.
        if r == most or (2 * r >= most and left > _HALF_WAY * largest):
            return nothing
        column = columns[r]
        for i in range(n):
            column[i] = K[pivot, i] - constant
        column[pivot] -= jitter
        for q in range(r):
            share = columns[q, pivot]
            for i in range(n):
                column[i] -= share * columns[q, i]
        scale = 1.0 / sqrt(left)
        for i in range(n):
            column[i] *= scale
            variance[i] -= column[i] * column[i]
        variance[pivot] = 0.0
        r += 1
    root = np.ascontiguousarray(columns[:r].T)
    return root if _is_root(K, root, constant, jitter, _MISSED * largest + noise) else nothing


@compiled
def _is_root(K: Array, root: Array, constant: float, jitter: float, error: float) -> bool:
    """Test a root with a vector of signs: the diagonal of an indefinite remainder may be zero."""
    n = K.shape[0]
    signs = np.sign(np.cos(np.arange(n) ** 2.0))
    given, found = np.dot(K, signs), np.dot(root, np.dot(root.T, signs))
    missed = np.abs(given - constant * total(signs) - jitter * signs - found)
    return bool(np.all(missed <= n * error))


@separate(VECTOR, STRUCTURE, VECTOR)
def product(K: Structure, x: Array) -> Array:
    """Compute K·x, using only the nonzero entries of x if they are few."""
    if K.root.shape[1] > 0:
        out = np.dot(K.root, np.dot(K.root.T, x)) + K.diagonal * x
    else:
        used = np.flatnonzero(x)
        if 2 * used.shape[0] > x.shape[0]:
            out = np.dot(K.rest, x)
        else:
            out = np.zeros(x.shape[0])
            for j in used:
                out += x[j] * K.rest[j]
    if K.constant > 0.0:
        out += K.constant * total(x)
    return out


@compiled
def add(a: Array, size: float, step: Array, block: NDArray[np.int64], constant: float) -> None:
    """Add size·step to a; the rounding error of the sum is added to the smallest coefficient of the block.

    A large constant in K multiplies this sum, and the smallest coefficient has the smallest rounding error.
    """
    lost = 0.0
    for i in range(a.shape[0]):
        move = size * step[i]
        new = a[i] + move
        back = new - a[i]
        lost += (a[i] - (new - back)) + (move - back)
        a[i] = new
    if constant > 0.0 and block.shape[0] > 0:
        least = block[0]
        for i in block:
            least = i if abs(a[i]) < abs(a[least]) else least
        a[least] += lost


@compiled
def total(x: Array) -> float:
    """Sum x with compensation of rounding errors (Neumaier)."""
    running, lost = 0.0, 0.0
    for value in x:
        new = running + value
        lost += (running - new) + value if abs(running) >= abs(value) else (value - new) + running
        running = new
    return running + lost


def _external(name: str, n_arguments: int) -> types.ExternalFunction:
    symbol = f"bsvr_pp_{name}"
    llvm.add_symbol(symbol, get_cython_function_address("scipy.linalg.cython_lapack", name))
    return types.ExternalFunction(symbol, types.void(*[types.voidptr] * n_arguments))


_dpotrf = _external("dpotrf", 5)
_dpstrf = _external("dpstrf", 9)
_dpotri = _external("dpotri", 5)
_dpotrs = _external("dpotrs", 8)
_dtrtri = _external("dtrtri", 6)
_dtrtrs = _external("dtrtrs", 10)
_U, _N, _T = (np.frombuffer(letter, dtype=np.uint8) for letter in (b"U", b"N", b"T"))


@compiled
def cholesky(A: Array) -> int:
    """Overwrite the lower triangle of A by L, L·Lᵀ = A; return 0 or the failed row. LAPACK may ignore NaN."""
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

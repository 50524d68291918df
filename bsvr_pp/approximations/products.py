"""The prior covariance as its cores use it: constant, factor of low rank, products that keep their digits.

With a bias variance of 10⁶ every entry of K is about 10⁶ while the dual coefficients sum to about 0: K·a cancels, and
residuals would be known to 1e-6 at best. Here the constant is a term of its own, and only the sum of a, taken without
rounding errors, meets it.

A smooth kernel on few inputs has a handful of eigenvalues above rounding: K = level + root·rootᵀ + jitter·I, with a
root of r « n columns that a pivoted Cholesky factorisation finds from r columns of K. Products then cost n·r and
factorisations n·r² (`site_inverse`); where the rank is not low nothing is lost but a few columns.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.approximations.lapack import cholesky, cholesky_solve
from bsvr_pp.compiler import compiled

__all__ = ["Covariance", "add", "product", "solve_block", "split", "total"]

Array = NDArray[np.float64]

_ROUNDING = 1e-14  # of the largest variance: what the root may leave out
_MISSED = 1e-13  # of the largest variance, an entry
_LEVEL = 1e3  # times the largest variance: the rounding of a larger constant in K is no smooth function
_REFINEMENTS = 2
_HALF_WAY = 0.03  # of the largest variance: more than that left after half the columns foretells too many


class Covariance(NamedTuple):
    """K = level + rest, and where it pays rest = root·rootᵀ + jitter·I.

    Attributes
    ----------
    matrix : (n, n) array
        K itself.
    rest : (n, n) array
        K less the constant; not used beside a root.
    level : float
        The constant, 0 where it is small.
    root : (n, r) array
        Root of low rank, or (n, 0).
    jitter : float
        Multiple of the identity beside the root.
    """

    matrix: Array
    rest: Array
    level: float
    root: Array
    jitter: float


@compiled
def split(K: Array, jitter: float) -> Covariance:
    """The parts of K, which has ``jitter`` on its diagonal.

    The constant is split off where it is large. Both parts are exact, as the difference of numbers within a factor of
    two is.
    """
    n = K.shape[0]
    level, spread = 0.0, np.inf
    low = K[0].min()
    if low >= 10.0 * (K[0, 0] - low):
        low, spread = _range(K)
        level = low if low >= 10.0 * spread else 0.0
    root = np.empty((n, 0))
    if level <= _LEVEL * spread:
        most = min(n // 4, 32 + n // 12)
        root = _root(K, level, jitter, most)
        if level > 0.0 and root.shape[1] == 0:  # K less a constant may be indefinite
            root = _root(K, 0.0, jitter, most)
            level = level if root.shape[1] == 0 else 0.0
    rest = K - level if level > 0.0 and root.shape[1] == 0 else K
    return Covariance(K, rest, level, root, jitter)


@compiled
def _range(K: Array) -> tuple[float, float]:
    """Smallest entry, and how far the largest is above it."""
    low, high = K[0, 0], K[0, 0]
    for i in range(K.shape[0]):
        for j in range(i + 1):
            low, high = min(low, K[i, j]), max(high, K[i, j])
    return low, high - low


@compiled
def _root(K: Array, level: float, jitter: float, most: int) -> Array:
    """Root of K - level - jitter·I by pivoted Cholesky, or no columns where it needs more than ``most``."""
    n, noise = K.shape[0], 4e-16 * level  # of the entries
    columns, nothing = np.empty((most, n)), np.empty((n, 0))
    variance = np.empty(n)
    for i in range(n):
        variance[i] = K[i, i] - level - jitter
    largest = np.max(variance)
    if not largest > 0.0:
        return nothing
    r = 0
    while True:
        pivot = int(np.argmax(variance))
        left = variance[pivot]
        if left <= _ROUNDING * largest + noise:
            break
        # What is left falls ever faster; a rank beyond what pays shows half-way.
        if r == most or (2 * r >= most and left > _HALF_WAY * largest):
            return nothing
        column = columns[r]
        for i in range(n):
            column[i] = K[pivot, i] - level
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
    # An indefinite matrix may have nothing left on its diagonal: ask with a vector of signs.
    signs = np.where(np.cos(np.arange(n) ** 2) > 0.0, 1.0, -1.0)
    missed = np.dot(K, signs) - level * signs.sum() - jitter * signs - np.dot(root, np.dot(root.T, signs))
    return root if np.max(np.abs(missed)) <= n * (_MISSED * largest + noise) else nothing


@compiled
def product(K: Covariance, x: Array) -> Array:
    """K·x, over the nonzero entries of x alone where they are few."""
    if K.root.shape[1] > 0:
        out = np.dot(K.root, np.dot(K.root.T, x)) + K.jitter * x
    else:
        used = np.flatnonzero(x)
        if 2 * used.shape[0] > x.shape[0]:
            out = np.dot(K.rest, x)
        else:
            out = np.zeros(x.shape[0])
            for j in used:
                out += x[j] * K.rest[j]
    if K.level > 0.0:
        out += K.level * total(x)
    return out


@compiled
def solve_block(K: Covariance, rate: Array, right: Array, block: NDArray[np.int64]) -> bool:
    """Overwrite ``right`` (m,) by the solution x of (K + 1/rate) x = right on the block; whether that worked.

    Scaled as I + √rate K √rate, which is well conditioned for soft pieces. ``rate`` (m,) belongs to the block.
    """
    m = block.shape[0]
    if 0 < K.root.shape[1] < m:
        return _solve_by_root(K, rate, right, block)
    scaled, solution = np.empty((m, m)), np.empty((1, m))
    root = np.sqrt(rate)
    for p in range(m):
        i = block[p]
        solution[0, p] = root[p] * right[p]
        for q in range(p + 1):
            scaled[p, q] = root[p] * K.matrix[i, block[q]] * root[q]
        scaled[p, p] += 1.0
    if cholesky(scaled) != 0:
        return False
    cholesky_solve(scaled, solution)
    for p in range(m):
        right[p] = solution[0, p] * root[p]
    return True


@compiled
def _solve_by_root(K: Covariance, rate: Array, right: Array, block: NDArray[np.int64]) -> bool:
    """`solve_block` by D - D·R(I + RᵀD·R)⁻¹RᵀD, D = 1/(jitter + 1/rate), R the rows of the root beside the constant.

    The difference cancels digits, which steps of refinement bring back.
    """
    m, extra = block.shape[0], 1 if K.level > 0.0 else 0
    r = K.root.shape[1] + extra
    rows, weighted, weight = np.empty((m, r)), np.empty((m, r)), np.empty(m)
    for p in range(m):
        weight[p] = rate[p] / (1.0 + K.jitter * rate[p])
        if extra == 1:
            rows[p, 0] = sqrt(K.level)
        rows[p, extra:] = K.root[block[p]]
        weighted[p] = weight[p] * rows[p]
    small = np.dot(rows.T, weighted)
    for q in range(r):
        small[q, q] += 1.0
    if cholesky(small) != 0:
        return False
    missing, solution = right.copy(), np.zeros(m)
    for step in range(_REFINEMENTS + 1):
        if step > 0:
            explained = np.dot(rows.T, solution)
            if extra == 1:
                explained[0] = sqrt(K.level) * total(solution)
            missing = right - np.dot(rows, explained) - solution / weight
        inner = np.dot(weighted.T, missing).reshape(1, r)
        cholesky_solve(small, inner)
        solution += weight * missing - np.dot(weighted, inner[0])
    right[:] = solution
    return True


@compiled
def add(a: Array, size: float, step: Array, block: NDArray[np.int64], level: float) -> None:
    """Add size·step to a; what rounding takes from the sum goes to the smallest coefficient of the block.

    A large constant in K multiplies that sum, and the smallest coefficient has the finest rounding.
    """
    lost = 0.0
    for i in range(a.shape[0]):
        move = size * step[i]
        new = a[i] + move
        back = new - a[i]
        lost += (a[i] - (new - back)) + (move - back)
        a[i] = new
    if level > 0.0 and block.shape[0] > 0:
        least = block[np.argmin(np.abs(a[block]))]
        a[least] += lost


@compiled
def total(x: Array) -> float:
    """Sum of x with the rounding errors of each addition kept (Neumaier)."""
    running, lost = 0.0, 0.0
    for value in x:
        new = running + value
        lost += (running - new) + value if abs(running) >= abs(value) else (value - new) + running
        running = new
    return running + lost

"""Gaussian sites on the prior covariance: determinant, inverse and marginal variances.

With site precisions τ the posterior of f has the covariance K - K·R·K, R = (K + τ⁻¹)⁻¹ = √τ(I + √τK√τ)⁻¹√τ, over the
points with a site. Let K = G·Gᵀ + D with a diagonal D and a root G of r columns, the constant's included. Then R = T -
T·G(I + GᵀT·G)⁻¹GᵀT with T = τ/(1 + D·τ). This needs r³ instead of n³ operations, and the variances are sums of squares.
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate
from bsvr_pp.core.covariance.structure import (
    STRUCTURE,
    Structure,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    given_array,
    lower_inverse,
    lower_solve,
    root_rows,
    row_squares,
    total,
)

_ROUNDING = 1e-10  # (1 - B⁻¹_ii)/τ is more accurate than this, relative to k_ii, where τ·k_ii is 1
_REFINEMENTS = 2
_WIDE = 1e-2  # value of τ·k_ii below which k_ii - ... is as accurate


class Sites(NamedTuple):
    """The factor of the sites of m points."""

    points: NDArray[np.int64]
    precision: Array  # (m,), τ
    weight: Array  # (m,), T if K has a root, otherwise τ
    triangle: Array  # lower L (m, m) with L·Lᵀ = I + √τK√τ, or (r, r) with L·Lᵀ = I + GᵀT·G
    half: Array  # rows (m, r) of G·L⁻ᵀ if K has a root, otherwise (m, 0)
    log_det: float  # log|I + √τK√τ|
    factored: bool  # whether the factorisation succeeded


SITES = typeof(Sites(np.arange(1), np.ones(1), np.ones(1), np.eye(1), np.eye(1), 1.0, True))


@separate(SITES, STRUCTURE, VECTOR, types.int64[::1])
def factor_sites(K: Structure, precision: Array, points: NDArray[np.int64]) -> Sites:
    """Factor the sites of some points; precisions may be 0. This is the only factorisation of I + √τK√τ."""
    tau, m, by_root = precision[points], points.shape[0], K.root.shape[1] > 0 and points.shape[0] > 0
    weight, half, log_det = tau.copy(), np.empty((m, 0)), 0.0
    if by_root:
        half, loss = root_rows(K, points), K.diagonal[points] * tau
        weight, log_det = tau / (1.0 + loss), np.sum(np.log1p(loss))
        triangle = np.dot(half.T, weight.reshape(m, 1) * half)
    else:
        triangle, root = np.empty((m, m)), np.sqrt(tau)
        for p in range(m):
            i = points[p]
            for q in range(p + 1):
                triangle[p, q] = root[p] * K.matrix[i, points[q]] * root[q]
    for q in range(triangle.shape[0]):
        triangle[q, q] += 1.0
    factored = cholesky(triangle) == 0
    for q in range(triangle.shape[0]):
        log_det += 2.0 * log(triangle[q, q])
    if by_root:
        lower_solve(triangle, half)
    return Sites(points, tau, weight, triangle, half, log_det, factored)


@separate(types.Tuple((MATRIX, VECTOR)), STRUCTURE, SITES)
def site_inverse(K: Structure, sites: Sites) -> tuple[Array, Array]:
    """Return R = (K + τ⁻¹)⁻¹ over the sites, (m, m), or R·root (m, r) if only the root is known; and its diagonal."""
    m, r = sites.half.shape
    if K.matrix.shape[0] == 0:
        out = root_rows(K, sites.points)
        if m > 0:
            cholesky_solve(sites.triangle, out)
        return sites.weight.reshape(m, 1) * out, sites.weight * (1.0 - sites.weight * row_squares(sites.half))
    if r > 0:
        weighted = sites.weight.reshape(m, 1) * sites.half
        out = np.dot(weighted, -weighted.T)
        for p in range(m):
            out[p, p] += sites.weight[p]
    else:
        out, root = sites.triangle.copy(), np.sqrt(sites.weight)
        if m > 0:
            cholesky_inverse(out)
        out *= root.reshape(m, 1) * root
    return out, np.diag(out)


@separate(MATRIX, STRUCTURE, types.int64[::1], MATRIX, VECTOR, VECTOR)
def pull_back(K: Structure, points: NDArray[np.int64], inverse: Array, a: Array, pull: Array) -> Array:
    """Return d(evidence)/dK, (n, n): ½aaᵀ - ½(pull·aᵀ + a·pullᵀ) - ½R, R the ``inverse`` at the points.

    If only a root is known, return the derivative by the root (n, r): twice this times the root.
    """
    by_root = K.matrix.shape[0] == 0
    share, left, right = 0.5, a, pull
    if by_root:
        share, left, right = 1.0, np.dot(K.root.T, a), np.dot(K.root.T, pull)
    out = np.empty(given_array(K).shape)
    for i in range(a.shape[0]):
        x, y = share * (a[i] - pull[i]), -share * a[i]
        for j in range(left.shape[0]):
            out[i, j] = x * left[j] + y * right[j]
    for p in range(points.shape[0]):
        for q in range(inverse.shape[1]):
            out[points[p], q if by_root else points[q]] -= share * inverse[p, q]
    return out


@compiled
def apply_inverse(K: Structure, sites: Sites, x: Array) -> Array:
    """Return R·x for an x over the sites; by a root with steps of refinement, since R·x = T·x - ... cancels digits."""
    if sites.half.shape[1] == 0:
        root = np.sqrt(sites.weight)
        out = (root * x).reshape(1, x.shape[0])
        if x.shape[0] > 0:
            cholesky_solve(sites.triangle, out)
        return root * out[0]
    rows, solution, compliance = root_rows(K, sites.points), np.zeros_like(x), 1.0 / sites.weight
    for _ in range(_REFINEMENTS + 1):
        explained = np.dot(rows.T, solution)
        if K.constant > 0.0:
            explained[0] = sqrt(K.constant) * total(solution)
        weighted = sites.weight * (x - np.dot(rows, explained) - solution * compliance)
        solution += weighted - sites.weight * np.dot(sites.half, np.dot(sites.half.T, weighted))
    return solution


@separate(types.boolean, STRUCTURE, VECTOR, VECTOR, types.int64[::1])
def solve_block(K: Structure, rate: Array, right: Array, block: NDArray[np.int64]) -> bool:
    """Overwrite ``right`` (m,) by the solution x of (K + 1/rate) x = right on the block; return the success."""
    precision = np.zeros(K.variance.shape[0])
    precision[block] = rate
    sites = factor_sites(K, precision, block)
    if sites.factored:
        right[:] = apply_inverse(K, sites, right)
    return sites.factored


@compiled
def solve_by_root(K: Structure, sites: Sites, tau: Array, nu: Array, a: Array) -> Array:
    """Overwrite a by the solution of a + τ·K·a = ν; return K·a, which loses no digits, as large as the prior may be."""
    root, share = root_rows(K, np.arange(a.shape[0])), 1.0 / (1.0 + K.diagonal * tau)
    w = np.dot(root.T, share * nu).reshape(1, root.shape[1])
    cholesky_solve(sites.triangle, w)
    smooth = np.dot(root, w[0])
    a[:] = share * (nu - tau * smooth)
    missing = w - np.dot(root.T, a).reshape(1, root.shape[1])  # rounding errors of a that a new row would multiply
    cholesky_solve(sites.triangle, missing)
    a += share * tau * np.dot(root, missing[0])
    return smooth + K.diagonal * a


@separate(types.UniTuple(VECTOR, 2), STRUCTURE, SITES, MATRIX, types.float64)
def marginals(K: Structure, sites: Sites, inverse: Array, accuracy: float) -> tuple[Array, Array]:
    """Return the marginal variances Σ_ii and cavity variances 1/(1/Σ_ii - τ_i) of all n inputs.

    With B = I + √τK√τ the cavity variance is Σ_ii/B⁻¹_ii. Σ_ii is (1 - B⁻¹_ii)/τ_i if the site is narrow relative to
    the prior, else k_ii - ‖L⁻¹√τk_i‖². The first is cheaper, and is used if its rounding errors permit the
    ``accuracy``. ``inverse``, of the shape of ``sites.triangle``, is workspace for L⁻¹.
    """
    n, m = K.variance.shape[0], sites.points.shape[0]
    variance, kept = K.variance.copy(), np.ones(n)
    if m == 0:
        return variance, variance / kept
    wide = np.ones(n, dtype=np.bool_)
    if sites.half.shape[1] > 0:
        own, smooth = K.diagonal[sites.points], row_squares(sites.half)
        share = 1.0 / (1.0 + own * sites.precision)
        variance[sites.points] = share * (own + share * smooth)
        kept[sites.points] = share * (1.0 - sites.weight * smooth)
        wide[sites.points] = False
        others = np.flatnonzero(wide)
        if others.shape[0] > 0:
            half = root_rows(K, others)
            lower_solve(sites.triangle, half)
            variance[others] = K.diagonal[others] + row_squares(half)
        return variance, variance / kept
    for p in range(m):
        for q in range(p + 1):
            inverse[p, q] = sites.triangle[p, q]
    lower_inverse(inverse)
    kept[sites.points] = 0.0
    for p in range(m):
        for q in range(p + 1):
            kept[sites.points[q]] += inverse[p, q] * inverse[p, q]
    narrow = min(_ROUNDING / accuracy, _WIDE) if accuracy > 0.0 else _WIDE
    for p in range(m):
        i = sites.points[p]
        if sites.weight[p] * K.variance[i] > narrow:
            variance[i] = (1.0 - kept[i]) / sites.weight[p]
            wide[i] = False
    others = np.flatnonzero(wide)
    if others.shape[0] > 0:
        explained = np.empty((others.shape[0], m))
        for p in range(others.shape[0]):
            for q in range(m):
                explained[p, q] = sqrt(sites.weight[q]) * K.matrix[others[p], sites.points[q]]
        lower_solve(sites.triangle, explained)
        variance[others] -= row_squares(explained)
    return variance, variance / kept

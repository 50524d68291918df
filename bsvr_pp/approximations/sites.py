"""Gaussian sites on the prior covariance: determinant, inverse and marginal variances.

With site precisions τ the posterior of f has the covariance K - K·R·K, R = (K + τ⁻¹)⁻¹ = √τ(I + √τK√τ)⁻¹√τ, over the
points that have a site. Where K = root·rootᵀ + jitter·I with r columns, R = T - T·G(I + GᵀT·G)⁻¹GᵀT with
T = τ/(1 + jitter·τ) and G the root beside the constant: r³ instead of n³, and the variances are sums of squares.
"""

from __future__ import annotations

from math import log, log1p, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.approximations.lapack import cholesky, cholesky_inverse, cholesky_solve, lower_inverse, lower_solve
from bsvr_pp.approximations.products import Covariance
from bsvr_pp.compiler import compiled

__all__ = ["Sites", "apply_inverse", "factor_sites", "marginals", "site_inverse"]

Array = NDArray[np.float64]


class Sites(NamedTuple):
    """Sites, factored.

    Attributes
    ----------
    points : (m,) array of int
        Where they are.
    weight : (m,) array
        Their precision, or T where K has a root.
    half : (m, m) or (m, r) array
        L with L·Lᵀ = I + √τK√τ (lower triangle), or the rows of G·L⁻ᵀ with L·Lᵀ = I + GᵀT·G.
    log_det : float
        log|I + √τK√τ|.
    factored : bool
        Whether the factorisation worked.
    """

    points: NDArray[np.int64]
    weight: Array
    half: Array
    log_det: float
    factored: bool


@compiled
def factor_sites(K: Covariance, precision: Array, points: NDArray[np.int64]) -> Sites:
    """Factor the sites of some points; precisions may be 0."""
    weight = precision[points]
    m, r = points.shape[0], K.root.shape[1]
    log_det = 0.0
    if r > 0 and m > 0:
        half = _rows(K, points)
        for p in range(m):
            log_det += log1p(K.jitter * weight[p])
            weight[p] /= 1.0 + K.jitter * weight[p]
        weighted = half.copy()
        for p in range(m):
            weighted[p] *= weight[p]
        small = np.dot(half.T, weighted)
        for q in range(small.shape[0]):
            small[q, q] += 1.0
        factored = cholesky(small) == 0
        for q in range(small.shape[0]):
            log_det += 2.0 * log(small[q, q])
        lower_solve(small, half)
        return Sites(points, weight, half, log_det, factored)
    half, root = np.empty((m, m)), np.sqrt(weight)
    for p in range(m):
        i = points[p]
        for q in range(p + 1):
            half[p, q] = root[p] * K.matrix[i, points[q]] * root[q]
        half[p, p] += 1.0
    factored = cholesky(half) == 0
    for p in range(m):
        log_det += 2.0 * log(half[p, p])
    return Sites(points, weight, half, log_det, factored)


@compiled
def _rows(K: Covariance, points: NDArray[np.int64]) -> Array:
    """Rows of the root, the constant's column in front where there is one."""
    extra = 1 if K.level > 0.0 else 0
    out = np.empty((points.shape[0], K.root.shape[1] + extra))
    for p in range(points.shape[0]):
        if extra == 1:
            out[p, 0] = sqrt(K.level)
        out[p, extra:] = K.root[points[p]]
    return out


@compiled
def site_inverse(K: Covariance, sites: Sites) -> Array:
    """R = (K + τ⁻¹)⁻¹ over the sites, (m, m); may overwrite ``sites.half``."""
    m = sites.points.shape[0]
    if K.root.shape[1] > 0:
        weighted = sites.half.copy()
        for p in range(m):
            weighted[p] *= -sites.weight[p]
        out = np.dot(weighted, -weighted.T)
        for p in range(m):
            out[p, p] += sites.weight[p]
        return out
    if m > 0:
        cholesky_inverse(sites.half)
    root = np.sqrt(sites.weight)
    for p in range(m):
        for q in range(m):
            sites.half[p, q] *= root[p] * root[q]
    return sites.half


@compiled
def apply_inverse(K: Covariance, sites: Sites, x: Array) -> Array:
    """R·x for an x over the sites."""
    if K.root.shape[1] > 0:
        weighted = sites.weight * x
        return weighted - sites.weight * np.dot(sites.half, np.dot(sites.half.T, weighted))
    root = np.sqrt(sites.weight)
    out = (root * x).reshape(1, x.shape[0])
    cholesky_solve(sites.half, out)
    return root * out[0]


@compiled
def marginals(K: Covariance, precision: Array, sites: Sites) -> tuple[Array, Array]:
    """Marginal variances Σ_ii and cavity variances 1/(1/Σ_ii - τ_i), with all points in the sites; overwrites them.

    With B = I + √τK√τ the cavity variance is Σ_ii/B⁻¹_ii, and Σ_ii = (1 - B⁻¹_ii)/τ_i where the site is narrow against
    the prior, else k_ii - ‖L⁻¹√τk_i‖².
    """
    n = precision.shape[0]
    variance, kept = np.empty(n), np.zeros(n)
    if K.root.shape[1] > 0:
        for i in range(n):
            smooth = 0.0
            for q in range(sites.half.shape[1]):
                smooth += sites.half[i, q] * sites.half[i, q]
            share = 1.0 / (1.0 + K.jitter * precision[i])
            variance[i] = share * (K.jitter + share * smooth)
            kept[i] = share * (1.0 - sites.weight[i] * smooth)
        return variance, variance / kept
    inverse = sites.half
    lower_inverse(inverse)
    for i in range(n):
        for j in range(i + 1):
            kept[j] += inverse[i, j] * inverse[i, j]
    wide = np.empty(n, dtype=np.int64)
    n_wide = 0
    for i in range(n):
        if precision[i] * K.matrix[i, i] > 1e-2:
            variance[i] = (1.0 - kept[i]) / precision[i]
        else:
            wide[n_wide] = i
            n_wide += 1
    if n_wide > 0:
        columns = np.empty((n, n_wide))
        for i in range(n):
            root = sqrt(precision[i])
            for j in range(i + 1, n):
                inverse[i, j] = 0.0
            for q in range(n_wide):
                columns[i, q] = root * K.matrix[i, wide[q]]
        half = np.dot(inverse, columns)
        for q in range(n_wide):
            explained = 0.0
            for i in range(n):
                explained += half[i, q] * half[i, q]
            variance[wide[q]] = K.matrix[wide[q], wide[q]] - explained
    return variance, variance / kept

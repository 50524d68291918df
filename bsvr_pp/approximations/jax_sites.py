"""K and Gaussian sites on it in JAX: `bsvr_pp.covariance.structure` and `.sites` for a dense K.

Points without a site have precision 0, so that all arrays have the size of K.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

__all__ = ["Sites", "Structure", "factor_sites", "pull_back", "solve", "split", "total"]

_LARGE = 10.0  # least constant in K, over the spread of its entries, that is kept apart


class Structure(NamedTuple):
    """K = constant + rest.

    Attributes
    ----------
    matrix, rest : (n, n) arrays
        K, and K minus the constant.
    constant : float
        The constant, 0 where it is small.
    """

    matrix: Array
    rest: Array
    constant: Array

    @property
    def variance(self) -> Array:
        """Diagonal of K."""
        return jnp.diagonal(self.matrix)

    def times(self, x: Array) -> Array:
        """K·x."""
        return self.rest @ x + self.constant * total(x)


class Sites(NamedTuple):
    """The factor of all sites, and the marginal variances.

    Attributes
    ----------
    root : (n,) array
        √τ.
    inverse : (n, n) array
        L⁻¹, with L·Lᵀ = I + √τK√τ.
    log_det : float
        log|I + √τK√τ|.
    variance, cavity_variance : (n,) arrays
        Marginal variances Σ_ii, and 1/(1/Σ_ii - τ_i).
    """

    root: Array
    inverse: Array
    log_det: Array
    variance: Array
    cavity_variance: Array

    def apply_inverse(self, x: Array) -> Array:
        """R·x with R = (K + τ⁻¹)⁻¹ over the sites."""
        return self.root * (self.inverse.T @ (self.inverse @ (self.root * x)))


def split(K: Array) -> Structure:
    """Separate a large constant from K; both parts are exact."""
    low, high = K.min(), K.max()
    constant = jnp.where(low >= _LARGE * (high - low), low, 0.0)
    return Structure(K, K - constant, constant)


def total(x: Array) -> Array:
    """Sum of x (n,), without rounding errors of terms that cancel.

    High parts of all terms, multiples of one power of two, add up exactly in any order (Rump, Ogita & Oishi 2008,
    algorithm 3.2).
    """
    exponent = jnp.frexp(jnp.max(jnp.abs(x)))[1] + (x.shape[0] + 1).bit_length()
    unit = jnp.ldexp(jnp.ones(()), exponent)
    high = (x + unit) - unit
    return high.sum() + (x - high).sum()


def factor(K: Structure, root: Array) -> Array:
    """L with L·Lᵀ = I + root·K·root; NaN where it does not exist."""
    return jnp.linalg.cholesky(jnp.eye(root.shape[0]) + root[:, None] * K.matrix * root)


def solve(K: Structure, rate: Array, right: Array) -> Array:
    """Solve (K + 1/rate) x = right over the points with a rate above 0; x is 0 at the others, and NaN on failure."""
    root = jnp.sqrt(rate)
    return root * cho_solve((factor(K, root), True), root * right)


def factor_sites(K: Structure, tau: Array, least: Array | float = 0.0) -> Sites:
    """Factor the sites of precisions τ (n,); NaN on failure. Variances are at least ``least``."""
    n, root = tau.shape[0], jnp.sqrt(tau)
    triangle = factor(K, root)
    both = solve_triangular(triangle, jnp.hstack([jnp.eye(n), root[:, None] * K.matrix]), lower=True)
    inverse, explained = both[:, :n], both[:, n:]
    kept = (inverse * inverse).sum(axis=0)
    wide = tau * K.variance <= 1.0
    narrow = (1.0 - kept) / jnp.where(wide, 1.0, tau)
    variance = jnp.maximum(jnp.where(wide, K.variance - (explained * explained).sum(axis=0), narrow), least)
    log_det = 2.0 * jnp.log(jnp.diagonal(triangle)).sum()
    return Sites(root, inverse, log_det, variance, jnp.maximum(variance / kept, least))


def pull_back(sites: Sites, a: Array, pull: Array | float = 0.0) -> Array:
    """Derivative of an evidence by K: ½aaᵀ - ½(pull·aᵀ + a·pullᵀ) - ½R with R = (K + τ⁻¹)⁻¹ over the sites."""
    half = sites.inverse * sites.root
    moved = jnp.outer(a, 0.5 * a - pull)
    return 0.5 * (moved + moved.T - half.T @ half)

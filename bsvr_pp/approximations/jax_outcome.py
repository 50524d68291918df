"""Return value of the solves in JAX, with the same fields for every approximation."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array

__all__ = ["Found"]


class Found(NamedTuple):
    """A Gaussian approximation of the latent function, and the gradient of its evidence.

    Attributes
    ----------
    value : float
        Log evidence; -inf if the solve did not converge.
    dual_coef, site_precision : (n,) arrays
        The sites.
    shift, variance, cavity_variance : (n,) arrays
        K·dual_coef, the marginal variances, and those without the own site.
    support : (n,) array of int
        Kind of each point at the mode; (0,) if the mode was not sought.
    by_K : (n, n) array
        Derivative of the value by K; zeros if it did not converge, as the two below.
    by_residual : (n,) array
        By t = y - prior mean.
    by_parameters : (p, n) array
        By the parameters of the loss, as if each point had its own.
    iterations : int
        Number of factorisations of the mode, or of sweeps, from the start that converged.
    gap : float
        Relative duality gap of the mode; 0 if it was not sought.
    mismatch : float
        Largest difference of moments, in posterior standard deviations; 0 for Laplace.
    converged : bool
        Whether the solve met its tolerance within its iterations.
    """

    value: Array
    dual_coef: Array
    site_precision: Array
    shift: Array
    variance: Array
    cavity_variance: Array
    support: Array
    by_K: Array
    by_residual: Array
    by_parameters: Array
    iterations: Array
    gap: Array
    mismatch: Array
    converged: Array

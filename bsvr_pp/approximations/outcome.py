"""Return values of the compiled solves, with the same fields for every approximation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from bsvr_pp._compiler import VECTOR, compiled
from bsvr_pp.approximations.sites import SITES, Sites

__all__ = ["GRADIENTS", "OUTCOME", "Gradients", "Outcome", "failed", "sites_of"]

Array = NDArray[np.float64]


class Outcome(NamedTuple):
    """A Gaussian approximation of the latent function at fixed hyperparameters.

    Attributes
    ----------
    value : float
        Log evidence.
    dual_coef : (n,) array
        a with mean = prior mean + K·a.
    site_precision : (n,) array
        τ, 0 for points without a site.
    sites : Sites
        The factor of these sites.
    support : (n,) array of int
        Kind of each point at the mode; empty if the mode was not computed.
    iterations : int
        Number of factorisations of the mode, or of sweeps.
    converged : bool
        Whether the approximation met its tolerance.
    gap : float
        Relative duality gap of the mode; 0 if it was not computed.
    mismatch : float
        Largest difference of moments, in posterior standard deviations; 0 for Laplace.
    """

    value: float
    dual_coef: Array
    site_precision: Array
    sites: Sites
    support: NDArray[np.int64]
    iterations: int
    converged: bool
    gap: float
    mismatch: float


class Gradients(NamedTuple):
    """Derivatives of the log evidence other than that by K.

    Attributes
    ----------
    residual : (n,) array
        Derivative by t = y - prior mean.
    parameters : (p, k) array
        Derivative by the parameters of each row of the table of pieces.
    ends : (n, 2) array
        Derivative by the ends of intervals at fixed t; (0, 2) where all targets are exact.
    """

    residual: Array
    parameters: Array
    ends: Array


OUTCOME = types.NamedTuple(
    (
        types.float64,
        VECTOR,
        VECTOR,
        SITES,
        types.int64[::1],
        types.int64,
        types.boolean,
        types.float64,
        types.float64,
    ),
    Outcome,
)
GRADIENTS = typeof(Gradients(np.ones(1), np.eye(1), np.ones((1, 2))))


@compiled
def sites_of(found: Outcome) -> Array:
    """Dual coefficients and site precisions as rows (2, n), from which another search can start."""
    n = found.dual_coef.shape[0]
    out = np.empty((2, n))
    for i in range(n):
        out[0, i], out[1, i] = found.dual_coef[i], found.site_precision[i]
    return out


@compiled
def failed(found: Outcome) -> Outcome:
    """Return the same with the value -inf."""
    return Outcome(
        -np.inf,
        found.dual_coef,
        found.site_precision,
        found.sites,
        found.support,
        found.iterations,
        False,
        found.gap,
        found.mismatch,
    )

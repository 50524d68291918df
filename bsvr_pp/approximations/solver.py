"""What all solvers have in common: their arguments (K, y, noise, mean), their results, and solves block by block."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numba import typeof
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp._compiler import compiled
from bsvr_pp.covariance.block_diagonal import BlockDiagonal, Rows
from bsvr_pp.covariance.covariance import Covariance, as_covariance
from bsvr_pp.covariance.sites import Sites
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.pieces import Pieces

__all__ = [
    "GRADIENTS",
    "OUTCOME",
    "Gradients",
    "Outcome",
    "blockwise",
    "check_noise",
    "checked_mean",
    "checked_problem",
    "failed",
    "sites_of",
]

Array = NDArray[np.float64]


def checked_problem(
    K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, mean: ArrayLike | None
) -> tuple[Covariance, Array, Array, Pieces]:
    """Check the arguments, and return the covariance, y - mean, the mean and the sites, all of length n."""
    check_noise(noise)
    targets = numbers("y", y, ("n",))
    covariance = as_covariance(K)
    offset = checked_mean(mean, covariance.size)
    if targets.size != offset.size:
        raise ValueError(f"y must have {offset.size} values as K has rows, got {targets.size}")
    return covariance, noise.reference(targets) - offset, offset, noise.sites(targets)


def checked_mean(mean: ArrayLike | None, n: int) -> Array:
    """Check the prior mean (n,), which is 0 by default."""
    offset = np.zeros(n) if mean is None else numbers("mean", mean, ("n",))
    if offset.size != n:
        raise ValueError(f"mean must have {n} values as K has rows, got {offset.size}")
    return offset


def check_noise(noise: object) -> None:
    """Check that an object is a noise model."""
    if not isinstance(noise, NoiseModel):
        raise TypeError(f"noise must be a noise model of bsvr_pp.losses, such as absolute(C=1.0), got {noise!r}")


class Outcome(NamedTuple):
    """A Gaussian approximation of the latent function at fixed hyperparameters."""

    value: float  # log evidence
    dual_coef: Array  # a with mean = prior mean + K·a
    site_precision: Array  # τ, 0 for points without a site
    sites: Sites  # their factor
    support: NDArray[np.int64]  # kind of each point at the mode; empty if the mode was not computed
    iterations: int  # number of factorisations of the mode, or of sweeps
    converged: bool  # whether it met its tolerance
    gap: float  # relative duality gap of the mode; 0 if it was not computed
    mismatch: float  # largest difference of moments, in posterior standard deviations; 0 if it was not computed


class Gradients(NamedTuple):
    """Derivatives of the log evidence."""

    K: Array  # (n, n)
    residual: Array  # (n,), by t = y - prior mean
    parameters: Array  # (p, k), by the parameters of each row of the table of pieces
    ends: Array  # (n, 2), by the ends of intervals at fixed t; 0 for exact targets


_FACTOR = Sites(np.arange(1), np.ones(1), np.ones(1), np.eye(1), np.eye(1), 1.0, True)
OUTCOME = typeof(Outcome(1.0, np.ones(1), np.ones(1), _FACTOR, np.arange(1), 1, True, 0.0, 0.0))
GRADIENTS = typeof(Gradients(np.eye(1), np.ones(1), np.eye(1), np.eye(2)))


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
    a, precision, sites, support = found.dual_coef, found.site_precision, found.sites, found.support
    return Outcome(-np.inf, a, precision, sites, support, found.iterations, False, found.gap, found.mismatch)


def blockwise(
    join: Callable[[BlockDiagonal, list[Any], Array], Any],
    slim: Callable[[Any], Any] = lambda found: found,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a solver (K, y, noise, *, mean) run block by block where K is a `BlockDiagonal`.

    ``join`` maps K, the results of all blocks and the prior mean to the result, and ``slim`` takes from the result of a
    block what is large.
    """

    def decorate(solve: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(solve)
        def run(K: Any, y: Any, noise: Any, *, mean: Any = None, **options: Any) -> Any:
            if not isinstance(K, BlockDiagonal):
                return solve(K, y, noise, mean=mean, **options)
            check_noise(noise)
            targets, offset = numbers("y", y, (K.size,)), checked_mean(mean, K.size)

            def solved(part: Covariance, rows: Rows) -> Any:
                return slim(solve(part, targets[rows], noise, mean=offset[rows], **options))

            return join(K, K.each(solved), offset)

        return run

    return decorate

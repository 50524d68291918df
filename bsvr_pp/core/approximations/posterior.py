"""The arguments (K, y, noise, mean) of all solvers, and the posterior that they return.

The posterior of f given hyperparameters is N(m + K·dual_coef, (K⁻¹ + diag(site_precision))⁻¹): the mode or mean, and
one Gaussian site per point. Error bars, leave-one-out and predictions follow from these two vectors, in the same way
for all methods (Chu, Keerthi & Ong 2004, (44); Gao, Gunn & Harris 2002, (4.2)-(4.3)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import typeof
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.arrays import Array, Rows, numbers
from bsvr_pp.core.compiler import compiled
from bsvr_pp.core.covariance.covariance import (
    BlockDiagonal,
    BlockFactor,
    Covariance,
    CrossRoot,
    Factor,
    as_covariance,
    scatter,
)
from bsvr_pp.core.covariance.sites import Sites
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.pieces import Pieces

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def checked_problem(
    K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, mean: ArrayLike | None, *, mode: bool = False
) -> tuple[Covariance, Array, Array, Pieces]:
    """Check the arguments, for a ``mode`` too; return the covariance, y - mean, the mean and the sites, of length n."""
    check_noise(noise)
    if mode and (refusal := noise.kind.targets.refusal("mode", name=noise.name)):
        raise ValueError(refusal)
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
    """A Gaussian approximation of the latent function at fixed hyperparameters; the first fields of the posterior."""

    dual_coef: Array  # a with mean = prior mean + K·a
    site_precision: Array  # τ, 0 for points without a site
    value: float  # log evidence
    support: NDArray[np.int64]  # kind of each point at the mode; empty if the mode was not computed
    converged: bool  # whether it met its tolerance
    iterations: int  # number of factorisations of the mode, or of sweeps
    gap: float  # relative duality gap of the mode; 0 if it was not computed
    mismatch: float  # largest difference of moments, in posterior standard deviations; 0 if it was not computed
    sites: Sites  # the factor of the sites


class Gradients(NamedTuple):
    """Derivatives of the log evidence."""

    K: Array  # (n, n), or by the root (n, r) where only that is known
    residual: Array  # (n,), by t = y - prior mean
    parameters: Array  # (p, k), by the parameters of each row of the table of pieces
    ends: Array  # (n, 2), by the ends of intervals at fixed t; 0 for exact targets


class Gradient(NamedTuple):
    """Gradient of a log evidence: a symmetric change dK of K changes it by the sum of K∘dK."""

    K: Array  # (n, n), by the prior covariance; of `Covariance.from_root` (n, r), by the root
    mean: Array  # (n,), by the prior mean; the derivative by the targets is its negative
    parameters: dict[str, float | Array]  # by each parameter of the loss, with its shape


def named_gradient(noise: NoiseModel, found: Outcome, by: Gradients) -> tuple[float, Gradient]:
    """Return the log evidence and its gradient by the parameters of the noise as they were given."""
    parameters = {
        name: float(row.sum()) if np.ndim(value) == 0 else row
        for (name, value), row in zip(noise.parameters.items(), by.parameters, strict=True)
    }
    return found.value, Gradient(by.K, -by.residual, parameters)


_FACTOR = Sites(np.arange(1), np.ones(1), np.ones(1), np.eye(1), np.eye(1), 1.0, True)
OUTCOME = typeof(Outcome(np.ones(1), np.ones(1), 1.0, np.arange(1), True, 1, 0.0, 0.0, _FACTOR))
GRADIENTS = typeof(Gradients(np.eye(1), np.ones(1), np.eye(1), np.eye(2)))


@compiled
def sites_of(found: Outcome) -> Array:
    """Return the dual coefficients and site precisions as rows (2, n), from which another search can start."""
    return np.concatenate((found.dual_coef, found.site_precision)).reshape(2, -1)


@compiled
def mark_failed(found: Outcome) -> Outcome:
    """Return the same with the value -inf."""
    a, precision, _, support, _, iterations, gap, mismatch, sites = found
    return Outcome(a, precision, -np.inf, support, False, iterations, gap, mismatch, sites)


@shared
@dataclass(frozen=True, slots=True)
class LatentPosterior:
    """Gaussian posterior of the latent function at fixed hyperparameters.

    Attributes
    ----------
    dual_coef : (n,) array
        Dual coefficients: the mean of f is prior mean + K·dual_coef.
    site_precision : (n,) array
        Precision of the Gaussian site of each point; 0 if there is none.
    mean, variance : (n,) arrays
        Mean and variance of f at the training inputs, in the units of the target and their square.
    log_evidence : float
        Natural log of the evidence.
    support : (n,) array of int
        Kind of each point at the mode: 0 not a support vector, 1 off-bound, 2 on-bound; (0,) if the mode was not
        computed, as in mean field.
    converged : bool
        Whether the method met its tolerance.
    n_iter : int
        Number of factorisations (mode) or sweeps (mean field).
    duality_gap : float
        Relative duality gap of the mode; 0 if it was not computed.
    mismatch : float
        Largest difference of moments at the end of mean field, in posterior standard deviations; 0 for Laplace.
    cavity_variance : (n,) array
        Variance of f_i without site i, 1/(1/variance_i - site_precision_i).
    factor : Factor or BlockFactor
        The factorisation of the prior covariance with the sites.
    """

    dual_coef: Array
    site_precision: Array
    log_evidence: float
    support: NDArray[np.int64]
    converged: bool
    n_iter: int
    duality_gap: float
    mismatch: float
    mean: Array
    variance: Array
    cavity_variance: Array
    factor: Factor | BlockFactor = field(repr=False)

    @property
    def cavity_mean(self) -> Array:
        """Mean of f_i without site i, (n,)."""
        return self.mean - self.cavity_variance * self.dual_coef

    def log_loo(self, y: ArrayLike, noise: NoiseModel) -> Array:
        """Return the leave-one-out log predictive density of each target, log ∫ p(y_i|f_i) p(f_i|y_-i) df_i.

        The cavity approximates p(f_i|y_-i). For mean field the other sites are not refitted. For Laplace all sites are
        treated as Gaussian; the error is largest if a single point determines its fit.

        Parameters
        ----------
        y : (n,) array
            The targets.
        noise : NoiseModel
            The noise of the fit.

        Returns
        -------
        (n,) array

        Raises
        ------
        ValueError
            If y has another length, or is not finite.
        TypeError
            If noise is not a noise model.

        <on_arrays>
        >>> posterior = mean_field(np.eye(2), [1.0, -1.0], gaussian(C=1.0))
        >>> posterior.log_loo([1.0, -1.0], gaussian(C=1.0)).round(6).tolist()
        [-1.515512, -1.515512]
        """
        check_noise(noise)
        targets = numbers("y", y, (self.mean.size,))
        return noise.tilted(self.cavity_mean, self.cavity_variance, targets)[0]

    def predict(
        self, K_star: ArrayLike | CrossRoot, k_star_diag: ArrayLike, mean: ArrayLike = 0.0
    ) -> tuple[Array, Array]:
        """Return the mean and variance of f at new inputs.

        Parameters
        ----------
        K_star : (n_new, n) array or CrossRoot
            Prior covariance between the new and the training inputs.
        k_star_diag : (n_new,) array
            Prior variance at the new inputs.
        mean : (n_new,) array or float
            Prior mean at the new inputs.

        Returns
        -------
        mean, variance : (n_new,) arrays

        Raises
        ------
        ValueError
            If the shapes do not fit, or something is not a finite number.

        <on_arrays>
        >>> posterior = laplace(np.eye(2), [1.0, -1.0], gaussian(C=1.0))
        >>> mean, variance = posterior.predict([[0.5, 0.0]], [1.0])
        >>> mean.round(6).tolist(), variance.round(6).tolist()
        ([0.25], [0.875])
        """
        n, cross = self.dual_coef.size, K_star if isinstance(K_star, CrossRoot) else numbers("K_star", K_star)
        if cross.shape[1:] != (n,):
            raise ValueError(f"K_star must be an (n_new, {n}) array, got shape {cross.shape}")
        diagonal, size = numbers("k_star_diag", k_star_diag), cross.shape[0]
        if diagonal.shape != (size,):
            raise ValueError(f"k_star_diag must be a ({size},) array, got shape {diagonal.shape}")
        offset = numbers("mean", mean)
        if offset.shape not in ((), diagonal.shape):
            raise ValueError(f"mean must be a number or a ({size},) array, got shape {offset.shape}")
        return cross @ self.dual_coef + offset, np.maximum(diagonal - self.factor.explained(cross), 0.0)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws (size, n) of f at the training inputs; a ValueError if K is not positive definite."""
        return self.mean + self.factor.draw(size, rng)


def from_outcome(K: Covariance, offset: Array, found: Outcome) -> LatentPosterior:
    """Make the posterior from the output of a solve, including its factor."""
    factor = Factor(K, found.sites)
    mean, (variance, cavity_variance) = offset + K.matvec(found.dual_coef), factor.marginals()
    return LatentPosterior(*found[:-1], mean, variance, cavity_variance, factor)


def from_sites(
    K: Covariance | BlockDiagonal, offset: Array, dual_coef: Array, site_precision: Array
) -> LatentPosterior:
    """Make the posterior from two vectors that were computed before, by any method."""
    if isinstance(K, BlockDiagonal):
        vectors = offset, dual_coef, site_precision
        parts = K.each(lambda part, rows: without_factor(from_sites(part, *(v[rows] for v in vectors))))
        return joined(K, parts)
    sites, nothing = K.factor(site_precision).sites, np.zeros(K.size, dtype=np.int64)
    return from_outcome(K, offset, Outcome(dual_coef, site_precision, np.nan, nothing, True, 0, 0.0, 0.0, sites))


def blockwise[Found: DataclassInstance](solve: Callable[..., Found]) -> Callable[..., Found]:
    """Make a solver run block by block."""

    @wraps(solve)
    def run(
        K: ArrayLike | Covariance | BlockDiagonal,
        y: ArrayLike,
        noise: NoiseModel,
        *,
        mean: ArrayLike | None = None,
        **options: object,
    ) -> Found:
        if not isinstance(K, BlockDiagonal):
            return solve(K, y, noise, mean=mean, **options)
        check_noise(noise)
        targets, offset = numbers("y", y, (K.size,)), checked_mean(mean, K.size)

        def solved(part: Covariance, rows: Rows) -> Found:
            return without_factor(solve(part, targets[rows], noise.at(rows), mean=offset[rows], **options))

        return joined(K, K.each(solved))

    return run


def without_factor[Found: DataclassInstance](found: Found) -> Found:
    """Return the result of a block without its matrices, if it has any."""
    return replace(found, factor=None) if isinstance(found, LatentPosterior) else found  # type: ignore[arg-type]


# For numbers of blocks: evidences and objectives are sums, and the worst block decides about convergence.
_TOTALS: dict[str, Callable[..., float]] = {
    "log_evidence": sum,
    "objective": sum,
    "converged": all,
    "n_iter": max,
    "duality_gap": np.max,  # does not ignore NaN
    "mismatch": np.max,
}


def joined[Found: DataclassInstance](K: BlockDiagonal, parts: list[Found]) -> Found:
    """Join the results of blocks to the result of all rows; vectors are empty if the blocks have none."""
    each = {field.name: [getattr(part, field.name) for part in parts] for field in fields(parts[0])}
    found: dict[str, Any] = {name: _TOTALS[name](values) for name, values in each.items() if name in _TOTALS}
    for name in each.keys() - found.keys() - {"factor"}:
        found[name] = scatter(K.rows, each[name]) if each[name][0].size else each[name][0]
    if "factor" in each:
        found["factor"] = K.factor(found["site_precision"])
    return replace(parts[0], **found)

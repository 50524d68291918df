"""The one result of every Gaussian approximation of the latent function.

The posterior of f given hyperparameters is N(m + K·dual_coef, (K⁻¹ + diag(site_precision))⁻¹): the mode or mean,
and one Gaussian site a point. Error bars, leave-one-out and predictions follow from these two vectors, whichever
method made them (Chu, Keerthi & Ong 2004, (44); Gao, Gunn & Harris 2002, (4.2)-(4.3)).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from bsvr_pp.approximations.checks import check_noise
from bsvr_pp.approximations.products import product, split
from bsvr_pp.checks import numbers

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["LatentPosterior", "from_sites"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatentPosterior:
    """Gaussian posterior of the latent function at fixed hyperparameters.

    Attributes
    ----------
    dual_coef : (n,) array
        Mean of f = prior mean + K·dual_coef.
    site_precision : (n,) array
        Precision of the Gaussian site of each point; 0 where there is none.
    mean, variance : (n,) arrays
        Of f at the training inputs, in the target's units and their square.
    log_evidence : float
        Natural log of the evidence.
    support : (n,) array of int
        Kind of each point at the mode: 0 no support vector, 1 off-bound, 2 on-bound.
    converged : bool
        Whether the method met its tolerance.
    n_iter : int
        Factorisations (mode) or sweeps (mean field).
    duality_gap : float
        Relative duality gap of the mode.
    mismatch : float
        Largest difference of moments at the end of mean field, in posterior standard deviations; 0 for Laplace.
    cavity_variance : (n,) array
        Variance of f_i with site i taken away, 1/(1/variance_i - site_precision_i).
    """

    dual_coef: Array
    site_precision: Array
    mean: Array
    variance: Array
    log_evidence: float
    support: NDArray[np.int64]
    converged: bool
    n_iter: int
    duality_gap: float
    mismatch: float
    cavity_variance: Array
    _sites: NDArray[np.intp] = field(repr=False)
    _factor: Array = field(repr=False)

    @property
    def cavity_mean(self) -> Array:
        """Mean of f_i with site i taken away, (n,)."""
        return self.mean - self.cavity_variance * self.dual_coef

    def log_loo(self, y: ArrayLike, noise: NoiseModel) -> Array:
        """Leave-one-out log predictive density of each target, log ∫ p(y_i|f_i) p(f_i|y_-i) df_i.

        The cavity stands for p(f_i|y_-i): for mean field in its own approximation, without refitting the other
        sites; for Laplace as if all sites were Gaussian, which errs most where a single point holds its fit.

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
            If y is of another length, or not finite.
        TypeError
            If noise is no noise model.

        Examples
        --------
        >>> import numpy as np
        >>> from bsvr_pp.approximations import mean_field
        >>> from bsvr_pp.losses import gaussian
        >>> posterior = mean_field(np.eye(2), [1.0, -1.0], gaussian(C=1.0))
        >>> posterior.log_loo([1.0, -1.0], gaussian(C=1.0)).round(6).tolist()
        [-1.515512, -1.515512]
        """
        check_noise(noise)
        targets = numbers("y", y, (self.mean.size,))
        log_density: Array = noise.tilted(self.cavity_mean, self.cavity_variance, targets)[0]
        return log_density

    def predict(self, K_star: ArrayLike, k_star_diag: ArrayLike, mean: ArrayLike = 0.0) -> tuple[Array, Array]:
        """Mean and variance of f at new inputs.

        Parameters
        ----------
        K_star : (n_new, n) array
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

        Examples
        --------
        >>> import numpy as np
        >>> from bsvr_pp.approximations import laplace
        >>> from bsvr_pp.losses import gaussian
        >>> posterior = laplace(np.eye(2), [1.0, -1.0], gaussian(C=1.0))
        >>> mean, variance = posterior.predict([[0.5, 0.0]], [1.0])
        >>> mean.round(6).tolist(), variance.round(6).tolist()
        ([0.25], [0.875])
        """
        cross, n = numbers("K_star", K_star), self.dual_coef.size
        if cross.shape[1:] != (n,):
            raise ValueError(f"K_star must be an (n_new, {n}) array, got shape {cross.shape}")
        diagonal = numbers("k_star_diag", k_star_diag)
        if diagonal.shape != (len(cross),):
            raise ValueError(f"k_star_diag must be a ({len(cross)},) array, got shape {diagonal.shape}")
        offset = numbers("mean", mean)
        if offset.shape not in ((), diagonal.shape):
            raise ValueError(f"mean must be a number or a ({len(cross)},) array, got shape {offset.shape}")
        reduction = explained(cross[:, self._sites], self.site_precision[self._sites], self._factor)
        return (
            cross @ self.dual_coef + offset,
            np.maximum(diagonal - reduction, 0.0),
        )


def explained(cross: Array, precision: Array, factor: Array) -> Array:
    """Part of the prior variance that the sites explain, ‖L⁻¹(√τ∘k*)‖² for each row k* of ``cross``."""
    if factor.size == 0:
        return np.zeros(cross.shape[0])
    half = solve_triangular(factor, (cross * np.sqrt(precision)).T, lower=True, check_finite=False)
    reduction: Array = np.einsum("ij,ij->j", half, half)
    return reduction


def from_sites(
    K: Array,
    offset: Array,
    dual_coef: Array,
    site_precision: Array,
    log_evidence: float,
    support: NDArray[np.int64],
    *,
    converged: bool,
    n_iter: int,
    duality_gap: float,
    mismatch: float = 0.0,
) -> LatentPosterior:
    """Factor I + √τK√τ over the points that have a site, and fill in the moments of f."""
    sites = np.flatnonzero(site_precision > 0)
    precision = site_precision[sites]
    root = np.sqrt(precision)
    block = root[:, None] * K[np.ix_(sites, sites)] * root
    block[np.diag_indices_from(block)] += 1.0
    try:
        factor = cholesky(block, lower=True, check_finite=False) if sites.size else np.empty((0, 0))
    except LinAlgError:
        raise ValueError("K must be positive semidefinite; add a jitter to its diagonal, centre the inputs") from None
    variance = np.diag(K) - explained(K[:, sites], precision, factor)
    kept = np.ones(len(K))  # variance over cavity variance, 1 - variance·τ
    if sites.size:
        # (1 - B⁻¹_ii)/τ keeps the digits that k_ii - ... loses where the site is much narrower than the prior.
        inverse = solve_triangular(factor, np.eye(sites.size), lower=True, check_finite=False)
        kept[sites] = np.einsum("ij,ij->j", inverse, inverse)
        narrow = (1.0 - kept[sites]) / precision
        sharp = precision * np.diag(K)[sites] > 1e-2
        variance[sites[sharp]] = narrow[sharp]
    variance = np.maximum(variance, 0.0)
    return LatentPosterior(
        dual_coef,
        site_precision,
        offset + product(split(K, 0.0), dual_coef),
        variance,
        log_evidence,
        support,
        bool(converged),
        int(n_iter),
        float(duality_gap),
        float(mismatch),
        variance / kept,
        sites,
        factor,
    )

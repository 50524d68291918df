"""Leave-one-out densities of any result, in the format of `arviz.compare`, and predictions of rows by the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.utils import ELPDData
from numpy.typing import NDArray

from bsvr_pp._checks import checked_levels
from bsvr_pp.approximations.posterior import from_sites
from bsvr_pp.assess.judged import Judged
from bsvr_pp.assess.verify import pareto_weights
from bsvr_pp.inference.predict import QUANTILES
from bsvr_pp.inference.predictive import new_targets
from bsvr_pp.losses import NoiseModel

__all__ = ["CavityLOO", "loo", "loo_predict"]

Array = NDArray[np.float64]

_DRAWS = 500  # largest number of draws that are reweighted


@dataclass(kw_only=True, repr=False)
class CavityLOO(ELPDData):
    """Leave-one-out from the cavities of a Gaussian approximation, at its own hyperparameters.

    This is an `ELPDData` of ArviZ; ``inference`` is the name of the approximation. With blocks each target is predicted
    from the others of its own block.
    """

    _kind: ClassVar[str] = "loo"

    inference: str
    n_blocks: int = 1

    def _header(self) -> str:
        return (
            f"Leave-one-out from the cavities of {self.inference} at fixed hyperparameters, "
            + (f"each target from its own block of {self.n_blocks}, " if self.n_blocks > 1 else "")
            + f"{self.n_data_points} observations."
        )


def loo(result: xr.DataTree, *, model: pm.Model | None = None) -> ELPDData:
    """Expected log predictive density of each target given the others.

    For Laplace and mean field it is computed from the cavities, at fixed hyperparameters (fitted to all targets): log ∫
    N(f_i; mean_i - v_i·dual_coef_i, v_i) p(y_i|f_i) df_i with v_i = 1/(1/variance_i - site_precision_i). For mean field
    this is exact if the other sites do not change. For Laplace it treats the sites as Gaussian; it is least reliable
    for a point that determines its fit alone. With blocks each target is predicted from the others of its own block.
    For NUTS the draws are reweighted by PSIS (`arviz.loo`); if f was integrated out, the cavity densities of each draw
    replace p(y_i|f_i).

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.

    Returns
    -------
    ELPDData
        ``elpd``, ``se``, ``p``, ``elpd_i``; `arviz.compare` compares several such objects.

    Raises
    ------
    ValueError
        For MAP, which has no posterior of f, for labels, or if result and model do not belong together.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> bp.loo(result, model=model).n_data_points
    15
    """
    fitted = _checked(result, model)
    if "leave_one_out" in result.children:
        densities = result["leave_one_out"].to_dataset()
        likelihood = xr.DataTree.from_dict({"log_likelihood": densities, "posterior": result["posterior"].to_dataset()})
        return az.loo(likelihood, var_name=fitted.target, pointwise=True)
    if "dual_coef" not in result["latent_posterior"].to_dataset():
        return az.loo(result, var_name=fitted.target, pointwise=True)
    posterior, noise = fitted.at_its_point()
    pointwise = posterior.log_loo(fitted.targets, noise)
    in_sample: Array = noise.tilted(posterior.mean, posterior.variance, fitted.targets)[0]
    observed = result["observed_data"].to_dataset()[fitted.target]
    return CavityLOO(
        elpd=float(pointwise.sum()),
        se=float(np.sqrt(pointwise.size) * pointwise.std()),
        p=float(in_sample.sum() - pointwise.sum()),
        n_samples=1,
        n_data_points=pointwise.size,
        scale="log",
        warning=not result.attrs["converged"],
        good_k=np.nan,
        elpd_i=observed.copy(data=pointwise),
        inference=fitted.method.name,
        n_blocks=fitted.n_blocks,
    )


def loo_predict(
    result: xr.DataTree, *, model: pm.Model | None = None, quantiles: Sequence[float] = QUANTILES
) -> xr.Dataset:
    """Predict each target from the others: what `predict` gives for a row that is not in the data.

    The predictive distribution of y_i is the cavity of f_i plus noise. For Laplace and mean field the hyperparameters
    are those of the result (`loo` has the details). For draws it is a mixture, in which each draw has the weight
    1/p(y_i|f_i, θ), or, where f was integrated out, 1/p(y_i|y_-i, θ), smoothed by PSIS (Vehtari et al. 2024).

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    quantiles : sequence of float
        Levels of quantiles, between 0 and 1.

    Returns
    -------
    xarray.Dataset
        The variables of `predict` with targets, over the dimension of the targets: ``f_mean``, ``f_variance``,
        ``y_mean``, ``y_variance``, ``y_quantile``, ``y_log_density``, ``y_cdf`` (the probability integral transform),
        ``y_crps``; and ``pareto_k`` for draws.

    Raises
    ------
    ValueError
        If a quantile is outside (0, 1), for MAP, which has no posterior of f, for labels, or if result and model do not
        belong together.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> left_out = bp.loo_predict(result, model=model)
    >>> bool(abs(left_out["y_log_density"].sum() - bp.loo(result, model=model).elpd) < 1e-10)
    True
    """
    levels = checked_levels(quantiles)
    fitted = _checked(result, model)
    k_hat = None
    if "dual_coef" in result["latent_posterior"].to_dataset():
        posterior, noise = fitted.at_its_point()
        means, variances, noises = posterior.cavity_mean[None], posterior.cavity_variance[None], [noise.weighted()]
        weights = np.ones(means.shape)
    else:
        means, variances, noises, density = _of_draws(fitted)
        each = [pareto_weights(-column) for column in density.T]
        weights, k_hat = np.exp([log for log, _ in each]).T, np.array([k for _, k in each])
    found = new_targets(weights, means, variances, noises, levels, fitted.targets, np.random.default_rng(0))
    if k_hat is not None:
        found["pareto_k"] = k_hat
    observed = result["observed_data"].to_dataset()[fitted.target]
    (row,) = observed.dims
    dims = {"y_quantile": ("quantile", row)}
    coords = dict(observed.coords) | ({"quantile": levels} if levels.size else {})
    return xr.Dataset({name: (dims.get(name, (row,)), values) for name, values in found.items()}, coords=coords)


def _of_draws(fitted: Judged) -> tuple[Array, Array, list[NoiseModel], Array]:
    """Mean and variance of f without its own target, noise, and the log density of the target, of each draw."""
    chosen, f = fitted.evenly(_DRAWS), fitted.f
    noises = [fitted.noise_at(fitted.points[s]) for s in chosen]
    if "latent_draws" not in fitted.result.children:
        likelihood = fitted.rows_of("log_likelihood", fitted.target)
        return f[chosen], np.zeros((chosen.size, f.shape[1])), noises, likelihood[chosen]
    dual, precision = (fitted.rows_of("latent_draws", name) for name in ("dual_coef", "site_precision"))
    means, variances = np.empty((2, chosen.size, f.shape[1]))
    for i, (K, mean, _) in enumerate(fitted.at_draws(chosen)):
        found = from_sites(K, mean, dual[chosen[i]], precision[chosen[i]])
        means[i], variances[i] = found.cavity_mean, found.cavity_variance
    return means, variances, noises, fitted.rows_of("leave_one_out", fitted.target)[chosen]


def _checked(result: xr.DataTree, model: pm.Model | None) -> Judged:
    """Check that a result has a posterior of f and targets that are not labels, and that it is of the model."""
    fitted = Judged(result, model)
    if refusal := fitted.loss.targets.refusal("leave one out"):
        raise ValueError(refusal)
    method = fitted.method
    if method.capabilities.plug_in:
        raise ValueError(
            f"result must have a posterior of f, and {method.name} has none: use Laplace(), MeanField() or NUTS()"
        )
    fitted.check()
    return fitted

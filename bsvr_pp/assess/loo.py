"""Predictions of rows by the others: leave-one-out for any result, without new fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.utils import ELPDData

from bsvr_pp.assess.evidence import Judged
from bsvr_pp.core.approximations.posterior import from_sites
from bsvr_pp.core.arrays import Array, checked_levels
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.inference.fitted import latent_posterior
from bsvr_pp.inference.integrated import pareto_weights
from bsvr_pp.inference.predict import check_real
from bsvr_pp.inference.prediction.component import new_targets
from bsvr_pp.inference.prediction.distribution import QUANTILES, PredictiveDistribution
from bsvr_pp.inference.result import is_mode, is_sampled, latent_draws

_DRAWS = 500  # largest number of draws that are reweighted


@dataclass(kw_only=True, repr=False)
class CavityLOO(ELPDData):
    """Leave-one-out from the cavities of a Gaussian approximation, at its own hyperparameters."""

    _kind: ClassVar[str] = "loo"

    source: str  # the approximation, and the rows that each target is predicted from

    def _header(self) -> str:
        return f"Leave-one-out from the cavities of {self.source}{self.n_data_points} observations."


@shared
def loo(result: xr.DataTree, *, model: pm.Model | None = None) -> ELPDData:
    """Return the expected log predictive density of each target given the others.

    Laplace and mean field use the cavities, at fixed hyperparameters (fitted to all targets): log ∫ N(f_i; mean_i -
    v_i·dual_coef_i, v_i) p(y_i|f_i) df_i with v_i = 1/(1/variance_i - site_precision_i). For mean field this is exact
    if the other sites do not change. For Laplace it treats the sites as Gaussian; it is least reliable for a point that
    determines its fit alone. With blocks each target is predicted from the others of its own block. Draws are
    reweighted by PSIS (docs/how-to/arviz.md).

    Parameters
    ----------
    result : DataTree
        Result of `fit`, or of `recover_latent`.
    <model>

    Returns
    -------
    ELPDData
        ``elpd``, ``se``, ``p``, ``elpd_i``; `arviz.compare` compares several such objects.

    Raises
    ------
    ValueError
        For MAP, which has no posterior of f, for `SVMLabel`, whose naive evidence gives no probabilities, or if result
        and model do not belong together.
    <no_result>

    <sinc_result>
    >>> bp.loo(result, model=model).n_data_points
    15
    """
    if isinstance(result, xr.DataTree) and "leave_one_out" in result.children:
        if "inference" in result.attrs:
            _checked(result, model)
        return _of_marginal(result)
    fitted = _checked(result, model)
    if is_sampled(result):
        return az.loo(result, var_name=fitted.target, pointwise=True)
    posterior, noise = latent_posterior(fitted.problem, result)
    pointwise = posterior.log_loo(fitted.targets, noise)
    in_sample = noise.tilted(posterior.mean, posterior.variance, fitted.targets)[0]
    observed = result["observed_data"].to_dataset()[fitted.target]
    source, blocks = f"{result.attrs['inference']} at fixed hyperparameters, ", len(fitted.problem.blocks)
    if blocks > 1:
        source += f"each target from its own block of {blocks}, "
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
        source=source,
    )


@shared
def loo_predict(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> xr.Dataset:
    """Predict each target from the others, as `predict` does for a row that is not in the data.

    The predictive distribution of y_i is the cavity of f_i plus noise. Laplace and mean field keep the hyperparameters
    of the result (see `loo`). For draws it is a mixture, whose weights PSIS smooths (Vehtari et al. 2024). A draw has
    the weight 1/p(y_i|f_i, θ), or 1/p(y_i|y_-i, θ) if f was integrated out.

    Parameters
    ----------
    result, model
        As in `loo`.
    quantiles : sequence of float
        Levels of quantiles, between 0 and 1.

    Returns
    -------
    xarray.Dataset
        The variables of `predict` with targets, over the dimension of the targets: ``f_mean``, ``f_variance``,
        ``y_mean``, ``y_variance``, ``y_quantile``, ``y_log_density``, ``y_cdf`` (the probability integral transform)
        and ``y_crps``. Draws also have ``pareto_k``.

    Raises
    ------
    ValueError
        If a quantile is outside (0, 1), or result and model do not belong together; for labels and ordered classes, and
        for MAP, which has no posterior of f.
    <no_result>

    <sinc_result>
    >>> left_out = bp.loo_predict(result, model=model)
    >>> bool(abs(left_out["y_log_density"].sum() - bp.loo(result, model=model).elpd) < 1e-10)
    True
    """
    levels = checked_levels(quantiles)
    fitted = _checked(result, model)
    check_real(fitted.problem, "loo_predict", "use loo")
    reliability = {}
    if is_sampled(result):
        means, variances, noises, density = _of_draws(fitted)
        each = [pareto_weights(-column) for column in density.T]
        reliability["pareto_k"] = np.array([k for _, k in each])
        distribution = PredictiveDistribution(np.exp([log for log, _ in each]).T, means, variances, noises)
    else:
        posterior, noise = latent_posterior(fitted.problem, result)
        mean, variance = posterior.cavity_mean[None], posterior.cavity_variance[None]
        distribution = PredictiveDistribution(np.ones(mean.shape), mean, variance, (noise.weighted(),))
    found = new_targets(distribution, levels, fitted.targets) | reliability
    observed = result["observed_data"].to_dataset()[fitted.target]
    (row,) = observed.dims
    dims = {"y_quantile": ("quantile", row)}
    coords = dict(observed.coords) | ({"quantile": levels} if levels.size else {})
    return xr.Dataset({name: (dims.get(name, (row,)), values) for name, values in found.items()}, coords=coords)


def _of_marginal(result: xr.DataTree) -> ELPDData:
    densities = result["leave_one_out"].to_dataset()
    # ArviZ refuses a tail of equal values, which are draws of one point.
    densities = densities + xr.DataArray(np.linspace(0.0, 1e-9, densities.sizes["draw"]), dims="draw")
    likelihood = xr.DataTree.from_dict({"log_likelihood": densities, "posterior": result["posterior"].to_dataset()})
    return az.loo(likelihood, pointwise=True)


def _of_draws(fitted: Judged) -> tuple[Array, Array, tuple[NoiseModel, ...], Array]:
    """Return mean and variance of f without its own target, noise, and the log density of the target, of each draw."""
    chosen, f = fitted.evenly(_DRAWS), latent_draws(fitted.result)
    noises = tuple(fitted.problem.noise_at(fitted.points[s]) for s in chosen)
    if "latent_draws" not in fitted.result.children:
        likelihood = fitted.rows_of("log_likelihood", fitted.target)
        return f[chosen], np.zeros((chosen.size, f.shape[1])), noises, likelihood[chosen]
    dual, precision = (fitted.rows_of("latent_draws", name) for name in ("dual_coef", "site_precision"))
    means, variances = np.empty((2, chosen.size, f.shape[1]))
    for i, s in enumerate(chosen):
        K, mean, _ = fitted.problem.at(fitted.points[s])
        found = from_sites(K, mean, dual[s], precision[s])
        means[i], variances[i] = found.cavity_mean, found.cavity_variance
    return means, variances, noises, fitted.rows_of("leave_one_out", fitted.target)[chosen]


def _checked(result: xr.DataTree, model: pm.Model | None) -> Judged:
    """Check that a result has a posterior of f and targets that are not labels."""
    fitted = Judged(result, model, purpose="leave one out")
    if is_mode(result):
        name = result.attrs["inference"]
        raise ValueError(
            f"result must have a posterior of f, and {name} has none: use Laplace(), MeanField() or NUTS()"
        )
    return fitted

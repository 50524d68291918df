"""Predictions of each training point from the others, from cavities or by reweighted draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp._checks import checked_levels
from bsvr_pp.approximations.posterior import from_sites
from bsvr_pp.assess.loo import checked_for_loo
from bsvr_pp.assess.weights import pareto_weights
from bsvr_pp.inference.component import latent_posterior
from bsvr_pp.inference.predict import QUANTILES
from bsvr_pp.inference.predictive import new_targets
from bsvr_pp.inference.result import points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Problem

__all__ = ["loo_predict"]

Array = NDArray[np.float64]

_DRAWS = 500  # largest number of draws that are reweighted


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
    problem, _ = checked_for_loo(result, model)
    y = problem.targets
    k_hat = None
    if "dual_coef" in result["latent_posterior"].to_dataset():
        posterior, noise = latent_posterior(problem, result)
        means, variances, noises = posterior.cavity_mean[None], posterior.cavity_variance[None], [noise.weighted()]
        weights = np.ones((1, y.size))
    else:
        means, variances, noises, density = _of_draws(result, problem)
        each = [pareto_weights(-column) for column in density.T]
        weights, k_hat = np.exp([log for log, _ in each]).T, np.array([k for _, k in each])
    found = new_targets(weights, means, variances, noises, levels, y, np.random.default_rng(0))
    if k_hat is not None:
        found["pareto_k"] = k_hat
    observed = result["observed_data"].to_dataset()[problem.target]
    (row,) = observed.dims
    dims = {"y_quantile": ("quantile", row)}
    coords = dict(observed.coords) | ({"quantile": levels} if levels.size else {})
    return xr.Dataset({name: (dims.get(name, (row,)), values) for name, values in found.items()}, coords=coords)


def _of_draws(result: xr.DataTree, problem: Problem) -> tuple[Array, Array, list[NoiseModel], Array]:
    """Mean and variance of f without its own target, noise, and the log density of the target, of each draw."""
    posterior = result["posterior"].to_dataset()
    f = posterior[problem.prior.name].values.reshape(-1, problem.targets.size)
    points = points_of(posterior, problem.hyperparameters)
    chosen = np.unique(np.linspace(0, len(f) - 1, min(len(f), _DRAWS)).astype(int))
    noises = [problem.noise_at(points[s]) for s in chosen]
    if "latent_draws" not in result.children:
        likelihood = result["log_likelihood"].to_dataset()[problem.target].values.reshape(f.shape)
        return f[chosen], np.zeros((chosen.size, f.shape[1])), noises, likelihood[chosen]
    sites = result["latent_draws"].to_dataset()
    dual, precision = (sites[name].values.reshape(f.shape) for name in ("dual_coef", "site_precision"))
    density = result["leave_one_out"].to_dataset()[problem.target].values.reshape(f.shape)
    means, variances = np.empty((2, chosen.size, f.shape[1]))
    for i, s in enumerate(chosen):
        K, mean, _ = problem.at(points[s])
        found = from_sites(K, mean, dual[s], precision[s])
        means[i], variances[i] = found.cavity_mean, found.cavity_variance
    return means, variances, noises, density[chosen]

"""Sensitivity of sampled hyperparameters to the power of their priors and of the likelihood, with f integrated out.

Power-scaling (Kallioinen et al. 2024) replaces p(y|f, θ) by p(y|f, θ)^α. For a residual loss, p = exp(-C·loss)/Z(C),
this is the same loss with αC and a factor that does not depend on f:

    p_C^α = p_αC · exp(log Z(αC) - α·log Z(C)).

So with f integrated out, the weight of a draw of the hyperparameters is the ratio of the evidences at αC and at C,
times the product of these factors over the targets. f itself needs no importance weights. The weight of a power of the
priors is their density to the power α - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_base import dataset_to_dataframe
from numpy.typing import NDArray

from bsvr_pp._checks import check_count, is_number
from bsvr_pp.assess.judged import Judged
from bsvr_pp.assess.verify import pareto_weights
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.inference.result import check_result, shown_names
from bsvr_pp.losses import NoiseModel

__all__ = ["log_power_ratio", "sensitivity"]

Array = NDArray[np.float64]

_THRESHOLD = 0.05  # above it a posterior depends on what was scaled (Kallioinen et al. 2024)


def sensitivity(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    alphas: Sequence[float] = (0.99, 1.01),
    draws: int = 1000,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Sensitivity of each hyperparameter to the power of the priors, and to the power of the likelihood.

    The numbers are those of `arviz.psense_summary`: the distance of the posteriors under the two powers, per doubling.
    There every draw of f has a weight; here f is integrated out, so that only draws of the hyperparameters have one.
    Where f was sampled, the ratio of the evidences is that of mean field.

    Parameters
    ----------
    result : DataTree
        Result of `fit` with sampled hyperparameters.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    alphas : (float, float)
        Two powers, one below and one above 1.
    draws : int
        Largest number of draws of the hyperparameters, at least 25, evenly spaced among all.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        One row for each hyperparameter: ``prior``, ``likelihood``, and ``diagnosis`` in words (a value above 0.05 says
        that the posterior depends on what was scaled). ``attrs["k_hat"]`` has the largest Pareto shape of the weights
        of each column: above 0.7 they are unreliable, and powers nearer to 1 are needed.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, for labels (use `arviz.psense`), or if an argument is out of range.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> bp.sensitivity(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_result("result", result)
    check_count("draws", draws, 25)
    powers = [float(a) for a in alphas] if all(is_number(a) for a in alphas) else []
    if len(powers) != 2 or not 0 < powers[0] < 1 < powers[1] < np.inf:
        raise ValueError(f"alphas must be two powers, one between 0 and 1 and one above 1, got {alphas!r}")
    fitted = Judged(result, model)
    if refusal := fitted.loss.targets.refusal("sensitivity", name=fitted.loss.name):
        raise ValueError(refusal)
    if "log_prior" not in result.children:
        name = fitted.method.name
        raise ValueError(f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {name}")
    fitted.check()
    posterior = result["posterior"].to_dataset()[shown_names(result)].transpose("chain", "draw", ...)
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    chosen = fitted.evenly(draws)
    approximation = fitted.method.latent or MeanField()
    ratios = np.array(
        [
            log_power_ratio(approximation, K, fitted.targets, noise, mean, powers)
            for K, mean, noise in fitted.at_draws(chosen, "sensitivity", progressbar)
        ]
    )
    priors = result["log_prior"].to_dataset().data_vars.values()
    log_prior = np.sum([values.values.ravel() for values in priors], axis=0)[chosen]
    log_ratios = {"prior": np.outer(log_prior, np.array(powers) - 1.0), "likelihood": ratios}
    shape = (posterior.sizes["chain"], -1) if chosen.size == total else (1, -1)
    dims = ("chain", "draw")
    kept = xr.Dataset(
        {
            name: (variable.dims, variable.values.reshape(total, -1)[chosen].reshape(*shape, *variable.shape[2:]))
            for name, variable in posterior.data_vars.items()
        },
        coords={dim: at for dim, at in posterior.coords.items() if dim not in dims},
    )
    found, k_hats = {}, {}
    for name, ratio in log_ratios.items():
        weights = []
        for column, power in zip(ratio.T, powers, strict=True):
            # Smoothed as in `arviz.psense`.
            component = xr.DataArray(column.reshape(shape) / (power - 1.0), dims=dims)
            weight = np.exp(component.azstats.power_scale_lw(alpha=power, dim=dims))
            weights.append(weight / weight.sum())
        found[name] = kept.azstats.power_scale_sense(
            lower_w=weights[0],
            upper_w=weights[1],
            lower_alpha=powers[0],
            upper_alpha=powers[1],
            sample_dims=list(dims),
        )
        k_hats[name] = max(pareto_weights(column)[1] for column in ratio.T)
    joined = xr.concat(list(found.values()), dim="component").assign_coords(component=list(found))
    table = dataset_to_dataframe(joined, sample_dims=["component"]).T
    table["diagnosis"] = [_diagnosis(row["prior"], row["likelihood"]) for _, row in table.iterrows()]
    table.attrs["k_hat"] = k_hats
    return table


def log_power_ratio(
    method: Approximation, K: Any, y: Array, noise: NoiseModel, mean: Array, powers: Sequence[float]
) -> list[float]:
    """Log of the evidence with the likelihood to each power, minus the log evidence."""
    weight = np.ones(y.size) if noise.weight is None else noise.weight
    base = method.solve(K, y, noise, mean).log_evidence
    # A sample weight of α is the likelihood to the power α.
    return [float(method.solve(K, y, noise.weighted(a * weight), mean).log_evidence - base) for a in powers]


def _diagnosis(prior: float, likelihood: float) -> str:
    """Words of `arviz.psense_summary`."""
    if prior >= _THRESHOLD and likelihood >= _THRESHOLD:
        return "potential prior-data conflict"
    return "potential strong prior / weak likelihood" if prior > _THRESHOLD > likelihood else "✓"

"""Verification of results whose latent function was integrated out.

For a draw θ of the hyperparameters, particles f from a Gaussian wider than the mean-field posterior give an unbiased
estimate of p(y|θ). Its ratio to the evidence that the sampler used is the importance weight of the draw. The weights
with Pareto smoothing (Vehtari et al. 2024) give the exact posterior of the hyperparameters without sampling f; k-hat
shows whether this correction is reliable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from rich.progress import track
from scipy.special import logsumexp

from bsvr_pp._checks import check_count, generator
from bsvr_pp.approximations.smc import importance
from bsvr_pp.assess.assessment import Hyperparameter
from bsvr_pp.assess.weights import GOOD_K, pareto_weights
from bsvr_pp.inference.result import check_match, check_result, points_of
from bsvr_pp.model.problem import read_model

__all__ = ["Verification", "verify"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`.

    Attributes
    ----------
    k_hat : float
        Pareto shape of the importance weights; up to 0.7 the corrected columns are reliable. It is 0 if the largest
        weights are all equal, as for an exact evidence.
    table : DataFrame
        One row per hyperparameter: mean and sd as sampled and corrected, and the shift of the mean in corrected sd.
    log_weights : (draws,) array
        Normalised and smoothed log weights of the chosen draws.
    draws : (draws,) array of int
        Their positions among all draws, chain after chain.
    log_ratio : (draws,) array
        Log of the unbiased estimate of the evidence minus the log evidence of the approximation.
    particle_error : float
        Typical standard error of one log_ratio from its particles.
    """

    k_hat: float
    table: pd.DataFrame
    log_weights: Array
    draws: NDArray[np.intp]
    log_ratio: Array
    particle_error: float

    @property
    def effective_draws(self) -> float:
        """Effective number of draws after weighting, of those chosen."""
        return float(np.exp(-logsumexp(2 * self.log_weights)))

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if not self.k_hat <= GOOD_K:
            return (
                f"k-hat = {self.k_hat:.2f} > {GOOD_K}: the approximation is too far from the model to be corrected; "
                "sample f as well, with NUTS()"
            )
        shift = float(self.table["shift"].abs().max())
        return (
            f"k-hat = {self.k_hat:.2f}: the corrected posterior can be believed; means shift by at most {shift:.2f} sd"
        )

    def __str__(self) -> str:
        """Verdict and table."""
        return f"{self.verdict}\n{self.table.round(4).to_string()}"


def verify(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    draws: int = 500,
    particles: int = 500,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> Verification:
    """Check and correct a posterior of hyperparameters that was sampled with f integrated out.

    Parameters
    ----------
    result : DataTree
        Result of ``fit(NUTS(latent=...))``.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    draws : int
        Number of draws of the hyperparameters to weight, evenly spaced among all; at least 25.
    particles : int
        Number of draws of f for each, at least 2.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    Verification

    Raises
    ------
    ValueError
        If the result has no draws with f integrated out, or a number is out of range.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model() as model:
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    >>> bp.verify(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must be of fit(NUTS(latent=...)), with f integrated out, got one of MAP
    """
    check_result("result", result)
    if "latent_draws" not in result.children:
        raise ValueError(
            f"result must be of fit(NUTS(latent=...)), with f integrated out, got one of {result.attrs['inference']}"
        )
    for name, value, least in (("draws", draws, 25), ("particles", particles, 2)):
        check_count(name, value, least)
    problem = read_model(model)
    check_match(problem, result)
    used = result["latent_draws"].to_dataset()["log_evidence"].values.ravel()
    points = points_of(result["posterior"].to_dataset(), problem.hyperparameters)
    chosen = np.unique(np.linspace(0, used.size - 1, min(draws, used.size)).astype(int))
    rng = generator(random_seed)
    ratio, error = np.empty(chosen.size), np.empty(chosen.size)
    for i, s in enumerate(track(chosen, description="verify", disable=not progressbar, transient=True)):
        K, mean, noise = problem.at(points[s])
        log_mean, error[i] = importance(K, problem.targets, noise, mean, particles, rng)
        ratio[i] = log_mean - used[s]
    smoothed, k_hat = pareto_weights(ratio)
    weights = np.exp(smoothed)
    rows = {}
    for name in problem.hyperparameters:
        values = np.stack([points[s][name] for s in chosen]).reshape(chosen.size, -1)
        for j, x in enumerate(values.T):
            entry = Hyperparameter(name, j if values.shape[1] > 1 else None)
            rows[entry.label] = _moments(x, weights)
    return Verification(
        k_hat, pd.DataFrame.from_dict(rows, orient="index"), smoothed, chosen, ratio, float(np.median(error))
    )


def _moments(x: Array, weights: Array) -> dict[str, float]:
    """Mean and sd of draws without and with weights, and the shift of the mean."""
    mean, corrected = float(x.mean()), float(weights @ x)
    sd = float(np.sqrt(weights @ (x - corrected) ** 2))
    return {
        "mean": mean,
        "sd": float(x.std(ddof=1)),
        "corrected mean": corrected,
        "corrected sd": sd,
        "shift": (corrected - mean) / sd if np.ptp(x) > 0 else 0.0,
    }

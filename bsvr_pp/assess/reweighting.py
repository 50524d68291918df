"""Weights of the draws of a result for another distribution, and k-hat, which says whether they are reliable.

`verify` weights sampled hyperparameters to the exact posterior. For a draw θ, particles f from a Gaussian wider than
the mean-field posterior give an unbiased estimate of p(y|θ). Its ratio to the evidence that the sampler used is the
weight of the draw. The weights with Pareto smoothing (Vehtari et al. 2024) give the exact posterior of the
hyperparameters without sampling f.

`sensitivity` weights them to other powers of the priors or of the likelihood (Kallioinen et al. 2024). It replaces
p(y|f, θ) by p(y|f, θ)^α. For a residual loss, p = exp(-C·loss)/Z(C), this is the same loss with αC and a factor that
does not depend on f:

    p_C^α = p_αC · exp(log Z(αC) - α·log Z(C)).

So with f integrated out, the weight of a draw is the ratio of the evidences at αC and at C, times the product of these
factors over the targets. The weight of a power of the priors is their density to the power α - 1.

`integrated_evidence` weights draws of a distribution of the hyperparameters that is fitted to the sampled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from bsvr_pp.assess.evidence import Judged, some_draws
from bsvr_pp.core.approximations.smc import importance
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import check_count, generator
from bsvr_pp.core.covariance.block_diagonal import AnyCovariance
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.protocol import Evidence, IntegratesLatent
from bsvr_pp.inference.result import is_mode, is_sampled, latent_draws, shown_names

GOOD_K = 0.7  # k-hat up to which weights are reliable (Vehtari et al. 2024)
_EQUAL = 1e-6  # log ratios that differ by less are equal up to rounding errors: there is no tail
_POWERS = (0.99, 1.01)  # of priors and likelihood, as in ArviZ
_TAIL = 5  # degrees of freedom of a proposal: its tails must not be lighter than those of the posterior
_DIGITS = 12  # of the table, which ArviZ rounds


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`, whose docstring has its attributes."""

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


@shared
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
    <model>
    draws : int
        Number of draws of the hyperparameters to weight, evenly spaced among all; at least 25.
    particles : int
        Number of draws of f for each, at least 2.
    <random_seed>
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    Verification
        ``k_hat``, the Pareto shape of the importance weights: up to 0.7 the corrected columns are reliable (0 if the
        largest weights are all equal, as for an exact evidence). ``table``, with a row for each hyperparameter: mean
        and sd as sampled and corrected, and the shift of the mean in corrected sd. ``verdict``, one sentence. Of the
        chosen draws: ``draws``, their positions among all, chain after chain; ``log_weights``, normalised and smoothed;
        ``log_ratio``, the log of the unbiased evidence minus that of the approximation; ``effective_draws``, their
        number after weighting. ``particle_error``, the typical standard error of a log ratio from its particles.

    Raises
    ------
    ValueError
        If the result has no draws with f integrated out, or a number is out of range.
    <no_result>

    <pymc_model>
    >>> bp.verify(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must be of fit(NUTS(latent=...)), with f integrated out, got one of MAP
    """
    check_count("draws", draws, 25)
    check_count("particles", particles, 2)
    fitted = Judged(result, model)
    if "latent_draws" not in result.children:
        raise ValueError(
            f"result must be of fit(NUTS(latent=...)), with f integrated out, got one of {result.attrs['inference']}"
        )
    used = result["latent_draws"].to_dataset()["log_evidence"].values.ravel()
    chosen = fitted.evenly(draws)
    rng = generator(random_seed)
    ratio, error = np.empty(chosen.size), np.empty(chosen.size)
    for i, (K, mean, noise) in enumerate(fitted.at_draws(chosen, "verify", progressbar)):
        log_mean, error[i] = importance(K, fitted.targets, noise, mean, particles, rng)
        ratio[i] = log_mean - used[chosen[i]]
    smoothed, k_hat = pareto_weights(ratio)
    weights = np.exp(smoothed)
    rows = {}
    for name in fitted.hyperparameters:
        values = np.stack([fitted.points[s][name] for s in chosen]).reshape(chosen.size, -1)
        for j, x in enumerate(values.T):
            rows[name if values.shape[1] == 1 else f"{name}[{j}]"] = _moments(x, weights)
    table = pd.DataFrame.from_dict(rows, orient="index")
    return Verification(k_hat, table, smoothed, chosen, ratio, float(np.median(error)))


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


def pareto_weights(log_ratio: Array) -> tuple[Array, float]:
    """Normalised, smoothed log weights (draws,) from log importance ratios, known up to a constant, and k-hat.

    k-hat is 0, without smoothing, if the largest ratios are all equal: such weights are bounded, and no Pareto
    distribution can be fitted to them.
    """
    # Within ArviZ's own tail, the largest min(n/5, 3√n) ratios.
    tail = max(int(min(0.2 * log_ratio.size, 3.0 * np.sqrt(log_ratio.size))), 1)
    if np.ptp(np.sort(log_ratio)[-tail:]) < _EQUAL:
        return log_ratio - logsumexp(log_ratio), 0.0
    smoothed, k_hat = array_stats.psislw(-log_ratio)
    return smoothed, float(k_hat)


def latent_k_hat(result: xr.DataTree) -> float:
    """k-hat of the weights from a Gaussian posterior of f to the exact one; NaN for MAP and where f was sampled.

    The ratio p(y|f) p(f)/q(f) at a draw f = mean + δ is log p(y|f) - dual_coef·δ + ½ Σ τ_i δ_i², up to a constant: the
    prior covariance cancels. k-hat is for all n values of f jointly, and grows with n even if each marginal is right.
    """
    if is_sampled(result) or is_mode(result):
        return np.nan
    latent = result["latent_posterior"].to_dataset()
    likelihood = result["log_likelihood"].to_dataset()
    target = next(iter(likelihood.data_vars))
    step = latent_draws(result) - latent["mean"].values
    ratio = likelihood[target].values.reshape(step.shape).sum(axis=1)
    ratio = ratio - step @ latent["dual_coef"].values + 0.5 * step**2 @ latent["site_precision"].values
    return pareto_weights(ratio)[1]


@shared
def sensitivity(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    draws: int = 1000,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Sensitivity of each hyperparameter to the power of the priors, and to the power of the likelihood.

    The numbers are those of `arviz.psense_summary`: the distance of the posteriors under the powers 0.99 and 1.01, per
    doubling. There every draw of f has a weight; here f is integrated out, so that only draws of the hyperparameters
    have one.
    Where f was sampled, the ratio of the evidences is that of mean field.

    Parameters
    ----------
    result : DataTree
        Result of `fit` with sampled hyperparameters.
    <model>
    draws : int
        Largest number of draws of the hyperparameters, at least 25, evenly spaced among all.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    pandas.DataFrame
        One row for each hyperparameter: ``prior``, ``likelihood``, and ``diagnosis`` in words (a value above 0.05 says
        that the posterior depends on what was scaled). ``attrs["k_hat"]`` has the largest Pareto shape of the weights
        of each column: above 0.7 they are unreliable.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, for labels (use `arviz.psense`), or if an argument is out of range.
    <no_result>

    <sinc_model>
    >>> bp.sensitivity(bp.fit(bp.MAP(), model, hyperparameters=at, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_count("draws", draws, 25)
    fitted = Judged(result, model, purpose="sensitivity")
    if "log_prior" not in result.children:
        name = fitted.method.name
        raise ValueError(f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {name}")
    chosen = fitted.evenly(draws)
    approximation = fitted.method.latent or MeanField()
    ratios = np.array(
        [
            log_power_ratio(approximation, K, fitted.targets, noise, mean, _POWERS)
            for K, mean, noise in fitted.at_draws(chosen, "sensitivity", progressbar)
        ]
    )
    chains = result["posterior"].sizes["chain"] if chosen.size == len(fitted.points) else 1
    groups = {name: some_draws(result[name].to_dataset(), chosen, chains) for name in ("posterior", "log_prior")}
    # ArviZ's weights are α - 1 times the sum over the targets, which is here the slope of the log evidence in α.
    slope = (ratios[:, 1] - ratios[:, 0]) / (_POWERS[1] - _POWERS[0])
    likelihood = (("chain", "draw", "all"), slope.reshape(chains, -1, 1))
    groups["log_likelihood"] = xr.Dataset({fitted.target: likelihood})
    table = az.psense_summary(
        xr.DataTree.from_dict(groups), var_names=shown_names(result), alphas=_POWERS, round_to=_DIGITS
    )
    log_prior = sum(values.values.ravel() for values in groups["log_prior"].values())
    log_ratios = {"prior": np.outer(log_prior, np.array(_POWERS) - 1.0), "likelihood": ratios}
    table.attrs["k_hat"] = {
        name: max(pareto_weights(column)[1] for column in ratio.T) for name, ratio in log_ratios.items()
    }
    return table


def log_power_ratio(
    method: IntegratesLatent, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, powers: Sequence[float]
) -> list[float]:
    """Log of the evidence with the likelihood to each power, minus the log evidence."""
    base = method.solve(K, y, noise, mean).log_evidence
    # A sample weight of α is the likelihood to the power α.
    return [float(method.solve(K, y, noise.weighted(a * noise.weight), mean).log_evidence - base) for a in powers]


@shared
def integrated_evidence(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    draws: int = 200,
    particles: int = 500,
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Estimate the natural log of p(y), with the latent function and the hyperparameters integrated out.

    The method is importance sampling from a Student t distribution that is fitted to the sampled hyperparameters, on
    their unconstrained scale. If f was integrated out, p(y|θ) is that of the approximation. If f was sampled, p(y|θ) is
    an unbiased estimate by particles as in `verify`, and p(y) is exact up to its standard error.

    Parameters
    ----------
    result : DataTree
        Result of ``fit(NUTS(...))`` with sampled hyperparameters.
    <model>
    draws : int
        Number of points of the hyperparameters, at least 25.
    particles : int
        Number of draws of f at each point, at least 2; used if f was sampled.
    <random_seed>

    Returns
    -------
    Evidence
        As of `log_evidence`; ``converged`` is true if the k-hat of the weights is at most 0.7.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, or a number is out of range.
    <no_result>

    <pymc_model>
    >>> bp.integrated_evidence(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_count("draws", draws, 25)
    check_count("particles", particles, 2)
    fitted = Judged(result, model)
    method, problem, names = fitted.method, fitted.problem, fitted.hyperparameters
    posterior = result["posterior"].to_dataset()
    sampled = [name for name in names if name in posterior and np.ptp(posterior[name].values) > 0]
    if sampled != list(names) or not sampled:
        raise ValueError(f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {method.name}")
    rng = generator(random_seed)
    unconstrained = [dict(zip(names, problem.to_unconstrained(point), strict=True)) for point in fitted.points]
    drawn = [DictToArrayBijection.map(values) for values in unconstrained]
    theta, shapes = np.stack([draw.data for draw in drawn]), drawn[0].point_map_info
    proposal = multivariate_t(theta.mean(axis=0), np.atleast_2d(np.cov(theta.T)), df=_TAIL, seed=rng)
    proposed = np.reshape(proposal.rvs(draws), (draws, -1))
    prior = problem.model.compile_fn(
        problem.model.logp(vars=problem.prior_terms), inputs=problem.values, point_fn=False, mode="FAST_COMPILE"
    )
    weight = np.empty(draws)
    for s, flat in enumerate(proposed):
        values = list(DictToArrayBijection.rmap(RaveledVars(flat, shapes)).values())
        point = problem.to_constrained(values)
        if method.latent is None:
            K, mean, noise = fitted.at(point)
            evidence, _ = importance(K, problem.targets, noise, mean, particles, rng)
        else:
            evidence = fitted.evidence(point, method.latent, rng).value
        weight[s] = evidence + float(prior(*values)) - proposal.logpdf(flat)
    value = float(logsumexp(weight) - np.log(draws))
    error = float(np.exp(weight - value).std(ddof=1) / np.sqrt(draws))
    finite = weight[np.isfinite(weight)]
    return Evidence(value, error, pareto_weights(finite)[1] <= GOOD_K)

"""The evidence of a model, at a point or integrated over the hyperparameters, and corrections of results by it.

`verify` weights sampled hyperparameters to the exact posterior. The weight of a draw θ is an unbiased estimate of
p(y|θ) over the evidence that the sampler used. The estimate has particles of a Gaussian wider than the mean-field
posterior. The weights are smoothed, and k-hat says whether they are reliable (Vehtari et al. 2024).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from rich.progress import track
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from bsvr_pp.classification.normalised_evidence import normalised
from bsvr_pp.classification.normaliser import KINDS, EvidenceKind
from bsvr_pp.core.approximations.smc import importance, importance_estimate
from bsvr_pp.core.arrays import Array, check_choice, check_count, generator
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.integrated import GOOD_K, TAIL, pareto_weights
from bsvr_pp.inference.protocol import Evidence, HasEvidence, Normalises
from bsvr_pp.inference.result import check_match, is_mode, is_sampled, latent_draws, points_of, problem_of
from bsvr_pp.inference.search.optimize import check_continuous
from bsvr_pp.methods import method_of
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.reader import read_model


class Judged:
    """A result of `fit` and its model; ``purpose``, a key of `Numbers.refusal`, is refused for some targets."""

    def __init__(self, result: xr.DataTree, model: pm.Model | None, name: str = "result", purpose: str = "") -> None:
        self.result, self.problem = result, problem_of(result, model, name)
        self.target, self.targets, loss = self.problem.target, self.problem.targets, self.problem.loss
        if purpose and (refusal := loss.targets.refusal(purpose, name=loss.name)):
            raise ValueError(refusal)
        check_match(self.problem, result, name)

    @cached_property
    def points(self) -> list[Point]:
        """The hyperparameters of each draw, chain after chain."""
        return points_of(self.result["posterior"].to_dataset(), self.problem.hyperparameters)

    def rows_of(self, group: str, variable: str) -> Array:
        """Return a variable with a value for each draw and training point, as a (draws, n) array."""
        return np.reshape(self.result[group].to_dataset()[variable].values, (-1, self.targets.size))

    def evenly(self, most: int) -> NDArray[np.intp]:
        """Return positions of at most so many draws, evenly spaced among all."""
        total = len(self.points)
        return np.unique(np.linspace(0, total - 1, min(most, total)).astype(int))


def evidence_at(
    problem: Problem, point: Point, method: HasEvidence, rng: np.random.Generator, kind: str = "naive"
) -> Evidence:
    """Return the log evidence of a kind at checked hyperparameters."""
    if kind != "naive":
        return normalised(problem, point, method, kind, rng)
    problem.check_integrable()
    K, mean, noise = problem.at(point)
    return method.evidence(K, problem.targets, noise, mean, rng)


@shared
def log_evidence(
    method: HasEvidence,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    kind: EvidenceKind = "naive",
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Compute the natural log of the evidence p(y | hyperparameters), with the latent function integrated out.

    Parameters
    ----------
    method : Laplace, MeanField, Annealed or another method with an evidence
        Method of integration. The annealed estimate is exact up to its standard error.
    <model>
    hyperparameters : dict, optional
        A value for each hyperparameter of the model; not needed if there are none.
    kind : {"naive", "conditional", "joint"}
        For labels (`bp.SVMLabel`): the unnormalised evidence (Sollich 2002, (27)), the evidence of the labels given the
        inputs (25), or of both (30). The normaliser is annealed, with the options of ``method`` if it is `Annealed`.
    random_seed : int or Generator, optional
        Random seed of annealed estimates.

    Returns
    -------
    Evidence
        A named tuple of ``value``, its ``standard_error`` (0 if the method has none), and ``converged``.

    Raises
    ------
    TypeError
        If the method has no evidence.
    ValueError
        If a hyperparameter is missing, unknown or outside its support, or kind is not one of these.
    ModelError
        If an evidence is to be normalised, and the model has no labels, or its prior mean is not zero.

    Warns
    -----
    UserWarning
        If a conditional evidence is above its bound -log 2 (docs/classification.md).

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)), jitter=0.0)
    ...     _ = pm.Normal("y", mu=f, sigma=1.0, observed=[1.0])
    ...     round(bp.log_evidence(bp.MeanField()).value, 6)
    -1.515512
    """
    if not isinstance(method, HasEvidence):
        raise TypeError(f"method must have an evidence, as Laplace(), MeanField() and Annealed() have, got {method!r}")
    check_choice("kind", kind, KINDS)
    problem = read_model(model)
    return evidence_at(problem, problem.complete(hyperparameters), method, generator(random_seed), kind)


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

    The method is importance sampling from a Student t distribution (docs/explanation/evidence.md). If f was integrated
    out, p(y|θ) comes from the approximation. If f was sampled, p(y|θ) is an unbiased estimate by particles as in
    `verify`, and p(y) is exact up to its standard error.

    Parameters
    ----------
    result : DataTree
        Result of ``fit(NUTS(...))`` with sampled hyperparameters.
    <model>
    draws : int
        Number of points of the hyperparameters, at least 25.
    particles : int
        Number of draws of f at each point, at least 2; used if f was sampled.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.

    Returns
    -------
    Evidence
        As of `log_evidence`; ``converged`` is true if the k-hat of the weights is at most 0.7, and the result has
        converged.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, or under the conditional evidence of labels (by `Exchange`); or if a
        number is out of range.
    <no_result>

    <pymc_model>
    >>> bp.integrated_evidence(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_count("draws", draws, 25)
    check_count("particles", particles, 2)
    fitted = Judged(result, model)
    method, problem, names = method_of(result), fitted.problem, fitted.problem.hyperparameters
    if not has_draws(result, names):
        raise ValueError(
            f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {result.attrs['inference']}"
        )
    if isinstance(method, Normalises):
        raise ValueError(
            f"result must have draws by the naive evidence, and those of {method.name} are by the {method.kind} one: "
            f"use bp.log_evidence with kind={method.kind!r} at given hyperparameters"
        )
    problem.warn_of_priors()
    problem.check_integrable()
    check_continuous(problem, ())
    problem.check_one_period()
    rng = generator(random_seed)
    unconstrained = [dict(zip(names, problem.to_unconstrained(point), strict=True)) for point in fitted.points]
    drawn = [DictToArrayBijection.map(values) for values in unconstrained]
    theta, shapes = np.stack([draw.data for draw in drawn]), drawn[0].point_map_info
    proposal = multivariate_t(theta.mean(axis=0), np.atleast_2d(np.cov(theta.T)), df=TAIL, seed=rng)
    proposed = np.reshape(proposal.rvs(draws), (draws, -1))
    prior = problem.model.compile_fn(
        problem.model.logp(vars=problem.prior_terms), inputs=problem.values, point_fn=False, mode="FAST_COMPILE"
    )
    weight = np.empty(draws)
    for s, flat in enumerate(proposed):
        values = list(DictToArrayBijection.rmap(RaveledVars(flat, shapes)).values())
        point = problem.to_constrained(values)
        if method.latent is None:
            K, mean, noise = problem.at(point)
            evidence, _ = importance(K, problem.targets, noise, mean, particles, rng)
        else:
            evidence = evidence_at(problem, point, method.latent, rng).value
        weight[s] = evidence + float(prior(*values)) - proposal.logpdf(flat)
    reliable = pareto_weights(weight[np.isfinite(weight)])[1] <= GOOD_K
    return Evidence(*importance_estimate(weight), bool(reliable and result.attrs.get("converged", True)))


def has_draws(result: xr.DataTree, names: Collection[str]) -> bool:
    """Return whether a result has draws of all these hyperparameters, and not the same value in each."""
    held = result["posterior"].to_dataset()
    return bool(names) and all(n in held and np.ptp(held[n].values, axis=(0, 1)).any() for n in names)


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`; its docstring describes the attributes."""

    k_hat: float
    table: pd.DataFrame
    log_weights: Array
    draws: NDArray[np.intp]
    log_ratio: Array
    particle_error: float

    @property
    def effective_draws(self) -> float:
        """Effective number of the chosen draws after weighting."""
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
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    Verification
        ``k_hat`` is the Pareto shape of the importance weights: up to 0.7 the corrected columns are reliable (0 if the
        largest weights are all equal, as for an exact evidence). ``table`` has a row for each hyperparameter: mean and
        sd as sampled and corrected, and the shift of the mean in corrected sd. ``verdict`` is one sentence. For the
        chosen draws, ``draws`` are their positions among all, chain after chain; ``log_weights`` are normalised and
        smoothed; ``log_ratio`` is the log of the unbiased evidence minus the approximation's. ``effective_draws`` is
        their number after weighting, and ``particle_error`` the typical standard error of a log ratio from its
        particles.

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
    if "latent_draws" not in result.children or isinstance(method_of(result), Normalises):
        raise ValueError(
            f"result must be of fit(NUTS(latent=...)), with f integrated out, got one of {result.attrs['inference']}"
        )
    used = result["latent_draws"].to_dataset()["log_evidence"].values.ravel()
    chosen = fitted.evenly(draws)
    rng = generator(random_seed)
    ratio, error = np.empty(chosen.size), np.empty(chosen.size)
    for i, s in enumerate(track(chosen, "verify", disable=not progressbar, transient=True)):
        K, mean, noise = fitted.problem.at(fitted.points[s])
        log_mean, error[i] = importance(K, fitted.targets, noise, mean, particles, rng)
        ratio[i] = log_mean - used[s]
    smoothed, k_hat = pareto_weights(ratio)
    weights = np.exp(smoothed)
    drawn = pd.DataFrame(entries_of(result, fitted.problem.hyperparameters)).iloc[chosen]
    mean, corrected = drawn.mean(), drawn.T @ weights
    sd = np.sqrt(((drawn - corrected) ** 2).T @ weights)
    shift = ((corrected - mean) / sd).where(drawn.nunique() > 1, 0.0)
    columns = {"mean": mean, "sd": drawn.std(), "corrected mean": corrected, "corrected sd": sd, "shift": shift}
    return Verification(k_hat, pd.DataFrame(columns), smoothed, chosen, ratio, float(np.median(error)))


def entries_of(result: xr.DataTree, names: Iterable[str]) -> dict[str, Array]:
    """Return draws of every entry of variables of a posterior, by name, as ``C`` or ``lengthscale[1]``."""
    posterior = result["posterior"].to_dataset()
    out: dict[str, Array] = {}
    for name in names:
        flat = posterior[name].values.reshape(posterior.sizes["chain"] * posterior.sizes["draw"], -1)
        out |= {f"{name}[{i}]" if flat.shape[1] > 1 else name: each for i, each in enumerate(flat.T)}
    return out


def latent_k_hat(result: xr.DataTree) -> float:
    """Return k-hat of the weights of f, from its Gaussian posterior to the exact one; NaN for MAP and draws of f."""
    if is_sampled(result) or is_mode(result):
        return np.nan
    latent = result["latent_posterior"].to_dataset()
    likelihood = result["log_likelihood"].to_dataset()
    target = next(iter(likelihood.data_vars))
    # log p(y|f) p(f)/q(f) at f = mean + δ is log p(y|f) - dual_coef·δ + ½ Σ τ_i δ_i², up to a constant.
    step = latent_draws(result) - latent["mean"].values
    ratio = likelihood[target].values.reshape(step.shape).sum(axis=1)
    ratio = ratio - step @ latent["dual_coef"].values + 0.5 * step**2 @ latent["site_precision"].values
    return pareto_weights(ratio)[1]

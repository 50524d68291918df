"""The numbers of one result, with their errors, as data without words, and their computation.

A number is None if it was not requested, and NaN if the method does not have it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, Literal, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.stats import wasserstein_distance

from bsvr_pp._arrays import Array
from bsvr_pp._checks import generator
from bsvr_pp.assess.evidence import integrated_evidence
from bsvr_pp.assess.judged import JudgedModel
from bsvr_pp.assess.loo import CavityLOO, loo
from bsvr_pp.assess.reweighting import latent_k_hat, verify
from bsvr_pp.assess.scores import Scores
from bsvr_pp.inference.approximate import Annealed
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.protocol import Approximation, Evidence
from bsvr_pp.inference.result import hyperparameters_of, latent_draws, shown_names

_DRAWS = 100  # number of draws of the hyperparameters for k-hat and p(y)
_BINS = 10


class Hyperparameter(NamedTuple):
    """A scalar hyperparameter: its name, and its position if it is an entry of a vector."""

    name: str
    position: int | None = None

    @property
    def label(self) -> str:
        """Label such as ``C`` or ``lengthscale[1]``."""
        return self.name if self.position is None else f"{self.name}[{self.position}]"


class Estimate(NamedTuple):
    """A value with its standard error, or for draws their standard deviation; NaN if there is none."""

    value: float = nan
    error: float = nan


@dataclass(frozen=True, slots=True)
class EvidenceFigures:
    """Log evidences of the method of a result, in nats.

    ``own`` is at the hyperparameters of the result (NaN for the mode and for draws), ``error`` that of the method
    minus the annealed one there (for draws, at their mean), ``common`` and ``common_error`` the same at the common
    hyperparameters of the comparison.
    """

    own: float
    error: Estimate | None = None
    common: Estimate | None = None
    common_error: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of a result from the reference.

    ``mean_f`` and ``mean_y`` are the largest difference of the means of f, in posterior standard deviations of f and
    in predictive ones of y. The others are `marginal_distances`: of f averaged over the training inputs, and of each
    hyperparameter.
    """

    mean_f: float
    mean_y: float
    wasserstein_f: float
    kl_f: float
    wasserstein: Mapping[Hyperparameter, float]
    kl: Mapping[Hyperparameter, float]


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Leave-one-out log density, its kind, and the number of its terms that are not reliable."""

    elpd: Estimate
    kind: Literal["cavities", "PSIS of cavities", "PSIS"] | None = None
    unreliable: int = 0
    n: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Diagnostics of draws: largest R-hat, smallest effective number of draws, divergences."""

    r_hat: float
    ess: float
    divergences: int


@dataclass(frozen=True, slots=True)
class Assessment:
    """One result of a comparison.

    ``plug_in`` and ``sampled`` say whether it has only the mode, or draws. ``point`` has its hyperparameters (for draws
    their mean) as plain numbers and lists, ``hyperparameters`` value and standard deviation of each scalar one.
    ``off_bound`` and ``on_bound`` count support vectors. ``integrated`` is log p(y).
    """

    inference: str
    plug_in: bool
    sampled: bool
    converged: bool
    seconds: float
    message: str
    point: Mapping[str, Any]
    hyperparameters: Mapping[Hyperparameter, Estimate]
    evidence: EvidenceFigures
    off_bound: int | None = None
    on_bound: int | None = None
    integrated: Estimate | None = None
    k_hat: float | None = None
    distances: Distances | None = None
    scores: Scores | None = None
    loo: LeaveOneOut | None = None
    sampling: Sampling | None = None

    @property
    def draws_per_second(self) -> float | None:
        """Effective draws for each second of the whole run."""
        return None if self.sampling is None else self.sampling.ess / self.seconds


def own_point(result: xr.DataTree) -> dict[str, Any]:
    """Return the hyperparameters of a result, as plain numbers and lists; for draws their mean."""
    posterior, names = result["posterior"].to_dataset(), sorted(hyperparameters_of(result))
    kept = (
        posterior[names].mean(("chain", "draw"))
        if method_of(result).capabilities.draws
        else posterior[names].isel(chain=0, draw=0)
    )
    return {name: kept[name].values.tolist() for name in names}


class Evidences:
    """Evidences of one model; each, of which annealing is slow, is computed once for a method and a point."""

    def __init__(self, judged: JudgedModel, annealed: Annealed | None, random_seed: int | None) -> None:
        self._judged, self._annealed, self._random_seed = judged, annealed, random_seed
        self._known: dict[tuple[Any, str], Evidence] = {}

    def at(self, point: Mapping[str, Any], method: Approximation | Annealed) -> Evidence:
        """Return the evidence of a method; that of annealing has the same seed at every point."""
        key = method, json.dumps(sorted(point.items()))
        if key not in self._known:
            complete = self._judged.problem.complete(point)
            self._known[key] = self._judged.evidence(complete, method, generator(self._random_seed))
        return self._known[key]

    def truth(self, point: Mapping[str, Any]) -> Evidence | None:
        """Return the annealed evidence; None without a reference method."""
        return None if self._annealed is None else self.at(point, self._annealed)


def describe(result: xr.DataTree, evidences: Evidences | None, theta: Mapping[str, Any]) -> Assessment:
    """Collect the numbers of a result and its evidences, also at the common hyperparameters ``theta``."""
    attributes, latent = result.attrs, result["latent_posterior"].to_dataset()
    capabilities = method_of(result).capabilities
    sampling = None
    if "r_hat" in attributes:
        sampling = Sampling(float(attributes["r_hat"]), float(attributes["ess"]), int(attributes["divergences"]))
    support = latent["support"].values if "support" in latent else None
    return Assessment(
        inference=str(attributes["inference"]),
        plug_in=capabilities.plug_in,
        sampled=capabilities.draws,
        converged=bool(attributes["converged"]),
        seconds=float(attributes["sampling_time"]),
        message=str(attributes.get("message", "")),
        point=own_point(result),
        hyperparameters={entry: _estimate(draws) for entry, draws in hyperparameter_draws(result).items()},
        evidence=_evidence_figures(result, evidences, theta),
        off_bound=None if support is None else int(np.sum(support == 1)),
        on_bound=None if support is None else int(np.sum(support == 2)),
        sampling=sampling,
    )


def _estimate(draws: Array) -> Estimate:
    return Estimate(float(draws.mean()), float(draws.std(ddof=1)) if draws.size > 1 else np.nan)


def _evidence_figures(result: xr.DataTree, evidences: Evidences | None, theta: Mapping[str, Any]) -> EvidenceFigures:
    method = method_of(result)
    latent: Approximation | None = method.latent
    # The mode has no evidence, and draws have none without further computation.
    own = nan if method.capabilities.plug_in else float(result.attrs["log_evidence"])
    if evidences is None:
        return EvidenceFigures(own)
    truth = evidences.truth(theta)
    if latent is None:
        # Where f was sampled as well, the evidence is the exact one.
        exact = Estimate(*truth[:2]) if method.capabilities.draws and truth is not None else Estimate()
        none = None if truth is None else Estimate()
        return EvidenceFigures(own, none, exact, none)
    there = evidences.at(theta, latent)
    common = Estimate(*there[:2])
    point = own_point(result)
    exactly = evidences.truth(point)
    if truth is None or exactly is None:
        return EvidenceFigures(own, common=common)
    here = evidences.at(point, latent).value if method.capabilities.draws else own
    return EvidenceFigures(
        own,
        error=Estimate(here - exactly.value, exactly.standard_error),
        common=common,
        common_error=Estimate(there.value - truth.value, truth.standard_error),
    )


def integrated_estimate(result: xr.DataTree, model: pm.Model, random_seed: int | None) -> Estimate:
    """Log p(y) with all hyperparameters integrated out; NaN if not all of them were sampled."""
    posterior, names = result["posterior"].to_dataset(), hyperparameters_of(result)
    if not names or not all(np.ptp(posterior[name].values) > 0 for name in names):
        return Estimate()
    found = integrated_evidence(result, model=model, draws=_DRAWS, random_seed=random_seed)
    return Estimate(found.value, found.standard_error if found.converged else np.inf)


def distances(result: xr.DataTree, reference: xr.DataTree) -> Distances:
    """Distances of f, y and the hyperparameters from those of a reference."""
    latent, exact = (each["latent_posterior"].to_dataset() for each in (result, reference))
    predicted = reference["posterior_predictive"].to_dataset()
    sd_y = predicted[next(iter(predicted.data_vars))].std(("chain", "draw")).values
    sd_f = np.sqrt(exact["variance"].values)
    shift = np.abs(latent["mean"].values - exact["mean"].values)
    f, g = latent_draws(result), latent_draws(reference)
    each_f = [marginal_distances(f[:, i], g[:, i]) for i in range(f.shape[1])]
    wasserstein_f, kl_f = (float(np.mean(part)) for part in zip(*each_f, strict=True))
    others = hyperparameter_draws(reference)
    pairs = {entry: marginal_distances(draws, others[entry]) for entry, draws in hyperparameter_draws(result).items()}
    return Distances(
        mean_f=float(np.max(shift / sd_f)) if sd_f.any() else nan,
        mean_y=float(np.max(shift / sd_y)),
        wasserstein_f=wasserstein_f,
        kl_f=kl_f,
        wasserstein={entry: pair[0] for entry, pair in pairs.items()},
        kl={entry: pair[1] for entry, pair in pairs.items()},
    )


def hyperparameter_draws(result: xr.DataTree) -> dict[Hyperparameter, Array]:
    """Draws of every scalar hyperparameter, one for each element of a vector; those of a point are one draw."""
    posterior = result["posterior"].to_dataset()
    sampled = "dual_coef" not in result["latent_posterior"].to_dataset()
    out = {}
    for name in shown_names(result):
        flat = posterior[name].values.reshape(posterior.sizes["chain"] * posterior.sizes["draw"], -1)
        for i in range(flat.shape[1]):
            out[Hyperparameter(name, i if flat.shape[1] > 1 else None)] = flat[:, i] if sampled else flat[:1, i]
    return out


def marginal_distances(draws: Array, reference: Array) -> tuple[float, float]:
    """Wasserstein distance, in standard deviations of the reference, and KL divergence of draws of one quantity.

    The divergence is that of the reference from the other, between the shares that fall into the tenths of the
    reference, less what it is on average for equal distributions. It is NaN for a point, which is a single draw; both
    are NaN where the reference is a point.
    """
    sd = reference.std(ddof=1) if reference.size > 1 else 0.0
    if not sd > 0:
        return np.nan, np.nan
    wasserstein = float(wasserstein_distance(draws, reference) / sd)
    if draws.size == 1:
        return wasserstein, np.nan
    edges = np.quantile(reference, np.arange(1, _BINS) / _BINS)
    p, q = (
        (np.bincount(np.searchsorted(edges, x), minlength=_BINS) + 0.5) / (x.size + 0.5 * _BINS)
        for x in (reference, draws)
    )
    excess = 0.5 * (_BINS - 1) * (1 / reference.size + 1 / draws.size)
    return wasserstein, max(float(p @ np.log(p / q)) - excess, 0.0)


def loo_estimate(result: xr.DataTree, model: pm.Model) -> LeaveOneOut:
    """Compute the leave-one-out density; NaN for the mode, which has no posterior of f."""
    if method_of(result).capabilities.plug_in:
        return LeaveOneOut(Estimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unreliable terms, for which ArviZ warns, are counted below
        found = loo(result, model=model)
    elpd = Estimate(float(found.elpd), float(found.se))
    if isinstance(found, CavityLOO):
        return LeaveOneOut(elpd, "cavities")
    unreliable = int(np.sum(found.pareto_k.values > found.good_k))
    return LeaveOneOut(
        elpd, "PSIS of cavities" if "leave_one_out" in result.children else "PSIS", unreliable, int(found.n_data_points)
    )


def k_hat(result: xr.DataTree, model: pm.Model | None, random_seed: int | None) -> float:
    """k-hat of the weights of f or, if f was integrated out, of the hyperparameters; NaN if there is neither."""
    if "latent_draws" not in result.children:
        return latent_k_hat(result)
    drawn = result["posterior"].sizes
    if model is None or drawn["chain"] * drawn["draw"] < _DRAWS:
        return np.nan
    return verify(result, model=model, draws=_DRAWS, random_seed=random_seed, progressbar=False).k_hat

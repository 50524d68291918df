"""Computation of the numbers of one result: its attributes, its evidences, and its distances from another result."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp.assess.assessment import (
    Assessment,
    Distances,
    Estimate,
    EvidenceFigures,
    Hyperparameter,
    LeaveOneOut,
    Sampling,
)
from bsvr_pp.assess.evidence import approximation_of, integrated_evidence, log_evidence
from bsvr_pp.assess.loo import CavityLOO, loo
from bsvr_pp.assess.scores import hyperparameter_draws, latent_k_hat, marginal_distances
from bsvr_pp.assess.verify import verify
from bsvr_pp.inference.annealed import Annealed
from bsvr_pp.inference.layout import latent_draws
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.protocol import Approximation, Evidence
from bsvr_pp.inference.result import hyperparameters_of
from bsvr_pp.model.problem import Problem

__all__ = ["Evidences", "describe", "distances", "integrated_estimate", "k_hat", "leave_one_out", "own_point"]

Array = NDArray[np.float64]

_DRAWS = 100  # number of draws of the hyperparameters for k-hat and p(y)


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
    """Evidences of one model at several points; annealing, which is slow, runs once at each point."""

    def __init__(self, problem: Problem, annealed: Annealed | None, random_seed: int | None) -> None:
        self.problem, self.annealed, self.random_seed = problem, annealed, random_seed
        self._known: dict[str, Evidence] = {}

    def at(self, point: Mapping[str, Any], method: Approximation) -> Evidence:
        """Return the evidence of a method."""
        return log_evidence(method, self.problem.model, hyperparameters=point)

    def truth(self, point: Mapping[str, Any]) -> Evidence | None:
        """Return the annealed evidence, with the same seed at every point; None without a reference method."""
        if self.annealed is None:
            return None
        key = json.dumps(sorted(point.items()))
        if key not in self._known:
            self._known[key] = log_evidence(
                self.annealed, self.problem.model, hyperparameters=point, random_seed=self.random_seed
            )
        return self._known[key]


def describe(result: xr.DataTree, evidences: Evidences | None, common: Mapping[str, Evidence]) -> Assessment:
    """Collect the numbers of a result and its evidences; ``common`` are those at the common hyperparameters."""
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
        evidence=_evidence_figures(result, evidences, common),
        off_bound=None if support is None else int(np.sum(support == 1)),
        on_bound=None if support is None else int(np.sum(support == 2)),
        sampling=sampling,
    )


def _estimate(draws: Array) -> Estimate:
    return Estimate(float(draws.mean()), float(draws.std(ddof=1)) if draws.size > 1 else np.nan)


def _evidence_figures(
    result: xr.DataTree, evidences: Evidences | None, common: Mapping[str, Evidence]
) -> EvidenceFigures:
    # The mode has no evidence, and draws have none without further computation.
    capabilities = method_of(result).capabilities
    own = np.nan if capabilities.plug_in else float(result.attrs["log_evidence"])
    if evidences is None:
        return EvidenceFigures(own)
    method, truth = approximation_of(result), common.get("annealed")
    if method is None:
        # Where f was sampled as well, the evidence is the exact one.
        exact = Estimate(truth.value, truth.standard_error) if capabilities.draws and truth is not None else Estimate()
        none = None if truth is None else Estimate()
        return EvidenceFigures(own, none, exact, none)
    there = common[method.name]
    figures = EvidenceFigures(own, common=Estimate(there.value, there.standard_error))
    if truth is None:
        return figures
    point = own_point(result)
    here = evidences.at(point, method).value if capabilities.draws else own
    exactly = evidences.truth(point)
    assert exactly is not None
    return replace(
        figures,
        error=Estimate(here - exactly.value, exactly.standard_error),
        common_error=Estimate(there.value - truth.value, truth.standard_error),
    )


def integrated_estimate(result: xr.DataTree, problem: Problem, random_seed: int | None) -> Estimate:
    """Log p(y) with all hyperparameters integrated out; NaN if not all of them were sampled."""
    posterior = result["posterior"].to_dataset()
    free = [name for name in problem.hyperparameters if np.ptp(posterior[name].values) > 0]
    if not free or len(free) < len(problem.hyperparameters):
        return Estimate()
    found = integrated_evidence(result, model=problem.model, draws=_DRAWS, random_seed=random_seed)
    return Estimate(found.value, found.standard_error if found.converged else np.inf)


def distances(result: xr.DataTree, reference: xr.DataTree) -> Distances:
    """Distances of f, y and the hyperparameters from those of a reference."""
    mean_f, mean_y = _differences(result, reference)
    f, g = latent_draws(result), latent_draws(reference)
    each = [marginal_distances(f[:, i], g[:, i]) for i in range(f.shape[1])]
    wasserstein_f, kl_f = (float(np.mean(part)) for part in zip(*each, strict=True))
    others = hyperparameter_draws(reference)
    pairs: dict[Hyperparameter, tuple[float, float]] = {
        entry: marginal_distances(draws, others[entry]) for entry, draws in hyperparameter_draws(result).items()
    }
    wasserstein, kl = ({entry: pair[i] for entry, pair in pairs.items()} for i in (0, 1))
    return Distances(mean_f, mean_y, wasserstein_f, kl_f, wasserstein, kl)


def _differences(result: xr.DataTree, reference: xr.DataTree) -> tuple[float, float]:
    """Largest difference of the means of f, in standard deviations of f and of y under the reference."""
    mean, other = (r["latent_posterior"].to_dataset()["mean"].values for r in (result, reference))
    sd_f = np.sqrt(reference["latent_posterior"].to_dataset()["variance"].values)
    predicted = reference["posterior_predictive"].to_dataset()
    sd_y = predicted[next(iter(predicted.data_vars))].std(("chain", "draw")).values
    if not sd_f.any():
        return float("nan"), float(np.max(np.abs(mean - other) / sd_y))
    return float(np.max(np.abs(mean - other) / sd_f)), float(np.max(np.abs(mean - other) / sd_y))


def leave_one_out(result: xr.DataTree, problem: Problem) -> LeaveOneOut:
    """Compute the leave-one-out density; NaN for the mode, which has no posterior of f."""
    if method_of(result).capabilities.plug_in:
        return LeaveOneOut(Estimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unreliable terms, for which ArviZ warns, are counted below
        found = loo(result, model=problem.model)
    elpd = Estimate(float(found.elpd), float(found.se))
    if isinstance(found, CavityLOO):
        return LeaveOneOut(elpd, "cavities")
    unreliable = int(np.sum(found.pareto_k.values > found.good_k))
    return LeaveOneOut(
        elpd, "PSIS of cavities" if "leave_one_out" in result.children else "PSIS", unreliable, int(found.n_data_points)
    )


def k_hat(result: xr.DataTree, problem: Problem | None, random_seed: int | None) -> float:
    """k-hat of the weights of f or, if f was integrated out, of the hyperparameters; NaN if there is neither."""
    if "latent_draws" not in result.children:
        return latent_k_hat(result)
    drawn = result["posterior"].sizes
    if problem is None or drawn["chain"] * drawn["draw"] < _DRAWS:
        return np.nan
    return verify(result, model=problem.model, draws=_DRAWS, random_seed=random_seed, progressbar=False).k_hat

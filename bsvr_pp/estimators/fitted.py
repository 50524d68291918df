"""The fitted state of an estimator: optima of the hyperparameters with their posteriors of f, or draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.approximations.posterior import from_sites, without_factor
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.component import Component, component, components
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.layout import row_of
from bsvr_pp.inference.methods import to_record
from bsvr_pp.inference.noise_scales import NoiseScales, densities_of_rows
from bsvr_pp.inference.optimize import Optimum, maximize
from bsvr_pp.inference.protocol import Approximation, Method
from bsvr_pp.inference.result import from_latent
from bsvr_pp.model.problem import Point, Problem

__all__ = ["Fitted", "optimized", "reading", "restored", "sampled", "solved"]

Array = NDArray[np.float64]

_SAME = 1e-2  # relative distance of hyperparameters below which two optima are considered equal


@dataclass(frozen=True, slots=True)
class Fitted:
    """Members of a committee (usually one), or a tree of draws.

    Attributes
    ----------
    points, posteriors, weights
        Hyperparameters, posterior of f and weight of each member. For sampled results: the posterior mean, an empty
        list, and weight 1.
    optima : list of Optimum
        End points of all starts of the optimiser.
    converged : bool
        Whether optimum or chains converged.
    message : str
        Message of the optimiser or of the diagnostics.
    log_evidence : float
        Log evidence of the best member; NaN for draws.
    draws : DataTree or None
        Result of the sampler.
    record : str
        How the hyperparameters of many rows were found, as JSON.
    scales : NoiseScales or None
        Scales of the noise, of fits on nearest rows or
    densities : array or None
        of a dense fit, whose rows have these log densities (n, s) given the others.
    """

    points: list[Point]
    posteriors: list[LatentPosterior]
    weights: Array
    optima: list[Optimum]
    converged: bool
    message: str
    log_evidence: float
    draws: xr.DataTree | None = None
    record: str = ""
    scales: NoiseScales | None = None
    densities: Array | None = None

    def with_scales(self, problem: Problem, scales: NoiseScales | None) -> Fitted:
        """The same with scales of the noise."""
        if scales is None or problem.blocks is not None:
            return replace(self, scales=scales, densities=None)
        found = densities_of_rows(problem, self.points[0], self.posteriors[0], scales.factors)
        return replace(self, scales=scales, densities=found)

    def components(
        self, problem: Problem, rng: np.random.Generator, nearest: int = 3, neighbours: int | None = None
    ) -> Iterable[Component]:
        """Components of the averaged predictions."""
        if self.draws is not None:
            return components(problem, self.draws, rng, nearest, neighbours=neighbours)
        return [
            component(
                problem,
                point,
                posterior.dual_coef,
                posterior.site_precision,
                weight=float(weight),
                nearest=nearest,
                neighbours=neighbours,
                predict=posterior.predict if problem.blocks is None else None,
                scales=self.scales,
                densities=self.densities,
            )
            for point, posterior, weight in zip(self.points, self.posteriors, self.weights, strict=True)
        ]

    def result(self, problem: Problem, method: Method) -> xr.DataTree:
        """Make the result in the format of `bp.fit`, with a group ``committee``."""
        if self.draws is not None:
            return self.draws.copy()
        attributes = {
            "inference": method.name,
            "method": json.dumps(to_record(method)),
            "objective": "posterior",
            "log_evidence": self.log_evidence,
            "converged": int(self.converged),
            "message": self.message,
        }
        rng = np.random.default_rng(0)
        best = self.posteriors[0]
        attributes["noise_scales"] = json.dumps(None if self.scales is None else self.scales.record())
        if problem.blocks is not None:
            attributes["at_size"] = self.record
            best = replace(best, factor=problem.at(self.points[0])[0].factor(best.site_precision))
        tree = from_latent(problem, self.points[0], best, self.optima, attributes, plug_in=False, rng=rng)
        members: dict[str, Any] = {"weight": ("member", self.weights)}
        for name in ("dual_coef", "site_precision"):
            members[name] = (("member", row_of(tree)), np.stack([getattr(p, name) for p in self.posteriors]))
        for name in self.points[0]:
            values = np.stack([point[name] for point in self.points])
            members[name] = (("member", *(f"{name}_dim_{i}" for i in range(values.ndim - 1))), values)
        tree["committee"] = xr.DataTree(xr.Dataset(members))
        return tree


def optimized(
    problem: Problem, method: Method, restarts: int | None, committee: bool, rng: np.random.Generator
) -> Fitted:
    """Fit the best optimum, or all optima weighted by evidence times prior (Chu, Keerthi & Ong 2004, section V-B)."""
    check_budget(method, problem.targets.size, divisible=problem.ends.kind == "exact")
    options: dict[str, Any] = {"restarts": restarts, "objective": "posterior", "progressbar": False}
    approximation = method.latent
    assert approximation is not None  # as `BayesianSVR` checks
    optima = maximize(problem, approximation, {}, rng=rng, all_optima=committee, **options)
    kept = _distinct(optima) if committee else optima[:1]
    logs = np.array([optimum.objective for optimum in kept])
    weights = np.exp(logs - logs.max())
    posteriors = [solve_at(problem, approximation, optimum.point) for optimum in kept]
    return Fitted(
        [optimum.point for optimum in kept],
        posteriors,
        weights / weights.sum(),
        optima,
        bool(optima[0].converged and all(posterior.converged for posterior in posteriors)),
        optima[0].message,
        float(posteriors[0].log_evidence),
    )


def solved(problem: Problem, method: Approximation, optima: list[Optimum], record: str, progressbar: bool) -> Fitted:
    """Solve all blocks at the first optimum. The posterior holds no factors, so that the state is small."""
    point = optima[0].point
    posterior = without_factor(solve_at(problem, method, point, progressbar))
    message = optima[0].message if posterior.converged else "the solve of a block"
    evidence, weights = float(posterior.log_evidence), np.ones(1)
    return Fitted([point], [posterior], weights, optima, posterior.converged, message, evidence, record=record)


def _distinct(optima: list[Optimum]) -> list[Optimum]:
    """Return distinct optima, best first."""
    kept: list[Optimum] = []
    for optimum in optima:
        same = any(
            all(np.allclose(optimum.point[name], other.point[name], rtol=_SAME) for name in optimum.point)
            for other in kept
        )
        if not same and np.isfinite(optimum.objective):
            kept.append(optimum)
    return kept or optima[:1]


def sampled(model: pm.Model, problem: Problem, method: Method, rng: np.random.Generator) -> Fitted:
    """Draw the hyperparameters, with f integrated out."""
    return _of_draws(problem, fit(method, model, random_seed=rng, progressbar=False))


def _of_draws(problem: Problem, draws: xr.DataTree) -> Fitted:
    posterior = draws["posterior"].to_dataset()
    point = {name: posterior[name].values.mean(axis=(0, 1)) for name in problem.hyperparameters}
    converged, message = bool(draws.attrs["converged"]), str(draws.attrs["message"])
    return Fitted([point], [], np.ones(1), [], converged, message, np.nan, draws)


@contextmanager
def reading() -> Iterator[None]:
    """Read a saved estimator: what is missing or of another kind is one sentence.

    Raises
    ------
    ValueError
        If something is.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"result carries a recipe that cannot be read ({error!r}): it is damaged, or of another version"
        ) from None


def restored(problem: Problem, result: xr.DataTree) -> Fitted:
    """Restore the fitted state from the tree of `Fitted.result`."""
    if "committee" not in result.children:
        return _of_draws(problem, result)
    members, ends = result["committee"].to_dataset(), result["optima"].to_dataset()
    points, posteriors = [], []
    for i in range(members.sizes["member"]):
        point = {name: members[name].values[i] for name in problem.hyperparameters}
        K, mean, _ = problem.at(point)
        points.append(point)
        found = from_sites(K, mean, members["dual_coef"].values[i], members["site_precision"].values[i])
        posteriors.append(found if problem.blocks is None else without_factor(found))
    optima = [
        Optimum(
            {name: ends[name].values[i] for name in problem.hyperparameters},
            float(ends["objective"][i]),
            bool(ends["converged"][i]),
            str(ends["message"].values[i]),
            int(ends["n_evaluations"][i]),
        )
        for i in range(ends.sizes["optimum"])
    ]
    converged, message = bool(result.attrs["converged"]), str(result.attrs["message"])
    evidence = float(result.attrs["log_evidence"])
    record, found = str(result.attrs.get("at_size", "")), json.loads(result.attrs.get("noise_scales", "null"))
    scales, weights = None if found is None else NoiseScales.from_record(found), members["weight"].values
    fitted = Fitted(points, posteriors, weights, optima, converged, message, evidence, record=record)
    return fitted.with_scales(problem, scales)

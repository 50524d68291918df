"""What a fit found, as estimators keep it: posteriors of f with their factors at one or several points, or draws.

A result is a tree with hundreds of draws of f. This state is smaller and predicts at once; `Fitted.tree` makes the
result of it, and `read_fitted` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.approximations.posterior import from_sites, without_factor
from bsvr_pp.inference.approximate import MeanField, solve_at
from bsvr_pp.inference.at_size import AtSize, search_in_blocks
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.component import Component, component, components, members_of
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.layout import row_of
from bsvr_pp.inference.methods import to_record
from bsvr_pp.inference.noise_scales import NoiseScales, densities_of_rows, scales_at, scales_of_posterior
from bsvr_pp.inference.optimize import Optimum, lengthscales, maximize
from bsvr_pp.inference.protocol import Approximation, Capabilities, Method, Options, can
from bsvr_pp.inference.result import from_latent
from bsvr_pp.model.blocks import Blocks, local_blocks
from bsvr_pp.model.problem import Point, Problem

__all__ = ["Committee", "Fitted", "fit_problem", "learned_scales", "read_fitted"]

Array = NDArray[np.float64]

_SAME = 1e-2  # relative distance of hyperparameters below which two optima are considered equal
_SEED = 0  # of the blocks and of rows for scales of the noise, so that the same rows are cut in the same way


@dataclass(frozen=True, slots=True)
class Fitted:
    """Members of a committee (usually one) with their weights, best first; or a tree of draws.

    Attributes
    ----------
    points, posteriors, weights
        Hyperparameters, posterior of f and weight of each member; of draws the posterior mean, no posterior, weight 1.
    optima : list of Optimum
        End points of all starts of the optimiser.
    converged, message, log_evidence
        Of the optimiser and the best member, or of the chains, whose log evidence is NaN.
    record : str
        How the hyperparameters of many rows were found, as JSON.
    scales, densities : NoiseScales or None, array or None
        Scales of the noise, of fits on nearest rows or of a dense fit; then the log densities (n, s) of its rows.
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
        self, problem: Problem, rng: np.random.Generator, neighbours: int | None = None
    ) -> Iterable[Component]:
        """Components of the averaged predictions."""
        if self.draws is not None:
            return components(problem, self.draws, rng, neighbours=neighbours)
        return [
            component(
                problem,
                point,
                posterior.dual_coef,
                posterior.site_precision,
                weight=float(weight),
                predict=posterior.predict if problem.blocks is None else None,
                neighbours=neighbours,
                scales=self.scales,
                densities=self.densities,
            )
            for point, posterior, weight in zip(self.points, self.posteriors, self.weights, strict=True)
        ]

    def diagnosis(self) -> dict[str, Any]:
        """Attributes of the result."""
        return {
            "log_evidence": self.log_evidence,
            "converged": int(self.converged),
            "message": self.message,
            **({} if self.scales is None else {"noise_scales": json.dumps(self.scales.record())}),
            **({"at_size": self.record} if self.record else {}),
        }

    def result(self, problem: Problem, method: Method) -> xr.DataTree:
        """The result as `fit` makes it."""
        named = {"inference": method.name, "method": json.dumps(to_record(method)), "objective": "posterior"}
        return self.tree(problem, named | self.diagnosis(), np.random.default_rng(0))

    def tree(self, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator) -> xr.DataTree:
        """The result of the best member, with a group ``committee`` if there are others; or the draws."""
        if self.draws is not None:
            return self.draws.copy()
        best = self.posteriors[0]
        if problem.blocks is not None:
            best = replace(best, factor=problem.at(self.points[0])[0].factor(best.site_precision))
        tree = from_latent(problem, self.points[0], best, self.optima, attributes, plug_in=False, rng=rng)
        if len(self.points) > 1:
            members: dict[str, Any] = {"weight": ("member", self.weights)}
            for name in ("dual_coef", "site_precision"):
                members[name] = (("member", row_of(tree)), np.stack([getattr(p, name) for p in self.posteriors]))
            for name in self.points[0]:
                values = np.stack([point[name] for point in self.points])
                members[name] = (("member", *(f"{name}_dim_{i}" for i in range(values.ndim - 1))), values)
            tree["committee"] = xr.DataTree(xr.Dataset(members))
        return tree


@dataclass(frozen=True, slots=True)
class Committee:
    """Predictions that average over all optima of the hyperparameters, by evidence (Chu et al. 2004, section V-B).

    Everything but predictions is of the best optimum.

    Parameters
    ----------
    latent : MeanField, Laplace or another approximation
        Method that integrates the latent function out.

    Raises
    ------
    TypeError
        If it does not.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Committee(bp.Laplace()).name
    'committee (Laplace)'
    """

    latent: Approximation = field(default_factory=MeanField)

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __post_init__(self) -> None:
        if not can(self.latent, "integrates"):
            raise TypeError(f"latent must integrate f out, as Laplace() and MeanField() do, got {self.latent!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"committee ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Optimise the hyperparameters that are not given from several starts, and solve at each optimum."""
        return _optimised(problem, self.latent, given, options, rng, committee=True)


def fit_problem(
    problem: Problem,
    method: Method,
    model: Callable[[Blocks | None], pm.Model],
    *,
    rows: int | None = None,
    known: AtSize | None = None,
    restarts: int | None = None,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> tuple[Fitted, AtSize | None]:
    """Fit a compiled model: `fit` without a result, whose problem and hyperparameters are new each time.

    With ``rows`` it is divided into blocks of at most so many rows. With ``known``, which were found before for almost
    the same rows, only the blocks are cut again. NUTS samples what ``model`` makes.
    """
    found = None
    if rows is not None:
        assert method.latent is not None  # as the estimators check
        if known is None:
            options: dict[str, Any] = {"restarts": restarts, "rng": rng, "progressbar": progressbar}
            found = search_in_blocks(problem, method.latent, rows=rows, **options)
        else:
            lengthscale = lengthscales(problem, known.point)
            found = replace(
                known, blocks=local_blocks(problem.inputs, rows, lengthscale=lengthscale, random_seed=_SEED)
            )
        problem = problem.take(np.arange(problem.targets.size), found.blocks)
    if method.capabilities.draws:
        draws = fit(method, model(problem.blocks), random_seed=rng, progressbar=False)
        return _of_draws(problem, draws), found
    if found is not None:
        assert method.latent is not None
        posterior = without_factor(solve_at(problem, method.latent, found.point, progressbar))
        state = _of_members([found.point], [posterior], np.ones(1), found.optima)
        message = state.message if posterior.converged else "the solve of a block"
        return replace(state, converged=posterior.converged, message=message, record=found.record()), found
    check_budget(method, problem.targets.size, divisible=problem.ends.kind == "exact")
    assert method.latent is not None
    return _optimised(problem, method.latent, {}, Options(restarts), rng, committee=isinstance(method, Committee)), None


def learned_scales(
    problem: Problem, fitted: Fitted, method: Method, neighbours: int | None, progressbar: bool = False
) -> NoiseScales | None:
    """Scales of the noise: with blocks of fits on nearest rows, of dense mean field otherwise; None for other fits."""
    if len(fitted.posteriors) != 1:  # draws or a committee
        return None
    if problem.blocks is None:
        dense = isinstance(method, MeanField)
        return scales_of_posterior(problem, fitted.points[0], fitted.posteriors[0]) if dense else None
    if neighbours is None:  # the own block has one noise
        return None
    progress = "scales of the noise" if progressbar else ""
    return scales_at(problem, fitted.points[0], neighbours, np.random.default_rng(_SEED), progress=progress)


def read_fitted(problem: Problem, result: xr.DataTree) -> Fitted:
    """Restore the state from the tree of `Fitted.tree`, or of `fit`."""
    if "dual_coef" not in result["latent_posterior"].to_dataset():
        return _of_draws(problem, result)
    points, posteriors, weights = [], [], []
    for point, dual_coef, site_precision, weight in members_of(problem, result):
        K, mean, _ = problem.at(point)
        found = from_sites(K, mean, dual_coef, site_precision)
        points.append(point)
        posteriors.append(found if problem.blocks is None else without_factor(found))
        weights.append(weight)
    ends = result["optima"].to_dataset()
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
    scales = json.loads(result.attrs.get("noise_scales", "null"))
    fitted = Fitted(
        points,
        posteriors,
        np.array(weights),
        optima,
        bool(result.attrs["converged"]),
        str(result.attrs["message"]),
        float(result.attrs["log_evidence"]),
        record=str(result.attrs.get("at_size", "")),
    )
    return fitted.with_scales(problem, None if scales is None else NoiseScales.from_record(scales))


def _optimised(
    problem: Problem,
    method: Approximation,
    given: Point,
    options: Options,
    rng: np.random.Generator,
    *,
    committee: bool,
) -> Fitted:
    """Fit the best optimum, or all optima weighted by evidence times prior."""
    if set(given) == set(problem.hyperparameters):
        return _of_members([given], [solve_at(problem, method, given)], np.ones(1), [])
    optima = maximize(problem, method, given, options, rng, all_optima=committee)
    kept = _distinct(optima) if committee else optima[:1]
    logs = np.array([optimum.objective for optimum in kept])
    weights = np.exp(logs - logs.max())
    points = [{name: optimum.point[name] for name in problem.hyperparameters} for optimum in kept]
    posteriors = [solve_at(problem, method, point) for point in points]
    return _of_members(points, posteriors, weights / weights.sum(), optima)


def _of_members(
    points: list[Point], posteriors: list[LatentPosterior], weights: Array, optima: list[Optimum]
) -> Fitted:
    converged = (not optima or optima[0].converged) and all(posterior.converged for posterior in posteriors)
    message = optima[0].message if optima else "hyperparameters were given"
    return Fitted(points, posteriors, weights, optima, bool(converged), message, float(posteriors[0].log_evidence))


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


def _of_draws(problem: Problem, draws: xr.DataTree) -> Fitted:
    posterior = draws["posterior"].to_dataset()
    point = {name: posterior[name].values.mean(axis=(0, 1)) for name in problem.hyperparameters}
    converged, message = bool(draws.attrs["converged"]), str(draws.attrs["message"])
    return Fitted([point], [], np.ones(1), [], converged, message, np.nan, draws)

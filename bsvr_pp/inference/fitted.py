"""The record of a fit: posteriors of f at one or several points of the hyperparameters, or draws.

Estimators predict directly from a `Fitted`; its ``tree`` is the result, and `read_fitted` restores it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.approximations.posterior import from_sites, without_factor
from bsvr_pp.core.arrays import Array, Rows, check_count
from bsvr_pp.core.covariance.covariance import BlockFactor
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.inference.parts import names_of_latents
from bsvr_pp.inference.prediction.component import Component, Member, component, component_of_draw, fits_on_nearest
from bsvr_pp.inference.prediction.neighbours import NoiseScales, solved_rows
from bsvr_pp.inference.protocol import IntegratesLatent, Method, attributes_of
from bsvr_pp.inference.recover import recover
from bsvr_pp.inference.result import (
    check_match,
    draws_of,
    from_latent,
    from_samples,
    is_mode,
    is_sampled,
    keep_optima,
    layout_of,
    optima_of,
    points_of,
    row_of,
    stacked_points,
    with_derived,
)
from bsvr_pp.inference.search.optimize import Optimum
from bsvr_pp.model.problem import Point, Problem

_DRAWS = 200  # largest number of draws of the hyperparameters in predictions
_MATCHED = 1e-4  # moment mismatch, in posterior standard deviations, of no consequence for a result
_ATTRIBUTES = "at_size", "log_evidence_error", "k_hat", "effective_points"  # others of a result


class Cloud(NamedTuple):
    """Weighted points of the posterior of the hyperparameters; ``latent`` integrates f out."""

    points: list[Point]
    weights: Array
    latent: IntegratesLatent


@dataclass(frozen=True, slots=True)
class Fitted:
    """Points of the hyperparameters, the optimum first, with their weights in predictions; or a tree of ``draws``."""

    points: list[Point]
    posteriors: list[LatentPosterior]
    weights: Array
    optima: list[Optimum]
    converged: bool
    message: str
    log_evidence: float
    more: Mapping[str, Any] = field(default_factory=dict)  # other attributes of the result
    plug_in: bool = False  # f is only its mode
    cloud: Cloud | None = None  # points from which the result has draws
    draws: xr.DataTree | None = None  # the result, if it was read; without points its mean is the point
    scales: NoiseScales = field(default_factory=NoiseScales.one)

    @property
    def sampled(self) -> bool:
        """Whether f has draws instead of posteriors."""
        return self.draws is not None and not self.posteriors

    @property
    def at_optimum(self) -> float:
        """Log evidence at the optimum of the hyperparameters."""
        return self.posteriors[0].log_evidence if len(self.posteriors) > 1 else self.log_evidence

    def with_scales(self, problem: Problem, scales: NoiseScales) -> Fitted:
        """Return the same with scales of the noise."""
        if scales.several:
            many, point = problem.blocks.several, self.points[0]
            scales = scales.of_rows(problem, point, solved_rows(problem, point) if many else self.posteriors[0])
        return replace(self, scales=scales)

    def with_posterior(self, posterior: LatentPosterior) -> Fitted:
        """Return the same with the posterior of f at the point."""
        message = self.message if posterior.converged else "the solve of a block"
        converged, value = self.converged and posterior.converged, posterior.log_evidence
        return replace(self, posteriors=[posterior], converged=converged, message=message, log_evidence=value)

    def updated(self, posteriors: list[LatentPosterior], latent: IntegratesLatent) -> Fitted:
        """Return the same points with posteriors of more rows; the evidence of the new rows changes the weights."""
        after, before = ([each.log_evidence for each in some] for some in (posteriors, self.posteriors))
        with np.errstate(divide="ignore"):
            found = np.log(self.weights) + np.subtract(after, before)
        rise = float(logsumexp(found))
        weights = np.exp(found - rise)
        cloud = None if len(weights) == 1 else Cloud(self.points[1:], weights[1:], latent)
        return replace(
            self,
            posteriors=posteriors,
            weights=weights,
            converged=self.converged and all(each.converged for each in posteriors),
            log_evidence=self.log_evidence + rise,
            cloud=cloud,
            draws=None,
        )

    def components(self, problem: Problem, neighbours: int | None = None) -> Iterable[Component]:
        """Return components of the averaged predictions; without posteriors they are fits on nearest rows."""
        if self.sampled:
            return components(problem, cast(xr.DataTree, self.draws), neighbours=neighbours)
        if not self.posteriors:
            assert neighbours is not None
            return [fits_on_nearest(problem, self.points[0], neighbours, self.scales)]
        each = zip(self.points, self.posteriors, self.weights, strict=True)
        known = [(Member(at, p.dual_coef, p.site_precision, float(weight)), p.predict) for at, p, weight in each]
        make = partial(component, problem, neighbours=neighbours, scales=self.scales)
        return [make(member, predict=predict) for member, predict in known if member.weight != 0.0]

    def diagnosis(self) -> dict[str, object]:
        """Return the attributes of the result."""
        return {
            "log_evidence": self.log_evidence,
            "converged": int(self.converged),
            "message": self.message,
            **self.more,
            **({"noise_scales": json.dumps(self.scales.record())} if self.scales.several else {}),
        }

    def result(self, problem: Problem, method: Method) -> xr.DataTree:
        """Return the result as `fit` makes it."""
        return self.tree(problem, attributes_of(method) | self.diagnosis(), np.random.default_rng(0))

    def tree(
        self, problem: Problem, attributes: dict[str, object], rng: np.random.Generator, draws: int | None = None
    ) -> xr.DataTree:
        """Make the result at a point; or draws of a cloud, with a group ``members`` of the points that predict."""
        if self.draws is not None:
            return self.draws.copy()
        if self.cloud is not None:
            return self._drawn(problem, self.cloud, attributes, rng, draws)
        best = self.posteriors[0]
        if best.factor is None:  # of blocks
            best = replace(best, factor=problem.at(self.points[0])[0].factor(best.site_precision))
        options: dict[str, Any] = {"plug_in": self.plug_in, "rng": rng, "draws": draws}
        return from_latent(problem, self.points[0], best, self.optima, attributes, **options)

    def _drawn(
        self, problem: Problem, cloud: Cloud, attributes: dict[str, object], rng: np.random.Generator, size: int | None
    ) -> xr.DataTree:
        """Return draws of the points of a cloud, equal ones together, and of f by its posterior at each."""
        order, many = rng.permutation(len(cloud.points)), size or draws_of(problem)
        index = order[systematic(cloud.weights[order], many)]
        points = [with_derived(problem, point) for point in cloud.points]
        drawn = {name: np.stack([points[i][name] for i in index])[None] for name in points[0]}
        tree = xr.DataTree.from_dict({"posterior": layout_of(problem).dataset(drawn, ("chain", "draw"))})
        tree = from_samples(problem, recover(problem, tree, cloud.latent, rng, False), {}, attributes, rng)
        members: dict[str, object] = {"weight": ("member", self.weights)}
        members["log_evidence"] = ("member", np.array([each.log_evidence for each in self.posteriors]))
        for name in ("dual_coef", "site_precision"):
            members[name] = (("member", row_of(tree)), np.stack([getattr(p, name) for p in self.posteriors]))
        tree["members"] = xr.DataTree(xr.Dataset(members | stacked_points("member", self.points)))
        keep_optima(tree, self.optima)
        return tree


def systematic(weights: Array, count: int) -> Rows:
    """Return numbers of points, drawn by weights at equal distances of their cumulative sum."""
    share = np.cumsum(weights)
    return np.searchsorted(share, (np.arange(count) + 0.5) / count * share[-1]).clip(0, len(weights) - 1)


def fitted_at(point: Point, posterior: LatentPosterior, optima: list[Optimum], **more: object) -> Fitted:
    """Make the record of a point; it has converged if the best optimum and the posterior have converged."""
    matched = has_matched(posterior)
    converged = (not optima or optima[0].converged) and matched
    message = optima[0].message if optima else "hyperparameters were given"
    if not matched and posterior.mismatch > 0.0:
        message += f"; the moments of f differ by {posterior.mismatch:.2g} posterior standard deviations"
    return Fitted([point], [posterior], np.ones(1), optima, bool(converged), message, posterior.log_evidence, more)


def has_matched(posterior: LatentPosterior) -> bool:
    """Return whether a posterior has converged, or as far as rounding errors let it where there is hardly any noise."""
    return posterior.converged or 0.0 < posterior.mismatch <= _MATCHED


def light(posterior: LatentPosterior) -> LatentPosterior:
    """Return the posterior without factors of blocks, which are computed at each use, and cannot be pickled."""
    return without_factor(posterior) if isinstance(posterior.factor, BlockFactor) else posterior


def fitted_draws(problem: Problem, draws: xr.DataTree) -> Fitted:
    """Make the record of a result with draws."""
    posterior = draws["posterior"].to_dataset()
    point = {name: posterior[name].values.mean(axis=(0, 1)) for name in problem.hyperparameters}
    converged, message = bool(draws.attrs["converged"]), str(draws.attrs["message"])
    return Fitted([point], [], np.ones(1), [], converged, message, np.nan, draws=draws)


def read_fitted(problem: Problem, result: xr.DataTree) -> Fitted:
    """Restore the record from the tree of `Fitted.tree`, or of `fit`."""
    check_match(problem, result)
    if is_sampled(result) and "members" not in result.children:
        return fitted_draws(problem, result)
    attributes, members = result.attrs, _members(problem, result)
    evidences, draws = [float(attributes["log_evidence"])], None
    if "members" in result.children:
        evidences, draws = result["members"].to_dataset()["log_evidence"].values.tolist(), result
    found = [light(from_sites(*problem.at(each.point)[:2], each.dual_coef, each.site_precision)) for each in members]
    posteriors = [replace(each, log_evidence=value) for each, value in zip(found, evidences, strict=True)]
    points, weights = [each.point for each in members], np.array([each.weight for each in members])
    end = bool(attributes["converged"]), str(attributes["message"]), float(attributes["log_evidence"])
    more: dict[str, Any] = {name: attributes[name] for name in _ATTRIBUTES if name in attributes}
    fitted = Fitted(points, posteriors, weights, optima_of(problem, result), *end, more, draws=draws)
    scales = attributes.get("noise_scales")
    return fitted.with_scales(problem, NoiseScales.from_record(json.loads(scales))) if scales else fitted


def components(
    problem: Problem, result: xr.DataTree, part: str | None = None, neighbours: int | None = None
) -> Iterator[Component]:
    """Yield the components of a result, or of a part of f: one, its members, or at most 200 of its draws."""
    check_match(problem, result)
    if neighbours is not None:
        check_count("neighbours", neighbours, 1)
        if part is not None:
            raise ValueError(f"neighbours={neighbours} takes the whole f, and component is a part: give one of the two")
        if is_sampled(result) or is_mode(result):
            raise ValueError(
                f"neighbours={neighbours} takes the result of an approximation that integrates f out at one point of "
                "the hyperparameters, not draws or MAP"
            )
    posterior = result["posterior"].to_dataset()
    if not is_sampled(result) or "members" in result.children:
        members = [each for each in _members(problem, result) if each.weight > 0.0]
        alone = neighbours is None and len(members) == 1 and not problem.blocks.several
        predict = latent_posterior(problem, result)[0].predict if alone else None
        options: dict[str, Any] = {"part": part, "neighbours": neighbours, "predict": predict}
        yield from (component(problem, each, plug_in=is_mode(result), **options) for each in members)
        return
    points = points_of(posterior, problem.hyperparameters)
    some = np.unique(np.linspace(0, len(points) - 1, min(len(points), _DRAWS)).astype(int))
    if "latent_draws" in result.children:
        drawn = points_of(result["latent_draws"].to_dataset(), ("dual_coef", "site_precision"))
        yield from (component(problem, Member(points[s], **drawn[s]), part=part) for s in some)
    else:
        names = [*names_of_latents(problem), str(problem.prior.whitened)]
        drawn = points_of(posterior, [name for name in names if name in posterior])
        yield from (component_of_draw(problem, points[s], drawn[s], part) for s in some)


def _members(problem: Problem, result: xr.DataTree) -> list[Member]:
    """Return the posterior of a result, or of each point of the hyperparameters in its predictions."""
    if "members" not in result.children:
        latent, posterior = (result[group].to_dataset() for group in ("latent_posterior", "posterior"))
        (point,) = points_of(posterior.isel(chain=[0], draw=[0]), problem.hyperparameters)
        return [Member(point, latent["dual_coef"].values, latent["site_precision"].values)]
    data, names = result["members"].to_dataset(), ("dual_coef", "site_precision", "weight")
    points, others = (points_of(data, some, ["member"]) for some in (problem.hyperparameters, names))
    each = zip(points, others, strict=True)
    return [Member(point, own["dual_coef"], own["site_precision"], float(own["weight"])) for point, own in each]


def latent_posterior(problem: Problem, result: xr.DataTree) -> tuple[LatentPosterior, NoiseModel]:
    """Return the Gaussian posterior of f and the noise of a checked result at one point of the hyperparameters."""
    (member,) = (each for each in _members(problem, result) if each.weight > 0.0)
    K, mean, noise = problem.at(member.point)
    return from_sites(K, mean, member.dual_coef, member.site_precision), noise

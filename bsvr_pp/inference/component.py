"""Components of predictions: f at new inputs, and the noise, at one point of the hyperparameters or one draw.

A result at one point has one component, a committee one for each member, and a result with draws one for each of at
most 500 draws. With blocks f at a new input is that of the block whose region holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.inference.neighbours import moments_from_neighbours
from bsvr_pp.inference.noise_scales import NoiseScales, densities_near
from bsvr_pp.inference.parts import given_parts, part_cross
from bsvr_pp.inference.posteriors import posterior_of
from bsvr_pp.inference.result import check_match, points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, Problem

__all__ = ["CHUNK", "Component", "component", "components", "latent_posterior", "members_of"]

Array = NDArray[np.float64]
Moments = Callable[[Array], tuple[Array, ...]]
# From the prior covariance of new inputs with rows, the prior variance and the prior mean to mean and variance of f.
Gaussian = Callable[[Array, Array, Array], tuple[Array, Array]]

CHUNK = 2000  # number of new inputs that are processed together
_DRAWS = 500  # largest number of draws of the hyperparameters in predictions


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the hyperparameters with its weight, the noise, and mean and variance of f at any inputs.

    With ``scales`` of the noise ``moments`` also gives the log densities of the nearest rows by scale, unless
    ``densities`` (n, s) has those of all rows. ``site_precision`` is None if f is a draw.
    """

    point: Point
    noise: NoiseModel
    moments: Moments
    weight: float = 1.0
    site_precision: Array | None = None
    cutpoints: Array | None = None
    scales: NoiseScales | None = None
    densities: Array | None = None

    def moments_and_scales(self, problem: Problem, X: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of f at new inputs, and the probabilities (s, n_new) of the scales of the noise there."""
        mean, variance, *near = self.moments(X)
        if self.scales is None:
            return mean, variance, np.ones((1, len(X)))
        return mean, variance, self._scales_at(problem, X, *near)

    def draw_noise(self, problem: Problem, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n_new) of the noise at new inputs; with blocks it has one scale."""
        noise = self.noise.sample((size, len(X)), rng)
        if self.scales is None or self.densities is None:
            return noise
        share = self._scales_at(problem, X).cumsum(axis=0)
        chosen = (rng.random((size, len(X), 1)) > share.T).sum(axis=2)
        return np.asarray(noise * self.scales.factors[np.minimum(chosen, share.shape[0] - 1)])

    def draw_latent(self, problem: Problem, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n_new) of f at new inputs jointly, where f has sites; with blocks by the own block of each."""
        assert self.site_precision is not None
        out = np.empty((size, len(X)))
        for block, new in _by_block(problem, X):
            part, rows = _rows_of(problem, block)
            joint = part.joint(self.point, X[new]).factor(np.append(self.site_precision[rows], np.zeros(new.size)))
            out[:, new] = joint.draw(size, rng)[:, part.targets.size :]
        return np.asarray(self.moments(X)[0] + out)

    def _scales_at(self, problem: Problem, X: Array, near: Array | None = None) -> Array:
        assert self.scales is not None
        given = near if self.densities is None else densities_near(problem, self.point, X, self.densities)
        assert given is not None
        return self.scales.at(given)


def component(
    problem: Problem,
    point: Point,
    dual_coef: Array,
    site_precision: Array,
    *,
    weight: float = 1.0,
    plug_in: bool = False,
    predict: Gaussian | None = None,
    part: str | None = None,
    neighbours: int | None = None,
    scales: NoiseScales | None = None,
    densities: Array | None = None,
) -> Component:
    """Make the component of two vectors, or of a ``part`` of f; ``predict`` is its function where it is known.

    The noise has ``scales`` where there are neighbours, or ``densities`` of all rows.
    """

    def gaussian(block: int) -> Gaussian:
        if predict is not None:
            return predict
        rows_of_block, rows = _rows_of(problem, block)
        K, mean, _ = rows_of_block.at(point)
        return from_sites(K, mean, dual_coef[rows], site_precision[rows]).predict

    def own_fits(X: Array) -> tuple[Array, ...]:
        assert neighbours is not None
        return moments_from_neighbours(problem, point, X, neighbours, None if scales is None else scales.factors)

    def mode(X: Array) -> tuple[Array, ...]:
        mean, variance = given(X)
        return mean, np.zeros_like(variance)

    given: Moments = partial(_own_block, problem, point, gaussian, part)
    options = weight, site_precision, problem.cutpoints_at(point)
    if neighbours is None:
        used = None if densities is None else scales
        return Component(point, problem.noise_at(point), mode if plug_in else given, *options, used, densities)
    if problem.ends.kind != "exact":
        raise ValueError(f"neighbours={neighbours} takes exact targets, and the model has intervals or classes")
    return Component(point, problem.noise_at(point), partial(_in_chunks, own_fits), *options, scales)


def latent_posterior(problem: Problem, result: xr.DataTree) -> tuple[LatentPosterior, NoiseModel]:
    """Gaussian posterior of f, and the noise, of a result at one point of the hyperparameters, of this model."""
    check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    K, mean, noise = problem.at({name: posterior[name].values[0, 0] for name in problem.hyperparameters})
    return posterior_of(problem, K, mean, latent["dual_coef"].values, latent["site_precision"].values), noise


def members_of(problem: Problem, result: xr.DataTree) -> list[tuple[Point, Array, Array, float]]:
    """Hyperparameters, dual coefficients, sites and weight of the posterior of a result, or of those of a committee."""
    if "committee" not in result.children:
        posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
        (point,) = points_of(posterior.isel(chain=[0], draw=[0]), problem.hyperparameters)
        return [(point, latent["dual_coef"].values, latent["site_precision"].values, 1.0)]
    members = result["committee"].to_dataset()
    return [
        (
            {name: members[name].values[i] for name in problem.hyperparameters},
            members["dual_coef"].values[i],
            members["site_precision"].values[i],
            float(members["weight"][i]),
        )
        for i in range(members.sizes["member"])
    ]


def components(
    problem: Problem,
    result: xr.DataTree,
    rng: np.random.Generator,
    part: str | None = None,
    neighbours: int | None = None,
    scales: NoiseScales | None = None,
) -> Iterator[Component]:
    """Yield the components of a result, or of a part of f: one, those of a committee, or at most 500 of its draws.

    Raises ValueError if result and model do not belong together, or ``neighbours`` is given for draws or a mode.
    """
    check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    one_gaussian = "dual_coef" in latent and latent["variance"].values.any()
    if neighbours is not None and not one_gaussian:
        raise ValueError(
            f"neighbours={neighbours} takes the result of an approximation that integrates f out at one point of the "
            "hyperparameters, not draws or MAP"
        )
    if "dual_coef" in latent:
        members = members_of(problem, result)
        alone = len(members) == 1 and problem.blocks is None
        known = latent_posterior(problem, result)[0].predict if alone else None
        options: dict[str, Any] = {"part": part, "neighbours": neighbours, "scales": scales, "predict": known}
        for point, dual_coef, precision, weight in members:
            found = component(problem, point, dual_coef, precision, weight=weight, plug_in=not one_gaussian, **options)
            yield found
        return
    f = posterior[problem.prior.name].values
    total = f.shape[0] * f.shape[1]
    integrated = result["latent_draws"].to_dataset() if "latent_draws" in result.children else None
    points = points_of(posterior, problem.hyperparameters)
    for s in np.unique(np.linspace(0, total - 1, min(total, _DRAWS)).astype(int)):
        (chain, draw), point = divmod(int(s), f.shape[1]), points[s]
        if integrated is not None:
            vectors = tuple(integrated[name].values[chain, draw] for name in ("dual_coef", "site_precision"))
            yield component(problem, point, *vectors, part=part)
            continue
        if problem.composite is not None:
            here = posterior.isel(chain=chain, draw=draw)
            moments: Moments = partial(_in_chunks, given_parts(problem, point, here, part))
        else:
            whitened = problem.prior.whitened
            has_white = whitened is not None and whitened in posterior.data_vars
            white = posterior[whitened].values[chain, draw] if has_white else None
            gaussian = partial(_given_draw, problem, point, f[chain, draw], white)
            moments = partial(_own_block, problem, point, gaussian, None)
        yield Component(point, problem.noise_at(point), moments, cutpoints=problem.cutpoints_at(point))


def _given_draw(problem: Problem, point: Point, f: Array, white: Array | None, block: int) -> Gaussian:
    """Mean and variance of f given a draw of f (n,) at the rows of a block, or of its whitened form."""
    part, rows = _rows_of(problem, block)
    K, mean, _ = part.at(point)
    v = K.whiten(f[rows] - mean) if white is None else white[rows]

    def at_draw(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
        half = K.whiten(K_star.T)
        return half.T @ v + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

    return at_draw


def _own_block(
    problem: Problem, point: Point, gaussian: Callable[[int], Gaussian], part: str | None, X: Array
) -> tuple[Array, ...]:
    """Mean and variance of f at new inputs from the rows of the block of each; ``gaussian`` is called once a block."""
    groups = _by_block(problem, X)

    def of_block(i: int) -> tuple[Array, ...]:
        block, new = groups[i]
        rows, predict = _rows_of(problem, block)[0], gaussian(block)

        def moments(some: Array) -> tuple[Array, Array]:
            return predict(*(rows.cross(point, some) if part is None else part_cross(rows, part, point, some)))

        return _in_chunks(moments, X[new])

    if problem.blocks is None:
        return of_block(0)
    out = np.empty((2, len(X)))
    for (_, new), found in zip(groups, each_block(of_block, len(groups)), strict=True):
        out[:, new] = found
    return out[0], out[1]


def _by_block(problem: Problem, X: Array) -> list[tuple[int, NDArray[np.intp]]]:
    """Blocks that hold new inputs, with the numbers of these inputs; block 0 holds all if there are none."""
    if problem.blocks is None:
        return [(0, np.arange(len(X)))]
    own = problem.blocks.assign(X)
    return [(int(block), np.flatnonzero(own == block)) for block in np.unique(own)]


def _rows_of(problem: Problem, block: int) -> tuple[Problem, NDArray[np.int64] | slice]:
    """The problem of a block, and its rows; without blocks the problem itself and all rows."""
    if problem.blocks is None:
        return problem, slice(None)
    return problem.part(block), problem.blocks.rows(block)


def _in_chunks(moments: Callable[[Array], tuple[Array, ...]], X: Array) -> tuple[Array, ...]:
    found = [moments(X[at : at + CHUNK]) for at in range(0, len(X), CHUNK)]
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))

"""Components of predictions: f at new inputs, and the noise, at one point of the hyperparameters or one draw.

A result at one point has one component, a committee one for each member, and a result with draws one for each of at
most 500 draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.inference.experts import CHUNK, Gaussian, moments_of_f, part_of
from bsvr_pp.inference.neighbours import moments_from_neighbours
from bsvr_pp.inference.noise_scales import NoiseScales, densities_near
from bsvr_pp.inference.parts import given_parts, part_cross
from bsvr_pp.inference.posteriors import posterior_of
from bsvr_pp.inference.result import check_match, points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, Problem

__all__ = ["Component", "component", "components", "latent_posterior"]

Array = NDArray[np.float64]

_DRAWS = 500  # largest number of draws of the hyperparameters in predictions


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the hyperparameters with its weight, the noise, and mean and variance of f at any inputs.

    ``gaussian`` maps the number of a block (0 if there are none) to the function from the prior covariance with its
    rows, the prior variance and the prior mean at new inputs to mean and variance of f there; ``nearest`` blocks are
    combined. ``moments``, if given, maps rows to them instead, with ``scales`` also to the log densities of the nearest
    rows by scale; otherwise ``densities`` (n, s) has those of all rows. ``site_precision`` is None if f is a draw.
    """

    point: Point
    noise: NoiseModel
    gaussian: Callable[[int], Gaussian] | None
    weight: float = 1.0
    site_precision: Array | None = None
    nearest: int = 1
    moments: Callable[[Array], tuple[Array, ...]] | None = None
    cutpoints: Array | None = None
    scales: NoiseScales | None = None
    densities: Array | None = None

    def latent(self, problem: Problem, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at new inputs."""
        mean, variance, _ = self.spread(problem, X)
        return mean, variance

    def spread(self, problem: Problem, X: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of f at new inputs, and the probabilities (s, n_new) of the scales of the noise there."""
        if self.moments is None:
            assert self.gaussian is not None
            found: tuple[Array, ...] = moments_of_f(problem, self.point, X, self.gaussian, self.nearest)
        else:
            chunks = [self.moments(X[at : at + CHUNK]) for at in range(0, len(X), CHUNK)]
            found = tuple(np.concatenate(each) for each in zip(*chunks, strict=True))
        if self.scales is None:
            return found[0], found[1], np.ones((1, len(X)))
        given = found[2] if self.densities is None else densities_near(problem, self.point, X, self.densities)
        return found[0], found[1], self.scales.at(given)

    def draw_noise(self, problem: Problem, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n_new) of the noise at new inputs; with blocks it has one scale."""
        noise = self.noise.sample((size, len(X)), rng)
        if self.scales is None or self.densities is None:
            return noise
        share = self.scales.at(densities_near(problem, self.point, X, self.densities)).cumsum(axis=0)
        chosen = (rng.random((size, len(X), 1)) > share.T).sum(axis=2)
        return np.asarray(noise * self.scales.factors[np.minimum(chosen, share.shape[0] - 1)])

    def draw_latent(self, problem: Problem, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n_new) of f at new inputs jointly, where f has sites; with blocks by the own block of each."""
        assert self.site_precision is not None and self.gaussian is not None
        own = moments_of_f(problem, self.point, X, self.gaussian, 1)[0]
        block_of = np.zeros(len(X), dtype=int) if problem.blocks is None else problem.blocks.nearest(X)[:, 0]
        out = np.empty((size, len(X)))
        for block in np.unique(block_of):
            part, rows = part_of(problem, block)
            new = np.flatnonzero(block_of == block)
            joint = part.joint(self.point, X[new]).factor(np.append(self.site_precision[rows], np.zeros(new.size)))
            out[:, new] = joint.draw(size, rng)[:, part.targets.size :]
        return np.asarray(own + out)


def component(
    problem: Problem,
    point: Point,
    dual_coef: Array,
    site_precision: Array,
    *,
    nearest: int = 1,
    neighbours: int | None = None,
    weight: float = 1.0,
    plug_in: bool = False,
    predict: Gaussian | None = None,
    scales: NoiseScales | None = None,
    densities: Array | None = None,
) -> Component:
    """Make the component of two vectors; a block is factored when it is needed, or ``predict`` is its function.

    The noise has ``scales`` where there are neighbours, or ``densities`` of all rows.
    """

    def gaussian(block: int) -> Gaussian:
        found = predict
        if found is None:
            part, rows = part_of(problem, block)
            K, mean, _ = part.at(point)
            found = from_sites(K, mean, dual_coef[rows], site_precision[rows]).predict
        return _without_variance(found) if plug_in else found

    def own(X: Array) -> tuple[Array, ...]:
        assert neighbours is not None
        return moments_from_neighbours(problem, point, X, neighbours, None if scales is None else scales.factors)

    if neighbours is not None and problem.ends.kind != "exact":
        raise ValueError(f"neighbours={neighbours} takes exact targets, and the model has intervals or classes")
    noise, used, cuts = problem.noise_at(point), 1 if plug_in else nearest, problem.cutpoints_at(point)
    given = point, noise, gaussian, weight, site_precision, used
    if neighbours is not None:
        return Component(*given, own, cuts, scales)
    return Component(*given, None, cuts, None if densities is None else scales, densities)


def _without_variance(predict: Gaussian) -> Gaussian:
    def plugged(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
        mean, variance = predict(K_star, diagonal, offset)
        return mean, np.zeros_like(variance)

    return plugged


def latent_posterior(problem: Problem, result: xr.DataTree) -> tuple[LatentPosterior, NoiseModel]:
    """Gaussian posterior of f, and the noise, of a result at one point of the hyperparameters.

    Raises
    ------
    ValueError
        If result and model do not belong together.
    """
    check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    K, mean, noise = problem.at({name: posterior[name].values[0, 0] for name in problem.hyperparameters})
    return posterior_of(problem, K, mean, latent["dual_coef"].values, latent["site_precision"].values), noise


def components(
    problem: Problem,
    result: xr.DataTree,
    rng: np.random.Generator,
    nearest: int = 1,
    part: str | None = None,
    neighbours: int | None = None,
    scales: NoiseScales | None = None,
) -> Iterator[Component]:
    """Yield the components of a result, or of a part of f: one, or at most 500 of its draws.

    Raises
    ------
    ValueError
        If result and model do not belong together, or ``neighbours`` is given for draws or a mode.
    """
    check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    if "dual_coef" in latent:
        (point,) = points_of(posterior.isel(chain=[0], draw=[0]), problem.hyperparameters)
        vectors = latent["dual_coef"].values, latent["site_precision"].values
        plug_in = not latent["variance"].values.any()
        _check_neighbours(neighbours, not plug_in)
        known = latent_posterior(problem, result)[0].predict if problem.blocks is None else None
        options: dict[str, Any] = {"neighbours": neighbours, "plug_in": plug_in, "predict": known, "scales": scales}
        yield _of_part(problem, component(problem, point, *vectors, nearest=nearest, **options), part)
        return
    _check_neighbours(neighbours, False)
    f = posterior[problem.prior.name].values
    total = f.shape[0] * f.shape[1]
    integrated = result["latent_draws"].to_dataset() if "latent_draws" in result.children else None
    points = points_of(posterior, problem.hyperparameters)
    for s in np.unique(np.linspace(0, total - 1, min(total, _DRAWS)).astype(int)):
        (chain, draw), point = divmod(int(s), f.shape[1]), points[s]
        if integrated is not None:
            vectors = tuple(integrated[name].values[chain, draw] for name in ("dual_coef", "site_precision"))
            yield _of_part(problem, component(problem, point, *vectors, nearest=nearest), part)
            continue
        cuts = problem.cutpoints_at(point)
        if problem.composite is not None:
            here = posterior.isel(chain=chain, draw=draw)
            drawn = given_parts(problem, point, here, part)
            yield Component(point, problem.noise_at(point), None, moments=drawn, cutpoints=cuts)
            continue
        whitened = problem.prior.whitened
        has_white = whitened is not None and whitened in posterior.data_vars
        white = posterior[whitened].values[chain, draw] if has_white else None
        gaussian = _given_draw(problem, point, f[chain, draw], white)
        yield Component(point, problem.noise_at(point), gaussian, nearest=nearest, cutpoints=cuts)


def _check_neighbours(neighbours: int | None, one_gaussian: bool) -> None:
    if neighbours is not None and not one_gaussian:
        raise ValueError(
            f"neighbours={neighbours} takes the result of an approximation that integrates f out at one point of the "
            "hyperparameters, not draws or MAP"
        )


def _given_draw(problem: Problem, point: Point, f: Array, white: Array | None) -> Callable[[int], Gaussian]:
    """The function `Component.gaussian` of one draw of f (n,), or of its whitened form."""

    def gaussian(block: int) -> Gaussian:
        part, rows = part_of(problem, block)
        K, mean, _ = part.at(point)
        v = K.whiten(f[rows] - mean) if white is None else white[rows]

        def at_draw(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
            half = K.whiten(K_star.T)
            return half.T @ v + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

        return at_draw

    return gaussian


def _of_part(problem: Problem, whole: Component, part: str | None) -> Component:
    """The component of a part of f: the same dual coefficients and sites, with the covariances of the part."""
    gaussian = whole.gaussian
    if part is None or gaussian is None:
        return whole
    known = gaussian(0)  # one factor for all rows
    return replace(whole, moments=lambda X: known(*part_cross(problem, part, whole.point, X)))

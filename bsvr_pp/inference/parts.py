"""The parts of a latent function in results: their draws and predictions.

The location f of the noise is B·g + A·z + c with processes g and standard normal z (`bsvr_pp.model.affine`). Given the
dual coefficients α of f the posterior means are K·Bᵀ·α for g, minus its prior mean, and Aᵀ·α for z. The variance of a
part has the formula of f, with its own cross covariance. Draws follow Matheron's rule: a prior draw is corrected with
the dual coefficients of the difference between the sites and the draw of f.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from bsvr_pp.core.approximations import Covariance, LatentPosterior
from bsvr_pp.core.arrays import Array, Rows, Tensor
from bsvr_pp.core.covariance.covariance import CrossRoot, Factor
from bsvr_pp.model.affine import Affine
from bsvr_pp.model.problem import Point, Problem

# Maps prior covariance of new and training rows, prior variance and prior mean to mean and variance of f.
Gaussian = Callable[[Array | CrossRoot, Array, Array], tuple[Array, Array]]

_SAME = 1e-8  # relative and absolute tolerance of the test for affine functions


def names_of_latents(problem: Problem) -> list[str]:
    """Return the names of f, or of its processes and Gaussian variables."""
    if problem.composite is None:
        return [problem.prior.name]
    return [*problem.composite.processes, *problem.composite.variables]


class _AtTraining(NamedTuple):
    """A process at its own rows: covariance with its jitter, and B (n, m), or weights (n,) of the rows of f."""

    K: Covariance
    weights: Array
    rows: Rows | slice

    def in_f(self, values: Array) -> Array:
        """Return the contribution to f (size, n) of values (size, m) of the process."""
        return values[:, self.rows] * self.weights if self.weights.ndim == 1 else values @ self.weights.T

    def from_dual(self, dual: Array) -> Array:
        """Return K·Bᵀ times dual coefficients (size, n) of f."""
        if self.weights.ndim == 1:
            return (dual * self.weights) @ self.K.dense()[self.rows]
        return dual @ self.weights @ self.K.dense()


def draw_latents(problem: Problem, point: Point, posterior: LatentPosterior, size: int, rng: Generator | None) -> Point:
    """Draw f (size, n), its parts and its Deterministics by name, jointly; without ``rng`` the most probable values."""
    if problem.composite is not None:
        drawn = _draw_parts(problem, problem.composite, point, posterior, size, rng)
    else:
        f = posterior.mean[None] if rng is None else posterior.draw(size, rng)
        drawn = {problem.prior.name: f}
        if (white := problem.prior.whitened) is not None:
            drawn[white] = posterior.factor.covariance.whiten((f - problem.mean_at(point)).T).T
        drawn = {name: np.broadcast_to(values, (size, f.shape[1])) for name, values in drawn.items()}
    return drawn | deterministics_at(problem, point, drawn)


def _draw_parts(
    problem: Problem, affine: Affine, point: Point, posterior: LatentPosterior, size: int, rng: Generator | None
) -> Point:
    A, parts = _at_training(problem, affine, point)
    dual = np.broadcast_to(posterior.dual_coef, (size, problem.targets.size)).copy()
    z = np.zeros((size, affine.size))
    prior = {name: np.zeros((size, part.K.size)) for name, part in parts.items()}
    if rng is not None:
        z = rng.standard_normal(z.shape)
        prior = {name: part.K.draw(size, rng) for name, part in parts.items()}
        factor = posterior.factor
        assert isinstance(factor, Factor)  # parts have no blocks
        drawn = sum((part.in_f(prior[name]) for name, part in parts.items()), z @ A.T)
        precision = posterior.site_precision[factor.points]
        scale = np.divide(1.0, np.sqrt(precision), out=np.zeros_like(precision), where=precision > 0)
        noise = rng.standard_normal((size, precision.size)) * scale
        dual[:, factor.points] -= factor.solve(np.asarray(drawn)[:, factor.points] + noise)
    z = z + dual @ A
    f = problem.mean_at(point) + z @ A.T
    found = variables_at(problem, affine, point, z)
    for name, part in parts.items():
        deviation = prior[name] + part.from_dual(dual)
        f = f + part.in_f(deviation)
        found[name] = found.pop(f"mean of {name}") + deviation
        if (white := affine.processes[name].prior.whitened) is not None:
            found[white] = part.K.whiten(deviation.T).T
    return {problem.prior.name: f} | found


def moments_of_parts(
    problem: Problem, point: Point, posterior: LatentPosterior, *, plug_in: bool = False
) -> dict[str, Array]:
    """Return mean and standard deviation (2, ...) of parts of f, at own rows, and of affine Deterministics."""
    affine, factor = problem.composite, posterior.factor
    assert affine is not None and isinstance(factor, Factor)  # parts have no blocks
    (A, parts), names = _at_training(problem, affine, point), names_of_latents(problem)
    shown = variables_at(problem, affine, point, np.vstack([np.zeros(affine.size), np.eye(affine.size)]))
    each = [shown[f"mean of {name}" if name in parts else name] for name in names]
    shapes, flat = [values.shape[1:] for values in each], np.hstack([np.reshape(v, (len(v), -1)) for v in each])
    ends = np.cumsum([prod(shape) for shape in shapes])
    loading = (flat[1:] - flat[0]).T
    cross, covariance = loading @ A.T, loading @ loading.T
    for end, name in zip(ends, names, strict=True):
        if name in parts:
            own = slice(end - parts[name].K.size, end)
            cross[own] += parts[name].from_dual(np.eye(problem.targets.size)).T
            covariance[own, own] += parts[name].K.dense()
    mean = flat[0] + cross @ posterior.dual_coef
    at_sites = cross[:, factor.points]
    covariance -= factor.explained_together(at_sites)
    # The latents at unit vectors, and at one more vector, which shows whether a function is affine.
    probes = np.vstack([np.zeros(len(mean)), np.eye(len(mean)), np.random.default_rng(0).normal(0.0, 10.0, len(mean))])
    given = {
        name: part.reshape(-1, *shape)
        for name, part, shape in zip(names, np.split(probes, ends[:-1], axis=1), shapes, strict=True)
    }
    found = {}
    with np.errstate(all="ignore"):  # of non-affine functions, such as logarithms
        shown = given | deterministics_at(problem, point, given)
    for name, values in shown.items():
        offset, *units, last = values.reshape(len(probes), -1)
        with np.errstate(all="ignore"):
            response = np.reshape(units, (len(mean), -1)).T - offset[:, None]
        if np.allclose(response @ probes[-1], last - offset, rtol=_SAME, atol=_SAME):
            variance = np.maximum(((response @ covariance) * response).sum(axis=1), 0.0)
            moments = np.stack([offset + response @ mean, np.zeros_like(offset) if plug_in else np.sqrt(variance)])
            found[name] = moments.reshape(2, *values.shape[1:])
    return found


def deterministics_at(problem: Problem, point: Point, drawn: Mapping[str, Array]) -> Point:
    """Return Deterministics of the model that depend on f or its parts, for draws (size, ...) of these."""
    model, latents = problem.model, [problem.model[name] for name in names_of_latents(problem)]
    observed = {v: model.rvs_to_values[v] for v in model.observed_RVs}
    above = {v: set(ancestors([v], blockers=observed)) for v in model.deterministics if v not in latents}
    chosen = [v for v in above if above[v] & set(latents)]

    def graphs(*given: Tensor) -> list[Tensor]:
        one = [pt.tensor(dtype=v.dtype, shape=v.type.shape[1:]) for v in given]
        of_one = graph_replace(chosen, observed | dict(zip(latents, one, strict=True)), strict=False)
        return cast(list[Tensor], vectorize_graph(of_one, dict(zip(one, given, strict=True))))

    if not chosen:
        return {}
    values = problem.evaluate("deterministics", graphs, point, *(drawn[v.name] for v in latents))
    return {v.name: np.asarray(value) for v, value in zip(chosen, values, strict=True)}


def variables_at(problem: Problem, affine: Affine, point: Point, z: Array) -> dict[str, Array]:
    """Return Gaussian variables, and prior means of the processes at their own rows, for draws of z (size, m)."""

    def graphs(given: Tensor) -> list[Tensor]:
        one = pt.vector(shape=(affine.size,))
        values = affine.values(one)
        means = [
            affine.mean_of(process, affine.own_rows(problem.matrix), values) for process in affine.processes.values()
        ]
        each = [value + 0.0 * one.sum() for value in (*values.values(), *means)]  # all depend on z
        return cast(list[Tensor], vectorize_graph(each, {one: given})) if each else []

    names = [*affine.variables, *(f"mean of {name}" for name in affine.processes)]
    return dict(zip(names, problem.evaluate("variables", graphs, point, z), strict=True))


def sum_of_parts(problem: Problem, points: list[Point]) -> Array:
    """Compute f (draws, n) from draws of its parts; ``points`` have hyperparameters and parts."""
    names = names_of_latents(problem)

    def graphs(*given: Tensor) -> list[Tensor]:
        parts = dict(zip([problem.model[name] for name in names], given, strict=True))
        return cast(list[Tensor], graph_replace([problem.latent], parts, strict=False))

    values = [problem.evaluate("sum of parts", graphs, at, *(at[name] for name in names))[0] for at in points]
    return np.stack([np.broadcast_to(f, problem.targets.shape) for f in values])


def part_cross(problem: Problem, name: str, point: Point, X_new: Array) -> tuple[Array | CrossRoot, Array, Array]:
    """Compute `Problem.cross` for the share of a part: covariance with f, prior variance and prior mean."""
    affine = cast(Affine, problem.composite)

    def graphs(new: Tensor) -> list[Tensor]:
        if name in affine.variables:
            own = affine.loading(new, name)
            return [own, affine.loading(problem.matrix), (own**2).sum(axis=1), affine.effect(name, new)]
        process = affine.processes[name]
        at = affine.nothing  # so that parts add up: coefficients of a mean function are parts of their own
        mean = affine.at(new, variables=at)
        mean -= affine.at(new, f={name: -affine.mean_of(process, new, at)}, variables=at)
        return [affine.share(process, new, problem.matrix), affine.variance(process, new), mean]

    *given, diagonal, mean = problem.evaluate(f"cross {name}", graphs, point, X_new)
    K_star = given[0] if len(given) == 1 else CrossRoot(*given) if problem.covariance.by_root else given[0] @ given[1].T
    return K_star, np.broadcast_to(diagonal, (len(X_new),)), np.broadcast_to(mean, (len(X_new),))


def given_white(K: Covariance, white: Array) -> Gaussian:
    """Return the Gaussian of a process at new rows, given a draw at the training rows, whitened by its covariance K."""

    def at_draw(K_star: Array | CrossRoot, diagonal: Array, offset: Array) -> tuple[Array, Array]:
        half = K.whiten(np.asarray(K_star).T)
        return half.T @ white + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

    return at_draw


def given_parts(
    problem: Problem, point: Point, draw: Point, only: str | None
) -> Callable[[Array], tuple[Array, Array]]:
    """Return mean and variance of f, or of the share of one part, at new rows, given a draw of all parts."""
    affine = cast(Affine, problem.composite)
    _, parts = _at_training(problem, affine, point)
    given, own = [draw[name] for name in affine.variables], affine.own_rows(problem.matrix)

    def of_variables(graphs: Callable[..., Tensor], key: str, *rows: Array) -> Array:
        def made(*variables: Tensor) -> list[Tensor]:
            new, each = variables[: len(rows)], variables[len(rows) :]
            return [graphs(*new, dict(zip(affine.variables, each, strict=True)))]

        return problem.evaluate(key, made, point, *rows, *given)[0]

    white = {}
    for name in affine.processes if only is None else affine.processes.keys() & {only}:
        mean = of_variables(partial(affine.mean_of, affine.processes[name], own), f"mean of {name}")
        white[name] = parts[name].K.whiten(draw[name] - mean)

    def moments(X: Array) -> tuple[Array, Array]:
        mean, variance = np.zeros(len(X)), np.zeros(len(X))
        if only is None:
            mean = mean + of_variables(lambda new, values: affine.at(new, variables=values), "at variables", X)
        elif only in affine.variables:
            key = f"effect of {only}"
            mean = mean + of_variables(lambda new, values: affine.effect(only, new, values[only]), key, X)
        for name, at_rows in white.items():
            with_values = partial(affine.with_location, affine.processes[name], own)
            (K_star,) = problem.evaluate(f"values {name}", lambda new, f=with_values: [f(new).T], point, X)
            _, diagonal, offset = part_cross(problem, name, point, X)
            offset = offset if only == name else np.zeros(len(X))
            found, spread = given_white(parts[name].K, at_rows)(K_star, diagonal, offset)
            mean, variance = mean + found, variance + spread
        return mean, variance

    return moments


def _at_training(problem: Problem, affine: Affine, point: Point) -> tuple[Array, dict[str, _AtTraining]]:
    """Return the matrix A of the variables, and each process at its own rows."""

    def graphs() -> list[Tensor]:
        each, U = affine.processes.values(), problem.matrix
        own = affine.own_rows(U)
        of_each = [graph for process in each for graph in (affine.own(process, own), affine.weights(process, U))]
        return [affine.loading(U), *of_each]

    A, *found = problem.evaluate("parts", graphs, point)
    values, kept = iter(found), problem.columns.kept
    rows = slice(None) if kept is None else kept
    return A, {
        name: _AtTraining(Covariance(next(values), jitter=p.prior.jitter), np.asarray(next(values)), rows)
        for name, p in affine.processes.items()
    }

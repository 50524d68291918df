"""The parts of a latent function in results: their draws, and what predicts them.

Part j is Gaussian a priori, and so are its covariances with f, the sum of all parts. With the dual coefficients α and
the sites of f its posterior mean is m_j + K_j·α, and its variance that of f with K_j in the place of the cross
covariances. Draws are those of Matheron's rule: a draw of all parts from the prior is corrected by K_j times the dual
coefficients of the difference between the sites and the draw of f. They add up to a draw of f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.replace import graph_replace

from bsvr_pp._arrays import Array
from bsvr_pp.approximations import BlockDiagonal, Covariance, LatentPosterior
from bsvr_pp.covariance.covariance import Factor
from bsvr_pp.model.composite import Composite
from bsvr_pp.model.gp import Prior
from bsvr_pp.model.problem import Point, Problem

# From the prior covariance of new rows with the training rows, prior variance and prior mean to mean and variance of f.
Gaussian = Callable[[Array, Array, Array], tuple[Array, Array]]


def names_of_latents(problem: Problem) -> list[str]:
    """Names of f, or of its parts."""
    if problem.composite is None:
        return [problem.prior.name]
    return [part.name for part in problem.composite.parts]


def check_part(problem: Problem, name: str) -> None:
    """Check that a part of the latent function has this name."""
    known = names_of_latents(problem) if problem.composite is not None else []
    if name not in known:
        raise ValueError(f"component must be a part of f, {', '.join(known) or 'and it has none'}, got {name!r}")


def draw_parts(
    problem: Problem,
    point: Point,
    posterior: LatentPosterior,
    size: int,
    rng: np.random.Generator,
    *,
    plug_in: bool = False,
) -> tuple[Array, dict[str, Array]]:
    """Draw f (size, n) and its parts by name, jointly; coefficients have the shape (size, ...) of their variable.

    With ``plug_in`` all draws are the most probable values.
    """
    composite = problem.composite
    assert composite is not None
    parts = _at_training(problem, composite, point)
    dual = np.broadcast_to(posterior.dual_coef, (size, problem.targets.size)).copy()
    prior = {name: np.zeros((size, K.size if A is None else A.shape[1])) for name, (_, K, A, _) in parts.items()}
    if not plug_in:
        prior = {
            name: K.draw(size, rng) if A is None else rng.standard_normal((size, A.shape[1])) * sd
            for name, (_, K, A, sd) in parts.items()
        }
        factor = posterior.factor
        assert isinstance(factor, Factor)  # parts have no blocks
        drawn = sum(prior[name] if A is None else prior[name] @ A.T for name, (_, _, A, _) in parts.items())
        precision = posterior.site_precision[factor.points]
        scale = np.divide(1.0, np.sqrt(precision), out=np.zeros_like(precision), where=precision > 0)
        noise = rng.standard_normal((size, precision.size)) * scale
        dual[:, factor.points] -= factor.solve(np.asarray(drawn)[:, factor.points] + noise)
    f = np.broadcast_to(problem.mean_at(point), dual.shape).copy()
    found = {}
    for name, (mean, K, A, sd) in parts.items():
        if A is None:
            deviation = prior[name] + dual @ K.dense()
            f += deviation
        else:
            deviation = prior[name] + (dual @ A) * sd**2
            f += deviation @ A.T
        found[name] = (mean + deviation).reshape(size, *(f.shape[1:] if A is None else problem.shape_of(name)))
        whitened = next(part.whitened for part in composite.parts if part.name == name)
        if whitened is not None:
            found[whitened] = K.whiten(deviation.T).T
    return f, found


def coordinates_of_f(prior: Prior, K: Covariance | BlockDiagonal, mean: Array, f: Array) -> dict[str, Array]:
    """The standard normal vectors v (size, n) of draws f = mean + L·v, L·Lᵀ = K, by their name in the model, if any.

    PyMC computes f from them: without them it would draw f from the prior.
    """
    return {} if prior.whitened is None else {prior.whitened: K.whiten((f - mean).T).T}


def sum_of_parts(problem: Problem, points: list[Point]) -> Array:
    """Compute f (draws, n) from draws of its parts; ``points`` have hyperparameters and parts."""
    names = names_of_latents(problem)
    given = {problem.model[name]: problem.model[name].type(name) for name in names}

    def compile_() -> Any:
        return problem.compile(graph_replace([problem.latent], given, strict=False), extra=list(given.values()))

    compiled = problem.function("sum of parts", compile_)
    values = [compiled(*problem.arguments(at), *(at[name] for name in names))[0] for at in points]
    return np.stack([np.broadcast_to(f, problem.targets.shape) for f in values])


def part_cross(problem: Problem, name: str, point: Point, X_new: Array) -> tuple[Array, Array, Array]:
    """As `Problem.cross`, for a part: covariance with f at the training rows, prior variance and prior mean."""
    assert problem.composite is not None
    part = next(part for part in problem.composite.parts if part.name == name)

    def graphs(new: Any) -> list[Any]:
        return [part.covariance(new, problem.matrix), part.variance(new), part.mean(new)]

    K_star, diagonal, mean = problem.evaluate(f"cross {name}", graphs, point, X_new)
    return K_star, np.broadcast_to(diagonal, (len(X_new),)), np.broadcast_to(mean, (len(X_new),))


def given_white(K: Covariance, white: Array) -> Gaussian:
    """The Gaussian of a process at new rows, given a draw at the training rows, whitened by its covariance K."""

    def at_draw(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
        half = K.whiten(K_star.T)
        return half.T @ white + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

    return at_draw


def given_parts(
    problem: Problem, point: Point, draw: Point, only: str | None
) -> Callable[[Array], tuple[Array, Array]]:
    """Return mean and variance of f, or of one part, at new rows, given a draw of all parts at the training rows."""
    composite = problem.composite
    assert composite is not None
    parts = _at_training(problem, composite, point)

    def moments(X: Array) -> tuple[Array, Array]:
        mean, variance = np.zeros(len(X)), np.zeros(len(X))
        for part in composite.parts:
            name, design = part.name, part.design
            if only not in (None, name):
                continue
            if design is not None:
                (A,) = problem.evaluate(f"design {name}", lambda new, design=design: [design(new)], point, X)
                mean += A @ draw[name].ravel()
                continue
            prior_mean, K, _, _ = parts[name]
            given = given_white(K, K.whiten(draw[name] - prior_mean))(*part_cross(problem, name, point, X))
            mean, variance = mean + given[0], variance + given[1]
        if only is None:
            mean = mean + problem.evaluate("offset", lambda new: [composite.offset(new)], point, X)[0]
        return mean, variance

    return moments


def _at_training(
    problem: Problem, composite: Composite, point: Point
) -> dict[str, tuple[Array, Covariance, Array | None, Array]]:
    """Prior mean of a part, its covariance, or the matrix A and the standard deviations of its coefficients."""

    def graphs() -> list[Any]:
        made = []
        for part in composite.parts:
            if part.design is None or part.coefficients is None:
                made += [part.mean(problem.matrix), part.covariance(problem.matrix, problem.matrix)]
            else:
                made += [*part.coefficients, part.design(problem.matrix)]
        return made

    values = iter(problem.evaluate("parts", graphs, point))
    found: dict[str, tuple[Array, Covariance, Array | None, Array]] = {}
    n = problem.targets.size
    for part in composite.parts:
        if part.design is None:
            mean, K = np.broadcast_to(next(values), (n,)), next(values)
            found[part.name] = (mean, Covariance(K + part.jitter * np.eye(n), jitter=part.jitter), None, np.zeros(0))
        else:
            mean, sd, A = next(values), next(values), np.asarray(next(values))
            found[part.name] = (mean, Covariance.from_root(A * sd, np.zeros(n)), A, np.asarray(sd))
    return found

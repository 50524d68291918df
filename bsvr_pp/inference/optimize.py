"""Hyperparameters at the optimum of evidence times priors.

The optimum is sought in the unconstrained space of the model but without the Jacobian of its transforms, so that it
is the mode of the posterior of the hyperparameters themselves; with ``objective="evidence"`` the priors are ignored
(Chu, Keerthi & Ong 2004 use a flat prior on the logs). `search.climb` goes up from several starts. Beyond five
hundred rows the starts are tried on some of the rows, and the best go on with all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_fn
from pymc.pytensorf import compile, find_rng_nodes, reseed_rngs
from rich.progress import Progress
from scipy.spatial import cKDTree

from bsvr_pp.approximations.ops import latent_evidence
from bsvr_pp.inference.search import Ascent, climb
from bsvr_pp.problem import INTERPRETED, Point, Problem

__all__ = ["Objective", "Optimum", "compile_objective", "maximize"]

Array = NDArray[np.float64]
Objective = Literal["posterior", "evidence"]

_MANY, _FEW = 500, 300  # beyond so many rows the starts are tried on some of them, at least so many


@dataclass(frozen=True, slots=True)
class Optimum:
    """End of one run of the optimiser.

    Attributes
    ----------
    point : dict
        Hyperparameters by name.
    objective : float
        Log evidence, plus the log priors if they count.
    converged : bool
        Whether the gradient vanished, or a restart from the best point found nothing better.
    message : str
        What the optimiser says.
    n_evaluations : int
        Evaluations of evidence and gradient.
    """

    point: Point
    objective: float
    converged: bool
    message: str
    n_evaluations: int


def maximize(
    problem: Problem,
    operation: str,
    fixed: Point,
    *,
    restarts: int,
    objective: Objective,
    rng: np.random.Generator,
    progressbar: bool,
    all_optima: bool = False,
) -> list[Optimum]:
    """Run the optimiser from several starts; optima come best first.

    Beyond five hundred rows the starts are tried on some of them, and the best goes on with all rows; of exact Laplace,
    whose jumps make an optimum a matter of luck, the better half; with ``all_optima`` each. An interruption ends the
    search; what was found so far is returned.
    """
    evaluate, pack, unpack = compile_objective(problem, operation, fixed, objective, path=True)
    few = _sample(problem, rng)
    tried = evaluate if few is None else compile_objective(problem, operation, fixed, objective, few, path=True)[0]
    go_on = restarts if all_optima else (restarts + 1) // 2 if operation == "laplace" else 1
    optima: list[Optimum] = []
    n = problem.targets.size
    with Progress(transient=True, disable=not progressbar) as progress:
        task = progress.add_task("hyperparameters", total=restarts + (0 if few is None else go_on))

        def report() -> None:
            best = max(found.objective for found in optima)
            progress.update(task, advance=1, description=f"hyperparameters, best log objective {best:.3f}")

        try:
            for start in _starts(problem, restarts, rng):
                optima.append(_optimum(climb(tried, pack(start), n), unpack))
                report()
            if few is not None:
                there = [replace(o, objective=evaluate(pack(o.point))[0], converged=False) for o in optima]
                optima = sorted(there, key=lambda found: -found.objective)
                for i, found in enumerate(optima[:go_on]):
                    climbed = _optimum(climb(evaluate, pack(found.point), n, first_step=0.1), unpack)
                    optima[i] = replace(climbed, n_evaluations=climbed.n_evaluations + found.n_evaluations + 1)
                    report()
        except KeyboardInterrupt:
            if not optima:
                raise
            optima = [
                Optimum(o.point, o.objective, False, f"interrupted; {o.message}", o.n_evaluations) for o in optima
            ]
    return sorted(optima, key=lambda found: -found.objective)


def _sample(problem: Problem, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Rows on which to try the starts, where all of them are many and a row is like another."""
    n = problem.targets.size
    if n <= _MANY or any(p.ndim > 0 for p in problem.parameters):
        return None
    return np.sort(rng.choice(n, max(_FEW, n // 8), replace=False))


def compile_objective(
    problem: Problem,
    operation: str,
    fixed: Point,
    objective: Objective,
    rows: NDArray[np.intp] | slice = slice(None),
    path: bool = False,
) -> tuple[Callable[[Array], tuple[float, Array]], Callable[[Point], Array], Callable[[Array], Point]]:
    """Objective and gradient as a function of the free unconstrained values, and the way there and back.

    Of all data, or of some rows. Along a path each solve begins where the last one ended.
    """

    def compile_() -> Any:
        model, loss, jitter = problem.model, problem.loss.name, problem.prior.jitter
        X, y = pt.matrix(shape=(None, problem.inputs.shape[1])), pt.vector()  # without names, that data may have
        start = pt.matrix()
        K, mean = problem.prior_at(X)
        evidence, _, sites = latent_evidence(operation, loss, K, mean, y, problem.parameters, jitter, start)
        total, sites = model.replace_rvs_by_values([evidence, sites])
        if objective == "posterior":
            total = total + model.logp(vars=problem.variables, jacobian=False)
        gradients = pt.grad(total, problem.values, disconnected_inputs="ignore")
        inputs = [*problem.values, X, y, start]
        return pytensor.function(inputs, [total, sites, *gradients], mode=INTERPRETED, on_unused_input="ignore")

    function = problem.function(f"{objective} by {operation}", compile_)
    X, y = problem.inputs[rows], problem.targets[rows]
    start = np.zeros((2, y.size))
    free = [name not in fixed for name in problem.hyperparameters]
    template = problem.to_unconstrained({**_initial(problem), **fixed})
    shapes = [value.shape for value in template]

    def pack(point: Point) -> Array:
        unconstrained = problem.to_unconstrained({**point, **fixed})
        return np.concatenate([np.ravel(v) for v, f in zip(unconstrained, free, strict=True) if f] or [np.empty(0)])

    def split(x: Array) -> list[Array]:
        out, at = [], 0
        for value, shape, is_free in zip(template, shapes, free, strict=True):
            size = int(np.prod(shape))
            out.append(np.reshape(x[at : at + size], shape) if is_free else value)
            at += size if is_free else 0
        return out

    def unpack(x: Array) -> Point:
        return {**problem.to_constrained(split(x)), **fixed}

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal start
        value, sites, *gradient = function(*split(x), X, y, start)
        flat = np.concatenate(
            [np.ravel(g) for g, is_free in zip(gradient, free, strict=True) if is_free] or [np.empty(0)]
        )
        if not np.isfinite(value) or not np.isfinite(flat).all():
            return -np.inf, np.zeros_like(x)
        if path:
            start = sites
        return float(value), flat

    return evaluate, pack, unpack


def _optimum(found: Ascent, unpack: Callable[[Array], Point]) -> Optimum:
    return Optimum(unpack(found.x), found.value, found.converged, found.message, found.n_evaluations)


def _initial(problem: Problem) -> Point:
    """The model's own initial point, as hyperparameters."""

    def compute() -> Point:
        function = problem.function("initial", lambda: make_initial_point_fn(model=problem.model))
        values = function(0)
        return problem.to_constrained([values[value.name] for value in problem.values])

    point: Point = problem.cached("initial", compute)
    return point


def _starts(problem: Problem, restarts: int, rng: np.random.Generator) -> list[Point]:
    """Starting points: from the data, the model's initial point, Chu et al.'s two, then draws from the priors.

    Where a prior is improper, draws around the first: a standard normal on each unconstrained value.
    """
    initial = _initial(problem)
    y, X = problem.targets, problem.inputs
    scale = max(float(np.std(y)), 1e-8)
    noise = _noise_scale(X, y)
    spread = float(np.median(np.std(X, axis=0)[np.std(X, axis=0) > 0])) if (np.std(X, axis=0) > 0).any() else 1.0
    d = X.shape[1]
    guesses: list[dict[str, float]] = [
        {"C": 2.0**0.5 / noise, "epsilon": 0.3 * noise, "lengthscale": spread * d**0.5, "bias": scale**2},
        {},
        {"C": 1.0 / scale, "epsilon": 0.05 * scale, "lengthscale": 2.0**0.5 * spread, "bias": 100 * scale**2},
        {"C": 10.0 / scale, "epsilon": 0.05 * scale, "lengthscale": d**0.5 * spread, "bias": 100 * scale**2},
    ]
    roles = _roles(problem)
    starts = []
    for guess in guesses[:restarts]:
        point = dict(initial)
        for name, role in roles.items():
            if role in guess:
                value = guess[role] ** -2 if role == "precision" else guess[role]
                point[name] = np.full(np.shape(initial[name]), value)
        starts.append(point if _inside(problem, point) else initial)
    while len(starts) < restarts:
        starts.append(_draw(problem, rng) or _around(problem, starts[0], rng))
    return starts


def _inside(problem: Problem, point: Point) -> bool:
    with np.errstate(all="ignore"):
        return all(np.isfinite(value).all() for value in problem.to_unconstrained(point))


def _draw(problem: Problem, rng: np.random.Generator) -> Point | None:
    """A draw of the hyperparameters from their priors; None where a prior is improper."""
    try:
        function = problem.function("draw", lambda: compile(inputs=[], outputs=problem.variables, mode=INTERPRETED))
        reseed_rngs(find_rng_nodes(problem.variables), int(rng.integers(2**31)))
        drawn = function()
    except NotImplementedError:
        return None
    return {name: np.asarray(value) for name, value in zip(problem.hyperparameters, drawn, strict=True)}


def _around(problem: Problem, point: Point, rng: np.random.Generator) -> Point:
    values = [value + rng.normal(size=value.shape) for value in problem.to_unconstrained(point)]
    return problem.to_constrained(values)


def _noise_scale(X: Array, y: Array) -> float:
    """Robust scale of the noise: differences of the targets of nearest neighbours."""
    if y.size < 3:
        return max(float(np.std(y)), 1e-3)
    width = np.where(np.std(X, axis=0) > 0, np.std(X, axis=0), 1.0)
    neighbour = cKDTree(X / width).query(X / width, k=2)[1][:, 1]
    difference = y - y[neighbour]
    scale = 1.4826 * float(np.median(np.abs(difference))) / 2.0**0.5
    return max(scale, 1e-2 * float(np.std(y)), 1e-8)


def _roles(problem: Problem) -> dict[str, str]:
    """What the hyperparameters are to the model, as far as the model says it."""
    roles = {}
    for name, graph in zip(problem.loss.parameters, problem.parameters, strict=True):
        if graph.name in problem.hyperparameters:
            roles[graph.name] = name

    def visit(kernel: Any) -> None:
        for part in getattr(kernel, "_factor_list", []):
            visit(part)
        for attribute, role in (("ls", "lengthscale"), ("c", "bias")):
            name = getattr(getattr(kernel, attribute, None), "name", None)
            if name in problem.hyperparameters:
                roles[name] = role

    visit(problem.prior.cov_func)
    return roles

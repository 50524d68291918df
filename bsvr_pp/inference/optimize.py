"""Hyperparameters at the optimum of evidence times priors.

The optimisation runs in the unconstrained space of the model, but without the Jacobian of its transforms, so that the
optimum is the posterior mode of the constrained hyperparameters. With ``objective="evidence"`` the priors are ignored
(Chu, Keerthi & Ong 2004 use a flat prior on the logs). The optimiser runs from several starts, of which
the best continues. If there are many rows, the starts are first tried on a subset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pymc.pytensorf import find_rng_nodes
from pytensor.compile import ViewOp
from pytensor.graph.replace import graph_replace
from pytensor.scalar.basic import Reciprocal, TrueDiv
from rich.progress import Progress
from scipy.spatial import cKDTree

from bsvr_pp.inference.objective import compile_objective, initial_point
from bsvr_pp.inference.protocol import Approximation, Objective
from bsvr_pp.inference.quasi_newton import Ascent, Pairs, ascend
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.priors import location_and_scale
from bsvr_pp.model.problem import ModelError, Point, Problem

__all__ = ["Optimum", "lengthscales", "maximize"]

Array = NDArray[np.float64]

_NEAR = 0.1  # largest change of the unconstrained values for which the last solution is a good start
_TRIAL = 20  # evaluations of a start, after which the best start continues if the evidence is continuous,
_TOLERANCE = 1e-3  # and ascent of three steps, in nats, below which its search ends
_MANY, _FEW = (500, 2000), 300  # above these numbers of rows starts are tried on a subset of at least this number:
# if the evidence is discontinuous, and all starts are continued; and if it is continuous


@dataclass(frozen=True, slots=True)
class Optimum:
    """End point of one run of the optimiser.

    The objective is the log evidence, with the log priors if they are part of it. It has converged if the gradient is
    zero, or a restart from the best point found no better one. The optimiser can continue with the curvature.
    """

    point: Point
    objective: float
    converged: bool
    message: str
    n_evaluations: int
    curvature: Pairs = ()

    def record(self) -> dict[str, Any]:
        """The end point as plain data, without the curvature."""
        return {
            "point": {name: np.asarray(value).tolist() for name, value in self.point.items()},
            "objective": float(self.objective),
            "converged": bool(self.converged),
            "message": self.message,
            "n_evaluations": int(self.n_evaluations),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Make the end point from `record`."""
        point = {name: np.asarray(value, dtype=np.float64) for name, value in record["point"].items()}
        return cls(point, *(record[name] for name in ("objective", "converged", "message", "n_evaluations")))


def maximize(
    problem: Problem,
    method: Approximation,
    fixed: Point,
    *,
    restarts: int | None,
    objective: Objective,
    rng: np.random.Generator,
    progressbar: bool,
    all_optima: bool = False,
) -> list[Optimum]:
    """Run the optimiser from several starts; the best optimum is first.

    After twenty evaluations of each start the best continues. If the evidence of the method is discontinuous, so that
    the optimum depends on the start, or with ``all_optima``, all starts continue. With many rows this is done on a
    subset, and then the best continues with all rows; or the better half; or all. By default there are two starts, or
    five in these two cases. An interruption ends the optimisation, and the optima so far are returned.
    """
    check_continuous(problem, fixed)
    evaluate, pack, unpack = compile_objective(problem, method, fixed, objective, path=True)
    few = _sample(problem, rng, method.capabilities.continuous)
    tried = evaluate if few is None else compile_objective(few, method, fixed, objective, path=True)[0]
    one_optimum = method.capabilities.continuous and not all_optima
    if restarts is None:
        restarts = 2 if one_optimum else 5
    go_on = 1 if one_optimum else restarts if all_optima else (restarts + 1) // 2
    trial = _TRIAL if one_optimum and restarts > 1 else np.inf
    tolerance = _TOLERANCE if method.capabilities.continuous else 0.0
    optima: list[Optimum] = []
    n = problem.targets.size
    with Progress(transient=True, disable=not progressbar) as progress:
        task = progress.add_task("hyperparameters", total=restarts + (0 if few is None else go_on))

        def report() -> None:
            best = max(found.objective for found in optima)
            progress.update(task, advance=1, description=f"hyperparameters, best log objective {best:.3f}")

        try:
            for start in _starts(problem, restarts, rng):
                optima.append(_optimum(ascend(tried, pack(start), n, tolerance=tolerance, limit=trial), unpack))
                report()
            if one_optimum and restarts > 1:
                optima = _left(optima)
                optima[0] = _continued(optima[0], tried, pack, unpack, n, tolerance)
            if few is not None:
                optima = [
                    replace(o, objective=evaluate(pack(o.point))[0], converged=False, curvature=()) for o in optima
                ]
                optima.sort(key=lambda found: -found.objective)
                for i, found in enumerate(optima[:go_on]):
                    optima[i] = _continued(found, evaluate, pack, unpack, n, tolerance)
                    report()
        except KeyboardInterrupt:
            if not optima:
                raise
            optima = [
                Optimum(o.point, o.objective, False, f"interrupted; {o.message}", o.n_evaluations) for o in optima
            ]
    return sorted(optima, key=lambda found: -found.objective)


def check_continuous(problem: Problem, fixed: Collection[str]) -> None:
    """Check that no discrete hyperparameter is optimised or sampled by gradients."""
    for name, variable in zip(problem.hyperparameters, problem.variables, strict=True):
        if name not in fixed and np.dtype(variable.dtype).kind != "f":
            raise ModelError(
                f"the hyperparameter {name} is discrete, and only continuous ones are found by gradients: "
                f"give its value, hyperparameters={{{name!r}: ...}}, and compare the evidence of several values"
            )


def _sample(problem: Problem, rng: np.random.Generator, continuous: bool) -> Problem | None:
    """Choose rows for the first try of the starts, if there are many and all have the same role; or whole blocks."""
    n = problem.targets.size
    if n <= _MANY[continuous] or any(p.ndim > 0 for p in (*problem.site_parameters, *problem.ends.bounds)):
        return None
    if problem.blocks is None:
        return problem.take(np.sort(rng.choice(n, max(_FEW, n // 8), replace=False)))
    order = rng.permutation(len(problem.blocks))
    used = order[: 1 + np.searchsorted(np.cumsum(problem.blocks.sizes[order]), _MANY[continuous])]
    rows = [problem.blocks.rows(block) for block in np.sort(used)]
    label = np.repeat(np.arange(len(rows)), [part.size for part in rows])
    return problem.take(np.concatenate(rows), Blocks(label))


def _optimum(found: Ascent, unpack: Callable[[Array], Point]) -> Optimum:
    return Optimum(unpack(found.x), found.value, found.converged, found.message, found.n_evaluations, found.curvature)


def _left(optima: list[Optimum]) -> list[Optimum]:
    """The best of several starts first; the messages of others that are unfinished say that they are left."""
    best, *others = sorted(optima, key=lambda found: -found.objective)
    message = "left, behind another start after {} evaluations"
    return [best, *(o if o.converged else replace(o, message=message.format(o.n_evaluations)) for o in others)]


def _continued(
    found: Optimum,
    evaluate: Callable[[Array], tuple[float, Array]],
    pack: Callable[[Point], Array],
    unpack: Callable[[Array], Point],
    n: int,
    tolerance: float,
) -> Optimum:
    """Continue a search that did not end."""
    if found.converged:
        return found
    options: dict[str, Any] = {"first_step": 0.1, "tolerance": tolerance, "curvature": found.curvature}
    more = _optimum(ascend(evaluate, pack(found.point), n, **options), unpack)
    return replace(more, n_evaluations=more.n_evaluations + found.n_evaluations)


def _starts(problem: Problem, restarts: int, rng: np.random.Generator) -> list[Point]:
    """Starting points: from the data, from the model, the two of Chu et al., then draws from the priors.

    If a prior is improper, draws are around the first point: standard normal in each unconstrained value.
    """
    initial = initial_point(problem)
    y, X = problem.targets, problem.inputs
    scale = location_and_scale(y)[1] or 1e-8
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
                point[name] = np.full(np.shape(initial[name]), guess[role])
            elif role == "inverse lengthscale" and guess:
                point[name] = np.full(np.shape(initial[name]), 1.0 / guess["lengthscale"])
        starts.append(point if _inside(problem, point) else initial)
    while len(starts) < restarts:
        starts.append(_draw(problem, rng) or _around(problem, starts[0], rng))
    return starts


def _inside(problem: Problem, point: Point) -> bool:
    with np.errstate(all="ignore"):
        return all(np.isfinite(value).all() for value in problem.to_unconstrained(point))


def _draw(problem: Problem, rng: np.random.Generator) -> Point | None:
    """Draw the hyperparameters from their priors; None if a prior is improper."""
    sources = find_rng_nodes(problem.variables)

    def compile_() -> Any:
        stand_in = [source.type() for source in sources]
        graphs = graph_replace(problem.variables, dict(zip(sources, stand_in, strict=True)), strict=False)
        return problem.compile_on(stand_in, graphs)

    seeds = np.random.SeedSequence(int(rng.integers(2**31))).spawn(len(sources))
    try:
        drawn = problem.function("draw", compile_)(*map(np.random.default_rng, seeds), *problem.given_data)
    except NotImplementedError:
        return None
    return {name: np.asarray(value) for name, value in zip(problem.hyperparameters, drawn, strict=True)}


def _around(problem: Problem, point: Point, rng: np.random.Generator) -> Point:
    values = [value + rng.normal(size=value.shape) for value in problem.to_unconstrained(point)]
    return problem.to_constrained(values)


def _noise_scale(X: Array, y: Array) -> float:
    """Estimate the scale of the noise robustly, from differences between the targets of nearest neighbours."""
    if y.size < 3:
        return float(np.std(y)) or 1e-3
    width = np.where(np.std(X, axis=0) > 0, np.std(X, axis=0), 1.0)
    neighbour = cKDTree(X / width).query(X / width, k=2)[1][:, 1]
    difference = y - y[neighbour]
    scale = 1.4826 * float(np.median(np.abs(difference))) / 2.0**0.5
    return max(scale, 1e-2 * location_and_scale(y)[1]) or 1e-8


def _inverted(graph: Any) -> str | None:
    """Name of the variable whose inverse a graph is, as far as it has a name."""
    while getattr(graph, "owner", None) is not None and isinstance(graph.owner.op, ViewOp):
        (graph,) = graph.owner.inputs
    scalar = getattr(getattr(getattr(graph, "owner", None), "op", None), "scalar_op", None)
    if isinstance(scalar, Reciprocal):
        return graph.owner.inputs[0].name
    return graph.owner.inputs[1].name if isinstance(scalar, TrueDiv) else None


def lengthscales(problem: Problem, point: Point) -> Array | None:
    """Lengthscales of the inputs at given hyperparameters, (d,); None if the kernel has none, or several."""
    found = [name for name, role in _roles(problem).items() if "lengthscale" in role]
    if len(found) != 1:
        return None
    value = np.broadcast_to(np.asarray(point[found[0]], dtype=float), (problem.inputs.shape[1],))
    if _roles(problem)[found[0]] == "lengthscale":
        return value
    with np.errstate(divide="ignore"):
        return np.where(value > 0, 1.0 / value, np.inf)


def _roles(problem: Problem) -> dict[str, str]:
    """Find the role of each hyperparameter in the model, as far as possible."""
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
        inverse = _inverted(getattr(kernel, "ls", None))
        if inverse in problem.hyperparameters:
            roles[inverse] = "inverse lengthscale"

    visit(problem.prior.cov_func)
    return roles

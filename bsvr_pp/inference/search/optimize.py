"""Hyperparameters at the optimum of evidence times priors, of one problem or of several that share a kernel.

The optimisation runs in the unconstrained space of the model, but without the Jacobian of its transforms. The optimum
is the mode of the constrained hyperparameters. A part of the rows excludes starts that are far behind, and a few steps
on all rows choose between the others. The search on all rows begins half way between the start and the optimum of the
part, with its second derivatives. Few rows do not show fast or small variation: a search from the optimum of the part
often ends in a worse optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable as Variable
from rich.progress import Progress

from bsvr_pp.core.arrays import Array, ModelError
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.inference.protocol import IntegratesLatent, Objective, Options
from bsvr_pp.inference.search.quasi_newton import Pairs, ascend
from bsvr_pp.inference.search.starts import (
    choose_starts,
    constant_of,
    find_roles,
    initial_point,
    narrow_priors,
    neighbour_of_each,
    order_of_rows,
    units_of,
)
from bsvr_pp.model.gaussian import gradients
from bsvr_pp.model.operation import TargetsGraph
from bsvr_pp.model.problem import Point, Problem

_SAME = 1e-12  # largest change of the unconstrained values for which the point is the same, up to their rounding
_TRIAL = 10  # evaluations of each start before the best continues, if the evidence is continuous
_CLOSE = 15.0  # nats behind the best within which starts are continued once before one is chosen
_DIFFERENCE = 0.05  # step of unconstrained values for second derivatives,
_SLOPE = 0.1  # and smallest first derivative, in nats on a part of the rows, of a value with second derivatives
_AT_REST, _ASIDE = 1e-9, 0.1  # slope, in nats, of a value at rest, and its smallest distance from there for a search
_FINEST = 0.1  # scale of noise, in standard deviations of the jitter, below which predictions no longer change
_MANY_ROWS = 100  # rows above which the tolerance grows with their number: 2 nats on 2,000 rows change no CRPS
_HALVED = 1500  # number of rows from which half of them is searched first
_ABOVE = 0.5  # nats by which a constant, or a narrow prior, must be better than the optimum
_NO_MAXIMUM = (
    "the objective has no maximum, and this is at best a local one: it is larger where the prior of {0}, which {1} "
    "scales, is a point; integrate them out, with Integrated or NUTS, or write {0} as {1} * z with a prior of z alone"
)
_CHOSEN = 0  # seed of the choice of some rows: no optimum may depend on the caller's seed
OF_OPTIMUM = "objective", "converged", "message", "n_evaluations"  # fields of an `Optimum` in files, beside its point
_SHARE = 0.3  # of the tolerance of one problem: with more, some searches of a sum ended 2 nats below
_MANY, _FEW = 400, 200  # rows above which a quarter of them is tried first, and smallest quarter


@dataclass(frozen=True, slots=True)
class Optimum:
    """End point of one run of the optimiser, as `Ascent`, with the objective of `SearchObjective`."""

    point: Point
    objective: float
    converged: bool
    message: str
    n_evaluations: int
    curvature: Pairs = ()

    def record(self) -> dict[str, object]:
        """Return the end point as plain data, without the curvature."""
        point = {name: np.asarray(value).tolist() for name, value in self.point.items()}
        return {"point": point} | {name: np.asarray(getattr(self, name)).item() for name in OF_OPTIMUM}


def maximize(
    problem: Problem, method: IntegratesLatent, fixed: Point, options: Options, rng: Generator
) -> list[Optimum]:
    """Run the optimiser from several starts or the given one; return the best optimum first, also if interrupted."""
    check_continuous(problem, fixed)
    restarts, kept = options.restarts or method.search.starts, method.search.kept
    one_optimum, go_on = kept == 0, max(ceil(kept * restarts), 1)
    objective = partial(SearchObjective, method=method, fixed=fixed, objective=options.objective)
    whole = objective(problem)
    known = whole.usable(options.start) if one_optimum else None
    levels = _halves(problem) if one_optimum and known is None else [problem]
    whole, part = whole if levels[0] is problem else objective(levels[0]), _part(levels[0])
    few = whole if part is None else objective(part)
    optima: list[Optimum] = []
    with Progress(transient=True, disable=not options.progressbar) as progress:
        task = progress.add_task("hyperparameters", total=restarts + go_on + len(levels) - 1)

        def report() -> None:
            best = max(found.objective for found in optima)
            progress.update(task, advance=1, description=f"hyperparameters, best log objective {best:.3f}")

        try:
            by = few.value_at if one_optimum else None
            starts = choose_starts(problem, restarts, rng, by) if known is None else [known]
            choose = one_optimum and len(starts) > 1
            for each in starts if choose or few is whole or not one_optimum else []:
                optima.append(few.climb(each, limit=_TRIAL if choose else np.inf))
                report()
            if choose:
                close = _close(optima)
                for i in close if len(close) > 1 or few is not whole else []:
                    optima[i] = few.continued(optima[i], limit=_TRIAL)
            if one_optimum and few is not whole:
                if choose:
                    begun = [whole.half_way(starts[i], optima[i]) for i in _close(optima)]
                elif known is not None:
                    begun = optima = [whole.restarted(Optimum(known, -np.inf, False, "a start", 1))]
                else:
                    begun = optima = [whole.climb(starts[0], limit=_TRIAL)]
                optima = _raced(whole, few, begun)
                report()
            elif choose:
                optima = _left(optima)
                optima[0] = whole.continued(optima[0])
                report()
            elif few is not whole:
                optima = _sorted([whole.restarted(found) for found in _sorted(optima)[:go_on]])
                for i, found in enumerate(optima):
                    optima[i] = whole.continued(found)
                    report()
            for rows in levels[1:]:
                level = objective(rows)
                half = _sorted([level.restarted(found) for found in reversed(optima)])[0]  # its value is kept
                half = half if np.isfinite(half.objective) else level.restarted(level.half_way(starts[0], half))
                second = level.second_derivatives(half, objective(_part(rows) or levels[0]))
                optima, whole = [level.continued(half, second=second)], level
                report()
            optima = _judged(whole, problem, optima, fixed, few if one_optimum else None)
        except KeyboardInterrupt:
            if not optima:
                raise
            optima = [replace(o, converged=False, message=f"interrupted; {o.message}") for o in optima]
    return _sorted(optima)


def _judged(
    whole: SearchObjective, problem: Problem, optima: list[Optimum], fixed: Point, few: SearchObjective | None
) -> list[Optimum]:
    """Add the end of a search from the constant if that is better; the best has not converged without a maximum.

    A constant that is far behind on few rows is not tried; None excludes constants.
    """
    best = optima[0]
    constant = constant_of(problem, best.point, fixed) if few else None
    close = few and constant and few.value_at(best.point) - _CLOSE <= few.value_at(constant)
    if constant and close and whole.value_at(constant) > best.objective + _ABOVE:
        optima.append(whole.climb(constant))
    best, *others = _sorted(optima)
    for name, other, there in narrow_priors(problem, best.point, fixed):
        if whole.value_at(there) > best.objective + _ABOVE:
            best = replace(best, converged=False, message=_NO_MAXIMUM.format(name, other))
    return [best, *others]


def check_continuous(problem: Problem, fixed: Collection[str]) -> None:
    """Check that gradients do not optimise or sample a discrete hyperparameter."""
    for name, variable in zip(problem.hyperparameters, problem.variables, strict=True):
        if name not in fixed and np.dtype(variable.dtype).kind != "f":
            raise ModelError(
                f"the hyperparameter {name} is discrete, and only continuous ones are found by gradients: "
                f"give its value, hyperparameters={{{name!r}: ...}}, and compare the evidence of several values"
            )


def tolerance_of(tolerance: float, n: int) -> float:
    """Return the tolerance of a search on n rows, in nats."""
    return tolerance * max(1.0, n / _MANY_ROWS)


def _halves(problem: Problem) -> list[Problem]:
    """Return nested halves of the rows, each of at least 750 rows, smallest first, and the problem."""
    levels = [problem]
    while not problem.blocks.several and problem.divisible and (n := levels[0].targets.size) >= _HALVED:
        levels.insert(0, _some(levels[0], n // 2))
    return levels


def _part(problem: Problem) -> Problem | None:
    n = problem.targets.size
    return _some(problem, max(_FEW, n // 4)) if n > _MANY and problem.divisible else None


def _some(problem: Problem, count: int) -> Problem:
    """Return ``count`` random rows with their nearest neighbours, or rows of whole blocks, always the same.

    Without neighbours, few rows do not show how much of the targets is noise.
    """
    rng, n = np.random.default_rng(_CHOSEN), problem.targets.size
    if problem.blocks.several or problem.rank is not None or problem.inputs.shape[1] == 0:
        return problem.take(*problem.blocks.some(count, n, rng))
    order, mixed = order_of_rows(problem), rng.permutation(n)
    pairs = np.stack([order, order[neighbour_of_each(problem.inputs[order])]], axis=1)[mixed].ravel()
    return problem.take(np.sort(list(dict.fromkeys(pairs))[:count]))


def _sorted(optima: list[Optimum]) -> list[Optimum]:
    return sorted(optima, key=lambda found: -found.objective)


def _close(tried: list[Optimum]) -> list[int]:
    best = max(found.objective for found in tried)
    return [i for i, found in enumerate(tried) if found.objective >= best - _CLOSE]


def _left(optima: list[Optimum]) -> list[Optimum]:
    """Return the best of several starts first; messages of unfinished others say that they were stopped."""
    best, *others = _sorted(optima)
    message = "left, behind another start after {} evaluations"
    return [best, *(o if o.converged else replace(o, message=message.format(o.n_evaluations)) for o in others)]


def _raced(whole: SearchObjective, few: SearchObjective, begun: list[Optimum]) -> list[Optimum]:
    """Continue starts that a part of the rows cannot distinguish for a few steps with all; then the best one."""
    turns, best = [whole.second_derivatives(found, few) for found in begun], 0
    if len(begun) > 1:
        pairs = zip(begun, turns, strict=True)
        begun = [whole.continued(found, limit=_TRIAL, second=turn) for found, turn in pairs]
        best = int(np.argmax([found.objective for found in begun]))
    optima = _left(begun)
    return [whole.continued(optima[0], second=turns[best]), *optima[1:]]


class SearchObjective:
    """Log evidence, plus the log priors in the objective, as a function of the free unconstrained values in `units_of`.

    The evidence of blocks is a sum of one compiled function. Each block is warm-started from its previous solution.
    Without ``warm_starts`` a value depends only on its point. With ``density`` the function is the log density of the
    free unconstrained values. The priors of fixed values do not count (as with `pm.do`), and those of ``elsewhere`` are
    of another objective.
    """

    def __init__(
        self,
        problem: Problem,
        method: IntegratesLatent,
        fixed: Point,
        objective: Objective,
        warm_starts: bool = True,
        density: bool = False,
        elsewhere: Collection[str] = (),
    ) -> None:
        self._problem, self._method, self._fixed, self._warm_starts = problem, method, fixed, warm_starts
        self._parts = [problem.part(block) for block in range(len(problem.blocks))]
        self._terms = []  # of the hyperparameters alone
        if objective == "posterior":
            without = {*elsewhere, *fixed}
            key = f"{'densities' if density else 'priors'} without {sorted(without)}"

            def compile_() -> Callable[..., list[Array]]:
                each = problem.log_priors(without, jacobian=density)
                return self._compiled([sum((term.sum() for term in each), start=pt.constant(0.0))])

            self._terms.append(problem.function(key, compile_))
        self._sites = [np.zeros((2, part.targets.size)) for part in self._parts]
        self._known: tuple[Array, float, Array] | None = None
        template = problem.to_unconstrained({**initial_point(problem), **fixed})
        self._all_values = dict(zip(problem.hyperparameters, template, strict=True))
        self._shapes = self._flat(template).point_map_info
        units = units_of(problem)
        self._units = self._flat([units.get(name, np.ones_like(v)) for name, v in self._all_values.items()]).data
        self._log_units = float(np.log(self._units[~self.are_of(elsewhere)]).sum()) if density else 0.0

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient (k,) at x (k,); -inf and zeros if a solve fails. The last ones are kept."""
        if self._known is None or np.abs(x - self._known[0]).max(initial=0.0) > _SAME:
            self._known = x.copy(), *self._evaluated(x)
        return self._known[1:]

    def _evaluated(self, x: Array) -> tuple[float, Array]:
        values, data = self._split(x), self._problem.data.values()
        of_rows = self._problem.function(f"evidence by {self._method!r}", self._compile_rows)

        def of_block(block: int) -> list[Array]:
            part = self._parts[block]
            return of_rows(*values, part.rows, *data, part.targets, self._sites[block])

        found = self._problem.blocks.each(of_block, range(len(self._parts)))
        terms = [[value, *gradient] for value, _, *gradient in found]
        terms += [term(*values, *self._problem.given_data) for term in self._terms]
        value, *gradients = (sum(term[1:], start=term[0]) for term in zip(*terms, strict=True))
        value, gradient = value + self._log_units, self._flat(gradients).data * self._units
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -np.inf, np.zeros_like(x)
        if self._warm_starts:
            self._sites = [sites for _, sites, *_ in found]
        return float(value), gradient

    def value_at(self, point: Point) -> float:
        """Return the value at a point of the hyperparameters."""
        return self(self.pack(point))[0]

    def pack(self, point: Point) -> Array:
        """Return the free unconstrained values (k,) of a point of the hyperparameters."""
        return self._flat(self._problem.to_unconstrained({**point, **self._fixed})).data / self._units

    def unpack(self, x: Array) -> Point:
        """Return the point of free unconstrained values (k,), with the fixed hyperparameters."""
        return {**self._problem.to_constrained(self._split(x)), **self._fixed}

    def highest(self) -> Array:
        """Return upper limits (k,) of the free unconstrained values: above, the noise is far below the jitter.

        Without this limit C grows without bound for repeated rows, which share one f.
        """
        problem, point = self._problem, initial_point(self._problem)
        scale = _FINEST * float(problem.prior.jitter) ** 0.5
        limits = {
            name: np.full(np.shape(point[name]), scale ** problem.loss.parameter(role).power)
            for name, role in find_roles(problem).items()
            if role == "C" and scale > 0.0 and problem.loss.parameter(role).power < 0
        }
        with np.errstate(all="ignore"):
            high = self.pack(point | limits)
        return np.where(self.are_of(limits) & np.isfinite(high), high, np.inf)

    def are_of(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Return which free unconstrained values (k,) belong to hyperparameters of these names."""
        return self._flat([np.full(value.shape, name in names) for name, value in self._all_values.items()]).data > 0

    def climb(self, start: Point, **options: Any) -> Optimum:
        """Maximise from a start, to the tolerance of the method, which grows with many rows; options of `ascend`."""
        n = self._problem.targets.size
        tolerance = tolerance_of(self._method.search.tolerance, n)
        with threads_for(n):
            x = self._aside(self.pack(start))
        found = ascend(self, x, n, tolerance=tolerance, highest=self.highest(), **options)
        reached = self.unpack(found.x), found.value
        return Optimum(*reached, found.converged, found.message, found.n_evaluations, found.curvature)

    def continued(self, found: Optimum, **options: Any) -> Optimum:
        """Continue a search that did not end."""
        if found.converged:
            return found
        more = self.climb(found.point, first_step=0.1, curvature=found.curvature, **options)
        return replace(more, n_evaluations=more.n_evaluations + found.n_evaluations)

    def _aside(self, x: Array) -> Array:
        """Return x (k,), or a higher point beside it if values rest at 0, a saddle where only their squares count."""
        value, slope = self(x)
        rest = (x == 0.0) & (np.abs(slope) <= _AT_REST)
        beside = x.copy()
        beside[rest] = _ASIDE * np.resize([1.0, -1.0], rest.sum()) * np.linspace(1.0, 2.0, rest.sum())
        return beside if rest.any() and self(beside)[0] > value else x

    def usable(self, start: Point | None) -> Point | None:
        """Return the start if it has a value: the optimum of other rows may have none on these."""
        return start if start is not None and np.isfinite(self.value_at(start)) else None

    def restarted(self, found: Optimum) -> Optimum:
        """Return the optimum of other rows, or a point near the optimum, as a start on these rows."""
        return replace(found, objective=self.value_at(found.point), converged=False, curvature=())

    def half_way(self, start: Point, found: Optimum) -> Optimum:
        """Return the midpoint between a start and the optimum of other rows, as a start on these rows."""
        middle = self.unpack(0.5 * (self.pack(start) + self.pack(found.point)))
        return replace(found, point=middle, converged=False, curvature=())

    def second_derivatives(self, found: Optimum, few: SearchObjective) -> Array | None:
        """Approximate minus the second derivatives (k, k) from a part of the rows; None if the search has ended."""
        if found.converged:
            return None
        x, ratio = self.pack(found.point), self._problem.targets.size / few._problem.targets.size
        gradient, second = few(x)[1], np.zeros((x.size, x.size))
        steep = np.abs(gradient) >= _SLOPE  # logs of values that are far too small have neither derivative
        for i in np.flatnonzero(steep):
            second[i, steep] = (gradient - few(x + _DIFFERENCE * np.eye(x.size)[i])[1])[steep]
        return ratio / _DIFFERENCE * second

    def _flat(self, arrays: Sequence[Array]) -> RaveledVars:
        pairs = zip(self._problem.hyperparameters, arrays, strict=True)
        return DictToArrayBijection.map({name: array for name, array in pairs if name not in self._fixed})

    def _split(self, x: Array) -> list[Array]:
        unpacked = RaveledVars(x * self._units, self._shapes)
        return list(DictToArrayBijection.rmap(unpacked, self._all_values).values())

    def _compile_rows(self) -> Callable[..., list[Array]]:
        """Compile the evidence of the rows of one block, the sites (2, m) and the gradients."""
        problem = self._problem
        y, start = pt.vector(), pt.matrix()  # without names, which data may use
        targets = TargetsGraph.of(*problem.ends.graph(y), problem.weight)
        given = problem.loss.name, problem.covariance, problem.mean, targets, problem.parameters, start
        evidence, _, sites = self._method.evidence_graph(*given)
        return self._compiled(problem.model.replace_rvs_by_values([evidence, sites]), [y, start])

    def _compiled(self, graphs: list[Variable], extra: Sequence[Variable] = ()) -> Callable[..., list[Array]]:
        problem = self._problem
        return problem.compile_on(problem.values, [*graphs, *gradients(graphs[0], problem.values)], extra)


class SharedObjective:
    """The sum of the `SearchObjective` of problems that share all hyperparameters except the noise.

    Its x (k,) has the shared unconstrained values, and then the noise of each problem. Options are as in
    `SearchObjective`.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        method: IntegratesLatent,
        fixed: Point | None = None,
        warm_starts: bool = True,
        density: bool = False,
    ) -> None:
        first, count = problems[0], len(problems)
        above = set(ancestors(first.parameters)) if count > 1 else set()
        of_noise = [str(variable.name) for variable in first.variables if variable in above]
        shared = [str(term.name) for term in first.prior_terms if term.name not in of_noise]
        self._each = [
            SearchObjective(problem, method, fixed or {}, "posterior", warm_starts, density, shared if j else ())
            for j, problem in enumerate(problems)
        ]
        own = self._each[0].are_of(of_noise)
        self._places = np.tile(np.cumsum(~own) - 1, (count, 1))  # of the values of each problem in x
        self._places[:, own] = np.sum(~own) + np.arange(own.sum() * count).reshape(count, -1)
        self._size = np.sum(~own) + own.sum() * count

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return value and gradient (k,) at x (k,); -inf and zeros if a solve fails."""
        if len(self._each) == 1:
            return self._each[0](x)
        found = each_block(lambda j: self._each[j](x[self._places[j]]), len(self._each))
        value, gradient = sum(each for each, _ in found), np.zeros_like(x)
        for place, (_, slope) in zip(self._places, found, strict=True):
            gradient[place] += slope
        return (value, gradient) if np.isfinite(value) else (-np.inf, np.zeros_like(x))

    def pack(self, points: Sequence[Point], first: int = 0) -> Array:
        """Return the x (k,) of a point of each problem, with the shared values of the ``first``."""
        x = np.empty(self._size)
        for j in (*range(len(points)), first):
            x[self._places[j]] = self._each[j].pack(points[j])
        return x

    def unpack(self, x: Array) -> list[Point]:
        """Return the point of each problem."""
        return [each.unpack(x[place]) for each, place in zip(self._each, self._places, strict=True)]

    def are_of(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Return which values of x (k,) belong to hyperparameters of these names."""
        found = [place[each.are_of(names)] for place, each in zip(self._places, self._each, strict=True)]
        return np.isin(np.arange(self._size), found)

    def highest(self) -> Array:
        """Return upper limits (k,) of x for the noise, as in `SearchObjective.highest`."""
        x = np.empty(self._size)
        for place, each in zip(self._places, self._each, strict=True):
            x[place] = each.highest()
        return x


def maximize_shared(
    problems: Sequence[Problem], method: IntegratesLatent, points: Sequence[Point], tolerance: float | None = None
) -> list[Optimum]:
    """Maximise the sum of the evidences; return the optimum for each problem.

    ``points`` are the separate optima of the problems. The search starts where the sum is largest: at the shared values
    of one optimum, or at the mean, largest or smallest of each value. If problems depend on different inputs, each
    separate optimum, and their mean, may be constant in the inputs of the others. The sum may have a poor optimum
    there.
    """
    objective = SharedObjective(problems, method)
    starts = [objective.pack(points, j) for j in range(len(points))]
    starts += [of_each(starts, axis=0) for of_each in (np.mean, np.max, np.min)]
    start = max(starts, key=lambda x: objective(x)[0])
    n = sum(problem.targets.size for problem in problems)
    tolerance = tolerance_of(_SHARE * method.search.tolerance if tolerance is None else tolerance, n)
    found = ascend(objective, start, n, tolerance=tolerance, highest=objective.highest())
    end = found.value, found.converged, found.message, found.n_evaluations
    return [Optimum(point, *end) for point in objective.unpack(found.x)]


def check_alike(problems: Sequence[Problem]) -> None:
    """Check that problems have the same hyperparameters; a kernel function may make them from the inputs."""
    first, *others = ({name: each.shape_of(name) for name in each.hyperparameters} for each in problems)
    for other in others:
        if other != first:
            words = "kernel must have the same hyperparameters for each target with shared=True, got"
            raise ValueError(f"{words} {first} and {other}: use shared=False")

"""Hyperparameters at the optimum of evidence times priors.

The optimisation runs in the unconstrained space of the model, but without the Jacobian of its transforms: the optimum
is the mode of the constrained hyperparameters. A part of the rows leaves out starts that are far behind, and a few
steps on all rows choose between the others. The search on all rows begins half way to the point that the part reached,
with the second derivatives of the part: few rows do not see what is narrow, or small, so that a search from that point
itself often ends in a worse optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, log
from typing import Any, Self

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.gp.cov import BaseCovariance
from pymc.initial_point import make_initial_point_fn
from pymc.pytensorf import find_rng_nodes
from pytensor.compile import ViewOp
from pytensor.graph.basic import Apply
from pytensor.graph.replace import graph_replace
from pytensor.scalar.basic import Exp, Reciprocal, TrueDiv
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable as Variable
from rich.progress import Progress
from scipy.spatial import cKDTree
from scipy.stats import norm

from bsvr_pp.core.arrays import Array, Rows
from bsvr_pp.inference.protocol import IntegratesLatent, Objective, Options
from bsvr_pp.inference.search.quasi_newton import Pairs, ascend
from bsvr_pp.model.gaussian import gradients
from bsvr_pp.model.inputs import Warped, WithLevels
from bsvr_pp.model.inventory import ModelError
from bsvr_pp.model.kernels import MainEffects, RationalQuadratic
from bsvr_pp.model.operation import TargetsGraph
from bsvr_pp.model.priors import location_and_scale
from bsvr_pp.model.problem import Point, Problem

_NEAR = 0.03  # largest change of the unconstrained values for which the last solution is a good start
_TRIAL = 10  # evaluations of a start, after which the best start continues if the evidence is continuous
_CLOSE = 15.0  # nats by which starts may be behind the best to be continued once before one is chosen
_DIFFERENCE = 0.05  # step of unconstrained values for second derivatives,
_SLOPE = 0.1  # and smallest first derivative, in nats on a part of the rows, of a value that has them
_NEIGHBOURS = 2000  # about the largest number of rows whose neighbours are sought in the many inputs of linear models
_FINEST = 0.1  # scale of noise, in standard deviations of the jitter, below which predictions no longer change
_SLIGHT = 0.1  # amplitude of all main effects of the second start, in standard deviations of the targets
_NARROW = 0.5  # lengthscale of the second start, in standard deviations of the inputs,
_SMALLEST = 0.1  # and the share of the rows with the smallest differences, from which its noise is estimated
_HALVED = 2000  # number of rows from which half of them are searched first
_FLAT = 200  # number of inputs, such as values of a kernel with all rows, from which a tree is slower than products
_TRIED = 100  # most draws from the priors in search of starts
_ABOVE = 0.5  # nats by which a constant is better than what was found, to be searched from
_LEVEL = 1e-2  # deviation of f, in standard deviations of the targets, of a constant, from which a search can leave it
_FAR = 7.0  # change of unconstrained values: twice this one, and f still varies more with amplitudes alone
_STEPS = 30  # most of them to smaller amplitudes
_SAMPLE = 20  # rows over which the variation of f is seen
_SHAPES = {"C": 1.0, "epsilon": 0.01}, {"C": 3.0, "epsilon": 1.0}, {"C": 1e3, "epsilon": 1.0}  # of noise of a constant
_LEVELS, _UNITS = 100, 80  # quantiles of the targets and scales of the noise, by which its likelihood is seen
_CHOSEN = 0  # seed of the choice of some rows, so that no optimum depends on the seed of the caller
_MANY, _FEW = 400, 200  # rows above which a quarter of them is tried first, and least rows of a quarter


@dataclass(frozen=True, slots=True)
class Optimum:
    """End point of one run of the optimiser, as `Ascent`: the objective is that of `SearchObjective`."""

    point: Point
    objective: float
    converged: bool
    message: str
    n_evaluations: int
    curvature: Pairs = ()

    def record(self) -> dict[str, object]:
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
    problem: Problem, method: IntegratesLatent, fixed: Point, options: Options, rng: Generator
) -> list[Optimum]:
    """Run the optimiser from several starts, or from the given one, as described above; the best optimum is first.

    An interruption ends the optimisation, and the optima so far are returned.
    """
    check_continuous(problem, fixed)
    search = method.search
    restarts, tolerance = options.restarts or search.starts, search.tolerance
    one_optimum, go_on = search.kept == 0, max(ceil(search.kept * restarts), 1)
    levels = _halves(problem) if one_optimum else [problem]

    def objective(rows: Problem) -> SearchObjective:
        return SearchObjective(rows, method, fixed, options.objective)

    whole, part = objective(levels[0]), _part(levels[0])
    few = whole if part is None else objective(part)
    optima: list[Optimum] = []
    with Progress(transient=True, disable=not options.progressbar) as progress:
        task = progress.add_task("hyperparameters", total=restarts + go_on + len(levels) - 1)

        def report() -> None:
            best = max(found.objective for found in optima)
            progress.update(task, advance=1, description=f"hyperparameters, best log objective {best:.3f}")

        try:
            starts = [options.start] if one_optimum and options.start is not None else _starts(problem, restarts, rng)
            choose = one_optimum and len(starts) > 1
            for each in starts if choose or few is whole or not one_optimum else []:
                optima.append(few.climb(each, limit=_TRIAL if choose else np.inf, tolerance=tolerance))
                report()
            if choose:
                close = _close(optima)
                for i in close if len(close) > 1 or few is not whole else []:
                    optima[i] = few.continued(optima[i], limit=_TRIAL, tolerance=tolerance)
            if one_optimum and few is not whole:
                if choose:
                    begun = [whole.half_way(starts[i], optima[i]) for i in _close(optima)]
                else:
                    begun = optima = [whole.climb(starts[0], limit=_TRIAL, tolerance=tolerance)]
                optima = _raced(whole, few, begun, tolerance)
                report()
            elif choose:
                optima = _left(optima)
                optima[0] = whole.continued(optima[0], tolerance=tolerance)
                report()
            elif few is not whole:
                optima = _sorted([whole.restarted(found) for found in _sorted(optima)[:go_on]])
                for i, found in enumerate(optima):
                    optima[i] = whole.continued(found, tolerance=tolerance)
                    report()
            for rows in levels[1:]:
                level = objective(rows)
                half = _sorted([level.restarted(found) for found in optima])[0]
                second = level.second_derivatives(half, objective(_part(rows) or levels[0]))
                optima, whole = [level.continued(half, tolerance=tolerance, second=second)], level
                report()
            if one_optimum and (constant := whole.constant(optima[0])) is not None:
                optima.append(whole.climb(constant, tolerance=tolerance))
        except KeyboardInterrupt:
            if not optima:
                raise
            optima = [replace(o, converged=False, message=f"interrupted; {o.message}") for o in optima]
    return _sorted(optima)


def check_continuous(problem: Problem, fixed: Collection[str]) -> None:
    """Check that no discrete hyperparameter is optimised or sampled by gradients."""
    for name, variable in zip(problem.hyperparameters, problem.variables, strict=True):
        if name not in fixed and np.dtype(variable.dtype).kind != "f":
            raise ModelError(
                f"the hyperparameter {name} is discrete, and only continuous ones are found by gradients: "
                f"give its value, hyperparameters={{{name!r}: ...}}, and compare the evidence of several values"
            )


def _halves(problem: Problem) -> list[Problem]:
    """Halves of the rows, of at least 1000 rows, each of the next, and the problem."""
    levels = [problem]
    while not problem.blocks.several and problem.divisible and (n := levels[0].targets.size) >= _HALVED:
        levels.insert(0, _some(levels[0], n // 2))
    return levels


def _part(problem: Problem) -> Problem | None:
    """A quarter of the rows, or of the blocks, if there are many."""
    n = problem.targets.size
    return _some(problem, max(_FEW, n // 4)) if n > _MANY and problem.divisible else None


def _some(problem: Problem, count: int) -> Problem:
    """So many random rows with their nearest neighbours, or rows of whole blocks; the same ones in each search.

    Without neighbours few rows do not show how much of the targets is noise.
    """
    rng, n = np.random.default_rng(_CHOSEN), problem.targets.size
    if problem.blocks.several or problem.rank is not None or problem.inputs.shape[1] == 0:
        return problem.take(*problem.blocks.some(count, n, rng))
    order = rng.permutation(n)
    pairs = np.stack([order, _neighbours(problem.inputs)[order]], axis=1).ravel()
    return problem.take(np.sort(list(dict.fromkeys(pairs))[:count]))


def _sorted(optima: list[Optimum]) -> list[Optimum]:
    return sorted(optima, key=lambda found: -found.objective)


def _close(tried: list[Optimum]) -> list[int]:
    """Numbers of the starts that are close behind the best."""
    best = max(found.objective for found in tried)
    return [i for i, found in enumerate(tried) if found.objective >= best - _CLOSE]


def _left(optima: list[Optimum]) -> list[Optimum]:
    """The best of several starts first; the messages of others that are unfinished say that they are left."""
    best, *others = _sorted(optima)
    message = "left, behind another start after {} evaluations"
    return [best, *(o if o.converged else replace(o, message=message.format(o.n_evaluations)) for o in others)]


def _raced(whole: SearchObjective, few: SearchObjective, begun: list[Optimum], tolerance: float) -> list[Optimum]:
    """Continue starts that a part of the rows does not tell apart for a few steps with all, and the best to the end."""
    turns, best = [whole.second_derivatives(found, few) for found in begun], 0
    if len(begun) > 1:
        pairs = zip(begun, turns, strict=True)
        begun = [whole.continued(found, limit=_TRIAL, tolerance=tolerance, second=turn) for found, turn in pairs]
        best = int(np.argmax([found.objective for found in begun]))
    optima = _left(begun)
    return [whole.continued(optima[0], tolerance=tolerance, second=turns[best]), *optima[1:]]


class SearchObjective:
    """Log evidence, with the log priors if they are in the objective, as a function of the free unconstrained values.

    The evidence of blocks is a sum, of a function that is compiled once. Each block is warm-started from its previous
    solution if that is near. Without ``warm_starts`` a value depends on its point alone. With ``density`` the function
    is the log density of the free unconstrained values, without the priors of fixed ones.
    """

    def __init__(
        self,
        problem: Problem,
        method: IntegratesLatent,
        fixed: Point,
        objective: Objective,
        warm_starts: bool = True,
        density: bool = False,
    ) -> None:
        self._problem, self._method, self._fixed, self._warm_starts = problem, method, fixed, warm_starts
        self._parts = [problem.part(block) for block in range(len(problem.blocks))]
        self._together = not problem.blocks.several and objective == "posterior"
        self._terms = []  # of the hyperparameters alone
        if objective == "posterior" and not self._together:
            self._terms.append(problem.function("priors", lambda: self._compiled([self._log_priors()])))
        if density:
            key = f"density without {sorted(fixed)}"
            self._terms.append(problem.function(key, lambda: self._compiled([problem.log_jacobian(fixed)])))
        self._at, self._sites = np.array(np.nan), [np.zeros((2, part.targets.size)) for part in self._parts]
        template = problem.to_unconstrained({**initial_point(problem), **fixed})
        self._all_values = dict(zip(problem.hyperparameters, template, strict=True))
        self._shapes = self._flat(template).point_map_info

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Value and gradient (k,) at x (k,); -inf and zeros if a solve fails."""
        if not (self._warm_starts and np.abs(x - self._at).max(initial=0.0) <= _NEAR):
            self._sites = [np.zeros_like(start) for start in self._sites]
        values = self._split(x)
        found = self._of_blocks(values)
        terms = [[value, *gradient] for value, _, *gradient in found]
        terms += [term(*values, *self._problem.given_data) for term in self._terms]
        value, *gradients = (sum(term[1:], start=term[0]) for term in zip(*terms, strict=True))
        gradient = self._flat(gradients).data
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -np.inf, np.zeros_like(x)
        if self._warm_starts:
            self._sites, self._at = [sites for _, sites, *_ in found], x.copy()
        return float(value), gradient

    def pack(self, point: Point) -> Array:
        """Free unconstrained values (k,) of a point of the hyperparameters."""
        return self._flat(self._problem.to_unconstrained({**point, **self._fixed})).data

    def unpack(self, x: Array) -> Point:
        """The point of free unconstrained values (k,), with the fixed hyperparameters."""
        return {**self._problem.to_constrained(self._split(x)), **self._fixed}

    def highest(self) -> Array:
        """Free unconstrained values (k,) above which the noise is far below the jitter of the covariance.

        Without this limit C has no largest value where rows are repeated, which have one f.
        """
        problem, point = self._problem, initial_point(self._problem)
        scale = _FINEST * float(problem.prior.jitter) ** 0.5
        limits = {
            name: np.full(np.shape(point[name]), scale ** problem.loss.parameter(role).power)
            for name, role in _roles(problem).items()
            if role == "C" and scale > 0.0 and problem.loss.parameter(role).power < 0
        }
        with np.errstate(all="ignore"):
            high = self.pack(point | limits)
        free = self._flat([np.full(value.shape, name in limits) for name, value in self._all_values.items()]).data
        return np.where(free.astype(bool) & np.isfinite(high), high, np.inf)

    def climb(self, start: Point, **options: Any) -> Optimum:
        """Maximise from a start; the options are those of `ascend`."""
        found = ascend(self, self.pack(start), self._problem.targets.size, highest=self.highest(), **options)
        reached = self.unpack(found.x), found.value
        return Optimum(*reached, found.converged, found.message, found.n_evaluations, found.curvature)

    def continued(self, found: Optimum, **options: Any) -> Optimum:
        """Continue a search that did not end."""
        if found.converged:
            return found
        more = self.climb(found.point, first_step=0.1, curvature=found.curvature, **options)
        return replace(more, n_evaluations=more.n_evaluations + found.n_evaluations)

    def restarted(self, found: Optimum) -> Optimum:
        """The optimum of other rows as a point from which to continue with these."""
        return replace(found, objective=self(self.pack(found.point))[0], converged=False, curvature=())

    def half_way(self, start: Point, found: Optimum) -> Optimum:
        """The middle of the way from a start to what other rows have reached, as a point from which to continue."""
        middle = self.unpack(0.5 * (self.pack(start) + self.pack(found.point)))
        return replace(found, point=middle, converged=False, curvature=())

    def second_derivatives(self, found: Optimum, few: SearchObjective) -> Array | None:
        """Minus the second derivatives (k, k), about, by those of a part of the rows; None where a search has ended."""
        if found.converged:
            return None
        x, ratio = self.pack(found.point), self._problem.targets.size / few._problem.targets.size
        gradient, second = few(x)[1], np.zeros((x.size, x.size))
        steep = np.abs(gradient) >= _SLOPE  # logs of what is far too small have neither derivative
        for i in np.flatnonzero(steep):
            second[i, steep] = (gradient - few(x + _DIFFERENCE * np.eye(x.size)[i])[1])[steep]
        return ratio / _DIFFERENCE * second

    def constant(self, found: Optimum) -> Point | None:
        """A point at which f hardly varies, with the most likely noise of a constant, if it is above what was found."""
        problem = self._problem
        if problem.loss.targets.values or problem.ends.classes or not problem.divisible or problem.blocks.several:
            return None
        roles, free = _roles(problem), set(self._all_values) - set(self._fixed)
        others = [name for name in free if roles.get(name) not in problem.loss.parameters]
        flat = _flattened(problem, found.point, others)
        if flat is None:
            return None
        flat |= _noise_of_constant(problem, flat, {role: name for name, role in roles.items() if name in free})
        return flat if self(self.pack(flat))[0] > found.objective + _ABOVE else None

    def _flat(self, arrays: Sequence[Array]) -> RaveledVars:
        pairs = zip(self._problem.hyperparameters, arrays, strict=True)
        return DictToArrayBijection.map({name: array for name, array in pairs if name not in self._fixed})

    def _split(self, x: Array) -> list[Array]:
        return list(DictToArrayBijection.rmap(RaveledVars(x, self._shapes), self._all_values).values())

    def _of_blocks(self, values: list[Array]) -> list[list[Array]]:
        """Value, sites (2, m) and gradients of each block."""
        data = self._problem.data.values()
        key = f"{'posterior' if self._together else 'evidence'} by {self._method!r}"
        of_rows = self._problem.function(key, self._compile_rows)

        def of_block(block: int) -> list[Array]:
            part = self._parts[block]
            return of_rows(*values, part.rows, *data, part.targets, self._sites[block])

        return self._problem.blocks.each(of_block, range(len(self._parts)))

    def _compile_rows(self) -> Callable[..., list[Array]]:
        """The function of the rows of one block, together with the log priors if there are no blocks."""
        problem = self._problem
        y, start = pt.vector(), pt.matrix()  # without names, which data may have
        targets = TargetsGraph.of(*problem.ends.graph(y), problem.weight)
        given = problem.loss.name, problem.covariance, problem.mean, targets, problem.parameters, start
        evidence, _, sites = self._method.evidence_graph(*given)
        total, sites = problem.model.replace_rvs_by_values([evidence, sites])
        if self._together:
            total = total + self._log_priors()
        return self._compiled([total, sites], [y, start])

    def _log_priors(self) -> Variable:
        return sum((density.sum() for density in self._problem.log_priors()), start=pt.constant(0.0))

    def _compiled(self, graphs: list[Variable], extra: Sequence[Variable] = ()) -> Callable[..., list[Array]]:
        """Compile graphs, with the gradients of the first."""
        problem = self._problem
        return problem.compile_on(problem.values, [*graphs, *gradients(graphs[0], problem.values)], extra)


def _flattened(problem: Problem, point: Point, names: Collection[str]) -> Point | None:
    """The point with amplitudes at which f hardly varies over the rows; None if there are none.

    With an amplitude the variance of f grows without end. With the inverse of a lengthscale it does not.
    """
    some = problem.take(slice(None, None, 1 + problem.targets.size // _SAMPLE))
    least = _LEVEL * (location_and_scale(problem.targets)[1] or 1e-8)

    def moved(chosen: Collection[str], change: float) -> Point:
        values = zip(problem.hyperparameters, problem.to_unconstrained(point), strict=True)
        return problem.to_constrained([value + change * (name in chosen) for name, value in values])

    def deviation(chosen: Collection[str], change: float) -> float:
        K = some.arrays_at(moved(chosen, change))[0]
        variance = K.var(axis=0).sum() if problem.covariance.by_root else np.mean(np.diag(K)) - np.mean(K)
        return float(np.sqrt(np.maximum(variance, 0.0)))

    with np.errstate(all="ignore"):
        amplitudes = [name for name in names if deviation([name], 2.0 * _FAR) > _FAR * deviation([name], _FAR)]
    if not amplitudes:
        return None
    change = 0.0
    for _ in range(_STEPS):
        found = deviation(amplitudes, change)
        if found <= 2.0 * least:
            return moved(amplitudes, change)
        if not isfinite(found):
            break
        change += log(least / found)  # exact for the log of an amplitude, half of the way for that of a variance
    return None


def _noise_of_constant(problem: Problem, point: Point, names: Mapping[str, str]) -> Point:
    """Likely scales of the noise around a constant, by the ``names`` of its parameters; none if not all have one."""
    noise, loss = problem.noise_at(point), problem.loss
    scales = [role for role in _SHAPES[0] if role in loss.parameters]
    if not set(scales) <= set(names) or any(map(np.ndim, noise.parameters.values())):
        return {}
    y = np.quantile(problem.targets - problem.mean_at(point), (np.arange(_LEVELS) + 0.5) / _LEVELS)
    middle, unit = location_and_scale(y)
    units = np.geomspace(1e-2, 1e2, _UNITS) * (unit or 1e-8)
    residuals = (y - np.array([middle, y.mean(), 0.5 * (y[0] + y[-1])])[:, None])[:, None] / units[:, None]

    def likely(shape: Mapping[str, float]) -> tuple[float, float]:
        each = replace(noise, parameters={**noise.parameters, **{role: shape[role] for role in scales}})
        value = (each.log_density(residuals).mean(axis=2) - np.log(units)).max(axis=0)
        return float(value.max()), float(units[np.argmax(value)])

    (_, unit), shape = max(((likely(shape), shape) for shape in _SHAPES), key=lambda found: found[0])
    return {names[role]: np.asarray(shape[role] * unit ** loss.parameter(role).power) for role in scales}


def initial_point(problem: Problem) -> Point:
    """Return the initial point of the model, as hyperparameters."""

    def compute() -> Point:
        function = problem.function("initial", lambda: make_initial_point_fn(model=problem.model))
        values = function(0)
        return problem.to_constrained([values[value.name] for value in problem.values])

    return problem.cached("initial", compute, any_rows=True)


def _starts(problem: Problem, restarts: int, rng: Generator) -> list[Point]:
    """Starting points: from the data with long and with short lengthscales, from the model, and the two of Chu et al.

    Then draws from the priors, or around the first point if one is improper. None has a potential of -inf.
    """
    initial, roles = initial_point(problem), _roles(problem)
    y, X = problem.targets, problem.inputs
    some = slice(None, None, 1 if problem.rank is None else 1 + y.size // _NEIGHBOURS)
    labels, scale = bool(problem.loss.targets.values), location_and_scale(y)[1] or 1e-8
    noise, least = (1.0, 1.0) if labels else _noise_scales(X[some], y[some])
    widths, d = np.std(X, axis=0), X.shape[1]
    spread = float(np.median(widths[widths > 0])) if (widths > 0).any() else 1.0
    n = max((np.size(initial[name]) for name, role in roles.items() if "lengthscale" in role), default=1)
    if 1 < n < d:  # inputs of one lengthscale are one
        d, spread = n, float(np.sqrt(np.sum(widths**2) / n))

    def guessed(C: float, epsilon: float, lengthscale: float, bias: float, **more: float) -> Point:
        guess = {"C": C, "epsilon": epsilon, "lengthscale": lengthscale, "bias": bias, **more}
        guess["inverse lengthscale"] = 1.0 / lengthscale
        given = {name: guess[role] for name, role in roles.items() if role in guess}
        point = initial | {name: np.full(np.shape(initial[name]), value) for name, value in given.items()}
        with np.errstate(all="ignore"):
            inside = all(np.isfinite(value).all() for value in problem.to_unconstrained(point))
        return point if inside else initial

    known = [
        guessed(2.0**0.5 / noise, 0.3 * noise, spread * d**0.5, scale**2),
        guessed(2.0**0.5 / least, 0.3 * least, spread * _NARROW, scale**2, effect=_SLIGHT * scale / d**0.5),
        initial,
        guessed(1.0 / scale, 0.05 * scale, 2.0**0.5 * spread, 100 * scale**2),
        guessed(10.0 / scale, 0.05 * scale, d**0.5 * spread, 100 * scale**2),
    ]
    if labels:  # which have no scale
        known = [initial]
    new = [point for i, point in enumerate(known) if not any(_same(point, other) for other in known[:i])]
    starts = [point for point in new if _is_possible(problem, point)][:restarts]
    for _ in range(_TRIED):
        if len(starts) == restarts:
            break
        drawn = _draw(problem, rng, new[0])
        if _is_possible(problem, drawn):
            starts.append(drawn)
    if not starts:
        terms = " and ".join(str(term.name) for term in problem.terms)
        raise ModelError(
            f"{terms} has a density of zero at the initial point and at {_TRIED} draws from the priors: set initial "
            "values at which it is possible (initval=...)"
        )
    return starts


def _is_possible(problem: Problem, point: Point) -> bool:
    """Whether potentials and observed variables of hyperparameters have a density above zero."""
    return not problem.terms or bool(np.isfinite(problem.log_prior_at(point)).all())


def _same(point: Point, other: Point) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in point.items())


def _draw(problem: Problem, rng: Generator, point: Point) -> Point:
    """Draw the hyperparameters from their priors; around a point if a prior is improper."""
    sources = find_rng_nodes(problem.variables)

    def compile_() -> Callable[..., list[Array]]:
        stand_in = [source.type() for source in sources]
        graphs = graph_replace(problem.variables, dict(zip(sources, stand_in, strict=True)), strict=False)
        return problem.compile_on(stand_in, graphs)

    seeds = np.random.SeedSequence(int(rng.integers(2**31))).spawn(len(sources))
    try:
        drawn = problem.function("draw", compile_)(*map(np.random.default_rng, seeds), *problem.given_data)
    except NotImplementedError:
        values = problem.to_unconstrained(point)
        return problem.to_constrained([value + rng.normal(size=value.shape) for value in values])
    return {name: np.asarray(value) for name, value in zip(problem.hyperparameters, drawn, strict=True)}


def _noise_scales(X: Array, y: Array) -> tuple[float, float]:
    """Estimate the scale of the noise robustly, from differences between the targets of nearest neighbours.

    The second scale is that of the smallest differences: it is less where many neighbours have the same target.
    """
    if y.size < 3 or X.shape[1] == 0:
        return 2 * (float(np.std(y)) or 1e-3,)
    levels, least = np.array([0.5, _SMALLEST]), 1e-2 * location_and_scale(y)[1] or 1e-8
    scales = np.quantile(np.abs(y - y[_neighbours(X)]), levels) / (2.0**0.5 * norm.ppf(0.5 + 0.5 * levels))
    return max(float(scales[0]), least), max(float(scales.min()), least)


def _neighbours(X: Array) -> Rows:
    """The nearest other row of each row of X (n, d)."""
    width = np.where(np.std(X, axis=0) > 0, np.std(X, axis=0), 1.0)
    if X.shape[1] > _FLAT:
        Z = X / width
        closeness = Z @ Z.T - 0.5 * np.sum(Z**2, axis=1)
        np.fill_diagonal(closeness, -np.inf)
        return np.argmax(closeness, axis=1)
    nearest = cKDTree(X / width).query(X / width, k=2)[1]
    return np.where(nearest[:, 0] == np.arange(len(X)), nearest[:, 1], nearest[:, 0])


def lengthscales(problem: Problem, point: Point) -> Array | None:
    """Lengthscales of the inputs at given hyperparameters, (d,); None if the kernel has none, or several.

    Of several kernels that have slopes they are inverse to the expected slope of f, of which only ratios count.
    """
    with np.errstate(divide="ignore"):
        found = problem.evaluate("lengthscales", lambda: _lengthscales(problem), point)
    return np.broadcast_to(found[0], (problem.inputs.shape[1],)) if len(found) == 1 else None


def _lengthscales(problem: Problem) -> list[Variable]:
    """Graphs of the lengthscales, as `lengthscales` describes."""
    kernels = [kernel for kernel in _addends(problem.prior.cov_func) if hasattr(kernel, "ls")]
    with_slopes = [kernel.slopes() for kernel in kernels if isinstance(kernel, MainEffects | RationalQuadratic)]
    if len(with_slopes) == len(kernels) > 1:
        return [1.0 / pt.sqrt(sum(with_slopes[1:], start=with_slopes[0]))]
    named = [(name, k.ls) for k in kernels for name in (_variable(k.ls), _transformed(k.ls)[0])]
    return list({name: graph for name, graph in named if name in problem.hyperparameters}.values())


def _roles(problem: Problem) -> dict[str, str]:
    """Find the role of each hyperparameter in the model, as far as possible."""
    roles = {}
    for name, graph in zip(problem.loss.parameters, problem.parameters, strict=True):
        if graph.name in problem.hyperparameters:
            roles[graph.name] = name

    for kernel in _addends(problem.prior.cov_func):
        each = (("ls", "lengthscale"), ("c", "bias"), ("amplitude", "effect"))
        found = [(_variable(getattr(kernel, attribute, None)), role) for attribute, role in each]
        for variable, role in [*found, _transformed(getattr(kernel, "ls", None))]:
            if variable in problem.hyperparameters:
                roles[variable] = role
    return roles


def _addends(kernel: BaseCovariance) -> Iterator[BaseCovariance]:
    """A kernel, after its addends and factors, or the kernel of levels and scales in it."""
    inner = [kernel.cov_func] if isinstance(kernel, WithLevels | Warped) else []
    for part in getattr(kernel, "_factor_list", inner):
        yield from _addends(part)
    yield kernel


def _variable(graph: object) -> str | None:
    """Name of a variable, or of that whose values are those of several inputs each."""
    match graph:
        case Variable(name=None, owner=Apply(op=AdvancedSubtensor(), inputs=[source, *_])):
            return _variable(source)
        case Variable(name=str(name)):
            return name
    return None


def _transformed(graph: object) -> tuple[str | None, str]:
    """Name of the variable whose inverse or exponential a graph is, if it has a name, and its role."""
    match graph:
        case Variable(owner=Apply(op=ViewOp(), inputs=[source])):
            return _transformed(source)
        case Variable(owner=Apply(op=Elemwise(scalar_op=Exp()), inputs=[source])):
            return _variable(source), "log lengthscale"
        case (
            Variable(owner=Apply(op=Elemwise(scalar_op=Reciprocal()), inputs=[source]))
            | Variable(owner=Apply(op=Elemwise(scalar_op=TrueDiv()), inputs=[_, source]))
        ):
            return _variable(source), "inverse lengthscale"
    return None, ""

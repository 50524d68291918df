"""Starts of a search for hyperparameters: points from the data, from the model and from the priors.

The role of each hyperparameter in the model (noise, lengthscale or bias) determines its estimate from the data. A
constant is another start: f hardly varies there, and the targets are noise. The lengthscales of a kernel are read from
the model in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from math import isfinite, log

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.random import Generator
from pymc.distributions.distribution import support_point
from pymc.gp.cov import BaseCovariance
from pymc.initial_point import make_initial_point_fn
from pymc.pytensorf import find_rng_nodes
from pytensor.compile import ViewOp
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Exp, Reciprocal, TrueDiv
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable as Variable
from scipy.spatial import cKDTree
from scipy.stats import norm, rankdata

from bsvr_pp.core.arrays import Array, ModelError, Rows, mixed_rows
from bsvr_pp.model.gaussian import INTERPRETED
from bsvr_pp.model.inputs import Warped, WithLevels
from bsvr_pp.model.kernels import MainEffects, RationalQuadratic
from bsvr_pp.model.priors import location_and_scale
from bsvr_pp.model.problem import Point, Problem

_NEIGHBOURS = 2000  # about the largest number of rows for neighbours in the many inputs of linear models
_SLIGHT = 0.1  # amplitude of all main effects of the second start, in standard deviations of the targets
_NARROW = 0.5  # lengthscale of the second start, in standard deviations of the inputs,
_HALVES, _RANGE = 12, 3.5  # largest number of halves of it, and range of the inputs in standard deviations,
_SMALLEST = 0.1  # and the share of the rows with the smallest differences, from which its noise is estimated
_WINDOW, _ALIKE, _LESS = 5, 3.0, 0.5  # a wave: the share of rows within which the mean correlation is below half of
# that of neighbours, which is three standard errors at least,
_MOST, _FEWEST = 3, 10  # and largest number of inputs with waves, smallest number of rows
_WRONG = {"C": 0.6, "reach": 2.0}  # of labels of which some are wrong: a tenth of 25 sets has .5 nats more from here,
_STEEPER = 3.5  # with shorter lengthscales than those of smooth effects,
_CLEARLY = 2.0  # and with as many nats more than right labels with long or equal lengthscales
_STANDARD = 3.0  # largest ratio of the width of standardised inputs to 1: some rows of a table are narrower or wider
_FLAT = 200  # number of inputs (such as kernel values with all rows) from which a tree is slower than products
_TRIED = 100  # largest number of draws from the priors in search of starts
_LEVEL = 1e-2  # deviation of f for a constant, in standard deviations of the targets: a search can leave it
_FAR = 7.0  # change of unconstrained values that separates amplitudes from other values
_NO_LIMIT = 20.0  # and from which a density without a limit is seen
_STEPS = 30  # largest number of steps to smaller amplitudes
_SAMPLE = 20  # rows that measure the variation of f
_SHAPES = {"C": 1.0, "epsilon": 0.01}, {"C": 3.0, "epsilon": 1.0}, {"C": 1e3, "epsilon": 1.0}  # noise of a constant
_MUCH = 10.0  # prior deviation of an unconstrained value from which it is the unit of a search, or its inverse
_LEVELS, _UNITS = 100, 80  # quantiles of the targets and scales of the noise in its likelihood


def initial_point(problem: Problem) -> Point:
    """Return the initial point of the model, as hyperparameters."""

    def compute() -> Point:
        values = problem.function("initial", lambda: make_initial_point_fn(model=problem.model))(0)
        found = [values[value.name] for value in problem.values]
        # A value on a bound has no coordinate.
        return problem.to_constrained([np.where(np.isfinite(v), v, np.zeros_like(v)) for v in found])

    return problem.cached("initial", compute, any_rows=True)


def units_of(problem: Problem) -> Point:
    """Return prior deviations, as units of a search, of hyperparameters without a transform if they are far from 1."""

    def compute() -> Point:
        found = {}
        for v in problem.variables:
            if problem.model.rvs_to_transforms[v] is None:
                try:
                    drawn = pm.draw(v, 99, random_seed=0, mode=INTERPRETED)
                except NotImplementedError:  # such as pm.Flat
                    continue
                deviation = 0.5 * np.diff(np.quantile(drawn, [0.16, 0.84], axis=0), axis=0)[0]
                far = (deviation > _MUCH) | ((deviation > 0.0) & (deviation < 1.0 / _MUCH))
                found[str(v.name)] = np.where(far, deviation, 1.0)
        return found

    return problem.cached("units", compute, any_rows=True)


def choose_starts(
    problem: Problem, restarts: int, rng: Generator, value: Callable[[Point], float] | None = None
) -> list[Point]:
    """Choose starts: from the data with long and short lengthscales, from the model, and the two of Chu et al.

    Then come draws from the priors, or around the first point if a prior is improper. None has a potential of -inf.
    A search finds a function that oscillates many times over the rows only from near its lengthscale. The short one is
    therefore that of largest ``value`` among halves down to the distance of rows. Labels have one start like this, or
    one for wrong labels, and one for a wave along an input.
    """
    initial, roles = initial_point(problem), find_roles(problem)
    y, d = problem.targets, max(1, problem.inputs.shape[1])
    n = max((np.size(initial[name]) for name, role in roles.items() if "lengthscale" in role), default=1)
    of_each = _value_of_each(problem)
    units, of_inputs = _units(problem.inputs, of_each, n)
    order = order_of_rows(problem)
    X, y = (problem.inputs / of_inputs)[order], y[order]
    some = slice(None, None, 1 if problem.rank is None else 1 + y.size // _NEIGHBOURS)
    labels, scale = bool(problem.loss.targets.values), location_and_scale(y)[1] or 1e-8
    noise, least = (1.0, 1.0) if labels else _noise_scales(X[some], y[some])
    widths = np.std(X, axis=0)
    spread = _usual(widths)
    if 1 < n < d:  # inputs that share a lengthscale count as one
        d, spread = n, float(np.sqrt(np.sum(widths**2) / n))

    def guessed(C: float, epsilon: float, lengthscale: float, bias: float, **more: float) -> Point:
        ls = lengthscale * units
        guess: dict[str, float | Array] = {"C": C, "epsilon": epsilon, "bias": bias, **more}
        guess |= {"lengthscale": ls, "inverse lengthscale": 1.0 / ls, "log lengthscale": np.log(ls)}
        given = {name: guess[role] for name, role in roles.items() if role in guess}
        point = initial | {name: _filled(np.shape(initial[name]), value) for name, value in given.items()}
        with np.errstate(all="ignore"):
            inside = all(np.isfinite(value).all() for value in problem.to_unconstrained(point))
        return point if inside else initial

    short = _halves(spread, y.size ** (1.0 / d))
    slight, long = _SLIGHT * scale / d**0.5, spread * d**0.5
    kept = {name: initial[name] for name, role in roles.items() if "lengthscale" not in role}

    def of_wave(noise: float, each: float | None) -> Point:
        """Return a start with a lengthscale of all main effects, or of f if there are none."""
        ls, effects = each or long, "effect" in roles.values()
        more = {"effect": scale if each else slight, "effect inverse lengthscale": 1.0 / ls}
        found = guessed(2.0**0.5 / noise, 0.3 * noise, long if effects else ls, scale**2, **more)
        return found | kept if labels else found

    several = 1 < widths.size < _FLAT and y.size > _FEWEST
    waves = list(_along_inputs(X, y, of_each, of_wave, value)) if value and several else []
    if labels:
        tried = [*(guessed(1.0, 0.0, each, 1.0) for each in short[1:]), *waves]
        steep = guessed(epsilon=0.0, lengthscale=long / _STEEPER, bias=1.0, **_WRONG)
        best = _best([initial, *(point | kept for point in tried)], value)
        wrong = steep | {name: each for name, each in kept.items() if roles[name] not in _WRONG}
        if value is not None and value(wrong) - _CLEARLY > max(value(best), value(steep | kept)):
            best = wrong  # clearly better, also than right steep ones
        known = _distinct([best, _best(waves, value)] if waves else [best])
        restarts = max(restarts, len(known))
    else:
        narrow = [guessed(2.0**0.5 / least, 0.3 * least, each, scale**2, effect=slight) for each in short]
        known = [
            guessed(2.0**0.5 / noise, 0.3 * noise, long, scale**2),
            _best([*narrow, *waves], value),
            initial,
            guessed(1.0 / scale, 0.05 * scale, 2.0**0.5 * spread, 100 * scale**2),
            guessed(10.0 / scale, 0.05 * scale, long, 100 * scale**2),
        ]
    return _completed(problem, _distinct(known), restarts, rng)


def _units(X: Array, of_each: Rows, n: int) -> tuple[Array, Array]:
    """Return the unit of each of n lengthscales in starts, and that of each input.

    It is the width of the inputs, and 1 if they are about standardised. ``of_each`` is as in `_value_of_each`.
    """
    widths = np.std(X, axis=0)
    own = n == of_each.max(initial=0) + 1
    width = np.sqrt(np.bincount(of_each, widths**2)) if own else np.array([_usual(widths)])
    units = np.where((width > _STANDARD) | ((width > 0.0) & (width < 1.0 / _STANDARD)), width, 1.0)
    return units, units[of_each] if own else units


def _usual(widths: Array) -> float:
    return float(np.median(widths[widths > 0])) if (widths > 0).any() else 1.0


def _filled(shape: tuple[int, ...], value: float | Array) -> Array:
    return np.full(shape, value if np.shape(value) == shape else np.median(value))


def _completed(problem: Problem, known: list[Point], restarts: int, rng: Generator) -> list[Point]:
    """Return the known starts that are possible, and draws from the priors up to the number of ``restarts``."""
    starts = [point for point in known if _is_possible(problem, point)][:restarts]
    for _ in range(_TRIED):
        if len(starts) == restarts:
            break
        drawn = _draw(problem, rng, known[0])
        if _is_possible(problem, drawn):
            starts.append(drawn)
    if not starts:
        terms = " and ".join(str(term.name) for term in problem.terms)
        raise ModelError(
            f"{terms} has a density of zero at the initial point and at {_TRIED} draws from the priors: set initial "
            "values at which it is possible (initval=...)"
        )
    return starts


def _distinct(points: Iterable[Point]) -> list[Point]:
    known = list(points)
    return [point for i, point in enumerate(known) if not any(_same(point, other) for other in known[:i])]


def _best(points: Iterable[Point], value: Callable[[Point], float] | None) -> Point:
    some = _distinct(points)
    return some[0] if value is None or len(some) == 1 else max(some, key=value)


def _is_possible(problem: Problem, point: Point) -> bool:
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

    The second scale comes from the smallest differences: it is smaller if many neighbours have the same target.
    """
    if y.size < 3 or X.shape[1] == 0:
        return 2 * (float(np.std(y)) or 1e-3,)
    levels, least = np.array([0.5, _SMALLEST]), 1e-2 * location_and_scale(y)[1] or 1e-8
    scales = np.quantile(np.abs(y - y[neighbour_of_each(X)]), levels) / (2.0**0.5 * norm.ppf(0.5 + 0.5 * levels))
    return max(float(scales[0]), least), max(float(scales.min()), least)


def _halves(width: float, count: float) -> Array:
    """Return a short lengthscale and its halves, down to the distance of ``count`` rows along an input."""
    smallest = np.ceil(np.log2(_NARROW / _RANGE * count))
    return width * _NARROW * 0.5 ** np.arange(np.clip(smallest, 1, _HALVES))


def _along_inputs(
    X: Array, y: Array, of_each: Rows, start: Callable[[float, float | None], Point], value: Callable[[Point], float]
) -> Iterator[Point]:
    """Yield starts with ever shorter lengthscales along each input of `_oscillating`, and long ones along the others.

    ``start`` makes one from the noise and a lengthscale of all inputs; None is a long one, which has a lower ``value``.
    ``of_each`` is as in `_value_of_each`.
    """
    Z = np.column_stack([np.ones(y.size), X])
    rest = y - Z @ np.linalg.lstsq(Z, y)[0]
    for k in _oscillating(X, rest):
        own, noise = np.arange(of_each.max() + 1) == of_each[k], _noise_scales(X[:, [k]], rest)[0]
        wide = start(noise, None)
        least = value(wide)
        for each in _halves(np.std(X[:, k]), y.size):
            short = start(noise, each)
            wave = {name: np.where(own, v, wide[name]) if v.shape == own.shape else v for name, v in short.items()}
            if value(wave) > least:
                yield wave


def _oscillating(X: Array, y: Array) -> Rows:
    """Return inputs along which targets oscillate, at most three, the clearest first.

    Targets of neighbours along the input are alike, but not targets within a fifth of the rows, as for a smooth effect.
    """
    n, window = y.size, max(y.size // _WINDOW, 2)
    mixed = mixed_rows(0, X, y)  # rows with equal values come in any order
    ranks = rankdata(y[mixed])
    z = ((ranks - ranks.mean()) / (ranks.std() or 1.0))[np.argsort(X[mixed], axis=0, kind="stable")]
    near = np.mean(z[1:] * z[:-1], axis=0)
    total = np.cumsum(np.vstack([np.zeros(X.shape[1]), z]), axis=0)
    far = (np.mean((total[window:] - total[:-window]) ** 2, axis=0) / window - 1.0) / (window - 1.0)
    found = np.where((near > _ALIKE / n**0.5) & (far < _LESS * near), near - far, 0.0)
    return np.argsort(-found)[: min(np.count_nonzero(found), _MOST)]


def _value_of_each(problem: Problem) -> Rows:
    """Return the number of the lengthscale of each input; indicators of a column of words share one."""
    each = np.arange(problem.inputs.shape[1])
    graphs = [getattr(kernel, "ls", None) for kernel in _addends(problem.prior.cov_func)]
    for variable in ancestors([graph for graph in graphs if isinstance(graph, Variable)]):
        match variable.owner:
            case Apply(op=AdvancedSubtensor(), inputs=[_, Constant(data=numbers)]) if np.shape(numbers) == each.shape:
                return np.asarray(numbers)
    return each


def order_of_rows(problem: Problem) -> Rows:
    """Return the rows sorted by inputs and targets, so that a choice among them does not depend on their order."""
    return problem.cached("order of rows", lambda: np.lexsort((problem.targets, *problem.inputs.T)))


def neighbour_of_each(X: Array) -> Rows:
    """Return the nearest other row of each row of X (n, d)."""
    width = np.where(np.std(X, axis=0) > 0, np.std(X, axis=0), 1.0)
    if X.shape[1] > _FLAT:
        Z = X / width
        closeness = Z @ Z.T - 0.5 * np.sum(Z**2, axis=1)
        np.fill_diagonal(closeness, -np.inf)
        return np.argmax(closeness, axis=1)
    nearest = cKDTree(X / width).query(X / width, k=2)[1]
    return np.where(nearest[:, 0] == np.arange(len(X)), nearest[:, 1], nearest[:, 0])


def constant_of(problem: Problem, point: Point, fixed: Collection[str]) -> Point | None:
    """Return the point with nearly constant f and the most likely noise of a constant; None if impossible."""
    if problem.loss.targets.values or problem.ends.cutpoints or not problem.divisible or problem.blocks.several:
        return None
    roles, free = find_roles(problem), set(problem.hyperparameters) - set(fixed)
    flat = flatten(problem, point, [name for name in free if roles.get(name) not in problem.loss.parameters])
    if flat is None:
        return None
    return flat | _noise_of_constant(problem, flat, {role: name for name, role in roles.items() if name in free})


def narrow_priors(problem: Problem, point: Point, fixed: Collection[str]) -> Iterator[tuple[str, str, Point]]:
    """Yield a free hyperparameter, another that scales its prior, and a point where this prior is narrow.

    The first is at the centre of its prior there, whose density has no limit.
    """
    of = {name: rv for name, rv in zip(problem.hyperparameters, problem.variables, strict=True) if name not in fixed}
    for (name, rv), (other, above) in permutations(of.items(), 2):
        if above not in ancestors([rv]):
            continue
        for change in (-_NO_LIMIT, _NO_LIMIT):
            there = _moved(problem, point, [other], change)
            try:
                (centre,) = problem.evaluate(f"centre of {name}", lambda rv=rv: [support_point(rv)], there)
            except (NotImplementedError, TypeError, ValueError):  # a distribution of the user without a centre
                break
            yield name, other, {**there, name: centre}


def _moved(problem: Problem, point: Point, names: Collection[str], change: float) -> Point:
    values = zip(problem.hyperparameters, problem.to_unconstrained(point), strict=True)
    return problem.to_constrained([value + change * (name in names) for name, value in values])


def flatten(problem: Problem, point: Point, names: Collection[str]) -> Point | None:
    """Return the point with amplitudes at which f hardly varies over the rows; None if there are none.

    The variance of f grows without bound with an amplitude, but not with an inverse lengthscale.
    """
    some = problem.take(slice(None, None, 1 + problem.targets.size // _SAMPLE))
    least = _LEVEL * (location_and_scale(problem.targets)[1] or 1e-8)

    def deviation(chosen: Collection[str], change: float) -> float:
        K = some.arrays_at(_moved(problem, point, chosen, change))[0]
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
            return _moved(problem, point, amplitudes, change)
        if not isfinite(found):
            break
        change += log(least / found)  # exact for the log of an amplitude, half-way for a variance
    return None


def _noise_of_constant(problem: Problem, point: Point, names: Mapping[str, str]) -> Point:
    """Return likely noise scales around a constant, by ``names`` of parameters; none if one lacks a scale."""
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


def lengthscales(problem: Problem, point: Point) -> Array | None:
    """Return lengthscales of the inputs at given hyperparameters, (d,); None if the kernel has none, or several.

    For a sum of kernels they are inverse to the expected slope of f; only their ratios matter.
    """
    with np.errstate(divide="ignore"):
        found = problem.evaluate("lengthscales", lambda: _lengthscales(problem), point)
    return np.broadcast_to(found[0], (problem.inputs.shape[1],)) if len(found) == 1 else None


def _lengthscales(problem: Problem) -> list[Variable]:
    kernels = [kernel for kernel in _addends(problem.prior.cov_func) if hasattr(kernel, "ls")]
    with_slopes = [kernel.slopes() for kernel in kernels if isinstance(kernel, MainEffects | RationalQuadratic)]
    if len(with_slopes) == len(kernels) > 1:
        return [1.0 / pt.sqrt(sum(with_slopes[1:], start=with_slopes[0]))]
    named = [(name, k.ls) for k in kernels for name in (_variable(k.ls), _transformed(k.ls)[0])]
    return list({name: graph for name, graph in named if name in problem.hyperparameters}.values())


def find_roles(problem: Problem) -> dict[str, str]:
    """Find the role of each hyperparameter in the model, as far as possible."""
    of_noise = zip(problem.loss.parameters, problem.parameters, strict=True)
    roles = {graph.name: name for name, graph in of_noise if graph.name in problem.hyperparameters}
    for kernel in _addends(problem.prior.cov_func):
        part = "effect " if isinstance(kernel, MainEffects) else ""
        each = (("ls", "lengthscale"), ("c", "bias"), ("amplitude", "effect"))
        found = [(_variable(getattr(kernel, attribute, None)), role) for attribute, role in each]
        transformed, kind = _transformed(getattr(kernel, "ls", None))
        for variable, role in [*found, (transformed, part + kind)]:
            if variable in problem.hyperparameters:
                roles[variable] = role
    return roles


def _addends(kernel: BaseCovariance) -> Iterator[BaseCovariance]:
    """Yield the addends and factors of a kernel, or its kernel of levels and scales, and then the kernel."""
    inner = [kernel.cov_func] if isinstance(kernel, WithLevels | Warped) else []
    for part in getattr(kernel, "_factor_list", inner):
        yield from _addends(part)
    yield kernel


def _variable(graph: object) -> str | None:
    """Return the name of a variable, or of a variable whose values are shared by several inputs."""
    match graph:
        case Variable(name=None, owner=Apply(op=AdvancedSubtensor() | DimShuffle(), inputs=[source, *_])):
            return _variable(source)
        case Variable(name=str(name)):
            return name
    return None


def _transformed(graph: object) -> tuple[str | None, str]:
    """Return the name, if any, and the role of the variable whose inverse or exponential a graph is."""
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

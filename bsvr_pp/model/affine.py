"""The location of the noise as an affine function of jointly Gaussian variables: docs/explanation/affine.md.

A process at the rows of the targets is a function of the inputs of new rows. Of any other process, such as
f[group], new rows use the values at its own inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.gp.cov import BaseCovariance, WhiteNoise
from pytensor import scalar
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort

from bsvr_pp.core.arrays import Array, ModelError, Number, Rows, Tensor
from bsvr_pp.model.compiled import Columns, data_of, quick
from bsvr_pp.model.gaussian import (
    INTERPRETED,
    above,
    gaussian_above,
    gaussian_variables,
    gradients,
    parameters_of,
    replace_in,
    shape_of,
    standardised,
    value_of,
)
from bsvr_pp.model.gp import Prior, copies_in, localize

_SIMPLIFY = ("ShapeOpt", "canonicalize", "specialize")
_STEPS = (scalar.Sign, scalar.Ceil, scalar.Floor, scalar.Trunc, scalar.RoundHalfToEven, scalar.RoundHalfAwayFromZero)
_SIZES, _SAME, _ROUNDING = (1e2, 1e4), 1e-8, 1e-12  # of z, and relative tolerances of numbers and of an offset
_NOT_THERE = (ValueError, IndexError, AssertionError)  # of values for which a graph is not defined
_LARGEST = 1e100  # of a location at hyperparameters that are not given: beyond, sums and products overflow


@dataclass(frozen=True, eq=False)
class Process:
    """A process in mu."""

    prior: Prior
    leaf: Tensor  # f less its prior mean
    mean: Tensor  # prior mean at its own rows
    place: Tensor  # its inputs
    aligned: bool = True  # whether it is at the rows of the targets
    single: bool = True  # whether each row of mu has one value of f
    unit: bool = True  # whether f is in mu as it is


class Affine:
    """A location that is affine in processes and Gaussian variables, as kernel and mean of matrices of rows.

    ``location`` is a graph of the leaves of the processes and of the ``variables``. A variable has a leaf and a value
    as a graph of z, by name. ``rowwise`` is whether a row of it depends on the data of this row alone.
    """

    def __init__(
        self,
        model: pm.Model,
        location: Tensor,
        z: Tensor,
        processes: Sequence[Process],
        variables: Mapping[str, tuple[Tensor, Tensor]],
        columns: Columns,
        rowwise: bool,
    ) -> None:
        self._model, self._location, self._columns, self.z = model, location, columns, z
        self.processes, self.variables, self.rowwise = {p.prior.name: p for p in processes}, dict(variables), rowwise
        self._factor_list = [p.prior.cov_func for p in processes]  # where searches look for lengthscales
        self.size = int(z.type.shape[0])

    def own_rows(self, U: Tensor) -> Tensor:
        """The rows of aligned processes: the rows of a training matrix, or all where targets are missing."""
        return U if self._columns.kept is None else self._columns.all_rows

    def names(self) -> set[str]:
        """Names of all variables that are integrated out."""
        return {n for p in self.processes.values() for n in p.prior.latents} | set(self.variables)

    def prior(self, latent: Tensor, target: Tensor) -> Prior:
        """The record of the location as one process."""
        named = self._model.named_vars
        taken = latent.name if latent.name in named else "mu" if "mu" not in named else None
        plain = all(process.aligned and process.unit for process in self.processes.values())
        jitter = sum((process.prior.jitter for process in self.processes.values()), 0.0) if plain else 0.0
        name = taken or f"{target.name}_mu"
        root = self.loading if not self.processes and 0 < self.size < self._columns.n else None
        columns = {process.prior.columns for process in self.processes.values()}
        parts, inputs = frozenset(self.names()), columns.pop() if len(columns) == 1 else ()
        return Prior(name, self._columns.matrix, self, self.at, jitter, None, parts=parts, root=root, columns=inputs)

    def values(self, z: Tensor | None = None) -> dict[str, Tensor]:
        """The Gaussian variables as graphs of z, by default at their prior means."""
        at = {self.z: pt.zeros(self.size) if z is None else z}
        return {name: replace_in(value, at) for name, (_, value) in self.variables.items()}

    @property
    def nothing(self) -> dict[str, Tensor]:
        """The Gaussian variables at 0."""
        return {name: pt.zeros(leaf.type.shape) for name, (leaf, _) in self.variables.items()}

    def at(
        self, U: Tensor, *, f: Mapping[str, Number] | None = None, variables: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """The location (rows,) at a matrix of rows, at values of the variables, and at f less its prior mean."""
        variables = self.values() if variables is None else variables
        known = {leaf: variables[name] for name, (leaf, _) in self.variables.items()}
        for name, process in self.processes.items():
            known[process.leaf] = self.mean_of(process, U, variables) + (f or {}).get(name, 0.0)
        return localize(self._columns.at(self._location, U, known) + pt.zeros(U.shape[0]), self._model)

    def mean_of(self, process: Process, U: Tensor, variables: Mapping[str, Tensor] | None = None) -> Tensor:
        """Prior mean of a process at its own rows; an aligned process has the rows of the matrix."""
        variables = self.values() if variables is None else variables
        leaves = {leaf: variables[name] for name, (leaf, _) in self.variables.items()}
        if process.aligned:
            return localize(self._columns.at(process.mean, U, leaves), self._model) + pt.zeros(U.shape[0])
        return localize(replace_in(process.mean, leaves), self._model) + pt.zeros(process.leaf.type.shape)

    def loading(self, U: Tensor, name: str | None = None) -> Tensor:
        """A (rows, size) at a matrix of rows: the response to z, or to z by the variable of a name."""
        z = pt.vector(shape=(self.size,))
        if name is None:
            graph, zero = self.at(U, variables=self.values(z)), self.at(U)
        else:
            each = self.effect(name, U, self.values(z)[name]) + 0.0 * z.sum()  # also of what acts through others alone
            graph, zero = each, self.effect(name, U)
        return (vectorize_graph(graph, {z: pt.eye(self.size)}) - zero).T if self.size else pt.zeros((U.shape[0], 0))

    def effect(self, name: str, U: Tensor, value: Tensor | None = None) -> Tensor:
        """The share of a variable in the location, at its value, by default at its prior mean."""
        value = self.values()[name] if value is None else value
        return self.at(U, variables=self.nothing | {name: value}) - self.at(U, variables=self.nothing)

    def weights(self, process: Process, U: Tensor) -> Tensor:
        """The factors (rows,) of an aligned process, or B (rows, n) of another one."""
        name = process.prior.name
        if process.aligned and process.unit:
            return pt.ones(U.shape[0])
        if process.aligned:
            return self.at(U, f={name: 1.0}) - self.at(U)
        values = pt.vector(shape=process.leaf.type.shape)
        response = vectorize_graph(self.at(U, f={name: values}), {values: pt.eye(values.type.shape[0])})
        return (response - self.at(U)).T

    def own(self, process: Process, U: Tensor) -> Tensor:
        """Covariance of a process at its own rows, with its jitter; an aligned process has the rows of the matrix."""
        x = self._inputs(process, U)
        return localize(process.prior.cov_func(x) + process.prior.jitter * pt.eye(x.shape[0]), self._model)

    def _inputs(self, process: Process, U: Tensor) -> Tensor:
        return self._columns.at(process.place, U) if process.aligned else process.place

    def with_location(self, process: Process, U: Tensor, V: Tensor) -> Tensor:
        """Covariance of an aligned process at rows U, or of another one at its own, with its share at rows V."""
        if not process.aligned:
            return self.own(process, U) @ self.weights(process, V).T
        covariance = process.prior.cov_func(self._inputs(process, U), self._inputs(process, V))
        return localize(covariance, self._model) * self.weights(process, V)

    def share(self, process: Process, U: Tensor, V: Tensor | None = None) -> Tensor:
        """Covariance of the share of a process at rows U with that at rows V, or at U with its jitter."""
        if V is None and not process.aligned and process.single and not _is_white(process.prior.cov_func):
            factor, index = self._single(process, U)
            same = process.prior.jitter * pt.eq(index[:, None], index)
            covariance = localize(process.prior.cov_func(process.place[index]), self._model) + same
            return covariance * pt.outer(factor, factor)
        weights = self.weights(process, U)
        if process.aligned and V is not None:
            return weights[:, None] * self.with_location(process, U, V)
        if process.aligned:
            covariance = localize(process.prior.cov_func(self._inputs(process, U)), self._model)
            return covariance if process.unit else covariance * pt.outer(weights, weights)
        return weights @ self.with_location(process, U, U if V is None else V)

    def _single(self, process: Process, U: Tensor) -> tuple[Tensor, Tensor]:
        """The factor (rows,) of the one value of a process in each row, and its place."""
        values = pt.stack([pt.ones(process.leaf.type.shape), pt.arange(process.leaf.type.shape[0], dtype="float64")])
        factor, place = (self.at(U, f={process.prior.name: each}) - self.at(U) for each in (values[0], values[1]))
        none = pt.eq(factor, 0.0)
        return factor, pt.round(pt.switch(none, 0.0, place / pt.switch(none, 1.0, factor))).astype("int64")

    def variance(self, process: Process, U: Tensor) -> Tensor:
        """Variance of the share of a process."""
        weights = self.weights(process, U)
        if process.aligned:
            return weights**2 * localize(process.prior.cov_func(self._inputs(process, U), diag=True), self._model)
        return (weights.T * self.with_location(process, U, U)).sum(axis=0)

    def __call__(self, U: Tensor, V: Tensor | None = None, diag: bool = False) -> Tensor:
        """Prior covariance of two matrices, of one with itself (and jitter that differs between rows), or variances."""
        A, each = self.loading(U), self.processes.values()
        if diag:
            return sum((self.variance(process, U) for process in each), (A**2).sum(axis=1))
        total = A @ (A if V is None else self.loading(V)).T if self.size else pt.constant(0.0)
        for process in each:
            total = total + self.share(process, U, V)
            if V is None and process.aligned and not all(p.aligned and p.unit for p in each):
                total = total + pt.diag(process.prior.jitter * self.weights(process, U) ** 2)
        return total


def _is_white(kernel: BaseCovariance) -> bool:
    """Whether a kernel has white noise, which distinguishes rows with the same inputs."""
    parts = [part for value in vars(kernel).values() for part in (value if isinstance(value, list) else [value])]
    return isinstance(kernel, WhiteNoise) or any(_is_white(p) for p in parts if isinstance(p, BaseCovariance))


def affine_of(
    model: pm.Model,
    target: Tensor,
    mu: Tensor,
    processes: Mapping[Tensor, Prior],
    elsewhere: Sequence[Tensor],
    kept: Rows | None = None,
) -> tuple[Affine, Columns]:
    """Read the location ``mu`` of targets, or its rows ``kept``; what ``elsewhere`` depends on is a hyperparameter."""
    held = above([mu])
    if unused := [record.name for f, record in processes.items() if f not in held]:
        raise ModelError(f"the latent function {unused[0]} is no part of mu of {target.name}: take it out")
    places = {f: localize(pt.as_tensor_variable(record.X), model) for f, record in processes.items()}
    kernels = [localize(record.cov_func(places[f]), model) for f, record in processes.items()]
    means = {f: localize(record.mean_func(places[f]), model) for f, record in processes.items()}
    latents = {model[name] for record in processes.values() for name in record.latents}
    chosen = gaussian_above(model, [mu, *means.values()], set(processes), latents, [*kernels, *elsewhere])
    if not chosen and not processes:
        raise ModelError(
            f"mu of {target.name} has no latent function and no Gaussian variable: make f by "
            "bp.GP(cov_func=...).prior(...)"
        )
    z, values = standardised(chosen, set(model.free_RVs))
    leaves = {v: pt.tensor(dtype=v.dtype, shape=shape_of(v)) for v in chosen}
    of_f = {f: pt.tensor(shape=shape_of(f)) for f, r in processes.items()}
    location = _nameless(replace_in(localize(mu, model), leaves | of_f), model)
    means = {f: _nameless(replace_in(mean, leaves), model) for f, mean in means.items()}
    parents = [
        graph for v in chosen for graph in (parameters_of(v) or ([],))[0] if not above([graph]).isdisjoint(chosen)
    ]
    inner = [*means.values(), *(_nameless(replace_in(graph, leaves), model) for graph in parents)]
    graphs = [location, *inner]
    if bent := [v for v, leaf in leaves.items() if not all(_is_linear(graph, [leaf]) for graph in graphs)]:
        return affine_of(model, target, mu, processes, [*elsewhere, *bent], kept)  # they are hyperparameters
    named = {str(v.name): leaf for v, leaf in leaves.items()} | {r.name: of_f[f] for f, r in processes.items()}
    n = len(np.asarray(value_of(model.rvs_to_values[target]))) if kept is None else shape_of(mu)[0]
    numbers = whole = RowValues(model, location, named, n)
    if not above(inner).isdisjoint(leaves.values()):  # what the location has only through other variables
        of_z = replace_in(location, {leaf: leaf + means[f] for f, leaf in of_f.items()})
        of_z = replace_in(of_z, {leaf: localize(values[v], model) for v, leaf in leaves.items()})
        whole = RowValues(model, of_z, {r.name: of_f[f] for f, r in processes.items()} | {"": z}, n)
    try:
        straight = all(_is_linear(graph, list(named.values())) for graph in graphs) and whole.linear()
    except _NOT_THERE as error:  # shapes that do not broadcast
        raise ValueError(_shapes_of(model, target, graphs, n, error)) from error
    if not straight:
        raise ModelError(
            f"mu of {target.name} must be linear in latent functions and Gaussian variables, and "
            f"{_bend(graphs, named)} is not: add linear terms alone, or give a coefficient another prior"
        )
    aligned, rowwise = numbers.aligned([record.name for record in processes.values()])
    records = []
    for f, record in processes.items():
        kind = record.name in aligned, numbers.single(record.name), _is_identity(location, of_f[f])
        records.append(Process(record, of_f[f], means[f], places[f], *kind))
    of_rows = [graph for process in records if process.aligned for graph in (process.place, process.mean)]
    inputs = of_rows[0] if of_rows and of_rows[0].owner is None else _no_inputs(n)  # others are computed from data
    columns = Columns(model, inputs, kept)
    columns.add([location, *of_rows])
    of_rows = [graph if graph.ndim < 2 else graph @ pt.cos(pt.arange(graph.shape[1])) for graph in of_rows]
    rowwise = rowwise and all(RowValues(model, g, named, n).follows() for g in of_rows if g.owner is not None)
    variables = {str(v.name): (leaf, localize(values[v], model)) for v, leaf in leaves.items()}
    return Affine(model, location, z, records, variables, columns, rowwise), columns


def _shapes_of(model: pm.Model, target: Tensor, graphs: Sequence[Tensor], n: int, error: Exception) -> str:
    """Say which data of a location do not fit its targets."""
    rows = {v.name: np.shape(v.get_value())[:1] for v in data_of(model) if not above(graphs).isdisjoint([v])}
    for name in [name for name, size in rows.items() if size not in ((), (1,), (n,))]:
        return (
            f"{name} has {rows[name][0]} rows, and {target.name} has {n}: set it back by pm.set_data, and give "
            "values of new rows by data="
        )
    reason = str(error).partition("\n")[0]
    return f"mu of {target.name} must be one number, or one for each of {n} targets: {reason}"


def has_gaussian_mean(model: pm.Model, record: Prior) -> bool:
    """Whether the mean function of a process has Gaussian variables."""
    held = above([localize(record.mean_func(pt.as_tensor_variable(record.X)), model)])
    return not held.isdisjoint(gaussian_variables(model))


def _no_inputs(n: int) -> Tensor:
    return cast(Tensor, pt.constant(np.zeros((n, 0))))


def _nameless(graph: Tensor, model: pm.Model) -> Tensor:
    """The graph with the model's random variables, and no names of copies, which `localize` would replace."""
    copies = [v for v in copies_in(graph, model) if v.owner is not None]
    basic = {v: model[v.name] for v in copies if model[v.name] in model.basic_RVs}
    for v in set(copies) - set(basic):
        v.name = None
    return replace_in(graph, basic)


def _bend(graphs: Sequence[Tensor], leaves: Mapping[str, Tensor]) -> str:
    """Describe the first operation in graphs that is not linear in leaves."""
    for node in toposort(graphs):
        held = sorted(name for name, leaf in leaves.items() if leaf in above(node.outputs))
        steps = isinstance(getattr(node.op, "scalar_op", None), _STEPS)
        if held and (steps or not all(_is_linear(cast(Tensor, out), [*leaves.values()]) for out in node.outputs)):
            return f"{node.op} of {' and '.join(held)}"
    return "it"


def _is_linear(graph: Tensor, leaves: Sequence[Tensor]) -> bool:
    found = _gradients(graph, [leaf for leaf in leaves if leaf in above([graph])])
    return found is not None and not set(leaves) & above(found[1])


def _is_identity(graph: Tensor, leaf: Tensor) -> bool:
    """Whether the derivative of a graph by a leaf is the identity, whatever the data and the hyperparameters are."""
    found = _gradients(graph, [leaf])
    return found is not None and found[1][0] is found[0]


def _gradients(graph: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]] | None:
    """A direction, and the derivatives by leaves of a graph along it, simplified; None if there are none."""
    if not leaves:
        return graph, []
    if np.dtype(graph.dtype).kind != "f":
        return None
    direction = graph.type()
    try:
        found = gradients((graph * direction).sum(), leaves, [direction])
    except (NullTypeGradError, NotImplementedError):
        return None
    # Not in place: a gradient shares parts with its graph, in which the number of rows would become a constant.
    return direction, [cast(Tensor, rewrite_graph(gradient, include=_SIMPLIFY, clone=True)) for gradient in found]


class RowValues:
    """Values of a location at rows, for values of its leaves, and at points of hyperparameters that are far apart."""

    def __init__(
        self, model: pm.Model, location: Tensor, leaves: Mapping[str, Tensor], n: int, kept: Rows | None = None
    ) -> None:
        self._n, self._rng = n, np.random.default_rng(0)
        self._shapes = {name: tuple(leaf.type.shape) for name, leaf in leaves.items()}
        columns = Columns(model, _no_inputs(n), kept)
        columns.add([location])
        shapes = [tuple(1 if size == 1 != n else None for size in shape) for shape in self._shapes.values()]
        rows, given = pt.matrix(), [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
        graph = columns.at(location, rows, dict(zip(leaves.values(), given, strict=True))) + pt.zeros(rows.shape[0])
        (graph,) = model.replace_rvs_by_values([quick(graph)])
        values = [value for value in model.value_vars if value in above([graph])]
        self._at = pytensor.function([*values, rows, *given], graph, on_unused_input="ignore", mode=INTERPRETED)
        self._rows = columns.values(columns.inputs)
        self._random = {name: self._rng.normal(size=shape) for name, shape in self._shapes.items()}
        self._points = trial_points(model, values, self._rng)

    def __call__(self, point: Sequence[Array], index: Rows | slice = slice(None), /, **values: ArrayLike) -> Array:
        """The location (rows,) at a point and some of the training rows; leaves without values are 0."""
        given = [values.get(name, np.zeros(shape)) for name, shape in self._shapes.items()]
        with np.errstate(all="ignore"):
            return self._at(*point, self._rows[index], *given)

    @cached_property
    def _known(self) -> list[tuple[list[Array], Array, Array]]:
        """Each point at which the location is defined, with the location for leaves that are 0, and that are random."""
        known = []
        for point in self._points:
            try:
                known.append((point, self(point), self(point, **self._random)))
            except _NOT_THERE:
                if not known:  # near the initial hyperparameters
                    raise
        return [each for k, each in enumerate(known) if k == 0 or np.abs(each[2]).max() < _LARGEST]

    def linear(self) -> bool:
        """Whether the location along a line is a line."""
        for k, (point, offset, whole) in enumerate(self._known):
            slope = whole - offset
            for size in _SIZES[k > 0 :]:  # one is enough at the others, which may take long
                found = self(point, **{name: size * value for name, value in self._random.items()}) - offset
                if not _same(found, size * slope, size * np.abs(slope).max(initial=0.0), size * offset):
                    return False
        return True

    def aligned(self, processes: Sequence[str]) -> tuple[set[str], bool]:
        """Processes at the rows of the targets, and whether a row of the location has all from its data."""
        some = [name for name in processes if self._shapes[name] == (self._n,)]
        for count in range(len(some), -1, -1):
            for chosen in combinations(some, count):
                if self.follows(chosen):
                    return set(chosen), True
        return {name for name in some if self._is_diagonal(name)}, False

    def follows(self, chosen: Sequence[str] = ()) -> bool:
        """Whether a row has all from its data and from the same row of some leaves, and nothing from other rows."""
        halves = np.array_split(self._rng.permutation(self._n), 2)  # one of which lacks any row, such as the largest
        try:
            return all(self._follow(self._rng.choice(half, self._n + 1), chosen) for half in halves if half.size)
        except _NOT_THERE:  # shapes that do not follow the rows
            return False

    def _follow(self, index: Rows, chosen: Sequence[str]) -> bool:
        none = {name: np.zeros(index.size) for name in chosen}
        for point, offset, _ in self._known:
            taken = self(point, index, **none)
            if not _same(taken, offset[index], np.ptp(offset), taken):
                return False
            for name, values in self._random.items():  # each alone, as their units may differ
                share = self(point, **{name: values}) - offset
                own = {name: values[index] if name in chosen else values}
                found = self(point, index, **(none | own)) - taken
                if not _same(found, share[index], np.abs(share).max(), taken):
                    return False
        return True

    def _responses(self, name: str) -> Iterator[tuple[Array, ...]]:
        """At each point, the offset, and what a process with values 1, r and r² adds to it, for random r."""
        r = self._random[name]
        for point, offset, _ in self._known:
            yield offset, *(self(point, **{name: values}) - offset for values in (np.ones_like(r), r, r**2))

    def _is_diagonal(self, name: str) -> bool:
        r = self._random[name]
        return all(_same(first, once * r, np.abs(first), offset) for offset, once, first, _ in self._responses(name))

    def single(self, name: str) -> bool:
        """Whether each row has one value of a process."""
        for offset, once, first, second in self._responses(name):
            size = np.abs(once) + np.abs(first) + np.abs(second)
            if not _same(first**2, once * second, size**2, offset * size):
                return False
        return True


def _same(found: Array, expected: Array, size: Array | float, offset: Array) -> bool:
    """Whether numbers of a size differ by rounding alone, also by that of the offset that was subtracted."""
    return bool((np.abs(found - expected) <= _SAME * size + _ROUNDING * np.abs(offset)).all())


def trial_points(model: pm.Model, values: Sequence[Tensor], rng: np.random.Generator) -> list[list[Array]]:
    """Values of unconstrained hyperparameters: near the initial ones, and far from these and from 0 on both sides."""
    if not values:
        return [[]]
    initial = model.initial_point(0)
    start = [initial[v.name] for v in values]
    away = [rng.choice([-1.0, 1.0], size=v.shape) * rng.uniform(1.0, 3.0, size=v.shape) for v in start]
    points = [[v + 0.3 * rng.normal(size=v.shape) for v in start]]
    points += [[k * v + sign * step for v, step in zip(start, away, strict=True)] for k in (0, 1) for sign in (1, -1)]
    whole = [j for j, v in enumerate(values) if np.dtype(v.dtype).kind != "f"]
    for i, j in enumerate(whole):
        with suppress(NotImplementedError):  # a distribution without draws
            seen = np.unique(pm.draw(model.values_to_rvs[values[j]], 200, random_seed=0, mode=INTERPRETED), axis=0)
            for k, point in enumerate(points):
                point[j] = seen[(k >> i) % len(seen)]
    return [[value.astype(v.dtype) for v, value in zip(values, point, strict=True)] for point in points]

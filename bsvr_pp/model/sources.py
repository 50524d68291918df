"""Several observed variables of one latent function, as one variable with the rows of all of them.

The rows of the targets are stacked, and data say which target a row has. Location, noise and interval of a row are
those of its target: a graph of a target is rebuilt for the stacked rows, with the rows of data that it has. A process
has the inputs of the stacked rows, so that several targets may share its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, zip_longest
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, get_idx_list

from bsvr_pp.core.arrays import Array, ModelError, Rows, Tensor
from bsvr_pp.core.losses.registry import LOSSES, Loss
from bsvr_pp.model.compiled import Compiled, data_of
from bsvr_pp.model.distributions import observe
from bsvr_pp.model.gaussian import above, replace_in, replace_in_all, shape_of, value_of
from bsvr_pp.model.gp import Prior, add_latent, copy_model, localize, made_of, remove_below, set_initial_values
from bsvr_pp.model.row_kinds import Interval, Known, missing_name, noise_in, representative

_APART = 1e-5  # of 1 and the variance of f: what rows of f may have each of its own, and not by their inputs
_QUADRATIC = 1e3  # standard deviations up to which Gaussian noise is Huber's, whose log density is -5e5 there
# C, epsilon and beta with which the soft insensitive loss is another one, from the parameters of that.
_AS_SOFT: dict[str, Callable[..., Sequence[TensorLike]]] = {
    "soft_insensitive": lambda C, epsilon, beta: (C, epsilon, beta),
    "epsilon_insensitive": lambda C, epsilon: (C, epsilon, 0.0),
    "huber": lambda C, epsilon: (C, epsilon, 1.0),
    "absolute": lambda C: (C, 0.0, 0.5),
    "gaussian": lambda C: (_QUADRATIC * pt.sqrt(C), 0.5 * _QUADRATIC / pt.sqrt(C), 1.0),
}


class Sources(NamedTuple):
    """The names of stacked targets, of the data that number them, and of the data of rows that each one needs."""

    names: tuple[str, ...]
    number: str
    data: tuple[frozenset[str], ...]

    def of_new_rows(
        self, target: str | None, n: int, data: Mapping[str, ArrayLike], known: Mapping[str, Array]
    ) -> dict[str, ArrayLike]:
        """Complete the data of n new rows: the number of their target, and any values for what it does not need."""
        if target not in self.names:
            raise ValueError(
                f"target must be one of {', '.join(self.names)}, which the model has, got {target!r}: give it to "
                "bp.predict or bp.predict_distribution, since tables and plots do not predict one of several"
            )
        chosen = self.names.index(target)
        others = frozenset().union(*self.data) - self.data[chosen]
        if not_its_own := sorted({*others, self.number} & data.keys()):
            raise ValueError(f"data has {not_its_own[0]!r}, on which {target} does not depend: leave it out")
        filled = {name: np.repeat(known[name][:1], n, axis=0) for name in others if name in known}  # X_new is given
        return {**filled, **data, self.number: np.full(n, chosen)}


def with_one_target(
    model: pm.Model, targets: Sequence[Tensor], processes: Mapping[Tensor, Prior]
) -> tuple[pm.Model, Sources]:
    """The model with the rows of several targets in one observed variable, made once for its data and dims."""
    held = [(np.shape(v.get_value()), hash(np.asarray(v.get_value()).tobytes())) for v in data_of(model)]
    key = [*model.named_vars], held, [int(value_of(size)) for size in model.dim_lengths.values()]
    return made_of(model, "one target", key, lambda: _Stack(model, targets, processes).stacked())


class _Target(NamedTuple):
    name: str
    loss: Loss
    mu: Tensor
    parameters: list[Tensor]
    ends: Known
    values: Array

    @property
    def of_rows(self) -> list[Tensor]:
        """Graphs with a value for each row, or for all."""
        return [self.mu, *self.parameters]

    def as_soft(self) -> _Target:
        """The target with soft insensitive noise, of which its own noise is a limit."""
        parameters = [pt.as_tensor_variable(p) for p in _AS_SOFT[self.loss.name](*self.parameters)]
        return self._replace(loss=LOSSES["soft_insensitive"], parameters=parameters)


def _read(model: pm.Model, variable: Tensor) -> _Target:
    loss, mu, parameters, weight, ends = noise_in(model, variable)
    name = str(variable.name)
    if loss.targets.refusal("residual") or ends.cutpoints:
        raise ModelError(
            f"{name} are labels or ordered classes, which share f with no other observed variable: make them "
            "bp.Interval, with ends -inf and 0 of one class, and 0 and inf of the other"
        )
    if weight.ndim or above(ends.bounds) & {*model.free_RVs}:
        raise ModelError(f"{name} has weights, or ends with hyperparameters, and is not the one observed variable of f")
    values = np.asarray(value_of(model.rvs_to_values[variable]), dtype=np.float64)
    return _Target(name, loss, mu, list(parameters), ends, values)


@dataclass
class _Leaf:
    """A process, data or a constant with rows: a variable of the stacked rows, and the rows that each target has."""

    stacked: Tensor
    rows: dict[int, Rows] = field(default_factory=dict)


class _Stack:
    def __init__(self, model: pm.Model, variables: Sequence[Tensor], processes: Mapping[Tensor, Prior]) -> None:
        targets = [_read(model, v) for v in variables]
        if {t.loss.name for t in targets} <= {*_AS_SOFT} and len({t.loss.name for t in targets}) > 1:
            targets = [t.as_soft() for t in targets]
        if len({t.loss.name for t in targets}) > 1:
            each = " and ".join(f"{t.name} ({t.loss.name})" for t in targets)
            raise ModelError(f"observed variables of one f must have one loss, or limits of the soft one, got {each}")
        if several := [record.name for record in processes.values() if record.blocks.several]:
            raise ModelError(f"{several[0]} has blocks, which are of the rows of one observed variable")
        self._model, self._targets, self._processes = model, targets, processes
        self._data, self._free = cast(set[Tensor], {*data_of(model)}), {*model.free_RVs}
        self._sizes = {f: shape_of(f)[0] for f in processes}
        self._number = np.repeat(np.arange(len(targets)), [t.values.size for t in targets])
        self._leaves: dict[Tensor, _Leaf] = {}
        every = [(k, np.arange(t.values.size), t.values.size) for k, t in enumerate(targets)]
        self._rebuilt = [
            [self._of_rows(graph, *every[k]) if graph.ndim else graph for graph in t.of_rows]
            for k, t in enumerate(targets)
        ]
        held = above([graph for each in self._rebuilt for graph in each], {*self._free, *processes})
        if mixed := [record.name for f, record in processes.items() if f in self._leaves and f in held]:
            raise ModelError(f"{mixed[0]} must have one value in each row of all observed variables that depend on it")
        self._places = {f: self._inputs(f) for f in processes if f in self._leaves}
        for f in self._places:
            self._check_shared(f)
        self._named = [v for v in self._leaves if v in self._data]
        self._order = self._order_of_processes()
        self._check()

    def _of_rows(self, graph: Tensor, k: int, rows: Rows, n: int) -> Tensor:
        """A graph of n rows as one of the stacked rows, of which target k has these rows of it."""
        made: dict[Variable, Variable] = {}

        def of(v: Variable) -> Variable:
            if v not in made:
                made[v] = self._leaf(cast(Tensor, v), k, rows) if self._size(v) == n else rebuild(v)
            return made[v]

        def rebuild(v: Variable) -> Variable:
            if v.owner is None or v in self._processes or v in self._free:
                return v
            whole, chosen = self._choice(cast(Tensor, v))
            if chosen is not None and chosen.size == n:
                inner = self._of_rows(whole, k, chosen[rows], shape_of(whole)[0])
                if inner is not whole:
                    return inner
            inputs = [of(each) for each in v.owner.inputs]
            if all(new is old for new, old in zip(inputs, v.owner.inputs, strict=True)):
                return v
            copy = v.owner.clone_with_new_inputs(inputs, strict=False).outputs[v.owner.outputs.index(v)]
            copy.name = None  # `localize` takes variables by their names
            return copy

        return cast(Tensor, of(graph))

    def _size(self, v: Variable) -> int | None:
        """The number of rows of a process, of data or of a constant; None of another variable."""
        if v in self._processes:
            return self._sizes[cast(Tensor, v)]
        held = isinstance(v, pt.Constant) or v in self._data
        return len(value_of(cast(Tensor, v))) if held and getattr(v, "ndim", 0) in (1, 2) else None

    def _choice(self, v: Tensor) -> tuple[Tensor, Rows | None]:
        """The variable of which v is some rows at places that no data give, and these places."""
        node, held = v.owner, above(v.owner.inputs[1:])
        by_data = isinstance(node.op, AdvancedSubtensor) and held & self._data
        if not isinstance(node.op, Subtensor | AdvancedSubtensor) or by_data or held & self._free:
            return v, None
        first, *others = get_idx_list(node.inputs, node.op.idx_list)
        if isinstance(first, slice) and first == slice(None):
            return v, None
        whole = cast(Tensor, node.inputs[0][(slice(None), *others)] if others else node.inputs[0])
        places = pt.arange(shape_of(whole)[0])[first]
        return whole, cast(Rows, value_of(places)) if places.ndim == 1 else None

    def _leaf(self, v: Tensor, k: int, rows: Rows) -> Tensor:
        leaf = self._leaves.setdefault(v, _Leaf(pt.tensor(dtype=v.dtype, shape=(None,) * v.ndim)))
        if not np.array_equal(leaf.rows.setdefault(k, rows), rows):
            raise ModelError(f"{self._targets[k].name} depends on several rows of {v.name or 'a constant'} in each row")
        return leaf.stacked

    def _inputs(self, f: Tensor) -> Tensor:
        place = localize(pt.as_tensor_variable(self._processes[f].X), self._model)
        return [self._of_rows(place, k, rows, self._sizes[f]) for k, rows in self._leaves[f].rows.items()][-1]

    def _check_shared(self, f: Tensor) -> None:
        """Check that a row of a process that several stacked rows have is the same in all, as their inputs are."""
        model, record, rows = self._model, self._processes[f], np.concatenate([*self._leaves[f].rows.values()])
        if np.unique(rows).size == rows.size:
            return
        x = localize(pt.as_tensor_variable(record.X), model)[:1]
        graphs = [localize(graph, model) for graph in (record.cov_func(x), record.cov_func(x, x))]
        start = model.initial_point(0)
        known = {v: pt.constant(start[v.name]) for v in model.value_vars}
        variance, shared = map(value_of, replace_in_all(model.replace_rvs_by_values(graphs), known))
        if np.abs(variance - shared).max() + record.jitter > _APART * (1.0 + variance.max()):
            raise ModelError(
                f"{record.name} has rows of several targets, and white noise or a jitter above {_APART:g} of its "
                "variance, which each target would have of its own: leave it out, or add it to sigma of each"
            )

    def _rows(self, v: Tensor) -> Rows:
        """The row of a leaf in each stacked row, 0 where the target has none."""
        found = np.zeros(self._number.size, dtype=np.int64)
        for k, rows in self._leaves[v].rows.items():
            found[self._number == k] = rows
        return found

    def _order_of_processes(self) -> Rows:
        """The order of the stacked rows: that of a process, if each of its rows has one target."""
        for f in self._places:
            order = np.argsort(self._rows(f), kind="stable")
            if np.array_equal(self._rows(f)[order], np.arange(self._sizes[f])):
                return order
        return np.arange(self._number.size)

    def _check(self) -> None:
        """Check that the rebuilt graphs have the values of those of the targets, at a draw from the prior.

        In two orders of the rows, since a graph that takes a place of all rows may be right in one.
        """
        rng, graphs = np.random.default_rng(0), [graph for t in self._targets for graph in t.of_rows]
        free = [v for v in self._model.free_RVs if v in above(graphs, {*self._processes})]
        at = dict(zip(free, pm.draw(free, random_seed=0), strict=True)) if free else {}
        at |= {f: rng.normal(size=n) for f, n in self._sizes.items()}
        known = {v: at[v] if v in at else np.asarray(value_of(v)) for v in self._leaves}
        given = [_values(target.of_rows, at) for target in self._targets]
        for order, k in product((self._order, self._order[::-1]), range(len(self._targets))):
            stacked = {leaf.stacked: known[v][self._rows(v)[order]] for v, leaf in self._leaves.items()}
            target, mine = self._targets[k], np.argsort(order)[self._number == k]
            try:
                found = _values([graph + pt.zeros(order.size) for graph in self._rebuilt[k]], at | stacked)
            except ValueError:  # shapes that do not follow the rows
                found = []
            pairs = zip_longest(given[k], found)
            if not all(
                new is not None and np.allclose(old, new[mine], rtol=1e-6, equal_nan=True) for old, new in pairs
            ):
                raise ModelError(
                    f"a row of {target.name} must depend on f and on data of this row alone, where f has several "
                    "observed variables"
                )

    def stacked(self) -> tuple[pm.Model, Sources]:
        """The model of the stacked rows, in which what else depends on f or on the data has the rows that it had."""
        model, places, named = self._model, [*self._places], self._named
        latents = {model[name] for f in places for name in self._processes[f].latents}
        replaced = {*latents, *(model[t.name] for t in self._targets)}
        changed = {*replaced, *named}
        others = [v for v in (*model.deterministics, *model.potentials) if v not in latents and above([v]) & changed]
        if held := [v.name for v in model.basic_RVs if v not in replaced and above([v]) & changed]:
            what = "data of the rows" if above([model[held[0]]]) & {*named} else "f or the value of a target"
            raise ModelError(f"{held[0]} depends on {what}, where f has several observed variables")
        fgraph, memo = copy_model(model, fgraph_from_model)
        remove_below(fgraph, [memo[v] for v in {*replaced, *others}])
        new = set_initial_values(model_from_fgraph(fgraph, mutate_fgraph=True), model)
        rows = {v: self._rows(v)[self._order] for v in self._leaves}
        for v in named:
            new[v.name].set_value(value_of(v)[rows[v]])
            if not np.array_equal(rows[v], np.arange(len(value_of(v)))):
                new.named_vars_to_dims.pop(v.name, None)  # whose coordinates have the rows that the data had
        known = {
            leaf.stacked: new[v.name] if v in named else pt.constant(value_of(v)[rows[v]])
            for v, leaf in self._leaves.items()
            if v not in self._places
        }
        with new:
            for f in places:
                known[self._leaves[f].stacked] = self._add_process(f, replace_in(self._places[f], known), rows[f])
            number = pm.Data("source" if "source" not in new.named_vars else "source_of_row", self._number[self._order])
            self._observe(known, number)
            self._add_others(others, known)
        needed = [{str(v.name) for v in named if k in self._leaves[v].rows} for k in range(len(self._targets))]
        return new, Sources(tuple(t.name for t in self._targets), number.name, tuple(map(frozenset, needed)))

    def _add_process(self, f: Tensor, X: Tensor, rows: Rows) -> Tensor:
        new, record = pm.modelcontext(None), replace(self._processes[f], X=X)
        mean, covariance = (localize(graph, new) for graph in (record.mean_func(X), record.cov_func(X)))
        dims = self._model.named_vars_to_dims.get(f.name) if np.array_equal(rows, np.arange(self._sizes[f])) else None
        return add_latent(record, mean, covariance, **({} if dims is None else {"dims": dims}))

    def _observe(self, known: Mapping[Tensor, Tensor], number: Tensor) -> None:
        new, targets, order = pm.modelcontext(None), self._targets, self._order

        def joined(graphs: Sequence[Tensor]) -> Tensor:
            first, *others = (localize(replace_in(graph, known), new) for graph in graphs)
            if all(graph is graphs[0] for graph in graphs):
                return first
            if not any(graph.ndim for graph in graphs):
                return pt.stack([first, *others])[number]
            for k, graph in enumerate(others, start=1):
                first = pt.switch(pt.eq(number, k), graph, first)
            return first

        mu, *parameters = (joined(graphs) for graphs in zip(*self._rebuilt, strict=True))
        loss, name = targets[0].loss, "_and_".join(t.name for t in targets)
        named = dict(zip(loss.parameters, parameters, strict=True))
        y = np.concatenate([t.values for t in targets])[order]
        if all(t.ends.exact for t in targets):
            observe(name, loss.name, mu, named, y)
            return
        ends = [[np.asarray(value_of(end)) for end in t.ends.graph(pt.constant(t.values))] for t in targets]
        lower, upper = (np.concatenate(each)[order] for each in zip(*ends, strict=True))
        Interval(name, mu, lower, upper, noise=loss.name, observed=representative(lower, upper), **named)

    def _add_others(self, others: Sequence[Tensor], known: Mapping[Tensor, Tensor]) -> None:
        """Add Deterministics and potentials that depend on f or on data, with the rows that these had."""
        new, number = pm.modelcontext(None), self._number[self._order]
        at: dict[Tensor, Tensor] = {self._model[t.name]: pt.constant(t.values) for t in self._targets}
        at |= {v: pt.constant(value_of(v)) for v in self._named}
        for f in self._places:
            leaf = self._leaves[f]
            place = np.full(self._sizes[f], -1)
            used = np.flatnonzero(np.isin(number, list(leaf.rows)))[::-1]
            place[self._rows(f)[self._order][used]] = used  # the first of several
            if (place < 0).any():
                missing = {missing_name(t.name) for t in self._targets}  # which `bp.predict` has too
                others = [v for v in others if v.name not in missing or f not in above([v])]
                if held := [v.name for v in others if f in above([v])]:
                    raise ModelError(
                        f"{held[0]} depends on {f.name}, whose row {np.argmin(place)} has no target: leave it out"
                    )
            at[f] = known[leaf.stacked][place]
        for v in others:
            graph = localize(replace_in(v, {old: new_one for old, new_one in at.items() if old in above([v])}), new)
            dims = self._model.named_vars_to_dims.get(v.name)
            kind = pm.Potential if v in self._model.potentials else pm.Deterministic
            kind(v.name, graph, dims=dims)


def _values(graphs: Sequence[Tensor], at: Mapping[Tensor, Array]) -> list[Array]:
    inputs = {v: v.type() for v in at}
    return Compiled([*inputs.values()], replace_in_all(graphs, inputs))(*at.values())

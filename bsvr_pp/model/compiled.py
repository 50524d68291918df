"""Graphs of a model as functions of any rows, and compiled functions, which threads share.

A PyMC model holds its rows in several places: the inputs, the targets, and data with a value for each of them. Latent
function, noise, sample weights or ends of intervals may depend on these data. `Columns` finds them and writes graphs as
functions of one matrix, whose rows are the training points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Clip
from pytensor.tensor import TensorLike
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor

from bsvr_pp.core.arrays import Array, ModelError, Tensor
from bsvr_pp.model.gaussian import INTERPRETED, replace_in, value_of
from bsvr_pp.model.gp import Prior, localize
from bsvr_pp.model.operation import CovarianceGraph

_LATER = "inputs that were set later differ from a constant that was equal to them: call bp.marginalize with them"


class Compiled:
    """A function of PyTensor for several threads: it has storage of its own, so that each call takes a copy."""

    __slots__ = ("_idle", "_original")

    def __init__(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        self._original = pytensor.function(inputs, outputs, on_unused_input="ignore", mode=INTERPRETED)
        self._idle: list[Callable[..., list[Array]]] = []

    def __call__(self, *arguments: ArrayLike) -> list[Array]:
        """The outputs."""
        try:
            function = self._idle.pop()  # one step, which no other thread can divide
        except IndexError:
            function = self._original.copy()  # the original is never called, so that it can be copied at any time
        try:
            return function(*arguments)
        finally:
            self._idle.append(function)


def data_of(model: pm.Model) -> list[SharedVariable]:
    """The `pm.Data` of a model."""
    return [variable for variable in model.named_vars.values() if isinstance(variable, SharedVariable)]


def quick(graph: Tensor) -> Tensor:
    """The graph with Clip, which PyMC's distances have and which is a Python call an element, as minimum of maximum."""
    replace = dict[Tensor, Tensor]()
    for variable in ancestors([graph]):
        if variable.owner is not None and isinstance(getattr(variable.owner.op, "scalar_op", None), Clip):
            x, low, high = variable.owner.inputs
            above = pt.maximum(x, low)
            bound = high.owner.inputs[0] if high.owner is not None and isinstance(high.owner.op, DimShuffle) else high
            unbounded = isinstance(bound, pt.Constant) and bool(np.all(bound.data == np.inf))
            replace[cast(Tensor, variable)] = above if unbounded else pt.minimum(above, high)
    return replace_in(graph, replace)


def prior_at(prior: Prior, model: pm.Model, matrix: Tensor) -> tuple[CovarianceGraph, Tensor]:
    """Prior covariance and prior mean at a matrix of rows, as graphs of a model."""
    given, mean = (prior.cov_func if prior.root is None else prior.root)(matrix), prior.mean_func(matrix)
    covariance = CovarianceGraph(quick(localize(given, model)), prior.jitter, prior.root is not None)
    return covariance, localize(mean, model)


class RowData(NamedTuple):
    """Data with a value for each row: name (None for a constant), columns of the matrix, shape of one value, values."""

    name: str | None
    columns: tuple[int, ...]
    shape: tuple[int, ...]
    values: np.ndarray


class Columns:
    """Where the matrix of rows, all or those ``kept``, has the inputs (n, d), which are first, and data of each row."""

    def __init__(self, model: pm.Model, X: Tensor, kept: NDArray[np.int64] | None = None) -> None:
        self.model, self.X, self.kept = model, X, kept
        self.inputs = np.array(value_of(X), dtype=np.float64)
        self._places: dict[Variable, tuple[tuple[int, ...], tuple[int, ...], str]] = {}
        self._parts = [X]
        self.data: list[RowData] = []
        self.whole = set[int]()  # columns of the inputs that graphs take as whole numbers alone,
        self.same = set[int]()  # and those of one value that a constant of the model has in each row, too
        self.n, self.n_inputs = self.inputs.shape
        self.width = self.n_inputs

    def add(self, graphs: Sequence[Tensor]) -> None:
        """Find the data of each row among the ancestors of graphs, and give them columns."""
        n, d = self.n, self.n_inputs
        found_above = ancestors([pt.as_tensor_variable(g) for g in graphs], blockers=set(self.model.free_RVs))
        for leaf in cast(Iterable[Tensor], found_above):
            named = isinstance(leaf, SharedVariable) and self.model.named_vars.get(leaf.name) is leaf
            constant = leaf.owner is None and isinstance(leaf, pt.Constant)
            if leaf in self._places or not (named or constant) or not 1 <= getattr(leaf, "ndim", 0) <= 2:
                continue
            values = np.asarray(value_of(leaf))
            if values.shape[:1] != (n,) or values.size == 0 or (constant and _is_index(values, self.kept)):
                continue
            flat = values.reshape(n, -1)
            found = tuple(range(d)) if leaf is self.X else None if named else _columns_of(flat, self.inputs)
            if constant and found is not None and not isinstance(self.X, pt.Constant):
                check = CheckAndRaise(ModelError, _LATER)
                X = cast(Tensor, check(self._parts[0], pt.eq(self._parts[0].shape[0], n)))
                self._parts[0] = cast(Tensor, check(X, pt.eq(X[:, list(found)], flat).all()))
            if found is not None and values.shape != self.inputs.shape:
                self.same.update(k for k in found if np.ptp(self.inputs[:, k]) == 0.0)
            if found is None:
                found = tuple(range(self.width, self.width + flat.shape[1]))
                self.width += flat.shape[1]
                self.data.append(RowData(leaf.name if named else None, found, values.shape[1:], values))
                self._parts.append(pt.as_tensor_variable(leaf).reshape((leaf.shape[0], -1)))
            self._places[leaf] = (found, values.shape[1:], leaf.dtype)

    @property
    def places(self) -> list[object]:
        """The names of data of each row, None of constants, with columns, shapes of one value, and types."""
        return [(leaf.name if isinstance(leaf, SharedVariable) else None, *at) for leaf, at in self._places.items()]

    @property
    def all_rows(self) -> Tensor:
        """The matrix of all rows, as a graph over the data of the model."""
        parts = [part.astype("float64") for part in self._parts]
        return pt.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    @property
    def matrix(self) -> Tensor:
        """The matrix of the training rows, as a graph over the data of the model."""
        return self.all_rows if self.kept is None else self.all_rows[self.kept]

    def at(self, graph: Tensor, matrix: Tensor, given: Mapping[Tensor, Tensor] | None = None) -> Tensor:
        """A graph over the data of the model as one over a matrix of rows, and over given graphs of leaves."""
        inputs = {leaf for leaf, (columns, *_) in self._places.items() if columns[-1] < self.n_inputs}
        whole = {v for v in inputs.intersection(ancestors([graph])) if np.dtype(self._places[v][2]).kind != "f"}
        if whole:
            try:  # years are numbers like others
                return self._at(graph, matrix, given, as_float=whole)
            except (IndexError, NotImplementedError, TypeError, ValueError):  # as an index they are no floats
                self.whole.update(column for leaf in whole for column in self._places[leaf][0])
        return self._at(graph, matrix, given)

    def _at(
        self,
        graph: Tensor,
        matrix: Tensor,
        given: Mapping[Tensor, Tensor] | None,
        as_float: Collection[Variable] = (),
    ) -> Tensor:
        at_rows = dict[Variable, Variable]((given or {}).items())
        for leaf, (columns, shape, dtype) in self._places.items():
            taken = matrix[:, list(columns)] if shape else matrix[:, columns[0]]
            at_rows[leaf] = pt.specify_shape(taken if leaf in as_float else taken.astype(dtype), (None, *shape))
        # Not `graph_replace`, which would keep the number of rows of a constant.
        for node in toposort([graph], blockers=self.model.free_RVs):
            whole, kept = chosen_rows(node.outputs[0])
            if kept is not None and _is_index(kept, self.kept):
                at_rows[node.outputs[0]] = at_rows.get(whole, whole)
            elif any(variable in at_rows for variable in node.inputs):
                copy = node.clone_with_new_inputs([at_rows.get(v, v) for v in node.inputs], strict=False)
                for output in copy.outputs:
                    output.name = None  # `localize` takes variables by their names
                at_rows |= dict(zip(node.outputs, copy.outputs, strict=True))
        return cast(Tensor, at_rows.get(graph, graph))

    def values(self, inputs: Array, data: Mapping[str, ArrayLike] | None = None, width: int | None = None) -> Array:
        """The matrix, or its first columns, of inputs (no copy if alone) and data by name or of the training rows."""
        held = [each for each in self.data if width is None or each.columns[-1] < width]
        others = [each.values if data is None or each.name is None else np.asarray(data[each.name]) for each in held]
        if not others:
            return np.ascontiguousarray(inputs)
        columns = [inputs, *(each.reshape(len(inputs), -1).astype(np.float64) for each in others)]
        return np.ascontiguousarray(np.concatenate(columns, axis=1))

    def used(self, graphs: Sequence[TensorLike]) -> list[RowData]:
        """The data of each row, without the inputs, of which graphs over the data of the model are functions."""
        above = set(ancestors([pt.as_tensor_variable(graph) for graph in graphs]))
        places = {columns for leaf, (columns, _, _) in self._places.items() if leaf in above}
        return [data for data in self.data if data.columns in places]


def chosen_rows[T: Variable](graph: T) -> tuple[T, NDArray[np.int64] | None]:
    """A graph whose first axis another one has at constant places, each once, and these; the other one and None."""
    node = graph.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or node.op.idx_list != (0,):
        return graph, None
    index = getattr(node.inputs[1], "data", None)
    if index is None or index.ndim != 1:
        return graph, None
    places = _places(index)
    once = np.unique(places).size == places.size and (places >= 0).all()  # -1 may be a row that is there already
    return (cast(T, node.inputs[0]), places) if once else (graph, None)


def _places(index: np.ndarray) -> NDArray[np.int64]:
    return np.flatnonzero(index) if index.dtype == bool else index


def _is_index(values: np.ndarray, kept: NDArray[np.int64] | None) -> bool:
    return kept is not None and np.array_equal(_places(values), kept)


def _columns_of(values: Array, inputs: Array) -> tuple[int, ...] | None:
    """Columns of the inputs that are equal to a constant's columns; None if one is not among them."""
    found = []
    for column in values.T:
        same = np.flatnonzero((inputs == column[:, None]).all(axis=0))
        if same.size == 0:
            return None
        found.append(int(same[0]))
    return tuple(found)

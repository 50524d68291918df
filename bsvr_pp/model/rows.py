"""The rows of a model: what it needs of each training point, as arrays of which any rows can be taken.

A PyMC model holds its rows in several places: the inputs, the targets, and data with a value for each of them, on which
the latent function, the noise, sample weights or ends of intervals depend. `Columns` finds them and writes graphs as
functions of one matrix, whose rows are the training points; `Rows` holds the values of this matrix and the targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor import TensorLike
from pytensor.tensor.subtensor import AdvancedSubtensor

from bsvr_pp.core.arrays import Array, Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """Values of training rows: the matrix (n, w) of `Columns`, of which f depends on the first ``width``; targets."""

    matrix: Array
    targets: Array
    width: int

    @property
    def inputs(self) -> Array:
        """What f depends on, (n, width): the inputs, and the other data of a sum of processes."""
        return self.matrix[:, : self.width]

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Rows:
        """Some of the rows, with all that each has of its own."""
        return replace(self, matrix=self.matrix[chosen], targets=self.targets[chosen])


class RowData(NamedTuple):
    """Data with a value for each row: name (None for a constant), columns of the matrix, shape of one value, values."""

    name: str | None
    columns: tuple[int, ...]
    shape: tuple[int, ...]
    values: np.ndarray


class Columns:
    """Where the matrix of rows has the inputs (n, d), which are first, and the data of each row of some graphs.

    The training rows are all, or some rows ``kept``, which graphs take from all.
    """

    def __init__(self, model: pm.Model, X: TensorLike, inputs: Array, kept: NDArray[np.int64] | None = None) -> None:
        self.model, self.X, self._inputs, self.kept = model, X, inputs, kept
        self._places: dict[Variable, tuple[tuple[int, ...], tuple[int, ...], str]] = {}
        self._parts = [pt.as_tensor_variable(X)]
        self.data: list[RowData] = []
        self.n, self.n_inputs = inputs.shape
        self.width = self.n_inputs

    def add(self, graphs: Sequence[Tensor]) -> None:
        """Find the data of each row among the ancestors of graphs, and give them columns."""
        n, d = self._inputs.shape
        found_above = ancestors([pt.as_tensor_variable(g) for g in graphs], blockers=set(self.model.free_RVs))
        for leaf in cast(Iterable[Tensor], found_above):
            named = isinstance(leaf, SharedVariable) and leaf.name in self.model.named_vars
            constant = leaf.owner is None and isinstance(leaf, pt.Constant)
            if leaf in self._places or not (named or constant) or not 1 <= getattr(leaf, "ndim", 0) <= 2:
                continue
            values = np.asarray(value_of(leaf))
            if values.shape[:1] != (n,) or values.size == 0 or (constant and _is_index(values, self.kept)):
                continue
            flat = values.reshape(n, -1)
            found = tuple(range(d)) if leaf is self.X else None if named else _columns_of(flat, self._inputs)
            if found is None:
                found = tuple(range(self.width, self.width + flat.shape[1]))
                self.width += flat.shape[1]
                self.data.append(RowData(leaf.name if named else None, found, values.shape[1:], values))
                self._parts.append(pt.as_tensor_variable(leaf).reshape((leaf.shape[0], -1)))
            self._places[leaf] = (found, values.shape[1:], leaf.dtype)

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
        at_rows = dict[Variable, Variable]((given or {}).items())
        for leaf, (columns, shape, dtype) in self._places.items():
            taken = matrix[:, list(columns)] if shape else matrix[:, columns[0]]
            at_rows[leaf] = pt.specify_shape(taken.astype(dtype), (None, *shape))
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
        """The matrix of inputs (n, d), and of data by name or those of the training rows, or its first columns.

        Inputs alone are not copied: they may be a file that is mapped into memory.
        """
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
    """Columns of the inputs that are equal to those of a constant; None if one is not among them."""
    found = []
    for column in values.T:
        same = np.flatnonzero((inputs == column[:, None]).all(axis=0))
        if same.size == 0:
            return None
        found.append(int(same[0]))
    return tuple(found)


def value_of(variable: TensorLike) -> Array:
    """Value of data: an array, a constant or a pm.Data."""
    if isinstance(variable, np.ndarray):
        return variable
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value())
    value: Array = pt.as_tensor_variable(variable).eval()
    return value

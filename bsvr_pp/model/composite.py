"""The parts of a latent function: processes that are added, linear terms with normal coefficients, and offsets.

The location of the noise may be a sum, such as ``mu = trend + season + X @ b + 3``. Given the hyperparameters it is
one Gaussian process: the kernels are added, a term A(x)·b with b ~ N(m, diag(s²)) has the kernel A(x)·diag(s²)·A(x')ᵀ
and the mean A(x)·m (Rasmussen & Williams 2006, section 2.7), and the rest is added to the prior mean. So all parts are
integrated out together, and exactly. What each part needs of a row (inputs, other data) is one row of a matrix, of
which the covariances are functions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalars
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from bsvr_pp.model.gp import Prior, localize
from bsvr_pp.model.rows import Columns

Graphs = Callable[..., Any]

_MANY = 3.0  # degree of what is not linear
_SAME_DEGREE = (ViewOp, DimShuffle, Reshape, SpecifyShape, Subtensor, AdvancedSubtensor, Sum)
_LARGEST_DEGREE = (Join, MakeVector, SplitDims)


@dataclass(frozen=True, eq=False)
class Part:
    """A process, or a linear term with normal coefficients of the given mean and standard deviation, (p,) each.

    ``covariance`` of two matrices of rows, ``variance``, ``mean``, and the ``design`` (n, p) of a linear term are
    functions that make graphs. The jitter is that of the training rows; ``whitened`` is the name of the whitened
    variable of a process.
    """

    name: str
    covariance: Graphs
    variance: Graphs
    mean: Graphs
    jitter: float = 0.0
    whitened: str | None = None
    design: Graphs | None = None
    coefficients: tuple[Any, Any] | None = None


class Composite:
    """A sum of parts, as kernel and mean function of matrices of rows."""

    def __init__(self, parts: Sequence[Part], offset: Graphs, kernels: list[Any], rows: Any) -> None:
        self.parts, self.offset = tuple(parts), offset
        self.rows = rows  # the matrix of rows, as a graph over the data of the model
        self.kernels = self._factor_list = kernels  # where searches look for lengthscales, as in sums of PyMC

    def __call__(self, U: Any, V: Any = None, diag: bool = False) -> Any:
        """Prior covariance of two matrices of rows, or variances."""
        if diag:
            return sum(part.variance(U) for part in self.parts)
        return sum(part.covariance(U, U if V is None else V) for part in self.parts)

    def mean(self, U: Any) -> Any:
        """Prior mean."""
        return sum((part.mean(U) for part in self.parts), self.offset(U))

    def prior(self, model: pm.Model, latent: Any, target: Any) -> Prior:
        """The record of the sum as one process."""
        taken = latent.name if latent.name in model.named_vars else "mu" if "mu" not in model.named_vars else None
        name = taken or f"{target.name}_mu"
        parts = {each for part in self.parts for each in (part.name, part.whitened) if each is not None}
        jitter = sum(part.jitter for part in self.parts)
        return Prior(name, self.rows, self, self.mean, jitter, None, parts=frozenset(parts))


def composite_of(
    model: pm.Model, mu: Any, processes: dict[Any, Prior], elsewhere: Sequence[Any], columns: Columns
) -> Composite | None:
    """Read a sum of processes, linear terms and offsets; None if the location ``mu`` of the noise is something else.

    A coefficient on which anything depends that is ``elsewhere`` is a hyperparameter. What parts need of a row is added
    to the columns.
    """
    terms = list(_terms(mu, 1, processes))
    found = [term for sign, term in terms if term in processes]
    added = all(sign > 0 for sign, term in terms if term in processes)
    rest = localize(sum((sign * term for sign, term in terms if term not in processes), pt.zeros(())), model)
    used = set(ancestors([rest]))
    if not added or len(found) != len(processes) or set(found) != set(processes) or used & set(processes):
        return None
    places = [pt.as_tensor_variable(localize(pt.as_tensor_variable(processes[f].X), model)) for f in found]
    columns.add([*places, rest])
    free = [b for b in model.free_RVs if b in ancestors([rest], blockers=set(model.free_RVs))]
    records = [(processes[f], place) for f, place in zip(found, places, strict=True)]
    priors = [
        localize(v, model) for record, at_rows in records for v in (record.cov_func(at_rows), record.mean_func(at_rows))
    ]
    normal: list[Any] = []
    for b in free:
        if _is_coefficient(b, model, rest, normal, [*elsewhere, *priors]):
            normal.append(b)
    zero = {b: pt.zeros(_shape(b), dtype=b.dtype) for b in normal}

    def at(U: Any, values: dict[Any, Any]) -> Any:
        graph = graph_replace([rest], values, strict=False)[0] if values else rest
        return columns.at(graph, U) + pt.zeros(U.shape[0])

    parts = [_process(model, record, place, columns) for record, place in records]
    parts += [_linear(b, zero, at) for b in normal]
    kernels = [record.cov_func for record, _ in records]
    return Composite(parts, lambda U: at(U, zero), kernels, columns.matrix)


def _terms(graph: Any, sign: int, whole: Container[Any]) -> Iterator[tuple[int, Any]]:
    """Terms of a sum with their signs; those that are ``whole`` are not divided further."""
    op = getattr(graph.owner, "op", None)
    kind = getattr(op, "scalar_op", None)
    if graph in whole or not (isinstance(op, ViewOp) or isinstance(kind, scalars.Add | scalars.Sub)):
        yield sign, graph
        return
    for i, term in enumerate(graph.owner.inputs):
        yield from _terms(term, -sign if i > 0 and isinstance(kind, scalars.Sub) else sign, whole)


def _process(model: pm.Model, prior: Prior, place: Any, columns: Columns) -> Part:
    def covariance(U: Any, V: Any) -> Any:
        first = columns.at(place, U)
        return localize(prior.cov_func(first, first if V is U else columns.at(place, V)), model)

    return Part(
        prior.name,
        covariance,
        lambda U: localize(prior.cov_func(columns.at(place, U), diag=True), model),
        lambda U: localize(prior.mean_func(columns.at(place, U)), model) + pt.zeros(U.shape[0]),
        prior.jitter,
        prior.whitened,
    )


def _linear(b: Any, zero: dict[Any, Any], at: Graphs) -> Part:
    mean, sd = (pt.broadcast_to(v, _shape(b)).reshape((-1,)) for v in b.owner.op.dist_params(b.owner))

    def design(U: Any) -> Any:
        others = {other: value for other, value in zero.items() if other is not b}
        affine, constant = at(U, others), at(U, zero)
        if b.ndim == 0:
            return (graph_replace([affine], {b: pt.ones((), dtype=b.dtype)}, strict=False)[0] - constant)[:, None]
        # The response to each unit vector.
        return (vectorize_graph(affine, {b: pt.eye(_shape(b)[0], dtype=b.dtype)}) - constant).T

    return Part(
        b.name,
        lambda U, V: (design(U) * sd**2) @ design(V).T,
        lambda U: (design(U) ** 2) @ sd**2,
        lambda U: design(U) @ mean,
        design=design,
        coefficients=(mean, sd),
    )


def _shape(b: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in b.shape.eval())


def _is_coefficient(b: Any, model: pm.Model, rest: Any, known: list[Any], elsewhere: Sequence[Any]) -> bool:
    """Whether a variable is normal, the rest is linear in it and in those known, and nothing else depends on it."""
    if not isinstance(b.owner.op, NormalRV) or b.ndim > 1 or _degree(rest, {*known, b}, {}) != 1:
        return False
    others = [*elsewhere, *model.potentials, *(i for v in model.free_RVs if v is not b for i in v.owner.inputs)]
    return b not in ancestors(others)


def _degree(graph: Any, variables: set[Any], known: dict[Any, float]) -> float:
    """Degree of a polynomial in some variables; `_MANY` for other graphs."""
    if graph in variables:
        return 1
    if graph.owner is None:
        return 0
    if graph not in known:
        op = graph.owner.op
        degrees = [_degree(i, variables, known) for i in graph.owner.inputs]
        kind = getattr(op, "scalar_op", None)
        core = op.core_op if isinstance(op, Blockwise) else op
        if not any(degrees):
            known[graph] = 0
        elif isinstance(op, _SAME_DEGREE):
            known[graph] = degrees[0] if not any(degrees[1:]) else _MANY
        elif isinstance(op, _LARGEST_DEGREE) or isinstance(
            kind, scalars.Add | scalars.Sub | scalars.Neg | scalars.Cast
        ):
            known[graph] = max(degrees)
        elif isinstance(kind, scalars.Mul) or isinstance(core, Dot):
            known[graph] = sum(degrees)
        elif isinstance(kind, scalars.TrueDiv):
            known[graph] = degrees[0] if not degrees[1] else _MANY
        else:
            known[graph] = _MANY
    return known[graph]

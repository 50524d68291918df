"""Support vector models read from PyMC, with their rows and the structure of their covariance.

A `Problem`, made by `bsvr_pp.model.reader`, has a model as graphs, rows, and a partition of them into blocks. Functions
are compiled once per model; data in `pm.Data` may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, cast

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.distributions.transforms import CircularTransform
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, toposort

from bsvr_pp.core.approximations import Covariance
from bsvr_pp.core.arrays import Array, ModelError, Tensor, agree, check_unmasked, warn
from bsvr_pp.core.compiler import rarely_collected
from bsvr_pp.core.covariance.covariance import AnyCovariance, BlockDiagonal, CrossRoot
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.registry import Loss
from bsvr_pp.model.affine import Affine, trial_points
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks, Partition
from bsvr_pp.model.compiled import Columns, Compiled, RowData, data_of, prior_at, quick
from bsvr_pp.model.gaussian import above, gradients, replace_in_all, shape_of
from bsvr_pp.model.gp import Prior, localize
from bsvr_pp.model.operation import CovarianceGraph
from bsvr_pp.model.row_kinds import Known
from bsvr_pp.model.sources import Sources

Point = dict[str, Array]
_MAKES = RLock()  # PyTensor makes one function at a time, whatever the number of threads
_THERE_AND_BACK = 1e-6  # largest relative change of a value that is transformed there and back
_SOME = 50  # rows that show whether the prior of a row depends on others


@dataclass(frozen=True, eq=False)
class Problem:
    """A support vector model of PyMC as graphs and compiled functions of its hyperparameters and of any rows.

    It has rows, values of its `pm.Data`, and blocks between which the prior is independent.
    """

    model: pm.Model
    prior: Prior
    target: str  # name of the observed variable
    loss: Loss
    hyperparameters: tuple[str, ...]  # free variables except the latent function
    columns: Columns  # what the model needs of each row
    matrix: Tensor  # rows, of which the graphs from ``covariance`` to ``ends`` are functions
    covariance: CovarianceGraph
    mean: Tensor
    parameters: tuple[Tensor, ...]
    weight: Tensor
    ends: Known
    latent: Tensor  # location of the noise, as the model has it
    noise_data: list[RowData]  # on which the noise depends
    terms: tuple[Tensor, ...]  # potentials and observed variables of hyperparameters alone
    of_latent: tuple[str, ...]  # descriptions of what else depends on f (`bsvr_pp.model.reader`)
    functions: dict[str, object] = field(repr=False)
    composite: Affine | None  # parts of a latent function that is no single process
    rows: Array  # values of the matrix of `Columns`, (n, w)
    targets: Array
    width: int  # number of columns on which f depends, the first
    data: dict[str, Array]
    blocks: Partition = ONE_BLOCK
    sources: Sources | None = None  # of stacked targets
    noise_rowwise: bool = True  # noise, weights and ends of a row depend on the data of this row alone
    _of_rows: dict[object, object] = field(default_factory=dict, repr=False)
    _of_priors: dict[object, object] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """What a copy has: all but the functions, which it compiles again."""
        return vars(self) | {"functions": {}}

    @property
    def site_parameters(self) -> tuple[Tensor, ...]:
        """Parameters of the sites of the training rows, as evidences take them: parameters of the loss, and weights."""
        return *self.parameters, self.weight

    @property
    def n_inputs(self) -> int:
        """Number of inputs d."""
        return self.columns.n_inputs

    @property
    def variables(self) -> list[Tensor]:
        """The hyperparameters' random variables."""
        return [self.model[name] for name in self.hyperparameters]

    @property
    def prior_terms(self) -> list[Tensor]:
        """Variables and potentials of which the joint prior of the hyperparameters is the product."""
        return [*self.variables, *self.terms]

    @property
    def values(self) -> list[Tensor]:
        """Their unconstrained value variables."""
        return [self.model.rvs_to_values[variable] for variable in self.variables]

    @property
    def y(self) -> Tensor:
        """Targets as the model has them."""
        return self.model.rvs_to_values[self.model[self.target]]

    def prior_at(self, matrix: Tensor) -> tuple[CovarianceGraph, Tensor]:
        """Prior covariance and prior mean at a matrix of rows, as graphs."""
        return prior_at(self.prior, self.model, matrix)

    def function[Made](self, key: str, make: Callable[[], Made]) -> Made:
        """Return the compiled function that ``make`` makes, once for the model."""
        if key not in self.functions:
            # Recording who made each node takes a tenth longer.
            with _MAKES, rarely_collected(), pytensor.config.change_flags(traceback__limit=0):
                self.functions[key] = make()
        return cast(Made, self.functions[key])

    def compile(self, outputs: Sequence[Variable], extra: Sequence[Variable] = ()) -> Compiled:
        """Compile graphs into a function of the constrained hyperparameters, as `compile_on`."""
        inputs = [variable.type(name=variable.name) for variable in self.variables]
        graphs = replace_in_all(outputs, dict(zip(self.variables, inputs, strict=True)))
        return self.compile_on(inputs, graphs, extra)

    def compile_on(
        self, variables: Sequence[Variable], outputs: Sequence[Variable], extra: Sequence[Variable] = ()
    ) -> Compiled:
        """Compile graphs into a function of given variables, the matrix of rows, the model's data, and extra inputs."""
        shared = data_of(self.model)
        stand_in = [variable.type() for variable in shared]
        if shared:
            outputs = replace_in_all(outputs, dict[Variable, Variable](zip(shared, stand_in, strict=True)))
        return Compiled([*variables, self.matrix, *stand_in, *extra], outputs)

    def noise_model(self, parameters: Sequence[ArrayLike]) -> NoiseModel:
        """Noise with the given parameters, numbers or (n,) arrays."""
        named = zip(self.loss.parameters, (np.asarray(p, dtype=np.float64) for p in parameters), strict=True)
        return NoiseModel(self.loss, {k: float(p.reshape(-1)[0]) if p.size == 1 else p.ravel() for k, p in named})

    @property
    def inputs(self) -> Array:
        """What f depends on, (n, width): the inputs, and in a sum of processes the data of its parts."""
        return self.rows[:, : self.width]

    @property
    def own_names(self) -> tuple[str | None, str | None]:
        """Names of the data that are inputs and targets, if they have names."""
        return self.columns.X.name, self.y.name

    @property
    def rank(self) -> int | None:
        """Number of columns of the root by which the covariance is known; None where it is a matrix."""
        return self.composite.size if self.composite is not None and self.covariance.by_root else None

    def part(self, block: int) -> Problem:
        """The problem of the rows of one block."""
        return self.take(self.blocks.rows(block)) if self.blocks.several else self

    @property
    def divisible(self) -> bool:
        """Whether some of the rows are a problem of their own: a row depends on the data of this row alone."""
        f_rowwise = self.composite is None or (self.composite.rowwise and self.columns.kept is None)
        return f_rowwise and self.noise_rowwise

    def take(self, chosen: NDArray[np.int64] | slice, blocks: Partition = ONE_BLOCK) -> Problem:
        """The problem of some rows, in one block or in given blocks; other data are as they are."""
        self.check_rows()
        return replace(self, rows=self.rows[chosen], targets=self.targets[chosen], blocks=blocks, _of_rows={})

    def check_rows(self) -> None:
        """Check that the noise of some rows is known without the others."""
        if not self.noise_rowwise:
            raise ModelError(
                f"noise, weights and ends of a row of {self.target} must be computed from data of this row alone, "
                "where a method takes some rows alone, such as blocks: give pm.Data with a value for each row"
            )

    def with_data(
        self, inputs: Array, targets: Array, /, *, blocks: Partition = ONE_BLOCK, **data: ArrayLike
    ) -> Problem:
        """The same problem with other rows and `pm.Data`, on which no shape or prior of a hyperparameter may depend."""
        changed = dict(self.data)
        for name, value in [*data.items(), *zip(self.own_names, (inputs, targets), strict=True)]:
            if name in changed:
                changed[name] = np.asarray(value, dtype=changed[name].dtype)
        rows = self.columns.values(inputs, changed)
        return replace(self, rows=rows, targets=targets, data=changed, blocks=blocks, _of_rows={})

    def cached[Made](self, key: object, make: Callable[[], Made], *, any_rows: bool = False) -> Made:
        """Return the result of ``make``, which is called once for these rows, or for this problem with any rows."""
        kept = self._of_priors if any_rows else self._of_rows
        if key not in kept:
            kept[key] = make()
        return cast(Made, kept[key])

    def evaluate(
        self,
        key: str,
        graphs: Callable[..., Sequence[Tensor]],
        point: Mapping[str, ArrayLike],
        *given: Array,
        matrix: Array | None = None,
    ) -> list[Array]:
        """Values of graphs at given hyperparameters, at the training rows or at another matrix.

        ``graphs`` makes them from a variable for each of the other given arrays, whose first axis may have any length.
        They are compiled once for the model and the lengths of other axes, under the name ``key``.
        """
        shapes = [(None, *array.shape[1:])[: array.ndim] for array in given]

        def compile_() -> Compiled:
            variables = [pt.tensor(dtype=a.dtype, shape=shape) for a, shape in zip(given, shapes, strict=True)]
            return self.compile(list(graphs(*variables)), extra=variables)

        found: list[Array] = self.function(f"{key} {shapes}", compile_)(*self.arguments(point, matrix), *given)
        return found

    def at(self, point: Mapping[str, ArrayLike], progress: str = "") -> tuple[AnyCovariance, Array, NoiseModel]:
        """Prior covariance, prior mean and noise of the training rows; ``progress`` is the text of a bar for blocks."""
        if self.blocks.several:
            rows = list(cast(Blocks, self.blocks))
            covariance = BlockDiagonal(rows, lambda block: self.part(block).dense_at(point)[0], progress=progress)
            return covariance, self.mean_at(point), self.noise_of_rows(point)
        return self.dense_at(point)

    def arrays_at(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Prior covariance or its root, prior mean and parameters of the sites, of rows that are one block."""

        def graphs() -> list[Tensor]:  # the sum with the jitter takes long to make
            K = self.covariance
            return [K.given if K.by_root else K.matrix, self.mean, *self.site_parameters]

        return self.evaluate("at", graphs, point)

    def dense_at(self, point: Mapping[str, ArrayLike]) -> tuple[Covariance, Array, NoiseModel]:
        """As `at`, for rows that are one block."""
        K, mean, *of_sites = self.arrays_at(point)
        offset = np.broadcast_to(mean, (self.targets.size,)).copy()
        return self._covariance(K, self.prior.jitter), offset, self.noise_of_rows(point, of_sites)

    def _covariance(self, given: Array, jitter: float = 0.0) -> Covariance:
        if self.covariance.by_root:
            return Covariance.from_root(given, np.full(len(given), jitter))
        try:
            return Covariance(given, jitter=jitter)
        except ValueError as error:
            raise ModelError(f"the kernel has rounding errors or is no covariance: {error}; centre X") from None

    def mean_at(self, point: Mapping[str, ArrayLike]) -> Array:
        """Prior mean (n,) of the training rows at given hyperparameters."""
        (mean,) = self.evaluate("mean", lambda: [self.mean], point)
        return np.broadcast_to(mean, (self.targets.size,)).copy()

    def noise_at(self, point: Mapping[str, ArrayLike], matrix: Array | None = None) -> NoiseModel:
        """Noise of new targets at given hyperparameters, at the training rows or at another matrix."""
        return self.noise_model(self.evaluate("parameters", lambda: self.parameters, point, matrix=matrix))

    def noise_of_rows(self, point: Mapping[str, ArrayLike], at_point: list[Array] | None = None) -> NoiseModel:
        """Noise of the training rows, with their weights or intervals; ``at_point`` are known `site_parameters`."""
        *parameters, weight = at_point or self.evaluate("sites", lambda: self.site_parameters, point)
        return self.in_intervals(self.noise_model(parameters).weighted(weight), point)

    def in_intervals(self, noise: NoiseModel, point: Mapping[str, ArrayLike]) -> NoiseModel:
        """The noise with the ends of the targets at given hyperparameters; as it is if the targets are exact."""
        if self.ends.exact:
            return noise
        lower, upper = self.evaluate("ends", self.ends.graph, point, self.targets)
        if self.ends.kind.possible and (row := next(iter(np.flatnonzero(lower > upper)), None)) is not None:
            raise ModelError(f"{self.target} must be {self.ends.kind.possible}, got {self.targets[row]:g} in row {row}")
        return noise.between(lower, upper)

    def given_ends(self) -> dict[str, Array]:
        """Ends (n,) that are data, "lower" and "upper"; none of exact targets and classes, and if not all are data."""
        if not self.ends.row_bounds or set(self.variables) & set(ancestors(self.ends.row_bounds)):
            return {}
        y = pt.vector()
        compiled = self.function("given ends", lambda: self.compile_on([], list(self.ends.graph(y)), [y]))
        found = compiled(*self.given_data, self.targets)
        return {name: end.astype(np.float64) for name, end in zip(("lower", "upper"), found, strict=True)}

    def cutpoints_at(self, point: Mapping[str, ArrayLike]) -> Array | None:
        """Cut points of ordered classes at given hyperparameters; None for other targets."""
        if not self.ends.cutpoints:
            return None
        return np.asarray(self.evaluate("cutpoints", lambda: self.ends.cutpoints, point)[0], dtype=np.float64)

    def cross(self, point: Mapping[str, ArrayLike], X_new: Array) -> tuple[Any, Array, Array]:
        """Covariance of new and training inputs, (n_new, n) or a `CrossRoot`, and prior variance and mean there."""

        def graphs(new: Tensor) -> list[Tensor]:
            covariance, training = self.prior.cov_func, self.matrix[:, : self.width]
            roots = [] if self.prior.root is None else [self.prior.root(new), self.prior.root(training)]
            each = *(roots or [covariance(new, training)]), covariance(new, diag=True), self.prior.mean_func(new)
            return [quick(localize(graph, self.model)) for graph in each]

        *given, diagonal, mean = self.evaluate("cross", graphs, point, X_new)
        K_star = CrossRoot(*given) if self.covariance.by_root else given[0]
        return K_star, np.broadcast_to(diagonal, (len(X_new),)), np.broadcast_to(mean, (len(X_new),))

    def between(self, point: Mapping[str, ArrayLike], X: Array, training: int = 0) -> Covariance:
        """Prior covariance of inputs with one another; the first ones are ``training`` rows, which have the jitter."""
        (given,) = self.evaluate("between", lambda new: [self.prior_at(new)[0].given], point, X)
        jitter, by_root = np.repeat([self.prior.jitter, 0.0], [training, len(X) - training]), self.covariance.by_root
        return Covariance.from_root(given, jitter) if by_root else self._covariance(given + np.diag(jitter))

    def prior_of_each(self, point: Mapping[str, ArrayLike], X: Array) -> tuple[Array, Array]:
        """Prior covariance (m, r, r), without jitter, and prior mean (m, r) of each of m sets of inputs (m, r, d)."""
        (m, r, d), given = X.shape, self.arguments(point)

        def compile_() -> Callable[..., Sequence[Array]]:
            one, many = pt.matrix(shape=(None, d)), pt.tensor3(shape=(None, None, d))
            covariance, mean = self.prior_at(one)
            graphs = [covariance.smooth, mean]
            single = self.compile(graphs, extra=[one])

            def in_turn(*arguments: Array) -> list[Array]:
                *given, X = arguments
                K, mean = zip(*(single(*given, x) for x in X), strict=True)
                return [np.stack(K), np.stack([np.broadcast_to(each, X.shape[1]) for each in mean])]

            try:
                together = self.compile([*cast(list[Tensor], vectorize_graph(graphs, {one: many}))], extra=[many])
            except (NotImplementedError, TypeError, ValueError):
                return in_turn
            # PyTensor 3 vectorises some graphs with set_subtensor to others
            pairs = zip(together(*given, X[:1]), in_turn(*given, X[:1]), strict=True)
            same = all(np.allclose(found, expected, rtol=1e-6) for found, expected in pairs)
            return together if same else in_turn

        K, mean = self.function("prior of each", compile_)(*given, X)
        return np.broadcast_to(K, (m, r, r)), np.broadcast_to(mean, (m, r))

    @property
    def given_data(self) -> list[Array]:
        """Rows and other data, as functions of `compile_on` take them after their variables."""
        return [self.rows, *self.data.values()]

    def arguments(self, point: Mapping[str, ArrayLike], matrix: Array | None = None) -> list[Array]:
        """Hyperparameters, rows and data in the order of the arguments of functions from `compile`."""
        variables = zip(self.hyperparameters, self.variables, strict=True)
        rows = self.rows if matrix is None else matrix
        return [*(np.asarray(point[name], dtype=v.dtype) for name, v in variables), rows, *self.data.values()]

    def to_unconstrained(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Values of the unconstrained variables at given hyperparameters."""
        found = self.evaluate("forward", lambda: [forward(self.model, v) for v in self.variables], point)
        return [np.asarray(value) for value in found]

    def to_constrained(self, values: Sequence[Array]) -> Point:
        """Hyperparameters at given values of the unconstrained variables."""
        # Bounds of a transform may depend on other hyperparameters.
        found = self._at_values("backward", lambda: self.model.replace_rvs_by_values(self.variables), values)
        return {name: np.asarray(value) for name, value in zip(self.hyperparameters, found, strict=True)}

    def log_priors(self, without: Collection[str] = (), *, jacobian: bool = False) -> list[Tensor]:
        """Log prior density of each hyperparameter, and further terms, but some names, as graphs of ``values``.

        The densities are those of the constrained hyperparameters; with ``jacobian``, of ``values``.
        """
        model, variables = self.model, [term for term in self.prior_terms if term not in self.model.potentials]
        # Without f and its targets: the graph of their density takes seconds.
        held = above(variables)
        # All values, also of names left out: PyMC copies the parents of some, and knows copies by them.
        values = {v: value for v, value in model.rvs_to_values.items() if v in held}
        of_values = {"rvs_to_values": values, "rvs_to_transforms": {v: model.rvs_to_transforms[v] for v in values}}
        densities = transformed_conditional_logp(variables, jacobian=jacobian, **of_values)
        graphs = zip(self.prior_terms, [*densities, *self.prior_terms[len(variables) :]], strict=True)
        found: list[Tensor] = model.replace_rvs_by_values([graph for term, graph in graphs if term.name not in without])
        return found

    def log_prior_at(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Values of `log_priors` at given hyperparameters, each summed over the entries of a vector."""
        values = self.to_unconstrained(point)
        return self._at_values("log prior", lambda: [density.sum() for density in self.log_priors()], values)

    def _at_values(self, key: str, graphs: Callable[[], Sequence[Tensor]], values: Sequence[Array]) -> list[Array]:
        """As `evaluate`, of graphs of ``values``."""
        return self.function(key, lambda: self.compile_on(self.values, graphs()))(*values, *self.given_data)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Shape of a hyperparameter."""
        return self.cached(f"shape of {name}", lambda: shape_of(self.model[name]), any_rows=True)

    def checked(self, given: Mapping[str, ArrayLike] | None) -> Point:
        """Check hyperparameters, and convert them to arrays of the right shape inside their support."""
        shapes = {name: self.shape_of(name) for name in self.hyperparameters}
        return checked_point(self.model, shapes, given, self.function)

    def warn_of_priors(self, fixed: Collection[str] = ()) -> None:
        """Warn if PyMC does not normalise the prior of a hyperparameter that is not ``fixed``, but integrated out."""
        kinds, free = FlatRV | HalfFlatRV | CARRV | ICARRV, [v for v in self.variables if v.name not in fixed]
        cut = restricted(self.model, free)
        if names := [str(v.name) for v in free if isinstance(v.owner.op, kinds) or v.name in cut]:
            warn(f"the prior density of {', '.join(names)} is not normalised: the evidence is known up to a constant")

    def coefficients(self) -> list[str]:
        """Hyperparameters that are coefficients of mu: not scales of its parts, which its prior mean does not have."""
        above = set(ancestors([self.mean]))
        chosen = [v for v in self.variables if v in above and np.dtype(v.dtype).kind == "f"]
        if not chosen:
            return []
        start = self.model.initial_point(0)
        at = [(start[v.name] + 0.1).astype(v.dtype) for v in self.values]  # not where it may not change
        point = self.to_constrained(at)
        total = (self.mean * pt.cos(pt.arange(self.matrix.shape[0]))).sum()

        def of_total() -> list[Tensor]:
            free = {v: v.type() for v in self.variables}  # gradients stop here, and not at the prior of a prior
            found = gradients(replace_in_all([total], free)[0], [free[v] for v in chosen])
            return replace_in_all(found, {own: v for v, own in free.items()})

        slopes = self.evaluate("coefficients", of_total, point)
        return [str(v.name) for v, slope in zip(chosen, slopes, strict=True) if np.any(np.abs(slope) > 0)]

    def check_prior(self) -> None:
        """Check that the prior mean and the kernel give rows the same values beside other rows."""

        def follows() -> bool:
            point = self.to_constrained(trial_points(self.model, self.values, np.random.default_rng(0))[0])
            some = np.unique(np.linspace(0, len(self.rows) - 1, _SOME).astype(int))
            few = replace(self, rows=self.rows[some], targets=self.targets[some], _of_rows={})

            def at(X: Array) -> list[Array]:
                K, *others = few.cross(point, X)
                return [K.new if isinstance(K, CrossRoot) else K, *others]

            each = [at(half) for half in np.array_split(few.inputs, 2)]  # one half lacks the largest row of a column
            pairs = zip(map(np.concatenate, zip(*each, strict=True)), at(few.inputs), strict=True)
            return all(agree(apart, together, 1e-2) for apart, together in pairs)  # kernels of far inputs are rounded

        if len(self.rows) > 1 and not self.cached("prior follows rows", follows):
            raise ValueError(
                "the prior mean or the kernel at a row depends on other rows, and new inputs have other rows beside "
                "them: compute what all rows share, such as a mean, from the training data beforehand"
            )

    def check_groups(self, matrix: Array) -> None:
        """Check that numbers of groups in new rows, which choose one of several values, exist in the model."""

        # Each number too: a place that is computed from several, such as 2·g + h, may be known where one is not.
        def compile_() -> tuple[Compiled, list[tuple[int, ...]]]:
            graphs = [self.mean, *self.parameters, *([self.covariance.matrix] if self.composite is None else [])]
            sizes, indices = list[Tensor](), list[Tensor]()
            for node in toposort(graphs):
                for axis, place in enumerate(getattr(node.op, "idx_list", ())):
                    index = cast(Tensor, node.inputs[1 + place]) if isinstance(place, int) else None
                    chosen = cast(Tensor, node.inputs[0])
                    if index is None or index.dtype == "bool":
                        continue
                    of_rows = chosen.type.shape[axis] is None and self.matrix in above([chosen])
                    held = above([index])
                    if not of_rows and self.matrix in held and held.isdisjoint(self.variables):
                        size = rewrite_graph(chosen.shape[axis], include=("ShapeOpt", "canonicalize"), clone=True)
                        sizes.append(cast(Tensor, size))
                        indices.append(index)
            whole = [data.columns for data in self.columns.data if data.values.dtype.kind in "iu"]
            used = [[at for at in whole if _uses(index, self.matrix, at)] for index in indices]
            return self.compile([*sizes, *indices]), [at for each in used if len(each) > 1 for at in each]

        places, several = self.function("groups", compile_)
        empty = {name: np.zeros(self.shape_of(name)) for name in self.hyperparameters}  # a dim says some sizes
        of_new, of_old = (places(*self.arguments(empty, rows)) for rows in (matrix, None))
        old, half = self.rows, len(of_new) // 2  # sizes, and then indices
        found = [(int(at[0]), *at[1:]) for at in zip(of_new[:half], of_new[half:], of_old[half:], strict=True)]
        # -1 may be meant, as in PyMC.
        each = [(size - 1, index, np.append(np.arange(size), known)) for size, index, known in found]
        each += [(int(old[:, at].max()), matrix[:, at], np.arange(old[:, at].max() + 1)) for at in several]
        for last, index, known in each:
            unknown = index[~np.isin(index, known)]
            if unknown.size:
                raise ValueError(f"groups of new rows must be numbers from 0 to {last}, got {unknown[0]:.0f}")

    def check_integrable(self) -> None:
        """Check that f can be integrated out: no potential and no other variable depends on it."""
        if self.of_latent:
            raise ModelError(
                f"{self.of_latent[0]} depends on the latent function {self.prior.name}: sample f as well, by bp.NUTS()"
            )

    def check_one_period(self, fixed: Collection[str] = ()) -> None:
        """Check that no hyperparameter that is not fixed is an angle, whose unconstrained density repeats."""
        for name, variable in zip(self.hyperparameters, self.variables, strict=True):
            if name not in fixed and isinstance(self.model.rvs_to_transforms[variable], CircularTransform):
                raise ModelError(
                    f"{name} is an angle, whose density repeats and does not integrate to 1: give its value by "
                    "pm.do, or use NUTS(latent=...), without an evidence"
                )

    def complete(self, given: Mapping[str, ArrayLike] | None) -> Point:
        """Check hyperparameters as `checked` does, and that none is missing."""
        point = self.checked(given)
        missing = ", ".join(name for name in self.hyperparameters if name not in point)
        if missing:
            raise ValueError(f"hyperparameters must give every hyperparameter of the model, {missing} missing")
        return point


def _uses(graph: Tensor, matrix: Tensor, columns: tuple[int, ...]) -> bool:
    """Whether a graph is a function of a column of a matrix."""
    taken = [v.owner for v in ancestors([graph]) if v.owner is not None and matrix in v.owner.inputs]
    return any(np.isin(columns, node.inputs[-1].data).any() for node in taken if hasattr(node.inputs[-1], "data"))


def checked_point(
    model: pm.Model,
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, ArrayLike] | None,
    function: Callable[[str, Callable[[], Compiled]], Compiled] = lambda key, make: make(),
) -> Point:
    """Check given variables of a model, of which those with ``shapes`` may be given, as `Problem.checked`.

    ``function`` may keep what is compiled, as `Problem.function` does.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"hyperparameters must be a dict from names to values, got {given!r}")
    if not given:
        return {}
    point = {name: _checked_value(model, shapes, name, value) for name, value in given.items()}
    names = list(point)
    inside = function(f"support of {names}", lambda: _support(model, names))
    try:
        with np.errstate(all="ignore"):
            outside = [name for name, found in zip(names, inside(*point.values())[0], strict=True) if not found]
    except ParameterValueError as error:  # of a prior with given parameters
        raise ValueError(
            f"hyperparameters must lie inside the support of their priors, got {given!r}: {error}"
        ) from None
    for name in outside[:1]:
        raise ValueError(f"hyperparameter {name} must lie inside the support of its prior, got {given[name]!r}")
    return point


def _support(model: pm.Model, names: Sequence[str]) -> Compiled:
    """Compile which of the values of variables are possible."""
    known: dict[Variable, Variable] = {model[name]: model[name].type() for name in names}
    return Compiled([*known.values()], [pt.stack([_is_possible(model, model[name], known) for name in names])])


def _is_possible(model: pm.Model, variable: Tensor, known: dict[Variable, Variable]) -> Tensor:
    """Whether a value is that of a finite unconstrained one and has a prior density, as far as known values say."""
    there, transform, value = forward(model, variable), model.rvs_to_transforms[variable], cast(Tensor, known[variable])
    back = variable if transform is None else transform.backward(there, *variable.owner.inputs)
    there, back = cast(list[Tensor], graph_replace([there, back], known, strict=False))
    tests = [~pt.any(pt.isinf(there)), pt.all(pt.abs(back - value) <= _THERE_AND_BACK * (1.0 + pt.abs(value)))]
    free = set(model.free_RVs)
    with suppress(NotImplementedError):  # a distribution may have no density
        density = pm.logp(variable, back if above([back]).isdisjoint(free) else value)
        tests += graph_replace([pt.all(density > -np.inf)], known, strict=False)
    return pt.all(pt.stack([pt.constant(True), *(test for test in tests if above([test]).isdisjoint(free))]))


def _checked_value(model: pm.Model, shapes: Mapping[str, tuple[int, ...]], name: str, value: ArrayLike) -> Array:
    if name not in shapes:
        known = ", ".join(shapes) or "none"
        raise ValueError(f"hyperparameters has no variable {name!r} of the model; it has: {known}")
    variable, shape = model[name], shapes[name]
    check_labels(f"hyperparameter {name}", model, name, value)
    check_unmasked(f"hyperparameter {name}", value)
    try:
        real = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
    except (TypeError, ValueError):
        raise ValueError(f"hyperparameter {name} must be numbers of shape {shape}, got {value!r}") from None
    if not np.isfinite(real).all():
        raise ValueError(f"hyperparameter {name} must be finite, got {value!r}")
    array: Array = real.astype(variable.dtype)
    if array.dtype.kind != "f" and (array != real).any():
        raise ValueError(f"hyperparameter {name} must be whole numbers, got {value!r}")
    return array


def check_labels(words: str, model: pm.Model, name: str, value: object, first: int = 0) -> None:
    """Check that a value with dimensions and labels has those of a variable in their order, from an axis on."""
    dims, own = model.named_vars_to_dims.get(name, ()), getattr(value, "dims", ())
    for axis, dim in [*enumerate(dims)][first:]:
        if dim in own and own[::-1].index(dim) != len(dims) - 1 - axis:
            raise ValueError(f"{words} must have the dimension {dim} at axis {axis}, got the dimensions {own}")
        if isinstance(value, pd.Series | pd.DataFrame):
            given: Any = value.axes[axis] if axis < value.ndim else None
            given = None if isinstance(given, pd.RangeIndex) else given  # which pandas makes of no labels
        else:
            given = getattr(value, "indexes", {}).get(dim)  # whose coords would be row numbers without labels
        if given is None or (known := model.coords.get(dim)) is None:
            continue
        labels = pd.Index(list(known))
        plain = given.equals(pd.RangeIndex(len(given))) and not given.isin(labels).all()  # as ArviZ makes of no labels
        if not (plain or labels.equals(given)):
            raise ValueError(f"{words} must have the labels {labels.tolist()} of {dim}, got {given.tolist()}")


def forward(model: pm.Model, variable: Tensor) -> Tensor:
    """The unconstrained value of a variable as a graph of it."""
    transform = model.rvs_to_transforms[variable]
    return variable if transform is None else transform.forward(variable, *variable.owner.inputs)


def restricted(model: pm.Model, variables: Iterable[Tensor]) -> list[str]:
    """Names of variables with a transform, such as ordered, that does not reach more than 1 % of draws of the prior."""
    found = []
    for variable in variables:
        if (transform := model.rvs_to_transforms[variable]) is None:
            continue
        try:
            there_and_back = transform.backward(forward(model, variable), *variable.owner.inputs)
            pair = pm.draw([variable, there_and_back], draws=200, random_seed=0, mode="FAST_COMPILE")
        except (NotImplementedError, ValueError):  # of pm.Flat, or of a scale that may be negative
            continue
        drawn, same = (np.reshape(each, (200, -1)) for each in pair)
        changed = ~np.isclose(drawn, same, rtol=1e-3) & (drawn != 0).all(axis=1, keepdims=True)  # 0 by underflow
        if changed.any(axis=1).mean() > 0.01:
            found.append(str(variable.name))
    return found

"""A model as graphs of its hyperparameters and of any rows, and their compiled functions, which threads share.

A function that PyTensor has compiled keeps its arguments and results in storage of its own, so that two threads must
not call it at the same time. Here each call takes an idle copy, and makes one if there is none: no thread waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip
from pytensor.tensor.elemwise import DimShuffle

from bsvr_pp.core.arrays import Array, Tensor
from bsvr_pp.core.compiler import rarely_collected
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.registry import Loss
from bsvr_pp.model.affine import Affine
from bsvr_pp.model.gaussian import all_replaced, replaced
from bsvr_pp.model.gp import Prior, localize
from bsvr_pp.model.operation import CovarianceGraph
from bsvr_pp.model.row_kinds import Exact
from bsvr_pp.model.rows import Columns, RowData

# Compiled functions of a model, with what the model had when they were made.
_FUNCTIONS: WeakKeyDictionary[pm.Model, tuple[object, dict[str, object]]] = WeakKeyDictionary()

# PyTensor's mode without compilation: the work is in matrices, which NumPy does as fast as compiled code.
INTERPRETED = "FAST_COMPILE"


class Compiled:
    """A function from inputs to outputs of a PyTensor graph; inputs that the outputs do not need are allowed."""

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
    return replaced(graph, replace)


def functions_of(model: pm.Model, structure: object) -> dict[str, object]:
    """Return the cache of compiled functions of a model; it is emptied if variables were added to the model."""
    known, functions = _FUNCTIONS.get(model, (None, {}))
    if known != structure:
        functions = {}
        _FUNCTIONS[model] = (structure, functions)
    return functions


def prior_at(prior: Prior, model: pm.Model, matrix: Tensor) -> tuple[CovarianceGraph, Tensor]:
    """Prior covariance and prior mean at a matrix of rows, as graphs of a model."""
    given, mean = (prior.cov_func if prior.root is None else prior.root)(matrix), prior.mean_func(matrix)
    covariance = CovarianceGraph(quick(localize(given, model)), prior.jitter, prior.root is not None)
    return covariance, localize(mean, model)


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A support vector model of PyMC as graphs and compiled functions of its hyperparameters and of any rows.

    ``target`` is the name of the observed variable; the hyperparameters are the free variables except the latent
    function. ``columns`` says what the model needs of each row, and the graphs from ``covariance`` to ``ends`` are
    functions of ``matrix``, a matrix of such rows. ``X`` and ``latent`` are inputs and location of the noise as the
    model has them, ``composite`` are the parts of a latent function that is no single process, and ``noise_data`` the
    data of each row on which the noise depends. ``terms`` are potentials and observed variables of hyperparameters
    alone, and ``of_latent`` describes what else depends on f (`bsvr_pp.model.inventory`).
    """

    model: pm.Model
    prior: Prior
    target: str
    loss: Loss
    hyperparameters: tuple[str, ...]
    columns: Columns
    matrix: Tensor
    covariance: CovarianceGraph
    mean: Tensor
    parameters: tuple[Tensor, ...]
    weight: Tensor
    ends: Exact
    X: Tensor
    latent: Tensor
    composite: Affine | None
    noise_data: list[RowData]
    terms: tuple[Tensor, ...]
    of_latent: tuple[str, ...]
    functions: dict[str, object] = field(repr=False)

    def __getstate__(self) -> dict[str, object]:
        """What a copy has: all but the functions, which it compiles again."""
        return vars(self) | {"functions": {}}

    @property
    def K(self) -> Tensor:
        """Prior covariance of rows that are one block, with its jitter, as a graph."""
        return self.covariance.matrix

    @property
    def site_parameters(self) -> tuple[Tensor, ...]:
        """Parameters of the sites of the training rows, as evidences take them: those of the loss, and the weights."""
        return *self.parameters, self.weight

    @property
    def weighted(self) -> bool:
        """Whether the training rows have sample weights."""
        return bool(self.weight.ndim > 0)

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
            with rarely_collected(), pytensor.config.change_flags(traceback__limit=0):
                self.functions[key] = make()
        return cast(Made, self.functions[key])

    def compile(self, outputs: Sequence[Variable], extra: Sequence[Variable] = ()) -> Compiled:
        """Compile graphs into a function of the constrained hyperparameters, as `compile_on`."""
        inputs = [variable.type(name=variable.name) for variable in self.variables]
        graphs = all_replaced(outputs, dict(zip(self.variables, inputs, strict=True)))
        return self.compile_on(inputs, graphs, extra)

    def compile_on(
        self, variables: Sequence[Variable], outputs: Sequence[Variable], extra: Sequence[Variable] = ()
    ) -> Compiled:
        """Compile graphs into a function of given variables, the matrix of rows, the model's data, and extra inputs."""
        shared = data_of(self.model)
        stand_in = [variable.type() for variable in shared]
        if shared:
            outputs = all_replaced(outputs, dict[Variable, Variable](zip(shared, stand_in, strict=True)))
        return Compiled([*variables, self.matrix, *stand_in, *extra], outputs)

    def noise_model(self, parameters: Sequence[ArrayLike]) -> NoiseModel:
        """Noise with the given parameters, numbers or (n,) arrays."""
        named = zip(self.loss.parameters, (np.asarray(p, dtype=np.float64) for p in parameters), strict=True)
        return NoiseModel(self.loss, {k: float(p.reshape(-1)[0]) if p.size == 1 else p.ravel() for k, p in named})

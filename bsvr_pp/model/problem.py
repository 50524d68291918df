"""Reading of a support vector model from a PyMC model.

This is the only module that uses the internals of `pm.Model`. It finds the Gaussian process, the noise, the data and
the hyperparameters by name, so that copies of a model (`pm.do`, `pm.observe`) work as well, and returns them as graphs
and as compiled functions of the hyperparameters. Functions are compiled once per model; data in `pm.Data` may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.logprob.transforms import Transform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from bsvr_pp._device import Device
from bsvr_pp.approximations import BlockDiagonal, Covariance
from bsvr_pp.approximations.operation import CovarianceGraph
from bsvr_pp.losses import Loss, NoiseModel
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.checks import check_data, checked
from bsvr_pp.model.compiled import Compiled, functions_of
from bsvr_pp.model.composite import Composite, composite_of
from bsvr_pp.model.ends import Ends, in_intervals
from bsvr_pp.model.gp import Prior, processes_of
from bsvr_pp.model.graphs import localize, quick, value_of
from bsvr_pp.model.on_device import stack_at
from bsvr_pp.model.targets import ModelError, noise_in

__all__ = ["ModelError", "Problem", "read_model"]

Array = NDArray[np.float64]
Point = dict[str, Array]
_SUM = "sum, each with the factor 1, with linear terms and offsets"


@dataclass(frozen=True, eq=False)
class Problem:
    """The parts of a support vector model that was read from PyMC.

    Attributes
    ----------
    model : pm.Model
        The model.
    prior : Prior
        Record of the Gaussian process.
    target : str
        Name of the observed variable.
    loss : Loss
        Its loss.
    hyperparameters : tuple of str
        Names of the free variables except the latent function.
    rows : tensor
        Stands for the inputs in graphs that `compile` takes.
    smooth, mean : tensors
        Prior covariance without its jitter, and prior mean, at ``rows``, as graphs over the model's variables.
    parameters, weight : tuple of tensors, tensor or None
        Parameters of the loss, in its order, and sample weights of the training rows.
    X : tensor or array
        Training inputs as the model has them.
    inputs, targets : arrays
        Training inputs (n, d) and observed targets (n,).
    data : dict
        Values of the model's `pm.Data`.
    latent : tensor
        The latent function, which is the location of the noise.
    composite : Composite, optional
        Parts of the latent function, if it is not a single process. ``inputs`` and ``rows`` then have further columns
        after the ``n_inputs`` ones of ``X``: the data of the parts.
    ends : Ends
        What is known of targets.
    device : Device, optional
        Where batches of blocks are solved; by default on the processor.
    """

    model: pm.Model
    prior: Prior
    target: str
    loss: Loss
    hyperparameters: tuple[str, ...]
    rows: Any
    smooth: Any
    mean: Any
    parameters: tuple[Any, ...]
    weight: Any
    X: Any
    inputs: Array
    targets: Array
    data: dict[str, Array]
    latent: Any
    composite: Composite | None
    ends: Ends
    _functions: dict[str, Any] = field(repr=False)
    device: Device | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def K(self) -> Any:
        """Prior covariance of rows that are one block, with its jitter, as a graph."""
        return CovarianceGraph(self.smooth, self.prior.jitter).matrix

    @property
    def site_parameters(self) -> tuple[Any, ...]:
        """Parameters of the sites of the training rows, as evidences take them: those of the loss, and the weights."""
        return self.parameters if self.weight is None else (*self.parameters, self.weight)

    @property
    def blocks(self) -> Blocks | None:
        """Blocks of rows, at least two, between which the prior is independent; None if there are none."""
        return self.prior.blocks

    @property
    def parts(self) -> list[Problem]:
        """The problem of each block; the problem itself if there are no blocks."""
        if self.blocks is None:
            return [self]
        return [self.part(block) for block in range(len(self.blocks))]

    def part(self, block: int) -> Problem:
        """The problem of the rows of one block."""
        assert self.blocks is not None
        return self.subset(self.blocks.rows(block))

    def subset(self, rows: NDArray[np.int64], blocks: Blocks | None = None) -> Problem:
        """The problem of some rows, in one block or in given blocks; other data are as they are."""
        prior = replace(self.prior, blocks=blocks)
        return replace(self, prior=prior, inputs=self.inputs[rows], targets=self.targets[rows], _cache=self._kept)

    def prior_at(self, X: Any) -> tuple[CovarianceGraph, Any]:
        """Prior covariance and prior mean at other inputs, as graphs."""
        graphs = self.prior.cov_func(X), self.prior.mean_func(X)
        smooth = quick(localize(graphs[0], self.model))
        return CovarianceGraph(smooth, self.prior.jitter), localize(graphs[1], self.model)

    @property
    def n_inputs(self) -> int:
        """Number of inputs d."""
        return self.inputs.shape[1] if self.composite is None else self.composite.d

    @property
    def latents(self) -> set[str]:
        """Names of the variables that are integrated out: f, or its parts, and their whitened values."""
        return self.prior.names if self.composite is None else self.composite.names

    @property
    def variables(self) -> list[Any]:
        """The hyperparameters' random variables."""
        return [self.model[name] for name in self.hyperparameters]

    @property
    def values(self) -> list[Any]:
        """Their unconstrained value variables."""
        return [self.model.rvs_to_values[variable] for variable in self.variables]

    def with_data(self, inputs: Array, targets: Array, *, blocks: Blocks | None = None, **data: ArrayLike) -> Problem:
        """The same problem with other data; compiled functions are shared, and the model is left as it is.

        Parameters
        ----------
        inputs, targets : (n, d) and (n,) arrays
            New training data.
        blocks : Blocks, optional
            Blocks of their rows; by default there is one.
        **data
            Values of the model's other `pm.Data`. Shapes and priors of the hyperparameters must not depend on data.
        """
        changed = dict(self.data)
        named = {getattr(self.X, "name", None): inputs, getattr(self.y, "name", None): targets}
        given: dict[Any, Any] = {**data, **named}
        for name, value in given.items():
            if name in changed:
                changed[name] = np.asarray(value, dtype=changed[name].dtype)
        if blocks is not None and len(blocks) == 1:
            blocks = None
        prior = self.prior if blocks is self.prior.blocks else replace(self.prior, blocks=blocks)
        return replace(self, prior=prior, inputs=inputs, targets=targets, data=changed, _cache=self._kept)

    @property
    def _kept(self) -> dict[str, Any]:
        """What is kept of the cache for other data."""
        return {key: value for key, value in self._cache.items() if key == "initial" or key.startswith("shape ")}

    @property
    def y(self) -> Any:
        """Targets as the model has them."""
        return self.model.rvs_to_values[self.model[self.target]]

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, which is called once for this problem and its data."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def function(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the compiled function that ``make`` makes, once for the model."""
        if key not in self._functions:
            with pytensor.config.change_flags(traceback__limit=0):  # recording who made each node takes a tenth longer
                self._functions[key] = make()
        return self._functions[key]

    def at(self, point: Mapping[str, ArrayLike], progress: str = "") -> tuple[Any, Array, NoiseModel]:
        """Prior covariance (`Covariance`, or `BlockDiagonal`), prior mean and noise of the training rows.

        ``progress`` is the text of a progress bar for the blocks.
        """
        if self.blocks is not None:
            return self._in_blocks(point, progress)
        compiled = self.function("at", lambda: self.compile([self.K, self.mean, *self.site_parameters]))
        K, mean, *parameters = compiled(*self.arguments(point))
        n, count = self.targets.size, len(self.parameters)
        noise = self.noise_model(parameters[:count]).weighted(*parameters[count:])
        offset = np.broadcast_to(mean, (n,)).copy()
        return Covariance(K, jitter=self.prior.jitter), offset, in_intervals(noise, self, point)

    def _in_blocks(self, point: Mapping[str, ArrayLike], progress: str) -> tuple[BlockDiagonal, Array, NoiseModel]:
        """`at` with blocks, whose covariances are computed when they are needed."""
        assert self.blocks is not None
        compiled = self.function("mean", lambda: self.compile([self.mean]))
        mean = np.broadcast_to(compiled(*self.arguments(point))[0], (self.targets.size,)).copy()
        covariance = BlockDiagonal(
            list(self.blocks), lambda b: self.part(b).at(point)[0], progress=progress, stack=stack_at(self, point)
        )
        return covariance, mean, self.noise_at(point)

    def noise_at(self, point: Mapping[str, ArrayLike]) -> NoiseModel:
        """Noise of a new target at given hyperparameters."""
        compiled = self.function("parameters", lambda: self.compile(list(self.parameters)))
        return self.noise_model(compiled(*self.arguments(point)))

    def noise_model(self, parameters: Sequence[ArrayLike]) -> NoiseModel:
        """Noise with the given parameters, numbers or (n,) arrays."""
        named = zip(self.loss.parameters, (np.asarray(p, dtype=np.float64) for p in parameters), strict=True)
        return NoiseModel(self.loss, {k: float(p.reshape(-1)[0]) if p.size == 1 else p.ravel() for k, p in named})

    def cross(self, point: Mapping[str, ArrayLike], X_new: Array) -> tuple[Array, Array, Array]:
        """Covariance of new and training inputs (n_new, n), and prior variance and prior mean at the new inputs."""

        def compile_() -> Any:
            new = pt.matrix("X_new", shape=(None, self.inputs.shape[1]))
            cov, offset = self.prior.cov_func, self.prior.mean_func
            graphs = [cov(new, self.rows), cov(new, diag=True), offset(new)]
            return self.compile([quick(localize(g, self.model)) for g in graphs], extra=[new])

        K_star, diagonal, mean = self.function("cross", compile_)(*self.arguments(point), X_new)
        return K_star, np.broadcast_to(diagonal, (len(X_new),)), np.broadcast_to(mean, (len(X_new),))

    def joint(self, point: Mapping[str, ArrayLike], X_new: Array) -> Covariance:
        """Prior covariance of training and new inputs together, (n + n_new, n + n_new), without jitter."""

        def compile_() -> Any:
            both = pt.matrix("X_both", shape=(None, self.inputs.shape[1]))
            return self.compile([quick(localize(self.prior.cov_func(both), self.model))], extra=[both])

        (covariance,) = self.function("joint", compile_)(*self.arguments(point), np.vstack([self.inputs, X_new]))
        return Covariance(covariance)

    def compile(self, outputs: list[Any], extra: list[Any] | None = None, *, make: Any = Compiled) -> Any:
        """Compile graphs into a function of the constrained hyperparameters, as `compile_on`."""
        inputs = [variable.type(name=variable.name) for variable in self.variables]
        graphs = graph_replace(outputs, dict(zip(self.variables, inputs, strict=True)), strict=False)
        return self.compile_on(inputs, graphs, extra, make=make)

    def compile_on(self, variables: list[Any], outputs: list[Any], extra: Any = None, *, make: Any = Compiled) -> Any:
        """Compile graphs into a function of given variables, of `given_data`, and of extra inputs.

        ``make`` is `Compiled` or `bsvr_pp.model.compiled.in_jax`.
        """
        shared = [self.model[name] for name in self.data]
        stand_in = [variable.type() for variable in shared]
        if shared:
            outputs = graph_replace(outputs, dict(zip(shared, stand_in, strict=True)), strict=False)
        return make([*variables, self.rows, *stand_in, *(extra or [])], outputs)

    @property
    def given_data(self) -> list[Array]:
        """Inputs and other data, as functions of `compile_on` take them after their variables."""
        return [self.inputs, *self.data.values()]

    def arguments(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Hyperparameters and data in the order of the arguments of functions from `compile`."""
        variables = zip(self.hyperparameters, self.variables, strict=True)
        return [*(np.asarray(point[name], dtype=v.dtype) for name, v in variables), *self.given_data]

    def to_unconstrained(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Values of the unconstrained variables at given hyperparameters."""
        graphs = [
            variable if transform is None else transform.forward(variable, *variable.owner.inputs)
            for variable, transform in self._transforms()
        ]
        forward = self.function("forward", lambda: self.compile(graphs))
        return [np.asarray(value) for value in forward(*self.arguments(point))]

    def to_constrained(self, values: Sequence[Array]) -> Point:
        """Hyperparameters at given values of the unconstrained variables."""

        def compile_() -> Any:
            graphs = [
                value if transform is None else transform.backward(value, *variable.owner.inputs)
                for value, (variable, transform) in zip(self.values, self._transforms(), strict=True)
            ]
            # Bounds of a transform may depend on other hyperparameters.
            return self.compile_on(self.values, self.model.replace_rvs_by_values(graphs))

        found = self.function("backward", compile_)(*values, *self.given_data)
        return {name: np.asarray(value) for name, value in zip(self.hyperparameters, found, strict=True)}

    def _transforms(self) -> list[tuple[Any, Transform | None]]:
        return [(variable, self.model.rvs_to_transforms[variable]) for variable in self.variables]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Shape of a hyperparameter."""
        return tuple(int(s) for s in self.cached(f"shape {name}", self.model[name].shape.eval))

    def checked(self, given: Mapping[str, Any] | None) -> Point:
        """Check hyperparameters, and convert them to arrays, as `bsvr_pp.model.checks.checked`."""
        return checked(self, given)

    def complete(self, given: Mapping[str, Any] | None) -> Point:
        """Check hyperparameters as `checked` does, and that none is missing.

        Raises
        ------
        ValueError
            As `checked`, or naming those that are missing.
        """
        point = self.checked(given)
        missing = ", ".join(name for name in self.hyperparameters if name not in point)
        if missing:
            raise ValueError(f"hyperparameters must give every hyperparameter of the model, {missing} missing")
        return point


def read_model(model: pm.Model | None = None) -> Problem:
    """Find the Gaussian process, the noise, the data and the hyperparameters of a model.

    Parameters
    ----------
    model : pm.Model, optional
        The model; by default the one of the surrounding ``with`` block.

    Returns
    -------
    Problem

    Raises
    ------
    ModelError
        If the model has no `GP`, no observed noise of a known kind, missing targets, or a location of the noise that is
        not a sum of processes, linear terms and offsets.
    TypeError
        If there is no model.
    """
    if model is None:
        model = pm.Model.get_context(error_if_none=False)
    if model is None:
        raise TypeError("model must be given, or be that of a surrounding with block: there is none")
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    processes = processes_of(model)
    if not processes:
        raise ModelError("the model has no Gaussian process of bsvr_pp: make f by bp.GP(cov_func=...).prior(...)")
    target, loss, latent, parameters, weight, ends = noise_in(model)
    f = latent if latent in processes else next(iter(processes))
    prior = processes[f]
    X = prior.X if not isinstance(prior.X, pt.Variable) else localize(prior.X, model)
    inputs = np.asarray(value_of(X), dtype=np.float64)
    composite = None if f is latent else composite_of(model, latent, processes, [*parameters, *ends.bounds], X, inputs)
    if composite is not None:
        prior, inputs = composite.prior(model, latent, target), composite.values(inputs)
    elif len(processes) > 1:
        names = ", ".join(p.name for p in processes)
        raise ModelError(f"the model has several latent functions ({names}): mu of {target.name} must be their {_SUM}")
    elif f is not latent:
        raise ModelError(f"mu of {target.name} must be the latent function {f.name} itself, or a {_SUM}")
    if composite is not None and any(process.blocks is not None for process in processes.values()):
        raise ModelError("blocks take one process alone: add the kernels of several, and leave linear terms out")
    latent_names = prior.names if composite is None else composite.names
    hyperparameters = tuple(v.name for v in model.free_RVs if v.name not in latent_names)
    rows = pt.matrix(shape=(None, inputs.shape[1]))  # without a name, which data may have
    K = quick(localize(prior.cov_func(rows), model))
    problem = Problem(
        model,
        prior,
        target.name,
        loss,
        hyperparameters,
        rows,
        K,
        localize(prior.mean_func(rows), model),
        tuple(parameters),
        weight,
        X,
        inputs,
        np.asarray(value_of(model.rvs_to_values[target]), dtype=np.float64),
        {v.name: v.get_value() for v in model.named_vars.values() if isinstance(v, SharedVariable)},
        latent,
        composite,
        ends,
        functions_of(model, (hyperparameters, target.name, loss.name, prior.name, composite and composite.structure)),
    )
    above = ancestors([K, problem.mean, *parameters, *ends.bounds])
    unknown = {v.name for v in above if v in model.free_RVs} & latent_names
    if unknown:
        raise ModelError(
            f"the kernel or the noise depends on the latent function {f.name}: it cannot be integrated out"
        )
    check_data(problem)
    return problem

"""Reading of a support vector model from a PyMC model.

This is the only module that uses the internals of `pm.Model`. It finds the Gaussian process, the noise, the data and
the hyperparameters by name, so that copies of a model (`pm.do`, `pm.observe`) work as well, and returns them as graphs
and as compiled functions of the hyperparameters. Functions are compiled once per model; data in `pm.Data` may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.logprob.transforms import Transform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from bsvr_pp._checks import check_size, check_spread
from bsvr_pp.approximations import Covariance
from bsvr_pp.approximations.operation import CovarianceGraph
from bsvr_pp.losses import Loss, NoiseModel
from bsvr_pp.model.compiled import Compiled
from bsvr_pp.model.ends import Ends, ends_of, in_intervals
from bsvr_pp.model.gp import Prior, prior_of
from bsvr_pp.model.graphs import localize, quick, value_of
from bsvr_pp.model.observation import noise_of

__all__ = ["ModelError", "Problem", "read_model"]

Array = NDArray[np.float64]
Point = dict[str, Array]

# Compiled functions of a model, with what the model had when they were made.
_FUNCTIONS: WeakKeyDictionary[pm.Model, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()


class ModelError(ValueError):
    """The inference cannot be applied to the model; the message states what to change."""


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
    parameters : tuple of tensors
        Parameters of the loss, in its order.
    X : tensor or array
        Training inputs as the model has them.
    inputs, targets : arrays
        Training inputs (n, d) and observed targets (n,).
    data : dict
        Values of the model's `pm.Data`.
    ends : Ends
        What is known of targets.
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
    X: Any
    inputs: Array
    targets: Array
    data: dict[str, Array]
    ends: Ends
    _functions: dict[str, Any] = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def K(self) -> Any:
        """Prior covariance with its jitter, as a graph."""
        return CovarianceGraph(self.smooth, self.prior.jitter).matrix

    def prior_at(self, X: Any) -> tuple[CovarianceGraph, Any]:
        """Prior covariance and prior mean at other inputs, as graphs."""
        graphs = self.prior.cov_func(X), self.prior.mean_func(X)
        smooth = quick(localize(graphs[0], self.model))
        return CovarianceGraph(smooth, self.prior.jitter), localize(graphs[1], self.model)

    @property
    def variables(self) -> list[Any]:
        """The hyperparameters' random variables."""
        return [self.model[name] for name in self.hyperparameters]

    @property
    def values(self) -> list[Any]:
        """Their unconstrained value variables."""
        return [self.model.rvs_to_values[variable] for variable in self.variables]

    def with_data(self, inputs: Array, targets: Array, **data: ArrayLike) -> Problem:
        """The same problem with other data; compiled functions are shared, and the model is left as it is.

        Parameters
        ----------
        inputs, targets : (n, d) and (n,) arrays
            New training data.
        **data
            Values of the model's other `pm.Data`. Shapes and priors of the hyperparameters must not depend on data.
        """
        changed = dict(self.data)
        named = {getattr(self.X, "name", None): inputs, self._name_of_targets: targets}
        given: dict[Any, Any] = {**data, **named}
        for name, value in given.items():
            if name in changed:
                changed[name] = np.asarray(value, dtype=changed[name].dtype)
        kept = {key: value for key, value in self._cache.items() if key == "initial" or key.startswith("shape ")}
        return replace(self, inputs=inputs, targets=targets, data=changed, _cache=kept)

    @property
    def _name_of_targets(self) -> str | None:
        return getattr(self.model.rvs_to_values[self.model[self.target]], "name", None)

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, which is called once for this problem and its data."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def function(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the compiled function that ``make`` makes, once for the model."""
        if key not in self._functions:
            self._functions[key] = make()
        return self._functions[key]

    def at(self, point: Mapping[str, ArrayLike]) -> tuple[Covariance, Array, NoiseModel]:
        """Prior covariance, prior mean and noise at given hyperparameters."""
        compiled = self.function("at", lambda: self.compile([self.K, self.mean, *self.parameters]))
        K, mean, *parameters = compiled(*self.arguments(point))
        offset, noise = np.broadcast_to(mean, self.targets.shape).copy(), self.noise_model(parameters)
        return Covariance(K, jitter=self.prior.jitter), offset, in_intervals(noise, self, point)

    def noise_at(self, point: Mapping[str, ArrayLike]) -> NoiseModel:
        """Noise at given hyperparameters."""
        compiled = self.function("parameters", lambda: self.compile(list(self.parameters)))
        return in_intervals(self.noise_model(compiled(*self.arguments(point))), self, point)

    def noise_model(self, parameters: Sequence[ArrayLike]) -> NoiseModel:
        """Noise with the given parameters, numbers or (n,) arrays."""
        shaped = [np.asarray(p, dtype=np.float64) for p in parameters]
        named = zip(self.loss.parameters, shaped, strict=True)
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

    def compile(self, outputs: list[Any], extra: list[Any] | None = None) -> Any:
        """Compile graphs into a function of the constrained hyperparameters."""
        inputs = [variable.type(name=variable.name) for variable in self.variables]
        graphs = graph_replace(outputs, dict(zip(self.variables, inputs, strict=True)), strict=False)
        return self.compile_on(inputs, graphs, extra)

    def compile_on(self, variables: list[Any], outputs: list[Any], extra: list[Any] | None = None) -> Compiled:
        """Compile graphs into a function of given variables, of `given_data`, and of extra inputs."""
        shared = [self.model[name] for name in self.data]
        stand_in = [variable.type() for variable in shared]
        if shared:
            outputs = graph_replace(outputs, dict(zip(shared, stand_in, strict=True)), strict=False)
        return Compiled([*variables, self.rows, *stand_in, *(extra or [])], outputs)

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
        """Check hyperparameters, and convert them to arrays of the right shape inside their support.

        Raises
        ------
        ValueError
            Naming the hyperparameter, the value and what is allowed.
        TypeError
            If they are not a mapping.
        """
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"hyperparameters must be a dict from names to values, got {given!r}")
        point: Point = {}
        for name, value in (given or {}).items():
            if name not in self.hyperparameters:
                known = ", ".join(self.hyperparameters) or "none"
                raise ValueError(f"hyperparameters has no variable {name!r} of the model; it has: {known}")
            variable, shape = self.model[name], self.shape_of(name)
            try:
                real = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
            except (TypeError, ValueError):
                raise ValueError(f"hyperparameter {name} must be numbers of shape {shape}, got {value!r}") from None
            if not np.isfinite(real).all():
                raise ValueError(f"hyperparameter {name} must be finite, got {value!r}")
            point[name] = array = real.astype(variable.dtype)
            if array.dtype.kind != "f" and (array != real).any():
                raise ValueError(f"hyperparameter {name} must be whole numbers, got {value!r}")
            transform = self.model.rvs_to_transforms[variable]
            if transform is not None:
                with np.errstate(all="ignore"):
                    inside = graph_replace(
                        [transform.forward(variable, *variable.owner.inputs)], {variable: pt.constant(array)}
                    )
                    if not np.isfinite(inside[0].eval()).all():
                        raise ValueError(
                            f"hyperparameter {name} must lie inside the support of its prior, got {value!r}"
                        )
        return point

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
        If the model has no `GP`, several of them, no observed noise of a known kind, or missing targets.
    TypeError
        If there is no model.
    """
    if model is None:
        model = pm.Model.get_context(error_if_none=False)
    if model is None:
        raise TypeError("model must be given, or be that of a surrounding with block: there is none")
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    f, prior = _latent(model)
    target, loss, parameters, ends = _noise(model, f)
    latent_names = {f.name, prior.whitened}
    hyperparameters = tuple(v.name for v in model.free_RVs if v.name not in latent_names)
    X = prior.X if not isinstance(prior.X, pt.Variable) else localize(prior.X, model)
    inputs = np.asarray(value_of(X), dtype=np.float64)
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
        X,
        inputs,
        np.asarray(value_of(model.rvs_to_values[target]), dtype=np.float64),
        {v.name: v.get_value() for v in model.named_vars.values() if isinstance(v, SharedVariable)},
        ends,
        _functions(model, (hyperparameters, target.name, loss.name, prior.name)),
    )
    above = ancestors([K, problem.mean, *parameters, *ends.bounds])
    unknown = {v.name for v in above if v in model.free_RVs} & latent_names
    if unknown:
        raise ModelError(
            f"the kernel or the noise depends on the latent function {f.name}: it cannot be integrated out"
        )
    _check_data(problem)
    return problem


def _latent(model: pm.Model) -> tuple[Any, Prior]:
    """Find the latent function and the record of its Gaussian process."""
    found = [(v, prior) for v in [*model.deterministics, *model.free_RVs] if (prior := prior_of(v)) is not None]
    if not found:
        raise ModelError("the model has no Gaussian process of bsvr_pp: make f by bp.GP(cov_func=...).prior(...)")
    if len(found) > 1:
        names = ", ".join(v.name for v, _ in found)
        raise ModelError(f"the model has several latent functions ({names}): add their kernels in one bp.GP instead")
    return found[0]


def _noise(model: pm.Model, f: Any) -> tuple[Any, Loss, Sequence[Any], Ends]:
    """Find the targets, their loss and its parameters, and what is known of the targets."""
    missing = [v.name for v in model.free_RVs if v.name.endswith("_unobserved")]
    if missing:
        raise ModelError(
            f"the targets have missing values ({missing[0]}): drop those rows, and predict them afterwards"
        )
    if len(model.observed_RVs) != 1:
        names = ", ".join(v.name for v in model.observed_RVs) or "none"
        raise ModelError(f"the model must have one observed variable, the targets; it has {names}")
    target = model.observed_RVs[0]
    ends = ends_of(target)
    noise = noise_of(ends.noise)
    if noise is None or (ends.kind != "exact" and noise[0].classification):
        kind = getattr(ends.noise.owner.op, "name", None) or type(ends.noise.owner.op).__name__
        raise ModelError(
            f"the noise of {target.name} is {kind}: use bp.SoftInsensitive, bp.EpsilonInsensitive, bp.Huber, "
            "bp.SVMLabel, pm.Laplace, pm.AsymmetricLaplace or pm.Normal"
        )
    loss, location, parameters = noise
    if location is not f:
        raise ModelError(
            f"mu of {target.name} must be the latent function {f.name} itself; put offsets into the GP's mean_func"
        )
    return target, loss, parameters, ends


def _check_data(problem: Problem) -> None:
    """Check shapes and values of inputs and targets."""
    name, inputs, targets = problem.target, problem.inputs, problem.targets
    n = inputs.shape[0]
    if targets.shape != (n,):
        raise ModelError(f"{name} must be a ({n},) array as X has {n} rows, got shape {targets.shape}")
    if not np.isfinite(targets).all() or not np.isfinite(inputs).all():
        raise ModelError(f"{name} and X must be finite")
    for label, values in (("X", inputs), (name, targets)):
        check_size(label, values)
        check_spread(label, values)
    if problem.loss.classification and not np.isin(targets, (-1.0, 1.0)).all():
        odd = targets[~np.isin(targets, (-1.0, 1.0))][0]
        raise ModelError(f"the observed {name} must be labels -1 and +1, got {odd:g}: drop what is not known")


def _functions(model: pm.Model, structure: Any) -> dict[str, Any]:
    """Return the cache of compiled functions of the model; it is emptied if variables were added to the model."""
    known, functions = _FUNCTIONS.get(model, (None, {}))
    if known != structure:
        functions = {}
        _FUNCTIONS[model] = (structure, functions)
    return functions

"""Reading a support vector model back from PyMC.

The only module that knows the inside of `pm.Model`: it finds the Gaussian process, the noise, the data and the
hyperparameters by name, so that copies of a model (`pm.do`, `pm.observe`) work as well, and gives them as graphs and
as compiled functions of the hyperparameters. Functions are compiled once a model: data in `pm.Data` may change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.continuous import AsymmetricLaplaceRV
from pymc.logprob.transforms import Transform
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import LaplaceRV, NormalRV

from bsvr_pp.gp import Prior, prior_of
from bsvr_pp.losses import LOSSES, Loss, NoiseModel

__all__ = ["INTERPRETED", "ModelError", "Problem", "copying", "read_model"]

Array = NDArray[np.float64]
Point = dict[str, Array]

# PyTensor's mode without compilation: the work is in matrices, which NumPy does as fast as compiled code.
INTERPRETED = "FAST_COMPILE"

# Compiled functions of a model, with what the model had when they were made.
_FUNCTIONS: WeakKeyDictionary[pm.Model, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()


class ModelError(ValueError):
    """The model is not one that this inference can serve; the message says what to change."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A support vector model, read.

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
        Names of the free variables but for the latent function.
    smooth, mean, y, X : tensors
        Prior covariance without its jitter, prior mean, targets and inputs, as graphs over the model's variables.
    parameters : tuple of tensors
        Parameters of the loss, in its order.
    """

    model: pm.Model
    prior: Prior
    target: str
    loss: Loss
    hyperparameters: tuple[str, ...]
    smooth: Any
    mean: Any
    y: Any
    X: Any
    parameters: tuple[Any, ...]
    _functions: dict[str, Any] = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def K(self) -> Any:
        """Prior covariance with its jitter, as a graph."""
        return self.smooth + self.prior.jitter * pt.eye(self.smooth.shape[0])

    def prior_at(self, X: Any) -> tuple[Any, Any]:
        """Prior covariance, without jitter, and prior mean at other inputs, as graphs."""
        graphs = self.prior.cov_func(X), self.prior.mean_func(X)
        return _quick(_localize(graphs[0], self.model)), _localize(graphs[1], self.model)

    @property
    def variables(self) -> list[Any]:
        """The hyperparameters' random variables."""
        return [self.model[name] for name in self.hyperparameters]

    @property
    def values(self) -> list[Any]:
        """Their unconstrained value variables."""
        return [self.model.rvs_to_values[variable] for variable in self.variables]

    @property
    def targets(self) -> Array:
        """Observed targets, (n,)."""
        return self.cached("targets", lambda: np.asarray(_value(self.y), dtype=np.float64))

    @property
    def inputs(self) -> Array:
        """Training inputs, (n, d)."""
        return self.cached("inputs", lambda: np.asarray(_value(self.X), dtype=np.float64))

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for this reading of the model and its data."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def function(self, key: str, make: Callable[[], Any]) -> Any:
        """The compiled function that ``make`` gives, made once for the model."""
        if key not in self._functions:
            self._functions[key] = make()
        return self._functions[key]

    def at(self, point: Mapping[str, ArrayLike]) -> tuple[Array, Array, NoiseModel]:
        """Prior covariance, prior mean and noise at given hyperparameters."""
        compiled = self.function("at", lambda: self.compile([self.K, self.mean, *self.parameters]))
        K, mean, *parameters = compiled(*self.arguments(point))
        n = self.targets.size
        return K, np.broadcast_to(mean, (n,)).copy(), self.noise_model(parameters)

    def noise_at(self, point: Mapping[str, ArrayLike]) -> NoiseModel:
        """Noise at given hyperparameters."""
        compiled = self.function("parameters", lambda: self.compile(list(self.parameters)))
        return self.noise_model(compiled(*self.arguments(point)))

    def noise_model(self, parameters: Sequence[ArrayLike]) -> NoiseModel:
        """Noise with the given parameters, numbers or (n,) arrays."""
        shaped = [np.asarray(p, dtype=np.float64) for p in parameters]
        named = zip(self.loss.parameters, shaped, strict=True)
        return NoiseModel(self.loss, {k: float(p.reshape(-1)[0]) if p.size == 1 else p.ravel() for k, p in named})

    def cross(self, point: Mapping[str, ArrayLike], X_new: Array) -> tuple[Array, Array, Array]:
        """Covariance of new with training inputs (n_new, n), prior variance and prior mean at the new ones."""

        def compile_() -> Any:
            new = pt.matrix("X_new", shape=(None, self.inputs.shape[1]))
            cov, offset = self.prior.cov_func, self.prior.mean_func
            graphs = [cov(new, self.prior.X), cov(new, diag=True), offset(new)]
            return self.compile([_quick(_localize(g, self.model)) for g in graphs], extra=[new])

        K_star, diagonal, mean = self.function("cross", compile_)(*self.arguments(point), X_new)
        return K_star, np.broadcast_to(diagonal, (len(X_new),)), np.broadcast_to(mean, (len(X_new),))

    def joint(self, point: Mapping[str, ArrayLike], X_new: Array) -> Array:
        """Prior covariance of training and new inputs together, (n + n_new, n + n_new), without jitter."""

        def compile_() -> Any:
            both = pt.matrix("X_both", shape=(None, self.inputs.shape[1]))
            return self.compile([_quick(_localize(self.prior.cov_func(both), self.model))], extra=[both])

        (covariance,) = self.function("joint", compile_)(*self.arguments(point), np.vstack([self.inputs, X_new]))
        out: Array = covariance
        return out

    def compile(self, outputs: list[Any], extra: list[Any] | None = None) -> Any:
        """Compile graphs into a function of the hyperparameters themselves (constrained)."""
        inputs = [variable.type(name=variable.name) for variable in self.variables]
        graphs = graph_replace(outputs, dict(zip(self.variables, inputs, strict=True)), strict=False)
        return pytensor.function([*inputs, *(extra or [])], graphs, on_unused_input="ignore", mode=INTERPRETED)

    def arguments(self, point: Mapping[str, ArrayLike]) -> list[Array]:
        """Hyperparameters in the order that functions of `compile` take them."""
        return [
            np.asarray(point[name], dtype=v.dtype) for name, v in zip(self.hyperparameters, self.variables, strict=True)
        ]

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
            return pytensor.function(
                self.values, self.model.replace_rvs_by_values(graphs), on_unused_input="ignore", mode=INTERPRETED
            )

        found = self.function("backward", compile_)(*values)
        return {name: np.asarray(value) for name, value in zip(self.hyperparameters, found, strict=True)}

    def _transforms(self) -> list[tuple[Any, Transform | None]]:
        return [(variable, self.model.rvs_to_transforms[variable]) for variable in self.variables]

    def checked(self, given: Mapping[str, Any] | None) -> Point:
        """Given hyperparameters as arrays of the right shape and inside their support.

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
            variable = self.model[name]
            shape = tuple(int(s) for s in self.cached(f"shape {name}", variable.shape.eval))
            try:
                array = np.broadcast_to(np.asarray(value, dtype=variable.dtype), shape).copy()
            except (TypeError, ValueError):
                raise ValueError(f"hyperparameter {name} must be numbers of shape {shape}, got {value!r}") from None
            if not np.isfinite(array).all():
                raise ValueError(f"hyperparameter {name} must be finite, got {value!r}")
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
            point[name] = array
        return point

    def complete(self, given: Mapping[str, Any] | None) -> Point:
        """As `checked`, and all of them are there.

        Raises
        ------
        ValueError
            Naming those that are missing, too.
        """
        point = self.checked(given)
        missing = [name for name in self.hyperparameters if name not in point]
        if missing:
            raise ValueError(
                f"hyperparameters must give every hyperparameter of the model, {', '.join(missing)} missing"
            )
        return point


@contextmanager
def copying() -> Iterator[None]:
    """Copy a model without PyMC's warning about old GP objects: the record of ours survives (`bsvr_pp.gp`)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*likely created by GP objects.*", UserWarning)
        yield


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
        If the model has no `GP`, several, no observed noise of a known kind on it, or missing targets.
    TypeError
        If there is no model.
    """
    if model is None:
        model = pm.Model.get_context(error_if_none=False)
    if model is None:
        raise TypeError("model must be given, or be that of a surrounding with block: there is none")
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    latents = [(v, prior_of(v)) for v in [*model.deterministics, *model.free_RVs]]
    found = [(variable, prior) for variable, prior in latents if prior is not None]
    if not found:
        raise ModelError("the model has no Gaussian process of bsvr_pp: make f by bp.GP(cov_func=...).prior(...)")
    if len(found) > 1:
        names = ", ".join(v.name for v, _ in found)
        raise ModelError(f"the model has several latent functions ({names}): add their kernels in one bp.GP instead")
    ((f, prior),) = found
    missing = [v.name for v in model.free_RVs if v.name.endswith("_unobserved")]
    if missing:
        raise ModelError(
            f"the targets have missing values ({missing[0]}): drop those rows, and predict them afterwards"
        )
    if len(model.observed_RVs) != 1:
        names = ", ".join(v.name for v in model.observed_RVs) or "none"
        raise ModelError(f"the model must have one observed variable, the targets; it has {names}")
    target = model.observed_RVs[0]
    loss, location, parameters = _noise(target)
    if location is not f:
        raise ModelError(
            f"mu of {target.name} must be the latent function {f.name} itself; put offsets into the GP's mean_func"
        )
    latent_names = {f.name, prior.whitened}
    hyperparameters = tuple(v.name for v in model.free_RVs if v.name not in latent_names)
    y = model.rvs_to_values[target]
    X = prior.X if not isinstance(prior.X, pt.Variable) else _localize(prior.X, model)
    K = _quick(_localize(prior.cov_func(prior.X), model))
    problem = Problem(
        model,
        prior,
        target.name,
        loss,
        hyperparameters,
        K,
        _localize(prior.mean_func(prior.X), model),
        y,
        X,
        tuple(parameters),
        _functions(model, (hyperparameters, target.name, loss.name, prior.name)),
    )
    unknown = {v.name for v in ancestors([K, problem.mean, *parameters]) if v in model.free_RVs} & latent_names
    if unknown:
        raise ModelError(
            f"the kernel or the noise depends on the latent function {f.name}: it cannot be integrated out"
        )
    n = problem.inputs.shape[0]
    if problem.targets.shape != (n,):
        raise ModelError(f"{target.name} must be a ({n},) array as X has {n} rows, got shape {problem.targets.shape}")
    if not np.isfinite(problem.targets).all() or not np.isfinite(problem.inputs).all():
        raise ModelError(f"{target.name} and X must be finite")
    if loss.classification and not np.isin(problem.targets, (-1.0, 1.0)).all():
        odd = problem.targets[~np.isin(problem.targets, (-1.0, 1.0))][0]
        raise ModelError(f"the observed {target.name} must be labels -1 and +1, got {odd:g}: drop what is not known")
    return problem


def _noise(target: Any) -> tuple[Loss, Any, list[Any]]:
    """Loss, location and loss parameters of an observed variable."""
    op = target.owner.op
    name = getattr(type(op), "loss", None)
    if name in LOSSES:
        location, *parameters = op.dist_params(target.owner)
        return LOSSES[name], location, parameters
    if isinstance(op, NormalRV):
        location, sigma = op.dist_params(target.owner)
        return LOSSES["gaussian"], location, [sigma**-2]
    if isinstance(op, LaplaceRV):
        location, b = op.dist_params(target.owner)
        return LOSSES["laplace"], location, [1.0 / b]
    if isinstance(op, AsymmetricLaplaceRV):
        b, kappa, location = op.dist_params(target.owner)
        return LOSSES["pinball"], location, [b * (kappa + 1 / kappa), kappa**2 / (1 + kappa**2)]
    kind = getattr(op, "name", None) or type(op).__name__
    raise ModelError(
        f"the noise of {target.name} is {kind}: use bp.SoftInsensitive, bp.EpsilonInsensitive, bp.Huber, "
        "bp.SVMLabel, pm.Laplace, pm.AsymmetricLaplace or pm.Normal"
    )


def _localize(graph: Any, model: pm.Model) -> Any:
    """The graph with every named variable of another copy of the model replaced by this model's."""
    graph = pt.as_tensor_variable(graph)
    replace = {v: model[v.name] for v in ancestors([graph]) if v.name in model.named_vars and v is not model[v.name]}
    if not replace:
        return graph
    return graph_replace([graph], replace, strict=False)[0]


def _quick(graph: Any) -> Any:
    """The graph with Clip, which PyMC's distances have and which is a Python call an element, as minimum of maximum."""
    replace = {}
    for variable in ancestors([graph]):
        if variable.owner is not None and isinstance(getattr(variable.owner.op, "scalar_op", None), Clip):
            x, low, high = variable.owner.inputs
            above = pt.maximum(x, low)
            bound = high.owner.inputs[0] if high.owner is not None and isinstance(high.owner.op, DimShuffle) else high
            unbounded = isinstance(bound, pt.Constant) and bool(np.all(bound.data == np.inf))
            replace[variable] = above if unbounded else pt.minimum(above, high)
    return graph_replace([graph], replace)[0] if replace else graph


def _functions(model: pm.Model, structure: Any) -> dict[str, Any]:
    """Where the model's compiled functions are kept; empty again when the model has grown."""
    known, functions = _FUNCTIONS.get(model, (None, {}))
    if known != structure:
        functions = {}
        _FUNCTIONS[model] = (structure, functions)
    return functions


def _value(variable: Any) -> Array:
    """Value of data: an array, a constant or a pm.Data."""
    if isinstance(variable, np.ndarray):
        return variable
    value: Array = pt.as_tensor_variable(variable).eval()
    return value

"""Conversion between the noise of a loss and a PyMC distribution of the targets.

Gaussian, Laplace and pinball noise are distributions of PyMC under another parametrisation. The distribution of every
other loss is made from its row of the registry, and computed from its table of pieces. The densities of soft
insensitive, ε-insensitive and Huber noise have closed forms with second derivatives, which JAX can compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from inspect import cleandoc, signature
from math import pi, sqrt
from typing import ClassVar, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import AsymmetricLaplaceRV, Continuous
from pymc.distributions.discrete import Discrete
from pymc.distributions.dist_math import check_icdf_parameters, check_icdf_value, check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.logprob.utils import CheckParameterValue
from pymc.pytensorf import normalize_rng_param
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor import TensorLike
from pytensor.tensor.random.basic import LaplaceRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorConstant

from bsvr_pp.core.arrays import Tensor, check_positive
from bsvr_pp.core.losses import LOSSES
from bsvr_pp.core.losses.noise import unit_noise
from bsvr_pp.core.losses.registry import LIKELIHOODS, NOISES, Loss
from bsvr_pp.model.gaussian import above, replace_in, value_of
from bsvr_pp.model.operation import log_factor, noise_quantile, valid_parameters

# The losses with closed forms, each with its beta if beta is not a parameter.
FIXED_BETA: dict[str, tuple[float, ...]] = {"soft_insensitive": (), "epsilon_insensitive": (0.0,), "huber": (1.0,)}
_TINY = 1e-20  # erf(√x) and its derivatives are exact down to here; below, its first-order expansion is
# PyMC's scale of the asymmetric Laplace is C·√(q(1-q)), and its kappa is √(q/(1-q)).
_TO_PYMC: dict[str, Callable[..., tuple[type[Continuous], dict[str, Tensor]]]] = {
    "gaussian": lambda C: (pm.Normal, {"sigma": C**-0.5}),
    "absolute": lambda C: (pm.Laplace, {"b": 1 / C}),
    "pinball": lambda C, quantile: (pm.AsymmetricLaplace, {"b": C * (quantile * (1 - quantile)) ** 0.5, "q": quantile}),
}
# What PyMC does not allow is not allowed here either: signs are kept.
_FROM_PYMC: dict[type[RandomVariable], Callable[..., tuple[str, Tensor, list[Tensor]]]] = {
    NormalRV: lambda mu, sigma: ("gaussian", mu, [pt.sign(sigma) * pt.cast(sigma, "float64") ** -2]),
    LaplaceRV: lambda mu, b: ("absolute", mu, [1.0 / b]),
    AsymmetricLaplaceRV: lambda b, kappa, mu: (
        "pinball",
        mu,
        [b * (pt.abs(kappa) + 1 / pt.abs(kappa)), kappa * pt.abs(kappa) / (1 + kappa**2)],
    ),
}


def observe(
    name: str,
    loss: str,
    mu: TensorLike,
    parameters: Mapping[str, TensorLike],
    observed: TensorLike,
    of_targets: Mapping[str, TensorLike] = {},
) -> Tensor:
    """Make targets with the noise of a loss around mu in the surrounding PyMC model, with any "weight"."""
    kind, named = _TO_PYMC[loss](**parameters) if loss in _TO_PYMC else (distribution(loss), dict(parameters))
    if "weight" in of_targets:
        return observe_weighted(name, kind.dist(mu=mu, **named), of_targets["weight"], observed)
    return kind(name, mu=mu, **named, observed=observed)


def noise_of(target: Tensor) -> tuple[Loss, Tensor, list[Tensor]] | None:
    """Return the loss, location and parameters of the loss of an observed random variable; None for other noise."""
    op = target.owner.op
    if isinstance(op, InvertedRV) and op.loss in LIKELIHOODS:
        location, *parameters = op.dist_params(target.owner)
        return LIKELIHOODS[op.loss], location, parameters[: len(LIKELIHOODS[op.loss].parameters)]
    for kind, read in _FROM_PYMC.items():
        if isinstance(op, kind):
            given = op.dist_params(target.owner)
            for argument, value in zip(signature(read).parameters, given, strict=True):
                known = all(isinstance(v, pt.Constant) for v in above([value]) if v.owner is None)
                if argument != "mu" and (known or isinstance(value, SharedVariable)):
                    check_positive(f"{argument} of the noise", value_of(value))
            name, location, parameters = read(*given)
            numbers = (p.squeeze() if all(p.type.broadcastable) else p for p in parameters)  # which have axes of mu
            return LOSSES[name], location, [_unchecked(parameter) for parameter in numbers]
    return None


def _unchecked(graph: Tensor) -> Tensor:
    """Return the graph with NaN where a check of PyMC would raise an error, as for q of the asymmetric Laplace."""
    checks = [v for v in ancestors([graph]) if v.owner is not None and isinstance(v.owner.op, CheckParameterValue)]
    known = {v: pt.switch(pt.all(pt.stack(v.owner.inputs[1:])), v.owner.inputs[0], np.nan) for v in checks}
    return replace_in(graph, known)


def has_labels(model: pm.Model) -> bool:
    """Return whether a model observes labels, whose noise is not normalised."""
    each = [noise_of(split_weight(v)[0]) for v in model.observed_RVs]
    return any(noise is not None and noise[0].targets.refusal("normalised evidence") for noise in each)


@cache
def distribution(loss: str) -> type[Continuous]:
    """Make the PyMC distribution of a loss of residuals; its parameters are mu and the loss's parameters."""
    return distribution_class(NoiseRV, class_name(loss), loss, _documentation(loss), _methods(loss))


def distribution_class(
    base: type[NoiseRV],
    name: str,
    loss: str,
    documentation: str,
    methods: Mapping[str, Callable[..., Tensor]],
    *,
    bounds: str = "",
    parent: type[Continuous | Discrete] = Continuous,
    **of_variable: object,
) -> type[Continuous]:
    """Make a distribution of mu, parameters, which may have names, and bounds, with the methods that PyMC expects."""
    shown, parameters = name.partition("_")[0], LOSSES[loss].parameters  # for a kind of rows, without its loss
    signature = ",".join(["()"] * (1 + len(parameters))) + bounds
    of_variable |= {
        "__module__": base.__module__,
        "__doc__": f"Random variable of `{shown}` with {loss} noise.",
        "name": name.lower(),
        "loss": loss,
        "extended_signature": f"[rng],[size],{signature}->[rng],()",
        "_print_name": (shown, f"\\operatorname{{{shown}}}"),
    }
    rv_type = cast(type[NoiseRV], type(f"{name}RV", (base,), of_variable))

    def dist(cls: type, /, mu: TensorLike, *values: TensorLike, **named: TensorLike) -> Tensor:
        given = [mu, *values, *(named.pop(p) for p in parameters[len(values) :] if p in named)]
        if len(given) != len(rv_type.ndims_params):
            raise TypeError(f"{name} takes mu, {', '.join(parameters)}, got {len(given)} values")
        return super(made, cls).dist(given, **named)

    rv_op = partial(rv_type.rv_op)
    vars(rv_op)["ndims_params"] = rv_type.ndims_params  # `pm.find_constrained_prior` reads it
    own = {"__module__": base.__module__, "__doc__": documentation, "rv_type": rv_type, "rv_op": rv_op}
    members = own | {"dist": classmethod(dist)} | {key: staticmethod(method) for key, method in methods.items()}
    metaclass: type = type(parent)
    made: type[Continuous] = metaclass(name, (parent,), members)
    return made


def class_name(loss: str) -> str:
    """Return the name of the distribution of a loss, such as SquaredInsensitive for squared_insensitive."""
    return "".join(part.capitalize() for part in loss.split("_"))


def distribution_named(name: str) -> type[Continuous] | None:
    """Return the distribution with this class name; None if no loss has it, or if it is a distribution of PyMC."""
    losses = [loss for loss in NOISES if class_name(loss) == name and loss not in _TO_PYMC]
    return distribution(losses[0]) if losses else None


def __getattr__(name: str) -> type:
    """Return a class made by `distribution`, for import and pickling."""
    for loss in NOISES:
        if class_name(loss) == name.removesuffix("RV"):
            return distribution(loss).rv_type if name.endswith("RV") else distribution(loss)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class InvertedRV(SymbolicRandomVariable):
    """A random variable with draws as functions of one uniform number each; ``loss`` names its row of `LOSSES`."""

    loss: ClassVar[str]

    @classmethod
    def rv_op(cls, *values: TensorLike, size: Variable | None = None, rng: Variable | None = None) -> Tensor:
        """Return the draw of a uniform number."""
        params = [as_float(value) for value in values]
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(*params, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, uniform = pt.random.uniform(0.0, 1.0, size=shape, rng=rng, return_next_rng=True)
        draws = cls.drawn(uniform, *params)
        return cls(inputs=[rng, size, *params], outputs=[next_rng, draws])(rng, size, *params)

    @classmethod
    def drawn(cls, uniform: Tensor, *params: Tensor) -> Tensor:
        """Return the draw as a graph of the uniform number and the parameters."""
        raise NotImplementedError


class NoiseRV(InvertedRV):
    """A location mu plus noise, drawn by inversion of the cdf."""

    @classmethod
    def drawn(cls, uniform: Tensor, *params: Tensor) -> Tensor:
        """Return mu + quantile(uniform)."""
        mu, *values = params
        # A uniform draw can equal the lower bound, which has an infinite quantile.
        least = np.finfo(uniform.dtype).eps / 4
        draws = mu + noise_quantile(cls.loss, pt.clip(uniform, least, 1 - least), values).astype(config.floatX)
        return checked(check_icdf_parameters, draws, cls.loss, values)


def _methods(loss: str) -> dict[str, Callable[..., Tensor]]:
    """Return the functions that PyMC expects in a distribution class."""

    def logp(value: Tensor, mu: Tensor, *values: Tensor) -> Tensor:
        if loss in FIXED_BETA:
            density = _closed_form(value - mu, *values, *map(as_float, FIXED_BETA[loss]))
        else:
            density = log_factor(loss, mu - value, 0.0, 0.0, values)
        return checked(check_parameters, density, loss, values)

    def side(above: bool, value: Tensor, mu: Tensor, *values: Tensor) -> Tensor:
        """Return the log of the mass on one side of a value, from the log mass of the tail, accurate if small."""
        beyond, finite = value > mu, pt.switch(pt.isinf(value), 0.0, value)
        low, high = pt.switch(beyond, finite, -np.inf), pt.switch(beyond, np.inf, finite)
        mass = log_factor(loss, mu, low, high, values).astype(config.floatX)
        tail = pt.switch(pt.isinf(value), -np.inf, mass)
        rest = pt.log1p(-pt.exp(tail))
        return checked(check_parameters, pt.switch(beyond, *((tail, rest) if above else (rest, tail))), loss, values)

    def icdf(value: Tensor, mu: Tensor, *values: Tensor) -> Tensor:
        found = mu + noise_quantile(loss, pt.clip(value, 0.0, 1.0), values).astype(config.floatX)
        return checked(check_icdf_parameters, check_icdf_value(found, value), loss, values)

    def support_point(rv: Tensor, size: Variable, mu: Tensor, *values: Tensor) -> Tensor:
        mean = pt.broadcast_arrays(mu, *values)[0]
        return mean if rv_size_is_none(size) else pt.full(size, mean)

    tails = {"logcdf": partial(side, False), "logccdf": partial(side, True)}
    return {"logp": logp, "icdf": icdf, "support_point": support_point, **tails}


def _closed_form(r: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Return the log density of soft insensitive noise, chu2004 (13); the normaliser is 2/C times C·a + g(C·β·ε), (14).

    a = (1 − β)ε and b = (1 + β)ε are the knots of the loss. The density and its gradients are exact for Cε from 1e-8 to
    1e8, including β = 0 and ε = 0. Every switch is guarded twice, because gradients also pass through the other branch.
    """
    mass = C * (1 - beta) * epsilon + _curved_mass(C * beta * epsilon)
    return -C * _loss(r, epsilon, beta) - (pt.log(2.0 * mass) - pt.log(C))


def _loss(r: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Return the soft insensitive loss, chu2004 (11), as the maximum of its lower linear bounds.

    ℓ(r) = max over u in [0, 1] of u(|r| − a) − w·u²/2, w = b − a.  By the envelope theorem ∂ℓ/∂|r| = u,
    ∂ℓ/∂β = ε·u(1 − u) and ∂ℓ/∂ε = −(1 − β)u − β·u²: bounded, without a division by w.
    """
    distance = pt.switch(r < 0, -r, r)  # unlike abs, its derivative is not 0 at 0
    excess = (distance - epsilon) + beta * epsilon
    width = 2 * beta * epsilon
    # The knots are one kink if they round to the same number or if w² in the gradient would underflow.
    limits = np.finfo(width.dtype)
    distinct = (beta > limits.eps) & (width > np.sqrt(limits.tiny))
    between = distinct & (excess >= 0) & (excess <= width)
    ratio = pt.switch(between, excess, 0.0) / pt.switch(distinct, width, 1.0)
    u = pt.switch(between, ratio, pt.switch(excess > width, 1.0, 0.0))
    return u * excess - 0.5 * width * u**2


def _curved_mass(x: Tensor) -> Tensor:
    """Return g(x) = √(πx)·erf√x + exp(−x), the mass beyond the flat piece; analytic, g(0) = g'(0) = 1."""
    positive = x > _TINY
    root = pt.sqrt(pt.switch(positive, x, 1.0))
    return pt.switch(positive, sqrt(pi) * root * pt.erf(root), 2 * x) + pt.exp(-x)


def as_float(value: TensorLike) -> Tensor:
    """Cast to floatX; by default PyTensor makes 1.0 a float32 constant and 0.1 a float64 constant."""
    tensor = pt.as_tensor_variable(value)
    if isinstance(tensor, TensorConstant):
        return pt.constant(tensor.data, dtype=config.floatX)
    return tensor.astype(config.floatX)


def checked(
    check: Callable[..., Tensor], result: Tensor, loss: str, values: Sequence[Tensor], *more: Tensor, words: str = ""
) -> Tensor:
    """Return a result with a check of PyMC that the parameters of a loss are valid, and of more conditions in words."""
    return check(result, *valid_parameters(loss, values), *more, msg=_conditions(loss) + words)


def _conditions(loss: str) -> str:
    """Return the conditions of `valid_parameters` in words."""
    row = LOSSES[loss]
    return ", ".join(f"{name} {row.parameter(name).allowed}" for name in row.parameters) + ", all finite"


def _documentation(loss: str) -> str:
    row, name = LOSSES[loss], class_name(loss)
    example = str(unit_noise(loss)).partition("(")[2]
    return rf"""Noise around mu of the loss `{loss}`.

{cleandoc(row.energy.__doc__ or "")}

The pdf is :math:`f(y \mid \mu) = e^{{-C\,\ell(y - \mu)}} / Z`. The documentation of the losses has the normaliser Z and
the variance.

Parameters
----------
mu : tensor_like of float
    Location, in the units of y.
{row.documented("tensor_like of float")}
Raises
------
ParameterValueError
    From densities and draws, unless {_conditions(loss)}.
    Inside a model the density is minus infinity there. JAX skips the check.

Examples
--------
>>> import numpy as np
>>> import pymc as pm
>>> from bsvr_pp.losses import {loss}
>>> from bsvr_pp.model.distributions import {name}
>>> noise = {name}.dist(mu=0.0, {example}
>>> expected = {unit_noise(loss)}.log_density(0.3)
>>> bool(np.isclose(pm.logp(noise, 0.3).eval(mode="FAST_COMPILE"), expected))
True
"""


class WeightedTargetsRV(SymbolicRandomVariable):
    """Targets with likelihood p(y|f)^weight; the ``base`` operation draws single targets."""

    name = "weighted_targets"
    _print_name = ("WeightedTargets", "\\operatorname{WeightedTargets}")

    def __init__(self, *args: Sequence[Variable], base: Op, **kwargs: object) -> None:
        self.base = base
        super().__init__(*args, ndim_supp=0, **kwargs)


@_logprob.register(WeightedTargetsRV)
def _weighted_logp(op: WeightedTargetsRV, values: Sequence[Tensor], *inputs: Tensor, **kwargs: object) -> Tensor:
    return inputs[-1] * _logprob(op.base, values, *inputs[:-1])


def observe_weighted(name: str, targets: Tensor, weight: TensorLike, observed: TensorLike) -> Tensor:
    """Make targets with sample weights, in the surrounding PyMC model."""
    node = targets.owner
    inputs = [*node.inputs, pt.as_tensor_variable(weight)]
    inner = [v.type() for v in inputs]
    op = WeightedTargetsRV(inner, node.op.make_node(*inner[:-1]).outputs, base=node.op)
    return pm.modelcontext(None).register_rv(op(*inputs)[-1], name, observed=observed)


def split_weight(target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the targets without weights, and the weights (n,), or 1."""
    op = target.owner.op
    if not isinstance(op, WeightedTargetsRV):
        return target, pt.constant(1.0)
    *inputs, weight = target.owner.inputs
    return cast(Tensor, op.base.make_node(*inputs).outputs[-1]), weight


SoftInsensitive = distribution("soft_insensitive")
EpsilonInsensitive = distribution("epsilon_insensitive")
Huber = distribution("huber")

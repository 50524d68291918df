"""The noise of a loss as a PyMC distribution of the targets, and back.

Gaussian, Laplace and pinball noise are distributions of PyMC under another parametrisation. The distribution of every
other loss is made from its row of the registry. Soft insensitive, ε-insensitive and Huber noise have closed forms, and
therefore a cdf, a quantile, second derivatives and JAX; the others are computed from the table of pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from inspect import cleandoc
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import AsymmetricLaplaceRV, Continuous
from pymc.distributions.dist_math import check_icdf_parameters, check_icdf_value, check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.configdefaults import config
from pytensor.tensor.random.basic import LaplaceRV, NormalRV
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorConstant

from bsvr_pp.losses import LOSSES, NOISES, Loss, closed_forms
from bsvr_pp.losses.density import log_density, noise_quantile
from bsvr_pp.losses.noise import unit_noise
from bsvr_pp.losses.registry import LIKELIHOODS

_LETTERS = {"epsilon": r"\epsilon", "beta": r"\beta"}
# The losses with closed forms, each with its beta if that is not a parameter.
_CLOSED_FORMS: dict[str, tuple[float, ...]] = {"soft_insensitive": (), "epsilon_insensitive": (0.0,), "huber": (1.0,)}
# Loss with its normaliser Z, and variance of the noise, as LaTeX.
_LATEX = {
    "soft_insensitive": (
        r"""
   \ell(r) = \begin{cases}
       0 & |r| \le (1-\beta)\epsilon \\
       \frac{(|r| - (1-\beta)\epsilon)^2}{4\beta\epsilon} & (1-\beta)\epsilon < |r| < (1+\beta)\epsilon \\
       |r| - \epsilon & |r| \ge (1+\beta)\epsilon
   \end{cases} \qquad
   Z = 2(1-\beta)\epsilon + 2\sqrt{\frac{\pi\beta\epsilon}{C}} \operatorname{erf}\sqrt{C\beta\epsilon}
   + \frac{2}{C} e^{-C\beta\epsilon}""",
        r"""\frac{2}{Z}\Big\{\frac{a^3}{3} + \frac{4(1-\beta)\beta\epsilon^2}{C}
          + \sqrt{\frac{\pi\beta\epsilon}{C}}\big(\frac{2\beta\epsilon}{C} + a^2\big)
          \operatorname{erf}\sqrt{C\beta\epsilon}
          + \big(\frac{a^2}{C} + \frac{2(1+\beta)\epsilon}{C^2} + \frac{2}{C^3}\big) e^{-C\beta\epsilon}\Big\},
          a = (1-\beta)\epsilon""",
    ),
    "epsilon_insensitive": (
        r"\ell(r) = \max(|r| - \epsilon, 0) \qquad Z = \frac{2(1 + C\epsilon)}{C}",
        r"\frac{2}{C^2} + \frac{\epsilon^2 (C\epsilon + 3)}{3 (C\epsilon + 1)}",
    ),
    "huber": (
        r"""
   \ell(r) = \begin{cases}
       \frac{r^2}{4\epsilon} & |r| < 2\epsilon \\
       |r| - \epsilon & |r| \ge 2\epsilon
   \end{cases} \qquad
   Z = 2\sqrt{\frac{\pi\epsilon}{C}} \operatorname{erf}\sqrt{C\epsilon} + \frac{2}{C} e^{-C\epsilon}""",
        r"\frac{2\epsilon}{C} + \frac{4 (1 + C\epsilon)}{Z C^3} e^{-C\epsilon}",
    ),
}
# PyMC's scale of the asymmetric Laplace is C·√(q(1-q)), and its kappa is √(q/(1-q)).
_TO_PYMC: dict[str, Callable[..., tuple[Any, dict[str, Any]]]] = {
    "gaussian": lambda C: (pm.Normal, {"sigma": C**-0.5}),
    "absolute": lambda C: (pm.Laplace, {"b": 1 / C}),
    "pinball": lambda C, quantile: (pm.AsymmetricLaplace, {"b": C * (quantile * (1 - quantile)) ** 0.5, "q": quantile}),
}
_FROM_PYMC: dict[Any, Callable[..., tuple[str, Any, list[Any]]]] = {
    NormalRV: lambda mu, sigma: ("gaussian", mu, [sigma**-2]),
    LaplaceRV: lambda mu, b: ("absolute", mu, [1.0 / b]),
    AsymmetricLaplaceRV: lambda b, kappa, mu: (
        "pinball",
        mu,
        [b * (kappa + 1 / kappa), kappa**2 / (1 + kappa**2)],
    ),
}


def observe(
    name: str, loss: str, mu: Any, parameters: Mapping[str, Any], observed: Any, of_targets: Mapping[str, Any] = {}
) -> Any:
    """Make targets with the noise of a loss around mu in the surrounding PyMC model, with any "weight"."""
    kind, named = _TO_PYMC[loss](**parameters) if loss in _TO_PYMC else (distribution(loss), dict(parameters))
    if "weight" in of_targets:
        return observe_weighted(name, kind.dist(mu=mu, **named), of_targets["weight"], observed)
    return kind(name, mu=mu, **named, observed=observed)


def noise_of(target: Any) -> tuple[Loss, Any, list[Any]] | None:
    """Loss, location and parameters of the loss of an observed random variable; None for other noise."""
    op = target.owner.op
    name = getattr(type(op), "loss", None)
    if name in LIKELIHOODS:
        location, *parameters = op.dist_params(target.owner)
        return LIKELIHOODS[name], location, parameters[: len(LIKELIHOODS[name].parameters)]
    for kind, read in _FROM_PYMC.items():
        if isinstance(op, kind):
            name, location, parameters = read(*op.dist_params(target.owner))
            return LOSSES[name], location, parameters
    return None


def has_labels(model: pm.Model) -> bool:
    """Whether a model observes labels, whose noise is not normalised."""
    each = [noise_of(unweighted(v)[0]) for v in model.observed_RVs]
    return any(noise is not None and noise[0].targets.refusal("normalised evidence") for noise in each)


@cache
def distribution(loss: str) -> type[Continuous]:
    """Make the PyMC distribution of a loss of residuals; its parameters are mu and those of the loss."""
    name, parameters = class_name(loss), LOSSES[loss].parameters

    def ordered(values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        rest = [p for p in parameters[len(values) :] if p in named]
        given = [*values, *(named.pop(p) for p in rest)]
        if len(given) != len(parameters):
            raise TypeError(f"{name} takes mu, {', '.join(parameters)}, got {1 + len(given)} values")
        return given

    rv_type = rv_class(NoiseRV, f"{name}RV", name, loss, called=loss)
    made: type[Continuous] = distribution_class(name, rv_type, _methods(loss), _documentation(loss), ordered)
    return made


def rv_class(base: type, name: str, shown: str, loss: str, *, called: str, bounds: str = "", **members: Any) -> Any:
    """Make the class of random variables with mu, the parameters of a loss, and bounds; ``shown`` is their name."""
    signature = ",".join(["()"] * (1 + len(LOSSES[loss].parameters))) + bounds
    members |= {
        "__module__": base.__module__,
        "__doc__": f"Random variable of `{shown}` with {loss} noise.",
        "name": called,
        "loss": loss,
        "extended_signature": f"[rng],[size],{signature}->[rng],()",
        "_print_name": (shown, f"\\operatorname{{{shown}}}"),
    }
    return type(name, (base,), members)


def distribution_class(
    name: str,
    rv_type: Any,
    methods: Sequence[Callable[..., Any]],
    documentation: str,
    ordered: Callable[..., list[Any]] = lambda values, named: list(values),
    parent: type = Continuous,
) -> Any:
    """Make a distribution class of PyMC; ``ordered`` takes the arguments after mu out of positional and named ones."""

    def dist(cls: Any, mu: Any, *values: Any, **named: Any) -> Any:
        return super(made, cls).dist([mu, *ordered(values, named)], **named)

    rv_op: Any = partial(rv_type.rv_op)
    rv_op.ndims_params = rv_type.ndims_params  # which `pm.find_constrained_prior` reads
    members = {
        "__module__": rv_type.__module__,
        "__doc__": documentation,
        "rv_type": rv_type,
        "rv_op": rv_op,
        "dist": classmethod(dist),
        **{method.__name__: staticmethod(method) for method in methods},
    }
    made: Any = type(parent)(name, (parent,), members)
    return made


def class_name(loss: str) -> str:
    """Return the name of the distribution of a loss, such as SquaredInsensitive for squared_insensitive."""
    return "".join(part.capitalize() for part in loss.split("_"))


def distribution_named(name: str) -> Any:
    """Return the distribution with this class name; None if no loss has it, or if it is a distribution of PyMC."""
    losses = [loss for loss in NOISES if class_name(loss) == name and loss not in _TO_PYMC]
    return distribution(losses[0]) if losses else None


def __getattr__(name: str) -> Any:
    """Return a class made by `distribution`, so that it can be imported and pickled."""
    for loss in NOISES:
        if class_name(loss) == name.removesuffix("RV"):
            return distribution(loss).rv_type if name.endswith("RV") else distribution(loss)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class InvertedRV(SymbolicRandomVariable):
    """A random variable whose draws are a function of one uniform number each; ``loss`` names its row of `LOSSES`."""

    loss: ClassVar[str]

    @classmethod
    def rv_op(cls, *values: Any, size: Any = None, rng: Any = None) -> Any:
        """Return the draw of a uniform number."""
        params = [as_float(value) for value in values]
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(*params, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, uniform = pt.random.uniform(0.0, 1.0, size=shape, rng=rng, return_next_rng=True)
        draws = cls.drawn(uniform, *params)
        return cls(inputs=[rng, size, *params], outputs=[next_rng, draws])(rng, size, *params)

    @classmethod
    def drawn(cls, uniform: Any, *params: Any) -> Any:
        """The draw as a graph of the uniform number and the parameters."""
        raise NotImplementedError


class NoiseRV(InvertedRV):
    """A location mu plus noise, which is drawn by inversion of its cdf."""

    @classmethod
    def drawn(cls, uniform: Any, *params: Any) -> Any:
        """Return mu + quantile(uniform)."""
        mu, *values = params
        # A uniform draw can be equal to the lower bound, whose quantile is infinite.
        least = np.finfo(uniform.dtype).eps / 4
        draws = mu + _quantile(cls.loss, pt.clip(uniform, least, 1 - least), values)
        return check_icdf_parameters(draws, *valid_parameters(cls.loss, values)[0], msg=constraints(cls.loss))


def _methods(loss: str) -> list[Callable[..., Any]]:
    """The functions that PyMC expects in a distribution class."""

    def checked(check: Callable[..., Any], result: Any, values: Any) -> Any:
        return check(result, *valid_parameters(loss, values)[0], msg=constraints(loss))

    def logp(value: Any, mu: Any, *values: Any) -> Any:
        if loss in _CLOSED_FORMS:
            density = closed_forms.log_density(value - mu, *_family(loss, values))
        else:
            density = log_density(loss, value - mu, valid_parameters(loss, values)[1])
        return checked(check_parameters, density, values)

    def logcdf(value: Any, mu: Any, *values: Any) -> Any:
        return checked(check_parameters, closed_forms.log_cdf(value - mu, *_family(loss, values)), values)

    def logccdf(value: Any, mu: Any, *values: Any) -> Any:
        return logcdf(mu, value, *values)  # the density is symmetric

    def icdf(value: Any, mu: Any, *values: Any) -> Any:
        return checked(check_icdf_parameters, check_icdf_value(mu + _quantile(loss, value, values), value), values)

    def support_point(rv: Any, size: Any, mu: Any, *values: Any) -> Any:
        mean = pt.broadcast_arrays(mu, *values)[0]
        return mean if rv_size_is_none(size) else pt.full(size, mean)

    return [logp, support_point, *([logcdf, logccdf, icdf] if loss in _CLOSED_FORMS else [])]


def _family(loss: str, values: Any) -> list[Any]:
    """Parameters of the soft insensitive noise that the noise is."""
    return [*values, *(as_float(beta) for beta in _CLOSED_FORMS[loss])]


def _quantile(loss: str, q: Any, values: Any) -> Any:
    if loss not in _CLOSED_FORMS:
        return noise_quantile(loss, q, valid_parameters(loss, values)[1])
    lower = q < 0.5
    tail = pt.clip(pt.switch(lower, q, 1 - q), 0.0, 0.5)
    residual = closed_forms.upper_quantile(tail, *_family(loss, values))
    return pt.switch(lower, -residual, residual)


def as_float(value: Any) -> Any:
    """Cast to floatX; by default PyTensor makes 1.0 a float32 constant and 0.1 a float64 constant."""
    tensor = pt.as_tensor_variable(value)
    if isinstance(tensor, TensorConstant):
        return pt.constant(tensor.data, dtype=config.floatX)
    return tensor.astype(config.floatX)


def valid_parameters(loss: str, values: Any) -> tuple[list[Any], list[Any]]:
    """Return whether each parameter is allowed, and allowed values for the branch that is not taken."""
    tensors = [pt.as_tensor_variable(value) for value in values]
    known = [LOSSES[loss].parameter(name) for name in LOSSES[loss].parameters]
    valid = [p.holds(x) & (x < np.inf) for p, x in zip(known, tensors, strict=True)]
    return valid, [pt.switch(ok, x, 0.5) for ok, x in zip(valid, tensors, strict=True)]


def constraints(loss: str) -> str:
    """The conditions of `valid_parameters` in words."""
    row = LOSSES[loss]
    return ", ".join(f"{name} {row.parameter(name).allowed}" for name in row.parameters) + ", all finite"


def _documentation(loss: str) -> str:
    """The docstring of a distribution, from the row of its loss."""
    row, name = LOSSES[loss], class_name(loss)
    formula, variance = _LATEX.get(loss, ("", ""))
    letters = "".join(f", {_LETTERS.get(p, p)}" for p in row.parameters)
    listed = "".join(
        f"{p} : tensor_like of float\n    {row.parameter(p).meaning}; {row.parameter(p).allowed}.\n"
        for p in row.parameters
    )
    moments = rf"""
========  ==========================================
Support   :math:`y \in \mathbb{{R}}`
Mean      :math:`\mu`
Variance  :math:`{variance}`
========  ==========================================
"""
    example = str(unit_noise(loss)).partition("(")[2]
    return rf"""Noise around mu of the loss `{loss}`.

{cleandoc(row.energy.__doc__ or "")}

The pdf of this distribution is

.. math::

   f(y \mid \mu{letters}) = \frac{{1}}{{Z}} \exp\{{-C\,\ell(y - \mu)\}} \qquad {formula}

{moments if variance else ""}
Parameters
----------
mu : tensor_like of float
    Location, in the units of y.
{listed}
Raises
------
ParameterValueError
    From densities and draws, unless {constraints(loss)}.
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
    """Targets whose likelihood is p(y|f)^weight; draws are those of single targets.

    The inputs are those of the random variable of the targets, and the weights; ``base`` is its operation.
    """

    name = "weighted_targets"
    _print_name = ("WeightedTargets", "\\operatorname{WeightedTargets}")

    def __init__(self, *args: Any, base: Any, **kwargs: Any) -> None:
        self.base = base
        super().__init__(*args, ndim_supp=0, **kwargs)


@_logprob.register(WeightedTargetsRV)
def _weighted_logp(op: WeightedTargetsRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    return inputs[-1] * _logprob(op.base, values, *inputs[:-1])


def observe_weighted(name: str, targets: Any, weight: Any, observed: Any) -> Any:
    """Make targets with sample weights, in the surrounding PyMC model."""
    node = targets.owner
    inputs = [*node.inputs, weight]
    inner = [v.type() for v in inputs]
    op = WeightedTargetsRV(inner, node.op.make_node(*inner[:-1]).outputs, base=node.op)
    return pm.modelcontext(None).register_rv(op(*inputs)[-1], name, observed=observed)


def unweighted(target: Any) -> tuple[Any, Any]:
    """Return the targets without weights, and the weights (n,), or 1."""
    op = target.owner.op
    if not isinstance(op, WeightedTargetsRV):
        return target, pt.constant(1.0)
    *inputs, weight = target.owner.inputs
    return op.base.make_node(*inputs).outputs[-1], weight


SoftInsensitive = distribution("soft_insensitive")
EpsilonInsensitive = distribution("epsilon_insensitive")
Huber = distribution("huber")

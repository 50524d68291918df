"""Conversion of a loss to the PyMC distribution of the targets, and back.

Soft insensitive, ε-insensitive and Huber noise have closed forms in `bsvr_pp.model.distributions`; Gaussian, Laplace
and pinball noise are distributions of PyMC under another parametrisation. For every other loss of the registry the
distribution is made here, from its table of pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import AsymmetricLaplaceRV, Continuous
from pymc.distributions.dist_math import check_icdf_parameters, check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.basic import LaplaceRV, NormalRV
from pytensor.tensor.random.utils import normalize_size_param

from bsvr_pp.losses import LOSSES, NOISES, Loss
from bsvr_pp.losses.density import log_density, noise_quantile
from bsvr_pp.model.distributions import EpsilonInsensitive, Huber, SoftInsensitive
from bsvr_pp.model.weighted_targets import observe_weighted

__all__ = ["constraints", "distribution", "distribution_named", "noise_of", "observe", "valid_parameters"]

_CLOSED_FORMS = {"soft_insensitive": SoftInsensitive, "epsilon_insensitive": EpsilonInsensitive, "huber": Huber}
# PyMC's scale of the asymmetric Laplace is C·√(q(1-q)), and its kappa is √(q/(1-q)).
_TO_PYMC: dict[str, Callable[..., tuple[Any, dict[str, Any]]]] = {
    "gaussian": lambda C: (pm.Normal, {"sigma": C**-0.5}),
    "laplace": lambda C: (pm.Laplace, {"b": 1 / C}),
    "pinball": lambda C, quantile: (pm.AsymmetricLaplace, {"b": C * (quantile * (1 - quantile)) ** 0.5, "q": quantile}),
}
_FROM_PYMC: dict[Any, Callable[..., tuple[str, Any, list[Any]]]] = {
    NormalRV: lambda mu, sigma: ("gaussian", mu, [sigma**-2]),
    LaplaceRV: lambda mu, b: ("laplace", mu, [1.0 / b]),
    AsymmetricLaplaceRV: lambda b, kappa, mu: (
        "pinball",
        mu,
        [b * (kappa + 1 / kappa), kappa**2 / (1 + kappa**2)],
    ),
}


def observe(name: str, loss: str, mu: Any, parameters: Mapping[str, Any], observed: Any, weight: Any = None) -> Any:
    """Make targets with the noise of a loss around mu, in the surrounding PyMC model.

    Parameters
    ----------
    name : str
        Name of the variable.
    loss : str
        One of `bsvr_pp.losses.NOISES`.
    mu : tensor
        Latent function.
    parameters : dict
        Each parameter of the loss.
    observed : array, pm.Data or None
        The targets.
    weight : tensor, optional
        Sample weights of the targets.
    """
    kind, named = _TO_PYMC[loss](**parameters) if loss in _TO_PYMC else (distribution(loss), dict(parameters))
    if weight is not None:
        return observe_weighted(name, kind.dist(mu=mu, **named), weight, observed)
    return kind(name, mu=mu, **named, observed=observed)


def noise_of(target: Any) -> tuple[Loss, Any, list[Any]] | None:
    """Return loss, location and parameters of the loss of an observed random variable; None for other noise.

    Parameters
    ----------
    target : random variable
        A variable of a PyMC model.
    """
    op = target.owner.op
    name = getattr(type(op), "loss", None)
    if name in LOSSES:
        location, *parameters = op.dist_params(target.owner)
        return LOSSES[name], location, parameters[: len(LOSSES[name].parameters)]
    for kind, read in _FROM_PYMC.items():
        if isinstance(op, kind):
            name, location, parameters = read(*op.dist_params(target.owner))
            return LOSSES[name], location, parameters
    return None


@cache
def distribution(loss: str) -> type[Continuous]:
    """Make the PyMC distribution of a loss for which PyMC has no distribution.

    Its parameters are mu and those of the loss, by position or by name. It has densities, gradients and draws; JAX is
    not supported.

    Parameters
    ----------
    loss : str
        Key of `LOSSES`, of a loss of residuals.

    Examples
    --------
    >>> import pymc as pm
    >>> from bsvr_pp.model.observation import distribution
    >>> noise = distribution("huber").dist(mu=0.0, C=200.0, epsilon=1.0)
    >>> bool(abs(pm.logp(noise, 0.0).eval() - pm.logp(pm.Normal.dist(0.0, 0.1), 0.0).eval()) < 1e-12)
    True
    """
    if loss in _CLOSED_FORMS:
        return _CLOSED_FORMS[loss]
    name, parameters = class_name(loss), LOSSES[loss].parameters
    signature = ",".join(["()"] * (1 + len(parameters)))
    rv_type = type(
        f"{name}RV",
        (_TableNoiseRV,),
        {
            "__module__": __name__,
            "__doc__": f"Random variable of `{name}`.",
            "name": loss,
            "loss": loss,
            "extended_signature": f"[rng],[size],{signature}->[rng],()",
            "_print_name": (name, f"\\operatorname{{{name}}}"),
        },
    )

    def dist(cls: Any, mu: Any, *values: Any, **named: Any) -> Any:
        rest = [p for p in parameters[len(values) :] if p in named]
        given = [*values, *(named.pop(p) for p in rest)]
        if len(given) != len(parameters):
            raise TypeError(f"{name} takes mu, {', '.join(parameters)}, got {1 + len(given)} values")
        return super(made, cls).dist([mu, *given], **named)

    def logp(value: Any, mu: Any, *values: Any) -> Any:
        valid, safe = valid_parameters(loss, values)
        return check_parameters(log_density(loss, value - mu, safe), *valid, msg=constraints(loss))

    def support_point(rv: Any, size: Any, mu: Any, *values: Any) -> Any:
        mean = pt.broadcast_arrays(mu, *values)[0]
        return mean if rv_size_is_none(size) else pt.full(size, mean)

    members = {
        "__module__": __name__,
        "__doc__": f"Noise of the loss `{loss}` around mu; parameters mu, {', '.join(parameters)}.",
        "rv_type": rv_type,
        "rv_op": rv_type.rv_op,  # type: ignore[attr-defined]
        "dist": classmethod(dist),
        "logp": staticmethod(logp),
        "support_point": staticmethod(support_point),
    }
    made: Any = type(Continuous)(name, (Continuous,), members)
    return made


def class_name(loss: str) -> str:
    """Return the name of the distribution of a loss, such as SquaredInsensitive for squared_insensitive."""
    return "".join(part.capitalize() for part in loss.split("_"))


def distribution_named(name: str) -> Any:
    """Return the distribution with this class name; None if no loss has it, or if it is a distribution of PyMC."""
    losses = [loss for loss in NOISES if class_name(loss) == name and loss not in _TO_PYMC]
    return distribution(losses[0]) if losses else None


def __getattr__(name: str) -> Any:
    """Return a class made by `distribution`, so that it can be pickled."""
    for loss in NOISES:
        if class_name(loss) == name.removesuffix("RV"):
            return distribution(loss).rv_type if name.endswith("RV") else distribution(loss)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _TableNoiseRV(SymbolicRandomVariable):
    """A location mu plus noise, which is drawn by inversion of the cdf of its table."""

    loss: ClassVar[str]

    @classmethod
    def rv_op(cls, mu: Any, *parameters: Any, size: Any = None, rng: Any = None) -> Any:
        """Return mu + quantile(uniform)."""
        mu, *params = (pt.as_tensor_variable(value).astype("float64") for value in (mu, *parameters))
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(mu, *params, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, uniform = pt.random.uniform(0.0, 1.0, size=shape, rng=rng, return_next_rng=True)
        valid, safe = valid_parameters(cls.loss, params)
        # A uniform draw can be equal to the lower bound, whose quantile is infinite.
        draws = mu + noise_quantile(cls.loss, pt.maximum(uniform, np.finfo(np.float64).eps / 4), safe)
        draws = check_icdf_parameters(draws, *valid, msg=constraints(cls.loss))
        return cls(inputs=[rng, size, mu, *params], outputs=[next_rng, draws])(rng, size, mu, *params)


def valid_parameters(loss: str, values: Any) -> tuple[list[Any], list[Any]]:
    """Return whether each parameter is allowed, and allowed values for the branch that is not taken."""
    tensors = [pt.as_tensor_variable(value) for value in values]
    known = [LOSSES[loss].parameter(name) for name in LOSSES[loss].parameters]
    valid = [p.holds(x) & (x < np.inf) for p, x in zip(known, tensors, strict=True)]
    return valid, [pt.switch(ok, x, 0.5) for ok, x in zip(valid, tensors, strict=True)]


def constraints(loss: str) -> str:
    row = LOSSES[loss]
    return ", ".join(f"{name} {row.parameter(name).allowed}" for name in row.parameters) + ", all finite"

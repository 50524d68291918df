"""Targets known to lie in intervals, and ordered classes, as PyMC distributions.

Both have the support vector noise of any row of the registry around mu. `Interval` is the latent target: its draws are
mu plus noise, its log density is the log probability of the interval in which it is known to lie. `Ordinal` is the
number of cut points below the latent target.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.continuous import Continuous
from pymc.distributions.discrete import Discrete
from pymc.distributions.dist_math import check_icdf_parameters, check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param

from bsvr_pp.losses import LOSSES, NOISES
from bsvr_pp.losses.density import noise_quantile
from bsvr_pp.losses.mass import log_factor
from bsvr_pp.losses.noise import checked_ends
from bsvr_pp.model.observation import constraints, valid_parameters

__all__ = ["Interval", "IntervalRV", "Ordinal", "OrdinalRV", "class_ends", "representative"]

Array = NDArray[np.float64]


def class_ends(y: Any, cutpoints: Any) -> Any:
    ends = pt.concatenate([[-np.inf], cutpoints.astype("float64"), [np.inf]])
    k = pt.clip(y.astype("int64"), 0, cutpoints.shape[0])
    low, high = ends[k], ends[k + 1]
    # Equal ends are an exact target, but an empty class has no mass.
    return pt.stack([pt.switch(low < high, low, high + 1.0), high], axis=1)


def representative(lower: ArrayLike, upper: ArrayLike) -> Array:
    """A number for each interval: the target if it is exact, the finite end if it is censored, else the middle."""
    low, high = np.broadcast_arrays(np.asarray(lower, np.float64), np.asarray(upper, np.float64))
    with np.errstate(invalid="ignore"):
        middle = low + 0.5 * (high - low)
    return np.where(np.isinf(low), high, np.where(np.isinf(high), low, middle))


class _LatentRV(SymbolicRandomVariable):
    """A latent target, mu plus noise drawn by inversion of its cdf."""

    loss: ClassVar[str]

    @classmethod
    def latent(cls, rng: Any, shape: Any, mu: Any, parameters: Any) -> tuple[Any, Any]:
        """Return the next generator, and draws of mu plus noise."""
        next_rng, uniform = pt.random.uniform(0.0, 1.0, size=shape, rng=rng, return_next_rng=True)
        valid, safe = valid_parameters(cls.loss, parameters)
        # A uniform draw can be equal to the lower bound, whose quantile is infinite.
        draws = mu + noise_quantile(cls.loss, pt.maximum(uniform, np.finfo(np.float64).eps / 4), safe)
        return next_rng, check_icdf_parameters(draws, *valid, msg=constraints(cls.loss))


class IntervalRV(_LatentRV):
    """Inputs: generator, size, mu, parameters of the loss, lower, upper."""

    @classmethod
    def rv_op(cls, mu: Any, *rest: Any, size: Any = None, rng: Any = None) -> Any:
        """Return draws of the latent target, whether or not they lie in the interval."""
        mu, *params = (pt.as_tensor_variable(value).astype("float64") for value in (mu, *rest))
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(mu, *params, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, draws = cls.latent(rng, shape, mu, params[:-2])
        return cls(inputs=[rng, size, mu, *params], outputs=[next_rng, draws])(rng, size, mu, *params)


class OrdinalRV(_LatentRV):
    """Inputs: generator, size, mu, parameters of the loss, cut points."""

    @classmethod
    def rv_op(cls, mu: Any, *rest: Any, size: Any = None, rng: Any = None) -> Any:
        """Return the number of cut points below the latent target."""
        mu, *params = (pt.as_tensor_variable(value).astype("float64") for value in (mu, *rest))
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(mu, *params, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, latent = cls.latent(rng, shape, mu, params[:-1])
        draws = (latent[..., None] > params[-1]).sum(axis=-1).astype("int64")
        return cls(inputs=[rng, size, mu, *params], outputs=[next_rng, draws])(rng, size, mu, *params)


@cache
def _rv_type(kind: str, loss: str) -> type[_LatentRV]:
    base, last = {"Interval": (IntervalRV, "(),()"), "Ordinal": (OrdinalRV, "(k)")}[kind]
    signature = ",".join(["()"] * (1 + len(LOSSES[loss].parameters)))
    return type(
        f"{kind}_{loss}",
        (base,),
        {
            "__module__": __name__,
            "__doc__": f"Random variable of `{kind}` with {loss} noise.",
            "name": f"{kind.lower()}_{loss}",
            "loss": loss,
            "extended_signature": f"[rng],[size],{signature},{last}->[rng],()",
            "_print_name": (kind, f"\\operatorname{{{kind}}}"),
        },
    )


@cache
def _distribution(kind: str, loss: str) -> Any:
    """Make the PyMC distribution of a kind of target with the noise of a loss."""
    rv_type = _rv_type(kind, loss)
    parent: Any = Continuous if kind == "Interval" else Discrete

    def dist(cls: Any, mu: Any, *rest: Any, **named: Any) -> Any:
        return super(made, cls).dist([mu, *rest], **named)

    def interval_logp(value: Any, mu: Any, *rest: Any) -> Any:
        *values, lower, upper = rest
        valid, safe = valid_parameters(loss, values)
        # The value tells the shape; what is known of the target are the ends.
        mu = pt.broadcast_arrays(mu, value)[0]
        return check_parameters(log_factor(loss, mu, lower, upper, safe), *valid, msg=constraints(loss))

    def ordinal_logp(value: Any, mu: Any, *rest: Any) -> Any:
        *values, cutpoints = rest
        valid, safe = valid_parameters(loss, values)
        mu, value = pt.broadcast_arrays(mu, value)
        ends = class_ends(value.ravel(), cutpoints)
        found = log_factor(loss, mu, ends[:, 0].reshape(mu.shape), ends[:, 1].reshape(mu.shape), safe)
        inside = pt.and_(value >= 0, value <= cutpoints.shape[0])
        ordered = pt.all(pt.diff(cutpoints) > 0)
        found = pt.switch(inside, found, -np.inf)
        return check_parameters(found, *valid, ordered, msg=f"{constraints(loss)}, cutpoints ascending")

    def support_point(rv: Any, size: Any, mu: Any, *rest: Any) -> Any:
        mean = pt.broadcast_arrays(mu, *(rest if kind == "Interval" else rest[:-1]))[0]
        mean = mean if kind == "Interval" else pt.zeros_like(mean).astype("int64")
        return mean if rv_size_is_none(size) else pt.full(size, mean)

    members = {
        "__module__": __name__,
        "__doc__": f"`{kind}` with {loss} noise.",
        "rv_type": rv_type,
        "rv_op": rv_type.rv_op,  # type: ignore[attr-defined]
        "dist": classmethod(dist),
        "logp": staticmethod(interval_logp if kind == "Interval" else ordinal_logp),
        "support_point": staticmethod(support_point),
    }
    made: Any = type(parent)(f"{kind}_{loss}", (parent,), members)
    return made


def __getattr__(name: str) -> Any:
    """Return a class made by `_rv_type` or `_distribution`, so that it can be pickled."""
    kind, _, loss = name.partition("_")
    if kind in ("Interval", "Ordinal") and loss in NOISES:
        return _rv_type(kind, loss)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _ordered_parameters(what: str, noise: str, given: dict[str, Any]) -> list[Any]:
    """Parameters of the loss in its order; the tube is 0 and its smooth part one half if they are not given.

    Raises
    ------
    ValueError
        If there is no such noise.
    TypeError
        If a parameter is missing, or the noise has no such parameter.
    """
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {noise!r}")
    defaults = {"epsilon": 0.0, "beta": 0.5, "quantile": 0.5}
    names = LOSSES[noise].parameters
    known = {name: value for name, value in given.items() if value is not None}
    odd = [name for name in known if name not in names]
    if odd or "C" not in known:
        raise TypeError(f"{what} with {noise} noise takes {', '.join(names)}, got {', '.join(known) or 'nothing'}")
    return [known.get(name, defaults.get(name)) for name in names]


class Interval:
    r"""Targets with support vector noise around mu that are known only to lie in intervals.

    The random variable is the latent target, whose distribution is that of mu plus noise; what is known of it is that
    it lies in (lower, upper]. The log likelihood of a row is

    .. math::

       \log P(\text{lower} < \mu + r \le \text{upper}),

    with the noise r of a loss, by default soft insensitive (`SoftInsensitive`). One infinite end is a censored target,
    equal ends are an exact one with its density. If all targets are exact or censored at fixed bounds, `pm.Censored`
    of a noise is the same model.

    Parameters
    ----------
    name : str
        Name of the variable.
    mu : tensor_like of float
        Location, in the units of the target.
    lower, upper : array or pm.Data
        Ends of the intervals.
    C, epsilon, beta, quantile : tensor_like of float
        Parameters of the loss; those that the noise does not have are left out. Without epsilon it is 0.
    noise : str
        A loss of `bsvr_pp.losses.LOSSES`.
    observed : array or pm.Data, optional
        A finite number for each row, which results show: by default the target if it is exact, the finite end if it is
        censored, and the middle of an interval. Needed if an end is `pm.Data`.

    Raises
    ------
    ValueError
        If an end is NaN, or lower is above upper, or both are infinite, or there is no such noise.
    TypeError
        If a parameter is missing or unknown.

    Notes
    -----
    The evidence of a model that has exact targets and intervals is a density of the former and a probability of the
    latter; it depends on the unit of the target, and cannot be compared with that of other data.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X, y = np.linspace(-3, 3, 12)[:, None], np.sin(np.linspace(-3, 3, 12))
    >>> upper = np.where(y < 0.5, y, np.inf)  # what is above 0.5 is known to be above 0.5
    >>> with pm.Model() as model:
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.Interval("y", mu=f, C=10.0, epsilon=0.1, beta=0.3, lower=np.minimum(y, 0.5), upper=upper)
    ...     result = bp.fit(bp.MeanField(), progressbar=False)
    >>> result.attrs["converged"]
    1
    """

    def __new__(  # noqa: D102
        cls,
        name: str,
        mu: Any,
        lower: Any,
        upper: Any,
        C: Any = None,
        epsilon: Any = None,
        beta: Any = None,
        *,
        quantile: Any = None,
        noise: str = "soft_insensitive",
        observed: Any = None,
        **kwargs: Any,
    ) -> Any:
        given = {"C": C, "epsilon": epsilon, "beta": beta, "quantile": quantile}
        parameters = _ordered_parameters("Interval", noise, given)
        if observed is None:
            if isinstance(lower, pt.Variable) or isinstance(upper, pt.Variable):
                raise TypeError("observed must be given, a finite number for each row, if lower or upper are pm.Data")
            ends = checked_ends(lower, upper)
            observed = representative(ends[:, 0], ends[:, 1])
        return _distribution("Interval", noise)(name, mu, *parameters, lower, upper, observed=observed, **kwargs)

    @classmethod
    def dist(
        cls,
        mu: Any,
        lower: Any,
        upper: Any,
        C: Any = None,
        epsilon: Any = None,
        beta: Any = None,
        *,
        quantile: Any = None,
        noise: str = "soft_insensitive",
        **kwargs: Any,
    ) -> Any:
        """Return a variable without a name, outside a model."""
        given = {"C": C, "epsilon": epsilon, "beta": beta, "quantile": quantile}
        parameters = _ordered_parameters("Interval", noise, given)
        return _distribution("Interval", noise).dist(mu, *parameters, lower, upper, **kwargs)


class Ordinal:
    r"""Ordered classes 0, 1, ..., m: the number of cut points below a latent target with support vector noise.

    .. math::

       P(y = k) = P(c_{k} < \mu + r \le c_{k+1}), \qquad c_0 = -\infty,\ c_{m+1} = \infty

    with the ascending cut points :math:`c_1, ..., c_m` and the noise r of a loss. With Gaussian noise it is the
    ordered probit model; with ``epsilon=0``, the default, the noise is Laplace's, whose tails are linear in the log
    likelihood, so that a wrong label has a bounded influence. A shift and a scale are common to mu, cut points, 1/C and
    epsilon: fix C, and give mu the mean 0 and no constant kernel, as `default_ordinal_model` does.

    Parameters
    ----------
    name : str
        Name of the variable.
    mu : tensor_like of float
        Location.
    cutpoints : (m,) tensor_like of float
        Ascending cut points.
    C, epsilon, beta, quantile : tensor_like of float
        Parameters of the loss; those that the noise does not have are left out. Without epsilon it is 0.
    noise : str
        A loss of `bsvr_pp.losses.LOSSES`.
    observed : array of int, optional
        The classes.

    Raises
    ------
    ValueError
        If there is no such noise.
    TypeError
        If a parameter is missing or unknown.

    References
    ----------
    Chu W. and Ghahramani Z. (2005). "Gaussian processes for ordinal regression". Journal of Machine Learning
    Research, 6, 1019-1041: the same likelihood with Gaussian noise.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> ordinal = bp.Ordinal.dist(mu=0.0, cutpoints=[-1.0, 1.0], C=2.0**0.5)
    >>> np.exp(pm.logp(ordinal, [0, 1, 2]).eval()).round(4).tolist()
    [0.1216, 0.7569, 0.1216]
    """

    def __new__(  # noqa: D102
        cls,
        name: str,
        mu: Any,
        cutpoints: Any,
        C: Any = None,
        epsilon: Any = None,
        beta: Any = None,
        *,
        quantile: Any = None,
        noise: str = "soft_insensitive",
        observed: Any = None,
        **kwargs: Any,
    ) -> Any:
        given = {"C": C, "epsilon": epsilon, "beta": beta, "quantile": quantile}
        parameters = _ordered_parameters("Ordinal", noise, given)
        return _distribution("Ordinal", noise)(name, mu, *parameters, cutpoints, observed=observed, **kwargs)

    @classmethod
    def dist(
        cls,
        mu: Any,
        cutpoints: Any,
        C: Any = None,
        epsilon: Any = None,
        beta: Any = None,
        *,
        quantile: Any = None,
        noise: str = "soft_insensitive",
        **kwargs: Any,
    ) -> Any:
        """Return a variable without a name, outside a model."""
        given = {"C": C, "epsilon": epsilon, "beta": beta, "quantile": quantile}
        parameters = _ordered_parameters("Ordinal", noise, given)
        return _distribution("Ordinal", noise).dist(mu, *parameters, cutpoints, **kwargs)

"""Kinds of rows: what is known of a target, which is f plus noise.

A row is exact, censored (`pm.Censored`), known to lie in an interval (`Interval`), an ordered class (`Ordinal`) or
missing, under any noise of the registry. A `Kind` says how the ends of the interval follow from an observed value, and
how a value follows from a latent target; the PyMC distribution follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import Continuous
from pymc.distributions.discrete import Discrete
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.model.fgraph import fgraph_from_model, model_deterministic, model_from_fgraph, model_observed_rv
from pymc.pytensorf import toposort_replace
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.random.op import RandomVariable

from bsvr_pp.core.arrays import Array, ModelError, Rows, Tensor, check_choice
from bsvr_pp.core.losses import LOSSES
from bsvr_pp.core.losses.noise import checked_ends
from bsvr_pp.core.losses.registry import NOISES, Loss
from bsvr_pp.model.distributions import NoiseRV, checked, distribution_class, noise_of, split_weight
from bsvr_pp.model.gaussian import above, value_of
from bsvr_pp.model.gp import copy_model, localize, made_of, remove_below, set_initial_values, share_data
from bsvr_pp.model.operation import log_factor


class Kind(NamedTuple):
    """How values are observed; bounds follow the location and the parameters of the noise among the inputs."""

    name: str
    bounds: tuple[str, ...]
    signature: str  # of the bounds
    ends: Callable[..., tuple[Tensor, Tensor]]  # of latent targets, from values and bounds; exchanged if impossible
    value: Callable[..., Tensor]  # from latent targets and bounds
    parent: type[Continuous | Discrete] = Continuous
    known: str = "interval"  # what is known of targets, as results say it
    observed: Callable[..., Array] | None = None  # values from bounds, where these say everything
    valid: Callable[..., Tensor] = lambda *bounds: pt.constant(True)  # condition on the bounds
    allowed: str = ""  # the condition in words
    possible: str = ""  # values that are possible, in words, if bounds do not say everything


class Known(NamedTuple):
    """What is known of the targets of a model."""

    kind: Kind
    noise: Tensor  # the variable whose noise and location they have
    bounds: tuple[Tensor, ...] = ()  # graphs from which the ends follow

    @property
    def exact(self) -> bool:
        """Whether they are known exactly, as blocks and nearest rows take them."""
        return self.kind.known == "exact"

    @property
    def cutpoints(self) -> tuple[Tensor, ...]:
        """The cut points of ordered classes, which all rows share, if the targets are classes."""
        return self.bounds if self.kind.known == "ordinal" else ()

    @property
    def row_bounds(self) -> tuple[Tensor, ...]:
        """Those of the bounds that may have a value for each row."""
        return () if self.cutpoints else self.bounds

    def graph(self, y: Tensor, bounds: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Lower and upper ends of the targets as graphs (n,), by their bounds or by others."""
        lower, upper = self.kind.ends(y, *(self.bounds if bounds is None else bounds))
        return pt.broadcast_to(lower, y.shape), pt.broadcast_to(upper, y.shape)

    def observed(self, drawn: Tensor, bounds: Iterator[Tensor]) -> Tensor:
        """What is observed of a draw of ``noise``, as a graph; ``bounds`` are the next inputs of its variable."""
        if isinstance(self.noise.owner.op, TargetRV):  # which draws what is observed
            return drawn
        return self.kind.value(drawn, *islice(bounds, len(self.kind.bounds)))


def known_of(target: Tensor) -> Known:
    """Return what is known of the targets of an observed random variable."""
    op = target.owner.op
    if isinstance(op, CensoredRV):
        noise, *bounds = target.owner.inputs
        return Known(_CENSORED, noise, tuple(bounds))
    if isinstance(op, TargetRV):
        return Known(op.kind, target, tuple(op.dist_params(target.owner)[-len(op.kind.bounds) :]))
    return Known(_EXACT, target)


def noise_in(model: pm.Model, target: Tensor) -> tuple[Loss, Tensor, Sequence[Tensor], Tensor, Known]:
    """Find the loss of targets, its location and parameters, sample weights, and what is known of the targets."""
    single, weight = split_weight(target)
    ends = known_of(single)
    noise = noise_of(ends.noise)
    if noise is None or not (ends.exact or not noise[0].targets.refusal("residual")):
        op = ends.noise.owner.op
        kind = next(iter(getattr(op, "_print_name", ())), type(op).__name__)
        raise ModelError(
            f"the noise of {target.name} is {kind}: use bp.SoftInsensitive, bp.EpsilonInsensitive, bp.Huber, "
            "bp.SVMLabel, pm.Laplace, pm.AsymmetricLaplace or pm.Normal"
        )
    loss, latent, parameters = noise
    known = [localize(parameter, model) for parameter in parameters]
    bounds = tuple(localize(bound, model) for bound in ends.bounds)
    return loss, latent, known, localize(weight, model), ends._replace(bounds=bounds)


def _censored_ends(y: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    low = pt.switch(y >= upper, upper, pt.switch(y <= lower, -np.inf, y))
    high = pt.switch(y <= lower, lower, pt.switch(y >= upper, np.inf, y))
    return _where(pt.and_(lower <= y, y <= upper), low, high)


def _where(possible: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return ends of targets, exchanged where they are not possible: such rows have no mass."""
    return pt.switch(possible, low, 1.0), pt.switch(possible, high, 0.0)


def _class_ends(y: Tensor, cutpoints: Tensor) -> tuple[Tensor, Tensor]:
    ends = pt.concatenate([[-np.inf], cutpoints.astype("float64"), [np.inf]])
    k = pt.clip(y.astype("int64"), 0, cutpoints.shape[0])
    low, high = ends[k], ends[k + 1]
    return _where(pt.and_(pt.eq(k, y), low < high), low, high)  # equal ends would be an exact target


_WIDE = 10.0  # interquartile ranges of the ends, beyond which an interval is far wider


def representative(lower: ArrayLike, upper: ArrayLike) -> Array:
    """A number for each interval: the target if it is exact, the finite end if it is censored, else the middle.

    The far end of an interval that is far wider than the spread of the ends says nothing.
    """
    low, high = np.broadcast_arrays(np.asarray(lower, np.float64), np.asarray(upper, np.float64))
    with np.errstate(invalid="ignore"):
        middle, width = low + 0.5 * (high - low), high - low
    quarters = [np.percentile(ends[np.isfinite(ends)], [25, 50, 75]) for ends in (low, high) if np.isfinite(ends).any()]
    spreads = [(q[2] - q[0], q[1]) for q in quarters if q[2] > q[0]]
    if spreads and (wide := width > _WIDE * min(spreads)[0]).any() and not wide.all():
        below = np.abs(low - min(spreads)[1]) < np.abs(high - min(spreads)[1])
        middle = np.where(wide, np.where(below, low, high), middle)
    return np.where(np.isinf(low), high, np.where(np.isinf(high), low, middle))


def _shown(lower: TensorLike, upper: TensorLike) -> Array:
    if isinstance(lower, Variable) or isinstance(upper, Variable):
        raise TypeError("observed must be given, a finite number for each row, if lower or upper are pm.Data")
    ends = checked_ends(cast(ArrayLike, lower), cast(ArrayLike, upper))
    return representative(ends[:, 0], ends[:, 1])


_EXACT = Kind("", (), "", ends=lambda y: (y, y), value=lambda latent: latent, known="exact")
_CENSORED = Kind(
    "", ("lower", "upper"), "(),()", _censored_ends, pt.clip, known="censored", possible="within its limits"
)
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "Interval",
            ("lower", "upper"),
            "(),()",
            ends=lambda y, lower, upper: (lower, upper),
            value=lambda latent, *ends: pt.broadcast_arrays(latent, *ends)[0],  # whether or not it lies between them
            observed=_shown,
        ),
        Kind(
            "Ordinal",
            ("cutpoints",),
            "(k)",
            ends=_class_ends,
            value=lambda latent, cutpoints: (latent[..., None] > cutpoints).sum(axis=-1).astype("int64"),
            parent=Discrete,
            known="ordinal",
            valid=lambda cutpoints: pt.all(pt.diff(cutpoints) > 0),
            allowed=", cutpoints ascending",
            possible="classes from 0 to the number of cutpoints, which differ",
        ),
    )
}


def missing_name(target: str) -> str:
    """Name of the missing targets beside known ones of a name."""
    return f"{target.removesuffix('_observed')}_unobserved"


def with_known_targets(model: pm.Model) -> pm.Model:
    """The model without its missing targets, whose name a Deterministic of their location has; or the model itself.

    PyMC makes two variables of them, ``y_observed`` and the free ``y_unobserved``, and a Deterministic ``y`` of both.
    Integrated out, a missing target adds nothing to the density of all others.
    """
    observed = {v.name for v in model.observed_RVs}
    held = above([*model.observed_RVs, *model.potentials])  # what data depend on stays a variable like others
    missing = [v for v in model.free_RVs if any(v.name == missing_name(name) != name for name in observed)]
    missing = [v for v in missing if v not in held]
    if not missing:
        return model
    key = [*model.named_vars], [int(value_of(size)) for size in model.dim_lengths.values()]
    known = made_of(model, "known targets", key, lambda: _without(model, missing))
    known._coords = dict(model._coords)
    return known


def _without(model: pm.Model, missing: list[Tensor]) -> pm.Model:
    fgraph, memo = copy_model(model, fgraph_from_model)
    for v in missing:
        free, seen = memo[v], memo[model[f"{str(v.name).removesuffix('_unobserved')}_observed"]]
        rv = free.owner.inputs[0]
        if isinstance(rv.owner.op, PartialObservedRV):
            whole, mask = rv.owner.inputs
            rv, known = (_taken(whole, np.flatnonzero(each)) for each in (mask.data, ~mask.data))
            dims = seen.owner.op.dims
            toposort_replace(fgraph, ((seen, model_observed_rv(known, seen.owner.inputs[1], seen.name, *dims)),))
        remove_below(fgraph, [free])  # also what is computed from all targets
        if (noise := noise_of(known_of(rv).noise)) is not None:  # another one is refused by its name
            location = model_deterministic(noise[1], v.name, *free.owner.op.dims)
            fgraph.add_output(location, import_missing=True)
    return share_data(set_initial_values(model_from_fgraph(fgraph, mutate_fgraph=True), model), model)


def _taken(rv: Tensor, index: Rows) -> Tensor:
    """Some of the entries of a random vector, as a random vector."""
    op, given = rv.owner.op, []
    for v, n_core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
        if hasattr(getattr(v.owner, "op", None), "dist_params"):
            given.append(_taken(v, index))
        else:
            given.append(v[index] if v.ndim > n_core and not v.type.broadcastable[0] else v)
    make = op if isinstance(op, RandomVariable) else type(op).rv_op
    return make(*given, size=(len(index),))


class TargetRV(NoiseRV):
    """The value of a latent target, which is mu plus noise; inputs are mu, the parameters of the loss, and bounds."""

    kind: ClassVar[Kind]

    @classmethod
    def drawn(cls, uniform: Tensor, *params: Tensor) -> Tensor:
        """Return the value of a latent target that is drawn."""
        first = 1 + len(LOSSES[cls.loss].parameters)
        return cls.kind.value(super().drawn(uniform, *params[:first]), *params[first:])


@cache
def _distribution(name: str, loss: str) -> type[Continuous | Discrete]:
    kind, count = KINDS[name], len(LOSSES[loss].parameters)

    def logp(value: Tensor, mu: Tensor, *rest: Tensor) -> Tensor:
        mu, value = pt.broadcast_arrays(mu, value)
        found = log_factor(loss, mu, *kind.ends(value, *rest[count:]), rest[:count])
        return checked(check_parameters, found, loss, rest[:count], kind.valid(*rest[count:]), words=kind.allowed)

    def support_point(rv: Tensor, size: Variable, mu: Tensor, *rest: Tensor) -> Tensor:
        latent = pt.broadcast_arrays(mu, *rest[:count])[0]
        value = kind.value(latent, *rest[count:])
        return value if rv_size_is_none(size) else pt.full(size, value)

    methods: dict[str, Callable[..., Tensor]] = {"logp": logp, "support_point": support_point}
    about, bounds = f"`{name}` with {loss} noise.", f",{kind.signature}"
    made = f"{name}_{loss}"
    return distribution_class(TargetRV, made, loss, about, methods, bounds=bounds, parent=kind.parent, kind=kind)


def __getattr__(name: str) -> type[NoiseRV]:
    """Return the class of random variables of `_distribution`, so that it can be pickled."""
    kind, _, loss = name.removesuffix("RV").partition("_")
    if kind in KINDS and loss in NOISES:
        return _distribution(kind, loss).rv_type
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Targets:
    """Targets of the kind with the name of the class: the arguments of its variables."""

    def __new__(  # type: ignore[misc]
        cls,
        name: str,
        mu: TensorLike,
        *values: TensorLike,
        noise: str = "soft_insensitive",
        observed: TensorLike | None = None,
        **named: Any,
    ) -> Tensor:
        kind = KINDS[cls.__name__]
        bounds, parameters = _arguments(kind, noise, values, named)
        if observed is None and kind.observed is not None:
            observed = kind.observed(*bounds)
        return _distribution(kind.name, noise)(name, mu, *parameters, *bounds, observed=observed, **named)

    @classmethod
    def dist(cls, mu: TensorLike, *values: TensorLike, noise: str = "soft_insensitive", **named: Any) -> Tensor:
        """Return a variable without a name, outside a model."""
        bounds, parameters = _arguments(KINDS[cls.__name__], noise, values, named)
        return _distribution(cls.__name__, noise).dist(mu, *parameters, *bounds, **named)


def _arguments(
    kind: Kind, noise: str, values: Sequence[TensorLike], named: dict[str, Any]
) -> tuple[list[TensorLike], list[TensorLike | None]]:
    """Take bounds and parameters of the loss out of arguments; by default the tube is 0, its smooth part one half."""
    check_choice("noise", noise, NOISES)
    names, by_place = LOSSES[noise].parameters, (*kind.bounds, "C", "epsilon", "beta")
    twice = [name for name in by_place[: len(values)] if name in named]
    if twice or len(values) > len(by_place):
        got = f"{', '.join(twice)} twice" if twice else f"{len(values)} values"
        raise TypeError(f"{kind.name} takes mu, {', '.join(by_place)} by position in this order, got {got} after mu")
    found = dict(zip(by_place, values, strict=False))
    found |= {name: named.pop(name) for name in (*by_place, "quantile") if name in named}
    known: dict[str, TensorLike] = {name: value for name, value in found.items() if value is not None}
    given = [name for name in known if name not in kind.bounds]
    missing = [name for name in kind.bounds if name not in known]
    if missing:
        raise TypeError(f"{kind.name} needs {', '.join(kind.bounds)}, {', '.join(missing)} missing")
    if set(given) - set(names) or "C" not in given:
        got = ", ".join(given) or "nothing"
        raise TypeError(f"{kind.name} with {noise} noise takes {', '.join(names)}, got {got}")
    defaults = {"epsilon": 0.0, "beta": 0.5, "quantile": 0.5}
    return [known[name] for name in kind.bounds], [known.get(name, defaults.get(name)) for name in names]


class Interval(_Targets):
    r"""Targets with support vector noise around mu that are known only to lie in intervals.

    The random variable is the latent target, which is distributed as mu plus noise; what is known of it is that
    it lies in (lower, upper]. The log likelihood of a row is

    .. math::

       \log P(\text{lower} < \mu + r \le \text{upper}),

    with the noise r of a loss, by default soft insensitive (`SoftInsensitive`). One infinite end is a censored target,
    equal ends are an exact one with its density, so that evidences depend on the unit of the target
    (docs/how-to/censored.md). If all targets are exact or censored at fixed bounds, `pm.Censored` of a noise is the
    same model.

    Parameters
    ----------
    name : str
        Name of the variable.
    mu : tensor_like of float
        Location, in the units of the target.
    lower, upper : array or pm.Data
        Ends of the intervals.
    C, epsilon, beta, quantile : tensor_like of float
        Parameters of the loss, all but quantile also by position after upper; those that the noise does not have
        are left out. Without epsilon it is 0.
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


class Ordinal(_Targets):
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
        Parameters of the loss, all but quantile also by position after cutpoints; those that the noise does not have
        are left out. Without epsilon it is 0.
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

"""The distribution of new targets: at each new input a mixture of components, each a Gaussian f plus noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtri

from bsvr_pp.core.arrays import Array, check_count, check_flag, check_share, checked_levels, generator, numbers
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel, gaussian
from bsvr_pp.core.losses.elementwise import mixture_quantiles
from bsvr_pp.core.losses.noise import Cdf, interpolated_cdf
from bsvr_pp.core.losses.pieces import NODES, SOME_NODES, SOME_WEIGHTS, WEIGHTS

CHUNK = 500  # number of new inputs that are processed together, whose covariances stay in the cache
QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)
_REACH = 12.0  # range of the integral for the continuous ranked probability score, in standard deviations
_DENSE = 1.5  # range in which the nodes of this integral are even; more misses narrow components beside wide ones
_POINT = 1e-100  # variance of f that stands for 0
_OFFSET = 0.1  # distance of an end of the targets from the zero of its root, relative to its distance from the median,
_LINEAR = 0.1  # and distance from the zero where roots become linear, relative to this
_BEYOND = 1e-9  # probability of f + noise beyond this edge from which it counts


@dataclass(frozen=True, slots=True)
class Unscaled:
    """The targets as they are. Each scale is an increasing function g of the targets, which f + noise describes."""

    of: ClassVar[str] = ""
    least: ClassVar[float] = -inf  # least possible target
    is_log: ClassVar[bool] = False

    @property
    def of_f(self) -> Unscaled:
        """The scale of the function: logarithms are shown themselves."""
        return UNSCALED if self.is_log else self

    def check(self, name: str, y: Array) -> None:
        """Check that these are possible targets."""
        if (impossible := ~(y > self.least)).any():
            raise ValueError(f"{name} must be positive with log_targets=True, got {y[impossible].flat[0]:g}")

    def forward(self, y: Array) -> Array:
        """Return g(y); -inf below the least possible target."""
        return y

    def inverse(self, z: Array) -> Array:
        """Return the targets y with g(y) = z."""
        return z

    def log_slope(self, y: Array) -> Array:
        """Return log g'(y)."""
        return np.zeros_like(y)

    def stretch(self, z: Array) -> Array:
        """Return dy/dz at z = g(y)."""
        return np.ones_like(z)

    def moments(self, of: PredictiveDistribution) -> tuple[Array, Array]:
        """Return mean and variance (n,) of the targets; inf where they diverge."""
        mean, variance = of._mean_variance
        return of.location + of.unit * mean, of.unit**2 * variance


class Logarithm(Unscaled):
    """The logarithms of positive targets."""

    __slots__ = ()
    of: ClassVar[str] = "log "
    least: ClassVar[float] = 0.0
    is_log: ClassVar[bool] = True

    def forward(self, y: Array) -> Array:
        """Return log y."""
        return np.log(y, where=y > 0.0, out=np.full(np.shape(y), -inf))

    def inverse(self, z: Array) -> Array:
        """Return exp z."""
        return np.exp(z)

    def log_slope(self, y: Array) -> Array:
        """Return -log y."""
        return -np.log(y, where=y > 0.0, out=np.zeros_like(y))

    def stretch(self, z: Array) -> Array:
        """Return exp z."""
        return np.exp(z)

    def moments(self, of: PredictiveDistribution) -> tuple[Array, Array]:
        """Return mean and variance (n,) of the targets; inf where they diverge."""
        first, second = of._moment_of_exponential(1), of._moment_of_exponential(2)
        return first, np.where(second < inf, second - np.where(second < inf, first, 0.0) ** 2, inf)


@dataclass(frozen=True, slots=True)
class Root(Unscaled):
    """Square roots of the distances from one end of the targets, linear beyond this end.

    The slope is 1 at the ``middle``, so that small differences there are in the unit of the targets. With u = offset +
    s·(y - end) it is s·(g - middle) = 2·√(u₀·u) - 2·u₀, where u₀ is u at the middle and s = 1, or -1 for an upper end.
    """

    of: ClassVar[str] = "root of "
    middle: float
    end: float
    offset: float

    @classmethod
    def of_targets(cls, middle: float, end: float) -> Root:
        """Return the scale of targets by their median and the end that is nearer to most of them."""
        return cls(middle, end, _OFFSET * abs(middle - end))

    def with_end(self, y: Array) -> Root:
        """Return the root of the distances from the end of targets on the same side."""
        return Root.of_targets(self.middle, y.min() if self._sign > 0.0 else y.max())

    @property
    def _sign(self) -> float:
        return 1.0 if self.end < self.middle else -1.0

    @property
    def _at_middle(self) -> float:
        return abs(self.middle - self.end) + self.offset

    def forward(self, y: Array) -> Array:
        """Return g(y)."""
        u, least = self._distance(y), self._least
        root = np.sqrt(np.maximum(u, least)) + 0.5 * np.minimum(u - least, 0.0) / least**0.5
        return np.asarray(self.middle + self._sign * 2.0 * (self._at_middle**0.5 * root - self._at_middle))

    def inverse(self, z: Array) -> Array:
        """Return y with g(y) = z."""
        root, least = self._root(z), self._least**0.5
        u = np.maximum(root, least) ** 2 + 2.0 * least * np.minimum(root - least, 0.0)
        return np.asarray(self.end + self._sign * (u - self.offset))

    def log_slope(self, y: Array) -> Array:
        """Return log g'(y)."""
        return np.asarray(0.5 * (np.log(self._at_middle) - np.log(np.maximum(self._distance(y), self._least))))

    def stretch(self, z: Array) -> Array:
        """Return dy/dz."""
        return np.asarray(np.maximum(self._root(z), self._least**0.5) / self._at_middle**0.5)

    def moments(self, of: PredictiveDistribution) -> tuple[Array, Array]:
        """Return mean and variance (n,): of each component where its mean is, corrected by integrals beyond the edge.

        The target is a polynomial of f + noise on either side: the difference is half the curvature times t² at t.
        """
        (centres, variances), found = of._of_components, []
        at_edge = np.asarray(self.end + self._sign * (self._least - self.offset))
        edge, half = self.forward(at_edge), self._sign * 0.25 / self._at_middle
        slope = self.stretch(edge)
        for noise, m, v, centre, variance in zip(of.noises, of.means, of.variances, centres, variances, strict=True):
            z, spread = of.location + of.unit * centre, of.unit**2 * variance
            third, fourth = _higher_moments(noise, v)
            curved, local = self._sign * (z - edge) > 0.0, self.stretch(z)
            b = np.where(curved, half, 0.0)
            mean, total = self.inverse(z) + b * spread, local**2 * spread
            total += 2.0 * local * b * of.unit**3 * third + b**2 * (of.unit**4 * fourth - spread**2)
            for side, sign in ((np.flatnonzero(curved), -1.0), (np.flatnonzero(~curved), 1.0)):
                if not side.size:
                    continue
                of_side = noise.at(side), m[side], v[side], float(edge - of.location) / of.unit, sign * self._sign
                second, cubic, quartic = of.unit ** np.array([[2.0], [3.0], [4.0]]) * _beyond(*of_side)
                shift, gap = sign * half * second, at_edge - mean[side]
                total[side] += 2.0 * gap * shift + 2.0 * slope * abs(half) * cubic + sign * half**2 * quartic - shift**2
                mean[side] += shift
            found.append((mean, np.maximum(total, 0.0)))
        return mixed(of.weights, *np.stack(found, axis=1))

    @property
    def _least(self) -> float:
        return _LINEAR * self.offset

    def _distance(self, y: Array) -> Array:
        return self._sign * (y - self.end) + self.offset

    def _root(self, z: Array) -> Array:
        return (0.5 * self._sign * (z - self.middle) + self._at_middle) / self._at_middle**0.5


UNSCALED, LOGARITHM = Unscaled(), Logarithm()


@shared
@dataclass(frozen=True, eq=False, repr=False)
class PredictiveDistribution:
    """Distribution of a new target at each of n new inputs, in closed form, with the names of `scipy.stats`.

    At each input it is a mixture of components: points or draws of the hyperparameters, and scales of the noise. A
    target is ``location`` + ``unit``·(f + noise) of one component, with Gaussian f, or its inverse by a ``scale``, such
    as the exponential if the logarithm was modelled. ``predict_distribution`` of the estimators returns it.

    Functions of targets (`pdf`, `cdf`, ...) and of levels (`ppf`) broadcast with the shape (n,). An (n,) array has one
    value for each row, a number one for all rows. An (m, 1) array is a grid with a result (m, n).

    Parameters
    ----------
    weights, means, variances : (components, n) arrays
        Weights of the components, which sum to one, and mean and variance of their f.
    noises : tuple of NoiseModel
        Noise of each component, all of one loss.
    location, unit : float
        Location and unit of the targets on their scale.
    scale : Unscaled, Logarithm or Root
        Function of the targets that f + noise describes.
    joint : callable, optional
        Function from a number of draws and a Generator to f + noise (draws, n) at all rows together. It is not pickled.
    offsets : (components, 1) array or 0
        Part of the means that belongs to the noise instead of f.

    <curve>
    >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, y)
    >>> predicted = svr.predict_distribution([[0.5], [9.0]])
    >>> bool(predicted.std()[0] < predicted.std()[1]), predicted.cdf(predicted.ppf(0.25)).round(6).tolist()
    (True, [0.25, 0.25])
    """

    weights: Array
    means: Array
    variances: Array
    noises: tuple[NoiseModel, ...]
    location: float = 0.0
    unit: float = 1.0
    scale: Unscaled = UNSCALED
    joint: Callable[[int, np.random.Generator], Array] | None = None
    offsets: Array | float = 0.0

    def __len__(self) -> int:
        """Number of new inputs."""
        return self.means.shape[1]

    def __repr__(self) -> str:
        """Number of rows and of components, and the noise."""
        of = self.scale.of + self.noises[0].name
        return f"PredictiveDistribution({len(self)} rows, components={len(self.noises)}, noise={of})"

    def __getitem__(self, rows: Any) -> PredictiveDistribution:
        """Return the distribution of some rows: a number, a slice, or an array of numbers or of bool."""
        at = np.atleast_1d(np.arange(len(self))[rows])
        if at.ndim > 1:
            raise IndexError(f"rows must be a number, a slice or an array with one axis, got {at.ndim} axes")
        arrays = {name: getattr(self, name)[:, at] for name in ("weights", "means", "variances")}
        return replace(self, noises=tuple(noise.at(at) for noise in self.noises), joint=None, **arrays)

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the function for joint draws, which holds the model."""
        return {**self.__dict__, "joint": None}

    @cached_property
    def latent(self) -> PredictiveDistribution:
        """The distribution of the function, without the noise; of log y if the logarithm was modelled."""
        noises = tuple(gaussian(C=1.0 / np.maximum(variance, _POINT)) for variance in self.variances)
        given: dict[str, Any] = {"means": self.means - self.offsets, "variances": np.zeros_like(self.variances)}
        return replace(self, **given, noises=noises, scale=self.scale.of_f, joint=None, offsets=0.0)

    @cached_property
    def modelled(self) -> PredictiveDistribution:
        """The distribution of the target on its scale, such as of its logarithm."""
        return replace(self, scale=UNSCALED)

    @property
    def log(self) -> PredictiveDistribution:
        """The distribution of the logarithm of the target, if that was modelled."""
        if not self.scale.is_log:
            raise ValueError("log is the distribution of a logarithm that was modelled, and the target itself was")
        return self.modelled

    def moments_of_f(self) -> tuple[Array, Array]:
        """Return mean and standard deviation (n,) of the function, without the noise; `latent` is its distribution."""
        if self.latent.scale != UNSCALED:
            return self.latent.mean(), self.latent.std()
        mean, variance = self.mean_and_variance_of_f()
        return self.location + self.unit * mean, self.unit * np.sqrt(variance)

    def mean_and_variance_of_f(self) -> tuple[Array, Array]:
        """Return the mean and variance of f, two (n,) arrays, before location and unit."""
        return mixed(self.weights, self.means - self.offsets, self.variances)

    def variances_of_f(self) -> tuple[Array, Array]:
        """Return variance of f between components, and its mean within, two (n,) arrays, before location and unit."""
        within = np.sum(self.weights * self.variances, axis=0)
        return np.maximum(self.mean_and_variance_of_f()[1] - within, 0.0), within

    def mean(self) -> Array:
        """Return the mean of the target, (n,); inf where it diverges."""
        return self._moments[0]

    def var(self) -> Array:
        """Return the variance of the target, (n,); inf where it diverges."""
        return self._moments[1]

    def std(self) -> Array:
        """Return the standard deviation of the target, (n,); inf where it diverges."""
        return np.sqrt(self.var())

    def median(self) -> Array:
        """Return the median of the target, (n,)."""
        return self.ppf(0.5)

    def support(self) -> tuple[Array, Array]:
        """Return the ends of the support of the targets, two (n,) arrays."""
        return np.full(len(self), self.scale.least), np.full(len(self), inf)

    def pdf(self, y: ArrayLike) -> Array:
        """Return the density at targets, which broadcast with (n,)."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log density at targets, which broadcast with (n,)."""
        targets = self._align("y", y, infinite=True)

        def of_rows(rows: PredictiveDistribution, z: Array) -> Array:
            each = zip(rows.noises, rows.means, rows.variances, strict=True)
            logs = np.stack([noise.predictive_log_density(z, m, v) for noise, m, v in each])
            return np.asarray(logsumexp(logs, axis=0, b=rows.weights))

        return self._at(targets, of_rows, -inf, -inf) - np.log(self.unit) + self.scale.log_slope(targets)

    def cdf(self, y: ArrayLike) -> Array:
        """Return the probability that a target is at most y, which broadcasts with (n,)."""
        return self._at(self._align("y", y, infinite=True), PredictiveDistribution._tail, 0.0, 1.0)

    def sf(self, y: ArrayLike) -> Array:
        """Return the probability that a target is larger than y, which broadcasts with (n,)."""
        return self._at(self._align("y", y, infinite=True), lambda rows, z: rows._tail(z, upper_tail=True), 1.0, 0.0)

    def ppf(self, q: ArrayLike) -> Array:
        """Return quantiles of the targets at levels between 0 and 1, which broadcast with (n,)."""
        levels, ends = self._align("q", q), self.support()
        if (outside := (levels < 0.0) | (levels > 1.0)).any():
            raise ValueError(f"q must be between 0 and 1, got {levels[outside].flat[0]}")
        inside = (levels > 0.0) & (levels < 1.0)
        flat = np.where(inside, levels, 0.5).reshape(int(np.prod(levels.shape[:-1])), len(self))

        def of_chunk(at: NDArray[np.intp]) -> Array:
            rows = self[at]
            return mixture_quantile(flat[:, at], rows.weights, rows.means, rows.variances, rows.noises)

        found = _in_chunks(of_chunk, len(self))
        return np.where(inside, self._in_units(found).reshape(levels.shape), np.where(levels > 0.5, ends[1], ends[0]))

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Return ends (n,) of the central interval that contains a target with a given probability between 0 and 1."""
        check_share("confidence", confidence)
        lower, upper = self.ppf(np.array([[0.5 - 0.5 * confidence], [0.5 + 0.5 * confidence]]))
        return lower, upper

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = None,
        *,
        joint: bool = False,
    ) -> Array:
        """Draw targets.

        Parameters
        ----------
        size : int or tuple, optional
            Number of draws of each row, in front of the axis of the rows: the result is (n,) by default, and
            otherwise (size, n).
        random_state : int or Generator, optional
            Random seed; the same seed gives the same draws.
        joint : bool
            Whether the rows of a draw share one latent function. Otherwise they are independent.

        Raises
        ------
        ValueError
            If a size is no whole number, or joint draws are requested from a part of a distribution, or after pickling.
        """
        check_flag("joint", joint)
        rng = generator(random_state, "random_state")
        shape = () if size is None else tuple(size) if isinstance(size, tuple | list) else (size,)
        for each in shape:
            check_count("size", each, 0)
        count = int(np.prod(shape))
        if joint and self.joint is None:
            raise ValueError(
                "joint=True takes the whole distribution from a model, no copy, part, kernel matrix or sparse inputs"
            )
        drawn = (self.joint if joint and self.joint else self._draw)(count, rng)
        return self._in_units(drawn).reshape(*shape, len(self))

    def crps(self, y: ArrayLike) -> Array:
        """Return the continuous ranked probability score of targets, which broadcast with (n,); smaller is better.

        It is ∫ (F(z) - 1[z >= y])² dz (Gneiting & Raftery 2007), in the unit of the target, by quadrature.
        """
        targets = self._align("y", y, infinite=True)
        if not np.isfinite(targets).all():
            raise ValueError(f"y must be finite, got {targets[~np.isfinite(targets)].flat[0]}")
        if (targets <= self.scale.least).any():
            raise ValueError(f"y must be positive where the logarithm was modelled, got {targets.min()}")
        if not targets.size:
            return np.zeros(targets.shape)
        count = 3 * NODES.size * targets.size
        cdfs = [interpolated_cdf(noise, v, count) for noise, v in zip(self.noises, self.variances, strict=True)]
        found = self._at(targets, partial(PredictiveDistribution._crps, cdfs=cdfs), inf, inf)
        return np.where(self.mean() < inf, found, inf) if self.scale.is_log else found  # it diverges without a mean

    def to_frame(self, quantiles: Sequence[float] = QUANTILES) -> pd.DataFrame:
        """Return a table with a row for each input: mean, standard deviation, and quantiles, named by their levels."""
        levels = checked_levels(quantiles)
        columns = {"mean": self.mean(), "std": self.std()}
        named = zip(levels, self.ppf(levels[:, None]), strict=True)
        return pd.DataFrame(columns | {np.format_float_positional(q, trim="-"): row for q, row in named})

    @cached_property
    def _mean_variance(self) -> tuple[Array, Array]:
        return mixed(self.weights, *self._of_components)

    @property
    def _of_components(self) -> tuple[Array, Array]:
        """Mean and variance of f + noise of each component."""
        mean, variance = (self._of_each([getattr(n, name) for n in self.noises]) for name in ("mean", "variance"))
        return self.means + mean, self.variances + variance

    def _of_each(self, values: Sequence[Any]) -> Array:
        return np.stack([np.broadcast_to(value, len(self)) for value in values])

    def _moment_of_exponential(self, power: int) -> Array:
        """Return the mean of a power of a target whose logarithm was modelled."""
        t = power * self.unit
        noise = self._of_each([each.log_mgf(t) for each in self.noises])
        logs = power * self.location + t * self.means + 0.5 * t**2 * self.variances + noise
        with np.errstate(over="ignore"):
            moments = np.exp(logs, where=self.weights > 0.0, out=np.zeros_like(logs))
            return np.asarray((moments * self.weights).sum(axis=0))

    def _align(self, name: str, given: ArrayLike, *, infinite: bool = False) -> Array:
        values, n = numbers(name, given, infinite=infinite), len(self)
        try:
            return np.broadcast_to(values, np.broadcast_shapes(values.shape, (n,)))
        except ValueError:
            raise ValueError(
                f"{name} must be a number, or have the shape ({n},) or (m, 1), which broadcast with the {n} rows, got "
                f"{values.shape}"
            ) from None

    def _at(
        self, targets: Array, function: Callable[[PredictiveDistribution, Array], Array], below: float, above: float
    ) -> Array:
        """Return values of a function of some rows and their f + noise, with given limits at -inf and inf."""
        z = (self.scale.forward(targets) - self.location) / self.unit
        finite = np.isfinite(z)
        flat = np.where(finite, z, 0.0).ravel()
        found = _in_chunks(lambda at: function(self[at % len(self)], flat[at]), flat.size).reshape(z.shape)
        return np.where(finite, found, np.where(z > 0.0, above, below))

    def _tail(self, z: Array, *, upper_tail: bool = False) -> Array:
        """Return the probability that f + noise is below, or above, z (n,)."""
        each = zip(self.noises, self.means, self.variances, self.weights, strict=True)
        of_each = (w * noise.predictive_cdf(z, m, v, upper_tail=upper_tail) for noise, m, v, w in each)
        return sum(of_each, np.zeros(z.shape))

    def _crps(self, z: Array, cdfs: Sequence[Cdf | None]) -> Array:
        """Return the CRPS of the target at f + noise = z (n,), in the unit of the target."""
        means, variances = self._of_components
        deviations = np.sqrt(variances)
        reach = _REACH * deviations
        inverse = self.weights / deviations  # weighs the narrow components, where nodes must be dense
        centre, scale = (inverse * means).sum(axis=0) / inverse.sum(axis=0), _DENSE / inverse.sum(axis=0)
        ends = np.stack([(means - reach).min(axis=0), (means + reach).max(axis=0), z]) - centre
        width = np.arcsinh(ends / scale)[:, None]
        t = width * NODES[:, None]
        places = centre + scale * np.sinh(t)
        each = zip(self.weights, cdfs, self.noises, self.means, self.variances, strict=True)
        of_each = (w * (cdf or noise.predictive_cdf)(places, m, v) for w, cdf, noise, m, v in each)
        F = sum(of_each, np.zeros_like(places))
        terms = width * np.stack([-(F[0] ** 2), (1.0 - F[1]) ** 2, 2.0 * F[2] - 1.0]) * np.cosh(t)
        terms *= self.scale.stretch(self.location + self.unit * places)
        return self.unit * scale * (WEIGHTS[:, None] * terms).sum(axis=(0, 1))

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        return self.scale.moments(self)

    def _draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return draws (count, n) of f + noise, independent between rows."""
        shape = count, len(self)
        where, chosen = rng.random(shape), np.zeros(shape, dtype=np.intp)
        for edge in self.weights.cumsum(axis=0)[:-1]:
            chosen += where > edge
        rows = np.arange(len(self))
        out = self.means[chosen, rows] + np.sqrt(self.variances[chosen, rows]) * rng.standard_normal(shape)
        for k, noise in enumerate(self.noises):
            at = np.nonzero(chosen == k)
            if at[0].size:
                out[at] += noise.at(at[1]).sample(at[0].size, rng)
        return out

    def _in_units(self, values: Array) -> Array:
        return self.scale.inverse(self.location + self.unit * values)


def _higher_moments(noise: NoiseModel, variance: Array) -> tuple[Array, Array]:
    """Return third and fourth central moment of f + noise for the variance of f, by integrals of tails of the noise."""
    if noise.name == "gaussian":
        return np.zeros_like(variance), 3.0 * (noise.variance + variance) ** 2
    reach = 2.0 * _REACH * np.sqrt(noise.variance)
    r = reach * (NODES**2)[:, None]
    tails = [noise.predictive_cdf(noise.mean + sign * r, 0.0, 0.0, upper_tail=sign > 0.0) for sign in (-1.0, 1.0)]
    weights = reach * (2.0 * NODES * WEIGHTS)[:, None]
    third = (weights * 3.0 * r**2 * (tails[1] - tails[0])).sum(axis=0)
    fourth = (weights * 4.0 * r**3 * (tails[1] + tails[0])).sum(axis=0)
    return third, fourth + 3.0 * variance * (2.0 * noise.variance + variance)


def _beyond(noise: NoiseModel, means: Array, variances: Array, edge: float, sign: float) -> Array:
    """Return means (3, n) of the second, third and fourth power of the distance of f + noise beyond an edge."""
    found, upper = np.zeros((3, means.size)), sign > 0.0
    near = np.flatnonzero(noise.predictive_cdf(np.full(means.size, edge), means, variances, upper_tail=upper) > _BEYOND)
    if near.size:
        noise, m, v = noise.at(near), means[near], variances[near]
        reach = 2.0 * _REACH * np.sqrt(v + noise.variance)
        t = reach * (SOME_NODES**2)[:, None]
        tail = noise.predictive_cdf(edge + sign * t, m, v, upper_tail=upper)
        tail *= reach * (2.0 * SOME_NODES * SOME_WEIGHTS)[:, None]
        found[:, near] = [(power * t ** (power - 1.0) * tail).sum(axis=0) for power in (2.0, 3.0, 4.0)]
    return found


def _in_chunks(function: Callable[[NDArray[np.intp]], Array], count: int) -> Array:
    """Join the results of a function of some of the numbers below ``count`` along the last axis, perhaps in threads."""
    size = 2 * CHUNK
    parts = each_block(lambda i: function(np.arange(i * size, min((i + 1) * size, count))), max(1, -(-count // size)))
    return np.concatenate(parts, axis=-1)


def mixed(weights: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Return the mean and variance (n,) of mixtures of components (components, n)."""
    mean = (weights * means).sum(axis=0)
    return mean, (weights * (variances + (means - mean) ** 2)).sum(axis=0)


def mixture_quantile(
    levels: Array, weights: Array, means: Array, variances: Array, noises: Sequence[NoiseModel]
) -> Array:
    """Return quantiles (m, n) of mixtures of f + noise (components, n), for levels (m, n) strictly between 0 and 1."""
    order = np.argsort(levels, axis=0)
    ascending = np.take_along_axis(levels, order, axis=0)
    # The table has a row for each component, or for each component and point.
    count, n = means.shape
    each = n if any(noise.n_points is not None for noise in noises) else 1
    stacked = [np.broadcast_to(noise.stacked_parameters(), (len(noise.parameters), each)) for noise in noises]
    parameters = np.concatenate(stacked, axis=1)
    pieces = noises[0].kind.table(parameters, np.ones(count * each))
    rows = np.broadcast_to(np.arange(count * each).reshape(count, each), (count, n))
    w, m, v = (np.ascontiguousarray(given) for given in (weights, means, variances))
    solved = mixture_quantiles(ascending, ndtri(ascending), w, m, v, np.ascontiguousarray(rows), pieces)
    found = np.empty_like(levels)
    np.put_along_axis(found, order, solved, axis=0)
    return found

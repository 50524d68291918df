"""The noise model of a loss, and the functions that make it.

Each loss is a table of convex quadratic pieces (`bsvr_pp.core.losses.registry`). Its noise density is exp(-C·loss(r))
divided by the normaliser, and `NoiseModel` computes everything else from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, Signature, cleandoc
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import map_coordinates

from bsvr_pp.core.arrays import Array, Values, check_positive, generator, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import elementwise
from bsvr_pp.core.losses.factors import log_factors, of_rows, tilted_moments
from bsvr_pp.core.losses.pieces import Pieces
from bsvr_pp.core.losses.registry import LOSSES, PARAMETERS, Loss

Cdf = Callable[[Array, Array, Array], Array]  # of f + noise at y, for the mean and the variance of f

_SMALL_SHARE = 1e-5  # variance of f over variance of the noise, below which the table has this ratio
_LOG_STEP = 0.25  # of the log variances of f in the table of the cdf
_PLACES = np.linspace(-14.0, 14.0, 561)  # its arguments, in standard deviations


@shared
@dataclass(frozen=True)
class NoiseModel:
    """A loss with its parameters: the density exp(-C·loss(r))/Z of the residual r = y - f.

    The functions `soft_insensitive`, `epsilon_insensitive`, `huber`, `absolute`, `gaussian`, `pinball` and `hinge`
    return noise models. All methods work elementwise; if a parameter is an (n,) array, the last axis of the argument
    corresponds to the n points. `hinge` describes labels, not residuals: its `loss` is max(0, r) with r = 1 - y·f, and
    it has neither cdf nor variance.

    Attributes
    ----------
    name : str
        Name of the loss.
    parameters : dict
        Name to float or (n,) array.
    weight : (n,) or (1,) array
        Sample weights of the n points of `sites`, or one for all points, see `weighted`.

    Raises
    ------
    ValueError
        If a parameter is outside its range or the arrays differ in length.
    """

    kind: Loss
    parameters: Mapping[str, float | Array]
    weight: Array = field(default_factory=lambda: np.ones(1))

    def __post_init__(self) -> None:
        checked = {name: _checked_parameter(name, value) for name, value in self.parameters.items()}
        sizes = {name: np.size(value) for name, value in checked.items() if np.ndim(value)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"parameters of {self.name} must be numbers or arrays of one length, got {sizes}")
        object.__setattr__(self, "parameters", checked)

    @property
    def name(self) -> str:
        """Name of the loss, a key of `LOSSES`."""
        return self.kind.name

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{k}={v:g}" if np.ndim(v) == 0 else f"{k}=array of {np.size(v)}" for k, v in self.parameters.items()
        )
        weights = f".weighted(array of {self.weight.size})" if (self.weight != 1).any() else ""
        return f"{self.name}({inside}){weights}"

    @property
    def n_points(self) -> int | None:
        """Length of the vector parameters, None if all are numbers."""
        return next((np.size(v) for v in self.parameters.values() if np.ndim(v)), None)

    def weighted(self, weight: ArrayLike = 1.0) -> Self:
        """Return the noise with sample weights: a point of weight w has the likelihood p(y|f)^w of w equal rows.

        Weights change the sites, and so mode, approximations and evidence. All other properties describe the noise of
        one new target.

        Parameters
        ----------
        weight : (n,) array or number
            Weights, > 0.

        Raises
        ------
        ValueError
            If a weight is not positive or not finite, or the noise has intervals and it is not 1.

        <on_arrays>
        >>> noise = gaussian(C=4.0)
        >>> one = laplace([[1.0]], [0.5], noise.weighted([3.0]))
        >>> three = laplace(np.ones((3, 3)), [0.5, 0.5, 0.5], noise)
        >>> bool(np.isclose(one.log_evidence, three.log_evidence)), bool(np.isclose(one.mean[0], three.mean[0]))
        (True, True)
        """
        given = numbers("weight", np.atleast_1d(numbers("weight", weight)), ("n",))
        if not (given > 0).all():
            raise ValueError(f"weight must be > 0, got {given[~(given > 0)][0]}: leave rows of weight 0 out")
        return replace(self, weight=given)

    def stacked_parameters(self) -> Array:
        """Return the parameters as a (p, k) array, k = 1 if all are numbers."""
        return np.stack(np.broadcast_arrays(*(np.atleast_1d(value) for value in self.parameters.values())))

    def sites(self, y: ArrayLike) -> Pieces:
        """Make the table of the energies of the data points: one row for all points, or one row per point.

        Parameters
        ----------
        y : (n,) array
            Targets; for `hinge` labels -1 and +1.

        Raises
        ------
        ValueError
            If y is not a finite vector of the parameters' length, or not labels for `hinge`.
        """
        targets = numbers("y", y, ("n",))
        self.check_targets(targets)
        pieces = self._pieces if self.kind.targets.one_table else self.kind.table(self.stacked_parameters(), targets)
        return of_rows(pieces, self._relative_ends(targets), np.array(np.broadcast_to(self.weight, targets.shape)))

    def check_targets(self, targets: Array) -> None:
        """Check that there is a target for each point, and that labels are labels."""
        if self.n_points not in (None, 1, targets.size):
            raise ValueError(
                f"parameters of {self.name} have {self.n_points} values, y has {targets.size}: they must agree"
            )
        self._check_kind(targets)
        if self.weight.size not in (1, targets.size):
            raise ValueError(f"weight has {self.weight.size} values, y has {targets.size}: they must agree")

    def _check_kind(self, targets: Array) -> None:
        if (unlike := self.kind.targets.unlike(targets.ravel())).size:
            raise ValueError(f"y must hold the {self.kind.targets.words} for the {self.name} loss, got {unlike[0]}")

    def _relative_ends(self, targets: Array) -> Array:
        """Return ends (n, 2) of the targets relative to `reference`, equal if they are exact."""
        return np.zeros((targets.size, 2))

    def between(self, lower: ArrayLike, upper: ArrayLike) -> IntervalNoise:
        """Return the noise of targets known only to lie in intervals, with factors P(lower < f + noise ≤ upper).

        Use the result in the approximations, `tilted` and `log_likelihood`, which then ignore the targets y. Densities,
        quantiles and moments of the noise do not change.

        Parameters
        ----------
        lower, upper : (n,) arrays
            Ends of the intervals, in the units of the target. Equal ends mean an exact target with its density; one
            infinite end means a censored target.

        Raises
        ------
        ValueError
            If a lower end is above the upper one, both are infinite, an end is NaN, or the noise has weights.
        TypeError
            If the loss is of labels.

        <on_arrays>
        >>> at_least_one = absolute(C=1.0).between([1.0], [np.inf])
        >>> np.exp(at_least_one.log_likelihood([0.0], [1.0])).round(6).tolist()
        [0.5]
        """
        self._needs_residual("intervals")
        return IntervalNoise(self.kind, self.parameters, self.weight, ends=checked_ends(lower, upper))

    def reference(self, y: Array) -> Array:
        """Return a finite target for each point: y, or with intervals a finite end of each."""
        return y

    def log_likelihood(self, y: ArrayLike, f: ArrayLike) -> Array:
        """Return log p(y|f), elementwise; for labels the log of Q(y|f) of Sollich 2002, (4).

        Parameters
        ----------
        y : (n,) array
            Targets.
        f : (..., n) array
            Latent function.
        """
        targets = numbers("y", y)
        self._check_kind(targets)
        return self.log_density(self.kind.targets.residual(targets, numbers("f", f)))

    @cached_property
    def _pieces(self) -> Pieces:
        """Return the table in the residual (hinge: in 1 - y·f)."""
        return self.kind.table(self.stacked_parameters(), np.ones(self.n_points or 1))

    @property
    def smooth(self) -> bool:
        """True if the loss is differentiable everywhere, that is, no knot of its table is a kink."""
        pieces = self._pieces
        width, rise = np.diff(pieces.knots, axis=1), np.diff(pieces.slope, axis=1)[:, 1:]
        return not ((width == 0) & (rise[:, : width.shape[1]] != 0)).any()

    def _shape(self, values: Values) -> tuple[int, ...]:
        """Return the shape of a result: the argument's shape, whose last axis corresponds to the points."""
        n = self.n_points
        if n is not None and values.ndim and values.shape[-1] not in (1, n):
            raise ValueError(f"parameters of {self.name} have {n} values, the argument has shape {values.shape}")
        return values.shape if n is None else np.broadcast_shapes(values.shape, (n,))

    def _energies(self, r: ArrayLike, derivative: int) -> Array:
        return self._elementwise(lambda *given: elementwise.energies(*given)[derivative], numbers("r", r))

    def _elementwise(self, function: Callable[..., Array], *values: Values) -> Array:
        """Return a function of flat arguments, the row of the table for each element, and the table."""
        shape = self._shape(values[0])
        row = 0 if self.n_points is None else np.arange(self.n_points)
        flat = [np.array(np.broadcast_to(each, shape)).ravel() for each in (*values, row)]
        return np.reshape(function(*flat, self._pieces), shape)

    def _needs_residual(self, what: str) -> None:
        if refusal := self.kind.targets.refusal("residual", name=self.name, asked=what):
            raise TypeError(refusal)

    def loss(self, r: ArrayLike) -> Array:
        """Return the loss of the residual, without the factor C."""
        return self._energies(r, 0) / self.parameters["C"]

    def derivative(self, r: ArrayLike) -> Array:
        """Return the derivative of the loss (the right-hand one at a kink)."""
        return self._energies(r, 1) / self.parameters["C"]

    def curvature(self, r: ArrayLike) -> Array:
        """Return the second derivative of the loss (right-hand at a knot; 0 at a kink)."""
        return self._energies(r, 2) / self.parameters["C"]

    def log_density(self, r: ArrayLike) -> Array:
        """Return log density of the residual; for `hinge` the log of Q(y|f) of Sollich 2002, (4), at r = 1 - y·f."""
        return self.kind.targets.log_factor(self._energies(r, 0)) - self.log_normalizer

    @property
    def log_normalizer(self) -> float | Array:
        """Log of the integral of exp(-C·loss); for `hinge` log(1 + exp(-2C))."""
        return self._of_points(self._pieces.log_normalizer)

    def _of_points(self, rows: Array) -> float | Array:
        """Return a number if all parameters are numbers, else one for each point."""
        return float(rows[0]) if self.n_points is None else rows

    @cached_property
    def _mean_variance(self) -> tuple[Array, Array]:
        self._needs_residual("mean or variance")
        return elementwise.mean_variance(self._pieces)

    @property
    def mean(self) -> float | Array:
        """Mean of the noise; 0 except for `pinball`."""
        return self._of_points(self._mean_variance[0])

    @property
    def variance(self) -> float | Array:
        """Variance of the noise (Chu, Keerthi & Ong 2004, (15))."""
        return self._of_points(self._mean_variance[1])

    def cdf(self, r: ArrayLike) -> Array:
        """Return the probability that the residual is at most r."""
        self._needs_residual("cdf")
        values = numbers("r", r, infinite=True)
        above, finite, nothing = values > 0, np.isfinite(values), np.zeros(())
        tail = self._elementwise(elementwise.convolved_cdf, np.where(finite, values, 0.0), nothing, nothing, above)
        return np.where(finite, np.where(above, 1.0 - tail, tail), above)

    def quantile(self, q: ArrayLike) -> Array:
        """Return the quantile of the residual for the probability q, 0 <= q <= 1.

        Raises
        ------
        ValueError
            If q is not between 0 and 1.
        """
        self._needs_residual("quantile")
        levels = numbers("q", q)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"q must be between 0 and 1, got {levels[~((levels >= 0) & (levels <= 1))].flat[0]}")
        return self._elementwise(elementwise.quantile, levels)

    def log_mgf(self, t: float) -> float | Array:
        """Return the log of the mean of exp(t·r) for the residual r; inf where it diverges.

        <on_arrays>
        >>> round(gaussian(C=4.0).log_mgf(2.0), 10), absolute(C=2.0).log_mgf(2.0)
        (0.5, inf)
        """
        self._needs_residual("mean")
        return self._of_points(elementwise.log_mgf(float(t), self._pieces))

    def predictive_cdf(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, upper_tail: bool = False) -> Array:
        """Return the probability that f + noise is at most y, for Gaussian f.

        Parameters
        ----------
        y, mean, variance : (n,) arrays or numbers
            Targets, and mean and variance (>= 0) of f.
        upper_tail : bool
            Whether to return the probability that it is larger than y.

        <on_arrays>
        >>> print(f"{absolute(C=20.0).predictive_cdf(-40.0, 0.0, 1.0):.2e}")
        1.33e-261
        """
        self._needs_residual("cdf")
        t, m, v = _align(y=y, mean=mean, variance=variance)
        check_positive("variance", v, or_zero=True)
        return self._elementwise(elementwise.convolved_cdf, t, m, np.sqrt(v), np.array(upper_tail))

    def predictive_log_density(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Return the log density of f + noise at y for Gaussian f; with intervals, log probability of each.

        Parameters
        ----------
        y, mean, variance : (n,) arrays or numbers
            Targets, and mean and variance (>= 0) of f.

        <on_arrays>
        >>> gaussian(C=1.0).predictive_log_density(0.0, [0.0, 1.0], 0.0).round(6).tolist()
        [-0.918939, -1.418939]
        """
        t, m, v = _align(y=y, mean=mean, variance=variance)
        given_f, wide = self.log_likelihood(t, m), v > 0
        return np.where(wide, self.tilted(m, np.where(wide, v, 1.0), t)[0], given_f) if wide.any() else given_f

    def at(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """Return the noise of some of the points, with their own parameters, weights and ends."""
        if self.n_points is None and self.weight.size == 1:
            return self
        named = {
            name: value if np.ndim(value) == 0 else np.asarray(value)[rows] for name, value in self.parameters.items()
        }
        return replace(self, parameters=named, weight=self.weight if self.weight.size == 1 else self.weight[rows])

    def sample(
        self, size: int | tuple[int, ...] | None = None, random_seed: int | np.random.Generator | None = None
    ) -> Array:
        """Draw residuals by inversion of the cdf.

        Parameters
        ----------
        size : int or tuple, optional
            Shape of the result; with vector parameters its last axis corresponds to the points. By default one draw, or
            one per point.
        random_seed : int or Generator, optional
            Random seed; the same seed gives the same draws.
        """
        self._needs_residual("sampler")
        if size is None:
            size = () if self.n_points is None else (self.n_points,)
        return self.quantile(generator(random_seed).random(size))

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Compute log normaliser, mean and variance of the product of a Gaussian on f and the noise factor.

        Parameters
        ----------
        mean, variance : (n,) arrays or numbers
            Mean and variance of the Gaussian (the cavity) of f; variance > 0.
        y : (n,) array or number
            Targets.

        Returns
        -------
        log_mass, tilted_mean, tilted_variance : (n,) arrays
            log of Z = ∫ N(f; mean, variance) p(y|f) df (the predictive density of y), and the moments of N(f)p(y|f)/Z.
            Chu et al. 2004 need the first in (34); Gao et al. 2002 need all three in (3.7).

        <on_arrays>
        >>> log_mass, mean, variance = gaussian(C=1.0).tilted(0.0, 1.0, 2.0)
        >>> round(float(mean), 10), round(float(variance), 10)
        (1.0, 0.5)
        """
        m, v, t = _align(mean=mean, variance=variance, y=y)
        check_positive("variance", v)
        shape = self._shape(m)
        m, v, t = (np.array(np.broadcast_to(a, shape)).ravel() for a in (m, v, t))
        noise = self
        if self.n_points is not None or (self.weight != 1).any():
            each = {k: np.broadcast_to(p, shape).ravel() if np.ndim(p) else p for k, p in self.parameters.items()}
            noise = replace(self, parameters=each, weight=np.ones(1))
        reference = noise.reference(t)
        log_mass, _, residual, tilted_variance, _ = tilted_moments(reference - m, v, noise.sites(t))
        return np.reshape(log_mass, shape), np.reshape(reference - residual, shape), np.reshape(tilted_variance, shape)


@dataclass(frozen=True)
class IntervalNoise(NoiseModel):
    """The noise of targets that are known to lie between ``ends`` (n, 2), equal if they are exact."""

    ends: Array = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weight != 1).any():
            raise ValueError("weight must be 1 where targets are intervals: weights are of exact targets")

    def check_targets(self, targets: Array) -> None:
        """Check that there is a target for each interval."""
        if len(self.ends) != targets.size:
            raise ValueError(f"y must have {len(self.ends)} values as there are intervals, got {targets.size}")
        super().check_targets(targets)

    def _relative_ends(self, targets: Array) -> Array:
        return self.ends - self.reference(targets)[:, None]

    def reference(self, y: Array) -> Array:
        """Return a finite end of each interval."""
        return np.where(np.isfinite(self.ends[:, 0]), self.ends[:, 0], self.ends[:, 1])

    def log_likelihood(self, y: ArrayLike, f: ArrayLike) -> Array:
        """Return the log probability of each interval given f (..., n)."""
        targets, latent = numbers("y", y), numbers("f", f)
        pieces, n = self.sites(targets), targets.size
        if latent.ndim and latent.shape[-1] not in (1, n):
            raise ValueError(f"f must have {n} values on its last axis, one per interval, got shape {latent.shape}")
        whole = np.broadcast_to(latent, np.broadcast_shapes(latent.shape, (n,)))
        flat = np.ascontiguousarray(whole.reshape(-1, n))
        return np.reshape(log_factors(flat, self.reference(targets), pieces), whole.shape)

    def at(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """Return the noise of some of the intervals."""
        return replace(super().at(rows), ends=self.ends[rows])

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Compute as `NoiseModel.tilted`, with the probability of each interval; the targets are ignored."""
        m, v, t = _align(mean=mean, variance=variance, y=y)
        n = len(self.ends)
        if m.shape not in ((), (1,), (n,)):
            raise ValueError(f"mean must have {n} values, one per interval, got {m.size}")
        return super().tilted(np.broadcast_to(m, n), np.broadcast_to(v, n), np.broadcast_to(t, n))


def noise_function(loss: str) -> Callable[..., NoiseModel]:
    """Return the function that makes the noise model of a loss, a key of `LOSSES`, from its parameters."""
    row = LOSSES[loss]

    def make(*values: ArrayLike, **named: ArrayLike) -> NoiseModel:
        given = dict(zip(row.parameters, values, strict=False)) | named
        if len(values) + len(named) != len(given) or set(given) != set(row.parameters):
            raise TypeError(f"{loss} takes {', '.join(row.parameters)}, got {', '.join(given) or 'nothing'}")
        return NoiseModel(row, cast("dict[str, float | Array]", given))

    kinds = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in row.parameters]
    make.__signature__ = Signature(kinds)  # type: ignore[attr-defined]
    make.__name__ = make.__qualname__ = loss
    make.__module__ = "bsvr_pp.losses"
    make.__doc__ = f"""{cleandoc(row.energy.__doc__ or "")}

Parameters
----------
{row.documented("float or (n,) array")}
Raises
------
ValueError
    If a parameter is outside its range or the arrays differ in length.

Examples
--------
>>> from bsvr_pp.losses import {loss}
>>> {unit_noise(loss)}
{unit_noise(loss)}
"""
    return make


def unit_noise(loss: str, **parameters: float) -> NoiseModel:
    """Return the noise of a loss in its own units; missing parameters are 1, shares one half; others are ignored."""
    row = LOSSES[loss]
    units = {name: 0.5 if row.parameter(name).prior is None else 1.0 for name in row.parameters}
    return NoiseModel(row, {name: parameters.get(name, unit) for name, unit in units.items()})


def widen(noise: NoiseModel, factor: ArrayLike) -> NoiseModel:
    """Return the noise of factor·r, where r has the given noise without weights and intervals; factor > 0."""
    return NoiseModel(noise.kind, parameters_in_unit(noise, np.asarray(factor, dtype=np.float64)))


def parameters_in_unit(noise: NoiseModel, unit: float | Array) -> dict[str, float | Array]:
    """Return the parameters of a noise with residuals times ``unit``: each is multiplied by its power of the unit."""
    given = noise.parameters.items()
    return {name: value * unit ** noise.kind.parameter(name).power for name, value in given}


def interpolated_cdf(noise: NoiseModel, variances: Array, count: int) -> Cdf | None:
    """Tabulate `predictive_cdf` for variances of f in the range of these, with an error of 1e-5.

    Returns None if ``count`` values cost less than the table, or the noise has parameters for each point.
    """
    if noise.n_points is not None:
        return None
    # The table is of the log variance of f, and of the distance from the mean in standard deviations.
    center, spread = float(noise.mean), float(noise.variance)
    least = _SMALL_SHARE * spread
    first, last = np.log(np.maximum([variances.min(), variances.max()], least)) / _LOG_STEP - 4.0
    v = np.exp(_LOG_STEP * (first + np.arange(10 + int(last - first))))[:, None]
    if count < v.size * _PLACES.size:
        return None
    table = noise.predictive_cdf(center + np.sqrt(spread + v) * _PLACES, 0.0, v)

    def cdf(y: Array, mean: Array, variance: Array) -> Array:
        used = np.maximum(variance, least)
        deviation, line = np.sqrt(spread + used), np.log(used) / _LOG_STEP - first
        place = ((y - mean - center) / deviation - _PLACES[0]) / (_PLACES[1] - _PLACES[0])
        return np.asarray(map_coordinates(table, np.broadcast_arrays(line, place), mode="nearest"))

    return cdf


def checked_ends(lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the ends of intervals as an (n, 2) array; a ValueError names what is not allowed."""
    low, high = (numbers(name, end, infinite=True) for name, end in (("lower", lower), ("upper", upper)))
    if low.ndim > 1 or high.ndim > 1 or not (low.size == high.size or 1 in (low.size, high.size)):
        raise ValueError(f"lower and upper must be (n,) arrays of one length, got shapes {low.shape} and {high.shape}")
    ends = np.stack(np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high)), axis=1)
    bad = ~(ends[:, 0] <= ends[:, 1])
    if bad.any():
        a, b = ends[bad][0]
        raise ValueError(f"lower must be at most upper, got {a} > {b} in row {np.flatnonzero(bad)[0]}")
    unknown = ~np.isfinite(ends).any(axis=1)
    if unknown.any():
        raise ValueError(
            f"lower or upper must be finite, got {tuple(ends[unknown][0].tolist())} in row "
            f"{np.flatnonzero(unknown)[0]}: drop targets of which nothing is known"
        )
    return ends


def _checked_parameter(name: str, given: ArrayLike) -> float | Array:
    """Convert a parameter to a float or an (n,) array; a ValueError states the allowed values."""
    try:
        value = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an (n,) array, got {given!r}") from None
    if value.ndim > 1 or value.size == 0:
        raise ValueError(f"{name} must be a number or an (n,) array, got shape {value.shape}")
    parameter = PARAMETERS[name]
    bad = ~(np.isfinite(value) & parameter.holds(value))
    if bad.any():
        raise ValueError(
            f"{name} must be finite and {parameter.allowed}, got {np.atleast_1d(value)[np.atleast_1d(bad)][0]}"
        )
    return float(value) if value.ndim == 0 else value


def _align(**given: ArrayLike) -> list[Array]:
    """Broadcast arguments to arrays of one shape."""
    arrays = {name: numbers(name, value) for name, value in given.items()}
    try:
        return [*np.broadcast_arrays(*arrays.values())]
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape, got {shapes}") from None

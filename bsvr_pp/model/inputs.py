"""Data of a kernel on its inputs, beside their numbers: the levels of inputs of few values, and scales.

An input of few values is a number, and each value is also a level of a category. A value that no training row has is
only a number (docs/defaults.md). On a scale, x becomes x + w·(g(x) - x) with a learned share w. g is the Yeo-Johnson
transform (2000) whose power makes the training rows as Gaussian as possible, shifted and scaled to their mean and
deviation. It bends on both sides of the mean; or, where this is clearly more likely, from the least or the largest
value on, and is a line beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.gp.cov import BaseCovariance, WarpedInput
from pytensor.gradient import disconnected_grad
from scipy.optimize import minimize_scalar
from scipy.stats import yeojohnson

from bsvr_pp.core.arrays import Array, Tensor
from bsvr_pp.model.gaussian import value_of

_LARGEST = 2.0  # power; with a power below 0 or above 2 a transform has a limit outside the rows
_BENT, _LIKE_LOG = 0.1, 0.7  # share times distance of the power from 1, above which the description mentions it
_ENOUGH = 20_000  # rows that determine a transform
_DIGITS = 1e-3  # of the power
_NEAR, _CLOSEST = 0.1, 1e-6  # share of the rows within the unit of a scale from an end; least unit in deviations
_CLEARLY = 0.1  # nats a row by which it must be more likely than the scale around the mean
_SHARE, _INITIAL = 0.5, np.array([0.3])  # scale of a common share of classes, which say little of it, and its start
CONSTANTS = "warping_constants"  # name of the data of a model that has them
Constants = tuple[tuple[float, float, float, float, float, float], ...]


class Warping(NamedTuple):
    """Columns with scales, and for each the constants of g = location + scale·t((x - centre)/unit).

    The first two are the powers of t above and below the centre; then come centre, unit, location and scale.
    Columns ``together`` have one share.
    """

    columns: tuple[int, ...] = ()
    constants: Constants = ()
    together: bool = False

    @classmethod
    def of(cls, X: Array, columns: Sequence[int], weight: ArrayLike = 1.0, *, together: bool = False) -> Self:
        """Find the transforms of weighted rows; of very many rows a part suffices."""
        some = slice(None, None, 1 + len(X) // _ENOUGH)
        times = np.broadcast_to(weight, len(X))[some]
        return cls(tuple(columns), tuple(_constants(X[some, column], times) for column in columns), together)

    @property
    def array(self) -> Array:
        """The number of each column and its constants, (q, 7)."""
        return np.column_stack([self.columns, np.reshape(self.constants, (-1, len(_LINE)))])

    @classmethod
    def of_array(cls, array: Array) -> Self:
        """Read `array`."""
        return cls(tuple(map(int, array[:, 0])), tuple(map(tuple, array[:, 1:].tolist())))

    def on_scales(self, X: Array, share: Array) -> Array:
        """Return the inputs (n, q) of these columns on their scales."""
        found = on_scales(pt.constant(X), X.shape[1], self.columns, pt.constant(self.array), pt.constant(share))
        return value_of(found)[:, list(self.columns)]

    @property
    def powers(self) -> list[float]:
        """The power of each Yeo-Johnson transform, which is below 1 if it grows slowly above its centre."""
        return [above if above != 1.0 else 2.0 - below for above, below, *_ in self.constants]

    def described(self, share: Array) -> list[str]:
        """Return the scales in words, for shares (q,)."""
        words = []
        for power, w in zip(self.powers, share, strict=True):
            bent = w * abs(1.0 - power)
            like = "a logarithm" if bent > _LIKE_LOG else "a root"
            words.append(f"like {like} {'above' if power < 1.0 else 'below'}" if bent > _BENT else "as given")
        return words

    def without_constants(self) -> Warping:
        """Return the columns with placeholder constants."""
        return self._replace(constants=(_LINE,) * len(self.columns))


_LINE = 1.0, 1.0, 0.0, 1.0, 0.0, 1.0  # constants of x itself
AS_GIVEN = Warping()


def columns_to_warp(X: Array, tied: Sequence[int] | None) -> tuple[int, ...]:
    """Return columns with at least three values (two define a line) that are not indicators of words."""
    return tuple(k for k in alone(X, tied) if ((X[:, k] > X[:, k].min()) & (X[:, k] < X[:, k].max())).any())


def _constants(x: Array, weight: Array) -> tuple[float, float, float, float, float, float]:
    """Return the constants of a scale around the mean, or from an end if that is clearly more likely."""
    order = np.lexsort((weight, x))  # rounding errors do not depend on the order of the rows
    x, weight = x[order], weight[order]
    mean, deviation = _moments(x, weight)
    around = _likely(x, weight, mean, deviation)
    ends = [_likely(x, weight, end, unit) for end, unit in _ends(x, weight, _CLOSEST * deviation)]
    _, power, centre, unit = max((end for end in ends if end[0] > around[0] + _CLEARLY), default=around)
    middle, width = _moments(yeojohnson((x - centre) / unit, power), weight)
    above = 1.0 if centre == x.max() else power
    below = 1.0 if centre == x.min() else 2.0 - power
    return above, below, centre, unit, mean - deviation / width * middle, deviation / width


def _moments(values: Array, weight: Array) -> tuple[float, float]:
    mean = np.average(values, weights=weight)
    return float(mean), float(np.sqrt(np.average((values - mean) ** 2, weights=weight))) or 1.0


def _ends(x: Array, weight: Array, least: float) -> Iterator[tuple[float, float]]:
    """Yield the least and the largest value, and the distance within which a share of the other rows lies."""
    for end in (x.min(), x.max()):
        distance = np.abs(x - end)
        if (others := distance > 0.0).any():
            near = np.quantile(distance[others], _NEAR, weights=weight[others], method="inverted_cdf")
            yield float(end), max(float(near), least)


def _likely(x: Array, weight: Array, centre: float, unit: float) -> tuple[float, float, float, float]:
    """Return the log likelihood of a row with the most likely power, this power, centre and unit."""
    z = (x - centre) / unit
    slope = np.average(np.sign(z) * np.log1p(np.abs(z)), weights=weight)

    def minus_log_likelihood(power: float) -> float:
        return float(np.log(unit * _moments(yeojohnson(z, power), weight)[1]) - (power - 1.0) * slope)

    found = minimize_scalar(minus_log_likelihood, bounds=(0.0, _LARGEST), options={"xatol": _DIGITS})
    return -float(found.fun), float(found.x), centre, unit


def on_scales(X: Tensor, d: int, columns: tuple[int, ...], constants: Tensor, share: Tensor) -> Tensor:
    """Return inputs (n, d) with some columns moved by a share (q,) towards their transforms."""

    def of_inputs(values: Tensor, others: float) -> Tensor:
        return pt.set_subtensor(pt.full(d, np.float64(others))[np.array(columns)], values)

    above, below, centre, unit, location, scale = (
        of_inputs(constants[:, k], others) for k, others in enumerate(_LINE, start=1)
    )
    z = (X - centre) / unit
    g = location + scale * (_grown(pt.maximum(z, 0.0), above) - _grown(pt.maximum(-z, 0.0), below))
    return X + of_inputs(share, 0.0) * (g - X)


def _grown(z: Tensor, power: Tensor) -> Tensor:
    """Return ((1 + z)^power - 1)/power, of z >= 0; log(1 + z) where the power is 0."""
    small = power < 1e-9
    log, divisor = pt.log1p(z), pt.switch(small, 1.0, power)
    return pt.switch(small, log, pt.expm1(divisor * log) / divisor)


class Warped(WarpedInput):
    """Converts a kernel of inputs on their scales to a kernel of the inputs.

    Each has a share ``warping`` ~ Uniform(0, 1); columns together have one, ~ HalfNormal(0.5) up to 1.
    """

    def __init__(self, input_dim: int, kernel: BaseCovariance, warping: Warping) -> None:
        constants = pm.Data(CONSTANTS, warping.array)
        if warping.together:
            share = pm.TruncatedNormal("warping", 0.0, _SHARE, lower=0.0, upper=1.0, shape=1, initval=_INITIAL)
        else:
            share = pm.Uniform("warping", 0.0, 1.0, shape=len(warping.columns))
        super().__init__(input_dim, kernel, on_scales, args=(input_dim, warping.columns, constants, share))


_FEWEST, _MOST = 3, 12  # numbers of values: two define a line, and more are rarely names
_REPEATS = 5  # smallest mean number of rows of a value
_SAME = 1e-9  # difference of equal values in standard deviations; rounding errors are far smaller


class Levels(NamedTuple):
    """Columns with few values, and these values (q, m), filled up with infinity."""

    columns: tuple[int, ...] = ()
    values: Array = np.empty((0, 1))

    @classmethod
    def of(cls, X: Array, columns: tuple[int, ...]) -> Levels:
        """Return the values that rows have in some columns."""
        found = [np.unique(X[:, column]) for column in columns]
        values = np.full((len(columns), max((value.size for value in found), default=1)), np.inf)
        for row, value in zip(values, found, strict=True):
            row[: value.size] = value
        return cls(columns, values)


def columns_of_few_values(X: Array, tied: Sequence[int] | None) -> tuple[int, ...]:
    """Return columns with 3 to 12 values, each in five rows on average, that are not indicators of words."""
    sizes = {k: np.unique(X[:, k]).size for k in alone(X, tied)}
    return tuple(k for k, m in sizes.items() if _FEWEST <= m <= min(_MOST, len(X) // _REPEATS))


def alone(X: Array, tied: Sequence[int] | None) -> list[int]:
    """Return columns that share no hyperparameter with others, unlike indicators of words."""
    return [k for k in range(X.shape[1]) if tied is None or tied.count(tied[k]) == 1]


def with_levels(X: Tensor, columns: tuple[int, ...], values: Tensor) -> Tensor:
    """Return inputs (n, d), and the number of the level in each of the q columns, -1 for no value of `Levels`."""
    same = pt.lt(pt.abs(X[:, np.array(columns)][:, :, None] - values[None]), _SAME)
    level = pt.switch(pt.any(same, axis=2), pt.argmax(same, axis=2), -1.0)
    return pt.concatenate([X, disconnected_grad(level)], axis=1)  # blocks differentiate by the inputs


class WithLevels(WarpedInput):
    """Converts a kernel of d inputs and their levels to a kernel of the inputs, with the inputs' lengthscales."""

    def __init__(self, input_dim: int, kernel: BaseCovariance, levels: Levels) -> None:
        super().__init__(input_dim, kernel, with_levels, args=(levels.columns, pm.Data("levels", levels.values)))

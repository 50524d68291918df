"""Training rows of estimators: their weights, intervals and units, and their place in the given data.

Equal rows are merged into one row with the sum of their weights. A row of weight w has the likelihood p(y|f)^w; scales
of the data depend on w/Σw alone. Whole weights and repeated rows become the same arrays, in the same order, and all
numbers agree to the last bit, except those of kernel matrices, whose columns have the order of the given rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.arrays import Array, Mask, check_fields, check_varies, checked_weights, mixed_rows, numbers, warn
from bsvr_pp.inference.prediction.distribution import UNSCALED, Unscaled
from bsvr_pp.model.blocks import mean_and_deviation
from bsvr_pp.model.priors import Tied, location_and_scale, of_inputs
from bsvr_pp.model.row_kinds import representative

_RATIO = 1e7  # of the largest weight to the smallest, above which the digits of a solve are lost
_MOST = 1e8  # largest weight: from 1e10 on Laplace has wrong hyperparameters
_WORTH = 0.2  # mean weight below which there is a warning


@dataclass(frozen=True)
class TrainingData:
    """The rows of a data set with exact targets, or labels, without repetitions."""

    X: Array  # (m, d)
    y: Array  # (m,); labels are numbers
    weight: Array  # (m,), how often each row counts; if all are 1, the rows are in the order of the data
    place: NDArray[np.intp]  # for each given row its row here; -1 if it is left out
    share: Array  # for each given row its part of the weight of that row

    exact: ClassVar[bool] = True  # required by rounds of gross errors and scales of the noise
    _AXES: ClassVar[dict[str, tuple[str, ...]]] = {
        "X": ("row", "input"),
        "y": ("row",),
        "weight": ("row",),
        "place": ("given",),
        "share": ("given",),
    }

    @property
    def n_exact(self) -> float:
        """Number of rows with exact targets, each as often as its weight says."""
        return float(self.weight.sum())

    @property
    def of_targets(self) -> dict[str, Array]:
        """Other data of the targets for a model: the weights, unless all are 1."""
        return {} if (self.weight == 1).all() else {"weight": self.weight}

    @property
    def given_weight(self) -> Array:
        """Weights of the given rows."""
        return self.share * self.weight[self.place]

    @property
    def counted(self) -> bool:
        """Whether each given row that is not left out has weight 1."""
        return np.allclose(self.given_weight[self.place >= 0], 1.0, rtol=1e-12, atol=0.0)

    def _at(self, index: NDArray[np.intp] | Mask, **others: Array | NDArray[np.intp]) -> Self:
        """Return some of the m rows, with other fields changed."""
        of_rows = {name: getattr(self, name)[index] for name, axes in self._AXES.items() if axes[0] == "row"}
        return replace(self, **(of_rows | others))

    def taken(self, kept: Mask) -> Self:
        """Keep some of the m rows."""
        index = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        return self._at(kept, place=index[self.place])

    def mixed(self, seed: int) -> NDArray[np.intp]:
        """Return the rows in a random order, which does not depend on theirs, or on unit and sign of the targets."""
        far = np.abs(self.y - np.median(self.y))
        return mixed_rows(seed, self.X, self.y, np.round(far / max(far.max(initial=0.0), np.finfo(float).tiny), 9))

    def spread(self, values: Array) -> Array:
        """Divide a value of each of the m rows, on the last axis, among the given rows; 0 for rows left out."""
        return np.where(self.place < 0, 0.0, values[..., self.place] * self.share)

    def given(self, chosen: Mask) -> NDArray[np.intp]:
        """Return numbers of the given rows whose row here is chosen."""
        return np.flatnonzero((self.place >= 0) & chosen[self.place])

    def unmerged(self) -> Self:
        """Return each given row as a separate row, if all weights are 1; otherwise unchanged."""
        if not self.counted:
            return self
        used = self.place >= 0
        place = np.where(used, np.cumsum(used) - 1, -1)
        return self._at(self.place[used], weight=np.ones(used.sum()), place=place, share=used.astype(np.float64))

    def nearest(self, f: Array) -> Array:
        """Return the targets (m,), or of intervals the values that are nearest to f."""
        return self.y

    def joined(self, new: TrainingData, *, merge: bool) -> TrainingData:
        """Append new rows of the same kind; with ``merge`` equal rows become one."""
        m, found = len(self.y), self._stack(new, merge)
        given = np.concatenate([self.place, np.where(new.place < 0, -1, m + new.place)])
        place = np.append(found.place, -1)[given]
        weight = np.concatenate([self.given_weight, new.given_weight])
        return replace(found, place=place, share=weight / found.weight[place])

    def _stack(self, new: TrainingData, merge: bool) -> TrainingData:
        """Return these rows followed by new ones, and the place of each."""
        X, y, weight = (np.concatenate([getattr(rows, name) for rows in (self, new)]) for name in ("X", "y", "weight"))
        return merge_rows(X, y, weight) if merge else replace(as_given(X, y), weight=weight)

    def in_units(self, units: Units) -> Self:
        """Return the rows in units of a model; the targets are on their scale already."""
        return replace(self, X=units.inputs(self.X), y=units.targets(self.y))

    def on_scale(self, scale: Unscaled, name: str = "y") -> Self:
        """Return the rows with targets, which errors name, on a scale."""
        scale.check(name, self.y)
        return replace(self, y=scale.forward(self.y))

    def check(self, name: str) -> None:
        """Check that the targets have a scale."""
        check_varies(name, self.y)

    def dataset(self) -> xr.Dataset:
        """Return the arrays as a group of a result."""
        return xr.Dataset({name: (axes, getattr(self, name)) for name, axes in self._AXES.items()})

    @staticmethod
    def of_dataset(held: xr.Dataset) -> TrainingData:
        """Read the group of a result, and check it."""
        kind = IntervalData if "ends" in held else TrainingData
        given = check_fields("rows of result", {str(name): array for name, array in held.items()}, kind._AXES)
        for name, array in given.items():
            if array.dims != kind._AXES[name]:
                raise ValueError(f"{name} of result must have the axes {kind._AXES[name]}, got {array.dims}")
            values = array.values if array.dtype.kind in "iuf" else array.dtype
            numbers(f"{name} of result", values, infinite=name == "ends")
        rows = kind(**{name: array.values for name, array in given.items()})
        if not ((rows.place >= -1) & (rows.place < rows.y.size)).all():
            raise ValueError(f"place of result must be numbers of its {rows.y.size} rows, or -1")
        return rows


@dataclass(frozen=True)
class IntervalData(TrainingData):
    """Rows whose targets lie between ``ends`` (m, 2); y has one number of each interval; no rows are merged."""

    ends: Array

    exact: ClassVar[bool] = False
    _AXES: ClassVar[dict[str, tuple[str, ...]]] = TrainingData._AXES | {"ends": ("row", "end")}

    @classmethod
    def of(cls, rows: TrainingData, ends: Array) -> Self:
        """Return rows with the ends of their targets."""
        return cls(rows.X, rows.y, rows.weight, rows.place, rows.share, ends)

    @property
    def n_exact(self) -> float:
        """Number of rows with equal ends."""
        return float(np.sum(self.ends[:, 0] == self.ends[:, 1]))

    @property
    def of_targets(self) -> dict[str, Array]:
        """The ends."""
        return {"lower": self.ends[:, 0], "upper": self.ends[:, 1]}

    def nearest(self, f: Array) -> Array:
        """Return f in the intervals, and beyond them their ends."""
        return np.clip(f, *self.ends.T)

    def _stack(self, new: TrainingData, merge: bool) -> TrainingData:
        assert isinstance(new, IntervalData)
        return IntervalData.of(super()._stack(new, False), np.concatenate([self.ends, new.ends]))

    def on_scale(self, scale: Unscaled, name: str = "y") -> Self:
        """Return the rows and their ends on a scale; a lower end below the least possible target is infinite."""
        lower, upper = self.ends.T
        scale.check(name, np.where(np.isinf(upper), lower, upper))
        ends = scale.forward(self.ends)
        return replace(self, y=representative(*ends.T), ends=ends)

    def check(self, name: str) -> None:
        """Check that the targets have a scale, and a bound on both sides, since else the prior would decide it."""
        for side, infinite in zip(("right", "left"), np.isinf(self.ends).all(axis=0)[::-1], strict=True):
            if infinite:
                raise ValueError(f"{name} must have targets that are not {side}-censored, got none of {len(self.ends)}")
        super().check(name)

    def in_units(self, units: Units) -> Self:
        """Return the rows and their ends."""
        return replace(super().in_units(units), ends=units.targets(self.ends))


@dataclass(frozen=True, slots=True)
class Units:
    """Location and unit of the inputs (d,) and of the targets on their scale, for the rows of a model."""

    mean: Array
    scale: Array
    location: float = 0.0
    unit: float = 1.0
    target_scale: Unscaled = UNSCALED

    @classmethod
    def of(cls, rows: TrainingData, tied: Tied, *, targets: bool = False, target_scale: Unscaled = UNSCALED) -> Self:
        """Return means and standard deviations of the inputs, and of ``targets`` a location and scale."""
        of_targets = location_and_scale(rows.y, rows.weight) if targets else (0.0, 1.0)
        if tied == ():  # rows of a kernel matrix
            return cls(np.zeros(rows.X.shape[1]), np.ones(rows.X.shape[1]), *of_targets, target_scale)
        mean, deviation = mean_and_deviation(rows.X, rows.weight)
        return cls(mean, width_of_tied(deviation, tied), *of_targets, target_scale)

    def inputs(self, X: Array) -> Array:
        """Return inputs in these units."""
        return np.asarray((X - self.mean) / self.scale)

    def targets(self, y: Array) -> Array:
        """Return targets that are on their scale in these units."""
        return np.asarray((y - self.location) / self.unit)

    def log_jacobian(self, rows: TrainingData) -> float:
        """Return the sum of log dz/dy of rows z in these units; of dz/dlog y if the logarithm is modelled."""
        scale = self.target_scale.of_f
        slopes = rows.weight @ scale.log_slope(scale.inverse(self.location + self.unit * rows.y))
        return float(slopes - rows.n_exact * np.log(self.unit))

    @property
    def of_targets(self) -> dict[str, Any]:
        """Units of the targets of a `PredictiveDistribution`."""
        return {"location": self.location, "unit": self.unit, "scale": self.target_scale}


def merge_rows(X: Array, y: Array, sample_weight: ArrayLike | None) -> TrainingData:
    """Merge equal rows, leave rows of weight 0 out, and warn if the sum of the weights is small."""
    n, weight = len(y), checked_weights(sample_weight, len(y))
    used = used_rows(weight)
    table = np.column_stack([X, y])[used] + 0.0  # -0.0 is 0.0
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weight[used])
    if (total == 1.0).all():  # as given
        order = np.argsort(first)
        first, total, place = first[order], total[order], np.argsort(order)[place.ravel()]
    kept, everywhere, share = used[first], np.full(n, -1), np.zeros(n)
    everywhere[used] = place.ravel()
    share[used] = weight[used] / total[place.ravel()]
    return TrainingData(X[kept], y[kept], total, everywhere, share)


def used_rows(weight: Array) -> NDArray[np.intp]:
    """Return rows of weights other than 0; they must not be too large or too different; warn if their sum is small."""
    if weight.max() > _MOST:
        raise ValueError(
            f"sample_weight must be at most {_MOST:g}, got {weight.max():g}: a weight is a number of measurements, so "
            "divide inverse variances by their mean"
        )
    used, worth = np.flatnonzero(weight > 0), weight.sum()
    if worth < _WORTH * used.size:
        warn(
            f"sample_weight has the sum {worth:.3g}, so that {used.size} rows are worth {worth:.3g}, and the prior "
            "decides most: multiply it so that the weights average to 1, if each row is a measurement"
        )
    ratio = weight.max() / weight[used].min()
    if ratio > _RATIO:
        raise ValueError(
            f"sample_weight must be at most {_RATIO:g} times the smallest that is not 0, got {ratio:g} times"
        )
    return used


def as_given(X: Array, y: Array) -> TrainingData:
    """Return rows as they are, without weights."""
    return TrainingData(X, y, np.ones(len(y)), np.arange(len(y)), np.ones(len(y)))


def width_of_tied(width: Array, tied: Tied) -> Array:
    """Return widths of the columns; tied columns have the root of their sum of squares, as for one number.

    Tied columns are indicators: they vary by at most a half, and the width 1 is that of a constant, which adds nothing.
    """
    if tied is None:
        return width
    alone = np.bincount(tied)[np.array(tied)] == 1
    return np.asarray(of_inputs(np.sqrt(np.bincount(tied, np.where(alone | (width < 1.0), width, 0.0) ** 2)), tied))

"""Training data of estimators: checks, intervals, sample weights, and which rows of the data are left.

Equal rows are one row whose weight is the sum of theirs. A row of weight w has the likelihood p(y|f)^w; scales of the
data depend on w/Σw alone. A data set with whole weights and the one with repeated rows become the same arrays, in the
same order, so that everything that is computed from them agrees to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import check_fields, check_size, check_spread, check_varies, checked_weights, numbers
from bsvr_pp.core.losses.noise import checked_ends
from bsvr_pp.model.priors import Tied, location_and_scale, of_inputs
from bsvr_pp.model.row_kinds import representative
from bsvr_pp.tables import DataError, check_columns
from bsvr_pp.tables.columns import Encoding, table_of

Mask = NDArray[np.bool_]
Labels = NDArray[np.generic]
Learned = dict[str, Any]  # attributes of an estimator
RandomState = int | np.random.RandomState | None  # as scikit-learn takes it

_RATIO = 1e7  # of the largest weight to the smallest, above which the digits of a solve are lost
_REPEATED = 0.5  # share of repeated rows from which there is a warning,
_WORTH = 0.2  # and mean weight below which there is one
PACKAGE = str(Path(__file__).parents[1])  # whose lines no warning names


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the inputs of a fit: their number, any names, and how those of a table are encoded."""

    count: int
    names: Labels | None = None
    encoding: Encoding | None = None

    @property
    def attributes(self) -> Learned:
        """The attributes of an estimator that say so."""
        names = {} if self.names is None else {"feature_names_in_": self.names}
        return {"n_features_in_": self.count, "encoding_": self.encoding} | names

    @property
    def tied(self) -> Tied:
        """Numbers that the inputs from the words of one column share; None without words."""
        return None if self.encoding is None else self.encoding.tied

    def of_each(self, values: Array) -> Array:
        """Values (d,) of the inputs from those of their lengthscales, or from one."""
        d = self.count if self.encoding is None else len(self.encoding.names)
        return np.broadcast_to(of_inputs(values, self.tied) if values.size > 1 else values, (d,))

    def named(self, values: Array) -> Array | pd.Series | pd.DataFrame:
        """A value of each input (or one row per class), with their names if the data had names."""
        names = self.names if self.encoding is None else self.encoding.names
        if names is None:
            return values
        index = [str(name) for name in names]
        return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, columns=index)


@dataclass(frozen=True)
class TrainingData:
    """The rows of a data set with exact targets, or labels, without repetitions.

    Attributes
    ----------
    X, y : (m, d) and (m,) arrays
        Inputs, and targets or numbers of labels.
    weight : (m,) array
        How often each row counts; if all weights are 1, the rows are in the order of the data set.
    place : (n,) array of int
        For each given row its row here; -1 if it is left out.
    share : (n,) array
        For each given row its part of the weight of that row.
    """

    X: Array
    y: Array
    weight: Array
    place: NDArray[np.intp]
    share: Array

    exact: ClassVar[bool] = True  # which blocks, rounds of gross errors and scales of the noise take
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
        """What a model knows of the targets besides: the weights, unless all are 1."""
        return {} if (self.weight == 1).all() else {"weight": self.weight}

    @property
    def given_weight(self) -> Array:
        """Weights of the given rows."""
        return self.share * self.weight[self.place]

    @property
    def counted(self) -> bool:
        """Whether the given rows count once each, but those that are left out."""
        return np.allclose(self.given_weight[self.place >= 0], 1.0, rtol=1e-12, atol=0.0)

    def _at(self, index: NDArray[np.intp] | Mask, **others: Array | NDArray[np.intp]) -> Self:
        """Some of the m rows, with other fields besides."""
        of_rows = {name: getattr(self, name)[index] for name, axes in self._AXES.items() if axes[0] == "row"}
        return replace(self, **(of_rows | others))

    def taken(self, kept: Mask) -> Self:
        """Keep some of the m rows."""
        index = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        return self._at(kept, place=index[self.place])

    def spread(self, values: Array) -> Array:
        """Divide a value of each of the m rows, on the last axis, among the given rows; 0 where they are left out."""
        return np.where(self.place < 0, 0.0, values[..., self.place] * self.share)

    def given(self, chosen: Mask) -> NDArray[np.intp]:
        """Numbers of the given rows whose row here is chosen."""
        return np.flatnonzero((self.place >= 0) & chosen[self.place])

    def unmerged(self) -> Self:
        """Each given row as a row of its own, as blocks take them, which have no weights."""
        if not self.counted:
            raise ValueError("sample_weight is for a dense fit, and the rows are in blocks: use blocks=None")
        used = self.place >= 0
        place = np.where(used, np.cumsum(used) - 1, -1)
        return self._at(self.place[used], weight=np.ones(used.sum()), place=place, share=used.astype(np.float64))

    def like(self, new: TrainingData) -> TrainingData:
        """New rows as rows of this kind."""
        if not new.exact:
            raise ValueError("y must be exact targets, as those of fit, got intervals: fit all rows again")
        return new

    def joined(self, new: TrainingData, *, merge: bool) -> tuple[TrainingData, NDArray[np.intp]]:
        """These rows and new ones, and the place of each of these; equal rows become one row where they ``merge``."""
        m, found = len(self.y), self._stacked(new, merge)
        given = np.concatenate([self.place, np.where(new.place < 0, -1, m + new.place)])
        place = np.append(found.place, -1)[given]
        weight = np.concatenate([self.given_weight, new.given_weight])
        return replace(found, place=place, share=weight / found.weight[place]), found.place[:m]

    def _stacked(self, new: TrainingData, merge: bool) -> TrainingData:
        """These rows and then new ones, and the place of each."""
        X, y, weight = (np.concatenate([getattr(rows, name) for rows in (self, new)]) for name in ("X", "y", "weight"))
        return _merged(X, y, weight) if merge else as_given(X, y)

    def repeated(self) -> Self:
        """The rows, each as often as its weight says, which must be whole numbers."""
        if (self.weight % 1 != 0).any():
            odd = self.weight[self.weight % 1 != 0][0]
            raise ValueError(f"sample_weight must be whole numbers where hyperparameters are sampled, got {odd}")
        at = np.repeat(np.arange(len(self.y)), self.weight.astype(np.intp))
        first = np.append(np.searchsorted(at, np.arange(len(self.y))), -1)
        return self._at(at, weight=np.ones(at.size), place=first[self.place], share=self.given_weight)

    def in_units(self, units: Units) -> Self:
        """The rows in units of a model, whose targets are logs already."""
        return replace(self, X=units.inputs(self.X), y=units.targets(self.y))

    def dataset(self) -> xr.Dataset:
        """The arrays as a group of a result."""
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
    """Rows whose targets are known to lie between ``ends`` (m, 2), of which y holds a number each; none are merged."""

    ends: Array

    exact: ClassVar[bool] = False
    _AXES: ClassVar[dict[str, tuple[str, ...]]] = TrainingData._AXES | {"ends": ("row", "end")}

    @classmethod
    def of(cls, rows: TrainingData, ends: Array) -> Self:
        """Rows with the ends of their targets."""
        return cls(rows.X, rows.y, rows.weight, rows.place, rows.share, ends)

    @property
    def n_exact(self) -> float:
        """Number of rows with equal ends."""
        return float(np.sum(self.ends[:, 0] == self.ends[:, 1]))

    @property
    def of_targets(self) -> dict[str, Array]:
        """The ends."""
        return {"lower": self.ends[:, 0], "upper": self.ends[:, 1]}

    def like(self, new: TrainingData) -> TrainingData:
        """Exact targets have equal ends."""
        if isinstance(new, IntervalData):
            return new
        check_unweighted(new.counted)
        rows = new.unmerged()
        return IntervalData.of(rows, np.stack([rows.y, rows.y], axis=1))

    def _stacked(self, new: TrainingData, merge: bool) -> TrainingData:
        assert isinstance(new, IntervalData)  # by `like`
        return IntervalData.of(super()._stacked(new, False), np.concatenate([self.ends, new.ends]))

    def in_units(self, units: Units) -> Self:
        """The rows and their ends."""
        return replace(super().in_units(units), ends=units.targets(self.ends))


def check_unweighted(unweighted: bool) -> None:
    """Check that intervals come without weights."""
    if not unweighted:
        raise ValueError("sample_weight is for exact targets, and y has intervals")


@dataclass(frozen=True, slots=True)
class Targets:
    """Exact targets ``y`` of a regression, as they are given."""

    y: ArrayLike

    def rows(self, X: Array, y: Array, weight: Array, *, logs: bool) -> TrainingData:
        """Training data of inputs and of the checked targets, or their logs."""
        return merged(X, log_of("y", y) if logs else y, weight)

    def score(self, predicted: Array, weight: Array) -> float:
        """Coefficient of determination of predictions."""
        return float(r2_score(self.y, predicted, sample_weight=weight))


@dataclass(frozen=True, slots=True)
class IntervalTargets(Targets):
    """Targets that lie between ``ends`` (n, 2); y has a number of each."""

    ends: Array

    @classmethod
    def of(cls, ends: Array) -> Self:
        """Targets of their ends."""
        return cls(representative(ends[:, 0], ends[:, 1]), ends)

    def rows(self, X: Array, y: Array, weight: Array, *, logs: bool) -> TrainingData:
        """Intervals are not merged, and have no weights; a lower end below 0 has no log."""
        check_unweighted(bool((weight == 1).all()))
        if not logs:
            return IntervalData.of(as_given(X, y), self.ends)
        log_of("y", y)  # which checks that they are positive
        with np.errstate(divide="ignore"):
            found = self.of(np.log(np.maximum(self.ends, 0.0)))
        return found.rows(X, np.asarray(found.y), weight, logs=False)

    def score(self, predicted: Array, weight: Array) -> float:
        """Concordance of predictions."""
        check_unweighted(bool((weight == 1).all()))
        return concordance(self.ends, predicted)


@dataclass(frozen=True, slots=True)
class Units:
    """Location and unit of the inputs (d,) and of the targets, or of their logs, in which a model has its rows."""

    mean: Array
    scale: Array
    location: float = 0.0
    unit: float = 1.0
    logarithm: bool = False

    @classmethod
    def of(cls, rows: TrainingData, tied: Tied, *, targets: bool = False, logarithm: bool = False) -> Self:
        """Means and standard deviations of the inputs, and of ``targets`` a location and scale."""
        of_targets = location_and_scale(rows.y, rows.weight) if targets else (0.0, 1.0)
        return cls(*mean_and_width(rows.X, rows.weight, tied), *of_targets, logarithm)

    def inputs(self, X: Array) -> Array:
        """Inputs in these units."""
        return np.asarray((X - self.mean) / self.scale)

    def targets(self, y: Array) -> Array:
        """Targets, or their logs, in these units."""
        return np.asarray((y - self.location) / self.unit)

    @property
    def of_targets(self) -> dict[str, Any]:
        """Units of the targets of a `PredictiveDistribution`."""
        return {"location": self.location, "unit": self.unit, "logarithm": self.logarithm}


def regression_data(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, log_targets: bool
) -> tuple[TrainingData, Columns]:
    """Check inputs, targets or intervals and weights; targets are their logs with ``log_targets``."""
    targets = targets_of(y, allowed=estimator.intervals)
    inputs, given, columns = training_arrays(estimator, X, targets.y, y_numeric=True, ensure_min_samples=2)
    weight = checked_weights(sample_weight, len(inputs))
    rows = targets.rows(inputs, np.asarray(given, np.float64), weight, logs=log_targets)
    check_varies("y", rows.y)
    repeated = np.count_nonzero(rows.place >= 0) - len(rows.y)
    if rows.counted and repeated >= _REPEATED * given.size:
        warnings.warn(
            f"{repeated} of {given.size} rows repeat others, targets included, and count as measurements of their "
            "own: drop_duplicates() leaves them out, if a table was joined twice",
            UserWarning,
            stacklevel=3,
        )
    return rows, columns


def training_arrays(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, *, y_numeric: bool = False, ensure_min_samples: int = 1
) -> tuple[Array, Labels, Columns]:
    """Checked inputs and targets as arrays, and the columns of the inputs; the estimator is left as it is."""
    blank = type(estimator)(**estimator.get_params(deep=False))
    inputs, targets = _validated(blank, X, y, reset=True, numeric=y_numeric, least=ensure_min_samples)
    assert targets is not None
    return inputs, targets, Columns(blank.n_features_in_, getattr(blank, "feature_names_in_", None), blank.encoding_)


def new_inputs(estimator: BaseEstimator, X: ArrayLike) -> Array:
    """Inputs (n_new, d) for a fitted estimator."""
    check_is_fitted(estimator)
    return _validated(estimator, X, "no_validation", reset=False)[0]


def _validated(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, *, reset: bool, numeric: bool = False, least: int = 1
) -> tuple[Array, Labels | None]:
    """Data as arrays of numbers, by scikit-learn's checks; the columns of a table are encoded (`tables.columns`)."""
    table, targets = table_of(X), np.asarray(y).dtype if numeric else np.dtype(object)
    options = {"y_numeric": numeric, "ensure_min_samples": least} if reset else {}
    if reset:
        estimator.encoding_ = None if table is None else Encoding.of_table(table)
    encoding = estimator.encoding_
    if table is None and encoding is not None and not encoding.plain:
        raise ValueError(f"X must be a table as in fit, with the columns {', '.join(encoding.kinds)}, got an array")
    if y is not None and not numeric and not isinstance(y, str):
        y = checked_labels(y)
    given = np.dtype(object) if table is not None and encoding is not None else np.asarray(X).dtype
    for name, dtype in (("y", targets), ("X", given)):
        if dtype.kind in "mM":
            raise ValueError(f"{name} must be numbers, got {dtype}: subtract a date, and divide by a unit of time")
    index = [] if table is None or not reset else [name for name in table.index.names if name is not None]
    if index:
        warnings.warn(
            f"the index of X, {', '.join(map(repr, index))}, is no input: X.reset_index() makes it a column",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    try:
        if numeric and targets.kind in "USbO":
            given_y = np.array(y, dtype=object)
            given_y[pd.isna(given_y)] = np.nan
            y = given_y.astype(np.float64)
        if table is None or encoding is None:
            found = validate_data(estimator, X, y, dtype=np.float64, reset=reset, **options)
        else:
            validate_data(estimator, table, skip_check_array=True, reset=reset)
            inputs = encoded(encoding, table)
            found = check_X_y(inputs, y, dtype=np.float64, **options) if reset else check_array(inputs)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        known, columns = (
            list(each) for each in (getattr(estimator, "feature_names_in_", ()), getattr(table, "columns", ()))
        )
        if not reset and sorted(columns) == sorted(known) and columns != known:
            raise ValueError(
                f"{error}X.rename(columns=str)[list(estimator.feature_names_in_)] has this order"
            ) from None
        kind = TypeError if isinstance(error, TypeError) else ValueError
        _refuse(X if encoding is None else None, None if isinstance(y, str) else y, kind, str(error))
        raise
    inputs, labels = found if reset else (found, None)
    parts = [("X", inputs)] if table is None or encoding is None else _columns_of(encoding, inputs)
    for name, values in [*parts, ("y", labels)] if reset else parts:
        if values.dtype.kind == "f":
            check_size(name, values)
            if reset:
                check_spread(name, values)
    if numeric and labels is not None:
        check_varies("y", labels)
    return np.asarray(inputs), labels


def encoded(encoding: Encoding, table: pd.DataFrame) -> Array:
    """The encoded columns of a table, with a warning for what the training rows did not contain."""
    check_columns("X", table.columns, encoding.kinds)
    inputs, notes = encoding.transform(table)
    for note in notes:
        warnings.warn(note, UserWarning, skip_file_prefixes=(PACKAGE,))
    return inputs


def _columns_of(encoding: Encoding, inputs: Array) -> list[tuple[str, Array]]:
    """Encoded columns with their names."""
    return [(f"column {name!r}", column) for name, column in zip(encoding.names, inputs.T, strict=True)]


def _refuse(X: ArrayLike | None, y: ArrayLike | None, kind: type[Exception], reason: str) -> None:
    """Say which cell of an array is the reason of scikit-learn's error, if one is, or that X or y are no numbers."""
    cells = np.asarray(X, dtype=object)
    for (row, column), cell in np.ndenumerate(cells) if cells.ndim == 2 else ():
        try:
            finite = bool(np.isfinite(float(cell)))
        except (OverflowError, TypeError, ValueError):
            finite = False
        if not finite:
            raise kind(
                f"column {column} of X must have finite numbers, got {cell!r} in row {row}: a DataFrame in fit may "
                f"have words, dates and gaps ({reason.splitlines()[0]})"
            ) from None
    for values in (X, y):
        try:
            np.asarray(values, dtype=object).astype(np.float64)
        except (TypeError, ValueError):
            raise kind(f"X and y must be arrays of numbers: {reason}") from None


def targets_of(y: ArrayLike, *, allowed: bool) -> Targets:
    """Targets of a regression: numbers, or intervals.

    An (n, 2) array, if ``allowed``, has lower and upper ends: equal ends are an exact target, and one may be infinite.
    A structured array has two fields: whether the event was observed, and its time or the time of censoring (as
    scikit-survival).
    """
    given = np.asarray(y)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or given.ndim != 1:
            raise ValueError(f"y must have the fields event and time, got {', '.join(given.dtype.names)}")
        event, time = (given[name] for name in given.dtype.names)
        if event.dtype.kind not in "biu" or not np.isin(event, (0, 1)).all():
            raise ValueError(f"the first field of y must say whether the event was observed, got {event.dtype}")
        lower = numbers("y", time, ("n",))
        return IntervalTargets.of(checked_ends(lower, np.where(event.astype(bool), lower, np.inf)))
    if given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "fiu":
        if not allowed:
            raise ValueError(
                "y has two columns: intervals=True takes them as lower and upper ends, and two targets need two models"
            )
        return IntervalTargets.of(checked_ends(*numbers("y", given, ("n", 2), infinite=True).T))
    return Targets(y)


def log_of(name: str, values: Array) -> Array:
    """Log of positive numbers on the scale of the targets."""
    if not (values > 0).all():
        raise ValueError(f"{name} must be positive with log_targets=True, got {values[~(values > 0)][0]:g}")
    return np.log(values)


def checked_labels(y: ArrayLike) -> Labels:
    """Labels as an array, whatever holds them; ValueError if one is missing, or they are of several types."""
    labels = np.atleast_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object))
    for row in np.argwhere(pd.isna(labels))[:1]:
        raise ValueError(
            f"y must have a label in each row, got {labels[tuple(row)]} in row {row[0]}: leave rows without a label "
            "out, or give them a label of their own"
        )
    if labels.dtype.kind != "O" or labels.ndim > 1:
        return labels
    if pd.api.types.infer_dtype(labels) in ("mixed", "mixed-integer"):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(f"y must have labels of one type, words or numbers, got {kinds}")
    return np.asarray(pd.Series(labels).infer_objects())


def classes_of(labels: Labels) -> Labels:
    """The classes of labels, sorted."""
    check_classification_targets(labels)
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(f"y must hold at least two classes, got one class, {classes[0]!r}")
    return classes


def codes_of(labels: Labels, classes: Labels) -> Array:
    """The number of the class of each label, or of the next one."""
    return np.searchsorted(classes, labels).astype(np.float64)


class HoldsFit:
    """An estimator that holds its fit, a value, and the options of the fit; ``_of_predictions`` may change after it."""

    predict: Callable[..., Any]
    get_params: Callable[..., dict[str, Any]]
    _attributes: Callable[..., Learned]
    _of_predictions: ClassVar[tuple[str, ...]] = ()
    _fit: Any
    _given: dict[str, Any]
    _columns: Columns

    def _checked(self) -> Any:
        """The fit; NotFittedError if there is none."""
        check_is_fitted(self)
        return self._fit

    def _keep(self, fit: Any, columns: Columns, given: Mapping[str, Any] | None = None) -> Self:
        """Replace all that an earlier fit has learned, in one statement: what raises before it changes nothing."""
        options = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        learned = columns.attributes | self._attributes(fit, columns)
        private = {"_fit": fit, "_given": given or self.get_params(deep=False), "_columns": columns}
        self.__dict__ = options | learned | private
        return self

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the predictions; of labels the share that are predicted."""
        predicted = self.predict(X)
        weight = checked_weights(sample_weight, len(predicted))
        if not hasattr(self, "classes_"):
            return float(r2_score(y, predicted, sample_weight=weight))
        labels = checked_labels(y)
        unseen = np.setdiff1d(labels, self.classes_)
        if unseen.size:
            raise ValueError(f"y must hold the classes of fit, {', '.join(map(str, self.classes_))}, got {unseen[0]}")
        return float(accuracy_score(labels, predicted, sample_weight=weight))


def merged(X: Array, y: Array, sample_weight: ArrayLike | None) -> TrainingData:
    """Merge equal rows, leave rows of weight 0 out, and warn of weights that make the rows worth few."""
    weight = checked_weights(sample_weight, len(y))
    used, worth = np.flatnonzero(weight > 0), weight.sum()
    if worth < _WORTH * used.size:
        warnings.warn(
            f"sample_weight has the sum {worth:.3g}, so that {used.size} rows are worth {worth:.3g}, and the prior "
            "decides most: multiply it so that the weights average to 1, if each row is a measurement",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    return _merged(X, y, weight)


def _merged(X: Array, y: Array, weight: Array) -> TrainingData:
    n, used = len(y), np.flatnonzero(weight > 0)
    ratio = weight.max() / weight[used].min()
    if ratio > _RATIO:
        raise ValueError(
            f"sample_weight must be at most {_RATIO:g} times the smallest that is not 0, got {ratio:g} times"
        )
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


def as_given(X: Array, y: Array) -> TrainingData:
    """Rows as they are, without weights."""
    return TrainingData(X, y, np.ones(len(y)), np.arange(len(y)), np.ones(len(y)))


def concordance(ends: ArrayLike, predicted: ArrayLike) -> float:
    """Share of the pairs of known order that are predicted in this order (Harrell et al. 1982); ties count one half.

    The order is known if the upper end of one target is at most the lower end of the other.
    """
    lower, upper = np.asarray(ends, dtype=np.float64).T
    f = np.asarray(predicted, dtype=np.float64)
    known, right = 0, 0.0
    for i in np.flatnonzero(np.isfinite(upper)):
        later = (lower >= upper[i]) & ~((lower == lower[i]) & (upper == upper[i]))
        known += int(later.sum())
        right += float(np.sum(f[later] > f[i]) + 0.5 * np.sum(f[later] == f[i]))
    if known == 0:
        raise ValueError(f"y must have targets whose order is known, got none among {lower.size}")
    return right / known


def mean_and_width(X: Array, weight: Array, tied: Tied = None) -> tuple[Array, Array]:
    """Weighted mean and standard deviation of each column, 1 for a constant one; tied columns share a deviation."""
    mean = np.average(X, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    tiny = 1e-12 * np.maximum(np.abs(X).max(axis=0), 1e-300)
    return mean, width_of_tied(np.where(spread > tiny, spread, 1.0), tied)


def width_of_tied(width: Array, tied: Tied) -> Array:
    """Widths of the columns; of tied ones the root of the sum of squares, so that words are as far apart as numbers."""
    return width if tied is None else np.asarray(of_inputs(np.sqrt(np.bincount(tied, width**2)), tied))

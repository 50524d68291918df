"""Checks of the data of estimators, by scikit-learn: inputs and their directions, targets, intervals and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, column_or_1d, validate_data

from bsvr_pp.core.arrays import (
    Array,
    check_no_times,
    check_order,
    check_size,
    check_spread,
    check_unmasked,
    check_varies,
    checked_weights,
    names_of,
    numbers,
    warn,
)
from bsvr_pp.core.losses.noise import checked_ends
from bsvr_pp.estimators.matrices import (
    MatrixOption,
    PairwiseKernel,
    SparseInputs,
    is_matrix,
    training_rows,
    values_of,
)
from bsvr_pp.estimators.training_data import IntervalData, TrainingData, Units, as_given, merge_rows
from bsvr_pp.inference.prediction.distribution import Unscaled
from bsvr_pp.model.matrices import MatrixKernel, ProductKernel
from bsvr_pp.model.priors import Kernel, Tied, of_inputs
from bsvr_pp.model.row_kinds import representative
from bsvr_pp.tables import DataError, check_columns
from bsvr_pp.tables.columns import Encoding, Numbers, place_of, table_of

Labels = NDArray[np.generic]
Learned = dict[str, Any]  # attributes of an estimator
RandomState = int | np.random.RandomState | None  # as scikit-learn takes it
Monotone = Mapping[str | int, int] | Sequence[int] | NDArray[np.integer] | None  # the option of an estimator

_REPEATED = 0.5  # share of repeated rows from which there is a warning


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the data of a fit: number and any names of the inputs, encoding of a table, several targets."""

    count: int
    names: Labels | None = None
    encoding: Encoding | None = None
    # If X has values of a kernel, any objects of fit; or sparse training rows.
    matrix: Sequence[object] | SparseInputs | None = None
    targets: tuple[str, ...] | None = None  # names of several targets

    @property
    def attributes(self) -> Learned:
        """Return the corresponding attributes of an estimator."""
        names = {"feature_names_in_": self.names, "target_names_": None if self.targets is None else list(self.targets)}
        known = {name: value for name, value in names.items() if value is not None}
        return {"n_features_in_": self.count, "encoding_": self.encoding} | known

    @property
    def tied(self) -> Tied:
        """Group number of each input, shared by the words of one column; None without words, () for a matrix."""
        if self.matrix is not None:
            return ()
        return None if self.encoding is None else self.encoding.tied

    def kernel(self, given: MatrixOption | Kernel, scale: float = 1.0) -> Kernel:
        """Return the kernel of a model for an option of an estimator, with the ``scale`` of matrix amplitudes."""
        if isinstance(self.matrix, SparseInputs):
            return ProductKernel(self.matrix.rows.shape[0], str(given))
        return cast(Kernel, given) if self.matrix is None else MatrixKernel(self.count, scale)

    @property
    def words(self) -> str:
        """The name of inputs that are values of a kernel."""
        return "sparse matrix" if isinstance(self.matrix, SparseInputs) else "kernel matrix"

    @property
    def undivided(self) -> str:
        """The reason if blocks are not possible; `check_sparse` has refused too many sparse rows before."""
        return "" if self.matrix is None else "a kernel matrix have no inputs, by which blocks are cut: use blocks=None"

    def name_of(self, kernel: Kernel) -> str:
        """Return the name of the kernel of a model."""
        if isinstance(kernel, str | ProductKernel):
            return getattr(kernel, "name", str(kernel))
        return "function" if self.matrix is None else "precomputed"

    def width(self, units: Units) -> Array | float:
        """Return the unit of the inputs."""
        return self.matrix.scale if isinstance(self.matrix, SparseInputs) else units.scale

    def of_each(self, values: Array) -> Array:
        """Return values (d,) of the inputs from a value of each lengthscale, or from one."""
        d = self.count if self.encoding is None else len(self.encoding.names)
        return np.broadcast_to(of_inputs(values, self.tied) if values.size > 1 else values, (d,))

    def named(self, values: Array) -> Array | pd.Series | pd.DataFrame:
        """Return a value of each input (or one row per class), with their names if the data had names."""
        names = self.names if self.encoding is None else self.encoding.names
        if names is None:
            return values
        index = [str(name) for name in names]
        return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, columns=index)


@dataclass(frozen=True, slots=True)
class Directions:
    """Inputs in which the mean rises or falls: signs by the name or number of a column, or of all in their order."""

    given: Mapping[str | int, int] | list[int]

    @classmethod
    def of(cls, monotone: Monotone) -> Directions:
        """Return the option, checked as far as it can be without data."""
        if isinstance(monotone, pd.Series):  # its index has the columns
            monotone = monotone.to_dict()
        if monotone is None:
            return NO_DIRECTIONS
        made = cls(monotone if isinstance(monotone, Mapping) else np.asarray(monotone, dtype=object).tolist())
        if not isinstance(made.given, Mapping | list):
            raise ValueError(f"monotone must be a dict of columns, or have a sign for each column, got {monotone!r}")
        for value in made._values():
            if not isinstance(value, int | float | np.number) or isinstance(value, bool) or value not in (-1, 0, 1):
                raise ValueError(f"monotone must have the signs 1 (f rises), -1 (f falls) or 0 (either), got {value!r}")
        return made

    def _values(self) -> Collection[int]:
        return self.given.values() if isinstance(self.given, Mapping) else self.given

    def __bool__(self) -> bool:
        return any(self._values())

    def signs(self, columns: Columns) -> Array:
        """Return the sign (d,) of each input of a model, 0 for inputs without a direction."""
        encoding = columns.encoding
        names = list(map(str, range(columns.count)) if encoding is None else encoding.kinds)
        found = dict[int, int]()
        if isinstance(self.given, Mapping):
            for key, sign in self.given.items():
                place = place_of(key, names)
                if place is None:
                    raise ValueError(f"monotone has no column {key!r} of X; its columns are {', '.join(names)}")
                found[place] = sign
            if len(found) < len(self.given):
                raise ValueError(f"monotone must name a column once, got {dict(self.given)} of {names}")
        elif len(self.given) != columns.count:
            raise ValueError(f"monotone must have a sign for each of {columns.count} columns, got {len(self.given)}")
        else:
            found |= enumerate(self.given)
        signs = np.zeros(columns.count if encoding is None else len(encoding.names))
        for place, sign in found.items():
            column = None if encoding is None else encoding.columns[place]
            if sign and not isinstance(column, Numbers | None):
                raise ValueError(f"monotone takes columns of numbers, column {column.name!r} has {column.plural}")
            if sign:
                signs[place if encoding is None else encoding.names.index(names[place])] = sign
        return signs


NO_DIRECTIONS = Directions({})


@dataclass(frozen=True, slots=True)
class Targets:
    """Exact targets ``y`` of a regression, as they are given."""

    y: ArrayLike

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of several targets."""
        return None

    def each(self, X: Array, y: Array, weight: Array) -> dict[str, TrainingData]:
        """Return training data of each target, by the name in errors."""
        return {"y": self.rows(X, y, weight)}

    def rows(self, X: Array, y: Array, weight: Array) -> TrainingData:
        """Return training data of inputs and of the checked targets."""
        return merge_rows(X, y, weight)

    def check_like(self, names: tuple[str, ...] | None) -> None:
        """Check that these are the targets of a fit; several targets have ``names``."""
        if self.names != names:
            known, got = ("one without a name" if each is None else ", ".join(each) for each in (names, self.names))
            raise ValueError(f"y must have the targets of fit, {known}, got {got}")

    def score(self, predicted: Array, weight: Array) -> float:
        """Return the coefficient of determination of predictions."""
        return float(r2_score(self.y, predicted, sample_weight=weight))


@dataclass(frozen=True, slots=True)
class IntervalTargets(Targets):
    """Targets that lie between ``ends`` (n, 2); y has a number of each."""

    ends: Array

    @classmethod
    def of(cls, ends: Array) -> Self:
        """Make the targets from their ends."""
        return cls(representative(ends[:, 0], ends[:, 1]), ends)

    def rows(self, X: Array, y: Array, weight: Array) -> IntervalData:
        """Return the rows: intervals are not merged, and have no weights."""
        self._check_unweighted(weight)
        return IntervalData.of(as_given(X, y), self.ends)

    def score(self, predicted: Array, weight: Array) -> float:
        """Return concordance of predictions."""
        self._check_unweighted(weight)
        return concordance(self.ends, predicted)

    def _check_unweighted(self, weight: Array) -> None:
        if (weight != 1).any():
            raise ValueError("sample_weight is for exact targets, and y has intervals")


@dataclass(frozen=True, slots=True)
class SeveralTargets(Targets):
    """Targets of several models: ``values`` (n, k) has NaN in gaps, and y has row numbers."""

    values: Array
    given: tuple[str, ...] | None  # names, if the targets came with some

    @classmethod
    def of(cls, y: ArrayLike) -> Self:
        """Check that all columns of a table or an array are numbers or gaps, and at least one of each a number."""
        table = table_of(y, "columns of y")
        data = pd.DataFrame(np.asarray(y)) if table is None else table
        given = names_of(table) or None
        found = cls(np.arange(len(data), dtype=np.float64), np.full(data.shape, np.nan), given)
        for j, name in enumerate(found.names):
            column = data.iloc[:, j]
            seen = column.notna().to_numpy()
            if column.dtype.kind in "mM":
                raise ValueError(f"column {name!r} of y must be numbers, got {column.dtype}")
            found.values[seen, j] = numbers(f"column {name!r} of y", column[seen].to_numpy())
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the targets, y0, y1, ... of an array."""
        return self.given or tuple(f"y{j}" for j in range(self.values.shape[1]))

    def each(self, X: Array, y: Array, weight: Array) -> dict[str, TrainingData]:
        """Return training data of each target; rows without the target have weight 0."""
        found = {}
        for j, name in enumerate(f"column {name!r} of y" for name in self.names):
            column, seen = self.values[:, j], ~np.isnan(self.values[:, j])
            if not (seen & (weight > 0)).any():
                raise ValueError(f"{name} must have numbers, got only gaps in rows of a weight above 0")
            column = np.where(seen, column, column[seen][0])
            check_spread(name, column)
            found[name] = merge_rows(X, column, weight * seen)
        return found

    def warn_of_ends(self) -> None:
        """Warn of two targets that may be the ends of one."""
        both = self.values[~np.isnan(self.values).any(axis=1)]
        if both.shape[1] == 2 and len(both) and not (both[:, 1] < both[:, 0]).any():
            warn(
                "y has two columns, the second nowhere below the first, and each is a target of its own: "
                "intervals=True takes them as lower and upper ends"
            )

    def check_like(self, names: tuple[str, ...] | None) -> None:
        """Check the names of targets; an array has none."""
        if self.given is not None or names is None or len(names) != len(self.names):
            super(SeveralTargets, self).check_like(names)  # a dataclass with slots is another class

    def score(self, predicted: Array, weight: Array) -> float:
        """Return the mean coefficient of determination of targets that at least two rows have, by these rows."""
        seen = ~np.isnan(self.values) & (weight > 0)[:, None]
        columns = [each for each in zip(self.values.T, predicted.T, seen.T, strict=True) if each[2].sum() > 1]
        if not columns:
            raise ValueError("y must have a target that two rows of a weight > 0 have, got none")
        return float(np.mean([r2_score(y[at], f[at], sample_weight=weight[at]) for y, f, at in columns]))


def regression_data(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, scale: Unscaled
) -> tuple[list[TrainingData], Columns]:
    """Check inputs, targets or intervals and weights; return the rows with targets on a scale."""
    check_order(X, y=y)
    targets = targets_of(y, allowed=estimator.intervals)
    inputs, given, columns = training_arrays(estimator, X, targets.y, sample_weight, y_numeric=True, least=2)
    weight = checked_weights(sample_weight, inputs.shape[0])
    inputs, columns = in_products(inputs, columns, weight)
    if isinstance(targets, SeveralTargets) and not estimator.shared:
        targets.warn_of_ends()
    each = []
    for name, rows in targets.each(inputs, np.asarray(given, np.float64), weight).items():
        each.append(rows.on_scale(scale, name))
        each[-1].check(name)
        for note in Encoding.codes_of(name, rows.y, "leave these rows out"):
            warn(note)
    warn_of_merged(max(each, key=lambda rows: rows.weight.sum() - len(rows.y)))
    return each, replace(columns, targets=targets.names)


def warn_of_merged(rows: TrainingData) -> None:
    """Warn if many of the rows were merged, or weights mean as many."""
    n = rows.weight.sum()
    warn_of_repeated(n - len(rows.y), n, weighted=not rows.counted)


def warn_of_repeated(repeated: float, n: float, *, weighted: bool = False) -> None:
    """Warn of many repeated rows of n, or of weights that mean as many."""
    if repeated < _REPEATED * n:
        return
    if weighted:
        warn(
            f"sample_weight has the sum {n:.3g} for {n - repeated:.0f} different rows, which then count as repeated "
            "measurements with equal targets, without noise: divide the weights by their mean, if they are no counts"
        )
    else:
        warn(
            f"{repeated:.0f} of {n:.0f} rows repeat others, targets included, and count as measurements of their own: "
            "drop_duplicates() leaves them out, if a table was joined twice"
        )


def training_arrays(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    y_numeric: bool = False,
    least: int = 1,
) -> tuple[Array, Labels, Columns]:
    """Return checked inputs and targets as arrays, and the columns of the inputs, without changing the estimator.

    There must be at ``least`` so many rows. Rows of weight 0 do not count in the encoding of a table.
    """
    for name, values in (("X", X), ("y", y)):
        check_unmasked(name, values)
    check_order(X, y=y, sample_weight=sample_weight)
    blank = type(estimator)(**estimator.get_params(deep=False))
    given, matrix = X, is_matrix(getattr(blank, "kernel", None))
    if issparse(X):
        check_sparse(blank, X)
    if matrix:
        X = values_of(blank.kernel, given, cast(Sequence[object], given))
    inputs, targets = _validate(blank, X, y, sample_weight, reset=True, numeric=y_numeric, least=least)
    assert targets is not None
    names, objects = getattr(blank, "feature_names_in_", None), None
    if matrix:
        objects = list(cast(Sequence[object], given)) if isinstance(blank.kernel, PairwiseKernel) else []
    columns = Columns(blank.n_features_in_, names, blank.encoding_, objects)
    if matrix:
        divides, n = blank._local().divides, len(inputs)
        if divides(n) and divides(len(np.unique(inputs.reshape(n, -1), axis=0))):  # whose eigenvalues take hours
            raise ValueError(f"{n} rows of {columns.undivided}")
        inputs = training_rows(inputs)
    return inputs, targets, columns


def check_sparse(estimator: BaseEstimator, X: Any) -> None:
    """Check before the fit that the kernel of an estimator takes sparse inputs, and that a dense fit takes all rows."""
    if takes_sparse(estimator):
        if estimator._local().divides(X.shape[0]):
            raise ValueError(f"{X.shape[0]} rows of a sparse matrix are fitted densely: {SparseInputs.remedy}")
    elif getattr(estimator, "_sparse", False):
        known = ", ".join(SparseInputs.kernels)
        raise ValueError(f"sparse X needs one of the kernels {known}, got {estimator.kernel!r}: use X.toarray()")
    else:
        raise ValueError(f"X must be dense for {type(estimator).__name__}, got a sparse matrix: use X.toarray()")


def takes_sparse(estimator: BaseEstimator) -> bool:
    """Return whether an estimator takes sparse inputs."""
    return bool(estimator.__sklearn_tags__().input_tags.sparse)


def in_products(X: Array | csr_array, columns: Columns, weight: Array) -> tuple[Array, Columns]:
    """Return sparse training rows by their inner products; others as they are."""
    if not issparse(X):
        return X, columns
    found, rows = SparseInputs.of(X, weight)
    return rows, replace(columns, matrix=found)


def new_inputs(estimator: BaseEstimator, X: ArrayLike) -> Array:
    """Return inputs (n_new, d) for a fitted estimator."""
    check_is_fitted(estimator)
    check_unmasked("X", X)
    if issparse(X) and not isinstance(estimator._columns.matrix, SparseInputs):
        raise ValueError("X must be dense, as in fit, got a sparse matrix: use X.toarray()")
    return _validate(estimator, X, "no_validation", reset=False)[0]


def _validate(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    reset: bool,
    numeric: bool = False,
    least: int = 1,
) -> tuple[Array, Labels | None]:
    """Return data as numbers, by scikit-learn's checks; columns of a table are encoded (`tables.columns`)."""
    matrix = is_matrix(getattr(estimator, "kernel", None) if reset else estimator._given.get("kernel"))
    table, targets = None if matrix else table_of(X), np.asarray(y).dtype if numeric else np.dtype(object)
    checks = {"y_numeric": numeric, "ensure_min_samples": least} if reset else {}
    options: dict[str, Any] = {"allow_nd": matrix, **checks}  # of several kernels
    sparse = takes_sparse(estimator) if reset else isinstance(estimator._columns.matrix, SparseInputs)
    used = slice(None) if table is None else checked_weights(weight, len(table)) > 0
    if reset:
        estimator.encoding_ = None if table is None else Encoding.of_table(table[used])
    encoding = estimator.encoding_
    if table is None and encoding is not None and not encoding.plain:
        raise ValueError(f"X must be a table as in fit, with the columns {', '.join(encoding.kinds)}, got an array")
    if y is not None and not numeric and not isinstance(y, str):
        y = checked_labels(y, warned=True)
    given = np.dtype(object) if table is not None and encoding is not None else np.asarray(X).dtype
    for name, dtype in (("y", targets), ("X", given)):
        check_no_times(name, dtype)
    labels = table.index.names if table is not None and reset and hasattr(X, "columns") else ()  # not of xarray
    if index := [name for name in labels if name is not None]:
        warn(f"the index of X, {', '.join(map(repr, index))}, is no input: X.reset_index() makes it a column")
    try:
        if numeric and targets.kind in "USbO":
            given_y = np.array(y, dtype=object)
            given_y[pd.isna(given_y)] = np.nan
            y = given_y.astype(np.float64)
        if table is None or encoding is None:
            options["accept_sparse"] = "csr" if sparse else False
            found = validate_data(estimator, X, y, dtype=np.float64, reset=reset, **options)
        else:
            validate_data(estimator, table, skip_check_array=True, reset=reset)
            inputs = encoded(encoding, table[used])
            if len(inputs) < len(table):
                inputs, _ = encoding.transform(table)
            found = check_X_y(inputs, y, dtype=np.float64, **options) if reset else check_array(inputs)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        known, columns = list(getattr(estimator, "feature_names_in_", ())), list(getattr(table, "columns", ()))
        if not reset and sorted(columns) == sorted(known) and columns != known:
            raise ValueError(
                f"{error}X.rename(columns=str)[list(estimator.feature_names_in_)] has this order"
            ) from None
        kind = TypeError if isinstance(error, TypeError) else ValueError
        _refuse(None if encoding or issparse(X) else X, None if isinstance(y, str) else y, kind, str(error))
        raise
    inputs, labels = found if reset else (found, None)
    if sparse and (issparse(inputs) or not reset):
        inputs = csr_array(inputs)  # new ones may be dense
        check_size("X", inputs.data)
    elif table is not None and encoding is not None:
        for name, column in zip(encoding.names, inputs.T, strict=True):
            _check_digits(f"column {name!r}", column, reset)
    else:
        _check_digits("X", np.asarray(X) if given.kind in "iu" else inputs, reset)  # conversion may lose digits
    if labels is not None and (numeric or labels.dtype.kind == "f"):
        _check_digits("y", labels, reset)
    for note in encoding.codes(inputs[used]) if reset and table is not None and encoding else ():
        warn(note)
    if numeric and labels is not None:
        check_varies("y", labels)
    return inputs if issparse(inputs) else np.asarray(inputs), labels


def _check_digits(name: str, values: Array, training: bool) -> None:
    (check_spread if training else check_size)(name, values)


def encoded(encoding: Encoding, table: pd.DataFrame) -> Array:
    """Return the encoded columns of a table, with a warning for what the training rows did not contain."""
    check_columns("X", table.columns, encoding.kinds)
    inputs, notes = encoding.transform(table)
    for note in notes:
        warn(note)
    return inputs


def _refuse(X: ArrayLike | None, y: ArrayLike | None, kind: type[Exception], reason: str) -> None:
    """Raise an error with the cell that caused scikit-learn's error, if any, or that X or y are not numbers."""
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
    """Return targets: numbers, columns of numbers, intervals (n, 2) if ``allowed``, or a structured array."""
    check_unmasked("y", y)
    given = np.asarray(y)
    check_no_times("y", given.dtype)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or given.ndim != 1:
            raise ValueError(f"y must have the fields event and time, got {', '.join(given.dtype.names)}")
        event, time = (given[name] for name in given.dtype.names)
        if event.dtype.kind not in "biu" or not np.isin(event, (0, 1)).all():
            raise ValueError(f"the first field of y must say whether the event was observed, got {event.dtype}")
        lower = numbers("y", time, ("n",))
        return IntervalTargets.of(checked_ends(lower, np.where(event.astype(bool), lower, np.inf)))
    if not allowed and given.ndim == 2 and given.shape[1] >= 2:
        return SeveralTargets.of(y)
    if given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "fiuO":
        return IntervalTargets.of(checked_ends(*numbers("y", given, ("n", 2), infinite=True).T))
    return Targets(y)


def checked_labels(y: ArrayLike, *, warned: bool = False) -> Labels:
    """Return labels (n,), with a warning of scikit-learn if it is ``warned`` of (n, 1).

    ValueError if one is missing, or they have several types.
    """
    labels = np.atleast_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object))
    for row in np.argwhere(pd.isna(labels))[:1]:
        raise ValueError(
            f"y must have a label in each row, got {labels[tuple(row)]} in row {row[0]}: leave rows without a label "
            "out, or give them a label of their own"
        )
    labels = column_or_1d(labels, warn=warned)
    if labels.dtype.kind == "u" and labels.size and labels.max() > np.iinfo(np.int64).max:
        raise ValueError(
            f"y must have labels that are words or numbers below 2**63, got {labels.max()}: use their text"
        )
    if labels.dtype.kind in "mM":
        raise ValueError(f"y must have labels that are words or numbers, got {labels.dtype}: use their text")
    if labels.dtype.kind != "O":
        return labels
    if pd.api.types.infer_dtype(labels) in ("mixed", "mixed-integer"):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(f"y must have labels of one type, words or numbers, got {kinds}")
    return np.asarray(pd.Series(labels).infer_objects())


def classes_of(labels: Labels) -> Labels:
    """Return the classes of labels, sorted."""
    check_classification_targets(labels)
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(f"y must hold at least two classes, got one class, {classes[0]}")
    return classes


def concordance(ends: ArrayLike, predicted: ArrayLike) -> float:
    """Return the share of pairs of known order predicted in this order (Harrell et al. 1982); ties count one half.

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

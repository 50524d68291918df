"""Data to fit a model to, and new data, from CSV and Parquet files with numbers, words, dates and gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.core.arrays import Array, Rows, check_share, check_spread, generator
from bsvr_pp.tables import DataError, check_columns, check_target, of_file
from bsvr_pp.tables.columns import ANOTHER, FEW, Column, Encoding, Numbers, Words, class_labels, finite_numbers, kind_of
from bsvr_pp.tables.files import TextTable, open_table

_FEWEST_ROWS = 10
_COPIED = 0.2  # share of test rows that repeat others from which there is a note


@dataclass(frozen=True, slots=True)
class Dataset:
    """Inputs X (n, d) and targets y (n,) with their names; ``notes`` tell the user what was recognised or left out."""

    X: Array
    y: Array
    inputs: tuple[str, ...]
    target: str
    notes: tuple[str, ...] = ()
    tied: tuple[int, ...] | None = None  # numbers of groups of inputs, of which a column of words is one

    def split(
        self, test_fraction: float, random_seed: int | np.random.Generator | None = None
    ) -> tuple[Dataset, Dataset]:
        """Split the rows at random into a training and a test set, each of at least one row."""
        rows = _split_rows(len(self.y), test_fraction, random_seed)
        train, test = (replace(self, X=self.X[part], y=self.y[part]) for part in rows)
        return train, test


@dataclass(frozen=True, slots=True)
class Table:
    """Inputs (a DataFrame) and targets (n,) of a file, before their encoding; ``notes`` state what was recognised.

    ``known`` has the targets: numbers (n,), the ends of intervals (n, 2), or labels of classes (n,).
    """

    path: str
    inputs: pd.DataFrame
    y: Array
    target: str
    notes: tuple[str, ...]
    known: Array | NDArray[np.int64] | NDArray[np.str_]

    def encode(self) -> tuple[Dataset, Encoding]:
        """Encode the inputs, and check that a model can be fitted to the data."""
        check_rows(self.path, len(self.y))
        with of_file(self.path):
            encoding = Encoding.of_table(self.inputs)
            X, _ = encoding.transform(self.inputs)
        said = [*encoding.notes, *encoding.codes(X), *encoding.codes_of(self.target, self.y, "leave these rows out")]
        for name, values in zip(encoding.names, X.T, strict=True):
            whole = encoding.kinds.get(name) is Numbers and (values == np.round(values)).all()
            if whole and np.unique(values).size == values.size:
                hint = "has another whole number in each row: leave it out if it identifies the rows"
                said.append(f"column {name!r} {hint}")
        notes = self.notes + tuple(f"{self.path}: {note}" for note in said)
        return checked(Dataset(X, self.y, encoding.names, self.target, notes), self.path), encoding

    def split(self, test_fraction: float, random_seed: int) -> tuple[Dataset, Dataset]:
        """Split the rows at random, and encode both sets by the training set, with few indicators of words."""
        whole, _ = self.encode()
        train, test = _split_rows(len(self.y), test_fraction, random_seed)
        with of_file(f"the training rows of {self.path}"):
            encoding = Encoding.of_table(self.inputs.iloc[train], FEW)
            (X, _), (X_test, unknown) = (encoding.transform(self.inputs.iloc[rows]) for rows in (train, test))
        rows = np.column_stack([np.vstack([X, X_test]), self.y[np.append(train, test)]])
        copies = int(pd.DataFrame(rows).duplicated()[len(train) :].sum())
        if copies >= _COPIED * len(test):
            unknown += (
                f"{copies} of {len(test)} repeat others, target included, and test nothing: drop_duplicates() leaves "
                "them out, if a table was joined twice",
            )
        notes = whole.notes + tuple(f"test rows: {note}" for note in unknown)
        known = replace(whole, X=X, y=self.y[train], inputs=encoding.names, notes=notes, tied=encoding.tied)
        return known, replace(known, X=X_test, y=self.y[test])


def read_data(path: str | Path, target: str | None = None) -> Table:
    """Read a file with a column to predict, by default the last one.

    A file that ends in .parquet or .pq is a Parquet file, a folder has such files, and any other file is CSV.
    """
    frame, (chosen,), notes = _read(path, [target], Numbers)
    y = _numbers(str(path), chosen, _complete(str(path), chosen, frame[chosen]))
    return Table(str(path), frame.drop(columns=chosen), y, chosen, notes, y)


def read_intervals(path: str | Path, lower: str, upper: str) -> Table:
    """Read a file with two columns of ends of the target: an empty cell is an infinite end, equal ends are exact."""
    if lower == upper:
        raise DataError(f"{path}: lower and upper ends must be two columns, got {lower!r} for both")
    frame, names, notes = _read(path, [lower, upper], Numbers)
    low, high = (_numbers(str(path), name, frame[name]) for name in names)
    ends = np.stack([np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)], axis=1)
    for bad, what in ((np.isinf(ends).all(axis=1), "both empty"), (ends[:, 0] > ends[:, 1], "not in order")):
        if bad.any():
            raise DataError(f"{path}: columns {lower!r} and {upper!r} are {what} in row {frame.index[bad][0]}")
    y = np.where(np.isnan(low), high, np.where(np.isnan(high), low, low + 0.5 * (high - low)))
    return Table(str(path), frame.drop(columns=names), y, f"{lower} to {upper}", notes, ends)


def read_times(path: str | Path, target: str | None, event: str) -> Table:
    """Read a file with times, by default its last other column, and ``event``: 1 if observed, 0 if censored."""
    frame, (time, status), notes = _read(path, [target, event], Numbers)
    y, observed = targets_of(str(path), time, frame[time]), _numbers(str(path), status, frame[status])
    bad = ~np.isin(observed, (0.0, 1.0))
    if bad.any():
        raise DataError(
            f"{path}: column {event!r} must have 1 (observed) or 0 (censored), it has {observed[bad][0]:g} in row "
            f"{frame.index[bad][0]}"
        )
    ends = np.stack([y, np.where(observed == 1, y, np.inf)], axis=1)
    return Table(str(path), frame.drop(columns=[time, status]), y, time, notes, ends)


def read_classes(path: str | Path, target: str | None = None) -> Table:
    """Read a file with a column of ordered classes, numbers or words; sorting gives their order."""
    frame, (chosen,), notes = _read(path, [target], None)
    values = _complete(str(path), chosen, frame[chosen])
    with of_file(path):
        labels = class_labels(chosen, values)
        classes, number = np.unique(labels, return_inverse=True)
        if classes.size == 1:
            raise DataError(f"column {chosen!r} must have at least two classes, got one, {classes[0]}")
    notes += (f"{path}: column {chosen!r} has {classes.size} classes, in this order: {', '.join(map(str, classes))}",)
    return Table(str(path), frame.drop(columns=chosen), number.astype(np.float64), chosen, notes, labels)


def read_new(path: str | Path, encoding: Encoding) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read the columns of an encoding, in its order, and say what was recognised."""
    table = open_table(path, encoding.kinds)
    check_columns(path, table.columns, encoding.kinds)
    frame, notes = table.frame(encoding.kinds)
    if isinstance(table, TextTable):
        for column in (each for each in encoding.columns if isinstance(each, Words) and not each.gaps):
            cells = table.cells[column.name]  # of which a known word such as NA is no gap
            frame[column.name] = frame[column.name].where(~cells.isin(column.parts), cells)
    if not len(frame):
        raise DataError(f"{path}: has no rows")
    return frame, table.notes + notes


def _read(
    path: str | Path, targets: list[str | None], kind: type[Column] | None
) -> tuple[pd.DataFrame, list[str], tuple[str, ...]]:
    """Read a file with targets of a kind, where None is the last column that is not another target."""
    stated = [name for name in targets if name is not None]
    table = open_table(path, stated)
    names = list(table.columns)
    check_columns(path, names, stated)
    free = [name for name in names if name not in targets]
    if None in targets and not free:
        raise DataError(f"{path}: has no column to predict except {', '.join(map(repr, names))}")
    chosen = [free[-1] if name is None else name for name in targets]
    frame, notes = table.frame({name: kind if name in chosen else None for name in names})
    return frame, chosen, table.notes + notes


def targets_of(path: str, name: str, values: pd.Series) -> Array:
    """Return the column to predict as finite numbers, without gaps; no other column of predictions has its name."""
    check_target(name)
    return _numbers(path, name, _complete(path, name, values))


def _complete(path: str, name: str, values: pd.Series) -> pd.Series:
    """Return a column, which must have no gaps."""
    if values.isna().any():
        raise DataError(f"{path}: column {name!r} has a missing value in row {values.index[values.isna()][0]}")
    return values


def _numbers(path: str, name: str, values: pd.Series) -> Array:
    """Return a column with data of the target as numbers, NaN for missing ones."""
    kind = kind_of(name, values)
    if kind is not Numbers and not values.isna().all():
        raise DataError(f"{path}: column {name!r} must have numbers to be predicted, it has {kind.plural}")
    with of_file(path):
        return finite_numbers(name, values)


def check_rows(path: str, n: int) -> None:
    """Check that a file has enough rows for a model."""
    if n < _FEWEST_ROWS:
        raise DataError(f"{path}: has {n} rows, at least {_FEWEST_ROWS} are needed")


def check_column(path: str, name: str, values: Array) -> None:
    """Check that a column varies, is not too large and not lost in rounding; smallest and largest values suffice."""
    if np.ptp(values) == 0 and not name.endswith(ANOTHER):
        raise DataError(f"{path}: column {name!r} is constant ({values[0]:g})")
    try:
        check_spread(f"{path}: column {name!r}", values)
    except ValueError as error:
        raise DataError(str(error)) from None


def checked(data: Dataset, path: str) -> Dataset:
    """Check that a model can be fitted to the columns of data, and return them."""
    for name, column in zip((*data.inputs, data.target), (*data.X.T, data.y), strict=True):
        check_column(path, name, column)
    if not data.inputs:
        raise DataError(f"{path}: has no column except the target {data.target!r}")
    return data


def _split_rows(n: int, test_fraction: float, random_seed: int | np.random.Generator | None) -> tuple[Rows, Rows]:
    check_share("test_fraction", test_fraction)
    order = generator(random_seed).permutation(n)
    n_test = min(max(round(test_fraction * n), 1), n - 1)
    return np.sort(order[n_test:]), np.sort(order[:n_test])

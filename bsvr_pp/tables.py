"""Tables of the commands: CSV and Parquet files whose columns are numbers, words and dates, with gaps.

The target is a column of finite numbers, or of ordered classes, or two columns that say in which interval it lies. The
inputs are encoded by `bsvr_pp.columns`, whose encoding belongs to the model and reads new tables.
`bsvr_pp.datasets.read_csv` reads files of numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.columns import Encoding
from bsvr_pp.csv_files import DataError, read_table, without_formulas
from bsvr_pp.datasets import Dataset, check_columns, check_rows, checked, identifiers, split_rows
from bsvr_pp.parquet_files import is_parquet, parquet_library, read_parquet
from bsvr_pp.summaries import PLURAL, kind_of, summarize

__all__ = [
    "Table",
    "of_file",
    "read_classes",
    "read_data",
    "read_intervals",
    "read_new",
    "read_times",
    "targets_of",
    "writing_predictions",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Inputs (a DataFrame) and targets (n,) of a file, before their encoding; ``notes`` state what was recognised.

    If targets are intervals, ``known`` are their ends (n, 2); if they are classes, the label of each row (n,).
    """

    path: str
    inputs: pd.DataFrame
    y: Array
    target: str
    notes: tuple[str, ...] = ()
    known: NDArray[Any] | None = None

    def encode(self) -> tuple[Dataset, Encoding]:
        """Encode the inputs, and check that a model can be fitted to the data.

        Raises
        ------
        DataError
            If a column cannot be encoded, or the data cannot serve.
        """
        check_rows(self.path, len(self.y))
        with of_file(self.path):
            encoding = Encoding.of(summarize(self.inputs))
            X, _ = encoding.transform(self.inputs)
        data = checked(Dataset(X, self.y, encoding.names, self.target), self.path)
        numeric = {c.name: X[:, encoding.names.index(c.name)] for c in encoding.columns if c.kind == "number"}
        said = tuple(f"{self.path}: {note}" for note in encoding.notes)
        return replace(data, notes=self.notes + said + identifiers(numeric, self.path)), encoding

    def split(self, test_fraction: float, random_seed: int) -> tuple[Dataset, Dataset]:
        """Split the rows at random into a training and a test set, and encode both as the training set is.

        Raises
        ------
        ValueError
            If test_fraction is not between 0 and 1.
        DataError
            If the data cannot serve.
        """
        whole, _ = self.encode()
        train, test = split_rows(len(self.y), test_fraction, random_seed)
        with of_file(f"the training rows of {self.path}"):
            encoding = Encoding.of(summarize(self.inputs.iloc[train]))
            (X, _), (X_test, unknown) = (encoding.transform(self.inputs.iloc[rows]) for rows in (train, test))
        notes = whole.notes + tuple(f"test rows: {note}" for note in unknown)
        return (
            Dataset(X, self.y[train], encoding.names, self.target, notes),
            Dataset(X_test, self.y[test], encoding.names, self.target, notes),
        )


def read_data(path: str | Path, target: str | None = None) -> Table:
    """Read a CSV or Parquet file with a column to predict.

    Parameters
    ----------
    path : str or Path
        The file; one that ends in .parquet or .pq is a Parquet file, any other CSV.
    target : str, optional
        Name of the column to predict; by default the last one.

    Raises
    ------
    DataError
        If the file cannot be read, lacks the column, or the column has gaps or anything but finite numbers.
    """
    frame, (chosen,), notes = _read(path, [target], "number")
    y = targets_of(str(path), chosen, frame[chosen])
    return Table(str(path), frame.drop(columns=chosen), y, chosen, notes)


def read_intervals(path: str | Path, lower: str, upper: str) -> Table:
    """Read a file with two columns of ends, between which the target is known to lie.

    Parameters
    ----------
    path : str or Path
        The file.
    lower, upper : str
        Columns of the ends; an empty cell is an infinite end, and equal ends are an exact target.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a column, or a row has no end, or a lower end above the upper one.
    """
    frame, names, notes = _read(path, [lower, upper], "number")
    low, high = (_numbers(str(path), name, frame[name]) for name in names)
    ends = np.stack([np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)], axis=1)
    for bad, what in ((np.isinf(ends).all(axis=1), "both empty"), (ends[:, 0] > ends[:, 1], "not in order")):
        if bad.any():
            raise DataError(f"{path}: columns {lower!r} and {upper!r} are {what} in row {frame.index[bad][0]}")
    y = np.where(np.isnan(low), high, np.where(np.isnan(high), low, low + 0.5 * (high - low)))
    return Table(str(path), frame.drop(columns=names), y, f"{lower} to {upper}", notes, ends)


def read_times(path: str | Path, target: str | None, event: str) -> Table:
    """Read a file with a column of times, and one that is 1 where the event was observed and 0 where it was censored.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str, optional
        Column of the times; by default the last one that is not ``event``.
    event : str
        Column of the status.

    Raises
    ------
    DataError
        If the file cannot be read or lacks a column, a time is missing, or a status is neither 0 nor 1.
    """
    frame, (time, status), notes = _read(path, [target, event], "number")
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
    """Read a file with a column of ordered classes, numbers or words, whose order is that of sorting.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str, optional
        Column of the classes; by default the last one.

    Raises
    ------
    DataError
        If the file cannot be read or lacks the column, or a class is missing or a date.
    """
    frame, (chosen,), notes = _read(path, [target], None)
    values = frame[chosen]
    if values.isna().any():
        raise DataError(f"{path}: column {chosen!r} has a missing value in row {values.index[values.isna()][0]}")
    kind = kind_of(chosen, values)
    if kind == "date":
        raise DataError(f"{path}: column {chosen!r} must have numbers or words to be ordered classes, it has dates")
    if kind == "number":
        numbers = _numbers(str(path), chosen, values)
        broken = numbers != np.round(numbers)
        if broken.any():
            raise DataError(
                f"{path}: column {chosen!r} must have whole numbers or words to be ordered classes, it has "
                f"{numbers[broken][0]:g} in row {values.index[broken][0]}"
            )
        labels: NDArray[Any] = numbers.astype(np.int64)
    else:
        labels = values.to_numpy().astype(str)
    classes, number = np.unique(labels, return_inverse=True)
    notes += (f"{path}: column {chosen!r} has {classes.size} classes, in this order: {', '.join(map(str, classes))}",)
    return Table(str(path), frame.drop(columns=chosen), number.astype(np.float64), chosen, notes, labels)


def _read(
    path: str | Path, targets: list[str | None], kind: str | None
) -> tuple[pd.DataFrame, list[str], tuple[str, ...]]:
    """Read a file whose target columns are of a kind; None is the last column that is not another target."""
    if is_parquet(path):
        frame, notes = read_parquet(path), tuple[str, ...]()
        names = list(frame.columns)
    else:
        text = read_table(path)
        names, notes = list(text.columns), text.notes
    check_columns(str(path), names, [name for name in targets if name is not None])
    others = [name for name in names if name not in targets]
    if None in targets and not others:
        raise DataError(f"{path}: has no column to predict except {', '.join(map(repr, names))}")
    chosen = [others[-1] if name is None else name for name in targets]
    if not is_parquet(path):  # targets with the inputs, since a decimal comma is a property of the file
        frame, said = text.frame({name: kind if name in chosen else None for name in names})
        notes += said
    return frame, chosen, notes


def read_new(path: str | Path, encoding: Encoding) -> tuple[Array, tuple[str, ...]]:
    """Read the inputs of a model from a CSV or Parquet file, by the names of their columns.

    Parameters
    ----------
    path : str or Path
        The file; other columns than the inputs are ignored.
    encoding : Encoding
        The encoding of the model.

    Returns
    -------
    X : (n, k) array
    notes : tuple of str
        Notes for the user on unknown words and new gaps.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a column, has no rows, or a column has not the kind that it had in training.
    """
    names = list(encoding.kinds)
    if is_parquet(path):
        frame, notes = read_parquet(path, names), tuple[str, ...]()
    else:
        text = read_table(path)
        check_columns(str(path), text.columns, names)
        frame, notes = text.frame(dict(encoding.kinds))
    if not len(frame):
        raise DataError(f"{path}: has no rows")
    with of_file(path):
        X, said = encoding.transform(frame)
    return X, notes + tuple(f"{path}: {note}" for note in said)


@contextmanager
def writing_predictions(path: Path, fresh: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    r"""Write a table part by part, as Parquet if ``path`` ends so, else as CSV.

    Parameters
    ----------
    path : Path
        Where the table will be.
    fresh : Path
        The file to be written, which replaces it.

    Yields
    ------
    callable
        It adds rows, a table with the same columns each time.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from bsvr_pp.tables import writing_predictions
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     with writing_predictions(path, path) as add:
    ...         add(pd.DataFrame({"y": [1.5]}))
    ...         add(pd.DataFrame({"y": [2.5]}))
    ...     path.read_text()
    'y\n1.5\n2.5\n'
    """
    if not is_parquet(path):
        with fresh.open("w", newline="", encoding="utf-8") as file:
            yield lambda table: without_formulas(table).to_csv(
                file, index=False, header=not file.tell(), lineterminator="\n"
            )
        return
    parquet = parquet_library(path)
    import pyarrow

    writers: list[Any] = []

    def add(table: pd.DataFrame) -> None:
        rows = pyarrow.Table.from_pandas(table, preserve_index=False)
        if not writers:
            writers.append(parquet.ParquetWriter(fresh, rows.schema))
        writers[0].write_table(rows)

    try:
        yield add
    finally:
        for writer in writers:
            writer.close()


def targets_of(path: str, name: str, values: pd.Series[Any]) -> Array:
    """The column to predict as finite numbers.

    Raises
    ------
    DataError
        If it has gaps, or something else.
    """
    if values.isna().any():
        raise DataError(f"{path}: column {name!r} has a missing value in row {values.index[values.isna()][0]}")
    return _numbers(path, name, values)


@contextmanager
def of_file(path: str | Path) -> Iterator[None]:
    """Name the file in a message about its columns.

    Raises
    ------
    DataError
        The error of the block, with the name.
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _numbers(path: str, name: str, values: pd.Series[Any]) -> Array:
    """A column of what is known of the target as numbers, NaN where there is none."""
    kind = kind_of(name, values)
    if kind != "number" and not values.isna().all():
        raise DataError(f"{path}: column {name!r} must have numbers to be predicted, it has {PLURAL[kind]}")
    y = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(y).any():
        raise DataError(f"{path}: column {name!r} is not finite in row {values.index[np.isinf(y)][0]}")
    return y

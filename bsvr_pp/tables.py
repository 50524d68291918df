"""Tables of the commands: CSV and Parquet files whose columns are numbers, words and dates, with gaps.

The target is a column of finite numbers. The inputs are encoded by `bsvr_pp.columns`, whose encoding belongs to the
model and reads new tables. `bsvr_pp.datasets.read_csv` reads files of numbers alone.
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
from bsvr_pp.summaries import PLURAL, kind_of, summarize

__all__ = [
    "Table",
    "is_parquet",
    "of_file",
    "parquet_parts",
    "read_data",
    "read_new",
    "targets_of",
    "writing_predictions",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Inputs (a DataFrame) and targets (n,) of a file, before their encoding; ``notes`` state what was recognised."""

    path: str
    inputs: pd.DataFrame
    y: Array
    target: str
    notes: tuple[str, ...] = ()

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


def is_parquet(path: str | Path) -> bool:
    """Return whether a path names a Parquet file, by its ending.

    Examples
    --------
    >>> from bsvr_pp.tables import is_parquet
    >>> is_parquet("flights.parquet"), is_parquet("flights.csv.gz")
    (True, False)
    """
    return Path(path).suffix.lower() in (".parquet", ".pq")


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
    if is_parquet(path):
        frame, notes = _read_parquet(path), tuple[str, ...]()
        names = list(frame.columns)
    else:
        text = read_table(path)
        names, notes = list(text.columns), text.notes
    chosen = target if target is not None else names[-1]
    check_columns(str(path), names, [chosen])
    if not is_parquet(path):  # the target with the inputs, since a decimal comma is a property of the file
        frame, said = text.frame({name: "number" if name == chosen else None for name in names})
        notes += said
    y = targets_of(str(path), chosen, frame[chosen])
    return Table(str(path), frame.drop(columns=chosen), y, chosen, notes)


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
        frame, notes = _read_parquet(path, names), tuple[str, ...]()
    else:
        text = read_table(path)
        check_columns(str(path), text.columns, names)
        frame, notes = text.frame(dict(encoding.kinds))
    if not len(frame):
        raise DataError(f"{path}: has no rows")
    with of_file(path):
        X, said = encoding.transform(frame)
    return X, notes + tuple(f"{path}: {note}" for note in said)


def parquet_parts(path: Path, columns: list[str] | None, rows: int) -> Iterator[pd.DataFrame]:
    """Read a Parquet file in parts.

    Parameters
    ----------
    path : Path
        The file.
    columns : list of str, optional
        Names of the columns; by default all.
    rows : int
        Largest number of rows of a part.

    Raises
    ------
    DataError
        If the file cannot be read, or lacks a column.
    """
    parquet = _parquet(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            check_columns(str(path), names, columns or [])
            if not names:
                raise DataError(f"{path}: has no column with a name")
            for batch in file.iter_batches(rows, columns=columns):
                yield batch.to_pandas()
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{path}: cannot be read as Parquet ({error})") from None


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
    parquet = _parquet(path)
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
    kind = kind_of(name, values)
    if kind != "number":
        raise DataError(f"{path}: column {name!r} must have numbers to be predicted, it has {PLURAL[kind]}")
    y = values.to_numpy(dtype=np.float64)
    if not np.isfinite(y).all():
        raise DataError(f"{path}: column {name!r} is not finite in row {values.index[~np.isfinite(y)][0]}")
    return y


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


def _parquet(path: str | Path) -> Any:
    """Import the library that reads and writes Parquet files."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet files need pyarrow: pip install 'bsvr-pp[large]'") from None
    return pyarrow.parquet


def _read_parquet(path: str | Path, names: list[str] | None = None) -> pd.DataFrame:
    """Read the columns of a Parquet file, with rows numbered from 1."""
    parquet = _parquet(path)
    if not Path(path).exists():
        raise DataError(f"{path}: there is no such file")
    try:
        if names is not None:
            check_columns(str(path), parquet.read_schema(path).names, names)
        frame: pd.DataFrame = parquet.read_table(path, columns=names).to_pandas()
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{path}: cannot be read as Parquet ({error})") from None
    if not len(frame.columns):
        raise DataError(f"{path}: has no column with a name")
    frame.columns = frame.columns.astype(str)
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1))

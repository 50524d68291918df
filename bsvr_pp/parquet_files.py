"""Parquet files: whole, in parts, and the library that reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from bsvr_pp.csv_files import DataError
from bsvr_pp.datasets import check_columns

__all__ = ["is_parquet", "parquet_library", "parquet_parts", "read_parquet"]


def is_parquet(path: str | Path) -> bool:
    """Return whether a path names a Parquet file, by its ending.

    Examples
    --------
    >>> from bsvr_pp.parquet_files import is_parquet
    >>> is_parquet("flights.parquet"), is_parquet("flights.csv.gz")
    (True, False)
    """
    return Path(path).suffix.lower() in (".parquet", ".pq")


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
    parquet = parquet_library(path)
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


def parquet_library(path: str | Path) -> Any:
    """Import the library that reads and writes Parquet files.

    Raises
    ------
    DataError
        If it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet files need pyarrow: pip install 'bsvr-pp[large]'") from None
    return pyarrow.parquet


def read_parquet(path: str | Path, names: list[str] | None = None) -> pd.DataFrame:
    """Read the columns of a Parquet file, with rows numbered from 1.

    Raises
    ------
    DataError
        If the file cannot be read, or lacks a column.
    """
    parquet = parquet_library(path)
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

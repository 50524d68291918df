"""Parquet files: whole, in parts, and the library that reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bsvr_pp.tables import DataError, check_columns

__all__ = ["ParquetTable", "is_parquet", "parquet_library", "parquet_parts"]


def is_parquet(path: str | Path) -> bool:
    """Return whether a path names a Parquet file, by its ending."""
    return Path(path).suffix.lower() in (".parquet", ".pq")


def parquet_library(path: str | Path) -> Any:
    """Import the library that reads and writes Parquet files, or say how to install it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet files need pyarrow: pip install 'bsvr-pp[large]'") from None
    return pyarrow.parquet


def parquet_parts(path: Path, columns: list[str] | None, rows: int | None) -> Iterator[pd.DataFrame]:
    """Read some columns (None: all) of a Parquet file in parts of at most ``rows`` rows (None: at once)."""
    parquet = parquet_library(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            check_columns(path, names, columns or [])
            if not names:
                raise DataError(f"{path}: has no column with a name")
            for part in [file.read(columns)] if rows is None else file.iter_batches(rows, columns=columns):
                yield part.to_pandas()
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{path}: cannot be read as Parquet ({error})") from None


class ParquetTable:
    """Some columns (None: all) of a Parquet file, used as `TextTable` is; its rows are numbered from 1."""

    notes: tuple[str, ...] = ()

    def __init__(self, path: str | Path, names: list[str] | None = None) -> None:
        (table,) = parquet_parts(Path(path), names, None)
        table.columns = table.columns.astype(str)
        self._table = table.set_axis(pd.RangeIndex(1, len(table) + 1))
        self.columns = list(table.columns)

    def frame(self, kinds: Mapping[str, Any]) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """The columns as they are: the file says what they contain."""
        return self._table[list(kinds)], ()

"""Data in parts: Parquet files, Dask data frames and arrays, and arrays that may lie on disk.

A source is read part by part, as often as it is needed, so that the memory is that of one part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.tables import DataError, check_columns
from bsvr_pp.tables.parquet_files import is_parquet, parquet_parts
from bsvr_pp.tables.readers import read_data, targets_of

__all__ = ["Source", "dask", "source_of", "tables_of"]

Array = NDArray[np.float64]

_ROWS = 50_000  # of a part


@dataclass(frozen=True, slots=True)
class Source:
    """Training data in parts.

    Attributes
    ----------
    name : str
        Name in messages.
    identity : str
        Text that changes if the data change.
    target : str
        Name of the target; empty for arrays.
    parts : callable
        It returns an iterator of inputs (a DataFrame, or an (m, d) array) and targets (m,).
    """

    name: str
    identity: str
    target: str
    parts: Callable[[], Iterator[tuple[Any, Array]]]


def dask(module: str = "dask") -> Any:
    """Import a module of Dask.

    Raises
    ------
    ImportError
        Saying what to install.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ImportError("models in folders need Dask: pip install 'bsvr-pp[large]'") from None


def source_of(data: Any, y: Any = None, target: str | None = None) -> Source:
    """Describe training data.

    Parameters
    ----------
    data : path, data frame or array
        A Parquet file, a folder of them, or a CSV file; a data frame of pandas or Dask; or inputs (n, d) as a NumPy
        array, a `numpy.memmap` or a Dask array.
    y : (n,) array, optional
        Targets for inputs that are an array, of the same kinds.
    target : str, optional
        Column to predict of a table; by default the last one.

    Raises
    ------
    ValueError
        If the kinds do not fit together, or the data cannot be read.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        if not (is_parquet(path) or path.is_dir()):  # CSV is read at once
            table = read_data(path, target)
            frame = table.inputs.assign(**{table.target: table.y})
            return _of_tables(str(path), frame.columns, table.target, lambda: tables_of(frame), [path])
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path}: has no Parquet files")
        first = next(parquet_parts(files[0], None, 1), None)
        if first is None:
            raise DataError(f"{files[0]}: has no rows")
        return _of_tables(str(path), first.columns, target, lambda: tables_of(path), files)
    if hasattr(data, "columns"):
        return _of_tables("data", data.columns, target, lambda: tables_of(data))
    if target is not None:
        raise ValueError(f"target is the name of a column of a table, got target={target!r} with an array")
    if y is None:
        raise ValueError("y must be given with inputs that are an array")
    for name, value, ndim in (("data", data, 2), ("y", y, 1)):
        if not hasattr(value, "shape") or len(value.shape) != ndim:
            raise ValueError(f"{name} must be an array with {ndim} axes, got {getattr(value, 'shape', type(value))}")
    if len(data) != len(y):
        raise ValueError(f"y must have {len(data)} values as data has rows, got {len(y)}")
    return Source("data", _of_content(_arrays(data, y)), "", lambda: _arrays(data, y))


def tables_of(data: Any, columns: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """Parts of a table, with rows numbered from 1.

    Parameters
    ----------
    data : path or data frame
        A Parquet file, a folder of them, or a data frame of pandas or Dask.
    columns : list of str, optional
        Names of the columns; by default all.

    Raises
    ------
    DataError
        If the data cannot be read, lack a column, or have no rows.
    """
    if isinstance(data, Path):
        files = sorted(data.rglob("*.parquet")) if data.is_dir() else [data]
        parts = (part for file in files for part in parquet_parts(file, columns, _ROWS))
    else:
        check_columns("data", [str(name) for name in data.columns], columns or [])
        parts = (part if columns is None else part[columns] for part in _frames(data))
    first = 1
    for part in parts:
        if len(part):
            yield part.set_axis(pd.RangeIndex(first, first + len(part)))
            first += len(part)
    if first == 1:
        raise DataError(f"{data if isinstance(data, Path) else 'data'}: has no rows")


def _frames(data: Any) -> Iterator[pd.DataFrame]:
    """Parts of a data frame of pandas or Dask."""
    if isinstance(data, pd.DataFrame):
        yield from (data.iloc[at : at + _ROWS] for at in range(0, len(data), _ROWS))
    else:
        yield from (data.partitions[i].compute() for i in range(data.npartitions))


def _of_tables(
    name: str,
    columns: Any,
    target: str | None,
    tables: Callable[[], Iterator[pd.DataFrame]],
    files: list[Path] | None = None,
) -> Source:
    names = [str(column) for column in columns]
    chosen = names[-1] if target is None else target
    check_columns(name, names, [chosen])

    def parts() -> Iterator[tuple[pd.DataFrame, Array]]:
        for table in tables():
            table.columns = table.columns.astype(str)
            yield table.drop(columns=chosen), targets_of(name, chosen, table[chosen])

    return Source(name, _of_content(parts()) if files is None else _of_files(files), chosen, parts)


def _of_files(files: list[Path]) -> str:
    """Names, sizes and times of files."""
    found = []
    for file in files:
        if not file.exists():
            raise DataError(f"{file}: there is no such file")
        stat = file.stat()
        found.append([file.name, stat.st_size, stat.st_mtime_ns])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _of_content(parts: Iterator[tuple[Any, Array]]) -> str:
    """Digest of all values: what Dask calls the same data may have another name in another process."""
    of_inputs, of_targets, columns = hashlib.sha256(), hashlib.sha256(), []
    for inputs, y in parts:
        if isinstance(inputs, pd.DataFrame):
            columns = list(inputs.columns)
            inputs = pd.util.hash_pandas_object(inputs, index=False).to_numpy()
        of_inputs.update(np.ascontiguousarray(inputs).data)
        of_targets.update(np.ascontiguousarray(y).data)
    return json.dumps([columns, of_inputs.hexdigest(), of_targets.hexdigest()])


def _arrays(X: Any, y: Any) -> Iterator[tuple[Array, Array]]:
    """Parts of arrays; those of Dask are computed part by part."""
    for at in range(0, len(X), _ROWS):
        both = []
        for name, values in (("data", X), ("y", y)):
            part = values[at : at + _ROWS]
            numbers = np.asarray(part.compute() if hasattr(part, "compute") else part)
            if numbers.dtype.kind not in "biuf":
                raise ValueError(f"{name} must be an array of numbers, got {numbers.dtype}")
            numbers = numbers.astype(np.float64)
            if not np.isfinite(numbers).all():
                row = at + int(np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))[0])
                raise ValueError(f"{name} must be finite, got {values[row]} in row {row}")
            both.append(numbers)
        yield both[0], both[1]

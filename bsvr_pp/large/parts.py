"""Data of a fit into a folder: sources in parts, files that are complete or computed again, and tasks on them.

A source is read part by part: first to summarise its columns, then to encode its rows, which are standardised and
written to files. Only the targets are in memory together. joblib runs independent tasks on these files: in threads, or
on the workers of a cluster that see the folder.
"""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from platform import node
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from bsvr_pp.core.arrays import Array, check_order, check_unmasked, checked_weights, numbers, warn
from bsvr_pp.core.atomic_write import DamagedError, SealedFile, atomic_write
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.estimators.training_data import IntervalData, TrainingData, Units, as_given, used_rows, width_of_tied
from bsvr_pp.estimators.validation import Columns, IntervalTargets, warn_of_repeated
from bsvr_pp.estimators.validation import targets_of as targets_in_memory
from bsvr_pp.inference.prediction.distribution import Unscaled
from bsvr_pp.model.blocks import mean_and_deviation
from bsvr_pp.model.priors import location_and_scale
from bsvr_pp.tables import DataError, check_columns, of_file, unique
from bsvr_pp.tables.columns import Encoding, Summary, merged, summarize, table_of
from bsvr_pp.tables.files import ParquetTable, is_parquet
from bsvr_pp.tables.readers import check_column, check_rows, read_data, read_new, targets_of

_ROWS = 50_000  # of a part, and rows that are standardised together


# Also of Dask or on disk: they have the same methods.
type Data = str | Path | pd.DataFrame | NDArray[np.generic]
type Inputs = pd.DataFrame | Array


@dataclass(frozen=True, slots=True)
class Source:
    """Training data in parts of inputs and targets (m,); ``identity`` changes with the data.

    All targets may have weights, or lie in ``intervals`` (n, 2).
    """

    name: str
    identity: str
    target: str
    parts: Callable[[], Iterator[tuple[Inputs, Array]]]
    notes: tuple[str, ...] = ()
    weight: ArrayLike | None = None
    intervals: Array | None = None


def source_of(
    data: Data,
    y: NDArray[np.generic] | None = None,
    target: str | None = None,
    weight: ArrayLike | None = None,
    intervals: bool = False,
) -> Source:
    """Describe training data: files, or a data frame, with a column to predict; or arrays of inputs and targets."""
    ends = None
    if isinstance(data, str | Path) or hasattr(data, "columns"):
        if y is not None:
            raise ValueError("y must be None with a table, whose target is a column: target= is its name")
        check_order(data, sample_weight=weight)
        found = _of_table(data, target, None)
    else:
        if target is not None:
            raise ValueError(f"target is the name of a column of a table, got target={target!r} with an array")
        if y is None:
            raise ValueError("y must be given with inputs that are an array")
        if issparse(data):
            raise ValueError("data must be dense in a folder, got a sparse matrix: use TruncatedSVD")
        if np.ndim(y) == 2 or getattr(getattr(y, "dtype", None), "names", None):
            of_y = targets_in_memory(y, allowed=intervals)
            if of_y.names is not None:
                raise ValueError(
                    f"y has {len(of_y.names)} columns: intervals=True takes two as lower and upper ends, and several "
                    "targets need a folder each"
                )
            y, ends = np.asarray(of_y.y), getattr(of_y, "ends", None)
        for name, value, ndim in (("data", data, 2), ("y", y, 1)):
            check_unmasked(name, value)
            shape = getattr(value, "shape", type(value))
            if not isinstance(shape, tuple) or len(shape) != ndim:
                raise ValueError(f"{name} must be an array with {ndim} axes, got {shape}")
        if len(data) != len(y):
            raise ValueError(f"y must have {len(data)} values as data has rows, got {len(y)}")
        found = Source("data", _of_content(_arrays(data, y)), "", lambda: _arrays(data, y))
    known = [
        sha256(numbers("sample_weight", each, infinite=True)).hexdigest() for each in (weight, ends) if each is not None
    ]
    return replace(found, identity=checksum([found.identity, *known]), weight=weight, intervals=ends)


def new_rows_of(data: Data, encoding: Encoding | None) -> Source:
    """Describe new inputs, with placeholder targets: a table with the columns of an encoding, or an array."""
    if not isinstance(data, str | Path) and not hasattr(data, "columns"):
        return source_of(data, np.broadcast_to(0.0, np.shape(data)[:1]))
    if encoding is None:
        raise ValueError("data must be arrays for predict, as for the fit: the model has no columns")
    return _of_table(data, None, encoding)


def with_index(data: pd.DataFrame, *, training: bool = False) -> pd.DataFrame:
    """Return a data frame of pandas or Dask, or Polars; a named index becomes columns, with a warning in training."""
    found = data.to_pandas() if hasattr(data, "to_pandas") else data
    index = [each for each in getattr(found.index, "names", [found.index.name]) if each is not None]
    unique(str(each) for each in [*index, *found.columns])
    if index and training:
        words = ", ".join(map(repr, index))
        warn(f"the index of data, {words}, is a column, as in a file: reset_index(drop=True) leaves it out")
    return found.reset_index() if index else found


def _frames(table: ParquetTable | pd.DataFrame, columns: list[str]) -> Iterator[pd.DataFrame]:
    """Yield parts of Parquet files with some columns, or of a data frame of pandas or Dask."""
    if isinstance(table, ParquetTable):
        return table.parts(columns, _ROWS)
    if isinstance(table, pd.DataFrame):
        return (table.iloc[at : at + _ROWS] for at in range(0, len(table), _ROWS))
    return (table.partitions[i].compute() for i in range(table.npartitions))


def _of_table(data: str | Path | pd.DataFrame, target: str | None, encoding: Encoding | None) -> Source:
    """Describe a table with a column to predict, or with the columns of an encoding."""
    name, files, notes = "data", list[Path](), tuple[str, ...]()
    if not isinstance(data, str | Path):
        table = with_index(data, training=encoding is None)
    elif is_parquet(data):
        table = ParquetTable(data)
        name, files, notes = str(data), table.files, table.notes
    else:  # CSV is read in one piece
        name = str(data)
        if encoding is None:
            read = read_data(data, target)
            table, target, notes = read.inputs.copy(), read.target, read.notes
            table[target] = read.y
        else:
            table, _ = read_new(data, encoding)
    names = [str(column) for column in table.columns]
    chosen = "" if encoding else names[-1] if target is None else str(target)
    wanted = names if encoding is None else list(encoding.kinds)
    check_columns(name, names, [chosen] if encoding is None else wanted)
    if names == [chosen]:
        raise DataError(f"{name}: has no column except the target {chosen!r}")

    def parts() -> Iterator[tuple[pd.DataFrame, Array]]:
        first = 1  # rows are numbered from 1
        for frame in _frames(table, wanted):
            part = table_of(frame)
            if part is not None and len(part):
                part = part.set_axis(pd.RangeIndex(first, first + len(part)))[wanted]
                first += len(part)
                y = np.empty(0) if encoding else targets_of(name, chosen, part.pop(chosen))
                yield part, y
        if first == 1:
            raise DataError(f"{name}: has no rows")

    given = [[str(file.relative_to(name)), _of_file(file)] for file in files]
    return Source(name, checksum(given) if files else _of_content(parts()), chosen, parts, notes)


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def _of_content(parts: Iterator[tuple[Inputs, Array]]) -> str:
    """Return the digest of all values: Dask may name the same data differently in another process."""
    of_inputs, of_targets, columns = sha256(), sha256(), list[str]()
    for inputs, y in parts:
        if isinstance(inputs, pd.DataFrame):
            columns = [*inputs.columns, *map(str, inputs.dtypes)]  # the zone of dates is a part of their type
            inputs = pd.util.hash_pandas_object(inputs, index=False).to_numpy()
        of_inputs.update(np.ascontiguousarray(inputs).data)
        of_targets.update(np.ascontiguousarray(y).data)
    return json.dumps([columns, of_inputs.hexdigest(), of_targets.hexdigest()])


def _arrays(X: NDArray[np.generic], y: NDArray[np.generic]) -> Iterator[tuple[Array, Array]]:
    """Yield parts of arrays; Dask arrays are computed part by part."""
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
                raise ValueError(f"{name} must be finite, got {numbers[row - at]} in row {row}")
            both.append(numbers)
        yield both[0], both[1]


def encode(source: Source, folder: Path, *, rows: int, scale_of: Callable[[TrainingData, Columns], Unscaled]) -> Record:
    """Write ``inputs.npy`` and ``targets.npy``, standardised, of more than ``rows`` rows; return their description.

    ``scale_of`` chooses the scale of the targets.
    """
    encoding, n, d = _summarise(source)
    check_rows(source.name, n)
    if n <= rows:
        raise DataError(f"{source.name}: has {n} rows, and a folder needs more than one block of {rows}")
    names = tuple(f"x{i}" for i in range(d)) if encoding is None else encoding.names
    raw, given = folder / "encoded.npy", list[Array]()
    notes = dict.fromkeys(() if encoding is None else encoding.notes)

    def inputs() -> Iterator[Array]:
        for part, of_part in source.parts():
            with of_file(source.name):
                X, said = (part, ()) if encoding is None else encoding.transform(part)
            given.append(of_part)
            notes.update(dict.fromkeys(said))
            yield X

    write_rows(raw, inputs())
    y, encoded = np.concatenate(given), open_rows(raw)
    notes |= dict.fromkeys(() if encoding is None else encoding.codes(encoded))
    notes |= dict.fromkeys(Encoding.codes_of(source.target or "y", y, "leave these rows out"))
    lowest, highest = (*encoded.min(axis=0), y.min()), (*encoded.max(axis=0), y.max())
    for name, *ends in zip((*names, source.target or "y"), lowest, highest, strict=True):
        check_column(source.name, name, np.array(ends))
    targets, columns = _targets_of(y, source), Columns(len(names), None, encoding)
    target_scale = scale_of(replace(targets, X=encoded), columns)
    targets = targets.on_scale(target_scale)
    targets.check("y")
    mean, deviation = mean_and_deviation(encoded, targets.weight)
    scale = width_of_tied(deviation, columns.tied)
    location, unit = location_and_scale(targets.y, targets.weight)
    units = Units(mean[:0], scale[:0], location, unit, target_scale)
    targets = targets.in_units(units)
    sums, factors = targets.y.copy(), np.random.default_rng(0).normal(size=d)  # sums are equal only if rows are

    def standardised() -> Iterator[Array]:
        for at in range(0, n, _ROWS):
            part = (encoded[at : at + _ROWS] - mean) / scale
            sums[at : at + _ROWS] += np.sum(part * factors, axis=1)
            yield part

    write_rows(folder / "inputs.npy", standardised())
    if targets.counted:
        warn_of_repeated(n - np.unique(sums).size, n)
    write_rows(folder / "targets.npy", [np.column_stack([targets.y, *targets.of_targets.values()])])
    raw.unlink()
    return {
        "rows": n,
        "names": list(names),
        "columns": None if encoding is None else encoding.to_json(),
        "target": source.target,
        "notes": [*source.notes, *(f"{source.name}: {note}" for note in notes)],
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "location": location,
        "unit": unit,
        "target_scale": list(astuple(target_scale)),
        "log_jacobian": units.log_jacobian(targets),
    }


def _targets_of(y: Array, source: Source) -> TrainingData:
    """Return targets with their weights or ends, as rows without inputs."""
    weight, none = checked_weights(source.weight, len(y)), np.empty((len(y), 0))
    if source.intervals is not None:
        return IntervalTargets(y, source.intervals).rows(none, y, weight)
    if used_rows(weight).size < len(y):
        raise ValueError("sample_weight must be > 0 in a folder, got 0: leave rows of weight 0 out")
    return replace(as_given(none, y), weight=weight)


def rows_of(X: Array, columns: Array) -> TrainingData:
    """Return rows from inputs and a matrix of the targets with their other data."""
    y, *others = np.ascontiguousarray(columns.T)
    rows = as_given(X, y)
    if len(others) == 2:
        return IntervalData.of(rows, columns[:, 1:])
    return replace(rows, weight=others[0]) if others else rows


def _summarise(source: Source) -> tuple[Encoding | None, int, int]:
    """Return the encoding of the columns of a table (None for arrays), and the numbers of rows and encoded columns."""
    n, d, found = 0, 0, dict[str, Summary]()
    for inputs, y in source.parts():
        n, d = n + len(y), inputs.shape[1]
        if source.target:
            with of_file(source.name):
                part = summarize(inputs)
                found = merged(found, part) if found else part
    if not source.target:
        return None, n, d
    with of_file(source.name):
        encoding = Encoding.of(found)
    return encoding, n, len(encoding.names)


def write_rows(path: Path, parts: Iterable[NDArray[np.generic]]) -> None:
    """Write an array from its parts, with one part in memory at a time."""
    with atomic_write(path, sealed=True) as fresh, fresh.open("wb") as file:
        none: NDArray[np.generic] = np.empty(0)
        count = 0
        for rows in parts:
            if not count:
                none = rows[:0]
                np.save(file, none)
            rows.tofile(file)
            count += len(rows)
        file.seek(0)  # NumPy leaves place for any number of rows
        header = {"descr": none.dtype.str, "fortran_order": False, "shape": (count, *none.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]


def open_rows(path: Path) -> np.memmap[tuple[int, ...], np.dtype[np.float64]]:
    """Open an array; only the rows that are used are read."""
    return np.load(path, mmap_mode="r")


NO_THREADS = {"n_jobs": None, "progressbar": False}  # options of `LocalBlocks` without influence on results
Record = dict[str, Any]  # plain data of JSON
Task = Callable[[str, str, int], dict[str, NDArray[np.generic]]]


class Records(UserDict[str, Record]):
    """Plain data by name, each in a JSON file of a folder; a damaged file is ignored with a warning."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        found = {path.stem: _intact(read_record, path) for path in folder.glob("*.json")}
        self.data = {name: record for name, record in found.items() if record is not None}

    def __setitem__(self, name: str, data: Record) -> None:
        record = json.loads(json.dumps(data))  # as it will be read
        with atomic_write(self.folder / f"{name}.json") as fresh:
            fresh.write_text(json.dumps(record | {"sha256": checksum(record)}, indent=1) + "\n")
        super().__setitem__(name, record)


def read_record(path: Path) -> Record:
    """Read the data of a file of `Records`."""
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.pop("sha256", None) != checksum(record):
        raise DamagedError(f"{path}: is damaged, since its checksum does not match its content")
    return record


def checksum(record: object) -> str:
    """Return the SHA-256 of plain data."""
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def all_whole(*files: Path) -> bool:
    """Return whether all files of a stage exist unchanged; a warning names a damaged one."""
    return all([_intact(lambda path: SealedFile(path).check(), path) is not None for path in files])


def _intact[T](read: Callable[[Path], T], path: Path) -> T | None:
    """Return what a function reads from a file; None if it is missing, or damaged (with a warning)."""
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warn(f"{error}; its stage is computed again")
        return None


def run_tasks(task: Task, work: Records, count: int, progress: str) -> list[Path]:
    """Run a function of ``work``, its stamp and each number; return the files of the arrays that it makes."""
    folder, stamp = str(work.folder), checksum(work.data)
    files = [work.folder / "done" / f"{number}.npz" for number in range(count)]
    # Undamaged files of this stamp are not computed again.
    todo = [i for i, file in enumerate(files) if not (all_whole(file) and next(saved([file], "stamp")) == stamp)]
    each_block(lambda i: _write(task, folder, stamp, todo[i]), len(todo), progress, anywhere=True)
    return files


def _write(task: Task, folder: str, stamp: str, number: int) -> None:
    if not Path(folder).is_dir():
        raise ValueError(f"folder must be on a disk that all workers share, {folder} is missing at {node()}")
    with threads_for(1):
        found = task(folder, stamp, number)
    write_arrays(Path(folder) / "done" / f"{number}.npz", stamp=np.array(stamp), **found)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays by name."""
    with atomic_write(path, sealed=True) as fresh:
        np.savez(fresh, **arrays)


def saved(files: Iterable[Path], name: str) -> Iterator[NDArray[np.generic]]:
    """Yield the array of a name in each of some files."""
    for file in files:
        with np.load(file) as arrays:
            yield arrays[name]

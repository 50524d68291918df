"""Parquet files, and CSV files with different separators, decimal commas, byte order marks, row labels and compression.

A CSV file is read as text, cell by cell with its line number. Only the requested columns are converted to numbers,
dates or words. An ambiguous cell (1,234 is 1.234 or 1234) gives an error; the meaning is never guessed.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from lzma import LZMAError
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pandas.io.common import get_handle

from bsvr_pp.tables import DataError, check_columns, of_file, unique
from bsvr_pp.tables.columns import Column, Dates, Numbers, Words, times_of

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile, ParquetWriter

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# What pandas takes as a gap, and NaT; not none, which may be a word.
_MISSING = re.compile(r"(?i:NA|NULL)?|-?(?:NaN|nan)|None|NaT|<NA>|N/A|n/a|#NA|#N/A(?: N/A)?|-?1\.#(?:IND|QNAN)")
_WORDS = {"true": 1.0, "false": 0.0}
_UNPACKED, _RATIO = 2**26, 100  # characters that any archive may unpack to, and multiple of its own size
_NAMELESS = re.compile(r"__index_level_\d+__|__null_dask_index__")  # an index of pandas or Dask without a name

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?")
_THOUSANDS_COMMA = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_THOUSANDS_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_LIKE_A_NUMBER = re.compile(r"[+-]?[\d.,' ]*\d[\d.,' ]*([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?)?")
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b|\d{4}([./])\d{1,2}\2\d{1,2}\b")


@dataclass(frozen=True, slots=True)
class TextTable:
    """The cells of a CSV file as text, indexed by the line where each row ends; ``notes`` say what was recognised."""

    path: str
    cells: pd.DataFrame
    separator: str = ","
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.cells.columns)

    def frame(self, kinds: Mapping[str, type[Column] | None]) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Convert some columns to numbers, dates or words with gaps, and say what was read.

        A column of kind None has numbers or dates if more than half of its cells that are not missing do. It has
        numbers if nine tenths of its distinct cells do, otherwise words. Dates have forms such as 2020-01-31 or
        2020-01-31 18:30+01:00. The table is indexed by the lines of the file.
        """
        cells = self.cells[list(kinds)]
        given = cells.where(cells.map(_MISSING.fullmatch).isna(), None)
        known = {name: kind or _kind(given[name].dropna()) for name, kind in kinds.items()}
        decimal = self._decimal([name for name, kind in known.items() if kind is Numbers])
        read = {Numbers: partial(self._numbers, decimal=decimal), Dates: self._dates, Words: pd.Series.to_numpy}
        notes = [f"{self.path}: decimal commas are read as decimal points"] if decimal == "," else []
        for name in (name for name, kind in known.items() if kind is Numbers):
            for code in given[name].dropna()[lambda cells: cells.str.fullmatch(r"0\d+")][:1]:
                notes.append(f"{self.path}: column {name!r} is read as numbers, {code} as {int(code)}")
        return pd.DataFrame({name: read[kind](given[name]) for name, kind in known.items()}, cells.index), tuple(notes)

    def _dates(self, given: pd.Series) -> pd.Series:
        """Return a column as times, NaT where a cell is missing."""
        dates = given.map(_date, na_action="ignore").astype(object)
        for line in given.index[dates.isna() & given.notna()]:
            raise DataError(
                f"{self.path}: column {given.name!r}, row {line} has {given[line]!r}, and dates are needed: write them "
                "as 2020-01-31 or 2020-01-31 18:30"
            )
        with of_file(self.path):
            return times_of(given.name, dates)[0]

    def _decimal(self, names: Sequence[str]) -> str:
        """Return the decimal sign of some columns; refuse 1,234, and 1.234 with semicolons and no 0.5 or 1.5."""
        cells = [(name, line, cell) for name in names for line, cell in self.cells[name].items()]
        commas, points = ([each for each in cells if sign in each[2]] for sign in ",.")
        decimal = commas and not points and all(_DECIMAL_COMMA.fullmatch(each[2]) for each in commas)
        doubtful = commas if decimal and all(_THOUSANDS_COMMA.fullmatch(each[2]) for each in commas) else []
        thousands = [each for each in points if _THOUSANDS_POINT.fullmatch(each[2])]
        for name in [] if self.separator == "," else names:
            own, like = (sum(each[0] == name for each in some) for some in (points, thousands))
            if 0 < own == like and (own < len(self.cells) or len(thousands) == len(points)):
                doubtful = [each for each in thousands if each[0] == name]
        for name, line, cell in doubtful:
            one, other = cell.replace(",", "."), re.sub("[,.]", "", cell)
            raise DataError(
                f"{self.path}: column {name!r}, row {line} has {cell!r}, which is {one} or {other}: write numbers with "
                "a decimal point and without thousands separators (and commas between columns)"
            )
        return "," if decimal else "."

    def _numbers(self, given: pd.Series, decimal: str) -> pd.Series:
        """Return a column as numbers, NaN where a cell is missing; true and false stand alone, or beside 0 and 1."""
        numbers = given.map(lambda cell: _number(cell.replace(decimal, ".")), na_action="ignore").astype(np.float64)
        if not numbers.dropna().isin(_WORDS.values()).all():
            numbers[given.str.lower().isin(_WORDS)] = np.nan
        for line in given.index[given.notna() & ~np.isfinite(numbers)]:
            if np.isinf(numbers[line]):
                raise DataError(f"{self.path}: column {given.name!r} is not finite in row {line}")
            raise DataError(
                f"{self.path}: column {given.name!r} is not numeric, row {line} has {given[line]!r}: write numbers "
                "with a decimal point and without thousands separators, units and other signs; a gap is an empty cell"
            )
        return numbers


def _kind(cells: pd.Series) -> type[Column]:
    """Recognise what a column contains, by its cells that are not missing."""
    dates = cells.map(lambda cell: _DATE.match(cell) is not None or _OTHER_DATE.match(cell) is not None)
    if 2 * dates.sum() > len(cells):
        return Dates
    numbers = [cell for cell in cells if _LIKE_A_NUMBER.fullmatch(cell) or _number(cell) is not None]
    many = 2 * len(numbers) > len(cells) or 10 * len(set(numbers)) >= 9 * cells.nunique() > 0
    return Numbers if many else Words


def _date(cell: str) -> pd.Timestamp | None:
    """Return the date in a cell; None if there is none, or no such day."""
    try:
        return pd.Timestamp(cell) if _DATE.fullmatch(cell) else None
    except ValueError:
        return None


def read_table(path: str | Path, wanted: Collection[str] = ()) -> TextTable:
    """Read a CSV file with one header row, packed (.gz, .bz2, .xz, .zip) or not.

    Row labels in the first column (of pandas and R), empty columns without a name and blank lines are omitted, and of
    several columns the rows without any value at the end, which spreadsheets add. A first row that ends with a number
    is a header if it has any of the ``wanted`` names, or is 0, 1, and so on.
    """
    text = _text(path)
    first = re.match(r"\"?sep=([,;|\t])\"?[ ,;|\t]*\r?\n", text)  # of Excel
    separator = first[1] if first else _separator(text)
    text = "\n" + text[first.end() :] if first else text
    lines = (line.lstrip(" ") if line.isspace() else line for line in io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        stripped = ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells)
        rows = dict(dropwhile(lambda row: not any(row[1]), stripped))
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV file ({error} in row {reader.line_num})") from None
    if not rows:
        raise DataError(f"{path}: is empty")
    header = rows.pop(next(iter(rows)))
    numeric = [name for name in header if _number(name) is not None and any(map(str.isdigit, name))]
    known = header[not header[0] :]  # pandas has no name for its index
    named = set(wanted) & set(header) or known == [str(j) for j in range(len(known))]
    if not named and [name for name in header if name][-1:] == numeric[-1:] != []:
        raise DataError(
            f"{path}: the first row holds numbers, and the names of the columns, or of a target, are needed"
        )
    read = len(rows)
    while len(header) > 1 and rows and not any(next(reversed(rows.values()))):
        rows.popitem()
    for line, row in rows.items():
        if any(row[len(header) :]):
            raise DataError(f"{path}: row {line} has {len(row)} cells, more than the header, which has {len(header)}")
    cells_of = [[row[j] if j < len(row) else "" for row in rows.values()] for j in range(len(header))]
    notes = [] if separator == "," else [f"{path}: the columns are separated by {_SEPARATORS[separator]}"]
    if numeric and not named:
        notes.append(f"{path}: the first row, which holds names of columns, has numbers: {', '.join(numeric)}")
    if len(rows) < read:
        notes.append(f"{path}: {read - len(rows)} rows without any value at the end are left out")
    cells = pd.DataFrame(_name_columns(str(path), header, cells_of, notes), list(rows), dtype=object)
    return TextTable(str(path), cells, separator, tuple(notes))


def _text(path: str | Path) -> str:
    """Return the text of a file, unpacked if its ending says so, and without its byte order mark."""
    try:
        most = max(_UNPACKED, _RATIO * Path(path).stat().st_size)
        with get_handle(Path(path), "r", encoding="utf-8-sig", compression="infer") as opened:
            text = str(opened.handle.read(most + 1))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    # A folder, no permission, other text, a broken archive, several files in it, or a password (RuntimeError).
    except (OSError, ValueError, RuntimeError, EOFError, LZMAError, BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read ({error}): give UTF-8 text or one archived file, save a spreadsheet as CSV"
        ) from None
    if len(text) > most:
        raise DataError(f"{path}: unpacks to more than {most >> 20} MB: unpack it first, if it is a table")
    return text


def _separator(text: str) -> str:
    """Return the separator with the most cells, equally many in the header and in each of the first rows."""
    head = [line for _, line in zip(range(50), io.StringIO(text, newline=""), strict=False) if line.strip()]
    found: dict[str, tuple[bool, int]] = {}
    for separator in _SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(head, delimiter=separator, skipinitialspace=True)]
        except csv.Error:
            widths = []
        cells = widths[0] if widths else 1
        found[separator] = (cells > 1 and len(set(widths)) == 1, cells)
    return max(found, key=lambda separator: found[separator])


def _name_columns(path: str, header: list[str], cells: list[list[str]], notes: list[str]) -> dict[str, list[str]]:
    """Return the columns by name, without row labels and without empty columns that have no name."""
    with of_file(path):
        unique(filter(None, header))
    columns: dict[str, list[str]] = {}
    for j, (name, column) in enumerate(zip(header, cells, strict=True)):
        nameless = not name or re.fullmatch(r"Unnamed: \d+", name) is not None
        if nameless and not columns and _labels(column):
            notes.append(f"{path}: the first column, which has no name, is left out: it labels the rows")
        elif not name and not any(column):
            continue  # spreadsheets add such columns
        elif not name:
            raise DataError(f"{path}: column {j + 1} has no name")
        else:
            columns[name] = column
    if not columns:
        raise DataError(f"{path}: has no column with a name")
    return columns


def _labels(column: list[str]) -> bool:
    """Return whether a column has a different integer, or a different text, in each row."""
    numbers = [number for cell in column if (number := _number(cell)) is not None]
    return len(set(column)) == len(column) and all(number.is_integer() for number in numbers)


def _number(cell: str) -> float | None:
    """Return the number in a cell; None if there is none."""
    try:
        return _WORDS.get(cell.lower()) if "_" in cell or cell.lower() in _WORDS else float(cell)  # not 1_0
    except ValueError:
        return None


def is_parquet(path: str | Path) -> bool:
    """Return whether a path names a Parquet file, by its ending, or is a folder."""
    return Path(path).suffix.lower() in (".parquet", ".pq") or Path(path).is_dir()


def parquet_library(path: str | Path) -> ModuleType:
    """Import the library that reads and writes Parquet files, or say how to install it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet files need pyarrow: pip install 'bsvr-pp[large]'") from None
    return pyarrow.parquet


class ParquetTable:
    """A Parquet file, or a folder of them as written by pandas, Spark and Dask, with the interface of `TextTable`.

    All files have the same ``columns``, an index first. Rows are numbered from 1, and ``notes`` say what is
    left out.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._parquet, self.notes = Path(path), parquet_library(path), tuple[str, ...]()
        first, *others = self.files = _files_of(self.path)
        self.columns = self._columns_of(first)
        for file in others:
            for name in set(self._columns_of(file)) ^ set(self.columns):
                raise DataError(f"{file}: it or {first} alone has the column {name!r}: write all files with the same")
        if not self.columns:
            raise DataError(f"{path}: has no column with a name")

    def _columns_of(self, file: Path) -> list[str]:
        with self._reading(file) as opened:
            schema = opened.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])  # names of fields, or a range
        for each in index:
            if isinstance(each, dict) and each["name"] is not None:
                raise DataError(f"{file}: the index {each['name']!r} has no values in it: write it after reset_index()")
        fields = sorted(schema.names, key=lambda field: field not in index)
        named = [field for field in fields if not _NAMELESS.fullmatch(field)]
        if len(named) < len(fields):
            self.notes = (f"{self.path}: an index without a name of its own is left out: it labels the rows",)
        with of_file(file):
            return unique(named)

    @contextmanager
    def _reading(self, file: Path) -> Iterator[ParquetFile]:
        from pyarrow import ArrowException

        try:
            with self._parquet.ParquetFile(file) as opened:
                yield opened
        except (OSError, ArrowException) as error:
            raise DataError(f"{file}: cannot be read as Parquet ({error})") from None

    def parts(self, names: Collection[str], rows: int | None = None) -> Iterator[pd.DataFrame]:
        """Read some columns in parts with at least one row and at most ``rows`` (None: all of a file)."""
        wanted = list(names)
        check_columns(self.path, self.columns, wanted)
        for file in self.files:
            with self._reading(file) as opened:
                for part in [opened.read(wanted)] if rows is None else opened.iter_batches(rows, columns=wanted):
                    if part.num_rows:
                        yield part.to_pandas(ignore_metadata=True)[wanted]

    def frame(self, kinds: Mapping[str, type[Column] | None]) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Return the columns unchanged: the files declare their types."""
        parts = list(self.parts(kinds)) or [pd.DataFrame(columns=list(kinds))]
        words = [name for name in kinds if all(isinstance(part[name].dtype, pd.CategoricalDtype) for part in parts)]
        table = pd.concat(parts).astype(dict.fromkeys(words, "category"))
        return table.set_axis(pd.RangeIndex(1, len(table) + 1)), ()


def _files_of(path: Path) -> list[Path]:
    """Return the Parquet files of a path; other files are ignored if they begin with "_" or "."."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    # By the numbers in their names: Dask writes part.10 after part.2.
    parts = {file: re.split(r"(\d+)", file.name) for file in ([path] if path.is_file() else path.iterdir())}
    found = sorted(parts, key=lambda file: ([int(x) if x.isdecimal() else x for x in parts[file]], file.name))
    found = [file for file in found if is_parquet(file) or not file.name.startswith(("_", "."))]
    for file in found:
        if file.is_dir():
            raise DataError(f"{file}: is a folder in a folder: give pandas.read_parquet({str(path)!r}), a data frame")
        if not is_parquet(file):
            raise DataError(f"{file}: is no Parquet file, and all files of the folder must be")
    if not found:
        raise DataError(f"{path}: has no Parquet files")
    return found


def open_table(path: str | Path, wanted: Collection[str] = ()) -> TextTable | ParquetTable:
    """Read a file: Parquet if it is a folder or ends in .parquet or .pq, any other as CSV (`read_table`)."""
    return ParquetTable(path) if is_parquet(path) else read_table(path, wanted)


@contextmanager
def writing_predictions(path: Path, fresh: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write tables to ``fresh``, which replaces ``path``, as Parquet or CSV; yield a function that adds a table."""
    if not is_parquet(path):
        with fresh.open("w", newline="", encoding="utf-8") as file:
            yield lambda table: table.to_csv(file, index=False, header=not file.tell(), lineterminator="\n")
        return
    parquet = parquet_library(path)
    import pyarrow

    with ExitStack() as stack:
        writers: list[ParquetWriter] = []

        def add(table: pd.DataFrame) -> None:
            rows = pyarrow.Table.from_pandas(table, preserve_index=False)
            if not writers:
                writers.append(stack.enter_context(parquet.ParquetWriter(fresh, rows.schema)))
            writers[0].write_table(rows)

        yield add

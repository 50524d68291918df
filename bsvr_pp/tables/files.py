"""Parquet files, and CSV files with different separators, decimal commas, byte order marks, row labels and compression.

A CSV file is read as text, cell by cell with its line number. Only the requested columns are converted to numbers,
dates or words. An ambiguous cell (1,234 is 1.234 or 1234) gives an error; the meaning is never guessed.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.common import get_handle

from bsvr_pp.tables import DataError, check_columns

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"}
_WORDS = {"true": 1.0, "false": 0.0}
_PACKED = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00", "zip": b"PK\x03\x04"}  # first bytes
_UNPACKED, _RATIO = 2**26, 100  # bytes that any archive may unpack to, and how many times its own size
_OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"  # .xls
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a formula in a spreadsheet

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?")
_THOUSANDS_COMMA = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_THOUSANDS_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_LIKE_A_NUMBER = re.compile(r"[+-]?[\d.,' ]*\d[\d.,' ]*")
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?)(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?")
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b|\d{4}([./])\d{1,2}\2\d{1,2}\b")


@dataclass(frozen=True, slots=True)
class TextTable:
    """The cells of a CSV file as text, by the name of the column and in the order of the file.

    ``lines`` are those on which the rows end, as counted by an editor; ``notes`` tell the user what was recognised.
    """

    path: str
    columns: dict[str, list[str]]
    lines: list[int]
    separator: str
    notes: tuple[str, ...]

    def frame(self, kinds: Mapping[str, str | None]) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Convert some columns to numbers, dates (without their time zone) or words with gaps, and say what was read.

        A column of kind None has numbers or dates, such as 2020-01-31 or 2020-01-31 18:30, if more than half of its
        cells that are not missing have, else words. The table is indexed by the lines of the file.
        """
        known = {name: kind or self._kind(name) for name, kind in kinds.items()}
        numeric = [name for name, kind in known.items() if kind == "number"]
        decimal = self._decimal(numeric)
        columns: dict[str, Any] = {}
        for name, kind in known.items():
            if kind == "number":
                columns[name] = self._numbers(name, decimal)
            elif kind == "date":
                columns[name] = self._dates(name)
            else:
                cells = [None if cell.lower() in _MISSING else cell for cell in self.columns[name]]
                columns[name] = np.array(cells, dtype=object)
        notes = (f"{self.path}: decimal commas are read as decimal points",) if decimal == "," else ()
        return pd.DataFrame(columns, index=self.lines), notes

    def _kind(self, name: str) -> str:
        """Recognise what a column contains."""
        cells = [cell for cell in self.columns[name] if cell.lower() not in _MISSING]
        dates = sum(_DATE.match(cell) is not None or _OTHER_DATE.match(cell) is not None for cell in cells)
        if 2 * dates > len(cells):
            return "date"
        numbers = sum(_LIKE_A_NUMBER.fullmatch(cell) is not None or _number(cell, ".") is not None for cell in cells)
        return "number" if 2 * numbers > len(cells) else "words"

    def _dates(self, name: str) -> Any:
        cells = [None if cell.lower() in _MISSING else cell for cell in self.columns[name]]
        texts = [cell[: match.end(1)] if cell and (match := _DATE.fullmatch(cell)) else None for cell in cells]
        dates = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", errors="coerce")
        for cell, line, bad in zip(cells, self.lines, dates.isna(), strict=True):
            if cell is not None and bad:
                raise DataError(
                    f"{self.path}: column {name!r}, row {line} has {cell!r}, and dates are needed: write them as "
                    "2020-01-31 or 2020-01-31 18:30"
                )
        return dates.to_numpy()

    def _decimal(self, names: Sequence[str]) -> str:
        """Return the decimal sign of some columns."""
        cells = [(name, i, cell) for name in names for i, cell in enumerate(self.columns[name])]
        if self.separator != ",":
            self._check_points(names)
        commas = [(name, i, cell) for name, i, cell in cells if "," in cell]
        if not commas or not all(_DECIMAL_COMMA.fullmatch(cell) for _, _, cell in commas):
            return "."
        if any("." in cell for _, _, cell in cells):
            return "."  # a cell with a comma then gives an error that names it
        if all(_THOUSANDS_COMMA.fullmatch(cell) for _, _, cell in commas):
            self._refuse_two_meanings(*commas[0], ",")
        return ","

    def _check_points(self, names: Sequence[str]) -> None:
        """For files with decimal commas, check that no points may be thousands separators (999; 1.234)."""
        for name in names:
            column = self.columns[name]
            points = [(i, cell) for i, cell in enumerate(column) if "." in cell]
            if points and len(points) < len(column) and all(_THOUSANDS_POINT.fullmatch(cell) for _, cell in points):
                self._refuse_two_meanings(name, *points[0], ".")

    def _refuse_two_meanings(self, name: str, row: int, cell: str, sign: str) -> None:
        raise DataError(
            f"{self.path}: column {name!r}, row {self.lines[row]} has {cell!r}, which is {cell.replace(sign, '.')} or "
            f"{cell.replace(sign, '')}: write numbers with a decimal point and without thousands separators"
        )

    def _numbers(self, name: str, decimal: str) -> Any:
        """A column as numbers, NaN where a cell is missing."""
        numbers = np.full(len(self.lines), np.nan)
        for i, cell in enumerate(self.columns[name]):
            if cell.lower() in _MISSING:
                continue
            value = _number(cell, decimal)
            if value is None:
                raise DataError(
                    f"{self.path}: column {name!r} is not numeric, row {self.lines[i]} has {cell!r}"
                    f"{self._hint(name, cell)}"
                )
            if not np.isfinite(value):
                raise DataError(f"{self.path}: column {name!r} is not finite in row {self.lines[i]}")
            numbers[i] = value
        return numbers

    def _hint(self, name: str, cell: str) -> str:
        if len(self.columns) == 1 and len(cell.split()) > 1:
            return ": separate the columns by commas"
        if _LIKE_A_NUMBER.fullmatch(cell):
            return ": write numbers with a decimal point and without thousands separators"
        column = self.columns[name]
        if len(column) > 1 and _labels(column) and all(_number(other, ".") is None for other in column):
            return ": each row has another text, leave the column out if it identifies the rows"
        return ""


def read_table(path: str | Path) -> TextTable:
    """Read a CSV file with one header row, packed (.gz, .bz2, .xz, .zip) or not.

    Row labels in the first column (of pandas and R), empty columns without a name and empty rows are omitted.
    """
    text = _text(path)
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    rows, lines = [], []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                rows.append(stripped)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV file ({error} in row {reader.line_num})") from None
    if not rows:
        raise DataError(f"{path}: is empty")
    header, *body = rows
    for line, row in zip(lines[1:], body, strict=True):
        if any(row[len(header) :]):
            if row is body[0]:
                raise DataError(f"{path}: the rows have more cells than the header, which has {len(header)}")
            raise DataError(f"{path}: is not a CSV file (row {line} has {len(row)} cells, the header {len(header)})")
    cells_of = [[row[j] if j < len(row) else "" for row in body] for j in range(len(header))]
    notes = [] if separator == "," else [f"{path}: the columns are separated by {_SEPARATORS[separator]}"]
    columns = _named(str(path), header, cells_of, notes)
    return TextTable(str(path), columns, lines[1:], separator, tuple(notes))


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Copy a table for CSV, with an apostrophe before names and text that a spreadsheet would run as a formula."""

    def quoted(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

    return table.rename(columns=quoted, index=quoted).map(quoted)


def _text(path: str | Path) -> str:
    """Return the text of a file, unpacked and without its byte order mark."""
    if "://" in str(path):
        raise DataError(f"{path}: is a web address, give a file")
    try:
        with Path(path).open("rb") as file:
            first = file.read(8)
        packed, names = next((name for name, start in _PACKED.items() if first.startswith(start)), None), [""]
        if packed == "zip":
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        if first.startswith(_OLD_WORKBOOK) or "[Content_Types].xml" in names or "mimetype" in names:
            raise DataError(f"{path}: is a spreadsheet, save it as CSV")
        if len(names) != 1:
            raise DataError(f"{path}: holds {len(names)} files, and one is needed")
        most = max(_UNPACKED, _RATIO * Path(path).stat().st_size)
        with get_handle(path, "rb", compression=packed, is_text=False) as opened:
            content = bytes(opened.handle.read(most + 1))
        if len(content) > most:
            raise DataError(f"{path}: unpacks to more than {most >> 20} MB: unpack it first, if it is a table")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:  # a folder, no permission, a broken archive
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, RuntimeError, LZMAError, zipfile.BadZipFile, zlib.error) as error:  # RuntimeError: a password
        raise DataError(f"{path}: cannot be unpacked ({error})") from None


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


def _named(path: str, header: list[str], cells: list[list[str]], notes: list[str]) -> dict[str, list[str]]:
    """Return the columns by name, without row labels and without empty columns that have no name."""
    numeric = [_number(name, ".") is not None for name in header]
    if all(numeric) and header != [str(j) for j in range(len(header))]:
        raise DataError(f"{path}: the first row holds numbers, and the names of the columns are needed")
    columns: dict[str, list[str]] = {}
    for j, (name, column) in enumerate(zip(header, cells, strict=True)):
        if name in columns:
            raise DataError(f"{path}: column name {name!r} stands more than once")
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
    if len(set(column)) < len(column):
        return False
    numbers = [_number(cell, ".") for cell in column]
    return all(value is None or float(value).is_integer() for value in numbers)


def _number(cell: str, decimal: str) -> float | None:
    """Return the number in a cell; None if there is none."""
    if cell.lower() in _WORDS:
        return _WORDS[cell.lower()]
    if "_" in cell:  # Python allows this between digits
        return None
    try:
        return float(cell.replace(",", ".") if decimal == "," else cell)
    except ValueError:
        return None


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


def opened(path: str | Path, names: list[str] | None = None) -> TextTable | ParquetTable:
    """Read a file: Parquet if it ends in .parquet or .pq, any other as CSV; of Parquet some columns (None: all)."""
    return ParquetTable(path, names) if is_parquet(path) else read_table(path)


@contextmanager
def writing_predictions(path: Path, fresh: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write a table to ``fresh``, which replaces ``path``; as Parquet if ``path`` ends so, else as CSV.

    What is yielded adds rows, a table with the same columns each time.
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

"""Columns of a table as numbers: words, dates and gaps are encoded, and the encoding is kept as plain data.

`summarize` collects the data of each column for the encoding; `merged` joins the summaries of parts of a table.
`Encoding.of` makes the encoding from them: it is immutable, transforms other tables, and is saved as JSON. Gaps in the
training rows add an indicator. They are filled with the median or, by `Encoding.of_table`, by a linear regression.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from decimal import Decimal
from typing import ClassVar, NoReturn, cast
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.core.arrays import Array, is_number, numbers
from bsvr_pp.tables import DataError, unique

_DATE_PARTS = ("year", "day of year", "day of week", "hour")
_KEPT = 10_000  # number of values of a column that are kept for its median
FEW, _MOST, _CELLS = 50, 1000, 10_000_000  # words of a column with an indicator: always, most, and cells if more
ANOTHER = " is another word"  # end of the name of an indicator of all other words, which no training row may have
_SHOWN = 5  # number of words that are named in a note
_CODES = 10  # up to this number of words such as 3G, they are words
_NINES = 999, 9999, 99999, 999999  # numbers, also with a minus, that people write where there is no value,
_FAR, _AGAIN = 10.0, 3  # if they are this many ranges away from all other values, in at least so many rows
_ROUNDED = 2.0**53  # whole numbers from here on may be rounded
_WHOLE = r"^(-?\d+)\.0+$"  # a category that became a float because of gaps
# A number with a sign or unit, or a date; not 3rd, 10-20, 60+ and A4.
_WRITTEN = re.compile(
    r"(?:USD|EUR|GBP|CHF|US(?=\$))?[^\w#*]*(?:\d{1,3}(?:[\s'’.,]\d{3})+(?:[.,]\d+)?|\d*[.,]?\d+[.,]?)(?:[eE][+-]?\d+)?"
    r"(?!st\b|nd\b|rd\b|th\b)[^\d#*+!?-]*(?:(?<=m)[23])?-?|\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
)
# Several numbers, a fraction of a number with anything behind, and times; not 10-20, 1A, 5*, 1.2.10 and 10.0.0.1.
_SEVERAL = re.compile(
    r"\W*\d*[.,]\d+(?![.,]?\d).*|(?:\d+ )?\d+/\d+|0x[0-9a-fA-F]+|(?:\d+ ?(?:[^\W\d]{1,5}|['’\"°])[., ]*){2,}[NSEW]?"
    r"|(?:\d+ days? )?\d+(?::\d\d)+(?: ?[apAP]\.?[mM]\.?)?|\d{4}-?[QW]\d\d?|Q\d[ -]\d{4}|\d{4}-(?:0[1-9]|1[0-2])"
    r"|(?:\d+[-. ])?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[-. ]+(?:\d+, )?\d{2,4}"
    r"|(?:\d{1,2}([./-])\d{1,2}\1(?:19|20)\d\d|(?:19|20)\d\d/\d{1,2}/\d{1,2})(?:[T ]\d.*)?"
)
_LISTED = re.compile(r"\d+\. [^\W\d]")  # 1. Yes and 2. No
_NO_UNIT = re.compile(r"[-+−–—()<>≤≥~≈±\s\d.,:'’]")


@dataclass(frozen=True, slots=True)
class Summary:
    """The data of a column, or of some of its rows, for an encoding: numbers of ``known`` rows and ``gaps``.

    ``words`` has the number of rows with each word. ``values`` has the sorted values of the number, or of each part of
    the date in a ``zone`` or none. These are all values, or 10,000 with even ranks. Gaps alone are of any ``kind``.
    ``categories`` says that pandas holds the words as categories: they may look like numbers.
    """

    kind: type[Column]
    known: int
    gaps: int
    words: Mapping[str, int]
    values: tuple[Array, ...]
    zone: str | None = None
    categories: bool = False

    def joined(self, name: str, other: Summary) -> Summary:
        """Return the summary of the rows of both parts of a column."""
        gaps = self.gaps + other.gaps
        if not (self.known and other.known):
            return replace(self if self.known else other, gaps=gaps)
        if self.kind is not other.kind:
            raise DataError(f"column {name!r} contains both {self.kind.plural} and {other.kind.plural}")
        if self.zone != other.zone:
            _refuse_clocks(name, self.zone, " and ", other.zone)
        words, counts = Counter(self.words) + Counter(other.words), (self.known, other.known)
        values = tuple(_thinned((a, b), counts) for a, b in zip(self.values, other.values, strict=True))
        categories = self.categories and other.categories
        return Summary(self.kind, sum(counts), gaps, words, values, self.zone, categories)


def table_of(data: object, which: str = "columns") -> pd.DataFrame | None:
    """Return a table of pandas, or with ``to_pandas`` (Polars), with column names as text; otherwise None."""
    found = data.to_pandas() if hasattr(data, "to_pandas") else data
    if not isinstance(found, pd.DataFrame):
        return None
    table = found.set_axis(unique(map(str, found.columns), which), axis=1)
    arrow = [name for name, dtype in table.dtypes.items() if isinstance(dtype, pd.ArrowDtype)]
    return table.astype(dict.fromkeys(arrow, object)) if arrow else table


def place_of(column: object, names: Sequence[str]) -> int | None:
    """Return the place of a column by its name, or by its number if no column has this name; None if there is none."""
    known = isinstance(column, str) or is_number(column)
    if known and str(column) in names:
        return names.index(str(column))
    return int(cast(int, column)) if known and column in range(len(names)) else None


def summarize(table: pd.DataFrame) -> dict[str, Summary]:
    """Summarize the columns of a table: numbers, words (text or categories) and dates, possibly with gaps."""
    found = {}
    for name, values in table.items():
        present = values[values.notna()]
        kind, n = kind_of(str(name), present) if len(present) else Words, len(present)
        words, columns, zone = kind._content(str(name), present) if n else ({}, (), None)
        numbers = tuple(_thinned((column,), (n,)) for column in columns)
        if kind is Numbers and numbers[0][0] == numbers[0][-1] and present.nunique() > 1:
            raise DataError(f"column {name!r} has differences that are lost in rounding, got only {numbers[0][0]:g}")
        categories = isinstance(values.dtype, pd.CategoricalDtype)
        found[str(name)] = Summary(kind, n, len(values) - n, words, numbers, zone, categories)
    return found


def merged(one: Mapping[str, Summary], other: Mapping[str, Summary]) -> dict[str, Summary]:
    """Merge the summaries of two parts of a table."""
    return {name: summary.joined(name, other[name]) for name, summary in one.items()}


def kind_of(name: str, values: pd.Series) -> type[Column]:
    """Return what a column contains: numbers, words or dates."""
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    for kind in KINDS.values():
        if inferred in kind.types.split():
            return kind
    raise DataError(
        f"column {name!r} must have numbers, words or dates, it has the type {values.dtype} ({inferred}): "
        "convert it, or leave it out"
    )


def finite_numbers(name: str, values: pd.Series) -> Array:
    """Return a column of finite numbers, NaN where there is none."""
    numbers = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        row = values.index[np.isinf(numbers)][0]
        raise DataError(f"column {name!r} is not finite in row {row}: leave the row out, or the cell empty (NaN)")
    return numbers


def times_of(name: str, values: pd.Series) -> tuple[pd.Series, str | None]:
    """Return a column of dates as times, and their zone: UTC for several zones, None for none."""
    of_each = (str(getattr(value, "tzinfo", None)) for value in values.dropna())
    zones = set(of_each) if values.dtype == object else {str(values.dt.tz)}
    if zones <= {"None"}:
        return pd.to_datetime(values), None
    if "None" in zones:
        _refuse_clocks(name, None, " and ", max(zones - {"None"}))
    zone = zones.pop() if len(zones) == 1 else "UTC"
    if not _is_zone(zone):
        zone = "UTC"  # if another machine may not know its name
    return pd.to_datetime(values, utc=True).dt.tz_convert(zone), zone


def _is_zone(zone: str) -> bool:
    """Return whether a zone has a name that exists on every machine."""
    return zone in available_timezones() or re.fullmatch(r"UTC[+-]\d\d:\d\d", zone) is not None


def _refuse_clocks(name: str, zone: str | None, between: str, other: str | None) -> NoReturn:
    zones = between.join("without a zone" if each is None else f"in the zone {each}" for each in (zone, other))
    raise DataError(
        f"column {name!r} has times {zones}: make them alike by dt.tz_localize or dt.tz_convert, in CSV by an offset "
        "behind each, such as +01:00"
    )


def _clock(times: pd.Series) -> tuple[Array, ...]:
    """Return the parts of dates, NaN where there is none; in days of a leap year, so that 4 July has one value."""
    clock = times.dt.tz_localize(None).dt
    seconds = clock.second + clock.microsecond / 1e6 + clock.nanosecond / 1e9
    day = clock.day_of_year.where((clock.month < 3) | clock.is_leap_year, clock.day_of_year + 1)
    hour = clock.hour + (clock.minute + seconds / 60) / 60
    year = clock.year + (day - 1 + hour / 24) / 366  # a whole year would be a step at each New Year's Day
    parts = (year, day, clock.day_of_week, hour)
    return tuple(part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts)


def _words_of(values: pd.Series) -> NDArray[np.object_]:
    """Return words of a column as text, empty where there is none; categories of one value are one word."""
    number, found = pd.factorize(values)
    return np.array([*map(_word, found), ""], dtype=object)[number]


def _word(value: object) -> str:
    """Return the text of a category: 1.0 is 1, 1.50 as a decimal is 1.5, and a time is in UTC, without 00:00:00."""
    if isinstance(value, date):
        time = pd.Timestamp(value)
        value = str(time.tz_convert("UTC") if time.tz else time).removesuffix(" 00:00:00")
    if isinstance(value, Decimal | float):
        value = int(value) if float(value).is_integer() else float(value)
    return re.sub(_WHOLE, r"\1", str(value))


def refuse_written_numbers(name: str, words: Collection[str]) -> None:
    """Refuse words if more than three quarters are numbers with a sign, a symbol or one unit, not a few such as 1. Yes.

    More than ten such words also include letters directly behind whole numbers (3G), plain numbers with a fraction,
    several units or numbers, and times.
    """
    few = len(words) <= _CODES
    written = [word for word in words if _WRITTEN.fullmatch(word) and not (few and _LISTED.match(word))]
    units = {word: _NO_UNIT.sub("", word) for word in written}
    common = [unit for unit, _ in Counter(filter(None, units.values())).most_common(3)]
    first = ("", *common[:1])
    alike = [word for word, unit in units.items() if unit in first]
    beside = [word for word in alike if re.search(r"[^\w.,]", word.lstrip("+-"))]
    spaced = {word for word, unit in units.items() if unit in common and " " in word and len(unit) < 5}
    several = [word for word in words if units.get(word) not in first and (word in spaced or _SEVERAL.fullmatch(word))]
    broken = several or [word for word in alike if re.search(r"[.,]\d*[1-9]|,\d{3}", word)]
    alike += several
    many = len(alike) > _CODES and (common or broken)
    if 4 * len(alike) > 3 * len(words) and (beside or many):
        raise DataError(
            f"column {name!r} has numbers or dates as text, such as {(beside or broken or alike)[0]!r}: convert it (in "
            "CSV write -1234.5 alone), leave it out, or make it a category (in CSV by a letter before the number)"
        )


def class_labels(name: str, values: pd.Series) -> NDArray[np.int64] | NDArray[np.str_]:
    """Return labels of ordered classes: whole numbers, or words that are not numbers; without gaps."""
    kind = kind_of(name, values)
    if kind is Words:
        words: NDArray[np.str_] = values.to_numpy().astype(str)
        refuse_written_numbers(name, dict.fromkeys(words.tolist()))
        return words
    if kind is not Numbers:
        raise DataError(f"column {name!r} must have numbers or words to be ordered classes, it has {kind.plural}")
    found = finite_numbers(name, values)
    for row in np.flatnonzero((found != np.round(found)) | (np.abs(found) >= _ROUNDED)):
        rounded = ", which may be rounded" if abs(found[row]) >= _ROUNDED else ""
        raise DataError(
            f"column {name!r} must have whole numbers or words to be ordered classes, it has {found[row]:g} in "
            f"row {values.index[row]}{rounded}"
        )
    return found.astype(np.int64)


def _thinned(parts: Sequence[Array], counts: Sequence[int]) -> Array:
    """Return sorted values of several parts with their numbers of rows; above 10,000, at evenly spaced ranks.

    A part that was thinned before has more rows than values.
    """
    values = np.concatenate(parts)
    if values.size <= _KEPT:
        return np.sort(values)
    share = [count / max(part.size, 1) for part, count in zip(parts, counts, strict=True)]
    weight = np.repeat(share, [part.size for part in parts])
    # Include the smallest and the largest, which show whether a column varies.
    return np.asarray(np.quantile(values, np.linspace(0.0, 1.0, _KEPT), weights=weight, method="inverted_cdf"))


@dataclass(frozen=True, slots=True)
class Column(ABC):
    """The encoding of one column; its class is what the column contains.

    ``parts`` are the words that have an indicator, or the parts of a date that vary, in a ``zone`` or without one.
    ``medians`` fill gaps: of the number, or of each part of the date. ``gaps`` counts gaps in the training rows; if
    there are any, the last encoded column is their indicator. ``others`` counts the words of the training rows without
    an indicator; they, and words of other tables, share one if there is ``another``. ``regression`` fills gaps of the
    number: an intercept, and a slope of each encoded column.
    """

    name: str
    parts: tuple[str, ...] = ()
    medians: tuple[float, ...] = ()
    gaps: int = 0
    others: int = 0
    regression: tuple[float, ...] = ()
    zone: str | None = None
    another: bool = False

    key: ClassVar[str]  # in files
    plural: ClassVar[str]  # in messages
    types: ClassVar[str]  # of pandas
    between: ClassVar[str] = " "  # between the name and a part
    tied: ClassVar[bool] = False  # whether all parts have one lengthscale
    filled: ClassVar[str] = "filled with the median"  # for new gaps
    blank: ClassVar[tuple[float, ...]] = ()  # value of each part in a gap, without medians
    fewest: ClassVar[float] = np.inf  # smallest number of known values for a regression that fills gaps

    @classmethod
    @abstractmethod
    def _content(cls, name: str, values: pd.Series) -> tuple[Mapping[str, int], Sequence[Array], str | None]:
        """Return words with their numbers of rows, or numbers, or the parts of dates and their zone; without gaps."""

    @classmethod
    def _of(cls, name: str, summary: Summary, most: int) -> Column:
        """Return the encoding of a column, with indicators of the ``most`` frequent words, or why it has none."""
        return cls(name, (), tuple(float(np.median(values)) for values in summary.values), summary.gaps)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        names = [f"{self.name}{self.between}{part}" for part in self.parts] or [self.name]
        names += [f"{self.name}{ANOTHER}"] * self.another
        return (*names, f"{self.name} is missing") if self.gaps else tuple(names)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        how = "a regression on the others" if self.regression else "the median"
        gaps = f"column {self.name!r} has {self.gaps} gaps: they are filled with {how}, and an indicator is added"
        return (gaps,) if self.gaps else ()

    def transform(self, values: pd.Series) -> tuple[list[Array], tuple[str, ...]]:
        """Return encoded columns, and notes on words and gaps that the training rows lack."""
        missing, fills = values.isna().to_numpy(), self.medians or self.blank * (len(self.parts) + self.another)
        found, notes = ([np.full(len(values), np.nan)] * len(fills), ()) if missing.all() else self._encoded(values)
        encoded = [np.where(missing, fill, column) for fill, column in zip(fills, found, strict=True)]
        if self.gaps:
            encoded.append(missing.astype(np.float64))
        elif missing.any():
            gaps = f"column {self.name!r} has {missing.sum()} gaps, and had none in training: they are {self.filled}"
            notes = (*notes, gaps)
        return encoded, notes

    def _encoded(self, values: pd.Series) -> tuple[Sequence[NDArray[np.generic]], tuple[str, ...]]:
        """Compute `transform` with any value in gaps, and without the indicator of gaps."""
        self._check_kind(values)
        return self._content(self.name, values)[1], ()

    def _check_kind(self, values: pd.Series) -> None:
        kind = kind_of(self.name, values)
        if not isinstance(self, kind):
            raise DataError(f"column {self.name!r} must have {self.plural}, it has {kind.plural}")


class Numbers(Column):
    """A column of numbers, which are not changed."""

    key, plural, types = "number", "numbers", "boolean decimal integer floating mixed-integer-float"
    fewest = 10

    @classmethod
    def _content(cls, name: str, values: pd.Series) -> tuple[Mapping[str, int], Sequence[Array], None]:
        return {}, [finite_numbers(name, values)], None


class Words(Column):
    """A column of words: each has an indicator (0 or 1), others have none or share one; all have one lengthscale."""

    key, plural, types = "words", "words", "string empty categorical"
    between, tied, filled, blank = "=", True, "encoded as no word", (0.0,)

    @classmethod
    def _content(cls, name: str, values: pd.Series) -> tuple[Mapping[str, int], Sequence[Array], None]:
        return Counter(_words_of(values).tolist()), (), None

    @classmethod
    def _of(cls, name: str, summary: Summary, most: int) -> Column:
        words = summary.words
        if not words:
            raise DataError(f"column {name!r} has no values: leave it out")
        if not summary.categories:
            refuse_written_numbers(name, words)
        if len(words) == 1 and not summary.gaps:
            raise DataError(f"column {name!r} is constant ({next(iter(words))!r}): leave it out")
        if len(words) > 1 and max(words.values()) == 1:
            raise DataError(
                f"column {name!r} has another text in each row: leave it out if it identifies the rows, or convert "
                "it if it has numbers"
            )
        enough = max(FEW, min(most, _CELLS // (summary.known + summary.gaps)))
        common = sorted(words, key=lambda word: (-words[word], word))[:enough]
        others = len(words) - len(common)
        another = len(words) > 2  # of two such as yes and no there is rarely a third
        return cls(name, tuple(sorted(common)), (), summary.gaps, others, another=another)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        shown = ", ".join(self.parts[:_SHOWN]) + (", …" if len(self.parts) > _SHOWN else "")
        rest = f"; {self.others} rarer words share one" if self.others else ""
        said = f"column {self.name!r} has words: an indicator for each of {len(self.parts)} ({shown}){rest}"
        gaps = f"column {self.name!r} has {self.gaps} gaps: an indicator is added"
        return (said, gaps) if self.gaps else (said,)

    def _encoded(self, values: pd.Series) -> tuple[Sequence[NDArray[np.bool_]], tuple[str, ...]]:
        words = _words_of(values)
        place = pd.Index(self.parts, dtype=object).get_indexer(words)  # arrays of text would lose NUL at the end
        unknown = values.notna().to_numpy() & (place < 0)
        found = [place == k for k in range(len(self.parts))] + [unknown] * self.another
        if not unknown.any():
            return found, ()
        kinds = sorted(set(words[unknown].tolist()))
        shown = ", ".join(map(repr, kinds[:_SHOWN])) + (", …" if len(kinds) > _SHOWN else "")
        how = "another word" if self.another else "none"
        note = f"has words without an indicator ({shown}) in {unknown.sum()} rows: they are encoded as {how}"
        return found, (f"column {self.name!r} {note}",)


class Dates(Column):
    """Dates: year, day of the (leap) year, day of the week (Monday is 0) and hour with its fraction if they vary."""

    key, plural, types = "date", "dates", "date datetime datetime64"

    @classmethod
    def _content(cls, name: str, values: pd.Series) -> tuple[Mapping[str, int], Sequence[Array], str | None]:
        times, zone = times_of(name, values)
        return {}, _clock(times), zone

    @classmethod
    def _of(cls, name: str, summary: Summary, most: int) -> Column:
        # The year varies only with its number: within one, the day and the hour are enough.
        ends = [(np.floor(v[0]), np.floor(v[-1])) if i == 0 else (v[0], v[-1]) for i, v in enumerate(summary.values)]
        varying = [i for i, (first, last) in enumerate(ends) if first < last] or [0] * bool(summary.gaps)
        if not varying:
            raise DataError(f"column {name!r} is constant (one date): leave it out")
        medians = tuple(float(np.median(summary.values[i])) for i in varying)
        return cls(name, tuple(_DATE_PARTS[i] for i in varying), medians, summary.gaps, zone=summary.zone)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        parts = ", ".join(self.parts) + (f" in the zone {self.zone}" if self.zone else "")
        return (f"column {self.name!r} has dates: they are encoded as {parts}", *super().notes)

    def _encoded(self, values: pd.Series) -> tuple[Sequence[Array], tuple[str, ...]]:
        self._check_kind(values)
        times, zone = times_of(self.name, values)
        if (zone is None) != (self.zone is None):
            _refuse_clocks(self.name, zone, ", and in training ", self.zone)
        clock = _clock(times if zone is None else times.dt.tz_convert(self.zone))
        return [clock[_DATE_PARTS.index(part)] for part in self.parts], ()


KINDS: dict[str, type[Column]] = {kind.key: kind for kind in (Numbers, Words, Dates)}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of the input columns of a table, in the order of the training table."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, summaries: Mapping[str, Summary], most: int = _MOST) -> Encoding:
        """Make the encoding from the summaries of the columns; ``most`` words of each have an indicator."""
        encoding = cls(tuple(summary.kind._of(name, summary, most) for name, summary in summaries.items()))
        unique(encoding.names, "encoded columns would")
        return encoding

    @classmethod
    def of_table(cls, table: pd.DataFrame, most: int = _MOST) -> Encoding:
        """Make the encoding `of` a table, with the regressions that fill gaps of its numbers."""
        encoding = cls.of(summarize(table), most)
        inputs, _ = encoding.transform(table)
        columns = []
        for column in encoding.columns:
            known = table[column.name].notna().to_numpy()
            if column.gaps and known.sum() >= column.fewest:
                others, place = inputs[known], encoding.names.index(column.name)
                others[:, place : place + 2] = 0.0  # the column and its indicator
                column = replace(column, regression=_regression(others, inputs[known, place]))
            columns.append(column)
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns, the inputs of a model."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def tied(self) -> tuple[int, ...] | None:
        """Group number of each input, 0, 1, ..., shared by the inputs of one column of words; None without words."""
        keys = [(k, "" if column.tied else name) for k, column in enumerate(self.columns) for name in column.names]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return tuple(numbers[key] for key in keys) if len(numbers) < len(keys) else None

    @property
    def plain(self) -> bool:
        """Whether all columns are unchanged numbers."""
        return self.names == tuple(self.kinds)

    @property
    def kinds(self) -> dict[str, type[Column]]:
        """The required content of each column of a table."""
        return {column.name: type(column) for column in self.columns}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        return tuple(note for column in self.columns for note in column.notes)

    def transform(self, table: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
        """Encode a table with these columns to inputs (n, k); notes are on unknown words, and on gaps that are new."""
        found = [column.transform(table[column.name]) for column in self.columns]
        encoded = [np.empty((0, len(table))), *(np.array(columns) for columns, _ in found)]
        inputs = np.ascontiguousarray(np.concatenate(encoded).T)
        filled = inputs.copy()
        for column in self.columns:
            if column.regression:
                gaps = table[column.name].isna().to_numpy()
                intercept, *slopes = column.regression
                filled[gaps, self.names.index(column.name)] = intercept + (inputs[gaps] * slopes).sum(axis=1)
        return filled, tuple(note for _, notes in found for note in notes)

    def codes(self, X: Array) -> list[str]:
        """Notes on numbers such as -999 in training inputs (n, k), which may stand for gaps: far off, and repeated."""
        extreme = np.isin(np.abs([X.min(axis=0), X.max(axis=0)]), _NINES).any(axis=0)
        each = np.flatnonzero(extreme)  # a whole column of a file is read only then
        return [note for k in each for note in self.codes_of(self.names[k], X[:, k], "leave these cells empty (NaN)")]

    @staticmethod
    def codes_of(name: str, values: Array, remedy: str) -> list[str]:
        """Notes of `codes` on one column."""
        notes, coded = [], np.isin(np.abs(values), _NINES)
        others = values[~coded]
        for code, count in zip(*np.unique(values[coded], return_counts=True), strict=True) if others.size else ():
            away = max(others.min() - code, code - others.max())
            if count >= _AGAIN and away >= _FAR * np.ptp(others) > 0:
                known = f"far from all others: {remedy}, if they have no value"
                notes.append(f"column {name!r} has {code:.0f} in {count} rows, {known}")
        return notes

    def to_json(self) -> str:
        """Write the encoding as JSON."""
        return json.dumps([{"name": column.name, "kind": column.key} | asdict(column) for column in self.columns])

    @classmethod
    def from_json(cls, text: str, inputs: int | str = "d") -> Encoding:
        """Read an encoding from the JSON of `to_json`, and test it; ``inputs`` is its required number of inputs."""
        try:
            columns = []
            for row in json.loads(text):
                lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
                columns.append(column := KINDS[row.pop("kind")](**row | lists))
                if not all(isinstance(part, str) for part in column.parts):
                    raise ValueError(f"the words of {column.name} must be text")
                if column.zone is not None and not (isinstance(column.zone, str) and _is_zone(column.zone)):
                    raise ValueError(f"{column.zone!r} is no zone")
            encoding = cls(tuple(columns))
            gaps, _ = encoding.transform(pd.DataFrame(None, range(2), list(encoding.kinds)))
            numbers("what it gives", gaps, (2, inputs))
            return encoding
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"the encoding of the columns cannot be read ({error})") from None


def _regression(X: Array, y: Array) -> tuple[float, ...]:
    """Return intercept and slopes of a Bayesian ridge regression of a column on others, standardised (MacKay 1992)."""
    from sklearn.linear_model import BayesianRidge  # tables without gaps do not need it

    mean, width, unit = X.mean(axis=0), X.std(axis=0), y.std() or 1.0
    width = np.where(width > 0, width, 1.0)
    slopes = BayesianRidge().fit((X - mean) / width, (y - y.mean()) / unit).coef_ * unit / width
    return (float(y.mean() - mean @ slopes), *slopes.tolist())

"""Columns of a table as numbers: words, dates and gaps are encoded, and the encoding is kept as plain data.

`summarize` says what the encoding needs to know of each column. `merged` joins the summaries of two parts of a table,
which need not fit into memory together. `Encoding.of` makes the encoding from them: it is immutable, transforms other
tables with the same columns, and is saved as JSON.

- Numbers stay as they are.
- Words get an indicator (0 or 1) each, and a word that the encoding does not know is none of them. Default models have
  one lengthscale for all words of a column (`Encoding.tied`).
- Dates become year, day of the year, day of the week (Monday is 0) and hour with its fraction, as far as they vary, in
  the zone of the training rows, or in UTC if they have several. Text such as 5 % or 1.2 km is refused.
- Gaps in the training rows add an indicator of their own. They are filled with the median, or for numbers, if the
  encoding is made from a table (`Encoding.of_table`), by a linear regression on the other encoded columns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Literal, NoReturn
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp._arrays import Array
from bsvr_pp._checks import numbers
from bsvr_pp.tables import DataError, unique

Kind = Literal["number", "words", "date"]

PLURAL = {"number": "numbers", "words": "words", "date": "dates"}
_DATE_PARTS = ("year", "day of year", "day of week", "hour")
_KEPT = 10_000  # number of values of a column that are kept for its median
_MOST = 50  # largest number of words of a column that have an indicator
_SHOWN = 5  # number of words that are named in a note
_FEWEST = 10  # values of a column, below which gaps are filled with the median
_CODES = 10  # number of words such as 3G, up to which they are words
_WHOLE = r"^(-?\d+)\.0+$"  # a category that became a float beside gaps
# A number with what people write beside it, or a date; not 3rd, 10-20, 60+ and A4.
_WRITTEN = re.compile(
    r"(?:USD|EUR|GBP|CHF|US(?=\$))?[^\w#*]*(?:\d{1,3}(?:[\s'’.,]\d{3})+(?:[.,]\d+)?|\d*[.,]?\d+[.,]?)(?:[eE][+-]?\d+)?"
    r"(?!st\b|nd\b|rd\b|th\b)[^\d#*+!?-]*(?:(?<=m)[23])?-?|\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
)
# Several numbers, a fraction of a number with anything behind, and times; not 10-20, 1A, 5* and 10.0.0.1.
_SEVERAL = re.compile(
    r"\W*\d*[.,]\d+(?![.,]?\d).*|(?:\d+ )?\d+/\d+|0x[0-9a-fA-F]+|(?:\d+ ?(?:[^\W\d]{1,5}|['’\"°])[., ]*){2,}[NSEW]?"
    r"|(?:\d+ days? )?\d+(?::\d\d)+(?: ?[apAP]\.?[mM]\.?)?|\d{4}-?[QW]\d\d?|Q\d[ -]\d{4}|\d{4}-(?:0[1-9]|1[0-2])"
    r"|(?:\d+[-. ])?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[-. ]+(?:\d+, )?\d{2,4}"
)
_NO_UNIT = re.compile(r"[-+−–—()<>≤≥~≈±\s\d.,:'’]")
_INFERRED: dict[Kind, str] = {  # types by pandas
    "number": "boolean decimal integer floating mixed-integer-float",
    "words": "string empty categorical",
    "date": "date datetime datetime64",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What an encoding needs to know of a column, or of some of its rows.

    ``kind`` is None if all rows are gaps, and ``zone`` that of dates. ``words`` has the number of rows with each word.
    ``values`` has the sorted values of the number, or of each part of the date: all, or 10,000 with even ranks.
    """

    kind: Kind | None
    rows: int
    gaps: int
    words: Mapping[str, int]
    values: tuple[Array, ...]
    zone: str | None = None

    def joined(self, name: str, other: Summary) -> Summary:
        """Summary of the rows of both parts of a column."""
        if self.kind is None or other.kind is None:
            known = self if other.kind is None else other
            return replace(known, rows=self.rows + other.rows, gaps=self.gaps + other.gaps)
        if self.kind != other.kind:
            raise DataError(f"column {name!r} contains both {PLURAL[self.kind]} and {PLURAL[other.kind]}")
        if self.zone != other.zone:
            _refuse_clocks(name, self.zone, " and ", other.zone)
        words = Counter(self.words) + Counter(other.words)
        counts = (self.rows - self.gaps, other.rows - other.gaps)
        values = tuple(_thinned((a, b), counts) for a, b in zip(self.values, other.values, strict=True))
        return Summary(self.kind, self.rows + other.rows, self.gaps + other.gaps, words, values, self.zone)


def table_of(data: Any) -> pd.DataFrame | None:
    """A table, of pandas or with ``to_pandas`` such as those of Polars, with the names of its columns as text.

    None for anything else. Columns of Arrow have objects then. DataError if two columns have one name.
    """
    found = data.to_pandas() if hasattr(data, "to_pandas") else data
    if not isinstance(found, pd.DataFrame):
        return None
    table = found.set_axis(unique(map(str, found.columns)), axis=1)
    arrow = [name for name, dtype in table.dtypes.items() if isinstance(dtype, pd.ArrowDtype)]
    return table.astype(dict.fromkeys(arrow, object)) if arrow else table


def summarize(table: pd.DataFrame) -> dict[str, Summary]:
    """Summarize the columns of a table: numbers, words (text or categories) and dates, possibly with gaps."""
    return {str(name): _summary(str(name), table[name]) for name in table.columns}


def merged(one: Mapping[str, Summary], other: Mapping[str, Summary]) -> dict[str, Summary]:
    """Merge the summaries of two parts of a table."""
    return {name: summary.joined(name, other[name]) for name, summary in one.items()}


def kind_of(name: str, values: pd.Series[Any]) -> Kind:
    """Return what a column contains: numbers, words or dates."""
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    for kind, types in _INFERRED.items():
        if inferred in types.split():
            return kind
    raise DataError(
        f"column {name!r} must have numbers, words or dates, it has the type {values.dtype} ({inferred}): "
        "convert it, or leave it out"
    )


def finite_numbers(name: str, values: pd.Series[Any]) -> Array:
    """Return a column of finite numbers, NaN where there is none."""
    numbers = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        row = values.index[np.isinf(numbers)][0]
        raise DataError(f"column {name!r} is not finite in row {row}: leave the row out, or the cell empty (NaN)")
    return numbers


def times_of(name: str, values: pd.Series[Any]) -> tuple[pd.Series[Any], str | None]:
    """Return a column of dates as times, and their zone: UTC if they have several, None if they have none."""
    of_each = (str(getattr(value, "tzinfo", None)) for value in values.dropna())
    zones = set(of_each) if values.dtype == object else {str(values.dt.tz)}
    if zones <= {"None"}:
        return pd.to_datetime(values), None
    if "None" in zones:
        _refuse_clocks(name, None, " and ", max(zones - {"None"}))
    zone = zones.pop() if len(zones) == 1 else "UTC"
    if not _is_zone(zone):
        zone = "UTC"  # where another machine may not know its name
    return pd.to_datetime(values, utc=True).dt.tz_convert(zone), zone


def _is_zone(zone: str) -> bool:
    """Whether a zone has a name that every machine knows."""
    return zone in available_timezones() or re.fullmatch(r"UTC[+-]\d\d:\d\d", zone) is not None


def _refuse_clocks(name: str, zone: str | None, between: str, other: str | None) -> NoReturn:
    zones = between.join("without a zone" if each is None else f"in the zone {each}" for each in (zone, other))
    raise DataError(
        f"column {name!r} has times {zones}: make them alike by dt.tz_localize or dt.tz_convert, in CSV by an offset "
        "behind each, such as +01:00"
    )


def _clock(times: pd.Series[Any]) -> tuple[Array, ...]:
    """The parts of dates, with NaN where there is none."""
    clock = times.dt.tz_localize(None).dt
    seconds = clock.second + clock.microsecond / 1e6 + clock.nanosecond / 1e9
    parts = (clock.year, clock.day_of_year, clock.day_of_week, clock.hour + (clock.minute + seconds / 60) / 60)
    return tuple(part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts)


def _words_of(values: pd.Series[Any]) -> NDArray[Any]:
    """Words of a column as text, empty where there is none; categories of one value are one word."""
    number, found = pd.factorize(values)
    return np.array([*map(_word, found), ""], dtype=object)[number]


def _word(value: Any) -> str:
    """Text of a category: 1.0 is 1, 1.50 as a decimal is 1.5, and a time is that in UTC, without 00:00:00."""
    if isinstance(value, date):
        time = pd.Timestamp(value)
        value = str(time.tz_convert("UTC") if time.tz else time).removesuffix(" 00:00:00")
    return re.sub(_WHOLE, r"\1", str(float(value) if isinstance(value, Decimal) else value))


def _summary(name: str, values: pd.Series[Any]) -> Summary:
    present = values[~values.isna()]
    rows, gaps, zone = len(values), len(values) - len(present), None
    if rows == gaps:
        return Summary(None, rows, gaps, {}, ())
    kind = kind_of(name, present)
    if kind == "words":
        found = Counter(_words_of(present).tolist())
        if not isinstance(values.dtype, pd.CategoricalDtype):
            refuse_written_numbers(name, found)
        return Summary(kind, rows, gaps, found, ())
    if kind == "date":
        times, zone = times_of(name, present)
    columns = (finite_numbers(name, present),) if kind == "number" else _clock(times)
    return Summary(kind, rows, gaps, {}, tuple(_thinned((column,), (len(present),)) for column in columns), zone)


def refuse_written_numbers(name: str, words: Collection[str]) -> None:
    """Refuse words of which more than three quarters are numbers, with a sign, a symbol or one unit beside them.

    Letters right behind whole numbers, as in 3G, nothing beside numbers with a fraction, several units or numbers, and
    times do if there are more than ten such words.
    """
    units = {word: _NO_UNIT.sub("", word) for word in words if _WRITTEN.fullmatch(word)}
    common = [unit for unit, _ in Counter(filter(None, units.values())).most_common(3)]
    first = ("", *common[:1])
    alike = [word for word, unit in units.items() if unit in first]
    beside = [word for word in alike if re.search(r"[^\w.,]", word.lstrip("+-"))]
    spaced = {word for word, unit in units.items() if unit in common and " " in word and len(unit) < 5}
    several = [word for word in words if units.get(word) not in first and (word in spaced or _SEVERAL.fullmatch(word))]
    broken = several or [word for word in alike if re.search(r"[.,]\d*[1-9]", word)]
    alike += several
    many = len(alike) > _CODES and (common or broken)
    if 4 * len(alike) > 3 * len(words) and (beside or many):
        raise DataError(
            f"column {name!r} has numbers or dates as text, such as {(beside or broken or alike)[0]!r}: convert it (in "
            "CSV write -1234.5 alone), leave it out, or make it a category (in CSV by a letter before the number)"
        )


def _thinned(parts: Sequence[Array], counts: Sequence[int]) -> Array:
    """Sorted values of several parts with their numbers of rows; of more than 10,000 those with evenly spaced ranks.

    A part that was thinned before stands for more rows than it has values.
    """
    values = np.concatenate(parts)
    order = np.argsort(values, kind="stable")
    if values.size <= _KEPT:
        return np.asarray(values[order])
    weight = np.concatenate(
        [np.full(part.size, count / max(part.size, 1)) for part, count in zip(parts, counts, strict=True)]
    )
    rank = np.cumsum(weight[order]) - 0.5 * weight[order]
    wanted = (np.arange(_KEPT) + 0.5) * (sum(counts) / _KEPT)
    kept = np.minimum(np.searchsorted(rank, wanted), values.size - 1)
    kept[0], kept[-1] = 0, values.size - 1  # the smallest and the largest say whether a column varies
    return np.asarray(values[order][kept])


@dataclass(frozen=True, slots=True)
class Column:
    """The encoding of one column, of dates in a ``zone`` or without one.

    ``parts`` are the words that have an indicator, or the parts of a date that vary. ``medians`` fill gaps: of the
    number, or of each part of the date. ``gaps`` counts those of the training rows; if there are any, the last encoded
    column is their indicator. ``others`` counts the words of the training rows that have no indicator. ``regression``
    fills gaps of the number: an intercept, and a slope of each encoded column of the table; without it the median does.
    """

    name: str
    kind: Kind
    parts: tuple[str, ...] = ()
    medians: tuple[float, ...] = ()
    gaps: int = 0
    others: int = 0
    regression: tuple[float, ...] = ()
    zone: str | None = None

    @classmethod
    def of(cls, name: str, summary: Summary) -> Column:
        """Make the encoding of a column, or say why it has none."""
        if summary.rows == summary.gaps:
            raise DataError(f"column {name!r} has no values: leave it out")
        if summary.kind == "words":
            if len(summary.words) == 1:
                raise DataError(f"column {name!r} is constant ({next(iter(summary.words))!r}): leave it out")
            if max(summary.words.values()) == 1:
                raise DataError(
                    f"column {name!r} has another text in each row: leave it out if it identifies the rows, or convert "
                    "it if it has numbers"
                )
            common = sorted(summary.words, key=lambda word: (-summary.words[word], word))[:_MOST]
            return cls(name, "words", tuple(sorted(common)), (), summary.gaps, len(summary.words) - len(common))
        if summary.kind == "number":
            return cls(name, "number", (), (float(np.median(summary.values[0])),), summary.gaps)
        varying = [i for i, values in enumerate(summary.values) if values[0] < values[-1]]
        if not varying:
            raise DataError(f"column {name!r} is constant (one date): leave it out")
        medians = tuple(float(np.median(summary.values[i])) for i in varying)
        parts = tuple(_DATE_PARTS[i] for i in varying)
        return cls(name, "date", parts, medians, summary.gaps, zone=summary.zone)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        between = "=" if self.kind == "words" else " "
        names = (self.name,) if self.kind == "number" else tuple(f"{self.name}{between}{part}" for part in self.parts)
        return (*names, f"{self.name} is missing") if self.gaps else names

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        notes = []
        if self.kind == "words":
            shown = ", ".join(self.parts[:_SHOWN]) + (", …" if len(self.parts) > _SHOWN else "")
            rest = f"; {self.others} rarer words are encoded as none of them" if self.others else ""
            notes.append(f"column {self.name!r} has words: an indicator for each of {len(self.parts)} ({shown}){rest}")
        if self.kind == "date":
            parts = ", ".join(self.parts) + (f" in the zone {self.zone}" if self.zone else "")
            notes.append(f"column {self.name!r} has dates: they are encoded as {parts}")
        if self.gaps:
            how = "a regression on the others" if self.regression else "the median"
            filled = "" if self.kind == "words" else f"they are filled with {how}, and "
            notes.append(f"column {self.name!r} has {self.gaps} gaps: {filled}an indicator is added")
        return tuple(notes)

    def transform(self, values: pd.Series[Any]) -> tuple[list[Array], tuple[str, ...]]:
        """Encoded columns, and notes on what the training rows did not contain."""
        missing = values.isna().to_numpy()
        notes: list[str] = []
        if self.kind == "words":
            words = _words_of(values)
            encoded = [((words == part) & ~missing).astype(np.float64) for part in self.parts]
            unknown = ~missing & ~np.isin(words.astype(str), self.parts)
            if unknown.any():
                kinds = sorted(set(words[unknown].tolist()))
                shown = ", ".join(map(repr, kinds[:_SHOWN])) + (", …" if len(kinds) > _SHOWN else "")
                notes.append(
                    f"column {self.name!r} has words without an indicator ({shown}) in {unknown.sum()} rows: they are "
                    "encoded as none"
                )
        else:
            numbers = self._numbers(values)
            encoded = [np.where(missing, m, column) for m, column in zip(self.medians, numbers, strict=True)]
        if self.gaps:
            encoded.append(missing.astype(np.float64))
        elif missing.any():
            how = "encoded as no word" if self.kind == "words" else "filled with the median"
            notes.append(f"column {self.name!r} has {missing.sum()} gaps, and had none in training: they are {how}")
        return encoded, tuple(notes)

    def _numbers(self, values: pd.Series[Any]) -> tuple[Array, ...]:
        """The number, or the parts of the date that vary, as columns with NaN where there is no value."""
        if values.isna().all():
            return (np.full(len(values), np.nan),) * len(self.medians)
        kind = kind_of(self.name, values)
        if kind != self.kind:
            raise DataError(f"column {self.name!r} must have {PLURAL[self.kind]}, it has {PLURAL[kind]}")
        if kind == "number":
            return (finite_numbers(self.name, values),)
        times, zone = times_of(self.name, values)
        if (zone is None) != (self.zone is None):
            _refuse_clocks(self.name, zone, ", and in training ", self.zone)
        clock = _clock(times if zone is None else times.dt.tz_convert(self.zone))
        return tuple(clock[_DATE_PARTS.index(part)] for part in self.parts)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of the input columns of a table, in the order of the training table."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, summaries: Mapping[str, Summary]) -> Encoding:
        """Make the encoding from the summaries of the columns."""
        encoding = cls(tuple(Column.of(name, summary) for name, summary in summaries.items()))
        unique(encoding.names, "encoded columns would")
        return encoding

    @classmethod
    def of_table(cls, table: pd.DataFrame) -> Encoding:
        """Make the encoding of a table, with the regressions that fill gaps of its numbers."""
        encoding = cls.of(summarize(table))
        inputs, _ = encoding.transform(table)
        columns = []
        for column, place in zip(encoding.columns, encoding._places, strict=True):
            known = table[column.name].notna().to_numpy()
            if column.kind == "number" and column.gaps and known.sum() >= _FEWEST:
                others = inputs[known]
                others[:, place : place + 2] = 0.0  # the column and its indicator
                column = replace(column, regression=_regression(others, inputs[known, place]))
            columns.append(column)
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns, the inputs of a model."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def _places(self) -> list[int]:
        """Number of the first encoded column of each column."""
        return np.cumsum([0, *(len(column.names) for column in self.columns)]).tolist()[:-1]

    @property
    def tied(self) -> tuple[int, ...] | None:
        """For each input a number, 0, 1, ..., which the inputs of one column of words share; None without words."""
        names = [column.name if column.kind == "words" else name for column in self.columns for name in column.names]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return tuple(numbers[name] for name in names) if len(numbers) < len(names) else None

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers that stay as they are."""
        return self.names == tuple(self.kinds)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column of a table must contain."""
        return {column.name: column.kind for column in self.columns}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        return tuple(note for column in self.columns for note in column.notes)

    def transform(self, table: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
        """Encode a table that has these columns in any order: the inputs (n, k) of a model.

        The notes are on unknown words, and on gaps where the training rows had none.
        """
        encoded = [np.empty((0, len(table)))]
        notes: list[str] = []
        for column in self.columns:
            found, said = column.transform(table[column.name])
            encoded.append(np.array(found))
            notes.extend(said)
        inputs = np.ascontiguousarray(np.concatenate(encoded).T)
        filled = inputs.copy()
        for column, place in zip(self.columns, self._places, strict=True):
            if column.regression:
                gaps = table[column.name].isna().to_numpy()
                intercept, *slopes = column.regression
                filled[gaps, place] = intercept + (inputs[gaps] * slopes).sum(axis=1)
        return filled, tuple(notes)

    def to_json(self) -> str:
        """Write the encoding as JSON."""
        return json.dumps([asdict(column) for column in self.columns])

    @classmethod
    def from_json(cls, text: str, inputs: int | str = "d") -> Encoding:
        """Read an encoding from the JSON of `to_json`, and try it; ``inputs`` is the number that it must give."""
        try:
            rows: list[dict[str, Any]] = [
                {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
                for row in json.loads(text)
            ]
            encoding = cls(tuple(Column(**row) for row in rows))
            for column in encoding.columns:
                if not all(isinstance(part, str) for part in column.parts):
                    raise ValueError(f"the words of {column.name} must be text")
                if column.zone is not None and not (isinstance(column.zone, str) and _is_zone(column.zone)):
                    raise ValueError(f"{column.zone!r} is no zone")
            gaps, _ = encoding.transform(pd.DataFrame(None, range(2), list(encoding.kinds)))
            numbers("what it gives", gaps, (2, inputs))
            return encoding
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(f"the encoding of the columns cannot be read ({error})") from None


def _regression(X: Array, y: Array) -> tuple[float, ...]:
    """Intercept and slopes of a Bayesian ridge regression on standardised columns (MacKay 1992)."""
    from sklearn.linear_model import BayesianRidge  # which tables without gaps do not need

    mean, width = X.mean(axis=0), X.std(axis=0)
    width = np.where(width > 0, width, 1.0)
    fitted = BayesianRidge().fit((X - mean) / width, y)
    slopes = fitted.coef_ / width
    return (float(fitted.intercept_ - mean @ slopes), *slopes.tolist())

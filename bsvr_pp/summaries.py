"""Summaries of the columns of a table: what their encoding needs to know, computed part by part.

`summarize` reads a table, or one part of it; `merged` joins the summaries of two parts, so that a table may be read in
parts that do not fit into memory together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.csv_files import DataError

__all__ = ["DATE_PARTS", "PLURAL", "Kind", "Summary", "kind_of", "merged", "numbers_of", "summarize"]

Array = NDArray[np.float64]
Kind = Literal["number", "words", "date"]

DATE_PARTS = ("year", "day of year", "day of week", "hour")
_KEPT = 10_000  # number of values of a column that are kept for its median
PLURAL = {"number": "numbers", "words": "words", "date": "dates"}
_INFERRED: dict[str, Kind] = {
    "string": "words",
    "empty": "words",
    "categorical": "words",
    "boolean": "number",
    "decimal": "number",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "date": "date",
    "datetime": "date",
    "datetime64": "date",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What an encoding needs to know of a column, or of some of its rows.

    Attributes
    ----------
    kind : {"number", "words", "date"}
        What the column contains.
    rows, gaps : int
        Number of rows, and of those without a value.
    words : dict
        Number of rows with each word.
    values : tuple of arrays
        Sorted values of the number, or of each part of the date: all, or 10,000 of them with evenly spaced ranks.
    """

    kind: Kind
    rows: int
    gaps: int
    words: Mapping[str, int]
    values: tuple[Array, ...]

    def joined(self, other: Summary) -> Summary:
        """Summary of the rows of both."""
        words = dict(self.words)
        for word, count in other.words.items():
            words[word] = words.get(word, 0) + count
        counts = (self.rows - self.gaps, other.rows - other.gaps)
        values = tuple(_thinned((a, b), counts) for a, b in zip(self.values, other.values, strict=True))
        return Summary(self.kind, self.rows + other.rows, self.gaps + other.gaps, words, values)


def summarize(table: pd.DataFrame) -> dict[str, Summary]:
    """Summarize the columns of a table.

    Parameters
    ----------
    table : DataFrame
        Columns of numbers, words (text or categories) and dates, possibly with gaps.

    Raises
    ------
    DataError
        If a column contains something else.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.summaries import summarize
    >>> summarize(pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm", None]}))["town"].words
    {'Bonn': 1, 'Ulm': 2}
    """
    return {str(name): _summary(str(name), table[name]) for name in table.columns}


def merged(one: Mapping[str, Summary], other: Mapping[str, Summary]) -> dict[str, Summary]:
    """Merge the summaries of two parts of a table.

    Raises
    ------
    DataError
        If a column contains words in one part and numbers or dates in the other.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.summaries import merged, summarize
    >>> parts = [summarize(pd.DataFrame({"a": [0.0, 2.0]})), summarize(pd.DataFrame({"a": [1.0, None]}))]
    >>> merged(*parts)["a"].values[0].tolist(), merged(*parts)["a"].gaps
    ([0.0, 1.0, 2.0], 1)
    """
    for name, summary in one.items():
        if other[name].kind != summary.kind:
            raise DataError(f"column {name!r} contains both {PLURAL[summary.kind]} and {PLURAL[other[name].kind]}")
    return {name: summary.joined(other[name]) for name, summary in one.items()}


def kind_of(name: str, values: pd.Series[Any]) -> Kind:
    """Return what a column contains: numbers, words or dates.

    Raises
    ------
    DataError
        If it is something else.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.summaries import kind_of
    >>> kind_of("town", pd.Series(["Ulm", "Bonn"]))
    'words'
    """
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    if inferred not in _INFERRED:
        raise DataError(
            f"column {name!r} must have numbers, words or dates, it has the type {values.dtype} ({inferred})"
        )
    return _INFERRED[inferred]


def numbers_of(name: str, kind: Kind, values: pd.Series[Any]) -> tuple[Array, ...]:
    """Return a number, or the parts of a date, as columns with NaN where there is no value.

    Raises
    ------
    DataError
        If the column contains something else, or a number is not finite.
    """
    if len(values) and kind_of(name, values) != kind and not values.isna().all():
        raise DataError(f"column {name!r} must have {PLURAL[kind]}, it has {PLURAL[kind_of(name, values)]}")
    if kind == "number":
        numbers = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(numbers).any():
            raise DataError(f"column {name!r} is not finite in row {values.index[np.isinf(numbers)][0]}")
        return (numbers,)
    dates = pd.to_datetime(values)
    clock = (dates if dates.dt.tz is None else dates.dt.tz_localize(None)).dt
    parts = (clock.year, clock.day_of_year, clock.day_of_week, clock.hour + clock.minute / 60)
    return tuple(part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts)


def _summary(name: str, values: pd.Series[Any]) -> Summary:
    kind = kind_of(name, values)
    present = values[~values.isna()]
    gaps = len(values) - len(present)
    if kind == "words":
        found, counts = np.unique(present.astype(str).to_numpy(dtype=str), return_counts=True)
        return Summary(kind, len(values), gaps, dict(zip(found.tolist(), counts.tolist(), strict=True)), ())
    columns = numbers_of(name, kind, present)
    return Summary(kind, len(values), gaps, {}, tuple(_thinned((column,), (len(present),)) for column in columns))


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

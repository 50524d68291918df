"""Columns of a table as numbers: words, dates and gaps are encoded, and the encoding is kept as plain data.

`Encoding.of` makes the encoding from summaries of the columns (`bsvr_pp.summaries`). It is immutable, transforms other
tables with the same columns, and is saved as JSON:

- numbers stay as they are;
- words get an indicator (0 or 1) each, and a word that the encoding does not know is none of them;
- dates become year, day of the year, day of the week (Monday is 0) and hour, as far as they vary;
- gaps of numbers and dates are filled with the median, and gaps in the training rows add an indicator of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.csv_files import DataError
from bsvr_pp.summaries import DATE_PARTS, Kind, Summary, numbers_of

__all__ = ["Column", "Encoding"]

Array = NDArray[np.float64]

_MOST = 50  # largest number of words of a column that have an indicator
_SHOWN = 5  # number of words that are named in a note


@dataclass(frozen=True, slots=True)
class Column:
    """The encoding of one column.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : {"number", "words", "date"}
        What it contains.
    parts : tuple of str
        The words that have an indicator, or the parts of a date that vary.
    medians : tuple of float
        What fills gaps: the median of the number, or of each part of the date.
    gaps : int
        Number of gaps in the training rows; if it is not 0, the last encoded column is their indicator.
    others : int
        Number of words in the training rows that have no indicator.
    """

    name: str
    kind: Kind
    parts: tuple[str, ...] = ()
    medians: tuple[float, ...] = ()
    gaps: int = 0
    others: int = 0

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
            notes.append(f"column {self.name!r} has dates: they are encoded as {', '.join(self.parts)}")
        if self.gaps:
            filled = "" if self.kind == "words" else "they are filled with the median, and "
            notes.append(f"column {self.name!r} has {self.gaps} gaps: {filled}an indicator is added")
        return tuple(notes)

    def transform(self, values: pd.Series[Any]) -> tuple[list[Array], tuple[str, ...]]:
        """Encoded columns, and notes on what the training rows did not contain."""
        missing = values.isna().to_numpy()
        notes: list[str] = []
        if self.kind == "words":
            words = values.astype(str).to_numpy(dtype=object)
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
            found = dict(
                zip(DATE_PARTS if self.kind == "date" else ("",), numbers_of(self.name, self.kind, values), strict=True)
            )
            chosen = [found[part] for part in (self.parts if self.kind == "date" else ("",))]
            encoded = [np.where(missing, m, column) for m, column in zip(self.medians, chosen, strict=True)]
        if self.gaps:
            encoded.append(missing.astype(np.float64))
        elif missing.any():
            how = "encoded as no word" if self.kind == "words" else "filled with the median"
            notes.append(f"column {self.name!r} has {missing.sum()} gaps, and had none in training: they are {how}")
        return encoded, tuple(notes)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of the input columns of a table.

    Attributes
    ----------
    columns : tuple of Column
        The columns, in the order of the training table.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.columns import Encoding
    >>> from bsvr_pp.summaries import summarize
    >>> table = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "rooms": [3.0, None, 5.0]})
    >>> encoding = Encoding.of(summarize(table))
    >>> encoding.names
    ('town=Bonn', 'town=Ulm', 'rooms', 'rooms is missing')
    >>> encoding.transform(pd.DataFrame({"town": ["Kiel"], "rooms": [2.0]}))[0].tolist()
    [[0.0, 0.0, 2.0, 0.0]]
    >>> Encoding.from_json(encoding.to_json()) == encoding
    True
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, summaries: Mapping[str, Summary]) -> Encoding:
        """Make the encoding from the summaries of the columns.

        Parameters
        ----------
        summaries : dict
            Result of `bsvr_pp.summaries.summarize` or `merged`.

        Raises
        ------
        DataError
            If a column has no values, the same value in each row, or another word in each row, or if two encoded
            columns would have the same name.
        """
        encoding = cls(tuple(_column(name, summary) for name, summary in summaries.items()))
        names = encoding.names
        for name in names:
            if names.count(name) > 1:
                raise DataError(f"two encoded columns would have the name {name!r}: rename one")
        return encoding

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns, the inputs of a model."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column of a table must contain."""
        return {column.name: column.kind for column in self.columns}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on what the encoding does."""
        return tuple(note for column in self.columns for note in column.notes)

    def transform(self, table: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
        """Encode a table.

        Parameters
        ----------
        table : DataFrame
            It has the columns of the encoding, in any order; others are ignored.

        Returns
        -------
        X : (n, k) array
            The inputs `names`.
        notes : tuple of str
            Notes for the user on unknown words, and on gaps where the training rows had none.

        Raises
        ------
        DataError
            If a column of numbers or dates contains something else, or a number is not finite.
        """
        encoded = [np.empty((0, len(table)))]
        notes: list[str] = []
        for column in self.columns:
            found, said = column.transform(table[column.name])
            encoded.append(np.array(found))
            notes.extend(said)
        return np.ascontiguousarray(np.concatenate(encoded).T), tuple(notes)

    def to_json(self) -> str:
        """Write the encoding as JSON."""
        return json.dumps([asdict(column) for column in self.columns])

    @classmethod
    def from_json(cls, text: str) -> Encoding:
        """Read an encoding from the JSON of `to_json`.

        Raises
        ------
        DataError
            If it is damaged or of another version.
        """
        try:
            rows: list[dict[str, Any]] = [
                {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
                for row in json.loads(text)
            ]
            return cls(tuple(Column(**row) for row in rows))
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(f"the encoding of the columns cannot be read ({error})") from None


def _column(name: str, summary: Summary) -> Column:
    """The encoding of a column, or the reason why it has none."""
    if summary.rows == summary.gaps:
        raise DataError(f"column {name!r} has no values")
    if summary.kind == "words":
        if len(summary.words) == 1:
            raise DataError(f"column {name!r} is constant ({next(iter(summary.words))!r})")
        if max(summary.words.values()) == 1:
            raise DataError(f"column {name!r} has another text in each row: leave it out if it identifies the rows")
        common = sorted(summary.words, key=lambda word: (-summary.words[word], word))[:_MOST]
        return Column(name, "words", tuple(sorted(common)), (), summary.gaps, len(summary.words) - len(common))
    if summary.kind == "number":
        return Column(name, "number", (), (float(np.median(summary.values[0])),), summary.gaps)
    varying = [i for i, values in enumerate(summary.values) if values[0] < values[-1]]
    if not varying:
        raise DataError(f"column {name!r} is constant (one date)")
    medians = tuple(float(np.median(summary.values[i])) for i in varying)
    return Column(name, "date", tuple(DATE_PARTS[i] for i in varying), medians, summary.gaps)

"""The option ``monotone`` of an estimator: in which inputs the mean rises or falls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.core.arrays import Array
from bsvr_pp.estimators.validation import Columns
from bsvr_pp.tables.columns import Numbers, place_of

Monotone = Mapping[str | int, int] | Sequence[int] | NDArray[np.integer] | None


@dataclass(frozen=True, slots=True)
class Directions:
    """Signs by the name or the number of a column, or of all columns in their order."""

    given: Mapping[str | int, int] | list[int]

    @classmethod
    def of(cls, monotone: Monotone) -> Directions:
        """Return the option, checked as far as it can be without data."""
        if isinstance(monotone, pd.Series):  # its index has the columns
            monotone = monotone.to_dict()
        if monotone is None:
            return NO_DIRECTIONS
        made = cls(monotone if isinstance(monotone, Mapping) else np.asarray(monotone, dtype=object).tolist())
        if not isinstance(made.given, Mapping | list):
            raise ValueError(f"monotone must be a dict of columns, or have a sign for each column, got {monotone!r}")
        for value in made._values():
            if not isinstance(value, int | float | np.number) or isinstance(value, bool) or value not in (-1, 0, 1):
                raise ValueError(f"monotone must have the signs 1 (f rises), -1 (f falls) or 0 (either), got {value!r}")
        return made

    def _values(self) -> Collection[int]:
        return self.given.values() if isinstance(self.given, Mapping) else self.given

    def __bool__(self) -> bool:
        return any(self._values())

    def signs(self, columns: Columns) -> Array:
        """Return the sign (d,) of each input of a model, 0 for inputs without a direction."""
        encoding = columns.encoding
        names = list(map(str, range(columns.count)) if encoding is None else encoding.kinds)
        found = dict[int, int]()
        if isinstance(self.given, Mapping):
            for key, sign in self.given.items():
                place = place_of(key, names)
                if place is None:
                    raise ValueError(f"monotone has no column {key!r} of X; its columns are {', '.join(names)}")
                found[place] = sign
            if len(found) < len(self.given):
                raise ValueError(f"monotone must name a column once, got {dict(self.given)} of {names}")
        elif len(self.given) != columns.count:
            raise ValueError(f"monotone must have a sign for each of {columns.count} columns, got {len(self.given)}")
        else:
            found |= enumerate(self.given)
        signs = np.zeros(columns.count if encoding is None else len(encoding.names))
        for place, sign in found.items():
            column = None if encoding is None else encoding.columns[place]
            if sign and not isinstance(column, Numbers | None):
                raise ValueError(f"monotone takes columns of numbers, column {column.name!r} has {column.plural}")
            if sign:
                signs[place if encoding is None else encoding.names.index(names[place])] = sign
        return signs


NO_DIRECTIONS = Directions({})

"""Tables: CSV and Parquet files with numbers, words, dates and gaps, and their columns as numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """A file that cannot be used as data; the message states the problem and its position in one line."""


def check_columns(path: str | Path, columns: Iterable[str], names: Iterable[str]) -> None:
    """Check that a file with some columns has those with ``names``."""
    for name in names:
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r}; it has: {', '.join(columns)}")


def check_target(target: object, classes: Iterable[object] | None = None) -> None:
    """Check that a target has no name of another column of its predictions: of numbers, or of these classes."""
    names = r"sd|(lower|upper) \S+ %|P\(> \S+\)" if classes is None else "|".join(re.escape(f"P({c})") for c in classes)
    if re.fullmatch(names, str(target)):
        raise DataError(f"target must not be {target!r}, another column of the predictions: give it another name")


def unique(names: Iterable[str], which: str = "columns") -> list[str]:
    """Check that names of columns differ, and return them."""
    found = list(names)
    for name, number in Counter(found).items():
        if number > 1:
            raise DataError(f"two {which} have the name {name!r}: rename one")
    return found


@contextmanager
def of_file(path: str | Path) -> Iterator[None]:
    """Name the file in a DataError about its columns."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None

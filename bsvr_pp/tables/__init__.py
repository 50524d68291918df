"""Tables: CSV and Parquet files with numbers, words, dates and gaps, and their columns as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DataError", "check_columns", "of_file", "unique"]


class DataError(ValueError):
    """A file that cannot be used as data; the message states the problem and its position in one line."""


def check_columns(path: str | Path, columns: Iterable[str], names: Iterable[str]) -> None:
    """Check that a file with some columns has those with ``names``."""
    for name in names:
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r}; it has: {', '.join(columns)}")


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

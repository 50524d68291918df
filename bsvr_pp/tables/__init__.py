"""Tables: CSV and Parquet files with numbers, words, dates and gaps, and their columns as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DataError", "check_columns", "of_file"]


class DataError(ValueError):
    """A file that cannot be used as data; the message states the problem and its position in one line."""


def check_columns(path: str | Path, columns: Iterable[str], names: Iterable[str]) -> None:
    """Check that a file with some columns has those with ``names``."""
    for name in names:
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r}; it has: {', '.join(columns)}")


@contextmanager
def of_file(path: str | Path) -> Iterator[None]:
    """Name the file in a DataError about its columns."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None

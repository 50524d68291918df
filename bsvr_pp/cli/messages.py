"""Shared by the commands: options, messages on the error stream, and the output folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from bsvr_pp.core.atomic_write import atomic_write, check_writable

Target = Annotated[str | None, typer.Option(help="Column to predict; by default the last.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Jobs = Annotated[int, typer.Option(help="Threads that solve blocks; -1 is one for each processor.")]


def complain(message: str) -> None:
    """Print a message to the error stream."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"bsvr-pp: {message}", markup=False)


def fail(message: str) -> NoReturn:
    """Print an error message, and exit with status 2."""
    complain(message)
    raise typer.Exit(2)


@contextmanager
def failing(*kinds: type[Exception], place: object = None) -> Iterator[None]:
    """Exit with status 2 at errors of these kinds, and print their message and any place that is written to."""
    try:
        yield
    except kinds as error:
        fail(str(error) if place is None else f"{place} cannot be written: {error}")


def print_notes(notes: Sequence[str]) -> None:
    """Print notes about a file to the error stream."""
    for note in notes:
        complain("note: " + note)


@contextmanager
def noting(place: Path, *reported: str) -> Iterator[None]:
    """Print warnings as notes about a file, but not those that match a pattern of what is reported elsewhere."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        for pattern in reported:
            warnings.filterwarnings("ignore", pattern)
        yield
    print_notes([f"{place}: {warning.message}" for warning in said])


class Output:
    """The output folder of a command; if a file cannot be written, the others are, and the status is 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = check_writable("--out", folder, folder=True)
        self._failed, self._written = False, set[str]()

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file in the folder, completely or not at all, by a function that gets a path."""
        self._written.add(name)
        try:
            with atomic_write(self.folder / name) as fresh:
                write(fresh)
        except (OSError, ValueError) as error:
            if not self._failed:
                reason = getattr(error, "strerror", None) or error
                complain(f"{self.folder / name} cannot be written: {reason}; what was written before stays")
            self._failed = True

    def close(self, names: Iterable[str] = ()) -> None:
        """Remove files of these names that are of an earlier run; exit with status 2 if one could not be written."""
        for name in {*names} - self._written:
            (self.folder / name).unlink(missing_ok=True)
        if self._failed:
            raise typer.Exit(2)

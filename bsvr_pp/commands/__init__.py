"""What each command of the command line does, one module a command."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

__all__ = ["check_out", "fail"]


def fail(message: str) -> NoReturn:
    """Print a message that says what is wrong, and end with status 2."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"bsvr-pp: {message}", markup=False)
    raise typer.Exit(2)


def check_out(out: Path, *, folder: bool) -> None:
    """Refuse, before the work is done, a place where its result cannot be written.

    Raises
    ------
    ValueError
        Naming the place and what it should be.
    """
    if folder and out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, got the file {out}")
    if not folder and out.is_dir():
        raise ValueError(f"--out must be a file, got the folder {out}")
    parent = next(place for place in out.absolute().parents if place.exists())
    if not parent.is_dir():
        raise ValueError(f"--out must lie in a folder, and {parent} is a file")

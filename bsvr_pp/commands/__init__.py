"""What each command of the command line does, one module a command."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console

__all__ = ["fail"]


def fail(message: str) -> NoReturn:
    """Print a message that says what is wrong, and end with status 2."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"bsvr-pp: {message}", markup=False)
    raise typer.Exit(2)

"""The command line."""

from __future__ import annotations

from typing import Annotated

import typer

from bsvr_pp.cli.compare_command import compare
from bsvr_pp.cli.model_commands import example, fit, predict, solve
from bsvr_pp.core import __version__

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Bayesian support vector machines in PyMC.")


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Bayesian support vector machines in PyMC."""
    if version:
        print(__version__)
        raise typer.Exit


for command in (compare, example, fit, predict, solve):
    app.command()(command)

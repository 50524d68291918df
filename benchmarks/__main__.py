"""``python -m benchmarks`` runs all benchmarks of results.md, ``python -m benchmarks NAME`` runs one."""

from __future__ import annotations

from importlib import import_module

import typer

app = typer.Typer(add_completion=False, help="Running times and scores compared with other packages.")
TIMINGS = ("cost", "sampling", "marginal")
OTHERS = (
    *("conformal", "classify", "clouds", "coverage", "extrapolate", "gaps", "integrated"),
    *("large", "middle", "page", "outliers", "quality", "tables", "uci"),
)
for name in (*TIMINGS, *OTHERS):
    app.command(name)(import_module(f"benchmarks.{name}").main)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    """Run all timings and write results.md if no name is given; this takes hours."""
    if context.invoked_subcommand is None:
        for command in TIMINGS:
            app([command, "--save"], standalone_mode=False)


app()

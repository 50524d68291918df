"""``python -m benchmarks`` runs all benchmarks of results.md, ``python -m benchmarks NAME`` runs one."""

from __future__ import annotations

import typer

from benchmarks import (
    classify,
    clouds,
    conformal,
    cost,
    coverage,
    extrapolate,
    gaps,
    integrated,
    large,
    marginal,
    middle,
    outliers,
    page,
    quality,
    sampling,
    tables,
    uci,
)

app = typer.Typer(add_completion=False, help="Running times and scores compared with other packages.")
TIMINGS = {
    "cost": cost.main,
    "sampling": sampling.main,
    "marginal": marginal.main,
}
OTHERS = {
    "conformal": conformal.main,
    "classify": classify.main,
    "clouds": clouds.main,
    "coverage": coverage.main,
    "extrapolate": extrapolate.main,
    "gaps": gaps.main,
    "integrated": integrated.main,
    "large": large.main,
    "middle": middle.main,
    "page": page.main,
    "outliers": outliers.main,
    "quality": quality.main,
    "tables": tables.main,
    "uci": uci.main,
}
for name, command in {**TIMINGS, **OTHERS}.items():
    app.command(name)(command)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    """Run all timings and write results.md if no name is given; this takes hours."""
    if context.invoked_subcommand is None:
        for command in TIMINGS:
            app([command, "--save"], standalone_mode=False)


app()

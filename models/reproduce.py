"""``python models/reproduce.py``: run the experiments, and print our tables with the values of the papers."""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from experiments import Experiment, Job, Report, Table, cache_folder, find_experiments
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from bsvr_pp.cli.messages import Output, complain, fail
from bsvr_pp.tables import DataError

__all__ = ["app"]

app = typer.Typer(add_completion=False)

_FILE_WIDTH = 160
_WIDE = 8  # number of columns from which the standard deviation and the printed value are below the number


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of experiments, or first letters of names (chu2004); by default all.", show_default=False
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments with their running times.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats; each table states what it omits.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for tables (CSV) and figures (PNG).")] = Path(
        "bsvr-pp-reproduction"
    ),
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore saved parts of earlier runs.")] = False,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Reproduce the tables and figures of the papers.

    Finished parts are saved, so that an interrupted run continues where it stopped.
    """
    experiments = find_experiments()
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    if list_:
        _print_list(console, experiments)
        return
    if seed < 0:
        fail(f"--seed must be at least 0, got {seed}")
    try:
        output = Output(out)
    except ValueError as error:
        fail(str(error))
    chosen = _chosen(names or [], experiments)
    import matplotlib

    matplotlib.use("Agg")
    logging.basicConfig(level=logging.ERROR)  # PyMC, which is imported later, uses this setting
    failed = False
    console.print("Values of the paper are in brackets; ± is the standard deviation over our draws or splits.")
    for experiment in chosen:
        console.print(f"[bold]{experiment.name}[/]: {escape(experiment.title)}", highlight=False)
        job = Job(experiment.name, quick, seed, cache_folder(), fresh, progress and sys.stderr.isatty())
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the tables report failed convergence
                report = experiment.run(job)
        except (FileNotFoundError, DataError) as error:
            complain(str(error))
            failed = True
            continue
        except KeyboardInterrupt:
            console.print(f"Interrupted; the same call continues from the parts saved in {escape(str(job.cache))}")
            raise typer.Exit(130) from None
        for table in report.tables:
            _print_table(console, table)
        _write(report, experiment.name, output)
        console.print(f"{time.perf_counter() - began:.0f} s; tables and figures are in {escape(str(out))}\n")
    output.close()
    if failed:
        raise typer.Exit(2)


def _chosen(names: list[str], experiments: dict[str, Experiment]) -> list[Experiment]:
    chosen: dict[str, Experiment] = {}
    for name in names or [""]:
        wanted = name.lower().replace("_", "-")
        found = [wanted] if wanted in experiments else [key for key in experiments if key.startswith(wanted)]
        if not found:
            fail(f"NAME must be the name of an experiment, got {name!r}; there are: {', '.join(experiments)}")
        chosen |= {key: experiments[key] for key in found}
    return list(chosen.values())


def _print_list(console: Console, experiments: dict[str, Experiment]) -> None:
    shown = RichTable("name", "reproduces", box=None, pad_edge=False)
    for heading in ("--quick", "in full"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for experiment in experiments.values():
        shown.add_row(experiment.name, escape(experiment.title), *(_duration(m) for m in experiment.minutes))
    console.print(shown)


def _duration(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def _print_table(console: Console, table: Table) -> None:
    """Print a table, with the standard deviation and the value of the paper in the same cell."""
    frame = table.frame
    shown = RichTable(title=escape(table.title), title_justify="left", show_lines=len(frame.columns) > 2 * _WIDE)
    for name in frame.index.names:
        shown.add_column(escape(str(name or "")))
    columns = [c for c in frame.columns if not _is_companion(c, frame)]
    between = " " if len(columns) < _WIDE else "\n"
    for column in columns:
        shown.add_column(escape(str(column)), justify="right", overflow="fold")
    for index, row in frame.iterrows():
        labels = index if isinstance(index, tuple) else (index,)
        shown.add_row(*(escape(str(label)) for label in labels), *(_cell(row, column, between) for column in columns))
    console.print(shown)
    if table.note:
        console.print(f"[dim]{escape(table.note)}[/]")


def _is_companion(column: Any, frame: Any) -> bool:
    name = str(column)
    return any(name.endswith(end) and name.removesuffix(end) in frame.columns for end in (" sd", " paper"))


def _cell(row: Any, column: str, between: str) -> str:
    parts = [_number(row[column])]
    spread, printed = (_number(row.get(f"{column} {end}"), digits) for end, digits in (("sd", 2), ("paper", 4)))
    if spread != "–":
        parts.append(f"± {spread}")
    if printed != "–":
        parts.append(f"[dim]\\[{printed}][/]")
    return between.join(parts)


def _number(value: Any, digits: int = 4) -> str:
    if isinstance(value, str):
        return escape(value)
    if value is None or not math.isfinite(value):
        return "–"
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.{digits}g}"


def _write(report: Report, name: str, output: Output) -> None:
    from matplotlib import pyplot as plt

    for table in report.tables:
        output.write(f"{name}-{table.name}.csv", table.frame.to_csv)
    for title, figure in report.figures.items():
        output.write(f"{name}-{title}.png", partial(figure.savefig, dpi=110))
        plt.close(figure)


if __name__ == "__main__":
    app()

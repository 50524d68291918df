"""``bsvr-pp compare``: run the methods on a CSV file or on the built-in data, and lay them side by side."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bsvr_pp.commands import fail
from bsvr_pp.datasets import DataError, Dataset, read_csv, sinc

__all__ = ["compare"]

_METHODS = ("map", "laplace", "laplace_local", "mean_field", "nuts", "nuts_laplace_local", "nuts_mean_field")
_FULL_NUTS_ROWS = 150  # above, full NUTS over f takes an hour and more


def compare(
    data: Annotated[
        Path | None, typer.Argument(help="CSV file with one header row; without it, the built-in sinc set.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; by default the last.")] = None,
    test_fraction: Annotated[float, typer.Option(help="Share of the rows to test on.")] = 0.2,
    methods: Annotated[str, typer.Option(help=f"Any of {','.join(_METHODS)}.")] = "map,laplace,mean_field,nuts",
    out: Annotated[Path, typer.Option(help="Folder for the table, the results and the pictures.")] = Path(
        "bsvr-pp-comparison"
    ),
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
    draws: Annotated[int, typer.Option(help="Draws of NUTS per chain.")] = 1000,
    tune: Annotated[int, typer.Option(help="Draws of adaptation per chain.")] = 1000,
    chains: Annotated[int, typer.Option(help="Chains of NUTS.")] = 4,
    full_nuts: Annotated[
        bool, typer.Option("--full-nuts", help="Run NUTS over f however many rows there are.")
    ] = False,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Run one support vector model under several methods, and lay the results side by side.

    Inputs and target are standardised by the training rows; every input has its own lengthscale. Errors and
    densities are in the target's own units, hyperparameters in standardised ones.
    """
    try:
        chosen = _chosen(methods)
        _check_at_least(1, draws=draws, tune=tune, chains=chains)
        dataset = sinc(125, random_seed=seed) if data is None else read_csv(data, target)
        if data is None and target is not None:
            raise ValueError("--target needs a CSV file")
        train, test = dataset.split(test_fraction, seed)
        _check_train(train)
    except (DataError, ValueError) as error:
        fail(str(error))
    name = "sinc" if data is None else data.stem
    _run(name, train, test, chosen, out, seed, (draws, tune, chains), full_nuts, progress)


def _chosen(methods: str) -> list[str]:
    chosen = [m.strip().lower().replace("-", "_") for m in methods.split(",") if m.strip()]
    unknown = [m for m in chosen if m not in _METHODS]
    if unknown or not chosen:
        raise ValueError(
            f"--methods must name some of {', '.join(_METHODS)}, got {unknown[0] if unknown else 'none'!r}"
        )
    return list(dict.fromkeys(chosen))


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"--{name} must be at least {least}, got {value}")


def _check_train(train: Dataset) -> None:
    for i, column in enumerate(train.inputs):
        if np.ptp(train.X[:, i]) == 0:
            raise DataError(f"column {column!r} is constant ({train.X[0, i]}) over the training rows")
    if np.ptp(train.y) == 0:
        raise DataError(f"target {train.target!r} is constant ({train.y[0]}) over the training rows")


def _run(
    name: str,
    train: Dataset,
    test: Dataset,
    chosen: list[str],
    out: Path,
    seed: int,
    sampling: tuple[int, int, int],
    full_nuts: bool,
    progress: bool,
) -> None:
    # PyMC loads slowly; bad input is refused before.
    import matplotlib

    matplotlib.use("Agg")
    import bsvr_pp as bp

    logging.getLogger("pymc").setLevel(logging.WARNING)
    console = Console()
    centre, width = train.X.mean(axis=0), train.X.std(axis=0)
    location, scale = float(train.y.mean()), float(train.y.std())
    X, X_test = (train.X - centre) / width, (test.X - centre) / width
    y, y_test = (train.y - location) / scale, (test.y - location) / scale
    n, d = X.shape
    console.print(
        f"[bold]{escape(name)}[/]: {n} rows to train on, {len(y_test)} to test, {d} input{'s' * (d > 1)}, "
        f"target {escape(train.target)}"
    )
    model = bp.default_model(X, y)
    draws, tune, chains = sampling
    available: dict[str, Any] = {
        "map": bp.MAP(),
        "laplace": bp.Laplace(),
        "laplace_local": bp.Laplace(curvature="local"),
        "mean_field": bp.MeanField(),
        "nuts": bp.NUTS(draws=draws, tune=tune, chains=chains),
        "nuts_laplace_local": bp.NUTS(bp.Laplace(curvature="local"), draws=draws, tune=tune, chains=chains),
        "nuts_mean_field": bp.NUTS(bp.MeanField(), draws=draws, tune=tune, chains=chains),
    }
    results: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for key in chosen:
        method = available[key]
        if key == "nuts" and n > _FULL_NUTS_ROWS and not full_nuts:
            skipped[method.name] = (
                f"skipped: about {_nuts_minutes(n, sampling):.0f} minutes at {n} rows; --full-nuts runs it anyway, "
                "and --methods nuts_mean_field samples the hyperparameters alone"
            )
            continue
        console.print(f"  {method.name} …")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence is in the table
            results[method.name] = bp.fit(method, model, random_seed=seed, progressbar=progress and sys.stderr.isatty())

    reference = next((name for name in ("NUTS", "NUTS (mean field)") if name in results), None)
    table = bp.compare(results, reference=reference, X_test=X_test, y_test=y_test, model=model) if results else None
    if table is not None:
        table = _in_units(table, scale)
        _print(console, table, skipped, train)
    else:
        for method_name, why in skipped.items():
            console.print(f"{method_name}: {why}")
        return
    _write(name, results, table, skipped, out, model, (X_test, y_test), (location, scale), (centre[0], width[0]), train)
    console.print(f"Table, results and pictures are in [bold]{escape(str(out))}[/]", soft_wrap=True)


def _nuts_minutes(n: int, sampling: tuple[int, int, int]) -> float:
    """Estimate for full NUTS: two hours for 4 × (1000 + 1000) draws at n = 404, growing as n^2.5."""
    draws, tune, chains = sampling
    return 120.0 * (n / 404) ** 2.5 * (draws + tune) * chains / 8000


def _in_units(table: Any, scale: float) -> Any:
    """Errors and densities of standardised targets in the target's own units."""
    table = table.copy()
    table["ase"] *= scale**2
    table["aae"] *= scale
    table["mlpd"] -= np.log(scale)
    return table


def _print(console: Console, table: Any, skipped: dict[str, str], train: Dataset) -> None:
    shown = Table(title=f"test errors in units of {escape(train.target)}; hyperparameters standardised")
    shown.add_column("")
    for name in table.index:
        shown.add_column(str(name), justify="right")
    for name in skipped:
        shown.add_column(name, justify="right")
    for column in table.columns:
        if str(column).endswith(" sd") or column == "note":
            continue
        cells = []
        for method in table.index:
            cell = _cell(table.loc[method, column])
            spread = f"{column} sd"
            if spread in table.columns and cell != "–":
                cell += f" ± {_cell(table.loc[method, spread])}"
            cells.append(cell)
        shown.add_row(escape(_label(str(column), train)), *cells, *("skipped" for _ in skipped))
    console.print(shown)
    for name, why in skipped.items():
        console.print(f"{name}: {why}")
    for name, row in table.iterrows():
        if not row["converged"]:
            console.print(f"[bold red]{name} did not converge[/]: {row['note']}")


def _label(column: str, train: Dataset) -> str:
    """lengthscale[3] as lengthscale of the third input."""
    if column.startswith("lengthscale["):
        return f"lengthscale {train.inputs[int(column[12:-1])]}"
    names = {"ase": "test ASE", "aae": "test AAE", "mlpd": "test log density", "log_evidence": "log evidence"}
    return names.get(column, column)


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float | np.floating) and not np.isfinite(value)):
        return "–"
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.4g}"


def _write(
    name: str,
    results: dict[str, Any],
    table: Any,
    skipped: dict[str, str],
    out: Path,
    model: Any,
    test: tuple[Any, Any],
    units: tuple[float, float],
    centre: tuple[float, float],
    train: Dataset,
) -> None:
    """Write everything to a folder of its own first, so that an interruption leaves nothing half written."""
    import matplotlib.pyplot as plt

    import bsvr_pp as bp

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bsvr-pp-") as folder:
        fresh = Path(folder) / "out"
        fresh.mkdir()
        full = table.copy()
        for method_name, why in skipped.items():
            full.loc[method_name, "note"] = why
        full.to_csv(fresh / "comparison.csv")
        for method_name, result in results.items():
            slug = method_name.lower().replace(" ", "-").replace("(", "").replace(")", "")
            result.to_netcdf(fresh / f"{slug}.nc")
        labels = (train.inputs[0], train.target)
        figure = bp.plot_predictive(
            results,
            model=model,
            X_test=test[0],
            y_test=test[1],
            location=units[0],
            scale=units[1],
            input_location=centre[0],
            input_scale=centre[1],
            labels=labels,
        )
        figure.suptitle(name)
        figure.savefig(fresh / "predictive.png", dpi=110)
        plt.close(figure)
        figure = bp.plot_hyperparameters(results, names={"lengthscale": list(train.inputs)})
        figure.savefig(fresh / "hyperparameters.png", dpi=110)
        plt.close(figure)
        out.mkdir(exist_ok=True)
        for file in fresh.iterdir():
            shutil.move(str(file), str(out / file.name))

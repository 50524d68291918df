"""``bsvr-pp compare``: run the methods on a CSV file or on the built-in data, and lay them side by side."""

from __future__ import annotations

import io
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

from bsvr_pp.commands import check_out, fail
from bsvr_pp.datasets import DataError, Dataset, read_csv, sinc

__all__ = ["compare"]

_METHODS = ("map", "laplace", "laplace_local", "mean_field", "nuts", "nuts_laplace_local", "nuts_mean_field")
_FULL_NUTS_ROWS = 150  # above, full NUTS over f takes an hour and more
_EVIDENCE_ROWS = 250  # above, the picture of the evidence takes minutes
_CALIBRATION_ROWS = 5


def compare(
    data: Annotated[
        Path | None, typer.Argument(help="CSV file with one header row; without it, the built-in sinc set.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; by default the last.")] = None,
    test_fraction: Annotated[float, typer.Option(help="Share of the rows to test on.")] = 0.2,
    methods: Annotated[str, typer.Option(help=f"Any of {','.join(_METHODS)}.")] = "map,laplace,mean_field,nuts",
    out: Annotated[Path, typer.Option(help="Folder for the page, the table, the results and the pictures.")] = Path(
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
        check_out(out, folder=True)
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

    if not results:
        for method_name, why in skipped.items():
            console.print(f"{method_name}: {why}")
        return
    console.print("  comparison …")
    table = bp.compare(results, _reference(results), X_test=X_test, y_test=y_test, model=model, random_seed=seed)
    table = _in_units(table, scale)
    labels = {"lengthscale": train.inputs}
    _print(console, table, skipped, train, labels)
    units = {"location": location, "scale": scale, "input_location": centre[0], "input_scale": width[0]}
    pictures = _pictures(results, table, model, (X_test, y_test), units, train)
    page = bp.report_page(
        table,
        title=name,
        description=_description(train, test),
        pictures=list(pictures.values()),
        names=labels,
        skipped=skipped,
    )
    _write(results, table, skipped, out, pictures, page)
    console.print(f"Table, results and pictures are in [bold]{escape(str(out))}[/]", soft_wrap=True)
    console.print(f"The page to read: [bold]{escape(str(out / 'report.html'))}[/]", soft_wrap=True)


def _reference(results: dict[str, Any]) -> str | None:
    """Draws are the reference, those that converged first."""
    draws = [name for name in results if name.startswith("NUTS")]
    return next((name for name in draws if results[name].attrs["converged"]), draws[0] if draws else None)


def _description(train: Dataset, test: Dataset) -> str:
    inputs = ", ".join(train.inputs)
    return (
        f"Support vector regression of {train.target} on {inputs}: {len(train.y)} rows to train on, {len(test.y)} to "
        f"test. Test errors in units of {train.target}; inputs, target and hyperparameters standardised."
    )


def _nuts_minutes(n: int, sampling: tuple[int, int, int]) -> float:
    """Estimate for full NUTS: two hours for 4 × (1000 + 1000) draws at n = 404, growing as n^2.5."""
    draws, tune, chains = sampling
    return 120.0 * (n / 404) ** 2.5 * (draws + tune) * chains / 8000


def _in_units(table: Any, scale: float) -> Any:
    """Errors and densities of standardised targets in the target's own units."""
    changed = table.assign(
        ase=table["ase"] * scale**2,
        aae=table["aae"] * scale,
        crps=table["crps"] * scale,
        mlpd=table["mlpd"] - np.log(scale),
    )
    changed.attrs = table.attrs
    return changed


def _print(
    console: Console, table: Any, skipped: dict[str, str], train: Dataset, names: dict[str, tuple[str, ...]]
) -> None:
    from bsvr_pp.layout import sections

    shown = Table(title=f"test errors in units of {escape(train.target)}; hyperparameters standardised")
    shown.add_column("")
    for name in table.index:
        shown.add_column(str(name), justify="right")
    for section in sections(table, names, brief=True):
        shown.add_section()
        shown.add_row(f"[bold]{escape(section.title)}[/]")
        for line in section.lines:
            shown.add_row(escape(line.label), *map(escape, line.cells))
    console.print(shown)
    for name, why in skipped.items():
        console.print(f"{name}: {why}", soft_wrap=True)
    for name, verdict in table["verdict"].items():
        console.print(f"[bold]{escape(str(name))}[/]: {escape(verdict)}", soft_wrap=True)
    console.print(f"[bold]{escape(table.attrs['summary'])}[/]", soft_wrap=True)


def _pictures(
    results: dict[str, Any],
    table: Any,
    model: Any,
    test: tuple[Any, Any],
    units: dict[str, float],
    train: Dataset,
) -> dict[str, Any]:
    """Pictures of the page, by the names of their files."""
    import matplotlib.pyplot as plt

    import bsvr_pp as bp

    n, d = train.X.shape
    at = table.attrs["theta"]
    along = "lengthscale" if d == 1 else "C"
    local = [bp.Laplace(curvature="local")] if any("local" in name for name in results) else []
    drawn: dict[str, tuple[str, str, Any]] = {
        "predictive": (
            "Predictions",
            "Central 80 % and 95 % intervals of new targets, the mean of f, and the support vectors."
            if d == 1
            else "Test targets against their predictions; bars are 80 % intervals, red points lie outside.",
            bp.plot_predictive(
                results, model=model, X_test=test[0], y_test=test[1], labels=(train.inputs[0], train.target), **units
            ),
        ),
        "hyperparameters": (
            "Hyperparameters",
            "Densities are of draws, lines with dots are points.",
            bp.plot_hyperparameters(results, names={"lengthscale": train.inputs}),
        ),
    }
    if d > 1:
        drawn["relevance"] = (
            "Relevance of the inputs",
            "Inputs far to the left hardly matter. Bars: central 50 % and 90 % of draws.",
            bp.plot_relevance(results, inputs=train.inputs),
        )
    if len(test[1]) >= _CALIBRATION_ROWS:
        drawn["calibration"] = (
            "Calibration on the test data",
            "Observed less predicted share. Intervals: above 0 too wide, below 0 too narrow. p: probability of so "
            "uneven a curve if the predictions are right; below 0.05 they hardly are.",
            bp.plot_calibration(results, X_test=test[0], y_test=test[1], model=model),
        )
    if n <= _EVIDENCE_ROWS:
        drawn["evidence"] = (
            f"Evidence along {along}",
            "Lines are the approximations, dots the truth by annealing; the dotted line is the common θ.",
            bp.plot_evidence(
                {along: at[along] * np.geomspace(1 / 3, 3.0, 31)},
                hyperparameters=at,
                methods=[bp.Laplace(), *local, bp.MeanField()],
                annealed=bp.Annealed(particles=50),
                model=model,
            ),
        )
    out = {}
    for file, (title, caption, picture) in drawn.items():
        buffer = io.BytesIO()
        figure = picture if isinstance(picture, plt.Figure) else picture.viz["figure"].item()
        figure.savefig(buffer, dpi=130)
        out[file] = bp.Picture(title, caption, buffer.getvalue())
    plt.close("all")
    return out


def _write(
    results: dict[str, Any],
    table: Any,
    skipped: dict[str, str],
    out: Path,
    pictures: dict[str, Any],
    page: str,
) -> None:
    """Write everything to a folder of its own first, so that an interruption leaves nothing half written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bsvr-pp-") as folder:
        fresh = Path(folder) / "out"
        fresh.mkdir()
        full = table.copy()
        for method_name, why in skipped.items():
            full.loc[method_name, "verdict"] = why
        full.to_csv(fresh / "comparison.csv")
        for method_name, result in results.items():
            slug = method_name.lower().replace(" ", "-").replace("(", "").replace(")", "")
            result.to_netcdf(fresh / f"{slug}.nc")
        for file, picture in pictures.items():
            (fresh / f"{file}.png").write_bytes(picture.png)
        (fresh / "report.html").write_text(page, encoding="utf-8")
        out.mkdir(exist_ok=True)
        for written in fresh.iterdir():
            shutil.move(str(written), str(out / written.name))

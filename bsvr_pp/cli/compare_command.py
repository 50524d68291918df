"""``bsvr-pp compare``: run the methods on a CSV or Parquet file or on the built-in data, and compare their results."""

from __future__ import annotations

import io
import logging
import sys
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from bsvr_pp.cli.messages import Output, Seed, Target, fail, failing, print_notes
from bsvr_pp.core.arrays import check_spread
from bsvr_pp.datasets import sinc
from bsvr_pp.methods import METHODS, make_method, method_of
from bsvr_pp.tables import DataError
from bsvr_pp.tables.files import without_formulas
from bsvr_pp.tables.readers import read_data

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr
    from arviz_plots import PlotCollection
    from matplotlib.figure import Figure

    from bsvr_pp.assess.assessment import Comparison
    from bsvr_pp.core.arrays import Array
    from bsvr_pp.inference.protocol import Method
    from bsvr_pp.show.report import Picture
    from bsvr_pp.tables.readers import Dataset

_COMPILED_ROWS = 12  # of which a fit takes no time beside compilation
_FULL_NUTS_ROWS = 150  # above this, full NUTS over f takes an hour or more
_EVIDENCE_ROWS = 250  # above this, the plot of the evidence takes minutes
_CALIBRATION_ROWS = 5


def compare(
    data: Annotated[
        Path | None, Argument(help="CSV file with one header row, or Parquet file; by default the built-in sinc data.")
    ] = None,
    target: Target = None,
    test_fraction: Annotated[float, Option(help="Share of the rows for testing.")] = 0.2,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}.")] = "map,laplace,mean_field,nuts",
    out: Annotated[Path, Option(help="Folder for the report page, the table, the results and the plots.")] = Path(
        "bsvr-pp-comparison"
    ),
    seed: Seed = 0,
    draws: Annotated[int, Option(help="Draws of NUTS per chain.")] = 500,
    tune: Annotated[int, Option(help="Adaptation steps of NUTS per chain.")] = 500,
    chains: Annotated[int, Option(help="Chains of NUTS.")] = 4,
    full_nuts: Annotated[bool, Option("--full-nuts", help="Run NUTS over f for any number of rows.")] = False,
    progress: Annotated[bool, Option(help="Show progress.")] = True,
) -> None:
    """Run one support vector model under several methods, and compare the results.

    Inputs and target are standardised by the training rows; every input has its own lengthscale. Errors and densities
    are in the units of the target, hyperparameters in standardised units.
    """
    sampling = {"draws": draws, "tune": tune, "chains": chains}
    with failing(ValueError):
        chosen = _chosen(methods)
        for option, value in sampling.items():
            if value < 1:
                raise ValueError(f"--{option} must be at least 1, got {value}")
        if data is None and target is not None:
            raise ValueError("--target needs a CSV file")
        rows = sinc(125, random_seed=seed) if data is None else read_data(data, target)
        train, test = rows.split(test_fraction, seed)
        _check_train(train)
        output = Output(out)
    # PyMC is slow to import; the input is checked before.
    import bsvr_pp as bp
    from bsvr_pp.show.report import print_comparison, to_table

    logging.getLogger("pymc").setLevel(logging.WARNING)
    console = Console()
    name = "sinc" if data is None else data.stem
    centre, width = train.X.mean(axis=0), train.X.std(axis=0)
    location, scale = float(train.y.mean()), float(train.y.std())
    X, X_test = (train.X - centre) / width, (test.X - centre) / width
    y, y_test = (train.y - location) / scale, (test.y - location) / scale
    n, d = X.shape
    print_notes(train.notes)
    console.print(
        f"[bold]{escape(name)}[/]: {n} rows to train on, {len(y_test)} to test, {d} input{'s' * (d > 1)}, "
        f"target {escape(train.target)}"
    )
    model = bp.default_model(X, y)
    fit = partial(bp.fit, model=model, random_seed=seed, progressbar=progress and sys.stderr.isatty())
    made = _compiled(_methods(chosen, sampling), d, console)
    results, skipped = _fit_all(made, fit, n, full_nuts, console, output)
    if not results:
        fail("no method was run: " + "; ".join(f"{method_name}: {why}" for method_name, why in skipped.items()))
    console.print("  comparison …")
    options = {"X_test": X_test, "y_test": y_test, "model": model, "random_seed": seed}
    standardised = bp.compare(results, _reference(results), **options).comparison
    assert standardised is not None
    comparison = standardised.in_units(scale)
    errors = f"Test errors in units of {train.target}"
    known: dict[str, Any] = {"names": {"lengthscale": train.inputs}, "skipped": skipped}
    print_comparison(console, comparison, title=f"{errors}; hyperparameters standardised", **known)
    units = {"input_units": (centre[0], width[0]), "target_units": (location, scale)}
    pictures = _pictures(results, comparison, model, (X_test, y_test), units, train)
    table = to_table(comparison)
    description = (
        f"Support vector regression of {train.target} on {', '.join(train.inputs)}: {n} rows to train on, "
        f"{len(y_test)} to test. {errors}; inputs, target and hyperparameters standardised."
    )
    page = bp.report_page(table, title=name, description=description, pictures=list(pictures.values()), **known)
    for method_name, why in skipped.items():
        table.loc[method_name, "verdict"] = why
    output.write("comparison.csv", without_formulas(table).to_csv)
    for file, picture in pictures.items():
        output.write(f"{file}.png", picture.png)
    output.write("report.html", page.encode())
    output.close()
    console.print(f"Table, results and pictures are in [bold]{escape(str(output.folder))}[/]", soft_wrap=True)
    console.print(f"The page to read: [bold]{escape(str(output.folder / 'report.html'))}[/]", soft_wrap=True)


def _chosen(methods: str) -> list[str]:
    chosen = [m.strip().lower().replace("-", "_") for m in methods.split(",") if m.strip()]
    unknown = [m for m in chosen if m not in METHODS] if chosen else ["none"]
    if unknown:
        raise ValueError(f"--methods must name some of {', '.join(METHODS)}, got {unknown[0]!r}")
    return list(dict.fromkeys(chosen))


def _methods(chosen: list[str], sampling: dict[str, int]) -> list[Method]:
    """The methods, with the options of sampling."""
    from bsvr_pp.inference.protocol import Samples

    made = [make_method(key) for key in chosen]
    return [replace(method, **sampling) if isinstance(method, Samples) else method for method in made]


def _compiled(made: list[Method], d: int, console: Console) -> list[Method]:
    """The methods, after fits of a few rows, so that none is charged the compilation of what all use."""
    import bsvr_pp as bp
    from bsvr_pp.inference.protocol import Samples

    console.print("  compilation …")
    X = np.random.default_rng(0).normal(size=(_COMPILED_ROWS, d))
    small = bp.default_model(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that no one has
        for method in made:
            if not isinstance(method, Samples):
                bp.fit(method, small, restarts=1, progressbar=False)
    return made


def _check_train(train: Dataset) -> None:
    columns = [(f"column {name!r}", values) for name, values in zip(train.inputs, train.X.T, strict=True)]
    for name, values in (*columns, (f"target {train.target!r}", train.y)):
        if np.ptp(values) == 0:
            raise DataError(f"{name} is constant ({values[0]}) over the training rows")
        check_spread(f"{name} of the training rows", values)


def _fit_all(
    made: list[Method], fit: Callable[[Method], xr.DataTree], n: int, full_nuts: bool, console: Console, output: Output
) -> tuple[dict[str, xr.DataTree], dict[str, str]]:
    """Run the methods and write their results; return the results, and the methods skipped with the reason."""
    from bsvr_pp.core.compiler import interruptible
    from bsvr_pp.inference.netcdf import write
    from bsvr_pp.inference.protocol import Samples

    results, skipped = {}, {}
    for method in made:
        samples_f = isinstance(method, Samples) and method.latent is None
        if samples_f and n > _FULL_NUTS_ROWS and not full_nuts:
            skipped[method.name] = (
                f"skipped: takes an hour or more at {n} rows; --full-nuts runs it anyway, and --methods "
                "nuts_mean_field samples the hyperparameters alone"
            )
            continue
        console.print(f"  {method.name} …")
        try:
            with warnings.catch_warnings(), interruptible():
                warnings.simplefilter("ignore")  # convergence is in the table
                results[method.name] = fit(method)
        except MemoryError as error:
            skipped[method.name] = f"skipped: {error}"
            continue
        slug = method.name.lower().replace(" ", "-").replace("(", "").replace(")", "")
        output.write(f"{slug}.nc", partial(write, results[method.name]))
    return results, skipped


def _reference(results: dict[str, xr.DataTree]) -> str | None:
    """Choose the reference: a result with draws, preferably one that converged."""
    from bsvr_pp.inference.result import is_sampled

    draws = [name for name, result in results.items() if is_sampled(result)]
    return max(draws, key=lambda name: bool(results[name].attrs["converged"]), default=None)


def _pictures(
    results: dict[str, xr.DataTree],
    comparison: Comparison,
    model: pm.Model,
    test: tuple[Array, Array],
    units: dict[str, tuple[float, float]],
    train: Dataset,
) -> dict[str, Picture]:
    """Make the pictures of the page, by file name; their titles and captions are in ``pictures.toml``."""
    import matplotlib
    import pandas as pd

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    import bsvr_pp as bp
    from bsvr_pp.assess.partial_dependence import ResultInUnits
    from bsvr_pp.inference.protocol import IntegratesLatent
    from bsvr_pp.show.plots import calibration_picture, hyperparameters_picture
    from bsvr_pp.show.report import Picture

    n, d = train.X.shape
    names = train.inputs[0], train.target
    facts = {"target": train.target, "along": "inverse_lengthscale" if d == 1 else "C"}
    drawn: dict[str, Figure | PlotCollection] = {
        "predictive": bp.plot_predictive(results, model=model, X_test=test[0], y_test=test[1], labels=names, **units),
        "hyperparameters": hyperparameters_picture(results, {"lengthscale": train.inputs}),
    }
    if d > 1:
        # Results of a mode have no bands.
        banded = [name for name, result in results.items() if isinstance(method_of(result), IntegratesLatent)]
        if banded:
            shown = min(banded, key=lambda name: name != comparison.recommendation.best)
            facts["shown"], rows = shown, pd.DataFrame(train.X, columns=train.inputs)
            centre, width = train.X.mean(axis=0), train.X.std(axis=0)
            seen = ResultInUnits.of(results[shown], model, centre, width, units["target_units"][1])
            shares = [bp.effect(seen, rows, i).attrs["share"] for i in range(d)]
            largest = np.argsort(-np.array(shares), kind="stable")[:4].tolist()
            drawn["effects"] = bp.plot_effect(seen, rows, largest, target=train.target)
    if len(test[1]) >= _CALIBRATION_ROWS:
        drawn["calibration"] = calibration_picture(results, *test, model)
    if n <= _EVIDENCE_ROWS:
        used = [method_of(result).latent for result in results.values()]
        drawn["evidence"] = bp.plot_evidence(
            {facts["along"]: comparison.theta[facts["along"]] * np.geomspace(1 / 3, 3.0, 31)},
            hyperparameters=comparison.theta,
            methods=list(dict.fromkeys([bp.Laplace(), *(m for m in used if m is not None), bp.MeanField()])),
            annealed=bp.Annealed(particles=50),
            model=model,
        )
    texts = tomllib.loads((files(__package__) / "pictures.toml").read_text("utf-8"))
    out = {}
    for file, picture in drawn.items():
        text = texts["predictive_of_several" if file == "predictive" and d > 1 else file]
        title, caption = (text[each].format(**facts) for each in ("title", "caption"))
        buffer = io.BytesIO()
        (picture.viz["figure"].item() if hasattr(picture, "viz") else picture).savefig(buffer, dpi=130)
        out[file] = Picture(title, caption, buffer.getvalue())
    plt.close("all")
    return out

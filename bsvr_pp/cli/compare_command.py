"""``bsvr-pp compare``: run the methods on a CSV or Parquet file or on the built-in data, and compare their results."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

import bsvr_pp as bp
from bsvr_pp.cli.messages import Output, Seed, Target, fail, failing, print_notes
from bsvr_pp.methods import METHODS, make_method

if TYPE_CHECKING:
    import pymc as pm
    import xarray as xr

    from bsvr_pp.estimators.training_data import Units
    from bsvr_pp.inference.protocol import Method
    from bsvr_pp.model.priors import Tied
    from bsvr_pp.tables.readers import Dataset

_COMPILED_ROWS = 12  # a fit of these takes no time compared with compilation
_FULL_NUTS_ROWS = 150  # above this, full NUTS over f takes an hour or more


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
    of test rows are in the units of the target; evidences, LOO densities and hyperparameters in standardised units.
    """
    with failing(ValueError):
        chosen = _chosen(methods)
        sampling = {"draws": draws, "tune": tune, "chains": chains}
        for option, value in sampling.items():
            if value < 1:
                raise ValueError(f"--{option} must be at least 1, got {value}")
        if data is None and target is not None:
            raise ValueError("--target needs a CSV file")
        train, test = _read(data, target, test_fraction, seed)
        output = Output(out)
    # PyMC is slow to import; the input is checked before.
    import matplotlib

    from bsvr_pp.inference.protocol import Samples
    from bsvr_pp.inference.result import is_sampled
    from bsvr_pp.show.report import PICTURES, make_pictures, print_comparison, to_table

    matplotlib.use("Agg")
    logging.getLogger("pymc").setLevel(logging.WARNING)
    console, title, d = Console(), "sinc" if data is None else data.stem, len(train.inputs)
    print_notes(train.notes)
    counts = f"{len(train.y)} rows to train on, {len(test.y)} to test"
    console.print(f"[bold]{escape(title)}[/]: {counts}, {d} input{'s' * (d > 1)}, target {escape(train.target)}")
    units, model = _default(train)
    known = {"X_test": units.inputs(test.X), "y_test": units.targets(test.y), "model": model}
    made = [replace(m, **sampling) if isinstance(m, Samples) else m for m in map(make_method, chosen)]
    console.print("  compilation …")
    _compile([method for method in made if not isinstance(method, Samples)], d, train.tied)
    fit = partial(bp.fit, model=model, random_seed=seed, progressbar=progress and sys.stderr.isatty())
    results, skipped = _fit_all(made, fit, len(train.y), full_nuts, console, output)
    if not results:
        fail("no method was run: " + "; ".join(f"{name}: {why}" for name, why in skipped.items()))
    console.print("  comparison …")
    sampled = [name for name, result in results.items() if is_sampled(result)]
    reference = max(sampled, key=lambda name: bool(results[name].attrs["converged"]), default=None)
    standardised = bp.compare(results, reference, **known, random_seed=seed).comparison
    assert standardised is not None
    comparison, names = standardised.in_units(units.unit), {"lengthscale": train.inputs}
    scale = f"Test errors and densities in units of {train.target}; evidences, LOO densities and hyperparameters of "
    scale += "standardised inputs and targets"
    print_comparison(console, comparison, title=scale, names=names, skipped=skipped)
    table, pictures = to_table(comparison), make_pictures(results, comparison, known, train, units)
    description = f"Support vector regression of {train.target} on {', '.join(train.inputs)}: {counts}. {scale}."
    page = bp.report_page(
        table, title=title, description=description, pictures=list(pictures.values()), names=names, skipped=skipped
    )
    for name, why in skipped.items():
        table.loc[name, "verdict"] = why
    output.write("comparison.csv", table.to_csv)
    for file, picture in pictures.items():
        output.write(f"{file}.png", partial(Path.write_bytes, data=picture.png))
    output.write("report.html", partial(Path.write_bytes, data=page.encode()))
    output.close([*(_file(make_method(key)) for key in METHODS), *(f"{file}.png" for file in PICTURES)])
    console.print(f"Table, results and pictures are in [bold]{escape(str(output.folder))}[/]", soft_wrap=True)
    console.print(f"The page to read: [bold]{escape(str(output.folder / 'report.html'))}[/]", soft_wrap=True)


def _chosen(methods: str) -> list[str]:
    chosen = [m.strip().lower().replace("-", "_") for m in methods.split(",") if m.strip()]
    unknown = [m for m in chosen if m not in METHODS] if chosen else ["none"]
    if unknown:
        raise ValueError(f"--methods must name some of {', '.join(METHODS)}, got {unknown[0]!r}")
    return list(dict.fromkeys(chosen))


def _read(data: Path | None, target: str | None, test_fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Return the rows to train on, which vary in each column, and to test."""
    from bsvr_pp.datasets import sinc
    from bsvr_pp.tables.readers import checked, read_data

    rows = sinc(125, random_seed=seed) if data is None else read_data(data, target)
    train, test = rows.split(test_fraction, seed)
    return checked(train, "the training rows"), test


def _default(train: Dataset) -> tuple[Units, pm.Model]:
    """Return units of the data, and the default model in them: words of a column share a lengthscale, as in a fit."""
    from bsvr_pp.estimators.training_data import Units, as_given
    from bsvr_pp.model.priors import Inputs, standard_model

    of_inputs = Units.of(as_given(train.X, train.y), train.tied)
    units = replace(of_inputs, location=float(train.y.mean()), unit=float(train.y.std()))
    inputs = Inputs.standardised(units.inputs(train.X), ard=True, tied=train.tied)
    return units, standard_model(inputs, units.targets(train.y))


def _compile(methods: list[Method], d: int, tied: Tied) -> None:
    """Fit a few rows with ``d`` inputs, so that no time of a method includes the compilation of shared code."""
    import numpy as np

    from bsvr_pp.model.priors import Inputs, standard_model

    X = np.random.default_rng(0).normal(size=(_COMPILED_ROWS, d))
    small = standard_model(Inputs.standardised(X, ard=True, tied=tied), X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these rows are not the user's
        for method in methods:
            bp.fit(method, small, restarts=1, progressbar=False)


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
        output.write(_file(method), partial(write, results[method.name]))
    return results, skipped


def _file(method: Method) -> str:
    return method.name.lower().translate(str.maketrans(" ", "-", "()")) + ".nc"

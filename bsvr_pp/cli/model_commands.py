"""``bsvr-pp fit`` and ``bsvr-pp predict``: a model of a CSV or Parquet file, and its predictions for another file.

``bsvr-pp example`` writes files to try them with.

The targets are numbers, intervals or censored times (`bsvr_pp.BayesianSVR`), or ordered classes
(`bsvr_pp.BayesianOrdinalSVC`).
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from math import isfinite, nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

import bsvr_pp as bp
from bsvr_pp.cli.messages import Jobs, Seed, Target, fail, failing, noting, print_notes
from bsvr_pp.core.atomic_write import atomic_write, check_writable
from bsvr_pp.tables import DataError, check_target, of_file

if TYPE_CHECKING:
    import pandas as pd

    from bsvr_pp.tables.readers import Table as DataTable

# Warnings of a fit that the command prints in its own words, or as notes on the file.
_REPORTED = (".*set aside", ".*did not converge", ".* has -?[0-9]+ in .* rows, far", ".*fitted in local blocks")


def fit(
    data: Annotated[Path, Argument(help="CSV file with one header row, or Parquet file or folder.")],
    target: Target = None,
    lower: Annotated[str | None, Option(help="Column of lower ends of intervals; an empty cell is no end.")] = None,
    upper: Annotated[str | None, Option(help="Column of upper ends; equal ends are an exact target.")] = None,
    event: Annotated[
        str | None, Option(help="Column with 1 if the time of --target was observed, 0 if censored.")
    ] = None,
    ordinal: Annotated[bool, Option("--ordinal", help="The target has ordered classes, sorted.")] = False,
    log_target: Annotated[bool, Option("--log-target", help="Model the log of a positive target.")] = False,
    out: Annotated[
        str, Option("--out", "-o", help="File of the model (netCDF); with / at its end a folder for many rows.")
    ] = "model.nc",
    noise: Annotated[str, Option(help="Noise model, such as huber or gaussian; a wrong name lists all.")] = "auto",
    kernel: Annotated[
        str, Option(help="auto, main_effects, rational_quadratic, rbf, matern32, matern52 or linear.")
    ] = "auto",
    quantile: Annotated[float, Option(help="Of pinball noise.")] = 0.5,
    inference: Annotated[str, Option(help="auto, mean_field, laplace or nuts.")] = "auto",
    ard: Annotated[
        bool | None,
        Option(help="One lengthscale for each input; by default where rows are many."),
    ] = None,
    restarts: Annotated[int | None, Option(help="Starts of the optimiser; by default 2, or 5 for laplace.")] = None,
    keep_outliers: Annotated[bool, Option("--keep-outliers", help="Keep rows whose targets are gross errors.")] = False,
    blocks: Annotated[
        int | None, Option(help="Rows of a local block; by default 1000 where there are many rows.")
    ] = None,
    jobs: Jobs = -1,
    seed: Seed = 0,
) -> None:
    """Fit support vector regression with error bars to a table, and save it for bsvr-pp predict.

    A model in a folder (-o model/) is fitted to data that may be larger than memory; predictions read only the blocks
    that they need. The same command continues an interrupted fit.
    """
    into_folder = out.endswith(("/", os.sep))
    with failing(ValueError):
        if ordinal and (keep_outliers or log_target or quantile != 0.5):
            raise ValueError("--ordinal takes no --quantile, --keep-outliers or --log-target")
        if into_folder and (ordinal or not {lower, upper, event} == {None}):
            raise ValueError(f"a model in a folder takes exact targets: leave out the / at the end of -o {out}")
        if not into_folder:
            table = _read(data, target, lower, upper, event, ordinal)
            check_target(table.target, table.known.tolist() if ordinal else None)
            dataset, _ = table.encode()
        check_writable("--out", out, folder=into_folder, read=[data], model=True)
    from bsvr_pp.core.arrays import check_choice
    from bsvr_pp.estimators.base import blocks_from
    from bsvr_pp.model.priors import KERNELS

    options: dict[str, Any] = {"noise": noise, "kernel": kernel, "inference": inference, "restarts": restarts}
    options["ard"] = "auto" if ard is None else ard
    with failing(TypeError, ValueError):
        check_choice("--kernel", kernel, ["auto", *KERNELS])
        local = blocks_from("auto" if blocks is None else blocks)
        options["blocks"] = replace(local, n_jobs=jobs, progressbar=sys.stdout.isatty() and into_folder)
        if ordinal:
            options = {name: value for name, value in options.items() if value != "auto"}  # of regressions
            model = bp.BayesianOrdinalSVC(**options, random_state=seed)
        else:
            options |= {"quantile": quantile, "log_targets": log_target}
            options["outliers"] = "keep" if keep_outliers else "set_aside"
            options["intervals"] = not into_folder and table.known.ndim == 2
            model = bp.BayesianSVR(**options, random_state=seed)
    if into_folder:
        with failing(OSError, place=out), failing(MemoryError, ValueError), noting(data, *_REPORTED):
            folder = bp.fit_folder(model, data, folder=out, target=target)
        print_notes(folder.notes)
        _print(f"{folder.target}: {folder.blocks_.n} rows, in its own units", folder, out, "NEW.parquet")
        return
    with (
        failing(MemoryError, ValueError),
        Console().status(f"fitting {len(dataset.y)} rows", spinner="dots") if sys.stdout.isatty() else nullcontext(),
        noting(data, *_REPORTED),
    ):
        model.fit(table.inputs, table.known)
    result = model.result_
    result.attrs["target"] = dataset.target
    print_notes(dataset.notes)
    title = f"{table.target}: {len(table.y)} rows, in its own units"
    if isinstance(model, bp.BayesianOrdinalSVC):
        title = f"{table.target}: {model.classes_.size} classes, in standard deviations of the noise"
    with failing(OSError, ValueError, place=out):
        bp.save(result, out)
    _print(title, model, out, "NEW.csv", table.inputs)


def _read(
    data: Path, target: str | None, lower: str | None, upper: str | None, event: str | None, ordinal: bool
) -> DataTable:
    """Read the file with the targets that the options ask for."""
    from bsvr_pp.tables.readers import read_classes, read_data, read_intervals, read_times

    if (lower is None) != (upper is None):
        raise ValueError("--lower and --upper must be given together")
    if lower is not None and upper is not None:
        if target is not None or event is not None or ordinal:
            raise ValueError(
                "--lower and --upper say what is known of the target: leave out --target, --event, --ordinal"
            )
        return read_intervals(data, lower, upper)
    if event is not None:
        if ordinal or event == target:
            raise ValueError("--event must be the column of the status of a time, without --ordinal")
        return read_times(data, target, event)
    return read_classes(data, target) if ordinal else read_data(data, target)


def _numbers(model: bp.BayesianSVR | bp.BayesianOrdinalSVC | bp.FolderModel) -> dict[str, float]:
    """Return numbers of a model, NaN where it has none."""
    if isinstance(model, bp.BayesianOrdinalSVC):
        cuts = zip(model.classes_[:-1], model.classes_[1:], model.cutpoints_, strict=True)
        found = {f"cut point, {below} to {above}": cut for below, above, cut in cuts}
        return {"log evidence": model.log_evidence_, "amplitude of the function": model.amplitude_} | found
    return {
        "log evidence": getattr(model, "log_evidence_", nan),  # of blocks that may not be solved
        "C": model.C_,
        "epsilon": getattr(model, "epsilon_", nan),
        "noise, standard deviation": sqrt(model.noise_variance_),
        "blocks": len(model.blocks_) if isinstance(model, bp.FolderModel) else nan,
        "support vectors": getattr(model, "n_support_", nan),  # not in a folder
    }


def _print(title: str, model: Any, out: str, new: str, inputs: pd.DataFrame | None = None) -> None:
    """Print numbers of a model, its inputs by importance, any problems, and how to predict."""
    import numpy as np
    import pandas as pd

    from bsvr_pp.estimators.outliers import listed

    if getattr(model, "target_scale_", np.empty(0)).size:
        title += " at the median, and on the scale of roots elsewhere"
    rows, table = _numbers(model), Table("", title=Text(title))
    table.add_column("", justify="right")
    names = model.relevance_.index
    if getattr(model, "kernel_", "") == "main_effects" and len(names) > 1:
        shares = {
            str(column): bp.effect(model, inputs, i).attrs["share"] for i, column in enumerate(pd.DataFrame(inputs))
        }
        ordered = sorted(shares, key=lambda column: -shares[column])
        rows |= {f"share of the variance, {column}": shares[column] for column in ordered}
    else:
        rows |= {f"lengthscale {names[i]}": model.lengthscale_[i] for i in np.argsort(-model.relevance_)}
    for name, value in rows.items():
        if isfinite(value):
            table.add_row(Text(name), f"{value:.4g}")
    console = Console()
    console.print(table)
    outliers = getattr(model, "outliers_", np.empty(0, dtype=np.int64))
    if inputs is not None and outliers.size:
        console.print(
            "Gross errors, or targets with far wider noise than most, are set aside: "
            f"{listed(np.asarray(inputs.index)[outliers])} (--keep-outliers keeps them)."  # as in messages on the file
        )
    if not model.converged_:
        console.print("[bold red]The search for the hyperparameters did not converge.[/]")
    console.print(f"The model is in [bold]{escape(out)}[/]: bsvr-pp predict {escape(out)} {new}")


def predict(
    model: Annotated[Path, Argument(help="File or folder that bsvr-pp fit saved.")],
    data: Annotated[Path, Argument(help="CSV file, or Parquet file or folder, with the columns of the inputs.")],
    out: Annotated[Path, Option("--out", "-o", help="Where the predictions go: CSV or Parquet.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[
        float | None, Option(help="Coverage of the central interval, between 0 and 1; by default 0.9.")
    ] = None,
    survival: Annotated[
        str | None, Option(help="Values such as 1,2.5 whose probability to be exceeded is written.")
    ] = None,
    neighbours: Annotated[
        int | None, Option(help="Nearest rows of each prediction, by default the model's number; 0 is its own block.")
    ] = None,
    jobs: Jobs = -1,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval.

    A model of log y gives the median instead of the mean; ordered classes give the median class and the probability of
    each class. The same command continues interrupted predictions of a model in a folder.
    """
    import pandas as pd

    from bsvr_pp.tables.files import is_parquet, writing_predictions
    from bsvr_pp.tables.readers import read_new

    with failing(ValueError):
        if coverage is not None and not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        times = _times(survival)
        check_writable("--out", out, read=[model, data], model=False)
        if not is_parquet(out) and out.suffix.lower() not in ("", ".csv", ".txt"):
            raise ValueError(f"--out must end with .csv, .txt, .parquet or .pq, got {out.name}")
        if neighbours is not None and neighbours < 0:
            raise ValueError(f"--neighbours must be at least 0, got {neighbours}")
        found, target = _open(model)
        check_target(target, getattr(found, "classes_", None))
        encoding = found.encoding_
        if encoding is None:
            raise DataError(f"{model}: is a model of arrays, whose inputs have no names: use it in Python")
        for option, value in (("coverage", coverage), ("survival", times)):
            if value is not None and isinstance(found, bp.BayesianOrdinalSVC):
                raise ValueError(f"--{option} is for targets that are numbers, and these are classes")
        coverage = 0.9 if coverage is None else coverage
        if neighbours is not None:
            if neighbours and not model.is_dir() and getattr(found, "blocks_", None) is None:
                raise ValueError(f"--neighbours is for a model in blocks, got the dense one of {model}: leave it out")
            found.blocks = replace(found._local(), neighbours=neighbours or None)
        progressbar = isinstance(found, bp.FolderModel) and sys.stdout.isatty()
        found.blocks = replace(found._local(), n_jobs=jobs, progressbar=progressbar)
        rows: Any = data
        if not (model.is_dir() and is_parquet(data)):
            rows, notes = read_new(data, encoding)
            print_notes(notes)
    with failing(OSError, place=out), failing(ValueError), noting(data):
        if isinstance(found, bp.FolderModel):
            count = found.predict_into(rows, out, coverage=coverage, times=times)
        else:
            count = len(rows)
            with of_file(data), atomic_write(out) as fresh, writing_predictions(out, fresh) as add:
                if isinstance(found, bp.BayesianOrdinalSVC):
                    classes = zip(found.classes_, found.predict_proba(rows).T, strict=True)
                    shares = {f"P({label})": values for label, values in classes}
                    add(pd.DataFrame({target: found.predict(rows)} | shares))
                else:
                    add(found.predict_table(rows, coverage, target, times))
    Console().print(f"{count} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


def solve(model: Annotated[Path, Argument(help="Folder that bsvr-pp fit saved.")], jobs: Jobs = -1) -> None:
    """Solve all blocks of a model in a folder, for evidence, effects, joint draws and predictions from own blocks.

    Other predictions do not need it. The same command continues an interrupted run.
    """
    with failing(OSError, place=model), failing(ValueError), noting(model):
        found = bp.FolderModel(model)
        found.blocks = replace(found._local(), n_jobs=jobs, progressbar=sys.stdout.isatty())
        found.solve()
    Console().print(f"{len(found.blocks_)} blocks are solved; the log evidence is {found.log_evidence_:.6g}")


def example() -> None:
    """Write houses.csv, 200 simulated prices with six errors, and new.csv, five houses without a price."""
    import numpy as np
    import pandas as pd

    rng, n = np.random.default_rng(0), 205
    houses = pd.DataFrame({"rooms": rng.integers(2, 9, n), "distance": rng.uniform(0, 20, n).round(1)})
    houses["district"] = rng.choice(["north", "south", "harbour"], n)
    houses["built"] = pd.Series(rng.integers(1900, 2020, n)).where(rng.random(n) > 0.1).astype("Int64")  # with gaps
    of_district = houses["district"].map({"north": 0.0, "south": 15.0, "harbour": 40.0})
    mean = 60 + 25 * houses["rooms"] + 120 * np.exp(-houses["distance"] / 6) + of_district
    houses["price"] = (mean + rng.laplace(scale=8, size=n)).round()
    houses.loc[rng.choice(n - 5, 6, replace=False), "price"] *= 10  # a zero too many
    files = {"houses.csv": houses[:-5], "new.csv": houses[-5:].drop(columns="price")}
    for name in files:
        if Path(name).exists():
            fail(f"{name} exists: move it, or call the command in another folder")
    with failing(OSError):
        for name, table in files.items():
            with atomic_write(Path(name)) as fresh:
                table.to_csv(fresh, index=False)
    Console().print("houses.csv and new.csv are written: try bsvr-pp compare houses.csv --target price")


def _times(survival: str | None) -> list[float] | None:
    """Return numbers that are separated by commas."""
    try:
        return None if survival is None else [float(value) for value in survival.split(",")]
    except ValueError:
        raise ValueError(f"--survival must be numbers separated by commas, got {survival!r}") from None


def _open(model: Path) -> tuple[bp.BayesianSVR | bp.BayesianOrdinalSVC | bp.FolderModel, str]:
    """Return the estimator of a file or a folder, and the name of the target."""
    if model.is_dir():
        folder = bp.FolderModel(model)
        return folder, folder.target
    tree = bp.load(model)
    if not {"recipe", "target"} <= set(tree.attrs):
        raise DataError(f"{model}: is not a model that bsvr-pp fit saved")
    ordinal = tree.attrs.get("targets") == "ordinal"
    try:
        found = (bp.BayesianOrdinalSVC if ordinal else bp.BayesianSVR).from_result(tree)
    except ValueError as error:
        raise DataError(f"{model}: {error}") from None
    return found, str(tree.attrs["target"])

"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV or Parquet file."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from bsvr_pp._atomic_write import atomic_write, check_writable
from bsvr_pp.cli.messages import fail, failing, print_notes
from bsvr_pp.tables import DataError, of_file
from bsvr_pp.tables.files import is_parquet, writing_predictions
from bsvr_pp.tables.readers import read_new


def predict(
    model: Annotated[Path, Argument(help="File or folder that bsvr-pp fit saved.")],
    data: Annotated[Path, Argument(help="CSV file, or Parquet file or folder, with the columns of the inputs.")],
    out: Annotated[Path, Option("--out", "-o", help="Where the predictions go: CSV or Parquet.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[float, Option(help="Coverage of the central interval, between 0 and 1.")] = 0.9,
    survival: Annotated[
        str | None, Option(help="Values such as 1,2.5 whose probability to be exceeded is written.")
    ] = None,
    neighbours: Annotated[
        int | None, Option(help="Nearest rows of each prediction, by default those of the model; 0 is its own block.")
    ] = None,
    jobs: Annotated[int, Option(help="Threads of a model in a folder; -1 is one for each processor.")] = -1,
    scheduler: Annotated[
        str | None, Option(help="Address of a Dask scheduler, whose workers predict from a model in a folder.")
    ] = None,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval.

    For a model of log y the mean is replaced by the median; for ordered classes the median class and the probability
    of each class are written. If the predictions of a model in a folder are interrupted, the same command continues
    them.
    """
    with failing(ImportError, ValueError):
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        wanted = _Wanted(coverage, _values(survival), neighbours)
        check_writable("--out", out)
        if neighbours is not None and neighbours < 0:
            raise ValueError(f"--neighbours must be at least 0, got {neighbours}")
        if scheduler is not None and not model.is_dir():
            raise ValueError(f"--scheduler is for a model in a folder, got {model}")
        found, target = _opened(model, wanted)
        in_parts = model.is_dir() and is_parquet(data)
        rows: Any = data
        if not in_parts:
            rows, notes = read_new(data, found.encoding_)
            print_notes(notes)
    try:
        with failing(ImportError, ValueError), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            if model.is_dir():
                from bsvr_pp.large import predict_folder

                found.blocks = replace(found._local(), n_jobs=jobs, progressbar=sys.stdout.isatty())
                options: dict[str, Any] = {"coverage": coverage, "times": wanted.values or None}
                count = predict_folder(found, rows, out, client=scheduler, **options)
            else:
                count = len(rows)
                with of_file(data), atomic_write(out) as fresh, writing_predictions(out, fresh) as add:
                    add(wanted.table(found, rows, target))
    except OSError as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    print_notes([f"{data}: {warning.message}" for warning in said])
    Console().print(f"{count} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Options of the predictions: values to exceed, and neighbours (0 for none, None for those of the model)."""

    coverage: float
    values: list[float]
    neighbours: int | None

    def opened(self, found: Any) -> Any:
        """A model with these options."""
        if self.neighbours is not None and hasattr(found, "predict_table"):
            found.blocks = replace(found._local(), neighbours=self.neighbours or None)
        return found

    def table(self, estimator: Any, X: pd.DataFrame, target: str) -> pd.DataFrame:
        """The predictions of a regression, or the median class and the probability of each class."""
        if not hasattr(estimator, "predict_table"):
            columns = zip(estimator.classes_, estimator.predict_proba(X).T, strict=True)
            return pd.DataFrame({target: estimator.predict(X)} | {f"P({label})": values for label, values in columns})
        return estimator.predict_table(X, self.coverage, target, self.values or None)


def _values(survival: str | None) -> list[float]:
    """Numbers that are separated by commas."""
    try:
        return [] if survival is None else [float(value) for value in survival.split(",")]
    except ValueError:
        raise ValueError(f"--survival must be numbers separated by commas, got {survival!r}") from None


def _opened(model: Path, wanted: _Wanted) -> tuple[Any, str]:
    """The estimator of a file or a folder, and the name of the target."""
    import bsvr_pp as bp

    if model.is_dir():
        folder = bp.open_folder(model)
        if folder.encoding_ is None:
            raise DataError(f"{model}: is a model of arrays, whose inputs have no names: use it in Python")
        return wanted.opened(folder), folder.target
    tree = bp.load(model)
    if not {"recipe", "target"} <= set(tree.attrs):
        raise DataError(f"{model}: is not a model that bsvr-pp fit saved")
    ordinal = tree.attrs.get("targets") == "ordinal"
    if ordinal and wanted.values:
        raise ValueError("--survival is for targets that are numbers, and these are classes")
    try:
        found = (bp.BayesianOrdinalSVC if ordinal else bp.BayesianSVR).from_result(tree)
    except ValueError as error:
        raise DataError(f"{model}: {error}") from None
    if wanted.neighbours and getattr(found, "blocks_", None) is None:
        raise ValueError(f"--neighbours is for a model in blocks, and that of {model} is dense: leave it out")
    return wanted.opened(found), str(tree.attrs["target"])

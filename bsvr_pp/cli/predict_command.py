"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV or Parquet file."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from bsvr_pp.cli.messages import Jobs, fail, failing, print_notes
from bsvr_pp.core.atomic_write import atomic_write, check_writable
from bsvr_pp.tables import DataError, of_file
from bsvr_pp.tables.files import is_parquet, writing_predictions
from bsvr_pp.tables.readers import read_new

if TYPE_CHECKING:
    from bsvr_pp.estimators.ordinal import BayesianOrdinalSVC
    from bsvr_pp.estimators.svr import BayesianSVR
    from bsvr_pp.large import FolderModel
    from bsvr_pp.tables.columns import Encoding


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
        int | None, Option(help="Nearest rows of each prediction, by default the model's number; 0 is its own block.")
    ] = None,
    jobs: Jobs = -1,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval.

    For a model of log y the mean is replaced by the median; for ordered classes the median class and the probability
    of each class are written. If the predictions of a model in a folder are interrupted, the same command continues
    them.
    """
    import bsvr_pp as bp

    with failing(ValueError):
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        times = _times(survival)
        check_writable("--out", out)
        if neighbours is not None and neighbours < 0:
            raise ValueError(f"--neighbours must be at least 0, got {neighbours}")
        found, target = _open(model)
        encoding: Encoding | None = found.encoding_
        if encoding is None:
            raise DataError(f"{model}: is a model of arrays, whose inputs have no names: use it in Python")
        if isinstance(found, bp.BayesianOrdinalSVC):
            if times is not None:
                raise ValueError("--survival is for targets that are numbers, and these are classes")
        elif neighbours is not None:
            if neighbours and not model.is_dir() and getattr(found, "blocks_", None) is None:
                raise ValueError(f"--neighbours is for a model in blocks, got the dense one of {model}: leave it out")
            found.blocks = replace(found._local(), neighbours=neighbours or None)
        rows: Any = data
        if not (model.is_dir() and is_parquet(data)):
            rows, notes = read_new(data, encoding)
            print_notes(notes)
    try:
        with failing(ValueError), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            if isinstance(found, bp.FolderModel):
                found.blocks = replace(found._local(), n_jobs=jobs, progressbar=sys.stdout.isatty())
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
    except OSError as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    print_notes([f"{data}: {warning.message}" for warning in said])
    Console().print(f"{count} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


def _times(survival: str | None) -> list[float] | None:
    """Numbers that are separated by commas."""
    try:
        return None if survival is None else [float(value) for value in survival.split(",")]
    except ValueError:
        raise ValueError(f"--survival must be numbers separated by commas, got {survival!r}") from None


def _open(model: Path) -> tuple[BayesianSVR | BayesianOrdinalSVC | FolderModel, str]:
    """The estimator of a file or a folder, and the name of the target."""
    import bsvr_pp as bp

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

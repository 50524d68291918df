"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV or Parquet file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

from bsvr_pp._files import check_writable, replacing
from bsvr_pp.columns import Encoding
from bsvr_pp.commands import fail, print_notes
from bsvr_pp.datasets import DataError
from bsvr_pp.tables import is_parquet, read_new, writing_predictions

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="File or folder that bsvr-pp fit saved.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns of the inputs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the predictions go: CSV or Parquet.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[float, typer.Option(help="Coverage of the central interval, between 0 and 1.")] = 0.9,
    neighbours: Annotated[
        int | None, typer.Option(help="Nearest rows of each prediction, 64 by default; 0 combines blocks instead.")
    ] = None,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval."""
    try:
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        check_writable("--out", out)
        if neighbours is not None and neighbours < 0:
            raise ValueError(f"--neighbours must be at least 0, got {neighbours}")
        chosen: Any = "auto" if neighbours is None else neighbours or None
        notes, target, parts = (_of_folder if model.is_dir() else _of_file)(model, data, coverage, chosen)
    except (DataError, ImportError, ValueError) as error:
        fail(str(error))
    print_notes(notes)
    count = 0
    try:
        with (
            warnings.catch_warnings(record=True) as said,
            replacing(out) as fresh,
            writing_predictions(out, fresh) as add,
        ):
            warnings.simplefilter("always", UserWarning)
            for table in parts:
                add(table)
                count += len(table)
    except DataError as error:
        fail(str(error))
    except OSError as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    print_notes([str(warning.message) for warning in said])
    Console().print(f"{count} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


_Found = tuple[Sequence[str], str, Iterator[pd.DataFrame]]


def _of_file(model: Path, data: Path, coverage: float, neighbours: Any) -> _Found:
    """Notes, name of the target, and predictions of a model in a file."""
    from bsvr_pp.inference.files import load

    tree = load(model)
    if not {"recipe", "columns", "target"} <= set(tree.attrs):
        raise DataError(f"{model}: is not a model that bsvr-pp fit saved")
    X, notes = read_new(data, Encoding.from_json(str(tree.attrs["columns"])))
    target = str(tree.attrs["target"])
    import bsvr_pp as bp

    try:
        svr = bp.BayesianSVR.from_result(tree)
    except ValueError as error:
        raise DataError(f"{model}: {error}") from None
    if neighbours != "auto":
        svr.neighbours = neighbours
    return notes, target, iter([svr.predict_table(X, coverage, target)])


def _of_folder(model: Path, data: Path, coverage: float, neighbours: Any) -> _Found:
    """Notes, name of the target, and predictions of a model in a folder, part by part for Parquet files."""
    import bsvr_pp as bp

    found = bp.open_folder(model)
    if found.encoding is None:
        raise DataError(f"{model}: is a model of arrays, whose inputs have no names: use it in Python")
    if neighbours != "auto":
        found.neighbours = neighbours
    if is_parquet(data) or data.is_dir():
        return (), found.target, found.predict_parts(data, coverage)
    X, notes = read_new(data, found.encoding)
    return notes, found.target, iter([found.predict_table(X, coverage, found.target)])

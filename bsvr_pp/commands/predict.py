"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV or Parquet file."""

from __future__ import annotations

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
from bsvr_pp.tables import read_new, write_predictions

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="What bsvr-pp fit saved.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns of the inputs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the predictions go: CSV or Parquet.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[float, typer.Option(help="Coverage of the central interval, between 0 and 1.")] = 0.9,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval."""
    try:
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        check_writable("--out", out)
        tree = _read(model)
        X, notes = read_new(data, Encoding.from_json(str(tree.attrs["columns"])))
    except (DataError, ValueError) as error:
        fail(str(error))
    import bsvr_pp as bp

    try:
        svr = bp.BayesianSVR.from_result(tree)
    except ValueError as error:
        fail(f"{model}: {error}")
    print_notes(notes)
    mean, std = svr.predict(X, return_std=True)
    low, high = svr.predict_interval(X, coverage).T
    target = str(tree.attrs["target"])
    percent = f"{100 * coverage:g} %"
    table = pd.DataFrame({target: mean, "sd": std, f"lower {percent}": low, f"upper {percent}": high})
    try:
        with replacing(out) as fresh:
            write_predictions(table, fresh)
    except (DataError, OSError) as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    Console().print(f"{len(table)} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


def _read(path: Path) -> Any:
    from bsvr_pp.inference.files import load

    loaded = load(path)
    if not {"recipe", "columns", "target"} <= set(loaded.attrs):
        raise DataError(f"{path}: is not a model that bsvr-pp fit saved")
    return loaded

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
    survival: Annotated[
        str | None, typer.Option(help="Values such as 1,2.5 whose probability to be exceeded is written.")
    ] = None,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval.

    For a model of log y the mean is replaced by the median; for ordered classes the median class and the probability
    of each class are written.
    """
    try:
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        values = _values(survival)
        check_writable("--out", out)
        tree = _read(model)
        X, notes = read_new(data, Encoding.from_json(str(tree.attrs["columns"])))
    except (DataError, ValueError) as error:
        fail(str(error))
    target = str(tree.attrs["target"])
    try:
        if tree.attrs.get("targets") == "ordinal":
            table = _classes(tree, X, target, values)
        else:
            table = _regression(tree, X, target, coverage, values)
    except ValueError as error:
        fail(f"{model}: {error}")
    print_notes(notes)
    try:
        with replacing(out) as fresh:
            write_predictions(table, fresh)
    except (DataError, OSError) as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    Console().print(f"{len(table)} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


def _values(survival: str | None) -> list[float]:
    """Numbers that are separated by commas."""
    try:
        return [] if survival is None else [float(value) for value in survival.split(",")]
    except ValueError:
        raise ValueError(f"--survival must be numbers separated by commas, got {survival!r}") from None


def _regression(tree: Any, X: Any, target: str, coverage: float, values: list[float]) -> pd.DataFrame:
    import bsvr_pp as bp

    svr = bp.BayesianSVR.from_result(tree)
    percent = f"{100 * coverage:g} %"
    columns = {}
    if svr.log_targets:
        columns[target] = svr.predict(X)
    else:
        columns[target], columns["sd"] = svr.predict(X, return_std=True)
    columns[f"lower {percent}"], columns[f"upper {percent}"] = svr.predict_interval(X, coverage).T
    if values:
        exceeded = svr.predict_survival_function(X, values)
        columns |= {f"P(> {value:g})": column for value, column in zip(values, exceeded.T, strict=True)}
    return pd.DataFrame(columns)


def _classes(tree: Any, X: Any, target: str, values: list[float]) -> pd.DataFrame:
    import bsvr_pp as bp

    if values:
        raise ValueError("--survival is for targets that are numbers, and these are classes")
    svc = bp.BayesianOrdinalSVC.from_result(tree)
    probability = svc.predict_proba(X)
    columns = {f"P({label})": column for label, column in zip(svc.classes_, probability.T, strict=True)}
    return pd.DataFrame({target: svc.predict(X)} | columns)


def _read(path: Path) -> Any:
    from bsvr_pp.inference.files import load

    loaded = load(path)
    if not {"recipe", "columns", "target"} <= set(loaded.attrs):
        raise DataError(f"{path}: is not a model that bsvr-pp fit saved")
    return loaded

"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV or Parquet file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from bsvr_pp._atomic_write import atomic_write, check_writable
from bsvr_pp.cli.messages import fail, failing, print_notes
from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding
from bsvr_pp.tables.files import is_parquet, writing_predictions
from bsvr_pp.tables.readers import read_new


def predict(
    model: Annotated[Path, Argument(help="File or folder that bsvr-pp fit saved.")],
    data: Annotated[Path, Argument(help="CSV or Parquet file with the columns of the inputs.")],
    out: Annotated[Path, Option("--out", "-o", help="Where the predictions go: CSV or Parquet.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[float, Option(help="Coverage of the central interval, between 0 and 1.")] = 0.9,
    survival: Annotated[
        str | None, Option(help="Values such as 1,2.5 whose probability to be exceeded is written.")
    ] = None,
    neighbours: Annotated[
        int | None, Option(help="Nearest rows of each prediction, 64 by default; 0 combines blocks instead.")
    ] = None,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval.

    For a model of log y the mean is replaced by the median; for ordered classes the median class and the probability
    of each class are written.
    """
    with failing(ImportError, ValueError):
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        wanted = _Wanted(coverage, _values(survival), neighbours)
        check_writable("--out", out)
        if neighbours is not None and neighbours < 0:
            raise ValueError(f"--neighbours must be at least 0, got {neighbours}")
        notes, target, parts = (_of_folder if model.is_dir() else _of_file)(model, data, wanted)
    print_notes(notes)
    count = 0
    try:
        with (
            failing(DataError),
            warnings.catch_warnings(record=True) as said,
            atomic_write(out) as fresh,
            writing_predictions(out, fresh) as add,
        ):
            warnings.simplefilter("always", UserWarning)
            for table in parts:
                add(table)
                count += len(table)
    except OSError as error:
        fail(f"the predictions cannot be written to {out}: {error}")
    print_notes([str(warning.message) for warning in said])
    Console().print(f"{count} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Options of the predictions: values to exceed, and neighbours (0 for none, None for those of the model)."""

    coverage: float
    values: list[float]
    neighbours: int | None

    def table(self, svr: Any, X: Any, target: str) -> pd.DataFrame:
        """The predictions of a regression."""
        if self.neighbours is not None:
            svr.blocks = replace(svr._local(), neighbours=self.neighbours or None)
        return svr.predict_table(X, self.coverage, target, self.values or None)


_Found = tuple[Sequence[str], str, Iterator[pd.DataFrame]]


def _values(survival: str | None) -> list[float]:
    """Numbers that are separated by commas."""
    try:
        return [] if survival is None else [float(value) for value in survival.split(",")]
    except ValueError:
        raise ValueError(f"--survival must be numbers separated by commas, got {survival!r}") from None


def _of_file(model: Path, data: Path, wanted: _Wanted) -> _Found:
    """Notes, name of the target, and predictions of a model in a file."""
    from bsvr_pp.inference.netcdf import load

    tree = load(model)
    if not {"recipe", "columns", "target"} <= set(tree.attrs):
        raise DataError(f"{model}: is not a model that bsvr-pp fit saved")
    X, notes = read_new(data, Encoding.from_json(str(tree.attrs["columns"])))
    target = str(tree.attrs["target"])
    import bsvr_pp as bp

    try:
        if tree.attrs.get("targets") == "ordinal":
            table = _classes(bp.BayesianOrdinalSVC.from_result(tree), X, target, wanted)
        else:
            table = wanted.table(bp.BayesianSVR.from_result(tree), X, target)
    except ValueError as error:
        raise DataError(f"{model}: {error}") from None
    return notes, target, iter([table])


def _classes(svc: Any, X: Any, target: str, wanted: _Wanted) -> pd.DataFrame:
    """The median class and the probability of each class."""
    if wanted.values:
        raise ValueError("--survival is for targets that are numbers, and these are classes")
    probability = svc.predict_proba(X)
    columns = {f"P({label})": column for label, column in zip(svc.classes_, probability.T, strict=True)}
    return pd.DataFrame({target: svc.predict(X)} | columns)


def _of_folder(model: Path, data: Path, wanted: _Wanted) -> _Found:
    """Notes, name of the target, and predictions of a model in a folder, part by part for Parquet files."""
    import bsvr_pp as bp
    from bsvr_pp.large.sources import tables_of

    found = bp.open_folder(model)
    if found.encoding is None:
        raise DataError(f"{model}: is a model of arrays, whose inputs have no names: use it in Python")
    if is_parquet(data) or data.is_dir():
        tables = tables_of(data, list(found.encoding.kinds))
        return (), found.target, (wanted.table(found, table, found.target) for table in tables)
    X, notes = read_new(data, found.encoding)
    return notes, found.target, iter([wanted.table(found, X, found.target)])

"""``bsvr-pp predict``: predictions of a saved model for the rows of a CSV file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

from bsvr_pp.commands import check_out, fail
from bsvr_pp.datasets import DataError, read_inputs

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="What bsvr-pp fit saved.")],
    data: Annotated[Path, typer.Argument(help="CSV file with the columns of the inputs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the predictions go.")] = Path("predictions.csv"),
    coverage: Annotated[float, typer.Option(help="Of the central interval, between 0 and 1.")] = 0.9,
) -> None:
    """Predict the target for each row: mean, standard deviation and a central interval."""
    try:
        if not 0 < coverage < 1:
            raise ValueError(f"--coverage must lie strictly between 0 and 1, got {coverage}")
        check_out(out, folder=False)
        tree = _read(model)
        names = [str(name) for name in np.atleast_1d(tree.attrs["inputs"])]
        X = read_inputs(data, names)
    except (DataError, ValueError) as error:
        fail(str(error))
    import bsvr_pp as bp

    machine = bp.BayesianSVR.from_result(tree)
    mean, std = machine.predict(X, return_std=True)
    low, high = machine.predict_interval(X, coverage).T
    target = str(tree.attrs["target"])
    percent = f"{100 * coverage:g} %"
    table = pd.DataFrame({target: mean, "sd": std, f"lower {percent}": low, f"upper {percent}": high})
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bsvr-pp-") as folder:
        table.to_csv(Path(folder) / "predictions.csv", index=False)
        (Path(folder) / "predictions.csv").replace(out)
    Console().print(f"{len(table)} predictions of {escape(target)} are in [bold]{escape(str(out))}[/]")


def _read(path: Path) -> Any:
    import xarray as xr

    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        with xr.open_datatree(path) as tree:
            loaded = tree.load()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: is not a saved model ({str(error).splitlines()[0]})") from None
    if "recipe" not in loaded.attrs or "inputs" not in loaded.attrs:
        raise DataError(f"{path}: is not a model that bsvr-pp fit saved")
    return loaded

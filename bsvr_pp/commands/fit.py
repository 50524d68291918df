"""``bsvr-pp fit``: fit support vector regression to a CSV or Parquet file, and save the model."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bsvr_pp._files import check_writable
from bsvr_pp.commands import fail, print_notes
from bsvr_pp.datasets import DataError
from bsvr_pp.losses import NOISES
from bsvr_pp.tables import read_data

if TYPE_CHECKING:
    from bsvr_pp.estimators.svr import BayesianSVR
    from bsvr_pp.large import FolderModel

__all__ = ["fit"]


def fit(
    data: Annotated[Path, typer.Argument(help="CSV file with one header row, or Parquet file or folder.")],
    target: Annotated[str | None, typer.Option(help="Column to predict; by default the last.")] = None,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="File of the model (netCDF); with / at its end a folder for many rows."),
    ] = "model.nc",
    noise: Annotated[str, typer.Option(help=f"One of {', '.join(NOISES)}.")] = "soft_insensitive",
    kernel: Annotated[
        str, typer.Option(help="rational_quadratic, rbf, matern32, matern52 or linear.")
    ] = "rational_quadratic",
    quantile: Annotated[float, typer.Option(help="Of pinball noise.")] = 0.5,
    inference: Annotated[str, typer.Option(help="mean_field, laplace or nuts.")] = "mean_field",
    ard: Annotated[bool, typer.Option(help="One lengthscale for each input.")] = True,
    restarts: Annotated[
        int | None, typer.Option(help="Starts of the optimiser; by default 2, or 5 for laplace.")
    ] = None,
    committee: Annotated[bool, typer.Option("--committee", help="Average over all optima, by evidence.")] = False,
    keep_outliers: Annotated[
        bool, typer.Option("--keep-outliers", help="Keep rows whose targets are gross errors.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="cpu, gpu, auto (a GPU if there is one) or jax (the default device of JAX).")
    ] = "cpu",
    blocks: Annotated[
        int | None, typer.Option(help="Rows of a local block; by default 1000 where there are many rows.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Threads that solve blocks; -1 is one for each processor.")] = -1,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, whose workers solve the blocks of a folder.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
) -> None:
    """Fit support vector regression with error bars to a table, and save it for bsvr-pp predict.

    A model in a folder (-o model/) is for data that may be larger than memory. If its fit is interrupted, the same
    command continues it.
    """
    into_folder = out.endswith(("/", os.sep))
    try:
        if scheduler is not None and not into_folder:
            raise ValueError(f"--scheduler is for a model in a folder, such as -o model/, got -o {out}")
        if not into_folder:
            dataset, encoding = read_data(data, target).encode()
        check_writable("--out", out, folder=into_folder)
    except (DataError, ValueError) as error:
        fail(str(error))
    import bsvr_pp as bp

    svr = bp.BayesianSVR(
        noise,
        kernel=kernel,  # type: ignore[arg-type]
        quantile=quantile,
        inference=inference,
        ard=ard,
        restarts=restarts,
        committee=committee,
        outliers="keep" if keep_outliers else "set_aside",
        device=device,  # type: ignore[arg-type]
        blocks="auto" if blocks is None else blocks,
        n_jobs=jobs,
        progressbar=sys.stdout.isatty() and into_folder,
        random_state=seed,
    )
    console = Console()
    if into_folder:
        _fit_folder(console, svr, data, target, out, scheduler)
        return
    with console.status(f"fitting {len(dataset.y)} rows", spinner="dots") if sys.stdout.isatty() else nullcontext():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what did not converge or is set aside is reported below
                svr.fit(dataset.X, dataset.y)
        except (MemoryError, ValueError) as error:
            fail(str(error))
    result = svr.result_
    result.attrs["columns"], result.attrs["target"] = encoding.to_json(), dataset.target
    print_notes(dataset.notes)
    machine = {}
    if svr.device == "cpu" or svr.blocks_ is None:  # in many blocks the mode takes longer than the fit on a device
        machine["support vectors"] = svr.n_support_
    _print(console, svr, svr._rows.place.size, dataset.inputs, dataset.target, machine)
    if svr.outliers_.size:
        from bsvr_pp.estimators.outliers import listed

        gone = listed(svr.outliers_ + 1)  # counted from 1
        console.print(f"Gross errors, which no noise explains, are set aside: {gone} (--keep-outliers keeps them).")
    if not svr.converged_:
        console.print("[bold red]The search for the hyperparameters did not converge.[/]")
    try:
        bp.save(result, out)
    except (OSError, ValueError) as error:
        fail(f"the model cannot be written to {out}: {error}")
    console.print(f"The model is in [bold]{escape(out)}[/]: bsvr-pp predict {escape(out)} NEW.csv")


def _fit_folder(
    console: Console, svr: BayesianSVR, data: Path, target: str | None, out: str, scheduler: str | None
) -> None:
    from bsvr_pp.large import fit_folder

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what did not converge is reported below
            model = fit_folder(svr, data, folder=out, target=target, client=scheduler)
    except (DataError, ImportError, MemoryError, ValueError) as error:
        fail(str(error))
    print_notes(model.notes)
    _print(console, model, model.blocks_.n, model.names, model.target, {"blocks": len(model.blocks_)})
    if not model.converged_:
        console.print("[bold red]The solves of some blocks did not converge.[/]")
    console.print(f"The model is in [bold]{escape(out)}[/]: bsvr-pp predict {escape(out)} NEW.parquet")


def _print(
    console: Console,
    svr: BayesianSVR | FolderModel,
    n: int,
    inputs: tuple[str, ...],
    target: str,
    others: dict[str, int],
) -> None:
    table = Table("", title=f"{target}: {n} rows, in its own units")
    table.add_column("", justify="right")
    rows = {
        "log evidence": svr.log_evidence_,
        "C": svr.C_,
        "epsilon": getattr(svr, "epsilon_", np.nan),
        "noise, standard deviation": np.sqrt(svr.noise_variance_),
        **others,
    }
    for i in np.argsort(-svr.relevance_):
        rows[f"lengthscale {inputs[i]}"] = svr.lengthscale_[i]
    for name, value in rows.items():
        if np.isfinite(value):
            table.add_row(escape(name), f"{value:.4g}")
    console.print(table)

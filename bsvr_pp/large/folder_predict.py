"""Predictions of the model of a folder for many new rows, from files to a file.

Each stage leaves files in a folder beside the file of the predictions, so that a call that was killed goes on:

1. the new inputs are encoded, and ordered by the blocks whose regions hold them;
2. the predictions of rows that follow one another in this order need the same few blocks: they are a task of its own
   with one BLAS thread, which writes a file;
3. the predictions are joined in the order of the rows.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.atomic_write import atomic_write, check_writable, locked
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.estimators.base import LocalBlocks, central_levels
from bsvr_pp.large.folder_model import FolderModel, checked, open_folder
from bsvr_pp.large.sources import Data, Source, new_rows_of, open_rows, write_array, writing_rows
from bsvr_pp.large.tasks import NO_THREADS, Record, Records, all_whole, checksum, connected, run_tasks
from bsvr_pp.tables import of_file
from bsvr_pp.tables.files import writing_predictions

if TYPE_CHECKING:
    from distributed import Client

_TASK = 5000  # rows of a task
_ROWS = 50_000  # that are written together


def predict_folder(
    model: FolderModel,
    data: Data,
    out: str | Path,
    *,
    coverage: float = 0.9,
    times: ArrayLike | None = None,
    client: Client | str | None = None,
) -> int:
    """Predict for any number of rows, into a file.

    In memory are the rows of a task, the blocks that they need, and some integers for each new row. If the call is
    interrupted, the same call continues it.

    Parameters
    ----------
    model : FolderModel
        The model; its options ``blocks``, with ``n_jobs`` threads, and ``noise_scales`` may be set.
    data : path, data frame or array
        New inputs, as in `fit_folder`; other columns of tables are ignored.
    out : str or Path
        The file, Parquet if its name ends so and else CSV, with the columns of `FolderModel.predict_table`.
    coverage, times
        As in `FolderModel.predict_table`.
    client : distributed.Client or str, optional
        As in `fit_folder`.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    ValueError
        If an option or the data cannot serve.
    """
    checked(model)
    values = None if times is None else model._checked_times(times).tolist()
    central_levels(coverage)
    path = check_writable("out", out).absolute()
    source, local = new_rows_of(data, model.encoding_), model._local()
    run = {
        "model": str(model.folder),
        "checksum": checksum(model._record),
        "data": source.identity,
        "blocks": asdict(local) | NO_THREADS,
        "noise_scales": bool(model.noise_scales),
        "task": _TASK,
        "options": {"coverage": float(coverage), "target": model.target or "y", "times": values},
    }
    place = path.parent / f".bsvr-pp-{path.name}"
    with connected(client) as found, local.threads(), locked(place):
        work = Records(place)
        if work.get("run") != run:
            for name in work:
                (place / f"{name}.json").unlink()
            work = Records(place)
        work["run"] = run
        if "order" not in work or not all_whole(place / "inputs.npy", place / "order.npy"):
            with of_file(source.name):
                _order(model, source, work)
        rows = int(work["order"]["rows"])
        files = run_tasks(_predict, work, -(-rows // _TASK), found, "predictions" if local.progressbar else "")
        _join(files, path, rows)
        shutil.rmtree(place, ignore_errors=True)
    return rows


def _order(model: FolderModel, source: Source, work: Records) -> None:
    """Write the encoded inputs, and the order of their blocks."""
    own = []
    with writing_rows(work.folder / "inputs.npy") as add:
        for inputs, _ in source.parts():
            X = model._encoded(inputs)
            add(X)
            own.append(model._stored.regions.assign(model._standardised(X)))
    order = np.argsort(np.concatenate(own), kind="stable")
    write_array(work.folder / "order.npy", order)
    work["order"] = {"rows": order.size}


@lru_cache(maxsize=2)
def _opened(folder: str, stamp: str) -> tuple[FolderModel, Record]:
    """Model and options; ``stamp`` changes with them."""
    run = Records(Path(folder))["run"]
    model = open_folder(run["model"])
    if checksum(model._record) != run["checksum"]:
        raise ValueError(f"{model.folder}: has another model than the one that was given: open_folder reads it")
    model.blocks, model.noise_scales = LocalBlocks(**run["blocks"]), run["noise_scales"]
    return model, run


def _predict(folder: str, stamp: str, part: int) -> dict[str, NDArray[np.generic]]:
    """Predict some rows."""
    model, run = _opened(folder, stamp)
    rows = open_rows(Path(folder) / "order.npy")[part * run["task"] :][: run["task"]]
    with threads_for(1):
        table = model.predict_table(open_rows(Path(folder) / "inputs.npy")[rows], **run["options"])
    return {"rows": rows, "values": table.to_numpy(), "names": table.columns.to_numpy(dtype=str)}


def _join(parts: list[Path], path: Path, n: int) -> None:
    """Write the predictions in the order of the rows."""
    with np.load(parts[0]) as saved:
        names = saved["names"].tolist()
    found = np.lib.format.open_memmap(parts[0].with_name("found.npy"), "w+", float, (n, len(names)))
    for part in parts:
        with np.load(part) as saved:
            found[saved["rows"]] = saved["values"]
    with atomic_write(path) as fresh, writing_predictions(path, fresh) as add:
        for at in range(0, n, _ROWS):
            add(pd.DataFrame(found[at : at + _ROWS], columns=names))

"""Rows that are added to the model of a folder later, at its hyperparameters, standardisation and scales of the noise.

A new row joins the block whose region holds it. Only these blocks are solved again, each in a task; one that has more
rows than the fit allows is cut first. All their rows are in a folder of their own (`bsvr_pp.large.stored_rows`), and
the model changes when this is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._arrays import Array, Rows
from bsvr_pp._atomic_write import check_writable, locked
from bsvr_pp.estimators.training_data import log_of
from bsvr_pp.large.folder_fit import finish, solve_blocks
from bsvr_pp.large.folder_model import FolderModel, checked, open_folder
from bsvr_pp.large.sources import Source, source_of, writing_rows
from bsvr_pp.large.stored_rows import OF_BLOCKS, StoredRows
from bsvr_pp.large.tasks import Records, connected
from bsvr_pp.tables import of_file
from bsvr_pp.version import __version__


def extend_folder(model: FolderModel, data: Any, y: Any = None, *, client: Any = None) -> FolderModel:
    """Add rows to the model of a folder, at its hyperparameters, without touching blocks that they do not join.

    The cost is that of the blocks that they join; in memory are the new rows. If the call is interrupted, the same call
    continues it, and data that were added are not added again. Rows that other calls have added to the folder since the
    model was opened are kept; a folder takes one call at a time, and another is refused.

    Parameters
    ----------
    model : FolderModel
        The model before, with options of the call in ``model.blocks``.
    data, y, client
        As in `fit_folder`.

    Returns
    -------
    FolderModel
        The model with all rows.

    Raises
    ------
    ValueError
        If the data cannot serve, the folder has another model now, or another process writes into it.

    Warns
    -----
    ConvergenceWarning
        If blocks did not converge.
    """
    path = check_writable("model", checked(model).folder, folder=True)
    source = source_of(data, y, (model.target or None) if y is None else None)
    if bool(source.target) != (model.encoding_ is not None):
        raise ValueError("data must be of the kind of the fit: a table with the same columns, or arrays")
    local = model._local()
    with connected(client) as found, local.threads(), locked(path):
        now = open_folder(path)
        if now.run != model.run:
            raise ValueError(f"{path}: has another model than the one that was given: open_folder reads it")
        record = deepcopy(now._record)
        if source.identity in record["added"]:
            return now
        segment = path / f"added-{1 + len(record['added'])}"
        work = Records(segment / "work")
        run = record["run"] | {"data": source.identity, "version": __version__}
        if work.get("run") != run:
            shutil.rmtree(segment, ignore_errors=True)
        with of_file(source.name):
            X, targets = (np.concatenate(each) for each in zip(*_in_units(now, source), strict=True))
        work.update(run=run, data=record["data"], hyperparameters={"point": record["point"]})
        index, solved = _sorted(now, segment, {"inputs.npy": X, "targets.npy": targets})
        ended = solve_blocks(segment, work, index.size[solved], found, local)
        index.log_evidence[solved], index.converged[solved] = ended
        index.write_index()
        record["data"]["rows"] += len(X)
        record["added"] += [source.identity]
        return finish(path, record, work.folder, index.converged[solved])


def _in_units(model: FolderModel, source: Source) -> Iterator[tuple[Array, Array]]:
    """The rows in the units of the fit."""
    for inputs, y in source.parts():
        units = model._fit.units
        targets = log_of("y", y) if units.logarithm else y
        yield model._standardised(inputs), (targets - units.location) / units.unit


def _sorted(model: FolderModel, segment: Path, new: dict[str, NDArray[Any]]) -> tuple[StoredRows, Rows]:
    """Write all rows of the blocks with new rows; the index then, and these blocks in their order in the files."""
    stored, own = model._stored, model._stored.regions.assign(new["inputs.npy"])
    new["row.npy"] = np.arange(own.size) + stored.size.sum()
    place = np.argsort(own, kind="stable")
    touched, first = np.unique(own[place], return_index=True)
    joining = dict(zip(touched.tolist(), np.split(place, first[1:]), strict=True))

    def joined(name: str, block: int) -> NDArray[Any]:
        return np.concatenate([stored.read(name, stored.of(block)), new[name][joining[block]]])

    most = model._spec.local.rows
    regions, labels = stored.regions.divided(((block, joined("inputs.npy", block)) for block in joining), most)
    counted = (np.unique(label, return_counts=True) for label in labels)
    solved, sizes = (np.concatenate(each) for each in zip(*counted, strict=True))
    for name in new:
        with writing_rows(segment / name) as add:
            for block, label in zip(joining, labels, strict=True):
                add(joined(name, block)[np.argsort(label, kind="stable")])
    more = len(regions.middle) - stored.size.size
    arrays: Any = {name: np.pad(getattr(stored, name), (0, more)) for name in OF_BLOCKS}
    index = StoredRows((*stored.segments, segment), regions, **arrays)
    index.start[solved], index.size[solved] = stored.base[-1] + np.cumsum(sizes) - sizes, sizes
    return index, solved

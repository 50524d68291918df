"""Rows that are added to the model of a folder later, at its hyperparameters, standardisation and scales of the noise.

A new row joins the block whose region holds it. Only these blocks are solved again, each in a task; one that has more
rows than the fit allows is cut first. All their rows are in a folder of their own (`bsvr_pp.large.stored_rows`), and
the model changes when this is complete.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.estimators.base import blocks_from
from bsvr_pp.estimators.training_data import logs_of_targets
from bsvr_pp.large.folder_fit import finish, join, solve_blocks
from bsvr_pp.large.folder_model import FolderModel, open_folder
from bsvr_pp.large.records import Records
from bsvr_pp.large.sources import Source, open_rows, source_of, write_array, writing_rows
from bsvr_pp.large.stored_rows import StoredRows
from bsvr_pp.large.tasks import connected
from bsvr_pp.model.blocks import Regions
from bsvr_pp.tables import of_file
from bsvr_pp.version import __version__

Rows = NDArray[np.int64]


def extend_folder(model: FolderModel, data: Any, y: Any = None, *, client: Any = None) -> FolderModel:
    """Add rows to the model of a folder, without touching blocks that they do not join.

    The cost is that of the blocks that they join. If the call is interrupted, the same call continues it, and data that
    were added are not added again.

    Parameters
    ----------
    model : FolderModel
        The model, which stays as it is until it is opened again.
    data, y, client
        As in `fit_folder`: files, a table with the columns of the fit, or arrays.

    Returns
    -------
    FolderModel
        The model with all rows.

    Raises
    ------
    ValueError
        If the data cannot serve.

    Warns
    -----
    ConvergenceWarning
        If blocks did not converge.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(0, 9, 60)[:, None]
    >>> svr = bp.BayesianSVR(blocks=30, restarts=1, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = bp.fit_folder(svr, X, np.sin(X[:, 0]), folder=folder + "/model")
    ...     more = bp.extend_folder(model, X[:3] + 0.05, np.sin(X[:3, 0] + 0.05))
    ...     model.blocks_.n, more.blocks_.n
    (60, 63)
    """
    if not isinstance(model, FolderModel):
        raise ValueError(f"model must be a FolderModel, as fit_folder and open_folder return, got {model!r}")
    path, source = model.folder.absolute(), source_of(data, y, (model.target or None) if y is None else None)
    if bool(source.target) != (model.encoding_ is not None):
        raise ValueError("data must be of the kind of the fit: a table with the same columns, or arrays")
    record = json.loads((path / "model.json").read_text())
    if source.identity in record["added"]:
        return open_folder(path)
    segment = path / f"added-{len(record['segments'])}"
    work = Records(segment / "work")
    run = record["run"] | {"data": source.identity, "version": __version__}
    if work.get("run") != run:
        shutil.rmtree(segment, ignore_errors=True)
        work.clear()
    with connected(client) as found, model._local().threads():
        work.update(run=run, data=record["data"], hyperparameters={"point": record["point"]})
        if "rows" not in work:
            with of_file(source.name):
                _encode(model, source, work)
        index, solved = _sorted(model, segment, work)
        solve_blocks(segment, work, index.size[solved], found, model._local())
    index.log_evidence[solved], index.converged[solved] = join(segment, index.size[solved])
    index.write_index()
    record["data"]["rows"] += work["rows"]
    record |= {"segments": [*record["segments"], segment.name], "added": [*record["added"], source.identity]}
    return finish(path, record, work.folder, index.converged[solved])


def _encode(model: FolderModel, source: Source, work: Records) -> None:
    """Write the rows in the units of the fit, and the block of each."""
    n, own = sum(len(y) for _, y in source.parts()), []
    with (
        writing_rows(work.folder / "inputs.npy", (n, model.n_features_in_)) as add_inputs,
        writing_rows(work.folder / "targets.npy", (n,)) as add_targets,
    ):
        for inputs, y in source.parts():
            X = model._standardised(inputs)
            add_inputs(X)
            add_targets(((logs_of_targets(y, None)[0] if model.log_targets else y) - model.location_) / model.unit_)
            own.append(model._stored.regions.assign(X))
    write_array(work.folder / "own.npy", np.concatenate(own))
    work["rows"] = n


def _sorted(model: FolderModel, segment: Path, work: Records) -> tuple[StoredRows, Rows]:
    """Write all rows of the blocks with new rows; the index then, and these blocks in their order in the files."""
    stored, own = model._stored, np.load(work.folder / "own.npy")
    order = np.argsort(own, kind="stable")
    touched, first = np.unique(own[order], return_index=True)
    new = dict(zip(touched.tolist(), np.split(order, first[1:]), strict=True))
    added = {name: open_rows(work.folder / name) for name in ("inputs.npy", "targets.npy")}
    added["row.npy"] = np.arange(own.size) + stored.size.sum()

    def joined(name: str, block: int) -> NDArray[Any]:
        return np.concatenate([stored.read(name, stored.of(block)), added[name][new[block]]])

    most = blocks_from(model._estimator.blocks).rows
    regions, labels = stored.regions.divided(((block, joined("inputs.npy", block)) for block in new), most)
    parts = [
        (block, number, np.flatnonzero(label == number))
        for block, label in zip(new, labels, strict=True)
        for number in np.unique(label)
    ]
    index = _with_room(stored, segment, regions)
    solved = np.array([number for _, number, _ in parts])
    index.size[solved] = [members.size for _, _, members in parts]
    index.start[solved] = stored.base[-1] + np.cumsum([0, *index.size[solved][:-1]])
    if not (segment / "row.npy").is_file():
        total = int(index.size[solved].sum())
        for name, shape in (("inputs.npy", (total, model.n_features_in_)), ("targets.npy", (total,))):
            with writing_rows(segment / name, shape) as add:
                for block, _, members in parts:
                    add(joined(name, block)[members])
        write_array(segment / "row.npy", np.concatenate([joined("row.npy", b)[members] for b, _, members in parts]))
    return index, solved


def _with_room(stored: StoredRows, segment: Path, regions: Regions) -> StoredRows:
    """An index with another segment, and regions that may have more blocks."""
    more = len(regions.middle) - stored.size.size
    arrays = (np.pad(getattr(stored, name), (0, more)) for name in ("start", "size", "log_evidence", "converged"))
    return StoredRows((*stored.segments, segment), regions, *arrays)

"""Training data become standardised numbers in files, in passes over their parts.

The first pass summarises the columns of a table, which gives their encoding; the second writes the encoded rows; the
third standardises them as `BayesianSVR` does. Only the targets are in memory together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.estimators.censored import logs_of_targets
from bsvr_pp.large.folder import open_rows, write_array, writing_rows
from bsvr_pp.large.sources import Source
from bsvr_pp.model.blocks import mean_and_deviation
from bsvr_pp.model.priors import location_and_scale
from bsvr_pp.tables import DataError, of_file
from bsvr_pp.tables.columns import Encoding, Summary, merged, summarize
from bsvr_pp.tables.readers import check_column, check_rows

__all__ = ["encode"]

Array = NDArray[np.float64]

_ROWS = 50_000  # that are standardised together


def encode(source: Source, folder: Path, *, rows: int, log_targets: bool) -> dict[str, Any]:
    """Write standardised inputs and targets, ``inputs.npy`` and ``targets.npy`` of a folder.

    Parameters
    ----------
    source : Source
        The data.
    folder : Path
        The folder.
    rows : int
        Number of rows that there must be more of.
    log_targets : bool
        Whether the model is one of log y.

    Returns
    -------
    dict
        Plain data: number of rows, names and encoding of the inputs, name of the target, means and scales, and notes
        for the user.

    Raises
    ------
    ValueError
        If the data cannot serve.
    """
    encoding, n, d = _summarised(source)
    check_rows(source.name, n)
    if n <= rows:
        raise DataError(f"{source.name}: has {n} rows, and a folder needs more than one block of {rows}")
    names = tuple(f"x{i}" for i in range(d)) if encoding is None else encoding.names
    raw, targets, low, high = folder / "encoded.npy", [], np.full(d, np.inf), np.full(d, -np.inf)
    notes = dict.fromkeys(() if encoding is None else encoding.notes)
    with writing_rows(raw, (n, d)) as add:
        for inputs, part in source.parts():
            with of_file(source.name):
                X, said = (inputs, ()) if encoding is None else encoding.transform(inputs)
            add(X)
            targets.append(part)
            low, high = np.minimum(low, X.min(axis=0)), np.maximum(high, X.max(axis=0))
            notes |= dict.fromkeys(said)
    y = np.concatenate(targets)
    for name, *ends in zip((*names, source.target or "y"), (*low, y.min()), (*high, y.max()), strict=True):
        check_column(source.name, name, np.array(ends))
    if log_targets:
        y = logs_of_targets(y, None)[0]
    encoded = open_rows(raw)
    mean, scale = mean_and_deviation(encoded)
    location, unit = location_and_scale(y)
    with writing_rows(folder / "inputs.npy", (n, d)) as add:
        for at in range(0, n, _ROWS):
            add((encoded[at : at + _ROWS] - mean) / scale)
    write_array(folder / "targets.npy", (y - location) / unit)
    raw.unlink()
    return {
        "rows": n,
        "names": list(names),
        "columns": None if encoding is None else encoding.to_json(),
        "target": source.target,
        "notes": [f"{source.name}: {note}" for note in notes],
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "location": location,
        "unit": unit,
    }


def _summarised(source: Source) -> tuple[Encoding | None, int, int]:
    """The encoding of the columns of a table, None for arrays; the numbers of rows and of encoded columns."""
    if not source.target:
        shapes = [inputs.shape for inputs, _ in source.parts()]
        return None, sum(rows for rows, _ in shapes), shapes[0][1] if shapes else 0
    n, found = 0, dict[str, Summary]()
    for inputs, y in source.parts():
        n += len(y)
        with of_file(source.name):
            part = summarize(inputs)
            found = merged(found, part) if found else part
    if not found:
        raise DataError(f"{source.name}: has no column except the target {source.target!r}")
    with of_file(source.name):
        encoding = Encoding.of(found)
    return encoding, n, len(encoding.names)

"""The folder of a long sampling run: finished segments of each chain, and a fingerprint of the run.

A segment is a file with a checksum, which is written when the segment is finished. A damaged or missing segment is
sampled again, with the same draws (`bsvr_pp.inference.segments`).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp._atomic_write import atomic_write, check_writable
from bsvr_pp.inference.chains import Chain
from bsvr_pp.inference.fingerprint import difference
from bsvr_pp.inference.netcdf import load, save

__all__ = ["Checkpoint", "check_folder"]

Array = NDArray[np.float64]


def check_folder(folder: str | Path) -> Path:
    """Check before any work that a folder can be written and has no other content.

    Raises
    ------
    ValueError
        Naming the folder.
    """
    path = check_writable("checkpoint", folder, folder=True)
    if path.exists() and not (path / "run.json").exists() and any(path.iterdir()):
        raise ValueError(f"checkpoint must be a new folder or that of an earlier run, and {path} has files")
    return path


class Checkpoint:
    """The segments of one run.

    Parameters
    ----------
    folder : str or Path
        The folder; it is created if it does not exist.
    record : dict
        Fingerprint of the run.
    any_seed : bool
        Whether the seed of an earlier run in the folder, if there is one, replaces that of the record.

    Attributes
    ----------
    seed : int
        Seed of the run.

    Raises
    ------
    ValueError
        If the folder cannot be written, holds another run or other files.
    """

    def __init__(self, folder: str | Path, record: dict[str, Any], *, any_seed: bool = False) -> None:
        self.folder = check_folder(folder)
        self._failed = False
        file = self.folder / "run.json"
        if file.exists():
            found = _read_record(file)
            if any_seed and isinstance(found.get("seed"), int):
                record = record | {"seed": found["seed"]}
            different = difference(found, record)
            if different:
                raise ValueError(
                    f"checkpoint must be a folder of this run, but {self.folder} holds one with another {different}: "
                    "name another folder"
                )
        else:
            with atomic_write(file) as fresh:
                fresh.write_text(json.dumps(record, indent=1) + "\n")
        self.seed: int = record["seed"]

    def read(self, chain: int, segment: int) -> tuple[Chain, Array] | None:
        """Return the draws of a segment and the unconstrained point at its end; None if it is missing or damaged.

        Warns
        -----
        UserWarning
            If it is damaged.
        """
        path = self._path(chain, segment)
        if not path.exists():
            return None
        try:
            tree = load(path)
            found = {group: tree[group].to_dataset() for group in ("posterior", "sample_stats")}
            return found, tree["end"].to_dataset()["position"].values
        except (ValueError, KeyError) as error:
            warnings.warn(f"{error}; this segment is sampled again", UserWarning, stacklevel=5)
            return None

    def write(self, chain: int, segment: int, draws: Chain, position: Array) -> None:
        """Write a segment.

        Warns
        -----
        UserWarning
            Once, if the disk is full or fails; the run continues in memory.
        """
        end = xr.Dataset({"position": ("unconstrained_parameter", position)})
        try:
            save(xr.DataTree.from_dict({**draws, "end": end}), self._path(chain, segment))
        except (OSError, ValueError) as error:
            if not self._failed:
                warnings.warn(
                    f"draws cannot be kept in {self.folder} ({error}): sampling goes on without a checkpoint, what is "
                    "there stays",
                    UserWarning,
                    stacklevel=5,
                )
            self._failed = True

    def _path(self, chain: int, segment: int) -> Path:
        return self.folder / f"chain-{chain:02d}-segment-{segment:03d}.nc"


def _read_record(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        if not isinstance(found, dict):
            raise ValueError
    except (OSError, ValueError):
        raise ValueError(
            f"checkpoint cannot tell what the run in {file.parent} is, since run.json is damaged: name another folder"
        ) from None
    return found

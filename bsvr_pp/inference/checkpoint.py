"""Long sampling runs on disk: what was drawn survives an interruption, and the run goes on from there.

A folder holds segments, each a Zarr store that nutpie fills as draws arrive, and a note of what they are draws of. A
resumed run adapts anew and draws what is missing; the segments of a chain follow one another.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bsvr_pp.inference.methods import NUTS
from bsvr_pp.problem import Problem

__all__ = ["Checkpoint", "complete"]


class Checkpoint:
    """The folder of one run.

    Parameters
    ----------
    folder : str or Path
        Made where it is missing.
    problem : Problem
        What is sampled.
    method : NUTS
        How.

    Raises
    ------
    ValueError
        If the folder holds another run, or the sampler is not nutpie.
    """

    def __init__(self, folder: str | Path, problem: Problem, method: NUTS) -> None:
        if method.sampler not in (None, "nutpie"):
            raise ValueError(f"checkpoint needs the sampler nutpie, got sampler={method.sampler!r}")
        self.folder = Path(folder)
        note = _note(problem, method)
        file = self.folder / "run.json"
        if file.exists():
            found = json.loads(file.read_text())
            different = [key for key in note if found.get(key) != note[key]]
            if different:
                raise ValueError(
                    f"checkpoint must be a folder of this run, but {self.folder} holds one with another "
                    f"{different[0]} ({found.get(different[0])}, not {note[different[0]]}): name another folder"
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(f"checkpoint must be a new folder or that of an earlier run, and {self.folder} has files")
        self.folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(note, indent=1) + "\n")

    def new_segment(self) -> Path:
        """An empty folder for the next Zarr store."""
        path = self.folder / f"segment-{len(self._segments()):03d}.zarr"
        path.mkdir()
        return path

    def draws(self) -> xr.DataTree | None:
        """The complete draws of all segments, posterior and sample_stats; None if there are none."""
        parts = [part for part in map(_read, self._segments()) if part is not None]
        if not parts:
            return None
        groups = {}
        for group in ("posterior", "sample_stats"):
            joined = xr.concat([part[group] for part in parts], dim="draw", join="override")
            sizes = {dim: np.arange(joined.sizes[dim]) for dim in ("chain", "draw")}
            groups[group] = joined.assign_coords(sizes)
        return xr.DataTree.from_dict(groups)

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("segment-*.zarr"))


def complete(samples: xr.DataTree) -> xr.DataTree:
    """The draws that all chains have: an interrupted sampler leaves NaN where the others went on."""
    posterior = samples["posterior"].to_dataset()
    missing = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"]), dtype=bool)
    for values in posterior.data_vars.values():
        ordered = values.transpose("chain", "draw", ...).values
        missing |= np.isnan(ordered).reshape(*missing.shape, -1).any(axis=-1)
    whole = ~missing.any(axis=0)
    n = int(whole.size if whole.all() else np.argmin(whole))
    return xr.DataTree.from_dict(
        {
            group: samples[group].to_dataset().isel(draw=slice(n))
            for group in ("posterior", "sample_stats")
            if group in samples.children
        }
    )


def _read(path: Path) -> dict[str, xr.Dataset] | None:
    """Complete draws of one segment, without what is not of each draw."""
    try:
        tree = xr.open_datatree(path, engine="zarr", consolidated=False)
        samples = {}
        for group in ("posterior", "sample_stats"):
            data = tree[group].to_dataset()
            wanted = [
                name
                for name, v in data.data_vars.items()
                if v.dims[:2] == ("chain", "draw")
                and "unconstrained_parameter" not in v.dims
                and not str(name).endswith("__")
                and v.dtype.kind in "fiub"
            ]
            samples[group] = data[wanted].drop_vars("unconstrained_parameter", errors="ignore").load()
    except (KeyError, FileNotFoundError):
        return None  # stopped before the first draw
    whole = complete(xr.DataTree.from_dict(samples))
    parts = {group: whole[group].to_dataset() for group in samples}
    return parts if parts["posterior"].sizes["draw"] else None


def _note(problem: Problem, method: NUTS) -> dict[str, Any]:
    """What the draws are draws of."""
    data = hashlib.sha256(np.ascontiguousarray(problem.inputs).tobytes() + problem.targets.tobytes()).hexdigest()
    return {
        "latent": repr(method.latent),
        "chains": int(method.chains),
        "hyperparameters": list(problem.hyperparameters),
        "noise": problem.loss.name,
        "data": data[:16],
    }

"""Long sampling runs on disk: what was drawn survives an interruption, and the run goes on from there.

A folder holds segments, each a Zarr store that nutpie fills as draws arrive, and a note of what they are draws of. A
resumed run adapts anew and draws what is missing of each chain; the segments of a chain follow one another.
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

__all__ = ["Chain", "Checkpoint", "by_chain", "together"]

Chain = dict[str, xr.Dataset]  # posterior and sample_stats over draw


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

    def new_segment(self, chains: list[int]) -> Path:
        """An empty folder for the Zarr store of these chains."""
        number = len(self._segments())
        path = self.folder / f"segment-{number:03d}-{'-'.join(map(str, chains))}.zarr"
        path.mkdir()
        return path

    def chains(self) -> dict[int, Chain]:
        """What there is of each chain."""
        parts: dict[int, list[Chain]] = {}
        for path in self._segments():
            numbers = [int(part) for part in path.stem.split("-")[2:]]
            for number, chain in zip(numbers, _read(path), strict=False):
                parts.setdefault(number, []).append(chain)
        return {
            number: {group: xr.concat([part[group] for part in found], dim="draw") for group in found[0]}
            for number, found in parts.items()
        }

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("segment-*.zarr"))


def by_chain(samples: xr.DataTree) -> list[Chain]:
    """The complete draws of each chain: where a sampler was interrupted it leaves NaN."""
    posterior = samples["posterior"].to_dataset()
    missing = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"]), dtype=bool)
    for values in posterior.data_vars.values():
        ordered = values.transpose("chain", "draw", ...).values
        missing |= np.isnan(ordered).reshape(*missing.shape, -1).any(axis=-1)
    chains = []
    for number, gone in enumerate(missing):
        n = int(np.argmax(gone)) if gone.any() else gone.size
        groups = [group for group in ("posterior", "sample_stats") if group in samples.children]
        data = {group: samples[group].to_dataset().isel(chain=number, draw=slice(n)) for group in groups}
        chains.append({group: found.drop_vars(["chain", "draw"], errors="ignore") for group, found in data.items()})
    return chains


def together(chains: list[Chain], draws: int) -> xr.DataTree:
    """Chains side by side, of one length and at most ``draws`` long: as many draws as can be kept in all.

    After an interruption chains differ in length, and some may not have begun.

    Raises
    ------
    KeyboardInterrupt
        If there is no draw at all.
    """
    lengths = [min(chain["posterior"].sizes["draw"], draws) for chain in chains]
    longest = np.sort(lengths)[::-1]
    kept = int(np.argmax(longest * np.arange(1, len(chains) + 1))) + 1 if chains else 0
    length = int(longest[kept - 1]) if kept else 0
    if length == 0:
        raise KeyboardInterrupt
    chosen = [chain for chain, n in zip(chains, lengths, strict=True) if n >= length]
    coords = {"chain": np.arange(len(chosen)), "draw": np.arange(length)}
    return xr.DataTree.from_dict(
        {
            group: xr.concat([chain[group].isel(draw=slice(length)) for chain in chosen], dim="chain").assign_coords(
                coords
            )
            for group in chosen[0]
        }
    )


def _read(path: Path) -> list[Chain]:
    """Complete draws of the chains of one segment, without what is not of each draw."""
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
        return []  # stopped before the first draw
    return by_chain(xr.DataTree.from_dict(samples))


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

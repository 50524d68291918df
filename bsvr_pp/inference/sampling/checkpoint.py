"""Chains in segments with separate seeds, each kept on disk when it is finished; a resumed run has equal draws.

Segment k of a chain has (k + 1)·L draws. It starts at the last draw of segment k - 1 and repeats the adaptation. Its
seed is determined by the seed of the run, the chain and k, so that it can be sampled again from the end of the previous
segment. A run that was killed and resumed has the same draws, bit for bit, as an uninterrupted run, and a longer run
begins with the draws of a shorter one. If a run is killed, only the work on unfinished segments is lost. A damaged or
missing segment is sampled again, with the same draws.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import xarray as xr
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from bsvr_pp._arrays import Array
from bsvr_pp._atomic_write import atomic_write, check_writable
from bsvr_pp.inference.netcdf import load, save
from bsvr_pp.inference.sampling.fingerprint import difference

Chain = dict[str, xr.Dataset]  # posterior and sample_stats over draw

_SHORTEST = 50  # smallest numbers of draws and of adaptation steps of a segment
_POLL = 0.02  # seconds


def lengths(tune: int, draws: int) -> Iterator[int]:
    """Numbers of draws of the segments of a chain."""
    first = max(tune // 4, _SHORTEST)
    number = 0
    while draws > 0:
        number += 1
        yield min(number * first, draws)
        draws -= number * first


@dataclass
class _Chain:
    """The finished draws of a chain, and its current segment."""

    folder: Checkpoint
    number: int
    wanted: list[int]
    parts: list[Chain] = field(default_factory=list)
    position: Array | None = None
    sampler: Any = None

    @property
    def finished(self) -> bool:
        return len(self.parts) == len(self.wanted)

    @property
    def is_done(self) -> bool:
        """Whether the current segment is sampled."""
        try:
            return bool(self.sampler.is_finished)
        except TimeoutError:  # nutpie raises this while the sampler is busy
            return False

    def read(self) -> None:
        """Load the segments on disk up to the first that is missing, damaged or too short."""
        for number, length in enumerate(self.wanted):
            found = self.folder.read(self.number, number)
            if found is None or found[0]["posterior"].sizes["draw"] < length:
                return
            self.parts.append({group: data.isel(draw=slice(length)) for group, data in found[0].items()})
            self.position = found[1]

    def start(self, model: Any, tune: int, options: dict[str, Any]) -> None:
        """Start to sample the next segment."""
        import nutpie  # slow to import, and not needed to read finished segments

        number, position = len(self.parts), self.position
        if position is not None:
            model = dataclasses.replace(model, initial_point_func=lambda _: position.copy())
        self.sampler = nutpie.sample(
            model,
            draws=self.wanted[number],
            tune=max(tune // 5, _SHORTEST) if number else tune,
            chains=1,
            cores=1,
            seed=int(np.random.SeedSequence([self.folder.seed, self.number, number]).generate_state(1)[0]),
            save_warmup=False,
            store_unconstrained=True,
            progress_bar=False,
            blocking=False,
            **options,
        )

    def finish(self) -> None:
        """Get the draws of a finished segment, and save them."""
        with warnings.catch_warnings():
            # Warm-up draws are not used.
            warnings.filterwarnings("ignore", "Found chain dimension to be longer", UserWarning)
            samples = self.sampler.wait()
        self.position = samples["sample_stats"]["unconstrained_draw"].values[0, -1]
        (draws,) = by_chain(_of_each_draw(samples))
        self.folder.write(self.number, len(self.parts), draws, self.position)
        self.parts.append(draws)

    def abort(self) -> None:
        """Get the draws of an unfinished segment, which are not saved."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                drawn = by_chain(_of_each_draw(self.sampler.abort()))
        except (KeyError, ValueError, RuntimeError):  # stopped before the first draw
            return
        self.parts.extend(part for part in drawn if part["posterior"].sizes["draw"])


def draw_segments(
    compiled: Callable[[], Any],
    folder: Checkpoint,
    *,
    draws: int,
    tune: int,
    chains: int,
    cores: int,
    options: dict[str, Any],
    progressbar: bool,
) -> list[Chain]:
    """Sample the missing segments of a run, ``cores`` chains in parallel.

    An interruption ends the sampling and leaves the draws so far. ``compiled`` returns the model compiled by nutpie,
    and is not called if nothing is missing; ``options`` are those of nutpie.
    """
    runs = [_Chain(folder, number, list(lengths(tune, draws))) for number in range(chains)]
    for chain in runs:
        chain.read()
    waiting, running = [chain for chain in runs if not chain.finished], list[_Chain]()
    model = compiled() if waiting else None
    with threadpool_limits(limits=1), Progress(disable=not progressbar, transient=True) as progress:
        bar = progress.add_task("sampling", total=draws * chains)
        try:
            while waiting or running:
                while waiting and len(running) < cores:
                    running.append(waiting.pop(0))
                    running[-1].start(model, tune, options)
                for chain in [chain for chain in running if chain.is_done]:
                    chain.finish()
                    if chain.finished:
                        running.remove(chain)
                    else:
                        chain.start(model, tune, options)
                progress.update(bar, completed=sum(sum(chain.wanted[: len(chain.parts)]) for chain in runs))
                sleep(_POLL)
        except KeyboardInterrupt:
            for chain in running:
                chain.abort()
        except BaseException:
            for chain in running:
                chain.sampler.cancel()
            raise
    drawn = [chain.parts for chain in runs if chain.parts]
    return [{group: xr.concat([part[group] for part in parts], "draw") for group in parts[0]} for parts in drawn]


def _of_each_draw(samples: xr.DataTree) -> xr.DataTree:
    """Select the variables with one value per draw: no transformed variables, no positions of divergences."""

    def wanted(name: Any, values: xr.DataArray) -> bool:
        by_draw = values.dims[:2] == ("chain", "draw") and "unconstrained_parameter" not in values.dims
        return by_draw and not str(name).endswith("__") and values.dtype.kind in "fiub"

    kept = {}
    for group in ("posterior", "sample_stats"):
        data = samples[group].to_dataset()
        names = [name for name, values in data.data_vars.items() if wanted(name, values)]
        kept[group] = data[names].drop_vars("unconstrained_parameter", errors="ignore")
    return xr.DataTree.from_dict(kept)


def check_folder(folder: str | Path) -> Path:
    """Check before any work that a folder can be written and has no other content."""
    path = check_writable("checkpoint", folder, folder=True)
    if path.exists() and not (path / "run.json").exists() and any(path.iterdir()):
        raise ValueError(f"checkpoint must be a new folder or that of an earlier run, and {path} has files")
    return path


class Checkpoint:
    """The folder of one run: a file for each finished segment, with a checksum, and the fingerprint of the run.

    With ``any_seed`` the seed of an earlier run in the folder, if there is one, replaces that of the record.
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
        """Draws of a segment and the unconstrained point at its end; None if it is missing, or damaged (a warning)."""
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
        """Write a segment. If the disk fails the run continues in memory, with one warning."""
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


def by_chain(samples: xr.DataTree, watched: Sequence[str] | None = None) -> list[Chain]:
    """The complete draws of each chain; an interrupted sampler leaves NaN for others in ``watched`` variables."""
    both = ("posterior", "sample_stats")  # the latter is empty for steps without statistics
    groups = [group for group in both if group in samples.children and samples[group].sizes]
    data = {group: samples[group].to_dataset().drop_vars(["chain", "draw"], errors="ignore") for group in groups}
    posterior = data["posterior"] if watched is None else data["posterior"][watched]
    inner = set(posterior.dims) - {"chain", "draw"}
    complete = posterior.notnull().all(inner).to_array().all("variable")
    counts = complete.astype(int).cumprod("draw").sum("draw").values
    return [
        {group: found.isel(chain=chain, draw=slice(int(n))) for group, found in data.items()}
        for chain, n in enumerate(counts)
    ]


def together(chains: list[Chain], draws: int) -> xr.DataTree:
    """Combine chains to a common length of at most ``draws``, so that the total number of draws is largest.

    After an interruption chains have different lengths, and some may have no draws; with none at all it is a
    KeyboardInterrupt.
    """
    lengths = sorted((min(chain["posterior"].sizes["draw"], draws) for chain in chains), reverse=True)
    length = max(lengths, key=lambda n: n * sum(other >= n for other in lengths), default=0)
    if length == 0:
        raise KeyboardInterrupt
    chosen = [chain for chain in chains if chain["posterior"].sizes["draw"] >= length]
    coords = {"chain": np.arange(len(chosen)), "draw": np.arange(length)}
    cut = {group: [chain[group].isel(draw=slice(length)) for chain in chosen] for group in chosen[0]}
    return xr.DataTree.from_dict(
        {group: xr.concat(data, dim="chain").assign_coords(coords) for group, data in cut.items()}
    )

"""Sampling of chains in segments with separate seeds, which are saved when finished; a resumed run has equal draws.

Segment k of a chain has (k + 1)·L draws. It starts at the last draw of segment k - 1 and repeats the adaptation. Its
seed is determined by the seed of the run, the chain and k, so that it can be sampled again from the end of the previous
segment. A run that was killed and resumed has the same draws, bit for bit, as an uninterrupted run, and a longer run
begins with the draws of a shorter one. If a run is killed, only the work on unfinished segments is lost.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import nutpie
import xarray as xr
from joblib import cpu_count
from numpy.typing import NDArray
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from bsvr_pp.inference.chains import Chain, by_chain, joined
from bsvr_pp.inference.checkpoint import Checkpoint

if TYPE_CHECKING:
    from bsvr_pp.inference.nuts import NUTS

__all__ = ["draw_segments"]

Array = NDArray[np.float64]

_SHORTEST = 50  # smallest numbers of draws and of adaptation steps of a segment
_POLL = 0.02  # seconds


def lengths(tune: int, draws: int) -> Iterator[int]:
    """Return the numbers of draws of the segments of a chain.

    Examples
    --------
    >>> from bsvr_pp.inference.segments import lengths
    >>> list(lengths(1000, 1000))
    [250, 500, 250]
    """
    first = max(tune // 4, _SHORTEST)
    number = 0
    while draws > 0:
        number += 1
        yield min(number * first, draws)
        draws -= number * first


@dataclass
class _Chain:
    """The finished draws of a chain, and its current segment."""

    number: int
    wanted: list[int]
    parts: list[Chain] = field(default_factory=list)
    position: Array | None = None
    sampler: Any = None

    @property
    def finished(self) -> bool:
        return len(self.parts) == len(self.wanted)


def draw_segments(
    compiled: Callable[[], Any], method: NUTS, folder: Checkpoint, adaptation: dict[str, Any], progressbar: bool
) -> list[Chain]:
    """Sample the missing segments of a run; an interruption ends the sampling, and the draws so far are returned.

    Parameters
    ----------
    compiled : callable
        Function that returns the model compiled by nutpie; it is not called if nothing is missing.
    method : NUTS
        Numbers of draws, adaptation steps and chains.
    folder : Checkpoint
        Folder of the segments, with the seed of the run.
    adaptation : dict
        Options of nutpie.
    progressbar : bool
        Whether to show progress.
    """
    chains = [_Chain(number, list(lengths(method.tune, method.draws))) for number in range(method.chains)]
    for chain in chains:
        _read(chain, folder)
    if not all(chain.finished for chain in chains):
        options = {"target_accept": method.target_accept, **adaptation}
        _run(compiled(), chains, method.tune, options, folder, progressbar)
    return [joined(chain.parts) for chain in chains if chain.parts]


def _read(chain: _Chain, folder: Checkpoint) -> None:
    """Load the segments on disk up to the first that is missing, damaged or too short."""
    for number, length in enumerate(chain.wanted):
        found = folder.read(chain.number, number)
        if found is None or found[0]["posterior"].sizes["draw"] < length:
            return
        chain.parts.append({group: data.isel(draw=slice(length)) for group, data in found[0].items()})
        chain.position = found[1]


def _run(
    model: Any,
    chains: list[_Chain],
    tune: int,
    options: dict[str, Any],
    folder: Checkpoint,
    progressbar: bool,
) -> None:
    """Sample as many chains in parallel as there are processors."""
    waiting = [chain for chain in chains if not chain.finished]
    running: list[_Chain] = []
    with threadpool_limits(limits=1), Progress(disable=not progressbar, transient=True) as progress:
        bar = progress.add_task("sampling", total=sum(sum(chain.wanted) for chain in chains))
        try:
            while waiting or running:
                while waiting and len(running) < cpu_count():
                    running.append(waiting.pop(0))
                    _start(model, running[-1], tune, options, folder.seed)
                for chain in [chain for chain in running if _is_done(chain)]:
                    _finish(chain, folder)
                    if chain.finished:
                        running.remove(chain)
                    else:
                        _start(model, chain, tune, options, folder.seed)
                progress.update(bar, completed=sum(sum(chain.wanted[: len(chain.parts)]) for chain in chains))
                sleep(_POLL)
        except KeyboardInterrupt:
            for chain in running:
                chain.parts.extend(_interrupted(chain))
        except BaseException:
            for chain in running:
                chain.sampler.cancel()
            raise


def _start(model: Any, chain: _Chain, tune: int, options: dict[str, Any], seed: int) -> None:
    number, position = len(chain.parts), chain.position
    if position is not None:
        model = dataclasses.replace(model, initial_point_func=lambda _: position.copy())
    chain.sampler = nutpie.sample(
        model,
        draws=chain.wanted[number],
        tune=max(tune // 5, _SHORTEST) if number else tune,
        chains=1,
        cores=1,
        seed=int(np.random.SeedSequence([seed, chain.number, number]).generate_state(1)[0]),
        save_warmup=False,
        store_unconstrained=True,
        progress_bar=False,
        blocking=False,
        **options,
    )


def _is_done(chain: _Chain) -> bool:
    try:
        return bool(chain.sampler.is_finished)
    except TimeoutError:  # nutpie raises this while the sampler is busy
        return False


def _finish(chain: _Chain, folder: Checkpoint) -> None:
    """Get the draws of a finished segment, and save them."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Found chain dimension to be longer", UserWarning
        )  # warm-up draws are not used
        samples = chain.sampler.wait()
    stats = samples["sample_stats"].to_dataset()
    position = stats["unconstrained_draw"].values[0, -1]
    (draws,) = by_chain(_of_each_draw(samples))
    folder.write(chain.number, len(chain.parts), draws, position)
    chain.parts.append(draws)
    chain.position = position


def _interrupted(chain: _Chain) -> list[Chain]:
    """Return the draws of an unfinished segment, which are not saved."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            drawn = by_chain(_of_each_draw(chain.sampler.abort()))
    except (KeyError, ValueError, RuntimeError):  # stopped before the first draw
        return []
    return [part for part in drawn if part["posterior"].sizes["draw"]]


def _of_each_draw(samples: xr.DataTree) -> xr.DataTree:
    """Select the variables with one value per draw: no transformed variables, no positions of divergences."""
    groups = {}
    for group in ("posterior", "sample_stats"):
        data = samples[group].to_dataset()
        wanted = [
            name
            for name, v in data.data_vars.items()
            if v.dims[:2] == ("chain", "draw")
            and "unconstrained_parameter" not in v.dims
            and not str(name).endswith("__")
            and v.dtype.kind in "fiub"
        ]
        groups[group] = data[wanted].drop_vars("unconstrained_parameter", errors="ignore")
    return xr.DataTree.from_dict(groups)

"""Independent tasks: in threads of this machine, by Dask's local scheduler, or on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib

from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations.block_diagonal import progress_of_blocks
from bsvr_pp.large.sources import dask

__all__ = ["connected", "run_tasks"]


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Open a client for the address of a scheduler; a client, or None, is passed through.

    Dask uses the client inside of the context alone: the process's default client stays what it is, also where no
    scheduler answers.

    Raises
    ------
    ValueError
        If it is neither, or no scheduler answers.
    """
    if client is None:
        yield None
        return
    if not isinstance(client, str):
        if not hasattr(client, "scheduler_info"):
            raise ValueError(f"client must be a distributed.Client or the address of a scheduler, got {client!r}")
        with client.as_current():
            yield client
        return
    try:
        found = dask("distributed").Client(client, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {client}: {error}") from None
    with found, found.as_current():
        yield found


def run_tasks(
    function: Callable[..., None],
    items: Sequence[tuple[Any, ...]],
    *,
    folder: Path,
    client: Any,
    n_jobs: int | None,
    progress: str,
) -> None:
    """Run a function for each item, in any order.

    Parameters
    ----------
    function : callable
        A function of a module.
    items : sequence of tuples
        Its arguments.
    folder : Path
        Folder that the tasks use, which all workers have to share.
    client : distributed.Client or None
        The cluster; None is this machine.
    n_jobs : int, optional
        Number of threads on this machine, as joblib counts them.
    progress : str
        What a progress bar says; none if it is empty.

    Raises
    ------
    ValueError
        If a worker does not see the folder.
    """
    if not items:
        return
    with progress_of_blocks(progress, len(items)) as advance:

        def done(*_: Any) -> None:
            advance(1)

        if client is None:
            workers = joblib.effective_n_jobs(n_jobs)
            options = {"scheduler": "threads", "num_workers": workers} if workers > 1 else {"scheduler": "sync"}
            delayed = dask().delayed(function, pure=False)
            with threads_for(1), dask("dask.callbacks").Callback(posttask=done):
                dask().compute(*(delayed(*item) for item in items), **options)
            return
        blind = [worker for worker, sees in client.run(os.path.isdir, str(folder)).items() if not sees]
        if blind:
            raise ValueError(f"folder must be on a disk that all workers share, {folder} is missing at {blind[0]}")
        futures = client.map(function, *zip(*items, strict=True), pure=False)
        try:
            for future in dask("distributed").as_completed(futures):
                future.result()
                done()
        finally:
            client.cancel(futures)

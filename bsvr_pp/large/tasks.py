"""Independent tasks on files of a folder: in threads of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bsvr_pp.covariance.block_diagonal import each_block, progress_of_blocks
from bsvr_pp.large.sources import dask


def run_tasks(
    task: Callable[[str, str, int], None],
    folder: Path,
    stamp: str,
    numbers: Sequence[int],
    client: Any,
    progress: str,
) -> None:
    """Call a function of a folder, a stamp and a number for some numbers, in any order; it writes what it finds.

    Without a client the threads are those of joblib's context. A task of a worker that is lost is given to another.
    """
    if client is None:
        each_block(lambda i: task(str(folder), stamp, numbers[i]), len(numbers), progress)
        return
    blind = [worker for worker, sees in client.run(os.path.isdir, str(folder)).items() if not sees]
    if blind:
        raise ValueError(f"folder must be on a disk that all workers share, {folder} is missing at {blind[0]}")
    futures = client.map(task, [str(folder)] * len(numbers), [stamp] * len(numbers), numbers, pure=False)
    try:
        with progress_of_blocks(progress, len(numbers)) as advance:
            for future in dask("distributed").as_completed(futures):
                future.result()
                advance(1)
    finally:
        client.cancel(futures)


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Open a client for the address of a scheduler; a client, or None, is passed through.

    Dask uses the client inside of the context alone: the process's default client stays what it is, also where no
    scheduler answers.
    """
    closing: Any = nullcontext()
    if isinstance(client, str):
        try:
            client = closing = dask("distributed").Client(client, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"no Dask scheduler answers at {client}: {error}") from None
    elif client is not None and not hasattr(client, "scheduler_info"):
        raise ValueError(f"client must be a distributed.Client or the address of a scheduler, got {client!r}")
    with closing, nullcontext() if client is None else client.as_current():
        yield client

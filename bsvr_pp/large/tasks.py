"""Independent tasks on files of a folder: in threads of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import json
import os
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bsvr_pp._atomic_write import DamagedError, SealedFile, atomic_write
from bsvr_pp.covariance.block_diagonal import each_block, progress_of_blocks
from bsvr_pp.large.sources import dask

NO_THREADS = {"n_jobs": None, "progressbar": False}  # options of `LocalBlocks` that no number depends on
Task = Callable[[str, str, int], dict[str, Any]]


class Records(UserDict[str, Any]):
    """Plain data by name, each in a JSON file of a folder; one that is damaged is not there, with a warning."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        found = {path.stem: _intact(read_record, path) for path in folder.glob("*.json")}
        self.data = {name: record for name, record in found.items() if record is not None}

    def __setitem__(self, name: str, data: Mapping[str, Any]) -> None:
        record = json.loads(json.dumps(data))  # as it will be read
        with atomic_write(self.folder / f"{name}.json") as fresh:
            fresh.write_text(json.dumps(record | {"sha256": checksum(record)}, indent=1) + "\n")
        super().__setitem__(name, record)


def read_record(path: Path) -> dict[str, Any]:
    """Read the data of a file of `Records`."""
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.pop("sha256", None) != checksum(record):
        raise DamagedError(f"{path}: is damaged, since its checksum does not match its content")
    return record


def checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of plain data."""
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def all_whole(*files: Path) -> bool:
    """Whether all files of a stage are there as they were written; a damaged one is named in a warning."""
    return all([_intact(lambda path: SealedFile(path).check(), path) is not None for path in files])


def _intact[T](read: Callable[[Path], T], path: Path) -> T | None:
    """What a function reads from a file; None if there is none, or if it is damaged, with a warning."""
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warnings.warn(f"{error}; its stage is computed again", UserWarning, stacklevel=6)
        return None


def run_tasks(task: Task, work: Records, count: int, client: Any, progress: str) -> list[Path]:
    """Files, in a folder ``work``, with the arrays of a function of this folder, a stamp and the numbers up to a count.

    The stamp changes with the records. Files of this stamp that are there as they were written are not computed again.
    Without a client the threads are those of joblib's context; a task of a worker that is lost is given to another.
    """
    folder, stamp = str(work.folder), checksum(work.data)
    files = [work.folder / "done" / f"{number}.npz" for number in range(count)]
    todo = [number for number in range(count) if not (all_whole(files[number]) and _stamp(files[number]) == stamp)]
    if client is None:
        each_block(lambda i: _written(task, folder, stamp, todo[i]), len(todo), progress)
        return files
    blind = [worker for worker, sees in client.run(os.path.isdir, folder).items() if not sees]
    if blind:
        raise ValueError(f"folder must be on a disk that all workers share, {folder} is missing at {blind[0]}")
    same = ([value] * len(todo) for value in (task, folder, stamp))
    futures = client.map(_written, *same, todo, pure=False)
    try:
        with progress_of_blocks(progress, len(todo)) as advance:
            for future in dask("distributed").as_completed(futures):
                future.result()
                advance(1)
    finally:
        client.cancel(futures)
    return files


def _written(task: Task, folder: str, stamp: str, number: int) -> None:
    """Write the arrays of a task."""
    found = task(folder, stamp, number)
    with atomic_write(Path(folder) / "done" / f"{number}.npz", sealed=True) as fresh:
        np.savez(fresh, stamp=stamp, **found)


def _stamp(file: Path) -> str:
    """Stamp of the records that a task was computed for."""
    with np.load(file) as found:
        return str(found["stamp"])


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

"""Independent tasks on files of a folder: in threads of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import json
import os
import warnings
from collections import UserDict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.core.atomic_write import DamagedError, SealedFile, atomic_write
from bsvr_pp.core.covariance.covariance import each_block, progress_of_blocks

if TYPE_CHECKING:
    from distributed import Client

NO_THREADS = {"n_jobs": None, "progressbar": False}  # options of `LocalBlocks` that no number depends on
Record = dict[str, Any]  # plain data of JSON
Task = Callable[[str, str, int], dict[str, NDArray[np.generic]]]


class Records(UserDict[str, Record]):
    """Plain data by name, each in a JSON file of a folder; one that is damaged is not there, with a warning."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        found = {path.stem: _intact(read_record, path) for path in folder.glob("*.json")}
        self.data = {name: record for name, record in found.items() if record is not None}

    def __setitem__(self, name: str, data: Record) -> None:
        record = json.loads(json.dumps(data))  # as it will be read
        with atomic_write(self.folder / f"{name}.json") as fresh:
            fresh.write_text(json.dumps(record | {"sha256": checksum(record)}, indent=1) + "\n")
        super().__setitem__(name, record)


def read_record(path: Path) -> Record:
    """Read the data of a file of `Records`."""
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.pop("sha256", None) != checksum(record):
        raise DamagedError(f"{path}: is damaged, since its checksum does not match its content")
    return record


def checksum(record: object) -> str:
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


def run_tasks(task: Task, work: Records, count: int, client: Client | None, progress: str) -> list[Path]:
    """Files in ``work`` of the arrays that a function makes of it, of a stamp of its records, and of each number."""
    folder, stamp = str(work.folder), checksum(work.data)
    files = [work.folder / "done" / f"{number}.npz" for number in range(count)]
    # Files of this stamp that are there as they were written are not computed again.
    todo = [number for number in range(count) if not (all_whole(files[number]) and _stamp(files[number]) == stamp)]
    if client is None:
        each_block(lambda i: _write(task, folder, stamp, todo[i]), len(todo), progress)
        return files
    from distributed import as_completed

    blind = [worker for worker, sees in client.run(os.path.isdir, folder).items() if not sees]
    if blind:
        raise ValueError(f"folder must be on a disk that all workers share, {folder} is missing at {blind[0]}")
    same = ([value] * len(todo) for value in (task, folder, stamp))
    futures = client.map(_write, *same, todo, pure=False)
    try:
        with client.as_current(), progress_of_blocks(progress, len(todo)) as advance:
            for future in as_completed(futures):
                future.result()
                advance(1)
    finally:
        client.cancel(futures)
    return files


def _write(task: Task, folder: str, stamp: str, number: int) -> None:
    """Write the arrays of a task."""
    found = task(folder, stamp, number)
    write_arrays(Path(folder) / "done" / f"{number}.npz", stamp=np.array(stamp), **found)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays by name."""
    with atomic_write(path, sealed=True) as fresh:
        np.savez(fresh, **arrays)


def _stamp(file: Path) -> str:
    """Stamp of the records that a task was computed for."""
    with np.load(file) as found:
        return str(found["stamp"])


def check_client(client: object) -> None:
    """Check the client of a cluster."""
    if client is not None and not hasattr(client, "scheduler_info"):
        raise ValueError(f"client must be a distributed.Client, got {client!r}")

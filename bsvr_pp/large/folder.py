"""Files of a folder: arrays and JSON, each written completely or not at all, and opened without being read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._atomic_write import atomic_write

__all__ = ["Records", "digest", "open_rows", "read_json", "write_array", "write_json", "writing_rows"]

Array = NDArray[np.float64]

_ENDS = 2**22  # bytes at either end of a file that make its digest


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON."""
    with atomic_write(path) as fresh:
        fresh.write_text(json.dumps(data, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read plain data."""
    return json.loads(path.read_text())


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array."""
    with atomic_write(path) as fresh, fresh.open("wb") as file:
        np.save(file, array)


@contextmanager
def writing_rows(path: Path, shape: tuple[int, ...]) -> Iterator[Callable[[Array], None]]:
    """Write a large array part by part: the function that is yielded adds rows."""
    with atomic_write(path) as fresh, fresh.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
        yield lambda rows: np.ascontiguousarray(rows, dtype="<f8").tofile(file)


def open_rows(path: Path) -> NDArray[Any]:
    """Open an array, of which only the rows that are used are read."""
    opened: NDArray[Any] = np.load(path, mmap_mode="r")
    return opened


def digest(path: Path) -> str:
    """Digest of the size and both ends of a file, which takes the same time for any size."""
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        found.update(file.read(_ENDS))
        file.seek(max(size - _ENDS, 0))
        found.update(file.read())
    return found.hexdigest()


class Records(MutableMapping[str, Any]):
    """Plain data by name, each in a JSON file of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def __getitem__(self, name: str) -> Any:
        """Read a file."""
        try:
            return read_json(self._path(name))
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, data: Any) -> None:
        """Write a file."""
        write_json(self._path(name), data)

    def __delitem__(self, name: str) -> None:
        """Remove a file."""
        self._path(name).unlink()

    def __iter__(self) -> Iterator[str]:
        """Names of the files."""
        return (path.stem for path in sorted(self.folder.glob("*.json")))

    def __len__(self) -> int:
        """Number of files."""
        return len(list(iter(self)))

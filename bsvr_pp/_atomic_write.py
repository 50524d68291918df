"""Safe writing of files: a test before the work, and a temporary file that then replaces the old one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path


def check_writable(name: str, path: str | Path, *, folder: bool = False) -> Path:
    """Check before any work that a path can be written, by writing and removing a small file.

    Missing folders are created for this test and removed afterwards. The ValueError names the argument, the path and
    the problem.
    """
    path = Path(path)
    if folder and path.exists() and not path.is_dir():
        raise ValueError(f"{name} must be a folder, got the file {path}")
    if not folder and path.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {path}")
    if not folder and path.exists() and not path.is_file():
        raise ValueError(f"{name} must be a regular file, got the device {path}")
    place = path if folder else path.absolute().parent
    above = (place.absolute(), *place.absolute().parents)
    missing = list(takewhile(lambda folder: not folder.exists(), above))
    nearest = above[len(missing)]
    if not nearest.is_dir():
        raise ValueError(f"{name} must lie in a folder, and {nearest} is a file")
    made = []
    try:
        for fresh in reversed(missing):
            fresh.mkdir()
            made.append(fresh)
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"bsvr-pp" * 600)
            probe.flush()
            os.fsync(probe.fileno())
        if path.is_file() and not os.access(path, os.W_OK):
            raise PermissionError(13, "the file is read-only")
    except OSError as error:
        raise ValueError(f"{name} cannot be written to {path}: {error.strerror or error}") from None
    finally:
        for fresh in reversed(made):
            fresh.rmdir()
    return path


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Open a new file that replaces ``path`` when the block ends without an error; its folder is created.

    After an interruption or on a full disk the old file is unchanged, and no incomplete file remains.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".bsvr-pp-") as folder:
        fresh = Path(folder) / path.name
        yield fresh
        with fresh.open("r+b") as file:  # on disk before the old file is replaced
            os.fsync(file.fileno())
        fresh.replace(path)

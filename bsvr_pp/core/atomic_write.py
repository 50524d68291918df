"""Safe files: a check before the work, a temporary file that replaces the old one, checksums, and locks of folders."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "lock"  # name of the file that carries the lock of a folder
PIECE = 2**22  # bytes that one checksum covers
_MARK = b"\nbsvr-pp sha256\n"
_TAIL = 8 + len(_MARK) + 32


class DamagedError(ValueError):
    """A file has changed since it was written."""


def check_writable(
    name: str, path: str | Path, *, folder: bool = False, read: Iterable[object] = (), model: bool | None = None
) -> Path:
    """Check before any work that a path can be written, by a small file in the nearest folder.

    It must not replace a path in ``read``, where anything else is ignored. A ``model`` replaces no other file than a
    saved one, and predictions (False) do not replace one.
    """
    path = Path(path)
    wanted = "folder" if folder else "file"
    found = "folder" if path.is_dir() else "file" if path.is_file() else "device"
    if path.exists() and found != wanted:
        raise ValueError(f"{name} must be a {wanted}, got the {found} {path}")
    for other in read:
        if isinstance(other, str | Path) and path.exists() and Path(other).exists() and path.samefile(other):
            raise ValueError(f"{name} must be another file than the one that is read, {other}")
    place = path.absolute() if folder else path.absolute().parent
    nearest = next(each for each in (place, *place.parents) if each.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name} must lie in a folder, and {nearest} is a file")
    try:
        with tempfile.TemporaryFile(dir=nearest) as probe:
            probe.write(b"bsvr-pp" * 600)
            probe.flush()
            os.fsync(probe.fileno())
        if path.is_file() and not os.access(path, os.W_OK):
            raise PermissionError(13, "the file is read-only")
    except OSError as error:
        raise ValueError(f"{name} cannot be written to {path}: {error.strerror or error}") from None
    if model is not None and path.is_file() and path.stat().st_size and is_sealed(path) != model:
        what = "which is no saved model" if model else "which is a saved model"
        raise ValueError(f"{name} must not replace {path}, {what}: choose another name, or remove the file")
    return path


@contextmanager
def atomic_write(path: str | Path, *, sealed: bool = False) -> Iterator[Path]:
    """Open a new file that replaces ``path`` at the end of the block unless there is an error; it may be ``sealed``."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".bsvr-pp-") as folder:
        fresh = Path(folder) / path.name
        yield fresh
        if sealed:
            seal(fresh)
        with fresh.open("r+b") as file:  # on disk before the old file is replaced
            os.fsync(file.fileno())
        fresh.replace(path)


def seal(path: Path) -> None:
    """Append the SHA-256 of each 4 MiB of a file, its size, and the SHA-256 of these; readers of arrays ignore them."""
    with path.open("r+b") as file:
        pieces = b"".join(sha256(piece).digest() for piece in iter(partial(file.read, PIECE), b""))
        head = pieces + file.tell().to_bytes(8, "little")
        file.write(head + _MARK + sha256(head).digest())


def is_sealed(path: Path) -> bool:
    """Return whether a file ends in a `seal`, which may not match its content."""
    with path.open("rb") as file:
        return _tail_of(file) is not None


def _tail_of(file: BinaryIO) -> bytes | None:
    """Read the end of a file from the size in its seal on; None if it has no seal."""
    file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
    tail = file.read()
    return tail if tail[8:-32] == _MARK else None


class SealedFile:
    """A file with a `seal` at its end: the seal in hexadecimal digits, and checks of the pieces that will be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            tail = _tail_of(file)
            if tail is None:
                raise DamagedError(
                    f"{path}: is not a saved model or result, or it is damaged: it does not end in a checksum"
                )
            self.size, self.seal = int.from_bytes(tail[:8], "little"), tail[-32:].hex()
            file.seek(min(self.size, path.stat().st_size))
            head = file.read()[: -len(_MARK) - 32]
        if len(head) != 32 * -(-self.size // PIECE) + 8 or sha256(head).hexdigest() != self.seal:
            raise DamagedError(f"{path}: is damaged, since its checksum does not match its content")
        self._unread = {i: head[32 * i : 32 * i + 32] for i in range(len(head) // 32)}

    def check(self, pieces: Collection[int] = ()) -> SealedFile:
        """Check the checksums of pieces, or of all if none is named; a piece is read once."""
        todo = {i: written for i in (pieces or list(self._unread)) if (written := self._unread.get(i))}
        if todo:
            with self.path.open("rb") as file:
                for i, written in todo.items():
                    file.seek(i * PIECE)
                    if sha256(file.read(min(PIECE, self.size - i * PIECE))).digest() != written:
                        raise DamagedError(f"{self.path}: is damaged, since its checksum does not match its content")
                    self._unread.pop(i, None)
        return self


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other calls that write into it; the system frees the lock when the process dies."""
    fresh = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with path.open("a+") as file:
        try:
            if sys.platform == "win32":
                file.seek(PIECE)  # others cannot read the byte that is locked
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(file.fileno()), path.stat())  # not the file of a call that just ended
        except (BlockingIOError, PermissionError, FileNotFoundError):
            mine = False
        except OSError as error:
            mine = True
            warnings.warn(
                f"{folder}: its disk has no locks ({error.strerror}): let no other process write into it", stacklevel=3
            )
        if not mine:
            file.seek(0)
            raise ValueError(
                f"{folder}: {file.read() or 'another process'} writes into it: call again when it has ended"
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no file that is open
                path.unlink()
                if fresh:
                    folder.rmdir()  # if it is empty

"""A folder for compiled code if Numba and PyTensor find none, for example in containers and on clusters.

Numba stores code in the package or in the home directory, PyTensor in the home directory. If both are read-only,
imports would fail; a temporary folder is then used instead. ``NUMBA_CACHE_DIR`` and
``PYTENSOR_FLAGS=base_compiledir=...`` set permanent folders.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path


@cache
def temporary_cache() -> Path | None:
    """The temporary folder for compiled code, the same for all processes of a user; None if there is none.

    A warning says once how to set a permanent folder.
    """
    folder = _own_folder()
    message = (
        "no folder for compiled code can be written: compiling takes minutes in each process; set NUMBA_CACHE_DIR to a "
        "folder that can be written"
        if folder is None
        else f"compiled code is kept in {folder}, since neither the package's folder nor the home directory can be "
        "written: set NUMBA_CACHE_DIR and PYTENSOR_FLAGS=base_compiledir=... to folders that last"
    )
    warnings.warn(message, UserWarning, stacklevel=2)
    return folder


def prepare_pytensor() -> None:
    """Set the temporary folder for PyTensor before its import, if its default folder is read-only."""
    if "pytensor" in sys.modules or "compiledir" in os.environ.get("PYTENSOR_FLAGS", ""):
        return
    try:
        folder = Path(os.environ.get("HOME") or Path.home()) / ".pytensor"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        if (temporary := temporary_cache()) is not None:
            flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={temporary / 'pytensor'}"]
            os.environ["PYTENSOR_FLAGS"] = ",".join(filter(None, flags))


def _own_folder() -> Path | None:
    """Make a folder that other users cannot write, since compiled code is loaded from it."""
    try:
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
        folder = Path(tempfile.gettempdir()) / f"bsvr-pp-cache-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022 or folder.is_symlink()):
            folder = Path(tempfile.mkdtemp(prefix="bsvr-pp-cache-"))
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder

"""Results on disk: netCDF files with a checksum, so that a damaged file is always recognised.

The last bytes of the file, after the netCDF data, are its SHA-256; other programs (ArviZ, xarray) ignore them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import xarray as xr

from bsvr_pp._atomic_write import atomic_write, check_writable

_MARK = b"\nbsvr-pp sha256 "
_TAIL = len(_MARK) + 64


def save(result: xr.DataTree, path: str | Path) -> None:
    """Save a result to a netCDF file.

    The file is first written under another name, so that it is either complete or absent. ``result.to_netcdf(path)``
    gives a file with the same content but without a checksum, which `load` does not accept.

    Parameters
    ----------
    result : DataTree
        Result of `fit`, or ``result_`` of an estimator.
    path : str or Path
        The file. An older file of that name is replaced.

    Raises
    ------
    TypeError
        If result is not a DataTree.
    ValueError
        If the file cannot be written.
    OSError
        If the disk fails or is full while the file is written; an older file is unchanged.

    Examples
    --------
    >>> import tempfile, xarray as xr, bsvr_pp as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bp.save(xr.DataTree(xr.Dataset({"C": ("draw", [1.0, 2.0])})), f"{folder}/fit.nc")
    ...     bp.load(f"{folder}/fit.nc")["C"].values
    array([1., 2.])
    """
    if not isinstance(result, xr.DataTree):
        raise TypeError(f"result must be a DataTree, got {type(result).__name__}")
    with atomic_write(check_writable("path", path)) as fresh:
        write(result, fresh)


def write(result: xr.DataTree, path: Path) -> None:
    """Write the file of `save` in place, without its checks."""
    result.to_netcdf(path, engine="h5netcdf")
    checksum = _checksum(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_MARK + checksum)


def load(path: str | Path) -> xr.DataTree:
    """Load a result that was written by `save`.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    DataTree
        The result in memory: the file may be moved or replaced afterwards.

    Raises
    ------
    ValueError
        If there is no such file, it is damaged, or it was not written by `save`.

    Examples
    --------
    >>> import tempfile, xarray as xr, bsvr_pp as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bp.save(xr.DataTree(), f"{folder}/fit.nc")
    ...     with open(f"{folder}/fit.nc", "r+b") as file:
    ...         _ = file.seek(100), file.write(b"?")
    ...     bp.load(f"{folder}/fit.nc")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: .../fit.nc: is damaged, since its checksum does not match its content
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        size = path.stat().st_size - _TAIL
        with path.open("rb") as file:
            file.seek(max(size, 0))
            tail = file.read()
        if size < 0 or not tail.startswith(_MARK):
            raise ValueError(f"{path}: is not a saved model or result, or it is damaged: it does not end in a checksum")
        if _checksum(path, size) != tail.removeprefix(_MARK):
            raise ValueError(f"{path}: is damaged, since its checksum does not match its content")
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def _checksum(path: Path, size: int) -> bytes:
    """SHA-256 of the first bytes of a file, as text."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest().encode()

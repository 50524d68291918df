"""Results on disk: netCDF files that end in checksums, to recognise every damaged file.

Checksums are not a signature. The declarations of a file are therefore checked before memory is allocated: its arrays
must be uncompressed, one after another, and not in other files.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import xarray as xr

from bsvr_pp.core.atomic_write import SealedFile, atomic_write, check_writable, seal

_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"  # start of the name of an item without values


def save(result: xr.DataTree, path: str | Path) -> None:
    """Save a result to a netCDF file.

    The file is first written under another name, and is either complete or absent. ``result.to_netcdf(path)`` gives a
    file with the same content but without a checksum, which `load` does not accept.

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
        raise TypeError(f"result must be a DataTree, got {type(result).__name__}: estimators have a save of their own")
    with atomic_write(check_writable("path", path)) as fresh:
        write(result, fresh)


def write(result: xr.DataTree, path: Path) -> None:
    """Write the file of `save` in place, without its checks."""
    plain = {node.path: node.to_dataset(inherit=False).drop_encoding() for node in result.subtree}
    xr.DataTree.from_dict(plain).to_netcdf(path, engine="h5netcdf")
    seal(path)


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
        If there is no such file, or it is damaged or not from `save`.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        SealedFile(path).check()
        with h5py.File(path) as file:
            _check_declared(path, file)
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def _check_declared(path: Path, file: h5py.File) -> None:
    """Check that the arrays in a file have their declared sizes, and that each has one name."""
    total, groups = 0, [file]
    while groups:
        group = groups.pop()
        for name in group:
            item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            plain = item is not None and h5py.h5o.get_info(item.id).rc == 1
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif isinstance(item, h5py.Dataset):
                stored = item.id.get_storage_size()
                empty = bytes(item.attrs.get("NAME", b"")).startswith(_NO_VARIABLE)
                inside = not (item.chunks or item.external or item.is_virtual)
                plain, total = plain and inside and (empty or stored >= item.nbytes), total + stored
            if not plain or total > path.stat().st_size:
                raise ValueError(f"{path}: is no file of save: {name} of {group.name} is not stored as a plain array")

"""The rows of a model in a folder, sorted by block, of which the blocks that are needed are read.

In memory is an index: where each block begins, its size, and the regions of the blocks (`bsvr_pp.model.blocks`). Rows
have addresses: they are numbered through the segments, which are folders with the same files. The first segment is that
of the fit. Rows that were added later are in segments of their own, with all rows of the blocks that they have joined,
whose older addresses are no longer used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bsvr_pp._arrays import Array, Rows
from bsvr_pp._atomic_write import PIECE, DamagedError, SealedFile, atomic_write
from bsvr_pp._checks import check_fields
from bsvr_pp.inference.prediction.neighbours import nearest_in
from bsvr_pp.large.sources import open_rows
from bsvr_pp.model.blocks import Blocks, Regions

ARRAYS = ("inputs.npy", "targets.npy", "row.npy", "dual_coef.npy", "site_precision.npy", "regions.npz")
OF_BLOCKS = ("start", "size", "log_evidence", "converged")  # arrays of the index
_TOGETHER = 100_000  # rows of blocks that are searched together


def names_of(segments: int) -> list[str]:
    """Names of the files of a number of segments, in the order of the segments."""
    folders = [".", *(f"added-{i}" for i in range(1, segments))]
    return [str(Path(folder) / name) for folder in folders for name in ARRAYS]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows in the segments of a folder.

    ``start``, ``size``, ``log_evidence`` and ``converged`` have a value for each block: the address of its first row,
    the number of its rows, and what its solve found. ``files`` are those of a finished model: of each the pieces that a
    prediction needs are checked when they are first read.
    """

    segments: tuple[Path, ...]
    regions: Regions
    start: Rows
    size: Rows
    log_evidence: Array
    converged: NDArray[np.bool_]
    files: Mapping[Path, SealedFile] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, seals: Mapping[str, str]) -> Self:
        """Read the index, which the last segment has; ``seals`` are those of all files, by their names.

        The names follow from their number, so that none can be outside of the folder.
        """
        seals = check_fields(f"files of {folder / 'model.json'}", seals, names_of(len(seals) // len(ARRAYS)))
        files = dict[Path, SealedFile]()
        for name, seal in seals.items():
            path = folder / name
            if not path.is_file():
                raise DamagedError(f"{path}: is missing")
            files[path] = SealedFile(path)
            if files[path].seal != seal or not path.resolve().is_relative_to(folder.resolve()):
                raise DamagedError(f"{path}: is not the file that was written")
            files[path].check([0])
        *_, last = files
        with np.load(files[last].check().path) as saved:
            arrays = dict(saved)
        regions = Regions(**{name: arrays.pop(name) for name in Regions.__dataclass_fields__})
        return cls(tuple(dict.fromkeys(file.parent for file in files)), regions, **arrays, files=files)

    def write_index(self) -> None:
        """Write the index into the last segment."""
        own = {name: getattr(self, name) for name in OF_BLOCKS}
        with atomic_write(self.segments[-1] / "regions.npz", sealed=True) as fresh:
            np.savez(fresh, **own, **vars(self.regions))

    @cached_property
    def base(self) -> Rows:
        """First address of each segment, and the one after the last."""
        return np.cumsum([0, *(open_rows(folder / "row.npy").size for folder in self.segments)])

    def of(self, *blocks: int) -> Rows:
        """Ascending addresses of the rows of some blocks."""
        runs = [np.arange(self.start[b], self.start[b] + self.size[b]) for b in sorted(blocks, key=self.start.item)]
        return np.concatenate(runs)

    def read(self, name: str, rows: Rows) -> NDArray[Any]:
        """Values of rows at ascending addresses; the files are mapped into memory no longer than this."""
        parts = np.split(rows, np.searchsorted(rows, self.base[1:]))
        each = zip(self.segments, parts, self.base, strict=False)
        return np.concatenate([self._rows(path / name, part - base) for path, part, base in each if part.size])

    def _rows(self, path: Path, rows: Rows) -> NDArray[Any]:
        """Rows of a file, after a check of the pieces that hold them."""
        found: Any = open_rows(path)
        if path in self.files:
            first, last = (((found.offset + (rows + i) * found.strides[0] - i) // PIECE) for i in (0, 1))
            opened = np.bincount(first, minlength=last[-1] + 2) - np.bincount(last + 1, minlength=last[-1] + 2)
            self.files[path].check(np.flatnonzero(np.cumsum(opened)).tolist())
        return np.asarray(found[rows])

    def in_blocks(self, used: Rows | None = None) -> tuple[Rows, Blocks]:
        """Addresses of the rows of some blocks, or of all; and these blocks, numbered anew, with their regions."""
        used = np.arange(self.size.size) if used is None else used
        used, number = used[np.argsort(self.start[used])], np.zeros(self.size.size, dtype=np.int64)
        number[used] = np.arange(used.size)
        place = self.regions.side
        side = np.where(place < 0, -1 - number[np.maximum(-1 - place, 0)], place)
        label = np.repeat(np.arange(used.size), self.size[used])
        return self.of(*used), Blocks(label, replace(self.regions, side=side))

    def nearest(self, X: Array, count: int) -> Rows:
        """Addresses (m, count) of the nearest rows of each input, nearest first; all rows if there are fewer.

        The blocks whose middles are nearest bound the distances; then all blocks within these are searched.
        """
        few = 1 + int(np.searchsorted(np.cumsum(np.sort(self.size)), count))  # any so many blocks have enough rows
        wanted = np.arange(1, min(max(few, 2), self.size.size) + 1)
        first = np.unique(cKDTree(self.regions.middle).query(X / self.regions.lengthscale, wanted)[1])
        radius = self._nearest_in(first, X, count)[0][:, -1] * (1 + 1e-9)
        return self._nearest_in(self.regions.within(X, radius), X, count)[1]

    def _nearest_in(self, blocks: Rows, X: Array, count: int) -> tuple[Array, Rows]:
        groups = np.split(blocks, np.flatnonzero(np.diff(np.cumsum(self.size[blocks]) // _TOGETHER)) + 1)
        addresses = (self.of(*group) for group in groups)
        unit = self.regions.lengthscale
        return nearest_in(((rows, self.read("inputs.npy", rows) / unit) for rows in addresses), X / unit, count)

"""The rows of a model in a folder, sorted by block, of which the blocks that are needed are read.

In memory is an index: where each block begins, its size, and the regions of the blocks (`bsvr_pp.model.blocks`). Rows
have addresses: they are numbered through the segments, which are folders with the same files. The first segment is that
of the fit. Rows that were added later are in segments of their own, with all rows of the blocks that they have joined,
whose older addresses are no longer used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bsvr_pp._arrays import Array, Rows
from bsvr_pp._atomic_write import atomic_write
from bsvr_pp.inference.prediction.neighbours import nearest_in
from bsvr_pp.large.sources import open_rows
from bsvr_pp.model.blocks import Blocks, Regions

ARRAYS = ("inputs.npy", "targets.npy", "row.npy", "dual_coef.npy", "site_precision.npy", "regions.npz")
_TOGETHER = 100_000  # rows of blocks that are searched together


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows in the segments of a folder.

    ``start``, ``size``, ``log_evidence`` and ``converged`` have a value for each block: the address of its first row,
    the number of its rows, and what its solve found.
    """

    segments: tuple[Path, ...]
    regions: Regions
    start: Rows
    size: Rows
    log_evidence: Array
    converged: NDArray[np.bool_]

    @classmethod
    def opened(cls, segments: tuple[Path, ...]) -> Self:
        """Read the index, which the last segment has."""
        with np.load(segments[-1] / "regions.npz") as saved:
            arrays = dict(saved)
        fields = Regions.__dataclass_fields__
        regions = Regions(**{name: arrays.pop(name) for name in fields})
        return cls(segments, regions, **arrays)

    def write_index(self) -> None:
        """Write the index into the last segment."""
        own = {name: getattr(self, name) for name in ("start", "size", "log_evidence", "converged")}
        with atomic_write(self.segments[-1] / "regions.npz") as fresh:
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
        return np.concatenate([open_rows(path / name)[part - base] for path, part, base in each if part.size])

    def in_blocks(self, used: Rows | None = None) -> tuple[Rows, Blocks]:
        """Addresses of the rows of some blocks, or of all; and these blocks, numbered anew, with their regions."""
        used = np.arange(self.size.size) if used is None else used
        used, number = used[np.argsort(self.start[used])], np.zeros(self.size.size, dtype=np.int64)
        number[used] = np.arange(used.size)
        root, side = (
            np.where(place < 0, -1 - number[np.maximum(-1 - place, 0)], place)
            for place in (self.regions.root, self.regions.side)
        )
        label = np.repeat(np.arange(used.size), self.size[used])
        return self.of(*used), Blocks(label, replace(self.regions, root=root, side=side))

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

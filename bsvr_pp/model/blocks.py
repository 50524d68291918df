"""Rows in local blocks: a partition of the inputs, for Gaussian processes that are independent between blocks.

A partition is a set of plain arrays: one block number per row, and the tree of regions that assigns new points.
`bsvr_pp.model.partition` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from bsvr_pp._checks import check_count, numbers

__all__ = ["CHUNK", "Blocks", "Regions", "along", "nearest_centre"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

CHUNK = 10_000  # new points that are assigned together


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of the inputs: k-means centres, and below each a binary tree of cuts.

    Attributes
    ----------
    lengthscale : (d,) array
        Units of the inputs.
    centre : (c, d) array
        Centres of k-means, scaled by the lengthscales.
    root : (c,) array of int
        What is below each centre: a cut, or -1 - the number of a block.
    direction, threshold : (cuts, d) and (cuts,) arrays
        A point is on the first side of a cut if direction·x <= threshold.
    side : (cuts, 2) array of int
        What is on either side, as in ``root``.
    middle : (blocks, d) array
        Mean of the scaled rows of each block.
    """

    lengthscale: Array
    centre: Array
    root: Rows
    direction: Array
    threshold: Array
    side: Rows
    middle: Array

    def assign(self, X: Array) -> Rows:
        """Block of each row of X (m, d)."""
        out = np.empty(len(X), dtype=np.int64)
        for at in range(0, len(X), CHUNK):
            Z = X[at : at + CHUNK] / self.lengthscale
            place = self.root[nearest_centre(Z, self.centre)]
            while (inside := np.flatnonzero(place >= 0)).size:
                cut = place[inside]
                beyond = along(Z[inside], self.direction[cut]) > self.threshold[cut]
                place[inside] = self.side[cut, beyond.astype(np.int64)]
            out[at : at + CHUNK] = -1 - place
        return out


@dataclass(frozen=True, eq=False)
class Blocks:
    """A partition of n rows into blocks; `local_blocks` makes it.

    Attributes
    ----------
    label : (n,) array of int
        Block of each row, from 0.
    regions : Regions or None
        Regions that assign new points; None if the partition has none, as that of a part of the rows.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> blocks = bp.local_blocks(np.arange(10.0)[:, None], rows=4, random_seed=0)
    >>> sorted(blocks.sizes.tolist()), blocks.rows(int(blocks.label[9])).tolist()
    ([3, 3, 4], [6, 7, 8, 9])
    >>> bool(blocks.nearest([[8.6]], 2)[0, 0] == blocks.label[9])
    True
    """

    label: Rows
    regions: Regions | None = None

    def __post_init__(self) -> None:
        label = np.array(self.label)
        numbered = label.ndim == 1 and label.size > 0 and label.dtype.kind in "iu"
        if not numbered or label.min() < 0 or label.max() >= label.size or (np.bincount(label) == 0).any():
            raise ValueError(f"label must be an (n,) array of the numbers of all blocks from 0, got {self.label!r}")
        label = label.astype(np.int64)
        label.flags.writeable = False
        object.__setattr__(self, "label", label)

    def __len__(self) -> int:
        """Number of blocks."""
        return int(self.label.max()) + 1

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.label.size)

    @cached_property
    def order(self) -> Rows:
        """Row numbers block by block, (n,), within a block in ascending order."""
        return np.argsort(self.label, kind="stable")

    @cached_property
    def offsets(self) -> Rows:
        """Block b is ``order[offsets[b]:offsets[b + 1]]``, (blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.label))])

    @property
    def sizes(self) -> Rows:
        """Number of rows of each block."""
        return np.diff(self.offsets)

    def rows(self, block: int) -> Rows:
        """Row numbers of a block, in ascending order."""
        return self.order[self.offsets[block] : self.offsets[block + 1]]

    def __iter__(self) -> Iterator[Rows]:
        """The row numbers of each block."""
        return (self.rows(block) for block in range(len(self)))

    def same(self, other: object) -> bool:
        """Return whether another partition has the same blocks with the same numbers."""
        return isinstance(other, Blocks) and np.array_equal(self.label, other.label)

    def nearest(self, X: ArrayLike, count: int = 1) -> Rows:
        """Blocks of new points: the block whose region holds the point, then those with the nearest middles.

        Parameters
        ----------
        X : (m, d) array
            New points.
        count : int
            Number of blocks for each point, at least 1; all blocks if there are fewer.

        Returns
        -------
        (m, count) array of int

        Raises
        ------
        ValueError
            If the partition has no regions, X has another number of columns, or count is not a number of blocks.
        """
        if self.regions is None:
            raise ValueError("blocks must have regions to assign new points, as those of local_blocks do")
        check_count("count", count, 1)
        points = numbers("X", X, ("m", self.regions.lengthscale.size))
        own, count = self.regions.assign(points), min(int(count), len(self))
        if count == 1:
            return own[:, None]
        scaled = points / self.regions.lengthscale
        found = cKDTree(self.regions.middle).query(scaled, k=count)[1].reshape(len(points), count)
        others = np.argsort(found == own[:, None], axis=1, kind="stable")[:, : count - 1]  # without the own block
        return np.concatenate([own[:, None], np.take_along_axis(found, others, axis=1)], axis=1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The partition as plain arrays by name, from which `from_arrays` makes it again."""
        regions = {} if self.regions is None else vars(self.regions)
        return {"label": self.label, **regions}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make the partition from the arrays of `to_arrays`.

        Raises
        ------
        KeyError
            If an array is missing.
        """
        label, fields = np.asarray(arrays["label"]), Regions.__dataclass_fields__
        if set(arrays) == {"label"}:
            return cls(label)
        return cls(label, Regions(**{name: np.asarray(arrays[name]) for name in fields}))


def nearest_centre(Z: Array, centre: Array) -> Rows:
    """Number of the nearest centre of each row."""
    return np.asarray(cKDTree(centre).query(Z)[1], dtype=np.int64)


def along(Z: Array, direction: Array) -> Array:
    """Inner product of each row of Z with its direction, in the same order of sums for any number of rows."""
    return np.asarray((Z * direction).sum(axis=1))

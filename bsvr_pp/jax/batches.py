"""Blocks of rows in batches of one size, for a device that solves many problems at once.

A block is filled up to one of a few sizes, so that few shapes are compiled, by copies of its first row that have no
site. A batch is filled up by copies of its first block, whose results are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch", "batches", "common_size", "memory_of"]

Rows = NDArray[np.int64]

_MATRICES, _VECTORS = 16, 1000  # of the size of a block that a solve with its gradient holds at a time, with a reserve
_STEPS = 2  # sizes between a number and its double
_MULTIPLE = 8


class Batch(NamedTuple):
    """Numbers of c blocks, row numbers (b, m) of b >= c blocks, these first, and which rows are no copies (b, m)."""

    blocks: Rows
    rows: Rows
    used: NDArray[np.bool_]


def common_size(n: int) -> int:
    """Size to which a block of n rows is filled up."""
    size = 2.0 ** (np.ceil(_STEPS * np.log2(n)) / _STEPS)
    return int(_MULTIPLE * np.ceil(size / _MULTIPLE - 1e-9))


def memory_of(size: int) -> float:
    """Number of bytes that a block of a common size takes on a device."""
    return 8.0 * (_MATRICES * size + _VECTORS) * size


def batches(rows: Sequence[Rows], memory: float) -> list[Batch]:
    """Divide blocks, given by their row numbers, into batches of so many bytes; a single one is not filled up."""
    if len(rows) == 1:
        return [Batch(np.zeros(1, dtype=np.int64), rows[0][None], np.ones((1, rows[0].size), dtype=bool))]
    sizes = np.array([common_size(block.size) for block in rows])
    out = []
    for size in np.unique(sizes):
        members = np.flatnonzero(sizes == size)
        most = max(1, int(memory / memory_of(size)))
        count = -(-members.size // most)
        width = -(-members.size // count)
        for first in range(0, members.size, width):
            blocks = members[first : first + width]
            filled = np.concatenate([blocks, np.full(width - blocks.size, blocks[0])])
            numbers = np.stack([np.pad(rows[b], (0, size - rows[b].size), constant_values=rows[b][0]) for b in filled])
            used = np.arange(size) < np.array([rows[b].size for b in filled])[:, None]
            out.append(Batch(blocks, numbers, used))
    return out

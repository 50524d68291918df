"""Rows in local blocks: a partition of the inputs, for Gaussian processes that are independent between blocks.

A partition is a set of plain arrays: one block number per row, and a tree of cuts that assigns new points. A block with
too many rows is cut in two repeatedly, across its longest direction (docs/explanation/blocks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.arrays import Array, ModelError, Rows, check_count, check_fields, check_size, generator, numbers
from bsvr_pp.core.covariance.covariance import each_block

_CHUNK = 10_000  # points that are assigned together
_WHOLE = 200_000  # largest number of rows that are cut together; of more rows a sample of this size is cut
_DIRECTION = 1000  # rows that determine the direction of a cut
_TIED = 1e-9  # smallest gap for a cut, relative to the extent of the block: rounding errors are smaller
_COPIES = 12  # rows with one input, from which predictions from nearest rows see it alone
_MARGIN = 0.85  # size of blocks of a sample, relative to the requested size, since their numbers of all rows vary


@dataclass(frozen=True, eq=False)
class Regions:
    """A binary tree of cuts of the inputs, the first one at the top; without cuts there is one block."""

    lengthscale: Array  # (d,), unit of the inputs
    direction: Array  # (cuts, d): a point is on the first side of a cut if direction·x <= threshold
    threshold: Array  # (cuts,)
    side: Rows  # (cuts, 2): a cut, or -1 - the number of a block
    middle: Array  # (blocks, d), mean of the scaled rows of each block

    def assign(self, X: Array) -> Rows:
        """Return the block of each row of X (m, d)."""
        out = np.empty(len(X), dtype=np.int64)
        for at in range(0, len(X), _CHUNK):
            Z = X[at : at + _CHUNK] / self.lengthscale
            place = self._top(len(Z))
            while (inside := np.flatnonzero(place >= 0)).size:
                cut = place[inside]
                beyond = _along(Z[inside], self.direction[cut]) > self.threshold[cut]
                place[inside] = self.side[cut, beyond.astype(np.int64)]
            out[at : at + _CHUNK] = -1 - place
        return out

    def within(self, X: Array, radius: Array) -> Rows:
        """Return blocks that reach into the ball around a row of X (m, d), whose radius (m,) is in lengthscales."""
        Z, row, place = X / self.lengthscale, np.arange(len(X)), self._top(len(X))
        found = [np.empty(0, dtype=np.int64)]
        while row.size:
            found.append(-1 - place[place < 0])
            row, cut = row[place >= 0], place[place >= 0]
            beyond = _along(Z[row], self.direction[cut]) - self.threshold[cut]
            first, second = beyond <= radius[row], (beyond >= -radius[row]) | np.isinf(beyond)
            place = np.concatenate([self.side[cut[first], 0], self.side[cut[second], 1]])
            row = np.concatenate([row[first], row[second]])
        return np.unique(np.concatenate(found))

    def divided(
        self, blocks: Iterable[tuple[int, Array]], rows: int, *, ties: bool = True
    ) -> tuple[Regions, list[Rows]]:
        """Return regions in which given blocks, each with all its rows (m, d), have at most ``rows`` rows.

        Also return the blocks (m,) of these rows: one part of a block keeps its number, and others follow the last
        number. With ``ties`` identical rows are cut by row number.
        """
        direction, threshold, side = list(self.direction), self.threshold.tolist(), self.side.tolist()
        middle, labels = list(self.middle), list[Rows]()
        above = {-1 - place: (cut, i) for cut, each in enumerate(side) for i, place in enumerate(each) if place < 0}
        for block, X in blocks:
            Z, label = _scaled(X, self.lengthscale), np.empty(len(X), dtype=np.int64)
            waiting = [(np.arange(len(X)), block)]
            while waiting:
                members, number = waiting.pop()
                cut = _cut(Z[members], rows, ties) if members.size > rows else None
                if cut is None:
                    label[members], middle[number] = number, Z[members].mean(axis=0)
                    continue
                if number in above:
                    place, i = above[number]
                    side[place][i] = len(side)
                above[number], above[len(middle)] = (len(side), 0), (len(side), 1)
                along, limit, first = cut
                waiting += [(members[~first], len(middle)), (members[first], number)]
                direction.append(along)
                threshold.append(limit)
                side.append([-1 - number, -1 - len(middle)])
                middle.append(middle[number])
            labels.append(label)
        return Regions(
            self.lengthscale,
            np.reshape(direction, (-1, self.lengthscale.size)),
            np.array(threshold),
            np.array(side, dtype=np.int64).reshape(-1, 2),
            np.array(middle),
        ), labels

    def _top(self, n: int) -> Rows:
        return np.full(n, 0 if len(self.side) else -1)


class Partition:
    """One block of all rows, however many there are; `Blocks` divides them."""

    local: ClassVar = False  # whether the rows were divided into blocks of near rows, possibly one

    def __len__(self) -> int:
        """Number of blocks."""
        return 1

    @property
    def several(self) -> bool:
        """Whether there are several blocks, between which f is independent; the covariance of one is dense."""
        return len(self) > 1

    def check(self, n: int) -> None:
        """Check that the partition is one of n rows."""

    def label_of(self, n: int) -> Rows:
        """Return the block of each of n rows."""
        return np.zeros(n, dtype=np.int64)

    def rows(self, block: int) -> Rows | slice:
        """Return rows of a block."""
        return slice(None)

    def assign(self, X: ArrayLike) -> Rows:
        """Return the block of each of the new points X (m, d)."""
        return self.label_of(len(np.asarray(X)))

    def grown(self, X: ArrayLike) -> Partition:
        """Return the partition of the rows, followed by new points X (m, d)."""
        return self

    def some(self, count: int, n: int, rng: np.random.Generator) -> tuple[Rows, Partition]:
        """Return ``count`` random rows of n, and their partition; a few more if blocks are kept whole."""
        return np.sort(rng.choice(n, count, replace=False)), self

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the partition as plain arrays by name; none for one block."""
        return {}

    def each[Item, Result](self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return results of a function of items that belong to blocks: with several in the threads of joblib."""
        if self.several:
            return each_block(lambda i: function(items[i]), len(items))
        return [function(item) for item in items]


ONE_BLOCK = Partition()


@dataclass(frozen=True, eq=False)
class Blocks(Partition):
    """A partition of n rows into blocks; `local_blocks` makes it.

    Attributes
    ----------
    label : (n,) array of int
        Block of each row, from 0.
    regions : Regions or None
        Regions that assign new points; None if the partition has none, such as a partition of some rows alone.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> blocks = bp.local_blocks(np.arange(10.0)[:, None], rows=4, random_seed=0)
    >>> sorted(blocks.sizes.tolist()), blocks.rows(int(blocks.label[9])).tolist()
    ([3, 3, 4], [6, 7, 8, 9])
    >>> bool(blocks.assign([[8.6]])[0] == blocks.label[9])
    True
    """

    label: Rows
    regions: Regions | None = None

    local: ClassVar = True

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
        """Return the row numbers of a block, in ascending order."""
        return self.order[self.offsets[block] : self.offsets[block + 1]]

    def __iter__(self) -> Iterator[Rows]:
        """The row numbers of each block."""
        return (self.rows(block) for block in range(len(self)))

    def assign(self, X: ArrayLike) -> Rows:
        """Return the block (m,) of each new point X (m, d), whose region contains it.

        Raises
        ------
        ValueError
            If the partition has no regions, or X has another number of columns.
        """
        if self.regions is None:
            raise ValueError("blocks must have regions to assign new points, as local_blocks makes them")
        return self.regions.assign(numbers("X", X, ("m", self.regions.lengthscale.size)))

    @classmethod
    def joining(cls, parts: Sequence[Rows]) -> tuple[Rows, Self]:
        """Return the rows of given blocks, one block after another, and their partition."""
        return np.concatenate(parts), cls(np.repeat(np.arange(len(parts)), [part.size for part in parts]))

    def check(self, n: int) -> None:
        """Check that the partition is one of n rows."""
        if self.n != n:
            raise ModelError(f"blocks must be of the {n} rows of X, got blocks of {self.n} rows: cut the new X")

    def label_of(self, n: int) -> Rows:
        """Return the block of each row."""
        return self.label

    def some(self, count: int, n: int, rng: np.random.Generator) -> tuple[Rows, Blocks]:
        """Return the rows of random whole blocks, ``count`` or a few more, and their partition."""
        order = rng.permutation(len(self))
        used = order[: 1 + np.searchsorted(np.cumsum(self.sizes[order]), count)]
        return self.joining([self.rows(block) for block in np.sort(used)])

    def grown(self, X: ArrayLike) -> Blocks:
        """Return the partition of the rows, followed by new points X (m, d)."""
        return replace(self, label=np.append(self.label, self.assign(X)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the partition as plain arrays by name, from which `from_arrays` makes it again."""
        regions = {} if self.regions is None else vars(self.regions)
        return {"label": self.label, **regions}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make the partition from the arrays of `to_arrays`.

        Raises
        ------
        ValueError
            If an array is missing, or is not one of a partition.
        """
        wanted = ("label", *(Regions.__dataclass_fields__ if len(arrays) > 1 else ()))
        label, *regions = map(np.asarray, check_fields("blocks", dict(arrays), wanted).values())
        return cls(label, Regions(*regions) if regions else None)


def local_blocks(
    X: ArrayLike,
    rows: int = 1000,
    *,
    lengthscale: ArrayLike | None = None,
    random_seed: int | np.random.Generator | None = 0,
) -> Blocks:
    """Cut rows into blocks of neighbours.

    Parameters
    ----------
    X : (n, d) array
        Inputs. With more than 200,000 rows only parts are in memory: X may be a `numpy.memmap`.
    rows : int
        Largest number of rows of a block.
    lengthscale : float or (d,) array, optional
        Units of distances, such as the lengthscales of a kernel; by default the standard deviation of each input. An
        input with an infinite lengthscale is ignored.
    random_seed : int or Generator
        Random seed; the same seed gives the same blocks.

    Returns
    -------
    Blocks

    Raises
    ------
    ValueError
        If X is not a finite matrix, rows is not a positive integer, or a lengthscale is not positive.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> blocks = bp.local_blocks(X, rows=100)
    >>> blocks.n, bool(blocks.sizes.max() <= 100)
    (500, True)
    """
    inputs = numbers("X", X, ("n", "d"))
    check_size("X", inputs)
    check_count("rows", rows, 1)
    unit, rng = _lengthscale(inputs, lengthscale), generator(random_seed)
    sample, most = inputs, int(rows)
    if len(inputs) > _WHOLE:
        sample = inputs[np.sort(rng.choice(len(inputs), _WHOLE, replace=False))]
        most = max(int(_MARGIN * most * _WHOLE / len(inputs)), 1)
    whole = Regions(unit, np.empty((0, unit.size)), np.empty(0), np.empty((0, 2), np.int64), np.zeros((1, unit.size)))
    regions, _ = whole.divided([(0, sample)], most, ties=False)
    label = regions.assign(inputs)
    large = {int(block): np.flatnonzero(label == block) for block in np.flatnonzero(np.bincount(label) > rows)}
    regions, parts = regions.divided(((block, inputs[members]) for block, members in large.items()), int(rows))
    for members, part in zip(large.values(), parts, strict=True):
        label[members] = part
    return Blocks(label, replace(regions, middle=_middle(inputs, unit, label)))


def mostly_repeated(X: Array) -> bool:
    """Return whether twelve or more rows share an input in the mean: the nearest rows are then at one place.

    Their covariance has a root with few columns, so a dense fit is fast.
    """
    factors: Array = np.random.default_rng(0).normal(size=(X.shape[1],))  # sums are equal only if rows are
    sums = [_along(X[at : at + _CHUNK], factors) for at in range(0, len(X), _CHUNK)]
    return _COPIES * np.unique(np.concatenate(sums)).size <= len(X)


def mean_and_deviation(X: Array, weight: ArrayLike = 1.0) -> tuple[Array, Array]:
    """Return weighted mean and standard deviation of each column, by parts; 1 for a constant column."""
    parts, times = [slice(at, at + _CHUNK) for at in range(0, len(X), _CHUNK)], np.broadcast_to(weight, len(X))
    mean = np.sum([times[part] @ X[part] for part in parts], axis=0) / times.sum()
    spread = np.sqrt(np.sum([times[part] @ (X[part] - mean) ** 2 for part in parts], axis=0) / times.sum())
    largest = np.maximum(X.max(axis=0), -X.min(axis=0))
    return mean, np.where(spread > 1e-12 * np.maximum(largest, 1e-300), spread, 1.0)


def _scaled(X: Array, unit: Array) -> Array:
    with np.errstate(over="ignore"):
        Z: Array = X / unit
    if not np.isfinite(Z).all():
        raise ValueError(f"lengthscale must not be so small that inputs overflow, got {unit.min():g}")
    return Z


def _middle(X: Array, unit: Array, label: Rows) -> Array:
    total = np.zeros((label.max() + 1, X.shape[1]))
    for at in range(0, len(X), _CHUNK):
        np.add.at(total, label[at : at + _CHUNK], _scaled(X[at : at + _CHUNK], unit))
    return total / np.bincount(label)[:, None]


def _lengthscale(X: Array, given: ArrayLike | None) -> Array:
    if given is None:
        return mean_and_deviation(X)[1]
    unit = numbers("lengthscale", given, infinite=True)
    if unit.shape not in ((), (1,), (X.shape[1],)):
        raise ValueError(f"lengthscale must be a number or a ({X.shape[1]},) array, got shape {unit.shape}")
    if not (unit > 0).all():
        raise ValueError(f"lengthscale must be positive, got {unit.min():g}")
    return np.array(np.broadcast_to(unit, (X.shape[1],)))


def _cut(Z: Array, most: int, ties: bool) -> tuple[Array, float, NDArray[np.bool_]] | None:
    """Return a cut with a whole number of blocks on either side, and the rows on its first side.

    Identical rows have a cut only with ``ties``.
    """
    parts = -(-len(Z) // most)
    target = len(Z) * (parts // 2) // parts
    centred = Z[:: -(-len(Z) // _DIRECTION)]
    centred = centred - centred.mean(axis=0)
    for direction in (_longest(centred), np.eye(Z.shape[1])[np.argmax(np.ptp(Z, axis=0))]):
        place = _along(Z, direction)
        ordered = np.sort(place)
        gaps = np.flatnonzero(np.diff(ordered) > _TIED * (ordered[-1] - ordered[0]))
        if ordered[-1] > ordered[0] and gaps.size:
            last = gaps[np.argmin(np.abs(gaps + 1 - target))]
            threshold = 0.5 * (ordered[last] + ordered[last + 1])
            return direction, float(threshold), place <= threshold
    return (direction, np.inf, np.arange(len(Z)) < target) if ties else None


def _longest(centred: Array) -> Array:
    """Return the direction of the largest variance of centred rows; its largest component is positive."""
    scaled = centred / (np.abs(centred).max() or 1.0)
    direction = np.asarray(np.linalg.eigh(scaled.T @ scaled)[1][:, -1])
    return direction * np.sign(direction[np.argmax(np.abs(direction))])


def _along(Z: Array, direction: Array) -> Array:
    """Return the inner product of each row of Z with its direction, with the same rounding for any number of rows."""
    return np.asarray((Z * direction).sum(axis=1))

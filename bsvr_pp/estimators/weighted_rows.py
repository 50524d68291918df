"""Sample weights: equal rows are one row whose weight is the sum of theirs, and rows of weight 0 are left out.

A row of weight w has the likelihood p(y|f)^w. A data set with whole weights and the one with repeated rows become the
same arrays here, in the same order, so that everything that is computed from them agrees to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import is_number, numbers

__all__ = ["Rows", "as_given", "checked_weights", "merged", "of_intervals"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a data set without repetitions.

    Attributes
    ----------
    X, y : (m, d) and (m,) arrays
        Inputs, and targets or labels.
    weight : (m,) array or None
        Weights; None if all are 1, and then the rows are in the order of the data set.
    place : (n,) array of int
        For each given row its row here; -1 if it is left out.
    share : (n,) array
        For each given row its part of the weight of that row.
    ends : (m, 2) array or None
        Ends of targets that are intervals, of which y holds a number each; None if all are exact.
    """

    X: Array
    y: NDArray[Any]
    weight: Array | None
    place: NDArray[np.intp]
    share: Array
    ends: Array | None = None

    @property
    def count(self) -> float:
        """Number of rows that were given, each as often as its weight says."""
        return float(len(self.y) if self.weight is None else self.weight.sum())

    @property
    def n_exact(self) -> float:
        """`count` without the rows whose targets are intervals."""
        return self.count if self.ends is None else float(np.sum(self.ends[:, 0] == self.ends[:, 1]))

    def standardised(self, mean: Array, scale: Array, location: float, unit: float) -> Self:
        """Standardise inputs and targets."""
        ends = None if self.ends is None else (self.ends - location) / unit
        return replace(self, X=(self.X - mean) / scale, y=(self.y - location) / unit, ends=ends)

    def taken(self, kept: NDArray[np.bool_]) -> Self:
        """Keep some of the m rows."""
        index = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        weight, ends = (None if a is None else a[kept] for a in (self.weight, self.ends))
        return replace(self, X=self.X[kept], y=self.y[kept], weight=weight, place=index[self.place], ends=ends)

    def spread(self, values: Array) -> Array:
        """Divide a value of each of the m rows, on the last axis, among the given rows; 0 where they are left out."""
        return np.where(self.place < 0, 0.0, values[..., self.place] * self.share)

    def repeated(self) -> Self:
        """The rows, each as often as its weight says, which must be whole numbers."""
        if self.weight is None:
            return self
        if (self.weight % 1 != 0).any():
            odd = self.weight[self.weight % 1 != 0][0]
            raise ValueError(f"sample_weight must be whole numbers where hyperparameters are sampled, got {odd}")
        at = np.repeat(np.arange(len(self.y)), self.weight.astype(np.intp))
        first = np.append(np.searchsorted(at, np.arange(len(self.y))), -1)
        share = self.share * self.weight[self.place]
        return replace(self, X=self.X[at], y=self.y[at], weight=None, place=first[self.place], share=share)


def checked_weights(sample_weight: ArrayLike | None, n: int) -> Array | None:
    """Check the weights of n rows: numbers of at least 0, or one number for all."""
    if sample_weight is None:
        return None
    given = np.full(n, sample_weight) if is_number(sample_weight) else sample_weight
    weight = numbers("sample_weight", given, ("n",))
    if weight.size != n:
        raise ValueError(f"sample_weight must have {n} values as X has rows, got {weight.size}")
    if (weight < 0).any():
        raise ValueError(f"sample_weight must be >= 0, got {weight.min():g}")
    if not weight.any():
        raise ValueError("sample_weight must not be zero for all rows")
    return weight


def merged(X: Array, y: NDArray[Any], sample_weight: ArrayLike | None) -> Rows:
    """Merge equal rows of inputs (n, d) and targets or labels (n,), and leave rows of weight 0 out."""
    n = len(y)
    given = checked_weights(sample_weight, n)
    weight = np.ones(n) if given is None else given
    used = np.flatnonzero(weight > 0)
    code = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
    table = np.column_stack([X, code])[used] + 0.0  # -0.0 is 0.0
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weight[used])
    if (total == 1.0).all():  # as given
        order = np.argsort(first)
        first, total, place = first[order], total[order], np.argsort(order)[place.ravel()]
    kept, everywhere, share = used[first], np.full(n, -1), np.zeros(n)
    everywhere[used] = place.ravel()
    share[used] = weight[used] / total[place.ravel()]
    return Rows(X[kept], y[kept], None if (total == 1.0).all() else total, everywhere, share)


def as_given(X: Array, y: Array, left_out: NDArray[np.intp]) -> Rows:
    """Rows without weights and repetitions, of a data set of which the rows of these numbers were left out."""
    n = len(y) + len(left_out)
    place = np.full(n, -1)
    place[np.delete(np.arange(n), left_out)] = np.arange(len(y))
    return Rows(X, y, None, place, np.ones(n))


def of_intervals(X: Array, y: Array, ends: Array, sample_weight: ArrayLike | None) -> Rows:
    """Rows with ends (n, 2) of their targets, as they are given: intervals are not merged, and have no weights."""
    if sample_weight is not None:
        raise ValueError("sample_weight is for exact targets, and y has intervals")
    return replace(as_given(X, y, np.empty(0, dtype=np.intp)), ends=ends)

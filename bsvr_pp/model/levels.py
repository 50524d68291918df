"""Inputs of few values: the kernel takes them as numbers, and each value as a level of a category as well.

What belongs to a value alone, such as a kind of material that is numbered, is learned from all rows of that value. A
value that the training rows do not have is a number alone (docs/defaults.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance, WarpedInput

from bsvr_pp.core.arrays import Array, Tensor

_FEWEST, _MOST = 3, 12  # numbers of values: two are a line anyway, and more are rarely names
_REPEATS = 5  # least mean number of rows of a value
_SAME = 1e-9  # difference of equal values in standard deviations, of which rounding errors are far less


class Levels(NamedTuple):
    """Columns with few values, and these values (q, m), each row with infinity where it has fewer than m."""

    columns: tuple[int, ...] = ()
    values: Array = np.empty((0, 1))

    @classmethod
    def of(cls, X: Array, columns: tuple[int, ...]) -> Levels:
        """The values that rows have in some columns."""
        found = [np.unique(X[:, column]) for column in columns]
        values = np.full((len(columns), max((value.size for value in found), default=1)), np.inf)
        for row, value in zip(values, found, strict=True):
            row[: value.size] = value
        return cls(columns, values)


def columns_of_few_values(X: Array, tied: Sequence[int] | None) -> tuple[int, ...]:
    """Columns with 3 to 12 values, each in five rows on average, which are no indicators of words."""
    sizes = {k: np.unique(X[:, k]).size for k in alone(X, tied)}
    return tuple(k for k, m in sizes.items() if _FEWEST <= m <= min(_MOST, len(X) // _REPEATS))


def alone(X: Array, tied: Sequence[int] | None) -> list[int]:
    """Columns that share no hyperparameter with others, as the indicators of words do."""
    return [k for k in range(X.shape[1]) if tied is None or tied.count(tied[k]) == 1]


def with_levels(X: Tensor, columns: tuple[int, ...], values: Tensor) -> Tensor:
    """Inputs (n, d), and the number of the level in each of the q columns, -1 for no value of `Levels`."""
    same = pt.lt(pt.abs(X[:, np.array(columns)][:, :, None] - values[None]), _SAME)
    level = pt.switch(pt.any(same, axis=2), pt.argmax(same, axis=2), -1.0)
    return pt.concatenate([X, level], axis=1)


class WithLevels(WarpedInput):
    """A kernel of d inputs and their levels as a kernel of the inputs, whose lengthscales are those of the inputs."""

    def __init__(self, input_dim: int, kernel: BaseCovariance, levels: Levels) -> None:
        super().__init__(input_dim, kernel, with_levels, args=(levels.columns, pm.Data("levels", levels.values)))

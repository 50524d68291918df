"""Options of estimators for many rows, which are fitted in local blocks."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import joblib
import numpy as np

from bsvr_pp._checks import check_count

__all__ = ["LocalBlocks", "blocks_from", "say_in_blocks"]

_DENSE = 4000  # largest number of rows that are fitted densely without being asked
_ROWS = 1000  # of a block
_NEAREST = 64  # rows on which each prediction has a fit of its own where there are blocks


@dataclass(frozen=True, slots=True)
class LocalBlocks:
    """How many rows are fitted: in blocks of near rows, between which the function is independent a priori.

    Parameters
    ----------
    size : int or "auto"
        Largest number of rows of a block. "auto" is a dense fit up to 4000 rows, and blocks of 1000 rows above.
    neighbours : int, "auto" or None
        Number of nearest rows on which each prediction has a fit of its own, as in `bp.predict`. "auto" is 64 where
        there are blocks and the hyperparameters are not sampled; with None predictions are those of the own block.
    n_jobs : int, optional
        Number of threads that solve blocks; -1 is one for each processor. By default that of a surrounding
        ``joblib.parallel_config``, or 1. The results do not depend on it.
    progressbar : bool
        Whether to show the progress of the fit.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> svr = bp.BayesianSVR(blocks=bp.LocalBlocks(500, n_jobs=2))
    """

    size: int | Literal["auto"] = "auto"
    neighbours: int | Literal["auto"] | None = "auto"
    n_jobs: int | None = None
    progressbar: bool = False

    def __post_init__(self) -> None:
        if not (_is_size(self.size) or self.size == "auto"):
            raise ValueError(f"size must be 'auto' or an integer of at least 2, got {self.size!r}")
        if isinstance(self.neighbours, str) and self.neighbours != "auto":
            raise ValueError(f"neighbours must be 'auto', None or an integer of at least 1, got {self.neighbours!r}")
        if self.neighbours is not None and self.neighbours != "auto":
            check_count("neighbours", self.neighbours, 1)
        n_jobs = self.n_jobs
        if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
            raise ValueError(f"n_jobs must be a whole number other than 0, or None, got {n_jobs!r}")
        if not isinstance(self.progressbar, bool | np.bool_):
            raise ValueError(f"progressbar must be True or False, got {self.progressbar!r}")

    @property
    def rows(self) -> int:
        """Largest number of rows of a block."""
        return _ROWS if self.size == "auto" else int(self.size)

    def divides(self, n: int) -> bool:
        """Whether n rows are fitted in blocks, and not densely."""
        return n > (_DENSE if self.size == "auto" else self.size)

    def neighbours_of(self, *, in_blocks: bool) -> int | None:
        """Number of nearest rows on which each prediction has a fit of its own; None for none."""
        if self.neighbours == "auto":
            return _NEAREST if in_blocks else None
        return None if self.neighbours is None else int(self.neighbours)

    def threads(self) -> Any:
        """Context in which blocks are solved by this number of threads."""
        return nullcontext() if self.n_jobs is None else joblib.parallel_config(n_jobs=self.n_jobs)

    def record(self) -> dict[str, Any]:
        """The options that predictions depend on, as plain data."""
        return {"size": self.size, "neighbours": self.neighbours}


def blocks_from(blocks: Any) -> LocalBlocks | None:
    """The option ``blocks`` of an estimator: "auto", a size, `LocalBlocks`, or None for a dense fit."""
    if blocks is None or isinstance(blocks, LocalBlocks):
        return blocks
    if not (_is_size(blocks) or (isinstance(blocks, str) and blocks == "auto")):
        raise ValueError(f"blocks must be 'auto', None, an integer of at least 2 or LocalBlocks, got {blocks!r}")
    return LocalBlocks(blocks)


def say_in_blocks(n: int, stacklevel: int) -> None:
    """Warn that rows are fitted in blocks, which was not asked for."""
    warnings.warn(
        f"{n} rows are fitted in local blocks, between which the function is independent: each prediction has a fit of "
        "its own on the nearest rows, and blocks=None fits all rows densely",
        UserWarning,
        stacklevel=stacklevel,
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 2)

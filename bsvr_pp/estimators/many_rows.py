"""Fits of many rows in local blocks, for the estimators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from bsvr_pp._checks import check_count
from bsvr_pp.estimators.fitted import Fitted, solved
from bsvr_pp.estimators.weighted_rows import Rows, as_given
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.at_size import AtSize, search_in_blocks
from bsvr_pp.inference.noise_scales import NoiseScales, scales_at, scales_of_posterior
from bsvr_pp.inference.optimize import lengthscales
from bsvr_pp.inference.protocol import Approximation, Method
from bsvr_pp.model.blocks import Blocks, local_blocks
from bsvr_pp.model.problem import Point, Problem

__all__ = [
    "check_blocks",
    "fitted_in_blocks",
    "joblib_threads",
    "neighbours_of",
    "rows_for_blocks",
    "rows_of_blocks",
    "say_in_blocks",
    "scales_of_neighbours",
    "size_of_blocks",
    "with_noise_scales",
]

Array = NDArray[np.float64]

_DENSE = 4000  # largest number of rows that are fitted densely without being asked
_ROWS = 1000  # of a block
_NEAREST = 64  # rows on which each prediction has a fit of its own where there are blocks
_SEED = 0  # of the blocks, so that the same rows are cut in the same way


def check_blocks(blocks: Any, nearest: Any, neighbours: Any, n_jobs: Any) -> None:
    """Check the options of an estimator for many rows.

    Raises
    ------
    ValueError
        Naming the option, its value and what is allowed.
    """
    whole = isinstance(blocks, int | np.integer) and not isinstance(blocks, bool) and blocks >= 2
    if not (blocks is None or whole or (isinstance(blocks, str) and blocks == "auto")):
        raise ValueError(f"blocks must be 'auto', None or an integer of at least 2, got {blocks!r}")
    check_count("nearest", nearest, 1)
    if isinstance(neighbours, str) and neighbours != "auto":
        raise ValueError(f"neighbours must be 'auto', None or an integer of at least 1, got {neighbours!r}")
    if neighbours is not None and neighbours != "auto":
        check_count("neighbours", neighbours, 1)
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None, got {n_jobs!r}")


def rows_of_blocks(blocks: Any, n: int) -> int | None:
    """Largest number of rows of a block for n rows; None for a dense fit.

    Examples
    --------
    >>> from bsvr_pp.estimators.many_rows import rows_of_blocks
    >>> rows_of_blocks("auto", 4000), rows_of_blocks("auto", 4001), rows_of_blocks(500, 300), rows_of_blocks(500, 900)
    (None, 1000, None, 500)
    """
    if blocks is None or (blocks == "auto" and n <= _DENSE):
        return None
    rows = _ROWS if blocks == "auto" else int(blocks)
    return rows if n > rows else None


def neighbours_of(neighbours: Any, fitted: Any, problem: Problem) -> int | None:
    """Number of nearest rows on which each prediction has a fit of its own; None for none."""
    if neighbours == "auto":
        return _NEAREST if problem.blocks is not None and getattr(fitted, "draws", None) is None else None
    return None if neighbours is None else int(neighbours)


def with_noise_scales(
    problem: Problem, fitted: Fitted, method: Method, neighbours: Any, progressbar: bool = False
) -> Fitted:
    """Learn scales of the noise: with blocks of fits on nearest rows, otherwise of a dense fit by mean field.

    Parameters
    ----------
    problem : Problem
        The model of all rows.
    fitted : Fitted
        Hyperparameters and posteriors.
    method : Method
        Method of inference.
    neighbours, progressbar
        Options of the estimator.
    """
    if len(fitted.posteriors) != 1:  # draws or a committee
        return fitted
    if problem.blocks is not None:
        return fitted.with_scales(problem, scales_of_neighbours(problem, fitted.points[0], neighbours, progressbar))
    if not isinstance(method, MeanField):
        return fitted
    return fitted.with_scales(problem, scales_of_posterior(problem, fitted.points[0], fitted.posteriors[0]))


def scales_of_neighbours(problem: Problem, point: Point, neighbours: Any, progressbar: bool = False) -> NoiseScales:
    """Scales of the noise of fits on nearest rows, learned at given hyperparameters.

    Parameters
    ----------
    problem : Problem
        The model of all rows.
    point : dict
        Hyperparameters.
    neighbours, progressbar
        Options of the estimator.
    """
    count = _NEAREST if neighbours is None or neighbours == "auto" else int(neighbours)
    progress = "scales of the noise" if progressbar else ""
    return scales_at(problem, point, count, np.random.default_rng(_SEED), progress=progress)


def joblib_threads(n_jobs: int | None) -> Any:
    """Context in which blocks are solved by a number of threads, as scikit-learn counts them.

    None leaves the number to a surrounding ``joblib.parallel_config``; without one it is 1.
    """
    return nullcontext() if n_jobs is None else joblib.parallel_config(n_jobs=n_jobs)


def size_of_blocks(blocks: Any, rows: Rows) -> int | None:
    """`rows_of_blocks` of the rows of an estimator; None if their targets are intervals, whose fit is dense."""
    return None if rows.ends is not None else rows_of_blocks(blocks, len(rows.y))


def say_in_blocks(n: int, stacklevel: int = 3) -> None:
    """Warn that rows are fitted in blocks, which was not asked for."""
    warnings.warn(
        f"{n} rows are fitted in local blocks, between which the function is independent: predictions combine "
        "the nearest blocks, and blocks=None fits all rows densely",
        UserWarning,
        stacklevel=stacklevel,
    )


def rows_for_blocks(rows: Rows, X: Array, y: Array, blocks: Any, committee: bool, sample_weight: Any) -> Rows:
    """The rows to fit: with blocks equal rows are not merged, since blocks have no weights.

    Raises
    ------
    ValueError
        If an option needs a dense fit.
    """
    n = len(rows.y)
    if size_of_blocks(blocks, rows) is None:
        return rows
    if committee:
        raise ValueError(f"committee=True averages over optima of a dense fit, and {n} rows are fitted in blocks")
    if sample_weight is not None and rows.weight is not None:
        raise ValueError(f"sample_weight is for a dense fit, and {n} rows are fitted in blocks: use blocks=None")
    if blocks == "auto":
        say_in_blocks(n, stacklevel=4)
    return as_given(X, y, np.empty(0, dtype=np.intp))


def fitted_in_blocks(
    make: Callable[[Blocks | None], Problem],
    method: Approximation,
    rows: int,
    known: AtSize | None,
    *,
    restarts: int | None,
    rng: np.random.Generator,
    progressbar: bool,
) -> tuple[AtSize, Fitted]:
    """Find hyperparameters and blocks, and solve all blocks there.

    Parameters
    ----------
    make : callable
        Function from blocks to the problem with its data.
    method : Approximation
        Method that integrates f out.
    rows : int
        Largest number of rows of a block.
    known : AtSize or None
        Hyperparameters that were found before, for almost the same rows; then only the blocks are cut again.
    restarts, rng, progressbar
        As in `search_in_blocks`.

    Returns
    -------
    AtSize, Fitted
    """
    problem = make(None)
    if known is None:
        found = search_in_blocks(problem, method, rows=rows, restarts=restarts, rng=rng, progressbar=progressbar)
    else:
        lengthscale = lengthscales(problem, known.point)
        blocks = local_blocks(problem.inputs, rows, lengthscale=lengthscale, random_seed=_SEED)
        found = replace(known, blocks=blocks)
    return found, solved(make(found.blocks), method, found.optima, found.record(), progressbar)

"""A prior covariance that is zero between blocks of rows.

Each block is a `Covariance` that is made when it is needed and not kept, so that the memory is that of one block for
each thread. Solvers run block by block as they are (`blockwise`), and their results are joined in the order of the
rows. The threads are those of joblib (``joblib.parallel_config(n_jobs=...)``, by default one), with one BLAS thread
each, so that the results do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bsvr_pp._checks import numbers
from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations.arguments import check_noise, checked_mean
from bsvr_pp.approximations.covariance import Covariance

__all__ = ["BlockDiagonal", "BlockFactor", "blockwise", "each_block", "scattered"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class BlockDiagonal:
    """Covariance of n inputs in independent blocks.

    Parameters
    ----------
    rows : sequence of (m,) arrays of int
        Row numbers of each block; each row is in one block.
    make : callable
        Function from the number of a block to its `Covariance`.
    progress : str
        What a progress bar says while the blocks are solved; none if it is empty.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import BlockDiagonal, Covariance, mean_field
    >>> from bsvr_pp.losses import gaussian
    >>> K = BlockDiagonal([np.array([0, 2]), np.array([1])], lambda block: Covariance(np.eye(2 - block)))
    >>> mean_field(K, [1.0, 2.0, 4.0], gaussian(C=1.0)).mean.round(6).tolist()
    [0.5, 1.0, 2.0]
    """

    def __init__(self, rows: Sequence[Rows], make: Callable[[int], Covariance], *, progress: str = "") -> None:
        self.rows, self.part, self.progress = list(rows), make, progress

    @property
    def size(self) -> int:
        """Number of inputs n."""
        return sum(rows.size for rows in self.rows)

    def each[Result](self, function: Callable[[Covariance, Rows], Result]) -> list[Result]:
        """Results of a function of the covariance and the row numbers of each block, in their order."""
        return each_block(lambda block: function(self.part(block), self.rows[block]), len(self.rows), self.progress)

    def factor(self, site_precision: Array) -> BlockFactor:
        """Factor of the covariance with Gaussian sites of precisions (n,), made block by block when it is needed."""
        return BlockFactor(self, site_precision)

    def whiten(self, columns: Array) -> Array:
        """G⁻¹·columns, with the lower Cholesky factor G; the rows of a block must be in ascending order.

        Raises
        ------
        ValueError
            If a block is not positive definite.
        """
        return scattered(self.rows, self.each(lambda K, rows: K.whiten(columns[rows])))


class BlockFactor:
    """What `Factor` computes, block by block: each call factors all blocks again, and keeps none."""

    def __init__(self, covariance: BlockDiagonal, site_precision: Array) -> None:
        self.covariance, self.site_precision = covariance, site_precision

    def explained(self, cross: Array) -> Array:
        """Compute the variance that the sites explain for each row k* of ``cross`` (k, n)."""
        parts = self.covariance.each(lambda K, rows: K.factor(self.site_precision[rows]).explained(cross[:, rows]))
        return np.sum(parts, axis=0)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n) from N(0, (K⁻¹ + diag(τ))⁻¹); each block has a random stream of its own.

        Raises
        ------
        ValueError
            If a block is not positive definite.
        """
        streams = iter(rng.spawn(len(self.covariance.rows)))
        source = {int(rows[0]): next(streams) for rows in self.covariance.rows}

        def drawn(K: Covariance, rows: Rows) -> Array:
            return K.factor(self.site_precision[rows]).draw(size, source[int(rows[0])]).T

        return scattered(self.covariance.rows, self.covariance.each(drawn)).T


def each_block[Result](function: Callable[[int], Result], count: int, progress: str = "") -> list[Result]:
    """Results of a function of the number of a block, in the order of the numbers.

    Parameters
    ----------
    function : callable
        Function of a number from 0 to ``count`` - 1. It may run in several threads of joblib.
    count : int
        Number of blocks.
    progress : str
        What a progress bar says, with the time left; none if it is empty.
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with threads_for(1), Progress(*columns, transient=True, disable=not progress) as bar:
        task = bar.add_task(progress, total=count)
        out = []
        for found in Parallel(require="sharedmem", return_as="generator")(map(delayed(function), range(count))):
            out.append(found)
            bar.update(task, advance=1)
    return out


def scattered(rows: Sequence[Rows], parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join the arrays of the blocks along the first axis, in the order of the rows."""
    order = np.concatenate(rows)
    joined = np.concatenate(parts)
    out = np.empty_like(joined)
    out[order] = joined
    return out


def blockwise(
    join: Callable[[BlockDiagonal, list[Any], Array], Any], slim: Callable[[Any], Any] = lambda found: found
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a solver (K, y, noise, *, mean) run block by block where K is a `BlockDiagonal`.

    Parameters
    ----------
    join : callable
        Function of K, the results of all blocks, and the prior mean (n,).
    slim : callable
        Function that takes from the result of a block what is large.
    """

    def decorate(solve: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(solve)
        def run(K: Any, y: Any, noise: Any, *, mean: Any = None, **options: Any) -> Any:
            if not isinstance(K, BlockDiagonal):
                return solve(K, y, noise, mean=mean, **options)
            check_noise(noise)
            targets, offset = numbers("y", y, (K.size,)), checked_mean(mean, K.size)

            def solved(part: Covariance, rows: Rows) -> Any:
                return slim(solve(part, targets[rows], noise, mean=offset[rows], **options))

            return join(K, K.each(solved), offset)

        return run

    return decorate

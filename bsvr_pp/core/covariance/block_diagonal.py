"""A prior covariance that is zero between blocks of rows, each a `Covariance` that is made when needed and not kept.

Solvers run block by block (`approximations.posterior.blockwise`). The threads come from joblib (by default one),
with one BLAS thread each, so that the results do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.arrays import Rows as Rows
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import Covariance, CrossRoot


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
        return each_block(lambda i: function(self.part(i), self.rows[i]), len(self.rows), self.progress)

    def factor(self, site_precision: Array) -> BlockFactor:
        """Factor of the covariance with Gaussian sites of precisions (n,), made block by block when it is needed."""
        return BlockFactor(self, site_precision)

    def whiten(self, columns: Array) -> Array:
        """G⁻¹·columns, with the lower Cholesky factor G; the rows of a block must be in ascending order."""
        return scatter(self.rows, self.each(lambda K, rows: K.whiten(columns[rows])))


AnyCovariance = Covariance | BlockDiagonal


class BlockFactor:
    """What `Factor` computes, block by block: each call factors all blocks again, and keeps none."""

    def __init__(self, covariance: BlockDiagonal, site_precision: Array) -> None:
        self.covariance, self.site_precision = covariance, site_precision

    def explained(self, cross: Array | CrossRoot) -> Array:
        """Compute the variance that the sites explain for each row k* of ``cross`` (k, n)."""
        K_star = np.asarray(cross)
        parts = self.covariance.each(lambda K, rows: K.factor(self.site_precision[rows]).explained(K_star[:, rows]))
        return np.sum(parts, axis=0)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n) from N(0, (K⁻¹ + diag(τ))⁻¹); each block has a random stream of its own."""
        streams = iter(rng.spawn(len(self.covariance.rows)))
        source = {int(rows[0]): next(streams) for rows in self.covariance.rows}

        def drawn(K: Covariance, rows: Rows) -> Array:
            return K.factor(self.site_precision[rows]).draw(size, source[int(rows[0])]).T

        return scatter(self.covariance.rows, self.covariance.each(drawn)).T


def each_block[Result](function: Callable[[int], Result], count: int, progress: str = "") -> list[Result]:
    """Results of a function of 0 to ``count`` - 1 in their order, perhaps from several threads of joblib."""
    with threads_for(1), progress_of_blocks(progress, count) as advance:
        out, n_jobs = [], effective_n_jobs(None)  # which joblib would set to 1 for threads that it was not asked for
        threads = Parallel(n_jobs=n_jobs, require="sharedmem", return_as="generator")
        for found in threads(map(delayed(function), range(count))):
            out.append(found)
            advance(1)
    return out


@contextmanager
def progress_of_blocks(text: str, count: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with the time left, if it has a text; yields a function that adds blocks that are done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, transient=True, disable=not text) as bar:
        task = bar.add_task(text, total=count)
        yield lambda done: bar.update(task, advance=done)


def scatter[T: np.generic](rows: Sequence[Rows], parts: Sequence[NDArray[T]]) -> NDArray[T]:
    """Join the arrays of the blocks along the first axis, in the order of the rows."""
    order = np.concatenate(rows)
    joined = np.concatenate(parts)
    out = np.empty_like(joined)
    out[order] = joined
    return out

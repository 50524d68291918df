"""How the numerical core is compiled, and on how many threads: once for all modules."""

from __future__ import annotations

from numba import njit
from threadpoolctl import threadpool_limits

__all__ = ["compiled", "threads_for", "vectorized"]

_SMALL = 1000

# Compiled code is kept on disk. Division by zero gives inf or NaN, as in NumPy: nothing raises inside a sampler, and
# what is not finite is reported as a failure by the function that solves the problem.
compiled = njit(cache=True, error_model="numpy")

# For sums over short arrays without branches: their order may change, so that several terms go at once.
vectorized = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


def threads_for(n_rows: int) -> threadpool_limits:
    """The context in which searches solve many problems of so many rows: one thread of BLAS where they are small.

    Threads wait for one another: on two cores a search takes up to three times as long with both at 400 rows, and is
    not faster before 2000.

    Examples
    --------
    >>> from bsvr_pp.compiler import threads_for
    >>> with threads_for(100):
    ...     pass
    """
    return threadpool_limits(limits=1 if n_rows <= _SMALL else None)

"""How the numerical core is compiled: once for all modules."""

from __future__ import annotations

from numba import njit

__all__ = ["compiled", "vectorized"]

# Compiled code is kept on disk. Division by zero gives inf or NaN, as in NumPy: nothing raises inside a sampler, and
# what is not finite is reported as a failure by the function that solves the problem.
compiled = njit(cache=True, error_model="numpy")

# For sums over short arrays without branches: their order may change, so that several terms go at once.
vectorized = njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})

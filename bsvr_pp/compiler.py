"""How the numerical core is compiled: once for all modules."""

from __future__ import annotations

from numba import njit

__all__ = ["compiled"]

# Compiled code is kept on disk. Division by zero gives inf or NaN, as in NumPy: nothing raises inside a sampler, and
# what is not finite is reported as a failure by the function that solves the problem.
compiled = njit(cache=True, error_model="numpy")

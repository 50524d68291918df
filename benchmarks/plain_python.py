"""The compiled core as plain Python, for faults in it: to compile them would take minutes each.

Numba's decorators return the function itself, a separate function is called as it is, LAPACK is that of SciPy, and the
functions of `math` are those of NumPy, which give inf or NaN where Python raises, as compiled code does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import config
from scipy import special

__all__ = ["TWINS", "compile_nothing", "in_plain_python"]

cos, exp, log, log1p, sinh, sqrt, tanh = np.cos, np.exp, np.log, np.log1p, np.sinh, np.sqrt, np.tanh
erfc, inf, nan, pi = special.erfc, math.inf, math.nan, math.pi

# Source of modules that need the compiler.
TWINS = {
    "_separate.py": """
def separate(result, *arguments):
    return lambda function: function
""",
    "covariance/lapack.py": """
import numpy as np
from scipy.linalg import lapack

def cholesky(A):
    if A.shape[0] == 0:
        return 0
    L, info = lapack.dpotrf(A.T, lower=0, clean=0)
    A[:] = L.T
    return A.shape[0] if info == 0 and not np.isfinite(A[-1, -1]) else info

def cholesky_solve(L, B):
    if B.size:
        B[:] = lapack.dpotrs(L.T, B.T, lower=0)[0].T

def lower_solve(L, B):
    if B.size:
        B[:] = lapack.dtrtrs(L.T, B.T, lower=0, trans=1)[0].T

def lower_inverse(L):
    if L.size:
        L[:] = lapack.dtrtri(L.T, lower=0)[0].T

def cholesky_inverse(L):
    if L.size:
        L[:] = lapack.dpotri(L.T, lower=0)[0].T
        above = np.triu_indices(len(L), 1)
        L[above] = L.T[above]
""",
}


def whole(number: Any) -> int:
    """The integer part, 0 of NaN."""
    return int(number) if math.isfinite(number) else 0


def compile_nothing() -> None:
    """Make Numba's decorators return the function, in this process, and NumPy give inf and NaN without a word."""
    config.DISABLE_JIT = 1
    np.seterr(all="ignore")


def in_plain_python(source: str) -> str:
    """Source of a module of the core with the functions of this module instead of those of `math`."""
    return source.replace("from math import ", f"from {__name__} import whole as int, ", 1)

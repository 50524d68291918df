"""What a part of the compiled core imports to run as plain Python, for faults in it, which take minutes to compile.

The decorators return the function itself, and the functions of `math` are those of NumPy, which give inf or NaN where
Python raises, as compiled code does. Folders on which the part depends, and does not change, stay compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

__all__ = ["PLAIN", "in_plain_python"]

# For faults in a folder, the folders that run in plain Python: it, and all whose compiled code calls it.
PLAIN = {
    "losses": ("losses", "approximations", "classification"),
    "covariance": ("covariance", "approximations", "classification"),
    "approximations": ("approximations", "classification"),
}

cos, exp, log, log1p, sinh, sqrt, tanh = np.cos, np.exp, np.log, np.log1p, np.sinh, np.sqrt, np.tanh
erfc, inf, nan, pi = special.erfc, math.inf, math.nan, math.pi


def whole(number: Any) -> int:
    """The integer part, 0 of NaN."""
    return int(number) if math.isfinite(number) else 0


def compiled[Function: Callable[..., Any]](function: Function) -> Function:
    """The function."""
    return function


vectorized = compiled


def separate(result: Any, *arguments: Any) -> Callable[[Any], Any]:
    """Return the function, as `compiled`."""
    return compiled


def __getattr__(name: str) -> Any:
    """What is not of this module is of the module that it stands for."""
    from bsvr_pp import _compiler

    return getattr(_compiler, name)


def in_plain_python(source: str) -> str:
    """Source of a module of the core that imports from this module instead."""
    for module, more in (("math", "whole as int, "), ("bsvr_pp._compiler", ""), ("bsvr_pp._separate", "")):
        source = source.replace(f"from {module} import ", f"from {__name__} import {more}", 1)
    return source

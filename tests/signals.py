"""Real signals of the keyboard at a chosen moment of a computation."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from numba import njit

from bsvr_pp.core.compiler import _Compiled
from bsvr_pp.model import operation

_raise = ctypes.CDLL(None)["raise"]
_raise.argtypes, _raise.restype = [ctypes.c_int], ctypes.c_int
_SIGINT = int(signal.SIGINT)
_solve = operation._solve


def uncached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that calls C as the package compiles, without a file, which cannot hold addresses."""
    made = njit(nogil=True)(function)
    made.__class__ = _Compiled
    return made


@uncached
def _interrupted_solve(*arguments):
    """The solve of an evidence, during which a signal comes."""
    _raise(_SIGINT)
    return _solve(*arguments)


def interrupt_evidence(patch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let a signal come in the compiled code of one evidence, by its number; the numbers of all."""
    done: list[int] = []

    def solve(*arguments: Any) -> Any:
        done.append(len(done))
        return (_interrupted_solve if done[-1] == number else _solve)(*arguments)

    patch.setattr(operation, "_solve", solve)
    return done


def interrupt_call(patch: pytest.MonkeyPatch, owner: Any, name: str, number: int = 0) -> list[int]:
    """Let a signal come when a function is called, by the number of the call, and call it; the numbers of all calls."""
    done: list[int] = []
    function: Callable[..., Any] = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        done.append(len(done))
        if done[-1] == number:
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments, **options)

    patch.setattr(owner, name, called)
    return done

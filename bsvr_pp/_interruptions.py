"""Interruptions (SIGINT, which Python raises as KeyboardInterrupt in the main thread) of long computations.

Python ignores what is raised in a callback of C code and while garbage is collected, and Numba does not look whether
making a result has failed: a named tuple then ends the process, arrays become a SystemError. Python handles a signal
only between its own instructions, so that both happen often to a signal that came during compiled code.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

_SOON = 0.1  # seconds after which C code has returned to Python


@contextmanager
def interruptible(*, wait: bool = False) -> Iterator[list[int]]:
    """Context in which an interruption that Python ignores is raised again soon, or that it does not enter (``wait``).

    It yields the signals that came. With ``wait`` they are handled at its end.
    """
    usual, ignored, came = signal.getsignal(signal.SIGINT), sys.unraisablehook, list[int]()
    if current_thread() is not main_thread() or not callable(usual):  # other threads get none, or it is not Python's
        yield came
        return

    def handle(number: int, frame: Any) -> None:
        came.append(number)
        if not wait:
            usual(number, frame)

    def look(found: Any) -> None:
        if issubclass(found.exc_type, KeyboardInterrupt):
            interrupt_soon()
        else:
            ignored(found)

    try:
        signal.signal(signal.SIGINT, handle)
        sys.unraisablehook = look
        yield came
    finally:
        sys.unraisablehook = ignored
        signal.signal(signal.SIGINT, usual)
        if wait and came:
            signal.raise_signal(signal.SIGINT)


def interrupt_soon() -> None:
    """Interrupt the main thread in a moment, also where it sleeps."""

    def interrupt() -> None:
        time.sleep(_SOON)
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(interrupt, ())  # without the locks of a Thread, which the main thread may hold

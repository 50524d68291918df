"""Settings for all modules: compilation of the numerical core, its cache on disk, and the number of threads."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numba
from numba import njit, types
from numba.core.caching import CacheImpl, _CacheLocator
from threadpoolctl import threadpool_limits

from bsvr_pp._caches import temporary_cache

__all__ = ["MATRIX", "VECTOR", "cached", "compiled", "core_stamp", "threads_for", "vectorized"]

_SMALL = 1000
_PACKAGE = Path(__file__).parent


@cache
def core_stamp() -> int:
    """Checksum of the code of all modules with compiled functions, without docstrings and comments.

    It keys the caches on disk of Numba, and of PyTensor for operations that contain compiled functions.
    """
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@compiled" in text or "@separate" in text or path.name in ("_compiler.py", "_separate.py"):
            tree = ast.parse(text)
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False):
                    del node.body[0]
            digest.update(ast.dump(tree).encode())
    return int.from_bytes(digest.digest()[:8])


class _CoreLocator(_CacheLocator):
    """Cache location of a compiled function of this package, with the stamp of the core.

    Numba's own stamp, time and size of the function's file, misses changes in the functions that it calls.
    """

    def __init__(self, chosen: Any) -> None:
        self._chosen = chosen

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """The locator of a function of this package."""
        if not Path(py_file).is_relative_to(_PACKAGE):
            return None
        for locator in CacheImpl._locator_classes:
            chosen = None if locator is cls else locator.from_function(py_func, py_file)
            if chosen is not None:
                return cls(chosen)
        return None

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._chosen.get_cache_path())

    def get_source_stamp(self) -> int:
        """Stamp that a cached function must have."""
        return core_stamp()

    def get_disambiguator(self) -> str:
        """Index that distinguishes functions with the same name."""
        return str(self._chosen.get_disambiguator())


CacheImpl._locator_classes.insert(0, _CoreLocator)


def cached(compile_: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """The decorator ``compile_(*arguments, cache=True, **options)``, in a temporary folder where Numba finds no other.

    Without any folder the code is compiled anew in each process.
    """

    def decorate(function: Any) -> Any:
        try:
            return compile_(*arguments, cache=True, **options)(function)
        except RuntimeError:  # Numba has found no folder that can be written
            folder = temporary_cache()
        if folder is not None:
            numba.config.CACHE_DIR = str(folder / "numba")
            try:
                return compile_(*arguments, cache=True, **options)(function)
            except RuntimeError:
                pass
        return compile_(*arguments, **options)(function)

    return decorate


# Compiled code is kept on disk. Division by zero gives inf or NaN, as in NumPy: nothing raises inside a sampler, and
# what is not finite is reported as a failure by the function that solves the problem. Compiled code does not hold
# Python's lock, so that threads can solve several blocks at once.
compiled = cached(njit, error_model="numpy", nogil=True)

# For sums over short arrays without branches: their order may change, so that several terms go at once.
vectorized = cached(njit, error_model="numpy", nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

# Types of contiguous arrays, for signatures.
VECTOR, MATRIX = types.float64[::1], types.float64[:, ::1]


class _OneThread:
    """One BLAS thread while at least one thread of the process asks for it.

    The thread that set a limit is the only one that can take it back, so that all limits are set by a thread of their
    own. A process that was forked has to start another.
    """

    def __init__(self) -> None:
        self.lock, self.depth, self.process = Lock(), 0, -1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.process != os.getpid():
                self.process, self.depth = os.getpid(), 0
                self.setter = ThreadPoolExecutor(1, "blas-threads")
            if self.depth == 0:
                self.limit = self.setter.submit(lambda: threadpool_limits(limits=1).__enter__()).result()
            self.depth += 1
        try:
            with threadpool_limits(limits=1):  # where the thread has set a limit of its own
                yield
        finally:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    self.setter.submit(self.limit.__exit__, None, None, None).result()


_one_thread = _OneThread()


def threads_for(n_rows: int) -> AbstractContextManager[None]:
    """Return the context for many solves with a given number of rows: one BLAS thread if the problems are small.

    BLAS threads wait for one another: on two cores an optimisation with 400 rows takes up to three times as long with
    both threads. Below 2000 rows two threads are not faster. The number of BLAS threads changes the last digits, so
    that the limit lasts until the last thread of the process leaves the context.
    """
    return _one_thread() if n_rows <= _SMALL else nullcontext()

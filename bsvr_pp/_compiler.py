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

__all__ = ["MATRIX", "VECTOR", "cached", "compiled", "source_stamp", "threads_for", "vectorized"]

_SMALL = 1000
_PACKAGE = Path(__file__).parent


@cache
def source_stamp(path: Path) -> bytes:
    """Compute a checksum of the compiled code of a module, and of the modules with compiled functions that it imports.

    It covers functions, named tuples and constants, without docstrings and lines of comments. The stamp of Numba covers
    only the file of a function, and misses changes in the functions that it calls.
    """
    digest, text = sha256(), path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            other = _PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            if other.is_file() and "@compiled" in other.read_text(encoding="utf-8"):
                digest.update(source_stamp(other))
        elif not _is_interface(node):
            digest.update("\n".join(_code(node, lines)).encode())
    return digest.digest()


def _code(node: ast.stmt, lines: list[str]) -> list[str]:
    """Lines of a statement with its decorators, without docstring and comments."""
    first, without = node.lineno, range(0)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
        if ast.get_docstring(node, clean=False) is not None:
            without = range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    numbered = enumerate(lines[first - 1 : node.end_lineno], first)
    return [line for number, line in numbered if number not in without and not line.lstrip().startswith("#")]


def _is_interface(node: ast.stmt) -> bool:
    """Return whether a statement does not affect compiled code: imports, functions and classes in Python."""
    if isinstance(node, ast.FunctionDef):
        return not node.decorator_list and not node.name.startswith("_")
    if isinstance(node, ast.ClassDef):
        return not any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
    return isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.If)


class _CoreLocator(_CacheLocator):
    """Cache location of a compiled function of this package, with a stamp that covers the functions it calls."""

    def __init__(self, chosen: Any, path: Path) -> None:
        self._chosen, self._path = chosen, path

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """The locator of a function of this package."""
        if not Path(py_file).is_relative_to(_PACKAGE):
            return None
        for locator in CacheImpl._locator_classes:
            chosen = None if locator is cls else locator.from_function(py_func, py_file)
            if chosen is not None:
                return cls(chosen, Path(py_file))
        return None

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._chosen.get_cache_path())

    def get_source_stamp(self) -> bytes:
        """Stamp that a cached function must have."""
        return source_stamp(self._path)

    def get_disambiguator(self) -> str:
        """Index that distinguishes functions with the same name."""
        return str(self._chosen.get_disambiguator())


CacheImpl._locator_classes.insert(0, _CoreLocator)


def cached(compile_: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """The decorator ``compile_(*arguments, cache=True, **options)``, in a temporary folder where Numba finds no other.

    Without any folder the code is compiled anew in each process.

    Examples
    --------
    >>> from numba import njit
    >>> from bsvr_pp._compiler import cached
    >>> cached(njit, error_model="numpy")(lambda x: 2 * x)(3)
    6
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

    Examples
    --------
    >>> from bsvr_pp._compiler import threads_for
    >>> with threads_for(100):
    ...     pass
    """
    return _one_thread() if n_rows <= _SMALL else nullcontext()

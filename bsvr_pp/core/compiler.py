"""Settings for all modules: compilation of the numerical core, its cache on disk, and the number of threads.

Numba copies the code of a `compiled` function into each caller, and optimises it again there. For a chain of large
functions this takes minutes. A function decorated by `separate` has one signature; its compiled callers contain only a
call by its address. Its first call compiles it, or loads it from the cache on disk.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache, update_wrapper
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock, Timer, current_thread, main_thread
from types import FrameType
from typing import cast

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import CacheImpl, _CacheLocator
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typing import Signature, signature
from numba.core.typing.typeof import typeof_impl
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

# Rows of a small problem. BLAS threads wait for one another. On two cores a search with 400 rows takes up to thrice as
# long with two threads, and below 2000 rows two are not faster.
_SMALL = 1000
_SOON = 0.1  # seconds after which compiled code has returned to Python
_MARKS = "@compiled", "@separate", "@register_jitable"  # of modules with compiled functions
_NOT_CODE = re.compile(r'^[ ]*(?:"""(?s:.*?)"""|#.*|)\n', re.MULTILINE)  # docstrings, lines of comments, empty lines
_PACKAGE = Path(__file__).parents[1]


@cache
def core_stamp() -> int:
    """Return a checksum of the code of modules with compiled functions, the key of the Numba and PyTensor caches."""
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(mark in text for mark in _MARKS) or path == Path(__file__):
            digest.update(_NOT_CODE.sub("", text).encode())
    return int.from_bytes(digest.digest()[:8])


class _CoreLocator:
    """Cache location of Numba with the stamp of the core: the time of a file misses changes in functions it calls."""

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> _CacheLocator | None:
        """Return the location; None for functions of other packages."""
        if not Path(py_file).is_relative_to(_PACKAGE):
            return None
        others = (locator for locator in CacheImpl._locator_classes if locator is not cls)
        chosen = next(filter(None, (locator.from_function(py_func, py_file) for locator in others)), None)
        if chosen is not None:
            chosen.get_source_stamp = core_stamp
        return chosen


CacheImpl._locator_classes.insert(0, _CoreLocator)


@contextmanager
def interruptible(*, wait: bool = False) -> Iterator[list[int]]:
    """Raise at the end of the block an ignored interruption, or with ``wait`` any; yield the signals."""
    # Python ignores exceptions in callbacks and during garbage collection; a search returns its best point.
    usual, came = signal.getsignal(signal.SIGINT), list[int]()
    if current_thread() is not main_thread() or not callable(usual):  # no signal, or not Python's handler
        yield came
        return

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if not wait:
            usual(number, frame)
            came.pop()  # nothing was raised

    try:
        signal.signal(signal.SIGINT, handle)
        yield came
    finally:
        signal.signal(signal.SIGINT, usual)
        if wait and came:
            signal.raise_signal(signal.SIGINT)
    if came and not wait:
        raise KeyboardInterrupt


class _Compiled(CPUDispatcher):  # type: ignore[misc]
    """A compiled function without interruptions: Numba does not handle them, and the process would end."""

    def __call__(self, *arguments: object) -> object:
        with interruptible(wait=True):
            return super().__call__(*arguments)


def _njit[F: Callable[..., object]](**options: object) -> Callable[[F], F]:
    """Return the decorator ``numba.njit(cache=True, **options)`` to a `_Compiled`; no cache without a folder for it."""

    def decorate(function: F) -> F:
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # Numba has found no folder that can be written
            _warn_of_no_folder()
            made = njit(**options)(function)
        made.__class__ = _Compiled
        return cast(F, made)

    return decorate


@cache
def _warn_of_no_folder() -> None:
    """Warn once in each process if package and home are read-only, as in containers and on clusters."""
    warnings.warn(
        "no folder for compiled code can be written: compiling takes minutes in each process; set NUMBA_CACHE_DIR and "
        "PYTENSOR_FLAGS=base_compiledir=... to folders that can be written",
        UserWarning,
        stacklevel=4,
    )


# Compiled code is kept on disk. Division by zero gives inf or NaN, as in NumPy, so nothing raises inside a sampler. The
# function that solves the problem reports a value that is not finite as a failure. Compiled code does not hold Python's
# lock, so that threads can solve several blocks at once.
compiled = _njit(error_model="numpy", nogil=True)

# For sums over short arrays without branches: their order may change, so several terms are added at once. A sum whose
# result compiled functions need is `separate`. Copies in callers would be optimised again, in another order, and the
# result would depend on what was compiled and what was loaded.
vectorized = _njit(error_model="numpy", nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

# Types of contiguous arrays, for signatures.
VECTOR, MATRIX = types.float64[::1], types.float64[:, ::1]


@cache
def _announce() -> None:
    """Print one line on a terminal or in a notebook when the first function was compiled and not loaded."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("bsvr_pp: compiling the numerical core (once, less than a minute)", file=sys.stderr, flush=True)


_LOADING = RLock()
_MADE = 50_000  # new objects before a garbage collection while graphs and code are made


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect garbage rarely in the block: making graphs and code makes many objects, and few of them are freed."""
    usual = gc.get_threshold()
    with interruptible():
        if not 0 < usual[0] < _MADE:  # off, or rare already, in an outer context or in another thread's
            yield
            return
        gc.set_threshold(_MADE, *usual[1:])
        try:
            yield
        finally:
            gc.set_threshold(*usual)


class _Separate:
    """A function that compiled code calls by its address, and Python as a compiled function."""

    def __init__(self, made: CPUDispatcher, result: types.Type, arguments: tuple[types.Type, ...]) -> None:
        self.compiled, function = made, made.py_func
        self.signature = signature(result, *arguments)
        update_wrapper(self, function)
        self._address = ctypes.c_void_p(0)
        self._load = ctypes.CFUNCTYPE(None)(self._load_for_caller)
        name = f"{function.__module__}.{function.__qualname__}"
        binding.add_symbol(f"{name}.address", ctypes.addressof(self._address))
        binding.add_symbol(f"{name}.load", cast(int, ctypes.cast(self._load, ctypes.c_void_p).value))
        self.caller = _caller(name, result, arguments)

    def load(self) -> None:
        """Compile the function, or load it from the cache; several threads may call this at once."""
        with interruptible(wait=True), _LOADING, rarely_collected():
            if not self._address.value:
                self._compile()

    def _compile(self) -> None:
        self.compiled.compile(self.signature)
        if self.compiled.stats.cache_misses:
            _announce()
        self.compiled.disable_compile()
        overload = self.compiled.overloads[self.signature.args]
        self._address.value = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)

    def _load_for_caller(self) -> None:
        try:
            self.load()
        except KeyboardInterrupt:  # inside other compiled code, which cannot raise it
            Timer(_SOON, _thread.interrupt_main).start()

    def __call__(self, *arguments: object) -> object:
        if not self._address.value:
            self.load()
        return self.compiled(*(_writeable(argument) for argument in arguments))

    def __reduce__(self) -> str:
        return self.compiled.py_func.__name__  # pickled and copied as a name of its module


def _writeable(argument: object) -> object:
    """Copy a read-only array, which would have another Numba type."""
    return argument.copy() if isinstance(argument, np.ndarray) and not argument.flags.writeable else argument


@typeof_impl.register(_Separate)
def _type(function: _Separate, context: object) -> types.Type:
    return cpu_target.typing_context.resolve_value_type(function.caller)


def _caller(name: str, result: types.Type, arguments: tuple[types.Type, ...]) -> Callable[..., object]:
    """Make the function that compiled code calls: by the address at ``name.address``, loaded if it is null."""

    def generate(context: CPUContext, builder: ir.IRBuilder, _: object, values: list[ir.Value]) -> ir.Value:
        module, pointer = builder.module, ir.IntType(8).as_pointer()
        place = module.globals.get(f"{name}.address") or ir.GlobalVariable(module, pointer, f"{name}.address")
        with builder.if_then(cgutils.is_null(builder, builder.load(place)), likely=False):
            load = cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), []), f"{name}.load")
            builder.call(load, [])
        convention = context.call_conv
        address = builder.bitcast(builder.load(place), convention.get_function_type(result, arguments).as_pointer())
        given = cgutils.unpack_tuple(builder, values[0])
        status, found = convention.call_function(builder, address, result, arguments, given)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return found

    def caller(context: object, *given: types.Type) -> tuple[Signature, Callable[..., ir.Value]] | None:
        matches = len(given) == len(arguments)  # otherwise Numba's error names the function
        return (signature(result, types.Tuple(arguments)), generate) if matches else None

    caller.__name__ = name
    return intrinsic(caller)


def separate[F: Callable[..., object]](
    result: types.Type,
    *arguments: types.Type,
    by: Callable[[Callable[..., object]], Callable[..., object]] = compiled,
) -> Callable[[F], F]:
    """Compile a function of the given Numba types, passed by position, once and separately from its callers."""

    def decorate(function: F) -> F:
        return cast(F, _Separate(cast(CPUDispatcher, by(function)), result, arguments))

    return decorate


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Return the libraries with own threads. Finding them takes 2 ms, and is repeated only after imports."""
    return ThreadpoolController()


class _OneThread:
    """One BLAS thread until the last user in the process ends: the number of threads changes last digits."""

    # Only the thread that set a limit can remove it, so one thread sets all limits. A forked process must start
    # another.

    def __init__(self) -> None:
        self.lock, self.depth, self.process = Lock(), 0, -1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        libraries = _libraries(len(sys.modules))
        with self.lock:
            if self.process != os.getpid():
                self.process, self.depth = os.getpid(), 0
                self.setter = ThreadPoolExecutor(1, "blas-threads")
            if self.depth == 0:
                self.limit = self.setter.submit(lambda: libraries.limit(limits=1).__enter__()).result()
            self.depth += 1
        try:
            with libraries.limit(limits=1):  # in case the thread has set its own limit
                yield
        finally:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    self.setter.submit(self.limit.__exit__, None, None, None).result()


_one_thread = _OneThread()


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """Use one BLAS thread in the block if its solves have few rows."""
    with interruptible(), _one_thread() if n_rows <= _SMALL else nullcontext():
        yield

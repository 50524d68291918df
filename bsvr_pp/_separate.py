"""Large functions of the numerical core, which are compiled once and called by their addresses.

Numba copies the code of a function into everything that calls it, and optimises it again there. For a chain of large
functions this takes minutes. A function decorated by `separate` has one signature; its compiled callers contain only a
call, and it is compiled, or loaded from the cache on disk, when it is called for the first time.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, event
from numba.core.registry import cpu_target
from numba.core.typing import signature
from numba.core.typing.typeof import typeof_impl
from numba.extending import intrinsic

from bsvr_pp._compiler import compiled

__all__ = ["separate"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Announcement(event.Listener):  # type: ignore[misc]
    """One line to the user when the first function of this package is compiled and not loaded from the cache."""

    def __init__(self) -> None:
        self._printed = False

    def on_start(self, event: Any) -> None:
        """Print the line on a terminal or in a notebook."""
        module = getattr(event.data.get("dispatcher"), "__module__", "") or ""
        if self._printed or not module.startswith("bsvr_pp."):
            return
        self._printed = True
        if sys.stderr.isatty() or "ipykernel" in sys.modules:
            print("bsvr_pp: compiling the numerical core (once, less than a minute)", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", _Announcement())
_LOADING = threading.RLock()


class _Separate:
    """A function that is called by its address from compiled code, and as a compiled function from Python."""

    def __init__(self, function: Callable[..., Any], result: Any, arguments: tuple[Any, ...]) -> None:
        self.compiled = compiled(function)
        self.signature = signature(result, *arguments)
        self.__wrapped__, self.__doc__, self.__name__ = function, function.__doc__, function.__name__
        self.__module__ = function.__module__
        self._address = ctypes.c_void_p(0)
        self._load = ctypes.CFUNCTYPE(None)(self._load_for_caller)
        name = f"{function.__module__}.{function.__qualname__}"
        binding.add_symbol(f"{name}.address", ctypes.addressof(self._address))
        binding.add_symbol(f"{name}.load", cast(int, ctypes.cast(self._load, ctypes.c_void_p).value))
        self.caller = _caller(name, result, arguments)

    def load(self) -> None:
        """Compile the function, or load it from the cache; chains that run in threads may ask for it at once."""
        with _LOADING:
            if not self._address.value:
                self._compile()

    def _compile(self) -> None:
        self.compiled.compile(self.signature)
        self.compiled.disable_compile()
        overload = self.compiled.overloads[self.signature.args]
        self._address.value = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)

    def _load_for_caller(self) -> None:
        try:
            self.load()
        except KeyboardInterrupt:  # compiled code cannot be interrupted here
            self.load()
            _thread.interrupt_main()

    def __call__(self, *arguments: Any) -> Any:
        if not self._address.value:
            self.load()
        return self.compiled(*(_writeable(argument) for argument in arguments))

    def __reduce__(self) -> str:
        return self.__name__  # pickled and copied as a name of its module


def _writeable(argument: Any) -> Any:
    """Copy a read-only array, for which Numba would have another type."""
    return argument.copy() if isinstance(argument, np.ndarray) and not argument.flags.writeable else argument


@typeof_impl.register(_Separate)
def _type(function: _Separate, context: Any) -> Any:
    return cpu_target.typing_context.resolve_value_type(function.caller)


def _caller(name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
    """Make what compiled code calls instead: the address at ``name.address``, which is loaded if it is null."""

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
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

    def caller(context: Any, *given: Any) -> Any:
        matches = len(given) == len(arguments)  # otherwise Numba's error names the function
        return (signature(result, types.Tuple(arguments)), generate) if matches else None

    caller.__name__ = name
    return intrinsic(caller)


def separate(result: Any, *arguments: Any) -> Callable[[_Function], _Function]:
    """Compile a function of the given Numba types, passed by position, once and separately from its callers."""

    def decorate(function: _Function) -> _Function:
        return cast(_Function, _Separate(function, result, arguments))

    return decorate

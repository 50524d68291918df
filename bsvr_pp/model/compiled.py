"""Compiled functions that any number of threads may call at once, those of JAX, and those of each model.

A function that PyTensor has compiled keeps its arguments and results in storage of its own, so that two threads must
not call it at the same time. Here each call takes an idle copy, and makes one if there is none: no thread waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm
import pytensor

__all__ = ["INTERPRETED", "Compiled", "functions_of", "in_jax"]

# Compiled functions of a model, with what the model had when they were made.
_FUNCTIONS: WeakKeyDictionary[pm.Model, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()

# PyTensor's mode without compilation: the work is in matrices, which NumPy does as fast as compiled code.
INTERPRETED = "FAST_COMPILE"


class Compiled:
    """A function from inputs to outputs of a PyTensor graph.

    Parameters
    ----------
    inputs, outputs : lists of variables
        As of `pytensor.function`; inputs that the outputs do not need are allowed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from bsvr_pp.model.compiled import Compiled
    >>> x = pt.dscalar()
    >>> Compiled([x], [2 * x])(1.5)
    [array(3.)]
    """

    __slots__ = ("_idle", "_original")

    def __init__(self, inputs: list[Any], outputs: list[Any]) -> None:
        self._original = pytensor.function(inputs, outputs, on_unused_input="ignore", mode=INTERPRETED)
        self._idle: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        """The outputs."""
        try:
            function = self._idle.pop()  # one step, which no other thread can divide
        except IndexError:
            function = self._original.copy()  # the original is never called, so that it can be copied at any time
        try:
            return function(*arguments)
        finally:
            self._idle.append(function)


def in_jax(inputs: list[Any], outputs: list[Any]) -> Callable[..., list[Any]]:
    """Compile a graph to a function of JAX, which can be part of others.

    Parameters
    ----------
    inputs, outputs : lists of variables
        As of `Compiled`.

    Raises
    ------
    ValueError
        If JAX cannot compute a part of the graph.
    """
    try:
        function = pytensor.function(inputs, outputs, on_unused_input="ignore", mode="JAX")
    except NotImplementedError as error:
        raise ValueError(f"device must be 'cpu' for this model, a part of which JAX cannot compute: {error}") from None
    compute: Callable[..., list[Any]] = function.vm.jit_fn
    return compute


def functions_of(model: pm.Model, structure: Any) -> dict[str, Any]:
    """Return the cache of compiled functions of a model; it is emptied if variables were added to the model."""
    known, functions = _FUNCTIONS.get(model, (None, {}))
    if known != structure:
        functions = {}
        _FUNCTIONS[model] = (structure, functions)
    return functions

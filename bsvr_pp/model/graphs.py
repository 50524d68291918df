"""Graphs of a model's variables: moved between copies of the model, made faster, and evaluated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip
from pytensor.tensor.elemwise import DimShuffle

__all__ = ["can_copy", "copying", "localize", "quick", "value_of"]

Array = NDArray[np.float64]


def localize(graph: Any, model: pm.Model) -> Any:
    """The graph with every named variable of another copy of the model replaced by this model's."""
    graph = pt.as_tensor_variable(graph)
    replace = {v: model[v.name] for v in ancestors([graph]) if v.name in model.named_vars and v is not model[v.name]}
    if not replace:
        return graph
    return graph_replace([graph], replace, strict=False)[0]


def quick(graph: Any) -> Any:
    """The graph with Clip, which PyMC's distances have and which is a Python call an element, as minimum of maximum."""
    replace = {}
    for variable in ancestors([graph]):
        if variable.owner is not None and isinstance(getattr(variable.owner.op, "scalar_op", None), Clip):
            x, low, high = variable.owner.inputs
            above = pt.maximum(x, low)
            bound = high.owner.inputs[0] if high.owner is not None and isinstance(high.owner.op, DimShuffle) else high
            unbounded = isinstance(bound, pt.Constant) and bool(np.all(bound.data == np.inf))
            replace[variable] = above if unbounded else pt.minimum(above, high)
    return graph_replace([graph], replace)[0] if replace else graph


def value_of(variable: Any) -> Array:
    """Value of data: an array, a constant or a pm.Data."""
    if isinstance(variable, np.ndarray):
        return variable
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value())
    value: Array = pt.as_tensor_variable(variable).eval()
    return value


def can_copy(model: pm.Model) -> bool:
    """Whether PyMC can copy the model: it has no parent and no initial values."""
    return model.parent is None and all(value is None for value in model.rvs_to_initial_values.values())


@contextmanager
def copying() -> Iterator[None]:
    """Copy a model without PyMC's warning about old GP objects: our record is copied too (`bsvr_pp.model.gp`)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*likely created by GP objects.*", UserWarning)
        yield

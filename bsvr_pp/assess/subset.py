"""A copy of a model with some of its rows, for cross-validation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.model.fgraph import clone_model
from pytensor.compile.sharedvalue import SharedVariable

from bsvr_pp.inference.new_rows import rowwise_data
from bsvr_pp.model.graphs import copying
from bsvr_pp.model.problem import ModelError, Problem

__all__ = ["Rows"]


class Rows:
    """A copy of a model whose rows can be chosen again and again; its functions are compiled once.

    Parameters
    ----------
    problem : Problem
        The model, whose inputs and targets, and whatever else has a row for each of them, are `pm.Data`.

    Raises
    ------
    ModelError
        If inputs or targets are not.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        for label, variable in (("X", problem.X), (problem.target, problem.y)):
            if not isinstance(variable, SharedVariable) or variable.name not in problem.data:
                raise ModelError(f"{label} must be pm.Data, so that the model can be fitted to some of its rows")
        values = {problem.X.name: problem.inputs, problem.y.name: problem.targets, **rowwise_data(problem)}
        self._values = {name: np.asarray(value, dtype=problem.data[name].dtype) for name, value in values.items()}
        with copying():
            copy = clone_model(model)
        copy._coords = dict(copy._coords)
        # PyMC's copy has other variables, which hold the same values.
        for variable in {*copy.named_vars.values(), *copy.dim_lengths.values()}:
            if isinstance(variable, SharedVariable):
                variable.container = deepcopy(variable.container)
        rowwise = [*self._values, problem.target, problem.prior.name]
        dims = [model.named_vars_to_dims.get(name, (None,))[0] for name in rowwise]
        self._dims = {dim: model.coords.get(dim) for dim in dims if dim is not None}
        self.model: pm.Model = copy

    def choose(self, rows: ArrayLike) -> pm.Model:
        """Return the copy, with the rows at these positions."""
        kept = np.asarray(rows, dtype=np.intp)
        for dim, labels in self._dims.items():
            self.model.set_dim(dim, kept.size, None if labels is None else [labels[i] for i in kept])
        for name, values in self._values.items():
            self.model[name].set_value(values[kept])
        return self.model

    def data(self, rows: ArrayLike) -> dict[str, NDArray[Any]]:
        """Values of the data with a row for each point, at these positions, by name."""
        kept = np.asarray(rows, dtype=np.intp)
        return {name: values[kept] for name, values in self._values.items()}

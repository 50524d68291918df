"""The noise of new rows, whose parameters may depend on data of each row.

If a parameter of the noise is computed from `pm.Data` with one row for each training point, such as ``C = exp(a + b *
x)``, it is computed in the same way from the data of new rows. A vector that is not computed from data says nothing
about new rows; it is recognised by its length, which does not follow that of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, Problem

__all__ = ["NoiseOfRows", "noise_of_rows", "rowwise_data"]

Array = NDArray[np.float64]
NoiseOfRows = Callable[[Point, NoiseModel], NoiseModel]


def noise_of_rows(problem: Problem, X: Array, data: Mapping[str, ArrayLike] | None = None) -> NoiseOfRows:
    """Return a function from hyperparameters, and the noise of the training points there, to the noise of new rows.

    ``data`` has the values at the new rows of other data of the model; ValueError if they do not fit or are missing.
    The function raises it if the noise has a value for each training point that is not computed from data.
    """
    known = rowwise_data(problem)
    given: dict[str, Array] = {}
    for name, value in (data or {}).items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise ValueError(f"data has no {name!r} of the model with a row for each training point; it has: {names}")
        given[name] = numbers(f"data[{name!r}]", value, (len(X), *np.shape(known[name])[1:])).astype(known[name].dtype)
    missing = [each.name for each in problem.noise_data if each.name is not None and each.name not in given]
    if missing:
        raise ValueError(
            f"the noise depends on {', '.join(missing)}, unknown at the new inputs: give its values there, "
            f"data={{{missing[0]!r}: ...}}"
        )
    unknown = any(each.name is None for each in problem.noise_data) or problem.loss.targets.refusal("residual")
    others = [] if unknown else problem.columns.data
    columns = [given.get(str(each.name), np.zeros((len(X), *each.shape))).reshape(len(X), -1) for each in others]
    matrix = np.concatenate([X[:, : problem.n_inputs], *columns], axis=1).astype(np.float64)
    # As many rows as there are training points would not tell whether a vector follows the data.
    longer = np.concatenate([matrix, matrix[: int(len(X) == problem.targets.size)]])

    def noise_of(point: Point, noise: NoiseModel) -> NoiseModel:
        if noise.n_points is None:
            return noise
        try:
            follows = not unknown and problem.noise_at(point, longer).n_points in (None, len(longer))
        except ValueError:  # shapes that do not broadcast
            follows = False
        if not follows:
            raise ValueError(
                "the noise has a value for each training point, which says nothing about new ones: give it numbers, or "
                "compute it from pm.Data"
            )
        return problem.noise_at(point, matrix)

    return noise_of


def rowwise_data(problem: Problem) -> dict[str, NDArray[Any]]:
    """Return the data of a model with one row for each training point, without inputs and targets."""
    inputs_and_targets = {getattr(problem.X, "name", None), getattr(problem.y, "name", None)}
    return {
        name: value
        for name, value in problem.data.items()
        if name not in inputs_and_targets and np.shape(value)[:1] == (problem.targets.size,)
    }

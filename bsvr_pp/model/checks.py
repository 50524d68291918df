"""Checks of the data of a model, and of hyperparameters that are given by the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.replace import graph_replace

from bsvr_pp._checks import check_size, check_spread
from bsvr_pp.model.targets import ModelError

if TYPE_CHECKING:
    from bsvr_pp.model.problem import Problem

__all__ = ["check_data", "checked"]

Array = NDArray[np.float64]


def check_data(problem: Problem) -> None:
    """Check shapes and values of inputs and targets."""
    name, inputs, targets = problem.target, problem.inputs, problem.targets
    n = inputs.shape[0]
    if targets.shape != (n,):
        raise ModelError(f"{name} must be a ({n},) array as X has {n} rows, got shape {targets.shape}")
    if not np.isfinite(targets).all() or not np.isfinite(inputs).all():
        raise ModelError(f"{name} and X must be finite")
    blocks = problem.blocks
    if blocks is not None:
        if problem.ends.kind != "exact":
            raise ModelError(f"{name} are intervals or classes, whose model has no blocks: use a part of the rows")
        if blocks.n != n:
            raise ModelError(f"blocks must be of the {n} rows of X, got those of {blocks.n} rows: cut the new X")
        if problem.loss.classification:
            raise ModelError(f"{name} are labels, whose model has no blocks: use a part of the rows")
        if any(p.ndim > 0 for p in problem.site_parameters):
            raise ModelError("the noise has a value for each training point, and blocks take noise of numbers")
    for label, values in (("X", inputs), (name, targets)):
        check_size(label, values)
        check_spread(label, values)
    if problem.loss.classification and not np.isin(targets, (-1.0, 1.0)).all():
        odd = targets[~np.isin(targets, (-1.0, 1.0))][0]
        raise ModelError(f"the observed {name} must be labels -1 and +1, got {odd:g}: drop what is not known")


def checked(problem: Problem, given: Mapping[str, Any] | None) -> dict[str, Array]:
    """Check hyperparameters, and convert them to arrays of the right shape inside their support.

    Parameters
    ----------
    problem : Problem
        The model.
    given : dict or None
        Values of some or all hyperparameters by name.

    Raises
    ------
    ValueError
        Naming the hyperparameter, the value and what is allowed.
    TypeError
        If they are not a mapping.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"hyperparameters must be a dict from names to values, got {given!r}")
    point: dict[str, Array] = {}
    for name, value in (given or {}).items():
        if name not in problem.hyperparameters:
            known = ", ".join(problem.hyperparameters) or "none"
            raise ValueError(f"hyperparameters has no variable {name!r} of the model; it has: {known}")
        variable, shape = problem.model[name], problem.shape_of(name)
        try:
            real = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
        except (TypeError, ValueError):
            raise ValueError(f"hyperparameter {name} must be numbers of shape {shape}, got {value!r}") from None
        if not np.isfinite(real).all():
            raise ValueError(f"hyperparameter {name} must be finite, got {value!r}")
        point[name] = array = real.astype(variable.dtype)
        if array.dtype.kind != "f" and (array != real).any():
            raise ValueError(f"hyperparameter {name} must be whole numbers, got {value!r}")
        transform = problem.model.rvs_to_transforms[variable]
        if transform is not None:
            with np.errstate(all="ignore"):
                inside = graph_replace(
                    [transform.forward(variable, *variable.owner.inputs)], {variable: pt.constant(array)}
                )
                if not np.isfinite(inside[0].eval()).all():
                    raise ValueError(f"hyperparameter {name} must lie inside the support of its prior, got {value!r}")
    return point

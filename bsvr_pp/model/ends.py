"""Reading of targets that are intervals or ordered classes: how their ends follow from observed values.

`Interval` and `Ordinal` are read, and `pm.Censored` of a noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.censored import CensoredRV
from pytensor.graph.traversal import ancestors

from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.intervals import IntervalRV, OrdinalRV, class_ends

if TYPE_CHECKING:
    from bsvr_pp.model.problem import Problem

__all__ = ["Ends", "cutpoints_at", "ends_of", "given_ends", "in_intervals"]

Array = NDArray[np.float64]


class Ends(NamedTuple):
    """What is known of targets, as it follows from observed values: the targets, or the ends of intervals.

    Attributes
    ----------
    kind : str
        "exact", "censored", "interval" or "ordinal".
    noise : random variable
        The variable whose noise and location the targets have.
    bounds : tuple of tensors
        Bounds or ends, or the cut points; none for exact targets.
    between : callable
        Maps observed values and bounds, as graphs, to the targets (n,), or the ends (n, 2).
    """

    kind: str
    noise: Any
    bounds: tuple[Any, ...]
    between: Callable[..., Any]

    def graph(self, y: Any) -> Any:
        """What is known of the targets, as a graph: the targets (n,), or the ends (n, 2) of their intervals."""
        return self.between(y, *self.bounds)


def ends_of(target: Any) -> Ends:
    """Return what is known of the targets of an observed random variable.

    Parameters
    ----------
    target : random variable
        A variable of a PyMC model.
    """
    op = target.owner.op
    if isinstance(op, CensoredRV):
        noise, *bounds = target.owner.inputs
        return Ends("censored", noise, tuple(bounds), _censored_ends)
    if isinstance(op, IntervalRV):
        return Ends("interval", target, tuple(op.dist_params(target.owner)[-2:]), _given_ends)
    if isinstance(op, OrdinalRV):
        return Ends("ordinal", target, tuple(op.dist_params(target.owner)[-1:]), class_ends)
    return Ends("exact", target, (), _exact)


def _exact(y: Any) -> Any:
    return y


def _censored_ends(y: Any, lower: Any, upper: Any) -> Any:
    low = pt.switch(y >= upper, upper, pt.switch(y <= lower, -np.inf, y))
    high = pt.switch(y <= lower, lower, pt.switch(y >= upper, np.inf, y))
    return pt.stack([low, high], axis=1)


def _given_ends(y: Any, lower: Any, upper: Any) -> Any:
    return pt.stack([pt.broadcast_to(end, y.shape).astype("float64") for end in (lower, upper)], axis=1)


def in_intervals(noise: NoiseModel, problem: Problem, point: Mapping[str, ArrayLike]) -> NoiseModel:
    """Return the noise with the ends of the targets at given hyperparameters; as it is if the targets are exact."""
    if problem.ends.kind == "exact":
        return noise

    def compile_() -> Any:
        y = pt.vector()
        return problem.compile([problem.ends.graph(y)], extra=[y])

    (ends,) = problem.function("ends", compile_)(*problem.arguments(point), problem.targets)
    return noise.between(ends[:, 0], ends[:, 1])


def given_ends(problem: Problem) -> Array | None:
    """Ends (n, 2) that are data; None for exact targets and classes, and for ends that depend on hyperparameters."""
    if problem.ends.kind in ("exact", "ordinal") or set(problem.variables) & set(ancestors(problem.ends.bounds)):
        return None

    def compile_() -> Any:
        y = pt.vector()
        return problem.compile_on([], [problem.ends.graph(y)], [y])

    (ends,) = problem.function("given ends", compile_)(*problem.given_data, problem.targets)
    return np.asarray(ends)


def cutpoints_at(problem: Problem, point: Mapping[str, ArrayLike]) -> Array | None:
    """Cut points of ordered classes at given hyperparameters; None for other targets."""
    if problem.ends.kind != "ordinal":
        return None
    compiled = problem.function("cutpoints", lambda: problem.compile(list(problem.ends.bounds)))
    return np.asarray(compiled(*problem.arguments(point))[0], dtype=np.float64)

"""Reading of targets that are intervals or ordered classes: how their ends follow from observed values.

`Interval` and `Ordinal` are read, and `pm.Censored` of a noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV

from bsvr_pp.model.intervals import IntervalRV, OrdinalRV, class_ends

__all__ = ["Ends", "ends_of"]


class Ends(NamedTuple):
    """What is known of targets, as it follows from observed values: the targets, or the ends of intervals.

    ``kind`` is "exact", "censored", "interval" or "ordinal", ``noise`` the variable whose noise and location the
    targets have. ``between`` maps observed values and the ``bounds`` (bounds or ends, or the cut points; none for exact
    targets), as graphs, to the targets (n,), or the ends (n, 2).
    """

    kind: str
    noise: Any
    bounds: tuple[Any, ...]
    between: Callable[..., Any]

    def graph(self, y: Any) -> Any:
        """What is known of the targets, as a graph: the targets (n,), or the ends (n, 2) of their intervals."""
        return self.between(y, *self.bounds)


def ends_of(target: Any) -> Ends:
    """Return what is known of the targets of an observed random variable."""
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

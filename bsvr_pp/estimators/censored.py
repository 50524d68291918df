"""Targets of estimators that are intervals: their forms, concordance, and survival functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.losses.noise import checked_ends
from bsvr_pp.model.row_kinds import representative

__all__ = ["concordance", "ends_of_targets", "logs_of_targets"]

Array = NDArray[np.float64]


def ends_of_targets(y: Any) -> Array | None:
    """Ends (n, 2) of targets that are intervals; None for an ordinary y.

    An (n, 2) array has lower and upper ends: equal ends are an exact target, and one may be infinite. A structured
    array has two fields: whether the event was observed, and its time or the time of censoring (as scikit-survival).
    """
    given = np.asarray(y)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or given.ndim != 1:
            raise ValueError(f"y must have the fields event and time, got {', '.join(given.dtype.names)}")
        event, time = (given[name] for name in given.dtype.names)
        if event.dtype.kind not in "biu" or not np.isin(event, (0, 1)).all():
            raise ValueError(f"the first field of y must say whether the event was observed, got {event.dtype}")
        lower = numbers("y", time, ("n",))
        return checked_ends(lower, np.where(event.astype(bool), lower, np.inf))
    if given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "fiu":
        ends = numbers("y", given, ("n", 2), infinite=True)
        return checked_ends(ends[:, 0], ends[:, 1])
    return None


def logs_of_targets(targets: Array, ends: Array | None) -> tuple[Array, Array | None]:
    """Logs of positive targets, and of the ends of intervals; a lower end below 0 is none."""
    if not (targets > 0).all():
        raise ValueError(f"y must be positive with log_targets=True, got {targets[~(targets > 0)][0]:g}")
    if ends is None:
        return np.log(targets), None
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(ends, 0.0))
    return representative(logs[:, 0], logs[:, 1]), logs


def concordance(ends: ArrayLike, predicted: ArrayLike) -> float:
    """Share of the pairs whose order is known that are predicted in this order; ties of predictions count one half.

    The order of two targets is known if the upper end of one is at most the lower end of the other (Harrell et al.
    1982 for right-censored targets). ValueError if no pair has a known order.
    """
    lower, upper = np.asarray(ends, dtype=np.float64).T
    f = np.asarray(predicted, dtype=np.float64)
    known, right = 0, 0.0
    for i in np.flatnonzero(np.isfinite(upper)):
        later = (lower >= upper[i]) & ~((lower == lower[i]) & (upper == upper[i]))
        known += int(later.sum())
        right += float(np.sum(f[later] > f[i]) + 0.5 * np.sum(f[later] == f[i]))
    if known == 0:
        raise ValueError(f"y must have targets whose order is known, got none among {lower.size}")
    return right / known

"""Climbing an evidence that may jump: L-BFGS-B with the exact gradient.

The exact Laplace evidence jumps where a point crosses the tube's rim: a search that is lost among jumps is begun anew
from the best point seen, until that does not help. No search goes far from where it begins, since solves are slow where
the hyperparameters make no sense.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

__all__ = ["Ascent", "climb"]

Array = NDArray[np.float64]

_BOUND = 30.0  # unconstrained values beyond ±30 (e³⁰ on a log scale) are not searched
_REACH = 3.0  # how far one search goes from the point where it begins
_SEARCHES = 30
_NO_ASCENT = 0.01  # nats a hundred rows; along the edge of a jump the search creeps by less
# A search creeps after so many evaluations without an ascent, two of them across jumps, that all lie near the best
# point: within so many times what counts as none. (Further down it may yet find a way around.) The next gets half.
_IDLE, _NEAR = 6, 20.0
# A line search across a jump does not end: it is cut short, and the search begun anew from the best point seen.
_OPTIONS: Any = {"maxiter": 500, "maxls": 5}


@dataclass(frozen=True, slots=True)
class Ascent:
    """Where an ascent ends.

    Attributes
    ----------
    x : (k,) array
        The best point seen.
    value : float
        The function there.
    converged : bool
        Whether the gradient vanished, or a search begun anew from the best point found nothing better.
    message : str
        What the optimiser says.
    n_evaluations : int
        Calls of the function.
    """

    x: Array
    value: float
    converged: bool
    message: str
    n_evaluations: int


class _LostError(Exception):
    """A search that creeps along the edge of a jump."""


def climb(
    evaluate: Callable[[Array], tuple[float, Array]], start: Array, n_rows: int, first_step: float = 1.0
) -> Ascent:
    """Maximise a function from one start.

    Parameters
    ----------
    evaluate : callable
        Value and gradient at a point; a value of -inf, with any gradient, where there is none.
    start : (k,) array
        Where to begin, logs as a rule: a search goes 3 from there, and the next again from its end, up to 30 from 0.
    n_rows : int
        Rows of the data: the jumps add up, so that an ascent of less than 0.01 for each hundred rows is none.
    first_step : float
        Length of the first step; below 1 the first search that finds no ascent is the last.

    Returns
    -------
    Ascent

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.inference.search import climb
    >>> climb(lambda x: (-float(x @ x), -2 * x), np.array([1.0, -8.0]), n_rows=10).x.round(4).tolist()
    [0.0, 0.0]
    """
    best_x, best, best_gradient, worst = start, -np.inf, np.zeros_like(start), 0.0
    n_evaluations, no_ascent = 0, _NO_ASCENT * max(1.0, n_rows / 100)
    idle, jumps, reached, patience = 0, 0, -np.inf, _IDLE  # since the last ascent, and how far that went

    def negative(x: Array, scale: float) -> tuple[float, Array]:
        nonlocal best_x, best, best_gradient, worst, n_evaluations, idle, jumps, reached
        if np.isfinite(best) and np.array_equal(x, best_x):  # where a search begins
            return -scale * best, -scale * best_gradient
        if idle >= patience and jumps >= 2:
            raise _LostError
        n_evaluations += 1
        value, gradient = evaluate(x)
        if abs(value - best) < _NEAR * no_ascent:
            # A short step on a smooth function rises by the mean of the slopes at both ends.
            idle += 1
            slopes = float(gradient @ (x - best_x)), float(best_gradient @ (x - best_x))
            missed = abs(value - best - 0.5 * sum(slopes))
            jumps += missed > 0.25 * (abs(slopes[0]) + abs(slopes[1])) + 1e-3 * no_ascent
        if value > reached + no_ascent:
            reached, idle, jumps = value, 0, 0
        if value > best:
            best_x, best, best_gradient = x.copy(), value, gradient
        if np.isfinite(value):
            worst = min(worst, value)
            return -scale * value, -scale * gradient
        # A failed solve lies below everything seen, by an amount that the line search can still work with.
        return scale * 1e3 * (1.0 + abs(worst)), np.zeros_like(x)

    if start.size == 0:
        return Ascent(start, evaluate(start)[0], True, "all hyperparameters are given", 1)
    negative(start, 1.0)
    message, converged = "", False
    least, most = np.minimum(-_BOUND, start - _REACH), np.maximum(_BOUND, start + _REACH)
    for _ in range(_SEARCHES):
        # The first step of L-BFGS-B is the gradient, cut at the bounds: without a scale it ends in a corner of them.
        scale = min(1.0, first_step / max(float(np.linalg.norm(best_gradient)), 1e-300))
        begun, low, high = best, np.maximum(best_x - _REACH, least), np.minimum(best_x + _REACH, most)
        idle, jumps, reached = 0, 0, best
        try:
            found = minimize(
                negative,
                best_x,
                args=(scale,),
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack([low, high]),
                options={**_OPTIONS, "gtol": 1e-5 * scale},
            )
            message, converged = str(found.message), bool(found.success)
        except _LostError:
            message, converged, patience = "lost among jumps", False, _IDLE // 2
        inside = ((best_x > low) | (low == least)) & ((best_x < high) | (high == most))
        if converged and inside.all():
            break
        if np.isfinite(begun) and best - begun < no_ascent and (converged or first_step < 1.0):
            message, converged = "no ascent from the best point (the evidence jumps there)", bool(np.isfinite(best))
            break
        first_step = 1.0 if converged else 0.1
    if ((best_x <= least) | (best_x >= most)).any():
        message += "; a hyperparameter ran to the edge of the search"
    return Ascent(best_x, best, converged and bool(np.isfinite(best)), message, n_evaluations)

"""Maximisation of an evidence that may be discontinuous: L-BFGS that tolerates discontinuities of the observed size.

The exact Laplace evidence jumps where a residual enters or leaves the curved part of the loss. A step may decrease the
value by about the deviation of the last steps from the mean of their slopes (Shi, Xie, Xuan & Nocedal 2022). For a
smooth evidence this is zero, and slopes bracket the step (Lewis & Overton 2013).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import threads_for

Evaluate = Callable[[Array], tuple[float, Array]]
Pairs = tuple[tuple[Array, Array], ...]

_BOUND = 30.0  # largest distance of unconstrained values (logs) from 0 and the start
_STEP = 1.0  # largest change of a value in one step: solves are slow for extreme hyperparameters
_STEPS, _TRIALS = 500, 6  # largest number of steps, and of evaluations for one step,
_SHRINKINGS = 15  # and of shorter steps where the function has no value
_NEAR = 1e-3  # distance from the end of its domain at which a value is held there
_PAIRS = 10  # number of steps that determine the curvature
_FLATTEST = 10.0  # smallest curvature of Newton's steps, in nats: a smaller one from a part of the rows is unreliable
_NO_ASCENT = 0.01  # smallest increase counted as progress, in nats per hundred rows
_IDLE = 5  # number of steps without an increase after which it returns to the best point
_RECENT = 5  # number of evaluations whose jumps determine the tolerance (twice the largest),
_LARGEST = 0.02  # which is at most this number of nats per row
_FLAT, _LEVEL = 1e-5, 2.2e-9  # stopping criteria: gradient, and relative change of the value
_RISES = 1e-2  # slope at `_BOUND` above which there is no maximum
_SETTLING = 3  # number of steps whose ascent is compared with the tolerance


@dataclass(frozen=True, slots=True)
class Ascent:
    """The best point (k,) of a maximisation, the value there, the reason of the end, and whether it is an optimum.

    ``curvature`` has the last steps and the changes of the gradient along them; a search can continue with it.
    """

    x: Array
    value: float
    converged: bool
    message: str
    n_evaluations: int
    curvature: Pairs = ()


def ascend(
    evaluate: Evaluate,
    start: Array,
    n_rows: int,
    first_step: float = 1.0,
    *,
    tolerance: float = 0.0,
    limit: float = np.inf,
    curvature: Pairs = (),
    second: Array | None = None,
    highest: Array | None = None,
) -> Ascent:
    """Maximise ``evaluate``, which returns value (-inf for a failure) and gradient, from a start (k,), usually logs.

    No step goes above ``highest`` (k,) if it is above the start. The search ends when three steps together ascend by
    less than ``tolerance``, or unfinished after ``limit`` evaluations. Jumps add up over ``n_rows``. ``curvature``
    comes from an earlier search, and ``second`` is approximately minus the second derivatives (k, k) near the start.
    """
    if start.size == 0:
        return Ascent(start, evaluate(start)[0], True, "all hyperparameters are given", 1)
    with threads_for(n_rows):
        search = _Search(evaluate, start, n_rows, tolerance, limit, curvature, second, highest)
        message, converged = search.run(first_step, tolerant=True)
        if not converged and np.isfinite(search.best.value) and search.n_evaluations < limit:
            message, converged = search.run(first_step, tolerant=False)
    x, gradient = search.best.x, search.best.gradient
    gone = np.maximum(x - np.maximum(start, 0.0), np.minimum(start, 0.0) - x) >= _BOUND - _STEP
    if (np.abs(gradient[gone]) > _RISES).any():
        converged = False
        message = (
            "a hyperparameter ran to the edge of the search, where the objective grows: its prior must be finite "
            "there, or integrate it out, with Integrated or NUTS"
        )
    elif ((x <= search.low) | (x >= search.high)).any():
        message += "; a hyperparameter ran to the edge of the search"
    return Ascent(x, search.best.value, converged, message, search.n_evaluations, tuple(search.pairs))


@dataclass(frozen=True, slots=True)
class _Point:
    x: Array
    value: float
    gradient: Array


class _Search:
    """A function, its best point so far, and its recent discontinuities."""

    def __init__(
        self,
        evaluate: Evaluate,
        start: Array,
        n_rows: int,
        tolerance: float,
        limit: float,
        curvature: Pairs,
        second: Array | None,
        highest: Array | None,
    ) -> None:
        self.evaluate, self.tolerance, self.limit = evaluate, tolerance, limit
        self.low, self.high = np.minimum(start, 0.0) - _BOUND, np.maximum(start, 0.0) + _BOUND
        if highest is not None:
            self.high = np.minimum(self.high, np.maximum(start, highest))
        self.no_ascent, self.largest = _NO_ASCENT * max(1.0, n_rows / 100), _LARGEST * n_rows
        self.jumps: deque[float] = deque(maxlen=_RECENT)
        self.pairs: deque[tuple[Array, Array]] = deque(curvature, maxlen=_PAIRS)
        self.inverse: Array | None = None
        if second is not None:  # each second derivative at least `_FLATTEST`
            values, vectors = np.linalg.eigh(0.5 * (second + second.T))
            self.inverse = (vectors / np.maximum(np.abs(values), _FLATTEST)) @ vectors.T
        self.n_evaluations, self.outside = 0, False  # whether the last steps met points without a value
        self.best = self.at(start)

    def at(self, x: Array) -> _Point:
        self.n_evaluations += 1
        return _Point(x, *self.evaluate(x))

    def run(self, first_step: float, tolerant: bool) -> tuple[str, bool]:
        """Maximise from the best point; return the reason of the end, and whether the point is converged."""
        here, pairs, reached, idle = self.best, self.pairs, self.best.value, 0
        changes: deque[float] = deque([np.inf], maxlen=_SETTLING)
        if not np.isfinite(here.value):
            return "no evidence at the start: give other initial values or a simpler kernel", False
        lost = "no ascent from the best point (the evidence jumps there)", not tolerant
        for _ in range(_STEPS):
            held = ((here.x <= self.low) & (here.gradient < 0)) | ((here.x >= self.high) & (here.gradient > 0))
            g = np.where(held, 0.0, here.gradient)
            if np.abs(g).max() <= _FLAT:
                return "the gradient vanishes", True
            direction = np.where(held, 0.0, _quasi_newton(g, pairs, self.inverse))
            if not ((pairs or self.inverse is not None) and g @ direction > 0):
                pairs.clear()
                direction = g * min(1.0, first_step / float(np.linalg.norm(g)))
            there = self._forward(here, direction, float(g @ direction), tolerant)
            if there is None and self.outside and self.hold_at_end(here, g):
                pairs.clear()
                continue
            if there is None:
                return lost
            step, turn = there.x - here.x, here.gradient - there.gradient
            if step @ turn > 1e-10 * np.linalg.norm(step) * np.linalg.norm(turn):
                pairs.append((step, turn))
            changes.append(abs(there.value - here.value))
            here = there
            if changes[-1] <= _LEVEL * max(1.0, abs(here.value)) or sum(changes) <= self.tolerance:
                return "the objective no longer changes", True
            if self.n_evaluations >= self.limit:
                return f"unfinished after {self.n_evaluations} evaluations", False
            idle += 1
            if self.best.value > reached + self.no_ascent:
                reached, idle = self.best.value, 0
            if idle >= _IDLE and max(self.jumps) > 0.05 * self.no_ascent:
                return lost
        return f"no end after {_STEPS} steps", False

    def hold_at_end(self, here: _Point, gradient: Array) -> bool:
        """Hold each x_i above which the function has no value, as at a hard bound; return whether there is one."""
        found = False
        for i in np.flatnonzero(gradient):
            up = np.sign(gradient[i])
            step = _NEAR * up * np.eye(here.x.size)[i]
            if not np.isfinite(self.at(here.x + step).value):
                end, found = (self.high if up > 0 else self.low), True
                end[i] = here.x[i]
        return found

    def _forward(self, here: _Point, direction: Array, slope: float, tolerant: bool) -> _Point | None:
        """Find a step that decreases the value by at most the tolerance and ends at a smaller slope."""
        slack = min(2.0 * max(self.jumps, default=0.0), self.largest) if tolerant else 0.0
        longest = _STEP / float(np.abs(direction).max())
        (low, at_low), (high, at_high), size = (0.0, slope), (np.inf, 0.0), min(1.0, longest)
        found = None
        finite = shrunk = 0
        while finite < _TRIALS and shrunk < _SHRINKINGS:
            there = self.at(np.clip(here.x + size * direction, self.low, self.high))
            rise = float(there.gradient @ direction)
            shrunk += not np.isfinite(there.value)
            if np.isfinite(there.value):
                finite += 1
                mean_slope = 0.5 * float((here.gradient + there.gradient) @ (there.x - here.x))
                self.jumps.append(abs(there.value - here.value - mean_slope))
                if there.value > self.best.value:
                    self.best = there
            if there.value >= here.value + 1e-4 * size * slope - slack:
                found = there
                if rise <= 0.9 * slope or size >= longest:
                    break
                low, at_low = size, rise
            else:
                high, at_high = size, rise if np.isfinite(there.value) else 0.0
            if high == np.inf:
                size = min(2.0 * size, longest)
            else:
                share = at_low / (at_low - at_high) if at_high < 0 else 0.5
                size = low + (high - low) * min(max(share, 0.1), 0.6)
        self.outside = shrunk > 0
        return found


def _quasi_newton(gradient: Array, pairs: deque[tuple[Array, Array]], inverse: Array | None) -> Array:
    """Multiply the gradient by the inverse curvature of the last steps (two loops of L-BFGS) and any known one."""
    direction, shares = gradient, []
    for step, turn in reversed(pairs):
        share = (step @ direction) / (step @ turn)
        direction = direction - share * turn
        shares.append(share)
    if inverse is not None:
        direction = inverse @ direction
    elif pairs:
        step, turn = pairs[-1]
        direction = direction * ((step @ turn) / (turn @ turn))
    for (step, turn), share in zip(pairs, reversed(shares), strict=True):
        direction = direction + step * (share - (turn @ direction) / (step @ turn))
    return direction

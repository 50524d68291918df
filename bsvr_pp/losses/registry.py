"""The losses, each written once, and their registry.

A loss is one function in plain arithmetic and one row of `LOSSES`. The function takes the parameters, which may be
numbers or arrays of NumPy, JAX or Numba, and returns the energy E = C·loss as a convex piecewise quadratic curve: four
tuples with the knots (ascending), the energy at the knots, the slope of each piece at its left knot (the first piece:
at its right one), and the curvatures of the two unbounded pieces. Between two knots the curvature follows from the
slopes. The table of the compiled core (`Pieces`) with its derivatives by the parameters is made from this function, as
are noise model, PyMC distribution, default priors, name in the estimators and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log1p
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from numba.np.unsafe.ndarray import to_fixed_tuple
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR, separate
from bsvr_pp.losses.pieces import PIECES, Pieces, empty, mean_d_energy, row_at, tilted_row
from bsvr_pp.losses.target_kinds import LABELS, NUMBERS, Labels, Numbers

__all__ = ["LOSSES", "NOISES", "PARAMETERS", "Loss", "Parameter", "curve"]

Array = NDArray[np.float64]
type Curve = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, Any]]

_STEP = 2.0**-100  # of a derivative by an imaginary step, exact up to rounding errors
_SMALLEST = 1e-290  # width of a curved piece, over the change of its slope, below which it counts as a kink


@register_jitable
def soft_insensitive_energy(C: Any, epsilon: Any, beta: Any) -> Curve:
    """Soft insensitive loss (SILF) of Chu, Keerthi & Ong 2004, (11): zero in the tube, then quadratic, then linear.

    With t = clip(|r| - (1-beta)·epsilon, 0, 2·beta·epsilon) the loss is t²/(4·beta·epsilon) + max(|r| -
    (1+beta)·epsilon, 0). beta = 0 is the ε-insensitive loss, beta = 1 Huber's, epsilon = 0 the absolute loss.
    """
    inner, outer = (1.0 - beta) * epsilon, (1.0 + beta) * epsilon
    top = 0.5 * C * (outer - inner)
    return (-outer, -inner, inner, outer), (top, 0.0, 0.0, top), (-C, -C, 0.0, 0.0, C), (0.0, 0.0)


@register_jitable
def epsilon_insensitive_energy(C: Any, epsilon: Any) -> Curve:
    """Vapnik's ε-insensitive loss max(|r| - epsilon, 0); the mode is the usual support vector regression."""
    return soft_insensitive_energy(C, epsilon, 0.0)


@register_jitable
def huber_energy(C: Any, epsilon: Any) -> Curve:
    """Huber's loss as in Chu, Keerthi & Ong 2004, (10): r²/(4·epsilon) up to 2·epsilon, |r| - epsilon beyond."""
    return soft_insensitive_energy(C, epsilon, 1.0)


@register_jitable
def absolute_energy(C: Any) -> Curve:
    """Absolute loss |r|: Laplace noise of scale 1/C."""
    return (0.0, 0.0), (0.0, 0.0), (-C, -C, C), (0.0, 0.0)


@register_jitable
def gaussian_energy(C: Any) -> Curve:
    """Squared loss ½r²: Gaussian noise of precision C = 1/σ²."""
    return (0.0,), (0.0,), (0.0, 0.0), (C, C)


@register_jitable
def pinball_energy(C: Any, quantile: Any) -> Curve:
    """Pinball loss of quantile regression: quantile·r above 0, (quantile - 1)·r below; f is that quantile of y.

    The noise is the asymmetric Laplace density q(1-q)C·exp(-C·loss); its mean is not 0. It is a tool to estimate a
    quantile; posteriors under it are not calibrated.
    """
    below = C * (quantile - 1.0)
    return (0.0, 0.0), (0.0, 0.0), (below, below, C * quantile), (0.0, 0.0)


@register_jitable
def hinge_energy(C: Any, y: Any) -> Curve:
    """Hinge loss max(0, 1 - y·f) of labels y = ±1 (Sollich 2002, (4)), normalised by 1 + exp(-2C)."""
    below = 0.5 * (y - 1.0) * C  # y·r = 1 - y·f in the residual r = y - f
    return (0.0, 0.0), (0.0, 0.0), (below, below, 0.5 * (y + 1.0) * C), (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of losses.

    ``allowed`` says in words which values are allowed, and ``holds`` elementwise. Its unit is the power ``power`` of
    the target's unit (of C see `Loss.degree`). ``prior`` is the median, in that power of the standard deviation of the
    target, and the standard deviation of the logarithm, of the default log-normal prior; None for a parameter that is
    chosen and not learned.
    """

    meaning: str
    allowed: str
    holds: Callable[[Array], NDArray[np.bool_]]
    power: int = 0
    prior: tuple[float, float] | None = None


PARAMETERS: dict[str, Parameter] = {
    "C": Parameter("Inverse noise scale, in one over the target's units", "> 0", lambda x: x > 0, -1, (5.0, 1.5)),
    "epsilon": Parameter("Half-width of the tube, in the target's units", ">= 0", lambda x: x >= 0, 1, (0.1, 1.0)),
    "beta": Parameter(
        "Smooth fraction of the tube, 0 (ε-insensitive) to 1 (Huber)",
        "between 0 and 1",
        lambda x: (x >= 0) & (x <= 1),
    ),
    "quantile": Parameter("Share of targets below f", "strictly between 0 and 1", lambda x: (x > 0) & (x < 1)),
}
# Of a loss that grows as r², C is a precision.
_PRECISION = Parameter("Precision, in one over the squared target's units", "> 0", lambda x: x > 0, -2, (12.0, 2.0))


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: its name, the names of its parameters, and the function that gives its energy.

    Attributes
    ----------
    name : str
        Key in `LOSSES`.
    parameters : tuple of str
        Names of the parameters, in the order of the arguments of ``energy`` and of `Pieces.d_energy`.
    energy : callable
        The energy as a curve, from the parameters, and from the labels of a loss of labels.
    degree : int
        Power of |r| with which the loss grows, 1 or 2: the unit of C is one over that power of the target's.
    targets : Numbers or Labels
        What the targets are, and what does not exist for them.

    Examples
    --------
    >>> from bsvr_pp.losses import LOSSES
    >>> LOSSES["gaussian"].parameters, LOSSES["gaussian"].degree
    (('C',), 2)
    """

    name: str
    parameters: tuple[str, ...]
    energy: Callable[..., Curve]
    degree: int = 1
    targets: Numbers | Labels = NUMBERS

    def parameter(self, name: str) -> Parameter:
        """Return the properties of a parameter of this loss."""
        return _PRECISION if name == "C" and self.degree == 2 else PARAMETERS[name]

    @property
    def table(self) -> Callable[[Array, Array], Pieces]:
        """The function ``(parameters (p, k), y (n,)) -> Pieces``; compiled code may call it too."""
        return _table(self)


def curve(loss: Loss, parameters: Sequence[Any], y: Any) -> tuple[Sequence[Any], list[Sequence[Any]]]:
    """The four tuples of a loss as one of 3m + 3 entries, and its derivatives by each parameter."""
    given = [*parameters, y] if not loss.targets.one_table else [*parameters]

    def at(values: list[Any]) -> Sequence[Any]:
        knots, value, slope, outer = loss.energy(*values)
        return *knots, *value, *slope, *outer

    steps = [[x + 1j * _STEP if i == q else x for i, x in enumerate(given)] for q in range(len(loss.parameters))]
    return at(given), [[entry.imag / _STEP for entry in at(values)] for values in steps]


@cache
def _table(loss: Loss) -> Callable[[Array, Array], Pieces]:
    """Make the function of `Loss.table`: arrays of NumPy in Python, row by row in compiled code."""
    energy, labels, count = loss.energy, not loss.targets.one_table, len(loss.parameters)
    arguments = count + int(labels)

    def table(parameters: Array, y: Array) -> Pieces:
        rows = y.shape[0] if labels else parameters.shape[1]
        values, derivatives = curve(loss, list(parameters), y)
        curves = [[np.broadcast_to(entry, rows) for entry in each] for each in (values, *derivatives)]
        rowwise = np.ascontiguousarray(np.swapaxes(curves, 1, 2))
        return _pieces(rowwise[0], rowwise[1:], y if labels else np.empty(0))

    def by_row(parameters: Array, y: Array) -> Pieces:
        rows = y.shape[0] if labels else parameters.shape[1]
        given = np.empty(arguments, dtype=np.complex128)
        values, derivatives = np.empty((rows, 0)), np.empty((count, rows, 0))
        for k in range(rows):
            for q in range(count):
                given[q] = parameters[q, k if parameters.shape[1] > 1 else 0]
            if labels:
                given[count] = y[k]
            for q in range(count):
                given[q] += 1j * _STEP
                knots, value, slope, outer = energy(*to_fixed_tuple(given, arguments))
                given[q] = given[q].real
                parts = np.array(knots + value + slope + outer)
                if k == 0 and q == 0:
                    values, derivatives = np.empty((rows, parts.size)), np.empty((count, rows, parts.size))
                for i in range(parts.size):
                    values[k, i], derivatives[q, k, i] = parts[i].real, parts[i].imag / _STEP
        return _pieces(values, derivatives, y if labels else np.empty(0))

    overload(table, strict=False)(lambda parameters, y: by_row)
    return table


@separate(PIECES, MATRIX, types.float64[:, :, ::1], VECTOR)
def _pieces(values: Array, derivatives: Array, labels: Array) -> Pieces:
    """Make the table from the curves of `curve`; ``labels`` is empty for a loss of residuals."""
    count, rows, m = derivatives.shape[0], values.shape[0], values.shape[1] // 3 - 1
    pieces, moments = empty(count, rows, m), np.empty((m + 1, 3))
    for k in range(rows):
        row = row_at(k, pieces)
        fill_row(values[k], row)
        for p in range(count):
            fill_derivative(derivatives[p, k], row, pieces.d_energy[p, k])
        if labels.shape[0] > 0:
            highest = label_energy(labels[k], row)
            pieces.log_normalizer[k] = log1p(exp(-highest))
            for p in range(count):
                d_highest = d_label_energy(labels[k], pieces.d_energy[p, k])
                pieces.d_log_normalizer[p, k] = -d_highest / (1.0 + exp(min(highest, 600.0)))
        else:
            pieces.log_normalizer[k] = tilted_row(0.0, 0.0, 0.0, row, moments)[0]
            for p in range(count):
                pieces.d_log_normalizer[p, k] = -mean_d_energy(moments, pieces.d_energy[p, k])
    return pieces


# Below, the entries of arrays are numbers, or arrays of JAX with one number for each row of the table.


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    return condition.__array_namespace__().where(condition, yes, no)


overload(_choose)(lambda condition, yes, no: lambda condition, yes, no: yes if condition else no)


@register_jitable
def fill_row(curve: Any, row: Any) -> None:
    """Fill knots, value, slope and curvature of a row of the table from its curve, 3m + 3 entries."""
    knots, value, slope, curvature = row
    m = value.shape[0]
    for j in range(m):
        knots[j], value[j] = curve[j], curve[m + j]
    for j in range(m + 1):
        slope[j] = curve[2 * m + j]
    curvature[0], curvature[m] = curve[3 * m + 1], curve[3 * m + 2]
    for j in range(1, m):
        width, rise = knots[j] - knots[j - 1], slope[j + 1] - slope[j]
        kink = width < _SMALLEST * rise
        knots[j] = _choose(kink, knots[j - 1], knots[j])
        curvature[j] = _choose(kink | (rise <= 0.0), 0.0, rise / _choose(width > 0.0, width, 1.0))


@register_jitable
def fill_derivative(d: Any, row: Any, d_energy: Any) -> None:
    """Fill ``d_energy`` (m + 1, 3) by a parameter from the derivative of the curve.

    On a bounded piece E = v + s·w·u + ½·Δ·w·u² with u = (r - knot)/w and the change Δ of the slope, so that its
    derivatives at fixed r have no division by the width w. They are exact for every width, 0 included.
    """
    knots, value, slope, curvature = row
    m = value.shape[0]
    for j in range(m + 1):
        anchor, c = max(j - 1, 0), d_energy[j]
        c[0] = d[m + anchor] - slope[j] * d[anchor]
        if 0 < j < m:
            width, rise = knots[j] - knots[j - 1], slope[j + 1] - slope[j]
            d_width, d_rise = d[j] - d[j - 1], d[2 * m + j + 1] - d[2 * m + j]
            c[1] = width * d[2 * m + j] - rise * d[anchor]
            c[2] = 0.5 * (width * d_rise - rise * d_width)
        else:
            c[1] = d[2 * m + j] - curvature[j] * d[anchor]
            c[2] = 0.5 * d[3 * m + (1 if j == 0 else 2)]


@register_jitable
def label_energy(label: Any, row: Any) -> Any:
    """The larger energy of the two labels where |f| = 1; the other is 0 (Sollich 2002, (4))."""
    _, value, slope, _ = row
    m = value.shape[0]
    return _choose(label > 0.0, value[m - 1] + 2.0 * slope[m], value[0] - 2.0 * slope[0])


@register_jitable
def d_label_energy(label: Any, d_energy: Any) -> Any:
    """The derivative of `label_energy` by a parameter."""
    low, high = d_energy[0], d_energy[d_energy.shape[0] - 1]
    at_low, at_high = low[0] - 2.0 * (low[1] - 2.0 * low[2]), high[0] + 2.0 * (high[1] + 2.0 * high[2])
    return _choose(label > 0.0, at_high, at_low)


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("soft_insensitive", ("C", "epsilon", "beta"), soft_insensitive_energy),
        Loss("epsilon_insensitive", ("C", "epsilon"), epsilon_insensitive_energy),
        Loss("huber", ("C", "epsilon"), huber_energy),
        Loss("absolute", ("C",), absolute_energy),
        Loss("gaussian", ("C",), gaussian_energy, degree=2),
        Loss("pinball", ("C", "quantile"), pinball_energy),
        Loss("hinge", ("C",), hinge_energy, targets=LABELS),
    )
}

# The losses of residuals: the noises that a default model, an estimator and the command line can have.
NOISES = tuple(name for name, loss in LOSSES.items() if loss.targets is NUMBERS)

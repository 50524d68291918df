"""The losses as tables of pieces, and their registry.

The soft insensitive loss (Chu, Keerthi & Ong 2004, eq. (11)) is the family: beta = 0 is the ε-insensitive loss,
beta = 1 Huber's, epsilon = 0 Laplace's. A new loss is one function that fills its table and one row of `LOSSES`; its
noise model, PyMC distribution, default priors, name in the estimators and on the command line follow from the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log1p

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._compiler import MATRIX, VECTOR, compiled
from bsvr_pp._separate import separate
from bsvr_pp.losses.pieces import PIECES, Pieces, empty, mean_d_energy, tilted_row

__all__ = ["LOSSES", "NOISES", "PARAMETERS", "Loss", "Parameter"]

Array = NDArray[np.float64]


@compiled
def _fill(row: Array, values: tuple[float, ...]) -> None:
    """Copy the values into the row; Numba's assignment of an array to a slice takes seconds to compile."""
    for i in range(len(values)):
        row[i] = values[i]


@compiled
def _normalize(pieces: Pieces) -> None:
    """Fill in the log normaliser of each row and its derivatives."""
    moments = np.empty((pieces.slope.shape[1], 3))
    for k in range(pieces.knots.shape[0]):
        pieces.log_normalizer[k] = tilted_row(
            0.0,
            0.0,
            0.0,
            pieces.knots[k],
            pieces.value[k],
            pieces.slope[k],
            pieces.curvature[k],
            moments,
        )[0]
        for p in range(pieces.d_energy.shape[0]):
            pieces.d_log_normalizer[p, k] = -mean_d_energy(moments, pieces.d_energy[p, k])


@separate(PIECES, MATRIX, VECTOR)
def soft_insensitive_table(parameters: Array, y: Array) -> Pieces:
    """Chu, Keerthi & Ong 2004, (11), in the coordinates of `Pieces`; parameters C, epsilon, beta."""
    pieces = empty(3, parameters.shape[1], 4)
    for k in range(parameters.shape[1]):
        C, epsilon, beta = parameters[0, k], parameters[1, k], parameters[2, k]
        inner, outer = (1.0 - beta) * epsilon, (1.0 + beta) * epsilon
        width = outer - inner
        if width < 1e-290 * C:
            outer, width = inner, 0.0
        _fill(pieces.knots[k], (-outer, -inner, inner, outer))
        _fill(pieces.value[k], (0.5 * C * width, 0.0, 0.0, 0.5 * C * width))
        _fill(pieces.slope[k], (-C, -C, 0.0, 0.0, C))
        curvature = C / width if width > 0.0 else 0.0
        _fill(pieces.curvature[k], (0.0, curvature, 0.0, curvature, 0.0))
        d_C, d_epsilon, d_beta = (
            pieces.d_energy[0, k],
            pieces.d_energy[1, k],
            pieces.d_energy[2, k],
        )
        _fill(d_C[0], (0.5 * width, -1.0, 0.0))
        _fill(d_C[1], (0.5 * width, -width, 0.5 * width))
        _fill(d_C[3], (0.0, 0.0, 0.5 * width))
        _fill(d_C[4], (0.5 * width, 1.0, 0.0))
        d_epsilon[0, 0] = -C
        _fill(d_epsilon[1], (-C, C * (1.0 + beta), C * -beta))
        _fill(d_epsilon[3], (0.0, -C * (1.0 - beta), -C * beta))
        d_epsilon[4, 0] = -C
        _fill(d_beta[1], (0.0, C * epsilon, -C * epsilon))
        _fill(d_beta[3], (0.0, C * epsilon, -C * epsilon))
    _normalize(pieces)
    return pieces


@compiled
def _with_beta(parameters: Array, y: Array, beta: float) -> Pieces:
    extended = np.full((3, parameters.shape[1]), beta)
    extended[:2] = parameters
    full = soft_insensitive_table(extended, y)
    return Pieces(
        full.knots,
        full.value,
        full.slope,
        full.curvature,
        full.d_energy[:2].copy(),
        full.log_normalizer,
        full.d_log_normalizer[:2].copy(),
        full.ends,
    )


@separate(PIECES, MATRIX, VECTOR)
def epsilon_insensitive_table(parameters: Array, y: Array) -> Pieces:
    """The soft insensitive table at beta = 0; parameters C, epsilon."""
    return _with_beta(parameters, y, 0.0)


@separate(PIECES, MATRIX, VECTOR)
def huber_table(parameters: Array, y: Array) -> Pieces:
    """The soft insensitive table at beta = 1 (Chu, Keerthi & Ong 2004, (10)); parameters C, epsilon."""
    return _with_beta(parameters, y, 1.0)


@separate(PIECES, MATRIX, VECTOR)
def laplace_table(parameters: Array, y: Array) -> Pieces:
    """Energy C·|r|; parameter C."""
    pieces = empty(1, parameters.shape[1], 2)
    for k in range(parameters.shape[1]):
        C = parameters[0, k]
        _fill(pieces.slope[k], (-C, -C, C))
        pieces.d_energy[0, k, 0, 1] = -1.0
        pieces.d_energy[0, k, 2, 1] = 1.0
    _normalize(pieces)
    return pieces


@separate(PIECES, MATRIX, VECTOR)
def pinball_table(parameters: Array, y: Array) -> Pieces:
    """Energy C·(quantile·r for r > 0, (quantile - 1)·r for r < 0); parameters C, quantile."""
    pieces = empty(2, parameters.shape[1], 2)
    for k in range(parameters.shape[1]):
        C, quantile = parameters[0, k], parameters[1, k]
        _fill(pieces.slope[k], (C * (quantile - 1.0), C * (quantile - 1.0), C * quantile))
        pieces.d_energy[0, k, 0, 1] = quantile - 1.0
        pieces.d_energy[0, k, 2, 1] = quantile
        pieces.d_energy[1, k, 0, 1] = C
        pieces.d_energy[1, k, 2, 1] = C
    _normalize(pieces)
    return pieces


@separate(PIECES, MATRIX, VECTOR)
def gaussian_table(parameters: Array, y: Array) -> Pieces:
    """Energy ½C·r²; parameter C, the precision."""
    pieces = empty(1, parameters.shape[1], 1)
    for k in range(parameters.shape[1]):
        pieces.curvature[k] = parameters[0, k]
        pieces.d_energy[0, k, :, 2] = 0.5
    _normalize(pieces)
    return pieces


@separate(PIECES, MATRIX, VECTOR)
def hinge_table(parameters: Array, y: Array) -> Pieces:
    """Energy C·max(0, y·r) for labels y = ±1 (y·r = 1 - y·f), normalised over the labels; parameter C."""
    n = y.shape[0]
    pieces = empty(1, n, 2)
    for i in range(n):
        C = parameters[0, i if parameters.shape[1] > 1 else 0]
        if y[i] > 0.0:
            pieces.slope[i, 2] = C
            pieces.d_energy[0, i, 2, 1] = 1.0
        else:
            pieces.slope[i, :2] = -C
            pieces.d_energy[0, i, 0, 1] = -1.0
        pieces.log_normalizer[i] = log1p(exp(-2.0 * C))
        pieces.d_log_normalizer[0, i] = -2.0 / (1.0 + exp(2.0 * min(C, 300.0)))
    return pieces


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of losses.

    Attributes
    ----------
    allowed : str
        What is allowed, in words.
    holds : callable
        Whether values are allowed, elementwise.
    power : int
        Its unit is that power of the target's unit; of C see `Loss.degree`.
    prior : (float, float), optional
        Median, in that power of the standard deviation of the target, and standard deviation of the logarithm, of the
        default log-normal prior; None for a parameter that is chosen and not learned.
    """

    allowed: str
    holds: Callable[[Array], NDArray[np.bool_]]
    power: int = 0
    prior: tuple[float, float] | None = None


PARAMETERS: dict[str, Parameter] = {
    "C": Parameter("> 0", lambda x: x > 0, -1, (5.0, 1.5)),
    "epsilon": Parameter(">= 0", lambda x: x >= 0, 1, (0.1, 1.0)),
    "beta": Parameter("between 0 and 1", lambda x: (x >= 0) & (x <= 1)),
    "quantile": Parameter("strictly between 0 and 1", lambda x: (x > 0) & (x < 1)),
}
# Of a loss that grows as r², C is a precision.
_PRECISION = Parameter("> 0", lambda x: x > 0, -2, (12.0, 2.0))


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: its name, the names of its parameters, and the function that makes its table.

    Attributes
    ----------
    name : str
        Key in `LOSSES`.
    parameters : tuple of str
        Names of the parameters, in the order of the first axis of the argument of ``table`` and of `Pieces.d_energy`.
    table : callable
        ``table(parameters (p, k), y (n,)) -> Pieces``, compiled by Numba.
    degree : int
        Power of |r| with which the loss grows, 1 or 2: the unit of C is one over that power of the target's.
    classification : bool
        Whether the targets are labels -1 and +1.
    """

    name: str
    parameters: tuple[str, ...]
    table: Callable[[Array, Array], Pieces]
    degree: int = 1
    classification: bool = False

    def parameter(self, name: str) -> Parameter:
        """Return the properties of a parameter of this loss."""
        return _PRECISION if name == "C" and self.degree == 2 else PARAMETERS[name]


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("soft_insensitive", ("C", "epsilon", "beta"), soft_insensitive_table),
        Loss("epsilon_insensitive", ("C", "epsilon"), epsilon_insensitive_table),
        Loss("huber", ("C", "epsilon"), huber_table),
        Loss("laplace", ("C",), laplace_table),
        Loss("gaussian", ("C",), gaussian_table, degree=2),
        Loss("pinball", ("C", "quantile"), pinball_table),
        Loss("hinge", ("C",), hinge_table, classification=True),
    )
}

# The losses of residuals: the noises that a default model, an estimator and the command line can have.
NOISES = tuple(name for name, loss in LOSSES.items() if not loss.classification)

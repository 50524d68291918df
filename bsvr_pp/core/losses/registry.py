"""The losses, each written once, and their registry.

A loss is one function in plain arithmetic and one row of `LOSSES`. The function takes the parameters, which may be
numbers or arrays of NumPy or Numba. It returns the energy E = C·loss as a convex piecewise quadratic curve. The four
tuples of the curve are the ascending knots, the energy there, the slope of each piece at its left knot, and the
curvatures of the unbounded pieces. The slope of the first piece is at its right knot; between two knots the curvature
follows from the slopes. The table of the compiled core (`Pieces`), the noise model and the PyMC distribution are made
from this function.

The targets of a loss are numbers, or the labels of Sollich (2002, section 2). The hinge Q(±1|f) is a loss like the
others. Its sum ν(f) = Q(+1|f) + Q(-1|f) <= 1 is the probability that a label is known. Labels are drawn and predicted
by P(y|f) = Q(y|f)/ν(f), (10). Each kind of targets has sentences for the user on what does not exist for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numba.extending import overload, register_jitable
from numba.np.unsafe.ndarray import to_fixed_tuple
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bsvr_pp.core.arrays import Array, Tensor, check_positive
from bsvr_pp.core.losses.pieces import Pieces, of_curves

type Value = complex | np.ndarray
type Parameters = Mapping[str, float | Array]
type Sample = Callable[[tuple[int, ...], np.random.Generator], Array]  # draws of a noise
type Curve = tuple[tuple[Value, ...], tuple[Value, ...], tuple[Value, ...], tuple[Value, Value]]

# Nodes for the standard normal; equal steps are exact up to rounding errors for smooth functions.
_Z = np.linspace(-8.0, 8.0, 801)
_WEIGHT = np.exp(-0.5 * _Z**2)
_WEIGHT /= _WEIGHT.sum()
_CHUNK = 1000
_STEP = 2.0**-100  # of a derivative by an imaginary step, exact up to rounding errors


@register_jitable
def soft_insensitive_energy(C: Value, epsilon: Value, beta: Value) -> Curve:
    """Soft insensitive loss (SILF) of Chu, Keerthi & Ong 2004, (11): zero in the tube, then quadratic, then linear.

    With t = clip(|r| - (1-beta)·epsilon, 0, 2·beta·epsilon) the loss is t²/(4·beta·epsilon) + max(|r| -
    (1+beta)·epsilon, 0). With beta = 0 it is the ε-insensitive loss, with beta = 1 Huber's, with epsilon = 0 the
    absolute loss.
    """
    inner, outer = (1.0 - beta) * epsilon, (1.0 + beta) * epsilon
    top = 0.5 * C * (outer - inner)
    return (-outer, -inner, inner, outer), (top, 0.0, 0.0, top), (-C, -C, 0.0, 0.0, C), (0.0, 0.0)


@register_jitable
def epsilon_insensitive_energy(C: Value, epsilon: Value) -> Curve:
    """Vapnik's ε-insensitive loss max(|r| - epsilon, 0); the mode is the usual support vector regression."""
    return soft_insensitive_energy(C, epsilon, 0.0)


@register_jitable
def huber_energy(C: Value, epsilon: Value) -> Curve:
    """Huber's loss as in Chu, Keerthi & Ong 2004, (10): r²/(4·epsilon) up to 2·epsilon, |r| - epsilon beyond."""
    return soft_insensitive_energy(C, epsilon, 1.0)


@register_jitable
def absolute_energy(C: Value) -> Curve:
    """Absolute loss |r|: Laplace noise of scale 1/C."""
    return (0.0, 0.0), (0.0, 0.0), (-C, -C, C), (0.0, 0.0)


@register_jitable
def gaussian_energy(C: Value) -> Curve:
    """Squared loss ½r²: Gaussian noise of precision C = 1/σ²."""
    return (0.0,), (0.0,), (0.0, 0.0), (C, C)


@register_jitable
def pinball_energy(C: Value, quantile: Value) -> Curve:
    """Pinball loss of quantile regression: quantile·r above 0, (quantile - 1)·r below; f is that quantile of y.

    The noise is the asymmetric Laplace density q(1-q)C·exp(-C·loss); its mean is not 0. It is a tool to estimate a
    quantile; posteriors under it are not calibrated.
    """
    below = C * (quantile - 1.0)
    return (0.0, 0.0), (0.0, 0.0), (below, below, C * quantile), (0.0, 0.0)


@register_jitable
def hinge_energy(C: Value, y: Value) -> Curve:
    """Hinge loss max(0, 1 - y·f) of labels y = ±1 (Sollich 2002, (4)), normalised by 1 + exp(-2C)."""
    below = 0.5 * (y - 1.0) * C  # y·r = 1 - y·f in the residual r = y - f
    return (0.0, 0.0), (0.0, 0.0), (below, below, 0.5 * (y + 1.0) * C), (0.0, 0.0)


@register_jitable
def known_label_energy(C: Value, reach: Value, y: Value) -> Curve:
    """Minus the log odds of a label y = ±1 that is known, C·[hinge(y·f) - hinge(-y·f)] (Sollich 2002, (10)).

    They are constant beyond |f| = 1 + reach: a label may be wrong everywhere.
    """
    C, level, far = C * y, 0.0 * C, 1.0 + reach
    top = C * (1.0 + far)
    knots = (y - far, y - far, y - 1.0, y - 1.0, y + 1.0, y + 1.0, y + far, y + far)
    values = (-top, -top, -2 * C, -2 * C, 2 * C, 2 * C, top, top)
    return knots, values, (level, level, C, C, 2 * C, 2 * C, C, C, level), (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of losses."""

    meaning: str
    allowed: str  # which values, in words
    holds: Callable[[Array | Tensor], NDArray[np.bool_] | Tensor]  # whether values are allowed, elementwise
    power: int = 0  # of the target's unit, its own unit (of C see `Loss.degree`)
    # Median (in this power of the target's standard deviation) and standard deviation of the logarithm of the default
    # log-normal prior. None for a parameter that is not learned.
    prior: tuple[float, float] | None = None


PARAMETERS: dict[str, Parameter] = {
    "C": Parameter("Inverse noise scale, in one over the target's units", "> 0", lambda x: x > 0, -1, (5.0, 1.5)),
    "epsilon": Parameter("Half-width of the tube, in the target's units", ">= 0", lambda x: x >= 0, 1, (0.1, 1.0)),
    "beta": Parameter(
        "Smooth fraction of the tube, 0 (ε-insensitive) to 1 (Huber)",
        "between 0 and 1",
        lambda x: (x >= 0) & (x <= 1),
    ),
    "reach": Parameter("Distance beyond |f| = 1 over which the log odds of a label grow", "> 0", lambda x: x > 0),
    "quantile": Parameter("Share of targets below f", "strictly between 0 and 1", lambda x: (x > 0) & (x < 1)),
}
# Of a loss that grows as r², C is a precision.
_PRECISION = Parameter("Precision, in one over the squared target's units", "> 0", lambda x: x > 0, -2, (12.0, 2.0))


# What does not exist for labels, in the words of the error.
NOT_OF_LABELS = {
    "residual": "{name} is a loss of labels and has no {asked}; use one of the regression losses",
    "blocks": "{target} are labels, whose model has no blocks: use KnownLabel, or a part of the rows",
    "normalised evidence": (
        "{free} would be chosen by the naive evidence of {target}, which is not normalised: use "
        "bp.classification.NormalisedEvidence() or bp.classification.Exchange(), give hyperparameters, or ask for "
        "evidence='naive'"
    ),
    "marginal": (
        "{target} are labels: without f their density is the naive evidence, which is not normalised over labels; use "
        "bp.classification.NormalisedEvidence() or bp.classification.Exchange()"
    ),
    "leave one out": (
        "model must have targets that are not labels: leave-one-out of the naive model is not a probability"
    ),
    "mode": "{name} has several modes, none of which is a support vector machine: use bp.MeanField(), or bp.SVMLabel",
}
_NOT_OF_KNOWN = ("residual", "mode")
_NOT_OF_SVM = [what for what in NOT_OF_LABELS if what != "mode"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Targets f + noise, whose residual y - f has the density of the loss; base class of all kinds of targets."""

    values: tuple[float, ...] = ()  # all numbers
    words: str = "numbers"
    one_table: bool = True  # the table of the loss does not depend on the target
    log_odds: bool = False  # of minus the log odds of the target
    refusals: ClassVar[Collection[str]] = ()  # what does not exist, of `NOT_OF_LABELS`

    def unlike(self, y: Array) -> Array:
        """Return the values in y that are not targets of this kind."""
        return y[~np.isin(y, self.values)] if self.values else y[:0]

    def residual(self, y: Array, f: Array) -> Array:
        """Return the argument of the loss."""
        return y - f

    def log_factor(self, energy: Array) -> Array:
        """Return the log of p(y|f), times its normaliser."""
        return -energy

    def draw(self, sample: Sample, parameters: Parameters, f: Array, rng: np.random.Generator) -> Array:
        """Draw one target for each f."""
        return f + sample(f.shape, rng)

    def refusal(self, what: str, /, **names: str) -> str:
        """Say why something does not exist for these targets; empty if it does. Without a sentence it is a KeyError."""
        sentence = NOT_OF_LABELS[what] if what in self.refusals or what not in NOT_OF_LABELS else ""
        return sentence.format(**names) if names else sentence


@dataclass(frozen=True, slots=True)
class Labels(Numbers):
    """Labels -1 and +1; the hinge is a loss of 1 - y·f."""

    values: tuple[float, ...] = (-1.0, 1.0)
    words: str = "labels -1 and +1"
    one_table: bool = False
    refusals: ClassVar[Collection[str]] = _NOT_OF_SVM

    def residual(self, y: Array, f: Array) -> Array:
        """Return the argument of the loss."""
        return 1.0 - y * f

    def draw(self, sample: Sample, parameters: Parameters, f: Array, rng: np.random.Generator) -> Array:
        """Draw one label for each f, given that it is known."""
        return np.where(rng.random(f.shape) < label_probability(f, **parameters), 1.0, -1.0)

    def masses(self, parameters: Parameters, mean: Array, variance: Array) -> Array:
        """Return the probability of each value (2, n) for Gaussian f."""
        above = average_probability(mean, variance, **parameters)
        return np.stack([1.0 - above, above])


@dataclass(frozen=True, slots=True)
class KnownLabels(Labels):
    """Labels -1 and +1 that are known, whose probabilities sum to one at each f."""

    log_odds: bool = True
    refusals: ClassVar[Collection[str]] = _NOT_OF_KNOWN

    def log_factor(self, energy: Array) -> Array:
        """Return the log of p(y|f)."""
        return -np.logaddexp(0.0, energy)


NUMBERS, LABELS, KNOWN_LABELS = Numbers(), Labels(), KnownLabels()


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss; its parameters have the order of the arguments of its energy and of `Pieces.d_energy`."""

    name: str
    parameters: tuple[str, ...]
    energy: Callable[..., Curve]  # a curve, from the parameters, and labels
    degree: int = 1  # power, 1 or 2, with which the loss grows; the unit of C is one over this power of the target's
    targets: Numbers = NUMBERS

    def parameter(self, name: str) -> Parameter:
        """Return the properties of a parameter of this loss."""
        return _PRECISION if name == "C" and self.degree == 2 else PARAMETERS[name]

    def documented(self, kind: str) -> str:
        """Return the parameters, values of this kind, as in a docstring."""
        each = ((name, self.parameter(name)) for name in self.parameters)
        return "".join(f"{name} : {kind}\n    {p.meaning}; {p.allowed}.\n" for name, p in each)

    @property
    def table(self) -> Callable[[Array, Array], Pieces]:
        """The function ``(parameters (p, k), y (n,)) -> Pieces``; compiled code may call it too."""
        return _table(self)


@cache
def _table(loss: Loss) -> Callable[[Array, Array], Pieces]:
    """Make the function of `Loss.table`: arrays of NumPy in Python, row by row in compiled code."""
    energy, labels, count = loss.energy, not loss.targets.one_table, len(loss.parameters)
    log_odds, arguments = loss.targets.log_odds, count + int(labels)

    def table(parameters: Array, y: Array) -> Pieces:
        given = np.array(np.broadcast_arrays(*parameters, y) if labels else parameters)
        moved = given + 1j * _STEP * np.eye(count, arguments)[:, :, None]  # (parameter that moves, argument, row)
        entries = itertools.chain(*energy(*moved.swapaxes(0, 1)))
        curves = np.stack(np.broadcast_arrays(*entries), axis=-1)
        return of_curves(
            np.ascontiguousarray(curves[0].real), curves.imag / _STEP, y if labels else np.empty(0), log_odds
        )

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
        return of_curves(values, derivatives, y if labels else np.empty(0), log_odds)

    overload(table, strict=False)(lambda parameters, y: by_row)
    return table


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

# The likelihoods that a model can have: the losses, and the label that is known, whose log odds are no convex energy.
LIKELIHOODS = LOSSES | {"known_label": Loss("known_label", ("C", "reach"), known_label_energy, targets=KNOWN_LABELS)}

# The losses of residuals: the noises that a default model, an estimator and the command line can have.
NOISES = tuple(name for name, loss in LOSSES.items() if loss.targets is NUMBERS)


def label_probability(f: ArrayLike, C: ArrayLike, reach: ArrayLike = np.inf) -> Array:
    """Return P(+1|f), the probability of the label +1 given that it is known (Sollich 2002, (10) and (11)).

    The log of P(+1|f)/P(-1|f) is 2C·f up to |f| = 1, C·(f + sgn f) beyond, and constant from |f| = 1 + reach on.
    """
    return np.asarray(expit(label_log_odds(f, C, reach)))


def label_log_odds(f: ArrayLike, C: ArrayLike, reach: ArrayLike = np.inf) -> Array:
    """Return the log odds of the label +1 given that it is known, as `label_probability`."""
    value, far = np.asarray(f, dtype=np.float64), 1.0 + np.asarray(reach, dtype=np.float64)
    slope = np.asarray(C, dtype=np.float64)
    return np.asarray(slope * (np.clip(value, -far, far) + np.clip(value, -1.0, 1.0)))


def average_probability(mean: ArrayLike, variance: ArrayLike, C: ArrayLike, reach: ArrayLike = np.inf) -> Array:
    """Return the average of P(+1|f) over a Gaussian posterior of f, elementwise (Sollich 2002, (33))."""
    m, v = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64))
    check_positive("variance", v, or_zero=True)
    flat, sd = np.ravel(m), np.sqrt(np.ravel(v))
    parts = [
        label_probability(flat[i : i + _CHUNK, None] + sd[i : i + _CHUNK, None] * _Z, C, reach) @ _WEIGHT
        for i in range(0, flat.size, _CHUNK)
    ]
    found = np.concatenate(parts) if parts else flat
    return np.reshape(np.minimum(found, 1.0), m.shape)  # the weights sum to 1 up to rounding

"""What the targets of a loss are: numbers, or the labels of Sollich (2002, section 2).

The hinge Q(±1|f) is a loss like the others. Summed over the two labels it gives ν(f) = Q(+1|f) + Q(-1|f) <= 1, the
probability that a label is known, and P(y|f) = Q(y|f)/ν(f), (10), by which labels are drawn and predicted. A loss
states with its kind of targets what does not exist for them, in a sentence for the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

__all__ = [
    "LABELS",
    "NOT_OF_LABELS",
    "NUMBERS",
    "Labels",
    "Numbers",
    "average_probability",
    "label_probability",
    "log_odds",
]

Array = NDArray[np.float64]

# Nodes for the standard normal; equal steps are exact up to rounding errors for smooth functions.
_Z = np.linspace(-8.0, 8.0, 801)
_WEIGHT = np.exp(-0.5 * _Z**2)
_WEIGHT /= _WEIGHT.sum()
_CHUNK = 1000

# What does not exist for labels, in the words of the error.
NOT_OF_LABELS = {
    "residual": "{name} is a loss of labels and has no {asked}; use one of the regression losses",
    "blocks": "{target} are labels, whose model has no blocks: use a part of the rows",
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
    "sensitivity": "the noise must be a loss of residuals, got {name}: use arviz.psense",
    "scales of the noise": ("model must have exact targets without weights: scales of the noise are learned from them"),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Targets f + noise, whose residual y - f has the density of the loss."""

    values: tuple[float, ...] = ()  # all numbers
    words: str = "numbers"
    one_table: bool = True  # the table of the loss does not depend on the target

    def unlike(self, y: Array) -> Array:
        """Those of y that are no targets of this kind."""
        return y[:0]

    def residual(self, y: Array, f: Array) -> Array:
        """Argument of the loss."""
        return y - f

    def draw(self, noise: Any, f: Array, rng: np.random.Generator) -> Array:
        """One target for each f."""
        return f + noise.sample(f.shape, rng)

    def refusal(self, what: str, /, **names: str) -> str:
        """Why something does not exist for these targets; empty if it does."""
        return ""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels -1 and +1, of which the hinge is a loss of 1 - y·f."""

    values: tuple[float, ...] = (-1.0, 1.0)
    words: str = "labels -1 and +1"
    one_table: bool = False

    def unlike(self, y: Array) -> Array:
        """Those of y that are no targets of this kind."""
        return y[~np.isin(y, self.values)]

    def residual(self, y: Array, f: Array) -> Array:
        """Argument of the loss."""
        return 1.0 - y * f

    def draw(self, noise: Any, f: Array, rng: np.random.Generator) -> Array:
        """One label for each f, given that it is known."""
        return np.where(rng.random(f.shape) < label_probability(f, noise.parameters["C"]), 1.0, -1.0)

    def masses(self, noise: Any, mean: Array, variance: Array) -> Array:
        """Probability of each value (2, n) for Gaussian f."""
        above = average_probability(mean, variance, float(noise.parameters["C"]))
        return np.stack([1.0 - above, above])

    def refusal(self, what: str, /, **names: str) -> str:
        """Why something does not exist for these targets; empty if it does."""
        sentence = NOT_OF_LABELS.get(what, "")
        return sentence.format(**names) if names else sentence


NUMBERS, LABELS = Numbers(), Labels()


def log_odds(f: ArrayLike, C: ArrayLike) -> Array:
    """Log of P(+1|f)/P(-1|f) at the latent value f: 2C·f up to |f| = 1, C·(f + sgn f) beyond (Sollich 2002, (11))."""
    value = np.asarray(f, dtype=np.float64)
    odds: Array = np.asarray(C, dtype=np.float64) * (value + np.clip(value, -1.0, 1.0))
    return odds


def label_probability(f: ArrayLike, C: ArrayLike) -> Array:
    """P(+1|f), the probability of the label +1 given that it is known (Sollich 2002, (10) and (11))."""
    return np.asarray(expit(log_odds(f, C)))


def average_probability(mean: ArrayLike, variance: ArrayLike, C: float) -> Array:
    """Average of P(+1|f) over a Gaussian posterior of f, elementwise (Sollich 2002, (33))."""
    m, v = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64))
    if not (v >= 0).all():
        raise ValueError(f"variance must be >= 0, got {v[~(v >= 0)].flat[0]}")
    flat, sd = np.ravel(m), np.sqrt(np.ravel(v))
    parts = [
        label_probability(flat[i : i + _CHUNK, None] + sd[i : i + _CHUNK, None] * _Z, C) @ _WEIGHT
        for i in range(0, flat.size, _CHUNK)
    ]
    found = np.concatenate(parts) if parts else flat
    return np.reshape(np.minimum(found, 1.0), m.shape)  # the weights sum to 1 up to rounding

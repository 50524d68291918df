"""The label of Sollich (2002, section 2): the probability that it is known, and that of its value if it is known.

The hinge Q(±1|f) itself is a loss like the others (`bsvr_pp.losses.hinge`). Summed over the two labels it gives ν(f) =
Q(+1|f) + Q(-1|f) <= 1, the probability that a label is known, and P(y|f) = Q(y|f)/ν(f). The classes below are log
likelihoods of f at n inputs. Annealing estimates the mean of the likelihood under the prior:

    Known        ∏ ν(f_i): its mean is the normaliser N(X) (28) MeanKnown    (1/n Σ ν(f_i))ⁿ: its mean is the normaliser
    N̂ (29); with another power, and for f at all possible
                 inputs, it is the normaliser (7) of data sets of that size
    Logistic     ∏ 1/(1 + exp(-C y_i f_i)): the Gaussian process classifier of figure 8, for comparison
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log1p

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bsvr_pp._checks import check_count, numbers
from bsvr_pp._compiler import compiled, vectorized

__all__ = ["Known", "Logistic", "MeanKnown", "average_probability", "label_probability", "log_odds"]

Array = NDArray[np.float64]

# Nodes for the standard normal; equal steps are exact up to rounding errors for smooth functions.
_Z = np.linspace(-8.0, 8.0, 801)
_WEIGHT = np.exp(-0.5 * _Z**2)
_WEIGHT /= _WEIGHT.sum()
_CHUNK = 1000
_BLOCK = 256  # number of factors of at most 2 that are multiplied before the logarithm is computed


def log_odds(f: ArrayLike, C: ArrayLike) -> Array:
    """Log of P(+1|f)/P(-1|f) at the latent value f: 2C·f up to |f| = 1, C·(f + sgn f) beyond (Sollich 2002, (11))."""
    value = np.asarray(f, dtype=np.float64)
    odds: Array = np.asarray(C, dtype=np.float64) * (value + np.clip(value, -1.0, 1.0))
    return odds


def label_probability(f: ArrayLike, C: ArrayLike) -> Array:
    """P(+1|f), the probability of the label +1 given that it is known (Sollich 2002, (10) and (11)).

    Examples
    --------
    >>> from bsvr_pp.losses.label import label_probability
    >>> label_probability([-2.0, 0.0, 0.5], 2.0).round(4).tolist()
    [0.0025, 0.5, 0.8808]
    """
    return np.asarray(expit(log_odds(f, C)))


def average_probability(mean: ArrayLike, variance: ArrayLike, C: float) -> Array:
    """Average of P(+1|f) over a Gaussian posterior of f, elementwise (Sollich 2002, (33)).

    Raises
    ------
    ValueError
        If a variance is negative.

    Examples
    --------
    >>> from bsvr_pp.losses.label import average_probability
    >>> average_probability([0.5, 0.5, 0.0], [0.0, 1.0, 4.0], 2.0).round(4).tolist()
    [0.8808, 0.6755, 0.5]
    """
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


@dataclass(frozen=True, slots=True)
class Known:
    """Log probability that all labels are known, Σ log ν(f_i) (Sollich 2002, (28)).

    Parameters
    ----------
    C : float or (n,) array
        Inverse noise scale, > 0.
    weight : (n,) array, optional
        Sample weights: how often each label counts.

    Raises
    ------
    ValueError
        If C is out of range, or of another length than f.

    Examples
    --------
    >>> from bsvr_pp.losses.label import Known
    >>> Known(2.0)([[1.0, 0.0]]).round(4).tolist()
    [-1.325]
    """

    C: ArrayLike
    weight: Array | None = None

    def __post_init__(self) -> None:
        _check_scale(self.C)

    def __call__(self, f: ArrayLike) -> Array:
        """Log factor of each row of f (draws, n)."""
        draws = _draws(f)
        C = _at_points(self.C, draws)
        out: Array = _log_known(draws, C) if self.weight is None else _log_known_each(draws, C) @ self.weight
        return out

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Derivatives by f, (draws, n), and by C, (draws,) for a number and (draws, n) for a vector."""
        draws = _draws(f)
        by_f, by_C, _ = _known_slopes(draws, _at_points(self.C, draws))
        if self.weight is not None:
            by_f, by_C = self.weight * by_f, self.weight * by_C
        return by_f, {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}


@dataclass(frozen=True, slots=True)
class MeanKnown:
    """Log of the mean probability that a label is known to the power of the number of labels (Sollich 2002, (29)).

    Parameters
    ----------
    C : float or (n,) array
        Inverse noise scale, > 0.
    count : int, optional
        Number of labels; n, or the sum of the weights, by default.
    weight : (n,) array, optional
        Sample weights: how often each label counts in the mean.

    Raises
    ------
    ValueError
        If C or count is out of range, or C of another length than f.

    Examples
    --------
    >>> from bsvr_pp.losses.label import Known, MeanKnown
    >>> bool(MeanKnown(2.0)([[0.3, 0.3]]) == Known(2.0)([[0.3, 0.3]]))
    True
    """

    C: ArrayLike
    count: int | None = None
    weight: Array | None = None

    def __post_init__(self) -> None:
        _check_scale(self.C)
        if self.count is not None:
            check_count("count", self.count, 1)

    def __call__(self, f: ArrayLike) -> Array:
        """Log factor of each row of f (draws, n)."""
        draws = _draws(f)
        total = np.average(_known(draws, _at_points(self.C, draws)), axis=1, weights=self.weight)
        return np.asarray(self._count(draws) * np.log(total))

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Derivatives by f, (draws, n), and by C, (draws,) for a number and (draws, n) for a vector."""
        draws = _draws(f)
        by_f, by_C, known = _known_slopes(draws, _at_points(self.C, draws))
        if self.weight is not None:
            known = known * self.weight
        share = self._count(draws) * known / known.sum(axis=1, keepdims=True)
        by_C *= share
        return share * by_f, {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}

    def _count(self, draws: Array) -> float:
        return self.count or (draws.shape[1] if self.weight is None else float(self.weight.sum()))


@dataclass(frozen=True, slots=True)
class Logistic:
    """Log likelihood of labels in logistic classification, -Σ log(1 + exp(-C·y·f)) (Sollich 2002, figure 8).

    Parameters
    ----------
    C : float or (n,) array
        Slope, > 0.
    y : (n,) array
        Labels -1 and +1.

    Raises
    ------
    ValueError
        If an argument is out of range, or of another length than f.

    Examples
    --------
    >>> from bsvr_pp.losses.label import Logistic
    >>> Logistic(1.0, [1, -1])([[0.0, 0.0]]).round(4).tolist()
    [-1.3863]
    """

    C: ArrayLike
    y: ArrayLike

    def __post_init__(self) -> None:
        _check_scale(self.C)
        labels = numbers("y", self.y, ("n",))
        if not np.isin(labels, (-1.0, 1.0)).all():
            raise ValueError(f"y must hold the labels -1 and +1, got {labels[~np.isin(labels, (-1.0, 1.0))][0]}")

    def _arrays(self, f: ArrayLike) -> tuple[Array, Array, Array]:
        draws, labels = _draws(f), np.asarray(self.y, dtype=np.float64)
        if labels.size != draws.shape[1]:
            raise ValueError(f"y must have {draws.shape[1]} values as f has points, got {labels.size}")
        return draws, labels, _at_points(self.C, draws)

    def __call__(self, f: ArrayLike) -> Array:
        """Log likelihood of each row of f (draws, n)."""
        draws, labels, C = self._arrays(f)
        out: Array = _log_logistic(draws, labels, C)
        return out

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Derivatives by f, (draws, n), and by C, (draws,) for a number and (draws, n) for a vector."""
        draws, labels, C = self._arrays(f)
        against = expit(-C * labels * draws)
        by_C = labels * draws * against
        return C * labels * against, {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}


def _check_scale(C: ArrayLike) -> None:
    scale = numbers("C", C)
    if scale.ndim > 1 or not (scale > 0).all():
        raise ValueError(f"C must be a number > 0 or an (n,) array of them, got {C!r}")


def _draws(f: ArrayLike) -> Array:
    return np.ascontiguousarray(f, dtype=np.float64)


def _at_points(C: ArrayLike, draws: Array) -> Array:
    """C of each point."""
    n, scale = draws.shape[1], np.ravel(np.asarray(C, dtype=np.float64))
    if scale.size not in (1, n):
        raise ValueError(f"C must be one number or {n} as f has points, got {scale.size}")
    return np.full(n, scale) if scale.size == 1 else scale


@vectorized
def _decay(x: float) -> float:
    """exp(-x) for x >= 0 with a relative error of 1e-14; without a branch, so that loops are vectorised."""
    t = -min(x, 40.0) / 128.0
    p = 1.0 + t / 12.0
    for k in range(11, 0, -1):
        p = 1.0 + t * p / k
    for _ in range(7):
        p *= p
    return p


@vectorized
def _log_logistic(f: Array, y: Array, C: Array) -> Array:
    out = np.empty(f.shape[0])
    for p in range(f.shape[0]):
        total = 0.0
        for start in range(0, f.shape[1], _BLOCK):
            below = 1.0
            for i in range(start, min(start + _BLOCK, f.shape[1])):
                margin = C[i] * y[i] * f[p, i]
                total += min(margin, 0.0)
                below *= 1.0 + _decay(abs(margin))
            total -= log(below)
        out[p] = total
    return out


@vectorized
def _log_known(f: Array, C: Array) -> Array:
    """Log ∏ ν(f_i): ν = exp(-C·(1 - b))·(1 + exp(-C·(a + b)))/(1 + exp(-2C)) with a = |f|, b = min(a, 1)."""
    normalizer = 0.0
    for i in range(C.shape[0]):
        normalizer += log1p(_decay(2.0 * C[i]))
    out = np.empty(f.shape[0])
    for p in range(f.shape[0]):
        total = -normalizer
        for start in range(0, f.shape[1], _BLOCK):
            above = 1.0
            for i in range(start, min(start + _BLOCK, f.shape[1])):
                size = abs(f[p, i])
                inside = min(size, 1.0)
                total -= C[i] * (1.0 - inside)
                above *= 1.0 + _decay(C[i] * (size + inside))
            total += log(above)
        out[p] = total
    return out


def _log_known_each(f: Array, C: Array) -> Array:
    """Log ν(f), elementwise."""
    size = np.abs(f)
    inside = np.minimum(size, 1.0)
    out: Array = np.log1p(np.exp(-C * (size + inside))) - C * (1.0 - inside) - np.log1p(np.exp(-2.0 * C))
    return out


@vectorized
def _known(f: Array, C: Array) -> Array:
    """ν(f), elementwise."""
    out = np.empty(f.shape)
    for i in range(f.shape[1]):
        normalizer = 1.0 + _decay(2.0 * C[i])
        for p in range(f.shape[0]):
            size = abs(f[p, i])
            inside = min(size, 1.0)
            out[p, i] = exp(-C[i] * (1.0 - inside)) * (1.0 + _decay(C[i] * (size + inside))) / normalizer
    return out


@compiled
def _known_slopes(f: Array, C: Array) -> tuple[Array, Array, Array]:
    """Derivatives of log ν by f and by C (at a kink from the right), and ν, elementwise."""
    by_f, by_C, known = np.empty(f.shape), np.empty(f.shape), np.empty(f.shape)
    for p in range(f.shape[0]):
        for i in range(f.shape[1]):
            c, size = C[i], abs(f[p, i])
            sign = 1.0 if f[p, i] >= 0.0 else -1.0
            inside = min(size, 1.0)
            other = exp(-c * (size + inside))
            weight = other / (1.0 + other)  # probability of the label with the opposite sign of f
            by_f[p, i] = c * sign * ((1.0 - weight if size < 1.0 else 0.0) - weight)
            shrink = 2.0 / (1.0 + exp(2.0 * min(c, 300.0)))  # d log κ/dC
            by_C[p, i] = shrink - (1.0 - weight) * (1.0 - inside) - weight * (1.0 + size)
            known[p, i] = exp(-c * (1.0 - inside)) * (1.0 + other) / (1.0 + exp(-2.0 * c))
    return by_f, by_C, known

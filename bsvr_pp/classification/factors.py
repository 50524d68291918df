"""The factors of Sollich's model whose mean under the prior is wanted, of the latent values at n inputs.

    hinge           Q(y|f) = ∏ κ exp(-C max(0, 1 - y_i f_i)), (4): its mean is the naive evidence (27)
    survival        ∏ ν(f_i), ν(f) = Q(+1|f) + Q(-1|f): its mean is the normaliser N(X) (28)
    mean_survival   (1/n Σ ν(f_i))ⁿ: its mean is the normaliser N̂ (29); to the power of another count, over the
                    places that inputs can take, it is the normaliser (7) of data sets of that size
    logistic        ∏ 1/(1 + exp(-C y_i f_i)): the Gaussian process classifier of figure 8

with κ = 1/(1 + exp(-2C)). One number a point or one for all, C may be an (n,) array.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log1p

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.compiler import compiled, vectorized

__all__ = ["HINGE", "LOGISTIC", "MEAN_SURVIVAL", "SURVIVAL", "Factors", "log_factor", "log_factors"]

Array = NDArray[np.float64]

HINGE, SURVIVAL, MEAN_SURVIVAL, LOGISTIC = range(4)
_KINDS = {"hinge": HINGE, "survival": SURVIVAL, "mean_survival": MEAN_SURVIVAL, "logistic": LOGISTIC}
# The logs of sums are taken of products of this many terms of at most 2.
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Factors:
    """A product of factors of f, one a point, or their mean to the power n.

    Parameters
    ----------
    kind : {"hinge", "survival", "mean_survival", "logistic"}
        As the module describes.
    C : float or (n,) array
        Inverse noise scale, > 0.
    y : (n,) array, optional
        Labels -1 and +1, for "hinge" and "logistic".
    count : int, optional
        Power of "mean_survival", n by default.

    Raises
    ------
    ValueError
        If an argument is out of range, or y is given where there is none.

    Examples
    --------
    >>> from bsvr_pp.classification.factors import Factors
    >>> Factors("hinge", 2.0, [1, -1]).log([[1.0, -1.0]]).round(4).tolist()
    [-0.0363]
    """

    kind: str
    C: ArrayLike
    y: ArrayLike | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {self.kind!r}")
        C = np.atleast_1d(np.asarray(self.C, dtype=np.float64))
        if C.ndim != 1 or not (np.isfinite(C) & (C > 0)).all():
            raise ValueError(f"C must be a finite number > 0 or an (n,) array of them, got {self.C!r}")
        if (self.y is not None) != self.labelled:
            raise ValueError(f"y must be {'given' if self.labelled else 'None'} for {self.kind}, got {self.y!r}")
        if self.count is not None and (self.kind != "mean_survival" or self.count < 1):
            raise ValueError(f"count must be at least 1, and None but for mean_survival, got {self.count!r}")
        labels = np.ones(C.size) if self.y is None else np.asarray(self.y, dtype=np.float64)
        if labels.ndim != 1 or not np.isin(labels, (-1.0, 1.0)).all():
            raise ValueError(f"y must be an (n,) array of the labels -1 and +1, got {self.y!r}")
        if C.size not in (1, labels.size):
            raise ValueError(f"C must be one number or {labels.size} as y has labels, got {C.size}")

    @property
    def labelled(self) -> bool:
        """Whether the factors depend on labels."""
        return self.kind in ("hinge", "logistic")

    def arrays(self, n: int) -> tuple[int, Array, Array]:
        """Code of the kind, labels and C of n points, as the compiled functions take them.

        In the place of labels "mean_survival" has its power divided by n.

        Raises
        ------
        ValueError
            If y or C are of another length than n.
        """
        power = 1.0 if self.count is None else self.count / n
        labels = np.full(n, power) if self.y is None else np.asarray(self.y, dtype=np.float64)
        C = np.atleast_1d(np.asarray(self.C, dtype=np.float64))
        for name, array in (("y", labels), ("C", C)):
            if array.size not in (1, n) or (name == "y" and array.size != n):
                raise ValueError(f"{name} must have {n} values as K has rows, got {array.size}")
        return _KINDS[self.kind], np.ascontiguousarray(labels), np.broadcast_to(C, (n,)).copy()

    def log(self, f: ArrayLike) -> Array:
        """Log of the product for each row of f (draws, n)."""
        draws = np.ascontiguousarray(f, dtype=np.float64)
        return log_factors(draws, *self.arrays(draws.shape[1]))

    def slopes(self, f: ArrayLike) -> tuple[Array, Array]:
        """Derivatives of the log by f and by C, (draws, n) each.

        Where C is one number the derivative by it is the sum over the points.
        """
        draws = np.ascontiguousarray(f, dtype=np.float64)
        return log_factor_slopes(draws, *self.arrays(draws.shape[1]))


@compiled
def _survival_terms(f: float, C: float) -> tuple[float, float]:
    """ν(f)/κ = exp(a)·(1 + b): the larger of its two terms and the other relative to it, b <= 1."""
    size = abs(f)
    if size <= 1.0:
        return -C * (1.0 - size), exp(-2.0 * C * size)
    return 0.0, exp(-C * (1.0 + size))


@vectorized
def _decay(x: float) -> float:
    """exp(-x) for x >= 0, to 1e-14 of it and 1e-17 beside 1, without a branch: many at once."""
    t = -min(x, 40.0) / 128.0
    p = 1.0 + t / 12.0
    for k in range(11, 0, -1):
        p = 1.0 + t * p / k
    for _ in range(7):
        p *= p
    return p


@vectorized
def _log_hinge(f: Array, y: Array, C: Array) -> float:
    total = 0.0
    for i in range(f.shape[0]):
        total -= C[i] * max(1.0 - y[i] * f[i], 0.0)
    return total


@vectorized
def _log_logistic(f: Array, y: Array, C: Array) -> float:
    total = 0.0
    for start in range(0, f.shape[0], _BLOCK):
        below = 1.0
        for i in range(start, min(start + _BLOCK, f.shape[0])):
            margin = C[i] * y[i] * f[i]
            total += min(margin, 0.0)
            below *= 1.0 + _decay(abs(margin))
        total -= log(below)
    return total


@vectorized
def _log_survival(f: Array, C: Array) -> float:
    """Log ∏ ν(f_i)/κ."""
    total = 0.0
    for start in range(0, f.shape[0], _BLOCK):
        above = 1.0
        for i in range(start, min(start + _BLOCK, f.shape[0])):
            size = abs(f[i])
            inside = min(size, 1.0)
            total -= C[i] * (1.0 - inside)
            above *= 1.0 + _decay(C[i] * (size + inside))
        total += log(above)
    return total


@compiled
def _log_normalizers(C: Array) -> float:
    """Log ∏ κ."""
    total, c, term = 0.0, -1.0, 0.0
    for i in range(C.shape[0]):
        if C[i] != c:
            c, term = C[i], log1p(exp(-2.0 * C[i]))
        total -= term
    return total


@compiled
def log_factor(f: Array, kind: int, y: Array, C: Array) -> float:
    """Log of the product of the factors at one f (n,)."""
    if kind == HINGE:
        return _log_hinge(f, y, C) + _log_normalizers(C)
    if kind == LOGISTIC:
        return _log_logistic(f, y, C)
    if kind == SURVIVAL:
        return _log_survival(f, C) + _log_normalizers(C)
    n, total = f.shape[0], 0.0
    c, spread = -1.0, 0.0
    for i in range(n):
        if C[i] != c:
            c, spread = C[i], exp(-2.0 * C[i])
        level, other = _survival_terms(f[i], c)
        total += exp(level) * (1.0 + other) / (1.0 + spread)
    return y[0] * n * log(total / n)


@compiled
def log_factors(f: Array, kind: int, y: Array, C: Array) -> Array:
    """`log_factor` of each row of f."""
    out = np.empty(f.shape[0])
    for p in range(f.shape[0]):
        out[p] = log_factor(f[p], kind, y, C)
    return out


@compiled
def log_factor_slopes(f: Array, kind: int, y: Array, C: Array) -> tuple[Array, Array]:
    """Derivatives of `log_factor` by each f_i and each C_i, for each row of f (at a kink those from the right)."""
    n = f.shape[1]
    by_f, by_C = np.empty(f.shape), np.empty(f.shape)
    for p in range(f.shape[0]):
        share = 0.0
        for i in range(n):
            x, c = f[p, i], C[i]
            shrink = 2.0 / (1.0 + exp(2.0 * min(c, 300.0)))  # d log κ/dC
            if kind == HINGE:
                inside = y[i] * x < 1.0
                by_f[p, i] = c * y[i] if inside else 0.0
                by_C[p, i] = shrink - (1.0 - y[i] * x if inside else 0.0)
            elif kind == LOGISTIC:
                against = 1.0 / (1.0 + exp(min(c * y[i] * x, 700.0)))
                by_f[p, i] = c * y[i] * against
                by_C[p, i] = y[i] * x * against
            else:
                level, other = _survival_terms(x, c)
                sign = 1.0 if x >= 0.0 else -1.0
                size, weight = abs(x), other / (1.0 + other)  # share of the label against the sign of f
                by_f[p, i] = c * sign * ((1.0 - weight if size < 1.0 else 0.0) - weight)
                by_C[p, i] = shrink - (1.0 - weight) * max(1.0 - size, 0.0) - weight * (1.0 + size)
                if kind == MEAN_SURVIVAL:
                    value = exp(level - log1p(exp(-2.0 * c))) * (1.0 + other)
                    share += value
                    by_f[p, i] *= n * value
                    by_C[p, i] *= n * value
        if kind == MEAN_SURVIVAL:
            by_f[p] *= y[0] / share
            by_C[p] *= y[0] / share
    return by_f, by_C

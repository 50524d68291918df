"""The normalisers of Sollich (2002, section 5), and gradients of log evidences as averages over draws.

Let log M = log ∫ N(f; 0, K) q(f) df, with averages over the density under the integral, f̂ = K⁻¹f and g = d log q/df.
Then d log M/dC = <d log q/dC> and d log M/dK = ½(<f̂ f̂ᵀ> - K⁻¹) = ½ <g f̂ᵀ>. The last form follows by partial
integration. Its average has a smaller error, because g is bounded by C.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from bsvr_pp.core.approximations import smc
from bsvr_pp.core.approximations.posterior import Gradient
from bsvr_pp.core.arrays import Array, numbers
from bsvr_pp.core.compiler import vectorized
from bsvr_pp.core.covariance.covariance import Covariance, as_covariance
from bsvr_pp.core.losses.pieces import decay

EvidenceKind = Literal["naive", "conditional", "joint"]

_BLOCK = 256  # number of factors of at most 2 that are multiplied before the logarithm is computed
_MOVES = 4  # moves of each particle: at each power of a new annealing, after each change of the hyperparameters
_EFFICIENCY = 0.8
_RENEWAL = 10  # number of changes of the hyperparameters after which the particles are annealed again,
_DRIFT = 0.4  # or change of log C


@dataclass(frozen=True, slots=True)
class Known:
    """Log probability that all labels are known, Σ log ν(f_i), (28); C and weight are numbers or (n,) arrays."""

    C: ArrayLike
    weight: ArrayLike = 1.0

    def __post_init__(self) -> None:
        scale = numbers("C", self.C)
        if scale.ndim > 1 or not (scale > 0).all():
            raise ValueError(f"C must be a number > 0 or an (n,) array of them, got {self.C!r}")

    def __call__(self, f: ArrayLike) -> Array:
        """Log factor of each row of f (draws, n)."""
        draws, C, weight = self._at_points(f)
        return _log_known(draws, C) if (weight == 1).all() else _log_known_each(draws, C) @ weight

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Return derivatives by f (right-hand at a kink), (draws, n), and by C, (draws,) or for a vector (draws, n)."""
        draws, C, weight = self._at_points(f)
        size, share = np.abs(draws), self._share(draws, C, weight)
        inside = np.minimum(size, 1.0)
        other = expit(-C * (size + inside))  # probability of the label with the opposite sign of f
        by_f = np.where(draws >= 0.0, C, -C) * (np.where(size < 1.0, 1.0 - other, 0.0) - other)
        shrink = 2.0 * expit(-2.0 * C)  # d log κ/dC
        by_C = share * (shrink - (1.0 - other) * (1.0 - inside) - other * (1.0 + size))
        return share * by_f, {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}

    def _at_points(self, f: ArrayLike) -> tuple[Array, Array, Array]:
        """Return draws (draws, n), and C and the weight of each point (n,)."""
        draws, scale = np.ascontiguousarray(f, dtype=np.float64), np.ravel(np.asarray(self.C, dtype=np.float64))
        n = draws.shape[1]
        if scale.size not in (1, n):
            raise ValueError(f"C must be one number or {n} as f has points, got {scale.size}")
        return draws, np.full(n, scale) if scale.size == 1 else scale, np.broadcast_to(self.weight, n)

    def _share(self, draws: Array, C: Array, weight: Array) -> Array:
        """Return the factor between the slopes of log ν and of this function."""
        return weight


@dataclass(frozen=True, slots=True)
class MeanKnown(Known):
    """Log of the mean probability that a label is known to the power of the number of labels (Sollich 2002, (29))."""

    def __call__(self, f: ArrayLike) -> Array:
        """Log factor of each row of f (draws, n)."""
        draws, C, weight = self._at_points(f)
        total = np.average(np.exp(_log_known_each(draws, C)), axis=1, weights=weight)
        return np.asarray(weight.sum() * np.log(total))

    def _share(self, draws: Array, C: Array, weight: Array) -> Array:
        known = weight * np.exp(_log_known_each(draws, C))
        return np.asarray(weight.sum() * known / known.sum(axis=1, keepdims=True))


# The naive evidence over the prior mean of a factor, if any, is the evidence of a kind.
KINDS: dict[str, type[Known] | None] = {"naive": None, "conditional": Known, "joint": MeanKnown}


def averaged_gradient(K: ArrayLike | Covariance, likelihood: Known, f: ArrayLike) -> Gradient:
    """Return the gradient of log ∫ N(f; 0, K) q(f) df from draws (draws, n) of the density under the integral."""
    covariance = as_covariance(K)
    draws = numbers("f", f, ("draws", covariance.size))
    by_f, by_parameter = likelihood.slopes(draws)
    cross = covariance.solve(draws.T @ by_f / len(draws))  # <f̂ gᵀ> = K⁻¹<f gᵀ>
    parameters: dict[str, float | Array] = {name: slopes.mean(axis=0) for name, slopes in by_parameter.items()}
    return Gradient(0.25 * (cross + cross.T), by_f.mean(axis=0), parameters)


class NormaliserCloud:
    """Whitened particles of the density under a normaliser, updated along a stochastic optimisation."""

    def __init__(self, factor: type[Known], particles: int, rng: np.random.Generator, weight: ArrayLike = 1.0) -> None:
        self.factor, self.particles, self.rng, self.weight = factor, particles, rng, weight
        # Slices mix slowly for large C, and with outdated particles C could grow without limit.
        self._white: Array = np.empty((0, 0))
        self._log_C, self._age = np.inf, 0

    def gradient(self, K: Covariance, C: float) -> Gradient:
        """Compute the gradient of the log normaliser at the next hyperparameters."""
        known = self.factor(C, weight=self.weight)
        path = smc.Path(known, np.zeros(K.size), K)
        if self._age >= _RENEWAL or abs(np.log(C) - self._log_C) > _DRIFT:
            self._age, self._log_C = 0, np.log(C)
            _, f = path.find_powers(self.particles, _MOVES, _EFFICIENCY, self.rng)
        else:
            f = np.ascontiguousarray(K.unwhiten(self._white).T)
        f, _ = path.move(f, known(f), 1.0, _MOVES, self.rng)
        self._white, self._age = K.whiten(f.T), self._age + 1
        return averaged_gradient(K, known, f)


@vectorized
def _log_known(f: Array, C: Array) -> Array:
    """Return log ∏ ν(f_i): ν = exp(-C·(1 - b))·(1 + exp(-C·(a + b)))/(1 + exp(-2C)) with a = |f|, b = min(a, 1)."""
    normalizer = 0.0
    for i in range(C.shape[0]):
        normalizer += log1p(decay(2.0 * C[i]))
    out = np.empty(f.shape[0])
    for p in range(f.shape[0]):
        total = -normalizer
        for start in range(0, f.shape[1], _BLOCK):
            above = 1.0
            for i in range(start, min(start + _BLOCK, f.shape[1])):
                size = abs(f[p, i])
                inside = min(size, 1.0)
                total -= C[i] * (1.0 - inside)
                above *= 1.0 + decay(C[i] * (size + inside))
            total += log(above)
        out[p] = total
    return out


def _log_known_each(f: Array, C: Array) -> Array:
    """Return log ν(f), elementwise."""
    size = np.abs(f)
    inside = np.minimum(size, 1.0)
    return np.log1p(np.exp(-C * (size + inside))) - C * (1.0 - inside) - np.log1p(np.exp(-2.0 * C))

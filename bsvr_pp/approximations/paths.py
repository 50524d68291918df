"""Paths from a Gaussian to the posterior of the latent function, for annealing.

Every power p in [0, 1] has the density ∝ N(f; centre, FFᵀ)·exp(p·level(f)). For any log likelihood the Gaussian is
the prior and the level the log likelihood. For a noise model the path begins at the mean-field posterior with sites
weakened by a fifth, so that it is wider than the posterior: little is left to anneal, and the moves are compiled.
All functions f are measured from the prior mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, log, pi, sin
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from bsvr_pp.approximations.checks import checked_prior, checked_problem
from bsvr_pp.approximations.mean_field import mean_field
from bsvr_pp.compiler import compiled
from bsvr_pp.pieces import Pieces, energy

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["LogLikelihood", "Path", "path_to"]

Array = NDArray[np.float64]
LogLikelihood = Callable[[Array], Array]

_WEAKENED = 0.8  # share of the mean-field sites in the Gaussian that a path begins with


class Path(Protocol):
    """Where annealing begins and how it moves; f is measured from the prior mean ``offset``."""

    @property
    def offset(self) -> Array:
        """Prior mean, (n,)."""

    @property
    def log_mass(self) -> float:
        """Log of the mass at power 0."""

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n) from the Gaussian."""

    def level(self, f: Array) -> Array:
        """What the posterior has beyond the Gaussian, in log, (particles,)."""

    def move(self, f: Array, level: Array, power: float, moves: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Elliptical slice moves of all particles, which leave Gaussian × exp(power·level) invariant."""


def path_to(K: ArrayLike, y: ArrayLike | None, likelihood: NoiseModel | LogLikelihood, mean: ArrayLike | None) -> Path:
    """The path to the posterior under a noise model, or under any function of f (particles, n)."""
    if callable(likelihood):
        covariance, offset = checked_prior(K, mean)
        return _FromThePrior(offset, _factor(covariance), likelihood)
    if y is None:
        raise ValueError("y must be given with a noise model")
    covariance, residual, offset, pieces = checked_problem(K, y, likelihood, mean)
    root = _factor(covariance)
    start = mean_field(covariance, y, likelihood, mean=offset)
    centre, precision = start.mean - offset, _WEAKENED * start.site_precision
    tilt = start.dual_coef + precision * centre  # so that the Gaussian has the mean-field mean
    # Covariance (K⁻¹ + τ)⁻¹ = R (I + RᵀτR)⁻¹ Rᵀ with K = RRᵀ: nothing cancels.
    inner = cholesky(np.eye(residual.size) + root.T @ (precision[:, None] * root), lower=True)
    factor = solve_triangular(inner, root.T, lower=True).T
    log_mass = float(0.5 * tilt @ centre - np.log(np.diag(inner)).sum())
    return _FromMeanField(offset, log_mass, centre, factor, residual, precision, tilt, pieces)


def _factor(K: Array) -> Array:
    jitter = 1e-12 * np.mean(np.diag(K))
    try:
        lower: Array = cholesky(K + jitter * np.eye(len(K)), lower=True)
    except LinAlgError:
        raise ValueError("K must be positive definite; add a jitter of 1e-6 to its diagonal") from None
    return lower


@dataclass(frozen=True, slots=True)
class _FromThePrior:
    """From the prior to prior times likelihood, a function of f."""

    offset: Array
    factor: Array
    likelihood: LogLikelihood
    log_mass: float = 0.0

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        draws: Array = rng.standard_normal((size, self.offset.size)) @ self.factor.T
        return draws

    def level(self, f: Array) -> Array:
        level: Array = np.asarray(self.likelihood(self.offset + f), dtype=np.float64)
        if level.shape != f.shape[:1] or np.isnan(level).any():
            raise ValueError(f"likelihood must give {f.shape[0]} log likelihoods, not NaN, got shape {level.shape}")
        return level

    def move(self, f: Array, level: Array, power: float, moves: int, rng: np.random.Generator) -> tuple[Array, Array]:
        f, level = f.copy(), level.copy()
        for _ in range(moves):
            ellipse = self.draw(f.shape[0], rng)
            threshold = power * level + np.log(rng.random(f.shape[0]))
            angle = np.asarray(2 * np.pi * rng.random(f.shape[0]))
            low, high = angle - 2 * np.pi, angle.copy()
            active = np.arange(f.shape[0])
            while active.size:
                turn = angle[active, None]
                proposal = f[active] * np.cos(turn) + ellipse[active] * np.sin(turn)
                proposed = self.level(proposal)
                # A bracket that has shrunk to rounding is the present point.
                accepted = (power * proposed > threshold[active]) | (high[active] - low[active] < 1e-12)
                done = active[accepted]
                f[done], level[done] = proposal[accepted], proposed[accepted]
                active = active[~accepted]
                below = angle[active] < 0
                low[active] = np.where(below, angle[active], low[active])
                high[active] = np.where(below, high[active], angle[active])
                angle[active] = rng.uniform(low[active], high[active])
        return f, level


@dataclass(frozen=True, slots=True)
class _FromMeanField:
    """From a Gaussian with sites exp(-½τf² + tilt·f) to the posterior under a noise model."""

    offset: Array
    log_mass: float
    centre: Array
    factor: Array
    residual: Array
    precision: Array
    tilt: Array
    pieces: Pieces

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        draws: Array = self.centre + rng.standard_normal((size, self.centre.size)) @ self.factor.T
        return draws

    def level(self, f: Array) -> Array:
        level: Array = _levels(np.ascontiguousarray(f), self.residual, self.precision, self.tilt, self.pieces)
        return level

    def move(self, f: Array, level: Array, power: float, moves: int, rng: np.random.Generator) -> tuple[Array, Array]:
        f, level = np.array(f, order="C"), level.copy()
        for _ in range(moves):
            other = self.draw(f.shape[0], rng)
            _turn(f, level, other, power, self.centre, self.residual, self.precision, self.tilt, self.pieces, rng)
        return f, level


@compiled
def _level(f: Array, residual: Array, precision: Array, tilt: Array, pieces: Pieces) -> float:
    total = 0.0
    for i in range(f.shape[0]):
        k = i if pieces.knots.shape[0] > 1 else 0
        here = energy(residual[i] - f[i], pieces.knots[k], pieces.value[k], pieces.slope[k], pieces.curvature[k])
        total += f[i] * (0.5 * precision[i] * f[i] - tilt[i]) - here[0] - pieces.log_normalizer[k]
    return total


@compiled
def _levels(f: Array, residual: Array, precision: Array, tilt: Array, pieces: Pieces) -> Array:
    out = np.empty(f.shape[0])
    for p in range(f.shape[0]):
        out[p] = _level(f[p], residual, precision, tilt, pieces)
    return out


@compiled
def _turn(
    f: Array,
    level: Array,
    other: Array,
    power: float,
    centre: Array,
    residual: Array,
    precision: Array,
    tilt: Array,
    pieces: Pieces,
    rng: np.random.Generator,
) -> None:
    """One elliptical slice move of every particle, in place."""
    proposal = np.empty(f.shape[1])
    for p in range(f.shape[0]):
        threshold = power * level[p] + log(1.0 - rng.random())
        angle = 2.0 * pi * rng.random()
        low, high = angle - 2.0 * pi, angle
        while True:
            c, s = cos(angle), sin(angle)
            for i in range(f.shape[1]):
                proposal[i] = centre[i] + c * (f[p, i] - centre[i]) + s * (other[p, i] - centre[i])
            proposed = _level(proposal, residual, precision, tilt, pieces)
            if power * proposed >= threshold or high - low < 1e-12:
                break
            if angle < 0.0:
                low = angle
            else:
                high = angle
            angle = low + (high - low) * rng.random()
        f[p] = proposal
        level[p] = proposed

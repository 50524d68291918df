"""Monte Carlo chaining: log ∫ N(f; 0, K) ∏ q_i(f_i) df with its standard error (Sollich 2002, section 5).

A cloud of particles is carried from a Gaussian to the target through powers β of the factors,

    N(f; 0, K) ∏ t_i(f_i)^(1-β) q_i(f_i)^β,

with Gaussian sites t_i (those of mean field, or 1 everywhere: then it starts from the prior). Between two powers
particles are weighted and resampled, and moved by elliptical slices, which need no tuning: the Gaussian of the
present power is the ellipse and q^β the level. The product of the mean weights estimates the integral without bias;
its spread over independent groups of particles gives the standard error.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import cos, log, pi, sin

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.special import logsumexp

from bsvr_pp.approximations.checks import checked_powers, checked_prior
from bsvr_pp.approximations.posterior import LatentPosterior
from bsvr_pp.checks import check_count, check_share, generator
from bsvr_pp.classification.factors import Factors, log_factor, log_factors
from bsvr_pp.compiler import compiled

__all__ = ["Chained", "Path", "chained", "cloud", "prior_factor"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chained:
    """Result of `chained`.

    Attributes
    ----------
    log_mass : float
        Log of the integral.
    standard_error : float
        Of log_mass.
    f : (draws, n) array
        Equally weighted draws from the density under the integral.
    powers : (steps,) array
        Powers of the factors, from 0 to 1; pass them on for common random numbers.
    """

    log_mass: float
    standard_error: float
    f: Array
    powers: Array


def chained(
    K: ArrayLike,
    factors: Factors,
    *,
    start: LatentPosterior | None = None,
    particles: int = 500,
    groups: int = 16,
    moves: int = 4,
    efficiency: float = 0.93,
    powers: ArrayLike | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Chained:
    """Estimate log ∫ N(f; 0, K) ∏ q_i(f_i) df, and draw f from the density under the integral.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance, positive definite up to rounding.
    factors : Factors
        The q_i.
    start : LatentPosterior, optional
        Gaussian sites to start from, such as the mean-field posterior; the prior by default.
    particles, groups : int
        Particles in each group (at least 2), and independent groups (at least 2).
    moves : int
        Elliptical slice moves of each particle at each power.
    efficiency : float
        Effective share of the particles that the pilot run keeps from one power to the next.
    powers : array, optional
        Powers from 0 to 1 instead of the pilot's.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    Chained

    Raises
    ------
    ValueError
        If an argument is out of range or K is not positive definite.

    Notes
    -----
    Labels confine f to a corner of the prior, the more so for large C: give ``start``. From the prior, with C above
    about 10, slices mix so slowly that particles do not reach the posterior, and the standard error is too small.
    The normalisers need no start: their densities are as wide as the prior.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.chaining import chained
    >>> from bsvr_pp.classification.factors import Factors
    >>> result = chained(np.eye(3), Factors("logistic", 1.0, [1, -1, 1]), random_seed=1)
    >>> bool(abs(result.log_mass - 3 * np.log(0.5)) < 4 * result.standard_error)
    True
    """
    for name, count, least in (("particles", particles, 2), ("groups", groups, 2), ("moves", moves, 1)):
        check_count(name, count, least)
    check_share("efficiency", efficiency)
    path = Path(prior_factor(K), factors, start)
    rng = generator(random_seed)
    if powers is None:
        ladder, _ = _pilot(path, max(particles, 200), moves, efficiency, rng)
    else:
        ladder = checked_powers(powers)
    log_mass = np.full(groups, path.log_mass)
    f, level = path.draw(particles * groups, rng)
    for low, high in itertools.pairwise(ladder):
        log_weight = ((high - low) * path.log_ratio(f, level)).reshape(groups, particles)
        log_mass += logsumexp(log_weight, axis=1) - log(particles)
        kept = (_resample(log_weight, rng) + particles * np.arange(groups)[:, None]).ravel()
        f, level = path.move(f[kept], level[kept], high, moves, rng)
    total = float(logsumexp(log_mass) - log(groups))
    share = np.exp(log_mass - total) / groups
    error = float(np.sqrt(groups / (groups - 1) * np.sum((share - 1 / groups) ** 2)))
    heirs = rng.choice(groups, size=f.shape[0], p=share / share.sum())
    return Chained(total, error, f[heirs * particles + np.tile(np.arange(particles), groups)], ladder)


def cloud(K: Array, factors: Factors, particles: int, efficiency: float, rng: np.random.Generator) -> Array:
    """Draws of f (particles, n) from the density under the integral, for averages: one group, and no log mass."""
    return _pilot(Path(prior_factor(K), factors, None), particles, 4, efficiency, rng)[1]


class Path:
    """The densities N(f; 0, K) ∏ t^(1-β) q^β, as a Gaussian of mean m_β and factor A_β times q^β."""

    def __init__(self, L: Array, factors: Factors, start: LatentPosterior | None) -> None:
        self.L, n = L, L.shape[0]
        self.kind, self.y, self.C = factors.arrays(n)
        self.precision, self.pull = np.zeros(n), np.zeros(n)
        if start is not None:
            if start.site_precision.shape != (n,):
                raise ValueError(f"start must have {n} sites as K has rows, got {start.site_precision.size}")
            self.precision = start.site_precision
            self.pull = start.dual_coef + self.precision * (L @ (L.T @ start.dual_coef))
        mean, _, log_det = self._gaussian(0.0)
        self.log_mass = 0.5 * (float(self.pull @ mean) - log_det)

    def _gaussian(self, power: float) -> tuple[Array, Array, float]:
        """Mean and factor of N(f; 0, K) ∏ t^(1-β), and log|I + √τK√τ|."""
        if not self.precision.any() or power == 1.0:
            return np.zeros(self.L.shape[0]), self.L, 0.0
        inner = (1.0 - power) * (self.L.T * self.precision) @ self.L
        inner[np.diag_indices_from(inner)] += 1.0
        triangle = cholesky(inner, lower=True)
        factor: Array = solve_triangular(triangle, self.L.T, lower=True).T
        mean = factor @ (factor.T @ ((1.0 - power) * self.pull))
        return mean, factor, 2.0 * float(np.log(np.diag(triangle)).sum())

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws at β = 0 and their log q."""
        mean, factor, _ = self._gaussian(0.0)
        f = rng.standard_normal((size, mean.size)) @ factor.T + mean
        return f, log_factors(f, self.kind, self.y, self.C)

    def log_ratio(self, f: Array, level: Array) -> Array:
        """Log ∏ q/t of draws whose log q is ``level``."""
        if not self.precision.any():
            return level
        return level - f @ self.pull + 0.5 * (f * f) @ self.precision

    def move(self, f: Array, level: Array, power: float, moves: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Elliptical slice moves of all particles, in place, that leave the density at this power invariant."""
        mean, factor, _ = self._gaussian(power)
        for _ in range(moves):
            ellipse = rng.standard_normal(f.shape) @ factor.T
            _slice(f, level, mean, ellipse, power, rng.random(f.shape[0]), rng, self.kind, self.y, self.C)
        return f, level


@compiled
def _slice(
    f: Array,
    level: Array,
    mean: Array,
    ellipse: Array,
    power: float,
    uniform: Array,
    rng: np.random.Generator,
    kind: int,
    y: Array,
    C: Array,
) -> None:
    n = f.shape[1]
    proposal = np.empty(n)
    for p in range(f.shape[0]):
        threshold = power * level[p] + log(max(uniform[p], 1e-300))
        angle = 2.0 * pi * rng.random()
        low, high = angle - 2.0 * pi, angle
        while high - low > 1e-12:  # a bracket that has shrunk to rounding is the present point
            c, s = cos(angle), sin(angle)
            for i in range(n):
                proposal[i] = mean[i] + (f[p, i] - mean[i]) * c + ellipse[p, i] * s
            proposed = log_factor(proposal, kind, y, C)
            if power * proposed > threshold:
                f[p], level[p] = proposal, proposed
                break
            if angle < 0.0:
                low = angle
            else:
                high = angle
            angle = low + (high - low) * rng.random()


def prior_factor(K: ArrayLike) -> Array:
    """Lower Cholesky factor of K."""
    covariance, _ = checked_prior(K, None)
    jitter = 1e-12 * np.mean(np.diag(covariance))
    try:
        return cholesky(covariance + jitter * np.eye(covariance.shape[0]), lower=True)
    except LinAlgError:
        raise ValueError("K must be positive definite; add a jitter of 1e-6 to its diagonal") from None


def _resample(log_weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Systematic resampling of each group: indices of the survivors, (groups, particles)."""
    groups, particles = log_weight.shape
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    edges = np.cumsum(weight, axis=1)
    edges /= edges[:, -1:]
    points = (np.arange(particles) + rng.random((groups, 1))) / particles
    found = [np.searchsorted(edge, at) for edge, at in zip(edges, points, strict=True)]
    return np.minimum(np.array(found), particles - 1)


def _pilot(path: Path, particles: int, moves: int, efficiency: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Powers between which one group keeps the wanted effective share, and where it ends."""
    f, level = path.draw(particles, rng)
    ladder = [0.0]
    while ladder[-1] < 1.0:
        ratio = path.log_ratio(f, level)

        def share(step: float, ratio: Array = ratio) -> float:
            weight = np.exp(step * (ratio - (ratio.max() if step > 0 else 0.0)))
            return float(weight.sum() ** 2 / (weight @ weight) / particles)

        low, high = 1e-6 * (1.0 - ladder[-1]), 1.0 - ladder[-1]
        if share(high) < efficiency:
            for _ in range(30):
                middle = (low * high) ** 0.5
                low, high = (middle, high) if share(middle) > efficiency else (low, middle)
        ladder.append(1.0 if share(1.0 - ladder[-1]) >= efficiency else ladder[-1] + low)
        kept = _resample((ladder[-1] - ladder[-2]) * ratio[None, :], rng)[0]
        f, level = path.move(f[kept], level[kept], ladder[-1], moves, rng)
    return np.array(ladder), f

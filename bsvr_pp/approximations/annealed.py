"""Annealed estimate of the evidence: the yardstick of every approximation.

Sequential Monte Carlo (Del Moral, Doucet & Jasra 2006) from a Gaussian to the posterior: many particles at once,
through powers of what the posterior has beyond the Gaussian (`bsvr_pp.approximations.paths`), moved by elliptical
slice sampling (Murray, Adams & MacKay 2010), which has no step size. A pilot run places the powers; with the powers
fixed, the estimate of the evidence (not of its log) is unbiased, wherever the path begins. Independent groups of
particles give its standard error. From draws of the posterior the same powers are walked back (Grosse, Ghahramani &
Adams 2015): forward runs bound the log evidence from below, reverse runs from above, both in expectation, so that the
truth is bracketed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from bsvr_pp.approximations.checks import checked_powers
from bsvr_pp.approximations.paths import LogLikelihood, Path, path_to
from bsvr_pp.checks import check_count, check_share, generator, numbers

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["AnnealedPosterior", "annealed", "reverse_annealed"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AnnealedPosterior:
    """Result of an annealed run.

    Attributes
    ----------
    log_evidence : float
        Natural log of the evidence.
    standard_error : float
        Of log_evidence, from independent groups of particles.
    f : (particles, n) array
        Equally weighted draws of the latent function from the posterior.
    powers : (steps,) array
        Powers of the likelihood, from 0 to 1.
    """

    log_evidence: float
    standard_error: float
    f: Array
    powers: Array

    @property
    def mean(self) -> Array:
        """Posterior mean of f, (n,)."""
        mean: Array = self.f.mean(axis=0)
        return mean

    @property
    def variance(self) -> Array:
        """Posterior variance of f, (n,)."""
        variance: Array = self.f.var(axis=0, ddof=1)
        return variance


def annealed(
    K: ArrayLike,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    *,
    mean: ArrayLike | None = None,
    particles: int = 1000,
    groups: int = 8,
    moves: int = 10,
    efficiency: float = 0.8,
    powers: ArrayLike | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> AnnealedPosterior:
    """Estimate log ∫ N(f; mean, K) p(y|f) df, with a standard error, and draw f from its posterior.

    Parameters
    ----------
    K : (n, n) array
        Prior covariance, positive definite up to rounding.
    y : (n,) array or None
        Targets; None where ``likelihood`` is a function of f alone.
    likelihood : NoiseModel or callable
        A noise model, or any function that maps f (particles, n) to log likelihoods (particles,).
    mean : (n,) array, optional
        Prior mean, 0 by default.
    particles : int
        Particles in each group.
    groups : int
        Independent groups, at least 2; the standard error comes from their spread.
    moves : int
        Elliptical slice moves of each particle at each power.
    efficiency : float
        Effective share of the particles that the pilot run keeps from one power to the next.
    powers : array, optional
        Powers of the likelihood, from 0 to 1, instead of the pilot's.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    AnnealedPosterior

    Raises
    ------
    ValueError
        If an argument is out of range or K is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import annealed
    >>> from bsvr_pp.losses import gaussian
    >>> result = annealed(np.eye(2), [0.5, -0.5], gaussian(C=1.0), particles=500, random_seed=1)
    >>> bool(abs(result.log_evidence + np.log(4 * np.pi) + 0.125) < 4 * result.standard_error)
    True
    """
    for name, value, least in (("particles", particles, 2), ("groups", groups, 2), ("moves", moves, 1)):
        check_count(name, value, least)
    check_share("efficiency", efficiency)
    rng = generator(random_seed)
    path = path_to(K, y, likelihood, mean)
    ladder = _pilot(path, particles, moves, efficiency, rng) if powers is None else checked_powers(powers)

    f = path.draw(groups * particles, rng)
    level = path.level(f)
    log_mass = np.full(groups, path.log_mass)
    for low, high in itertools.pairwise(ladder):
        log_weight = ((high - low) * level).reshape(groups, particles)
        log_mass += logsumexp(log_weight, axis=1) - np.log(particles)
        chosen = np.concatenate([g * particles + _resample(log_weight[g], rng) for g in range(groups)])
        f, level = path.move(f[chosen], level[chosen], float(high), moves, rng)
    log_evidence = float(logsumexp(log_mass) - np.log(groups))
    if not np.isfinite(log_evidence):
        raise ValueError("likelihood must not vanish at all draws of the prior, its log is -inf at each of them")
    ratios = np.exp(log_mass - log_evidence)
    # Delta method for the log of the mean of the groups' evidences.
    error = float(ratios.std(ddof=1) / np.sqrt(groups))
    shares = rng.choice(groups, size=groups * particles, p=ratios / ratios.sum())
    kept = shares * particles + rng.integers(particles, size=groups * particles)
    return AnnealedPosterior(log_evidence, error, path.offset + f[kept], ladder)


def reverse_annealed(
    f: ArrayLike,
    K: ArrayLike,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    powers: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    moves: int = 10,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[float, float]:
    """Walk draws of the posterior back to the prior: an estimate of the log evidence from above.

    Parameters
    ----------
    f : (draws, n) array
        Draws from the posterior, of NUTS say.
    powers : array
        Those of a forward run (`AnnealedPosterior.powers`).
    K, y, likelihood, mean, moves, random_seed
        As in `annealed`.

    Returns
    -------
    log_evidence, standard_error : float
        Its expectation is an upper bound, tight for many powers (Grosse, Ghahramani & Adams 2015).

    Raises
    ------
    ValueError
        If an argument is out of range or K is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import reverse_annealed
    >>> from bsvr_pp.losses import gaussian
    >>> f = np.random.default_rng(0).normal(0.5, 0.5**0.5, (2000, 1))  # the posterior of f at y = 1
    >>> above, error = reverse_annealed(f, [[1.0]], [1.0], gaussian(C=1.0), np.linspace(0, 1, 5), random_seed=1)
    >>> bool(abs(above + 1.515512) < 4 * error)
    True
    """
    check_count("moves", moves, 1)
    rng = generator(random_seed)
    path = path_to(K, y, likelihood, mean)
    draws = numbers("f", f, ("draws", path.offset.size)) - path.offset
    if len(draws) < 2:
        raise ValueError(f"f must hold at least two draws, got shape {draws.shape}")
    ladder = checked_powers(powers)[::-1]
    level = path.level(draws)
    log_weight = np.zeros(draws.shape[0])
    for high, low in itertools.pairwise(ladder):
        log_weight += (low - high) * level
        draws, level = path.move(draws, level, float(low), moves, rng)
    log_mean = float(logsumexp(log_weight) - np.log(log_weight.size))
    ratios = np.exp(log_weight - log_mean)
    return path.log_mass - log_mean, float(ratios.std(ddof=1) / np.sqrt(ratios.size))


def _resample(log_weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Systematic resampling: indices of the survivors."""
    weight = np.exp(log_weight - log_weight.max())
    edges = np.cumsum(weight) / weight.sum()
    points = (np.arange(weight.size) + rng.random()) / weight.size
    return np.minimum(np.searchsorted(edges, points), weight.size - 1)


def _pilot(path: Path, particles: int, moves: int, efficiency: float, rng: np.random.Generator) -> Array:
    """Powers between which one group of particles keeps the wanted effective share."""
    f = path.draw(particles, rng)
    level = path.level(f)
    ladder = [0.0]
    while ladder[-1] < 1.0:
        spread = level - level.max()

        def share(step: float, spread: Array = spread) -> float:
            weight = np.exp(step * spread)
            return float(weight.sum() ** 2 / (weight @ weight) / particles)

        low, high = 0.0, 1.0 - ladder[-1]
        if share(high) < efficiency:
            for _ in range(60):
                middle = np.sqrt(low * high) if low > 0 else high * 1e-3
                low, high = (middle, high) if share(middle) > efficiency else (low, middle)
                if low > 0 and high < 1.001 * low:
                    break
        step = low if low > 0 else high
        reached = ladder[-1] + step
        ladder.append(1.0 if share(1.0 - ladder[-1]) >= efficiency or reached >= 1.0 else reached)
        chosen = _resample((ladder[-1] - ladder[-2]) * level, rng)
        f, level = path.move(f[chosen], level[chosen], ladder[-1], moves, rng)
    return np.array(ladder)

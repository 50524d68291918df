"""Annealed estimate of the evidence: an unbiased, slower reference for every approximation.

For a general log likelihood the particles of `bsvr_pp.approximations.smc` start from the prior. For a noise model they
start from the mean-field posterior with sites weakened by a fifth. This Gaussian is slightly wider than the posterior,
so that the path is short. A pilot run chooses the powers. With fixed powers the estimate of the evidence (not of its
log) is unbiased for any start. Independent groups of particles give its standard error. The same powers can be followed
in reverse from draws of the posterior (Grosse, Ghahramani & Adams 2015). In expectation, forward runs give a lower
bound of the log evidence, and reverse runs an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from bsvr_pp._checks import check_count, check_share, generator, numbers
from bsvr_pp._compiler import compiled
from bsvr_pp.approximations import smc
from bsvr_pp.approximations.arguments import checked_mean, checked_powers, checked_problem
from bsvr_pp.approximations.block_diagonal import BlockDiagonal
from bsvr_pp.approximations.covariance import Covariance, as_covariance
from bsvr_pp.approximations.mean_field import mean_field
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.likelihood import NoiseLikelihood

__all__ = ["AnnealedPosterior", "Bridge", "annealed", "bridge", "importance", "reverse_annealed"]

Array = NDArray[np.float64]
LogLikelihood = Callable[[Array], Array]

_WEAKENED = 0.8  # factor of the mean-field site precisions in the Gaussian at the start


@dataclass(frozen=True, slots=True)
class AnnealedPosterior:
    """Result of an annealed run.

    Attributes
    ----------
    log_evidence : float
        Natural log of the evidence.
    standard_error : float
        Standard error of log_evidence, from independent groups of particles.
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
    K: ArrayLike | Covariance,
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
    K : (n, n) array or Covariance
        Prior covariance, positive definite up to rounding.
    y : (n,) array or None
        Targets; None if ``likelihood`` is a function of f only.
    likelihood : NoiseModel or callable
        A noise model, or any function that maps f (particles, n) to log likelihoods (particles,).
    mean : (n,) array, optional
        Prior mean, 0 by default.
    particles : int
        Number of particles in each group.
    groups : int
        Number of independent groups, at least 2; their variation gives the standard error.
    moves : int
        Number of elliptical slice moves of each particle at each power.
    efficiency : float
        Ratio of the effective to the actual number of particles from one power to the next in the pilot run.
    powers : array, optional
        Powers of the likelihood, from 0 to 1, instead of those of the pilot run.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.

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
    path = bridge(K, y, likelihood, mean)
    if powers is None:
        ladder, _ = smc.find_powers(path.start, path.log_ratio, particles, moves, efficiency, rng)
    else:
        ladder = checked_powers(powers)
    log_mass, f = smc.forward(path.start, path.log_ratio, ladder, particles, groups, moves, rng)
    log_evidence = float(logsumexp(log_mass) - np.log(groups))
    if not np.isfinite(log_evidence):
        raise ValueError("likelihood must not vanish at all draws of the prior, its log is -inf at each of them")
    ratios = np.exp(log_mass - log_evidence)
    # Delta method for the log of the mean of the evidences of the groups.
    error = float(ratios.std(ddof=1) / np.sqrt(groups))
    # Particle j of a group that is chosen with probability proportional to its evidence.
    chosen = rng.choice(groups, size=groups * particles, p=ratios / ratios.sum())
    kept = chosen * particles + np.tile(np.arange(particles), groups)
    return AnnealedPosterior(log_evidence, error, path.offset + f[kept], ladder)


def reverse_annealed(
    f: ArrayLike,
    K: ArrayLike | Covariance,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    powers: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    moves: int = 10,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[float, float]:
    """Move draws of the posterior back to the start of the path, which gives an upper bound of the log evidence.

    Parameters
    ----------
    f : (draws, n) array
        Draws from the posterior, for example by NUTS.
    powers : array
        Powers of a forward run (`AnnealedPosterior.powers`).
    K, y, likelihood, mean, moves, random_seed
        As in `annealed`.

    Returns
    -------
    log_evidence, standard_error : float
        The expectation of log_evidence is an upper bound, tight for many powers (Grosse, Ghahramani & Adams 2015).

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
    path = bridge(K, y, likelihood, mean)
    draws = numbers("f", f, ("draws", path.offset.size)) - path.offset
    if len(draws) < 2:
        raise ValueError(f"f must hold at least two draws, got shape {draws.shape}")
    log_weight = smc.backward(path.start, path.log_ratio, draws, checked_powers(powers), moves, rng)
    log_mean, error = _mean_of(log_weight)
    return path.start.log_mass - log_mean, error


@dataclass(frozen=True, slots=True)
class Bridge:
    """A Gaussian, and the log ratio of prior times likelihood to it; f is relative to the prior mean ``offset``."""

    offset: Array
    start: smc.Start
    log_ratio: LogLikelihood

    def importance(self, particles: int, rng: np.random.Generator) -> tuple[float, float]:
        """Estimate the evidence without bias by draws of the Gaussian only: its log, and the standard error."""
        value, error = _mean_of(self.log_ratio(self.start.draw(particles, rng)))
        return self.start.log_mass + value, error


def bridge(
    K: ArrayLike | Covariance,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    mean: ArrayLike | None,
) -> Bridge:
    """Make the path from a Gaussian to the posterior, for a noise model or any function of f (particles, n)."""
    if callable(likelihood):
        prior = as_covariance(K)
        offset = checked_mean(mean, prior.size)
        return Bridge(offset, smc.Start(np.zeros(prior.size), prior), _Checked(likelihood, offset))
    if y is None:
        raise ValueError("y must be given with a noise model")
    covariance, residual, offset, pieces = checked_problem(K, y, likelihood, mean)
    field = mean_field(covariance, y, likelihood, mean=offset)
    centre, precision = field.mean - offset, _WEAKENED * field.site_precision
    tilt = field.dual_coef + precision * centre  # so that the Gaussian has the mean-field mean
    factor = covariance.factor(precision)
    log_mass = float(0.5 * tilt @ centre - 0.5 * factor.log_det)
    beyond = _BeyondSites(NoiseLikelihood(residual, pieces, likelihood.parameters), precision, tilt)
    return Bridge(offset, smc.Start(centre, factor, log_mass), beyond)


def importance(
    K: Covariance | BlockDiagonal, y: Array, noise: NoiseModel, mean: Array, particles: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Estimate the evidence without bias by `Bridge.importance`: its log, and the standard error.

    With blocks it is the product of their independent estimates.
    """
    if not isinstance(K, BlockDiagonal):
        return bridge(K, y, noise, mean).importance(particles, rng)
    parts = (bridge(K.part(b), y[rows], noise, mean[rows]) for b, rows in enumerate(K.rows))
    found = [part.importance(particles, rng) for part in parts]
    values, errors = np.transpose(found)
    return float(values.sum()), float(np.sqrt((errors**2).sum()))


def _mean_of(log_weight: Array) -> tuple[float, float]:
    """Compute the log of the mean weight, and its standard error."""
    log_mean = float(logsumexp(log_weight) - np.log(log_weight.size))
    return log_mean, float(np.exp(log_weight - log_mean).std(ddof=1) / np.sqrt(log_weight.size))


@dataclass(frozen=True, slots=True)
class _Checked:
    """A log likelihood given by the user, as a function of f minus its prior mean."""

    likelihood: LogLikelihood
    offset: Array

    def __call__(self, f: Array) -> Array:
        values: Array = np.asarray(self.likelihood(self.offset + f), dtype=np.float64)
        if values.shape != f.shape[:1] or np.isnan(values).any():
            raise ValueError(f"likelihood must give {f.shape[0]} log likelihoods, not NaN, got shape {values.shape}")
        return values


@dataclass(frozen=True, slots=True)
class _BeyondSites:
    """Log of the ratio of a noise likelihood to the Gaussian sites exp(-½τf² + tilt·f)."""

    likelihood: NoiseLikelihood
    precision: Array
    tilt: Array

    def __call__(self, f: Array) -> Array:
        values = self.likelihood(f)
        _take_sites(values, f, self.precision, self.tilt)
        return values


@compiled
def _take_sites(values: Array, f: Array, precision: Array, tilt: Array) -> None:
    """Subtract the log sites of each row of f, in place."""
    for p in range(f.shape[0]):
        for i in range(f.shape[1]):
            values[p] += f[p, i] * (0.5 * precision[i] * f[p, i] - tilt[i])

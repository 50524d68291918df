"""Annealing: sequential Monte Carlo from a Gaussian to a posterior (docs/explanation/evidence.md).

Each power p has the density ∝ N(f; centre, Σ)·exp(p·log_ratio(f)). Particles are resampled from one power to the next
(Del Moral, Doucet & Jasra 2006) and moved by elliptical slice sampling (Murray, Adams & MacKay 2010). With a noise
model the Gaussian is the mean-field posterior with sites weakened by a fifth, otherwise the prior.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from bsvr_pp.core.approximations.mean_field import mean_field
from bsvr_pp.core.approximations.posterior import checked_mean, checked_problem
from bsvr_pp.core.arrays import Array, check_count, check_share, generator
from bsvr_pp.core.covariance.covariance import BlockDiagonal, Covariance, Factor, as_covariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.factors import log_factors

LogLikelihood = Callable[[Array], Array]  # also the log ratio of two densities

_WEAKENED = 0.8  # factor of the mean-field site precisions in the Gaussian at the start
_BRACKET = 1e-12  # angle below which a proposal equals the current point up to rounding errors
_SMALLEST_STEP = 1e-9  # tolerance of a power, relative to the remaining interval
_VANISHES = "likelihood must not vanish at all draws of the prior, its log is -inf at each of them"


@dataclass(frozen=True, slots=True)
class AnnealedPosterior:
    """Result of an annealed run."""

    log_evidence: float
    standard_error: float  # of log_evidence, from independent groups of particles
    f: Array  # (particles, n), equally weighted draws of the latent function from the posterior
    powers: Array  # (steps,), of the likelihood, from 0 to 1

    @property
    def mean(self) -> Array:
        """Posterior mean of f, (n,)."""
        return np.asarray(self.f.mean(axis=0))

    @property
    def variance(self) -> Array:
        """Posterior variance of f, (n,)."""
        return np.asarray(self.f.var(axis=0, ddof=1))


@dataclass(frozen=True, slots=True)
class Annealing:
    """Numbers of an annealed run (`bsvr_pp.Annealed`)."""

    particles: int = 1000
    groups: int = 8
    moves: int = 10
    efficiency: float = 0.8

    def __post_init__(self) -> None:
        for name, least in (("particles", 2), ("groups", 2), ("moves", 1)):
            check_count(name, getattr(self, name), least)
        check_share("efficiency", self.efficiency)


_DESIGN = Annealing()


def annealed(
    K: ArrayLike | Covariance,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    design: Annealing = _DESIGN,
    *,
    mean: ArrayLike | None = None,
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
    design : Annealed, optional
        Numbers of particles, groups and moves, as a `bsvr_pp.Annealed`; by default 8 groups of 1000 particles, and 10
        moves.
    mean : (n,) array, optional
        Prior mean, 0 by default.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.

    Returns
    -------
    AnnealedPosterior
        ``log_evidence`` and its ``standard_error``, draws ``f`` (particles, n), and ``powers`` of the likelihood.

    Raises
    ------
    ValueError
        If an argument is out of range or K is not positive definite.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> from bsvr_pp.approximations import annealed
    >>> from bsvr_pp.losses import gaussian
    >>> result = annealed(np.eye(2), [0.5, -0.5], gaussian(C=1.0), bp.Annealed(particles=500), random_seed=1)
    >>> bool(abs(result.log_evidence + np.log(4 * np.pi) + 0.125) < 4 * result.standard_error)
    True
    """
    if not isinstance(design, Annealing):
        raise TypeError(f"design must be Annealed(...), got {design!r}")
    path, rng = bridge(K, y, likelihood, mean), generator(random_seed)
    powers, _ = path.find_powers(design.particles, design.moves, design.efficiency, rng)
    return path.forward(powers, design, rng)


@dataclass(frozen=True, slots=True)
class Path:
    """Densities from a Gaussian at power 0 to prior times likelihood at power 1, of f relative to the prior mean."""

    log_ratio: LogLikelihood  # of prior times likelihood to the Gaussian
    centre: Array  # mean of the Gaussian, (n,)
    gaussian: Covariance | Factor  # distribution of the deviations from it
    log_mass: float = 0.0  # log of its integral
    offset: Array | float = 0.0  # prior mean

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws (size, n) at power 0."""
        return self.centre + self.gaussian.draw(size, rng)

    def find_powers(
        self, particles: int, moves: int, efficiency: float, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Choose powers with a given effective share of particles from one to the next, and draw f at power 1."""
        f = self.draw(particles, rng)
        values = self.log_ratio(f)
        powers = [0.0]
        while powers[-1] < 1.0:
            powers.append(_next_power(values, powers[-1], efficiency))
            kept = _resample((powers[-1] - powers[-2]) * values[None], rng)
            f, values = self.move(f[kept], values[kept], powers[-1], moves, rng)
        return np.array(powers), f

    def forward(self, powers: Array, design: Annealing, rng: np.random.Generator) -> AnnealedPosterior:
        """Estimate the log mass at power 1 by independent groups, and draw from the density there."""
        particles, groups = design.particles, design.groups
        f = self.draw(groups * particles, rng)
        values = self.log_ratio(f)
        log_mass = np.full(groups, self.log_mass)
        for low, high in itertools.pairwise(powers):
            log_weight = ((high - low) * values).reshape(groups, particles)
            log_mass += logsumexp(log_weight, axis=1) - np.log(particles)
            kept = _resample(log_weight, rng)
            f, values = self.move(f[kept], values[kept], float(high), design.moves, rng)
        if not np.isfinite(log_mass).any():
            raise ValueError(_VANISHES)
        log_evidence, error = importance_estimate(log_mass)  # by the delta method
        # Particle j of a group, which is chosen with probability proportional to its evidence.
        ratios = np.exp(log_mass - log_evidence)
        chosen = rng.choice(groups, size=groups * particles, p=ratios / ratios.sum())
        kept = chosen * particles + np.tile(np.arange(particles), groups)
        return AnnealedPosterior(log_evidence, error, self.offset + f[kept], powers)

    def move(self, f: Array, values: Array, power: float, moves: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Apply elliptical slice moves, which preserve the density, to f (particles, n) and its log ratios."""
        f, values = f.copy(), values.copy()
        for _ in range(moves):
            ellipse = self.gaussian.draw(len(f), rng)
            threshold = power * values + np.log1p(-rng.random(len(f)))
            angle = 2.0 * np.pi * rng.random(len(f))
            low, high, active = angle - 2.0 * np.pi, angle.copy(), np.arange(len(f))
            while active.size:
                c, s = np.cos(angle[active, None]), np.sin(angle[active, None])
                proposal = self.centre + c * (f[active] - self.centre) + s * ellipse[active]
                proposed, uniform = self.log_ratio(proposal), rng.random(active.size)
                done = (power * proposed >= threshold[active]) | (high[active] - low[active] < _BRACKET)
                f[active[done]], values[active[done]] = proposal[done], proposed[done]
                active, uniform = active[~done], uniform[~done]
                below = angle[active] < 0.0
                low[active[below]], high[active[~below]] = angle[active[below]], angle[active[~below]]
                angle[active] = low[active] + uniform * (high[active] - low[active])
        return f, values


def bridge(
    K: ArrayLike | Covariance,
    y: ArrayLike | None,
    likelihood: NoiseModel | LogLikelihood,
    mean: ArrayLike | None,
) -> Path:
    """Make the path from a Gaussian to the posterior, for a noise model or any function of f (particles, n)."""
    if callable(likelihood):
        prior = as_covariance(K)
        shift = checked_mean(mean, prior.size)

        def checked(f: Array) -> Array:
            values: Array = np.asarray(likelihood(shift + f), dtype=np.float64)
            if values.shape != f.shape[:1] or np.isnan(values).any():
                raise ValueError(f"likelihood must give {len(f)} log likelihoods, not NaN, got shape {values.shape}")
            return values

        return Path(checked, np.zeros(prior.size), prior, offset=shift)
    if y is None:
        raise ValueError("y must be given with a noise model")
    covariance, residual, offset, pieces = checked_problem(K, y, likelihood, mean)
    field = mean_field(covariance, y, likelihood, mean=offset)
    centre, precision = field.mean - offset, _WEAKENED * field.site_precision
    tilt = field.dual_coef + precision * centre  # gives the Gaussian the mean-field mean
    factor = covariance.factor(precision)
    log_mass = float(0.5 * tilt @ centre - 0.5 * factor.log_det)

    def beyond_sites(f: Array) -> Array:
        sites = np.einsum("pi,pi->p", f, tilt - 0.5 * precision * f)
        return log_factors(f, residual, pieces).sum(axis=1) - sites

    return Path(beyond_sites, centre, factor, log_mass, offset)


def importance(
    K: Covariance | BlockDiagonal, y: Array, noise: NoiseModel, mean: Array, particles: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Estimate the evidence without bias by draws of the Gaussian (of each block): its log and standard error."""
    if not isinstance(K, BlockDiagonal):
        path = bridge(K, y, noise, mean)
        value, error = importance_estimate(path.log_ratio(path.draw(particles, rng)))
        return path.log_mass + value, error
    found = [importance(K.part(b), y[rows], noise, mean[rows], particles, rng) for b, rows in enumerate(K.rows)]
    values, errors = np.transpose(found)
    return float(values.sum()), float(np.sqrt((errors**2).sum()))


def importance_estimate(log_weight: Array) -> tuple[float, float]:
    """Return the log of the mean of importance weights, and its standard error."""
    log_mean = float(logsumexp(log_weight) - np.log(log_weight.size))
    return log_mean, float(np.exp(log_weight - log_mean).std(ddof=1) / np.sqrt(log_weight.size))


def _next_power(values: Array, power: float, efficiency: float) -> float:
    """Find the power at which the effective share of the particles with positive weight falls to ``efficiency``."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        raise ValueError(_VANISHES)
    spread = finite - finite.max()

    def share(step: float) -> float:
        weight = np.exp(step * spread)
        return float(weight.sum() ** 2 / (weight @ weight) / weight.size)

    rest = 1.0 - power
    if share(rest) >= efficiency:
        return 1.0
    low, high = _SMALLEST_STEP * rest, rest
    while high > 1.01 * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if share(middle) > efficiency else (low, middle)
    return power + low


def _resample(log_weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Resample systematically within each group; return the indices of the selected particles, group after group."""
    groups, particles = log_weight.shape
    top = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - np.where(np.isfinite(top), top, 0.0))
    weight[~np.isfinite(top[:, 0])] = 1.0  # a group with zero mass
    edges = np.cumsum(weight, axis=1)
    points = (np.arange(particles) + rng.random((groups, 1))) / particles * edges[:, -1:]
    found = [np.searchsorted(edge, at) for edge, at in zip(edges, points, strict=True)]
    kept: NDArray[np.intp] = np.minimum(found, particles - 1) + particles * np.arange(groups)[:, None]
    return kept.ravel()

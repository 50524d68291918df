"""Annealing: sequential Monte Carlo from a Gaussian to a posterior (Del Moral, Doucet & Jasra 2006).

Every power p in [0, 1] has the density ∝ N(f; centre, Σ)·exp(p·log_ratio(f)). The particles are weighted and
resampled from one power to the next, and moved by elliptical slice sampling (Murray, Adams & MacKay 2010), which has
no step size. The log ratio is any function that maps f (particles, n) to (particles,), compiled or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from bsvr_pp._compiler import compiled

__all__ = ["Gaussian", "Start", "backward", "find_powers", "forward", "move"]

Array = NDArray[np.float64]
LogRatio = Callable[[Array], Array]

_BRACKET = 1e-12  # angle below which a proposal equals the current point up to rounding errors
_SMALLEST_STEP = 1e-9  # tolerance of a power, relative to the remaining interval


class Gaussian(Protocol):
    """A Gaussian around 0, such as a `Covariance` or its `Factor`."""

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n)."""


@dataclass(frozen=True, slots=True)
class Start:
    """The Gaussian at power 0.

    Attributes
    ----------
    centre : (n,) array
        Mean of the Gaussian.
    gaussian : Gaussian
        Distribution of the deviations from the mean.
    log_mass : float
        Log of its integral.
    """

    centre: Array
    gaussian: Gaussian
    log_mass: float = 0.0

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n)."""
        return self.centre + self.gaussian.draw(size, rng)


def find_powers(
    start: Start, log_ratio: LogRatio, particles: int, moves: int, efficiency: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Choose powers with a given effective share of particles from one to the next; also return the draws at power 1.

    Raises
    ------
    ValueError
        If the log ratio is -inf at all draws.
    """
    f = start.draw(particles, rng)
    values = log_ratio(f)
    powers = [0.0]
    while powers[-1] < 1.0:
        powers.append(_next_power(values, powers[-1], efficiency))
        kept = _resample((powers[-1] - powers[-2]) * values[None], rng)
        f, values = move(start, log_ratio, f[kept], values[kept], powers[-1], moves, rng)
    return np.array(powers), f


def _next_power(values: Array, power: float, efficiency: float) -> float:
    """Find the power at which the effective share of the particles with positive weight falls to ``efficiency``."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        raise ValueError("likelihood must not vanish at all draws of the prior, its log is -inf at each of them")
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


def forward(
    start: Start,
    log_ratio: LogRatio,
    powers: Array,
    particles: int,
    groups: int,
    moves: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Estimate the log mass at power 1 by independent groups, (groups,), and return their draws, group after group."""
    f = start.draw(groups * particles, rng)
    values = log_ratio(f)
    log_mass = np.full(groups, start.log_mass)
    for low, high in itertools.pairwise(powers):
        log_weight = ((high - low) * values).reshape(groups, particles)
        log_mass += logsumexp(log_weight, axis=1) - np.log(particles)
        kept = _resample(log_weight, rng)
        f, values = move(start, log_ratio, f[kept], values[kept], float(high), moves, rng)
    return log_mass, f


def backward(start: Start, log_ratio: LogRatio, f: Array, powers: Array, moves: int, rng: np.random.Generator) -> Array:
    """Move draws from power 1 back to power 0, and return their log weights (Grosse, Ghahramani & Adams 2015)."""
    values = log_ratio(f)
    log_weight = np.zeros(len(f))
    for high, low in itertools.pairwise(powers[::-1]):
        log_weight += (low - high) * values
        f, values = move(start, log_ratio, f, values, float(low), moves, rng)
    return log_weight


def _resample(log_weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Systematic resampling within each group: return the indices of the selected particles, group after group."""
    groups, particles = log_weight.shape
    top = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - np.where(np.isfinite(top), top, 0.0))
    weight[~np.isfinite(top[:, 0])] = 1.0  # a group with zero mass
    edges = np.cumsum(weight, axis=1)
    points = (np.arange(particles) + rng.random((groups, 1))) / particles * edges[:, -1:]
    found = [np.searchsorted(edge, at) for edge, at in zip(edges, points, strict=True)]
    kept: NDArray[np.intp] = np.minimum(found, particles - 1) + particles * np.arange(groups)[:, None]
    return kept.ravel()


def move(
    start: Start,
    log_ratio: LogRatio,
    f: Array,
    values: Array,
    power: float,
    moves: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Apply elliptical slice moves to all particles, which leave the density at this power invariant.

    Parameters
    ----------
    f : (particles, n) array
        The particles.
    values : (particles,) array
        The log ratio of each particle.

    Returns
    -------
    f, values : arrays
        The new values.
    """
    f, values = np.array(f, order="C"), values.copy()
    for _ in range(moves):
        ellipse = np.ascontiguousarray(start.gaussian.draw(len(f), rng))
        threshold = power * values + np.log1p(-rng.random(len(f))) if power > 0 else np.full(len(f), -np.inf)
        angle = 2.0 * np.pi * rng.random(len(f))
        bracket = np.stack([angle - 2.0 * np.pi, angle])
        active = np.arange(len(f))
        while active.size:
            proposal = _rotated(f, ellipse, start.centre, angle, active)
            proposed = log_ratio(proposal)
            uniform = rng.random(active.size)
            active = _settle(f, values, proposal, proposed, power, threshold, angle, bracket, active, uniform)
    return f, values


@compiled
def _rotated(f: Array, ellipse: Array, centre: Array, angle: Array, active: NDArray[np.intp]) -> Array:
    """Points of the ellipses at the angles, for the active particles."""
    n = f.shape[1]
    out = np.empty((active.shape[0], n))
    for row in range(active.shape[0]):
        p = active[row]
        c, s = np.cos(angle[p]), np.sin(angle[p])
        for i in range(n):
            out[row, i] = centre[i] + c * (f[p, i] - centre[i]) + s * ellipse[p, i]
    return out


@compiled
def _settle(
    f: Array,
    values: Array,
    proposal: Array,
    proposed: Array,
    power: float,
    threshold: Array,
    angle: Array,
    bracket: Array,
    active: NDArray[np.intp],
    uniform: Array,
) -> NDArray[np.intp]:
    """Accept proposals on the slice, in place; shrink the brackets of the others, and return them."""
    left = np.empty_like(active)
    n_left = 0
    for row in range(active.shape[0]):
        p = active[row]
        if power == 0.0 or power * proposed[row] >= threshold[p] or bracket[1, p] - bracket[0, p] < _BRACKET:
            f[p] = proposal[row]
            values[p] = proposed[row]
            continue
        bracket[0 if angle[p] < 0.0 else 1, p] = angle[p]
        angle[p] = bracket[0, p] + uniform[row] * (bracket[1, p] - bracket[0, p])
        left[n_left] = p
        n_left += 1
    return left[:n_left]

"""A posterior of f that is monotone in some inputs: mean field with slopes of known sign at points that are searched.

Each slope that has the sign s brings the factor P(s·slope + r > 0), a sharp step, with r distributed as the noise of
the model but very narrow (Riihimäki & Vehtari 2010, whose r is Gaussian). Points are added where the posterior mean
falls although it must rise, until copies of rows with another value of the input are in order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.core.approximations import Covariance, LatentPosterior, mean_field
from bsvr_pp.core.approximations.posterior import from_sites
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.losses.noise import IntervalNoise, widen
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.slopes import GivenSlopes, SlopeCovariances, Slopes

WIDTH = 1e-2  # standard deviation of r, per unit of the targets and of the input
ALLOWED = 1e-3  # largest fall of the mean along an input, in standard deviations of the targets
_ROUNDS = 25  # in which points are added,
_MOST = 16  # at most so many an input and round
_LEVELS = 8  # values of the input in the copies of a row,
_COPIES = 2000  # so many copies in all
_APART = 0.3  # least distance of new points, in standard deviations of the inputs


class Monotone(NamedTuple):
    """The posterior of f at the rows with the slopes that make it monotone, and its largest fall."""

    posterior: LatentPosterior
    slopes: Slopes
    fall: float

    @property
    def reached(self) -> bool:
        """Whether the mean is monotone at new copies of rows."""
        return self.fall <= ALLOWED


def solve_monotone(
    problem: Problem, point: Point, found: LatentPosterior, slopes: Slopes, rng: np.random.Generator
) -> Monotone:
    """Add slopes until the mean of f is monotone; ``found`` is a posterior of the rows from which solves start."""
    best: Monotone | None = None
    if len(slopes.X):
        found, slopes = given_slopes(problem, point, found, slopes)
    for last in range(_ROUNDS + 1):
        fall, X, inputs = _falls(GivenSlopes.of(problem, slopes), point, found, slopes.signs, rng)
        now = Monotone(found, slopes, fall)
        best = now if best is None or fall <= max(best.fall, ALLOWED) else best
        if now.reached or last == _ROUNDS:
            break
        slopes = slopes.joined(X, inputs)
        found, slopes = given_slopes(problem, point, found, slopes)
        if not found.converged:
            break
    assert best is not None
    return best


def given_slopes(
    problem: Problem, point: Point, start: LatentPosterior, slopes: Slopes
) -> tuple[LatentPosterior, Slopes]:
    """Mean field of rows and slopes together: the posterior of the rows, and the slopes with their sites.

    The evidence is that of the rows given that the slopes have their signs.
    """
    K, mean, noise = problem.dense_at(point)
    of_slopes, jitter, n = SlopeCovariances(problem, point, slopes), problem.prior.jitter, K.size
    own, cross = of_slopes.with_slopes() + jitter * np.eye(len(slopes.X)), of_slopes.with_values(problem.inputs)
    joint = Covariance(np.block([[K.dense(), cross.T], [cross, own]]), jitter=jitter)
    y, plain, m = problem.targets, problem.noise_at(point), len(slopes.X)
    ends = noise.ends if isinstance(noise, IntervalNoise) else np.stack([y, y], axis=1)
    low, high = np.concatenate([ends, np.tile([0.0, np.inf], (m, 1))]).T
    weight = np.append(np.broadcast_to(noise.weight, n), np.ones(m))
    width = np.append(np.ones(n), np.full(m, WIDTH / np.sqrt(plain.variance)))
    together, nothing = widen(plain, width).weighted(weight).between(low, high), np.zeros(m)
    sites = np.stack([np.append(start.dual_coef, slopes.dual_coef), np.append(start.site_precision, slopes.site_precision)])
    found = mean_field(joint, np.append(y, nothing), together, mean=np.append(mean, nothing), start=sites)
    alone = mean_field(Covariance(own, jitter=jitter), nothing, together.at(slice(n, None)))
    dual, precision, slope = found.dual_coef[n:], found.site_precision[n:], found.mean[n:]
    slopes = replace(slopes, dual_coef=dual, site_precision=precision, location=dual + precision * slope)
    prior = GivenSlopes.of(problem, slopes).dense_at(point)[:2]
    of_rows = from_sites(*prior, found.dual_coef[:n], found.site_precision[:n])
    names = "converged", "n_iter", "mismatch"
    known = {name: getattr(found, name) for name in names}
    return replace(of_rows, **known, log_evidence=found.log_evidence - alone.log_evidence), slopes


def _falls(
    problem: Problem, point: Point, found: LatentPosterior, signs: Array, rng: np.random.Generator
) -> tuple[float, Array, NDArray[np.intp]]:
    """The largest fall of the mean of f along copies of rows, and points (m, d) and inputs (m,) of steep falls.

    Half of the rows are training rows; the others have each input from a row of its own. The copies of a row have
    ascending values of one input within the range of the data.
    """
    rows, d = problem.inputs, signs.size
    worst, X, inputs = 0.0, [np.empty((0, d))], [np.empty(0, dtype=np.intp)]
    for k in np.flatnonzero(signs):
        shape = _COPIES // _LEVELS, _LEVELS
        of_input = rng.integers(len(rows), size=(shape[0], d))
        of_input[::2] = of_input[::2, :1]
        base = rows[of_input, np.arange(d)]
        known = rows[rng.integers(len(rows), size=shape), k]
        uniform = rng.uniform(rows[:, k].min(), rows[:, k].max(), shape)
        level = np.sort(np.where(rng.random(shape) < 0.5, known, uniform), axis=1)
        copies = np.repeat(base, _LEVELS, axis=0)
        copies[:, k] = level.ravel()
        f = signs[k] * found.predict(*problem.cross(point, copies))[0].reshape(shape)
        worst = max(worst, float((np.maximum.accumulate(f, axis=1) - f).max()))
        steep, chosen = _steepest(base, k, level, f)
        X.append(steep)
        inputs.append(chosen)
    return worst, np.concatenate(X), np.concatenate(inputs)


def _steepest(base: Array, k: int, level: Array, f: Array) -> tuple[Array, NDArray[np.intp]]:
    """Middles of the steepest falls between neighbouring copies of rows, at least `_APART` from one another."""
    fall = f[:, :-1] - f[:, 1:]
    slope = fall / np.maximum(np.diff(level, axis=1), 1e-9)
    slope[fall <= 0.1 * ALLOWED] = 0.0
    order = np.argsort(-slope, axis=None)
    chosen: list[Array] = []
    for row, j in zip(*np.unravel_index(order, slope.shape), strict=True):
        if slope[row, j] <= 0.0 or len(chosen) == _MOST:
            break
        x = base[row].copy()
        x[k] = 0.5 * (level[row, j] + level[row, j + 1])
        if all(np.max(np.abs(x - other)) > _APART for other in chosen):
            chosen.append(x)
    return np.reshape(chosen, (-1, base.shape[1])), np.full(len(chosen), k, dtype=np.intp)

"""A posterior of f whose mean is monotone in some inputs: slopes are given where the mean would fall.

A fall is where the slope of the mean of f has the wrong sign. Points of falls are collected in rounds. Slopes are given
at those points that keep the others monotone, until copies of rows with another value of the input are in order. The
mean is then the nearest monotone function in the norm of the prior. Factors Φ(slope/ν) of Riihimäki & Vehtari (2010)
instead make f steep where data are rare (docs/how-to/monotone-effects.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.arrays import Array
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.protocol import IntegratesLatent
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.slopes import RISE, WIDTH, GivenSlopes, SlopeCovariances, Slopes

ALLOWED = 1e-3  # largest fall of the mean along an input, in standard deviations of the targets
_ROUNDS = 30  # largest number, in which points are collected,
_CALM = 2  # consecutive rounds without falls that end the search
_MOST = 32  # largest number of points for each input and round,
_APART = 0.3  # smallest distance between them, in standard deviations of the inputs
_BEYOND = 0.1  # share of the range of an input by which copies extend beyond it
_LEVELS = 8  # values of the input in the copies of a row,
_COPIES = 4000  # number of copies, new ones in each round


class Monotone(NamedTuple):
    """A fit with its posteriors given slopes, these slopes, and the largest remaining fall."""

    fitted: Fitted
    slopes: Slopes
    fall: float


def solve_monotone(problem: Problem, fitted: Fitted, latent: IntegratesLatent, slopes: Slopes) -> Monotone:
    """Add slopes until the mean of f is monotone, the same at all points of the hyperparameters."""
    rng, candidates, calm, searched = np.random.default_rng(0), slopes, 0, fitted.converged
    if len(slopes.X):
        fitted, slopes = _given_some(problem, fitted, latent, candidates)
    for last in range(_ROUNDS + 1):
        fall, X, inputs = _falls(GivenSlopes.of(problem, slopes), fitted, slopes.signs, rng)
        calm = calm + 1 if fall <= ALLOWED else 0
        if calm == _CALM or last == _ROUNDS:
            break
        if calm == 0:
            candidates = candidates.joined(X, inputs)
            fitted, slopes = _given_some(problem, fitted, latent, candidates)
    converged = searched and all(posterior.converged for posterior in fitted.posteriors)  # of the last round
    return Monotone(replace(fitted, converged=converged), slopes, fall)


def _given_some(
    problem: Problem, fitted: Fitted, latent: IntegratesLatent, candidates: Slopes
) -> tuple[Fitted, Slopes]:
    """Return the fit given the slopes that keep all candidates monotone at one of the points, and these slopes."""
    members = list(zip(fitted.points, fitted.posteriors, strict=True))
    slopes = candidates.taken(np.any([_holding(problem, *member, candidates) for member in members], axis=0))
    given, found = GivenSlopes.of(problem, slopes), []
    for point, old in members:
        K, mean, noise = given.dense_at(point)
        sites = np.stack([old.dual_coef, old.site_precision])
        found.append(latent.solve(K, problem.targets, noise, mean, sites))
    return fitted.updated(found, latent), slopes


def _holding(problem: Problem, point: Point, found: LatentPosterior, slopes: Slopes) -> NDArray[np.bool_]:
    """Return which slopes to give so that the means of all are at least `RISE`, given the sites of the rows.

    Without given slopes, they have the mean h and the covariance S. Forces λ >= 0 with the least λᵀSλ raise the means
    to h + S·λ >= RISE; a slope with λ = 0 is not given.
    """
    K, mean, _ = problem.dense_at(point)
    of_slopes, factor = SlopeCovariances(problem, point, slopes), K.factor(found.site_precision)
    cross, place = of_slopes.with_values(problem.inputs), factor.points
    dual = found.dual_coef + found.site_precision * (found.mean - mean)
    dual[place] -= factor.solve(K.matvec(dual)[None, place])[0]
    S = of_slopes.with_slopes(noise=WIDTH**2) - factor.explained_together(cross[:, place])
    L = cholesky(S, lower=True)
    force, _ = nnls(L.T, solve_triangular(L, RISE - cross @ dual, lower=True), maxiter=10 * len(L))
    return force > 0.0


def _falls(
    problem: Problem, fitted: Fitted, signs: Array, rng: np.random.Generator
) -> tuple[float, Array, NDArray[np.intp]]:
    """Return the largest fall of the mean of f along copies of rows, and points (m, d), inputs (m,) of steep falls.

    Half of the rows are training rows; the others combine inputs of different rows. The copies of a row have ascending
    values of one input, from the data or uniform in their range and a little beyond.
    """
    rows, d = problem.inputs[np.lexsort(problem.inputs.T)], signs.size  # in any order the same copies
    worst, X, inputs = 0.0, [np.empty((0, d))], [np.empty(0, dtype=np.intp)]
    for k in np.flatnonzero(signs).tolist():
        shape = _COPIES // _LEVELS, _LEVELS
        of_input = rng.integers(len(rows), size=(shape[0], d))
        of_input[::2] = of_input[::2, :1]
        base = rows[of_input, np.arange(d)]
        known = rows[rng.integers(len(rows), size=shape), k]
        margin = _BEYOND * np.ptp(rows[:, k])
        uniform = rng.uniform(rows[:, k].min() - margin, rows[:, k].max() + margin, shape)
        level = np.sort(np.where(rng.random(shape) < 0.5, known, uniform), axis=1)
        copies = np.repeat(base, _LEVELS, axis=0)
        copies[:, k] = level.ravel()
        f = signs[k] * _mean(problem, fitted, copies).reshape(shape)
        worst = max(worst, float((np.maximum.accumulate(f, axis=1) - f).max()))
        steep, chosen = _steepest(base, k, level, f)
        X.append(steep)
        inputs.append(chosen)
    return worst, np.concatenate(X), np.concatenate(inputs)


def _mean(problem: Problem, fitted: Fitted, X: Array) -> Array:
    """Return the mean of f at inputs, over the points of the hyperparameters."""
    members = zip(fitted.weights, fitted.points, fitted.posteriors, strict=True)
    each = [w * posterior.predict(*problem.cross(point, X))[0] for w, point, posterior in members if w > 0.0]
    return np.sum(each, axis=0)


def _steepest(base: Array, k: int, level: Array, f: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return midpoints of the steepest falls between neighbouring copies of rows, at least `_APART` apart."""
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

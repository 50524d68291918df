"""A posterior of f whose mean is monotone in some inputs: slopes are given where the mean would fall.

The slope ∂f/∂t of a process is Gaussian together with f (Riihimäki & Vehtari 2010), as is its slope between two near
points, whose covariances are differences of the kernel. Here t is an input on the scale of the kernel: an increasing
function of the input, so both slopes have the same sign. Given slopes, the prior of f is another Gaussian process, and
all methods run on it.

A fall is where the slope of the mean of f has the wrong sign. Points of falls are collected in rounds. Slopes are given
at those points that keep the others monotone, until copies of rows with another value of the input are in order. The
mean is then the nearest monotone function in the norm of the prior. Factors Φ(slope/ν) of Riihimäki & Vehtari instead
make f steep where data are rare (docs/how-to/monotone-effects.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.gp.cov import BaseCovariance
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from bsvr_pp.core.approximations import Covariance, LatentPosterior
from bsvr_pp.core.arrays import Array, Tensor, check_fields, numbers
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.protocol import IntegratesLatent
from bsvr_pp.model.compiled import quick
from bsvr_pp.model.gp import localize
from bsvr_pp.model.inputs import Warped, WithLevels
from bsvr_pp.model.problem import Point, Problem

SMOOTH_KERNELS = "main_effects", "rational_quadratic", "rbf", "matern32", "matern52"  # with slopes of f
WIDTH = 1e-2  # standard deviation of a given slope, per unit of the targets and of the input
RISE = 2e-2  # its value: at 0, the mean falls slightly between the points, and many neighbours are needed
STEP = 2e-2  # distance of both sides of a slope from its point; below, rounding errors matter beside WIDTH
ALLOWED = 1e-3  # largest fall of the mean along an input, in standard deviations of the targets
_ROUNDS = 30  # largest number, in which points are collected,
_CALM = 2  # consecutive rounds without falls that end the search
_MOST = 32  # largest number of points for each input and round,
_APART = 0.3  # smallest distance between them, in standard deviations of the inputs
_BEYOND = 0.1  # share of the range of an input by which copies extend beyond it
_LEVELS = 8  # values of the input in the copies of a row,
_COPIES = 4000  # number of copies, new ones in each round


@dataclass(frozen=True, eq=False)
class Slopes:
    """Points at which the slope of f along an input, times its required sign, is `RISE`.

    ``signs`` (d,) has the sign of each input, 0 for none; ``inputs`` (m,) has the input of each slope.
    """

    signs: Array
    X: Array  # (m, d)
    inputs: NDArray[np.intp]

    @classmethod
    def none(cls, signs: Array) -> Self:
        """Return an empty set of slopes."""
        return cls(signs, np.empty((0, signs.size)), np.empty(0, dtype=np.intp))

    def joined(self, X: Array, inputs: NDArray[np.intp]) -> Self:
        """Return these and further slopes."""
        return replace(self, X=np.concatenate([self.X, X]), inputs=np.append(self.inputs, inputs))

    def taken(self, kept: NDArray[np.bool_]) -> Self:
        """Return some of the slopes."""
        return replace(self, X=self.X[kept], inputs=self.inputs[kept])

    def dataset(self) -> xr.Dataset:
        """Return the points as a group of a result."""
        return xr.Dataset({"points": (("slope", "input"), self.X), "inputs": ("slope", self.inputs)})

    def read(self, held: xr.Dataset) -> Self:
        """Return these and the checked slopes of a group of a result."""
        given = check_fields("slopes of result", {str(k): v.values for k, v in held.items()}, ("points", "inputs"))
        X = numbers("points of result", given["points"], ("m", self.signs.size))
        inputs = numbers("inputs of result", given["inputs"], (len(X),)).astype(np.intp)
        if not np.isin(inputs, np.flatnonzero(self.signs)).all():
            raise ValueError(f"slopes of result must be along inputs with a sign, got {inputs.tolist()}: it is damaged")
        return self.joined(X, inputs)


class SlopeCovariances:
    """Covariances of given slopes with f and with one another, at given hyperparameters.

    A slope is the difference of f at both sides of its point, divided by that of the scale of the kernel.
    """

    def __init__(self, problem: Problem, point: Mapping[str, ArrayLike], slopes: Slopes) -> None:
        self._problem, self._point, self._count = problem, point, len(slopes.X)
        step = STEP * np.eye(slopes.signs.size)[slopes.inputs]
        self._sides = np.concatenate([slopes.X + step, slopes.X - step])
        model, kernel = problem.model, problem.prior.cov_func
        (scaled,) = problem.evaluate("scale", lambda X: [localize(_on_scale(kernel, X), model)], point, self._sides)
        rise = self._differences(scaled)[np.arange(self._count), slopes.inputs]
        self._weight = (slopes.signs[slopes.inputs] / rise)[:, None]

    def _differences(self, of_sides: Array) -> Array:
        return of_sides[: self._count] - of_sides[self._count :]

    def with_values(self, X: Array) -> Array:
        """Return the covariance (m, n) with f at inputs (n, d)."""
        model, kernel = self._problem.model, self._problem.prior.cov_func
        (covariance,) = self._problem.evaluate(
            "pairs", lambda U, V: [quick(localize(kernel(U, V), model))], self._point, self._sides, X
        )
        return self._weight * self._differences(covariance)

    def with_slopes(self, noise: float = 0.0) -> Array:
        """Return the covariance (m, m) of the slopes, and of independent noise."""
        found = self._weight * self._differences(self.with_values(self._sides).T)
        return 0.5 * (found + found.T) + noise * np.eye(self._count)  # equal but for rounding errors


def _on_scale(kernel: BaseCovariance, X: Tensor) -> Tensor:
    """Return inputs on the scale of the kernel of a default model, which a constant is added to."""
    if isinstance(kernel, pm.gp.cov.Add):
        kernel = kernel._factor_list[0]
    while isinstance(kernel, Warped | WithLevels):
        X, kernel = kernel.w(X, kernel.args), kernel.cov_func
    return X


@dataclass(frozen=True, eq=False)
class GivenSlopes(Problem):
    """A dense problem with a prior of f given slopes, which has another covariance and mean."""

    slopes: Slopes | None = None

    @classmethod
    def of(cls, problem: Problem, slopes: Slopes | None) -> Problem:
        """Return the problem given slopes; unchanged without slopes."""
        if slopes is None or not len(slopes.X):
            return problem
        kept = {each.name: getattr(problem, each.name) for each in fields(Problem) if not each.name.startswith("_")}
        return cls(**kept, slopes=slopes)

    def _explained(self, point: Mapping[str, ArrayLike], X: Array) -> tuple[Array, Array]:
        """Return a root (n, m) of the reduction of the covariance at inputs by the slopes, and a mean shift (n,)."""
        assert self.slopes is not None
        given = SlopeCovariances(self, point, self.slopes)
        L = cholesky(given.with_slopes(noise=WIDTH**2), lower=True)
        root = solve_triangular(L, given.with_values(X), lower=True).T
        return root, root @ solve_triangular(L, np.full(len(L), RISE), lower=True)

    def _of_rows_at(self, point: Mapping[str, ArrayLike]) -> tuple[Array, Array]:
        key = "explained", *(np.asarray(point[name], dtype=np.float64).tobytes() for name in self.hyperparameters)
        return self.cached(key, lambda: self._explained(point, self.inputs))

    def dense_at(self, point: Mapping[str, ArrayLike]) -> tuple[Covariance, Array, NoiseModel]:
        """Compute as `Problem` does."""
        K, mean, noise = super().dense_at(point)
        root, more = self._of_rows_at(point)
        return Covariance(K.dense() - root @ root.T, jitter=self.prior.jitter), mean + more, noise

    def mean_at(self, point: Mapping[str, ArrayLike]) -> Array:
        """Compute as `Problem` does."""
        return super().mean_at(point) + self._of_rows_at(point)[1]

    def cross(self, point: Mapping[str, ArrayLike], X_new: Array) -> tuple[Array, Array, Array]:
        """Compute as `Problem` does."""
        K_star, diagonal, mean = super().cross(point, X_new)
        old, (new, more) = self._of_rows_at(point)[0], self._explained(point, X_new)
        return K_star - new @ old.T, diagonal - (new * new).sum(axis=1), mean + more

    def between(self, point: Mapping[str, ArrayLike], X: Array, training: int = 0) -> Covariance:
        """Compute as `Problem` does."""
        root = self._explained(point, X)[0]
        return Covariance(super().between(point, X, training).dense() - root @ root.T)

    def prior_of_each(self, point: Mapping[str, ArrayLike], X: Array) -> tuple[Array, Array]:
        """Refuse fits on nearest rows, which have no slopes."""
        raise ValueError("fits on nearest rows take no slopes: use blocks=None")


def solve_monotone(
    problem: Problem, fitted: Fitted, latent: IntegratesLatent, slopes: Slopes
) -> tuple[Fitted, Slopes, float]:
    """Add slopes until the mean of f is monotone, the same at all points of the hyperparameters.

    Return the fit with its posteriors given slopes, these slopes, and the largest remaining fall.
    """
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
    return replace(fitted, converged=converged), slopes, fall


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

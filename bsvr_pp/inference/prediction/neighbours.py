"""Nearest training rows of new inputs: a fit of f on these rows alone, and scales of the noise weighted by them.

Distances are computed in a k-d tree on the inputs in units of their lengthscales. For a kernel without lengthscales, a
dense fit uses the prior variance of differences of f, and blocks use the standard deviations of the inputs. Fits start
from the sites of small blocks, in which all rows are solved once (`solved_rows`). Their cavities give the density of
each row given the others, which shows whether the noise near an input is wider or narrower than elsewhere.
docs/explanation/blocks.md describes the mixture of scales. If a third or more of the targets have one value, or the
noise is skewed, each scale has an offset, the mean residual of its rows. Predictions then have the mean of the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.special import log_softmax, logsumexp

from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.approximations.mean_field import MISMATCH, NearestMoments, mean_field, nearest_moments
from bsvr_pp.core.arrays import Array, Mask, Rows, check_fields, check_positive, is_number, numbers, warn
from bsvr_pp.core.covariance.covariance import each_block, scatter
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import widen
from bsvr_pp.inference.protocol import warn_unconverged
from bsvr_pp.inference.search.starts import lengthscales
from bsvr_pp.model.blocks import local_blocks
from bsvr_pp.model.priors import mostly_equal
from bsvr_pp.model.problem import Point, Problem

_SMALL = 256  # rows of a small block: as cheap as fewer rows, with densities as good as from separate fits
_ENTRIES = 65536  # number of entries of the covariances that are computed together; they fit into the cache
_TREE = 200_000  # largest number of rows of a tree for training rows,
_FLAT = 30  # and number of inputs above which all distances are faster than a tree

_FACTORS: Array = 2.0 ** np.arange(-4.0, 7.0)
_WIDE: Array = 2.0 ** np.arange(0.0, 14.0)  # where a fit has no noise left, since it has as many inputs as rows
_SHARED = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_ROWS = 2000  # training rows from which the weights are learned,
_PRIOR, _LEAST = 10.0, 0.1  # prior numbers of rows for the noise of the model itself, and for each other scale,
_RARE = 1e-3  # and mean probability below which a scale is left out
_NONE = 1e-5  # probability at an input that counts as 0
_TINY, _LOWEST = 1e-300, -300.0  # smallest weight, and smallest log of a density or share relative to the largest
_NEAREST = 64  # nearest rows whose densities are used
_WORTH = 0.05  # nats a row that justify more rows in predictions,
_GOLDEN = 0.5 * (5.0**0.5 - 1.0)  # turn after which the numbers of the first rows are even, however many they are
_COST = 1.4  # and power of their number that reduces the rows compared
_BIASED = 2.0  # standard errors by which the mean of targets must be missed
_CLEAR = 2.0  # nats of all rows that several scales must gain where rows are left out
_TURNS = 8  # of computing weights and offsets
_FAR, _NARROW = 0.125, 0.9  # share of the precision of this quantile of the rows, below which the noise is far wider


class SolvedRows(NamedTuple):
    """Rows solved in small blocks: sites (ν, τ), and moments given the others, each (n,); the prior if that failed."""

    site_location: Array  # precision times location, ν
    site_precision: Array
    cavity_mean: Array
    cavity_variance: Array


Cavities = SolvedRows | LatentPosterior  # moments of f at each row given the others


@dataclass(frozen=True)
class NoiseScales:
    """Scales of the noise and their probabilities, as `choose_neighbours` finds them."""

    factors: Array  # (s,), of the width of the noise
    weights: Array  # (s,), without the neighbours' densities; the sum is one
    shared: float  # effective number of rows of a neighbourhood whose densities weigh the scales
    offsets: ArrayLike = 0.0  # (s,), mean of the noise of each scale, on the scale of the model's targets
    densities: Array | None = field(default=None, repr=False)  # (n, s), log densities of the rows given the others

    def __post_init__(self) -> None:
        factors = numbers("factors", self.factors, ("s",))
        check_positive("factors", factors)
        check_positive("weights", numbers("weights", self.weights, (factors.size,)))
        offsets = np.full(factors.size, self.offsets) if np.ndim(self.offsets) == 0 else self.offsets
        object.__setattr__(self, "offsets", numbers("offsets", offsets, (factors.size,)))
        if not (is_number(self.shared) and self.shared >= 0):
            raise ValueError(f"shared must be a number of at least 0, got {self.shared!r}")

    @classmethod
    def one(cls) -> NoiseScales:
        """Return the noise of the model alone."""
        return NoiseScales(np.ones(1), np.ones(1), 0.0)

    @property
    def several(self) -> bool:
        """Whether there is other noise than the model's."""
        return self.factors.size > 1 or bool(self.factors[0] != 1.0) or bool(np.any(self.offsets))

    def at(self, log_density: Array) -> Array:
        """Return probabilities (s, n_new) of the scales by mean log densities (n_new, s) of nearest rows, if finite."""
        known = np.where(np.isfinite(log_density).all(axis=1, keepdims=True), log_density, 0.0)
        probability = np.exp(log_softmax(np.log(self.weights) + self.shared * known, axis=1)).T
        probability[probability < _NONE] = 0.0
        return np.asarray(probability / probability.sum(axis=0))

    def near(self, rows: Rows) -> Array:
        """Return the mean log densities (n_new, s) of nearest rows (n_new, k), of the first 64; zeros if not known."""
        if self.densities is None or not self.several:
            return np.zeros((len(rows), self.factors.size))
        return np.asarray(self.densities[rows[:, :_NEAREST]].mean(axis=1))

    def of_rows(self, problem: Problem, point: Point, posterior: Cavities) -> NoiseScales:
        """Return the same with the densities of the rows."""
        return replace(self, densities=densities_of_rows(problem, point, posterior, self.factors))

    def record(self) -> dict[str, float | list[float]]:
        """Return the scales as plain data."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in ("factors", "weights", "offsets")}
        return {**arrays, "shared": float(self.shared)}

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Self:
        """Make the scales from `record`."""
        arrays = ("factors", "weights", "offsets")
        found = check_fields("noise scales", record, (*arrays, "shared"))
        factors, weights, offsets = (np.array(found[name]) for name in arrays)
        return cls(factors, weights, float(found["shared"]), offsets)


_EVERY = NoiseScales(_FACTORS, np.ones(_FACTORS.size), 0.0)


class RowScales(NamedTuple):
    """Scales of the noise; for each row (n,) its log density given the others, and E[1/scale] given all targets."""

    scales: NoiseScales
    log_density: Array
    precision: Array


class OtherRows(NamedTuple):
    """Rows that do not determine f, but are used for the scales of the noise."""

    X: Array
    y: Array
    weight: Array


def choose_neighbours(
    problem: Problem,
    point: Point,
    counts: Sequence[int],
    rng: np.random.Generator,
    progressbar: bool = False,
    far: OtherRows | None = None,
) -> tuple[int, NoiseScales]:
    """Increase ``counts`` while random rows gain 0.05 nats each; learn scales of the noise."""
    n = problem.targets.size
    rows, best = rng.choice(n, min(_ROWS, n), replace=False), counts[0]
    if mostly_equal(problem.targets):  # the first rows have the mean of all targets, which a few rows learn
        turned = (rng.random() + _GOLDEN * np.arange(n)) % 1.0
        rows = np.argsort(problem.targets, kind="stable")[np.argsort(turned)[: rows.size]]
    order = rng.permutation(0 if far is None else len(far.y))

    def scales_of(rows: Rows, count: int) -> RowScales:
        some = order[: ceil(order.size * rows.size / n)]  # the same share of them
        others = None if far is None else OtherRows(*(values[some] for values in far))
        return _scales_of(problem, point, rows, count, progressbar, others)

    known = scales_of(rows, best)
    for count in counts[1:]:
        rows = rows[: ceil(rows.size * (best / count) ** _COST)]
        found = scales_of(rows, count)
        gain = found.log_density[: rows.size] - known.log_density[: rows.size]
        if not np.nanmean(gain) > _WORTH:
            break
        best, known = count, found
    return best, known.scales


def _scales_of(
    problem: Problem, point: Point, rows: Rows, neighbours: int, progressbar: bool, far: OtherRows | None = None
) -> RowScales:
    """Learn the scales from some training rows, each given its nearest other rows, and from ``far`` ones."""
    near = nearest_others(problem, point, rows, neighbours)
    progress = f"scales of the noise, {neighbours} rows" if progressbar else ""
    weight = np.broadcast_to(problem.noise_of_rows(point).weight, problem.targets.size)
    X, y, weight = problem.inputs[rows], problem.targets[rows], weight[rows]
    if far is not None:
        near = np.vstack([near, nearest_rows(problem, point, far.X, near.shape[1])])
        X, y, weight = np.vstack([X, far.X]), np.append(y, far.y), np.append(weight, far.weight)
    used, place = np.unique(near, return_inverse=True)
    solved = SolvedRows(*(each[used] for each in solved_rows(problem, point)))
    every = _EVERY.of_rows(problem.take(used), point, solved)
    mean, variance = moments_given(problem, point, X, near, progress)
    return _learned(mean, variance, problem.noise_at(point).at(rows), y, every.near(place.reshape(near.shape)), weight)


def scales_of_posterior(
    problem: Problem, point: Point, posterior: LatentPosterior, weight: Array, *far: Array, means: bool = True
) -> RowScales:
    """Learn scales of the noise from the cavities of all rows, followed by rows ``far``, which do not determine f.

    With ``means`` the scales may have offsets.
    """
    n, noise = problem.targets.size, problem.noise_at(point)
    every = _EVERY.of_rows(problem, point, posterior)
    near = every.near(nearest_others(problem, point, np.arange(n), few(n)))
    mean, variance, y = posterior.cavity_mean, np.maximum(posterior.cavity_variance, 0.0), problem.targets
    if len(far[0]):
        near = np.vstack([near, every.near(nearest_rows(problem, point, far[0], few(n)))])
        moments = posterior.predict(*problem.cross(point, far[0]))
        mean, variance = (np.append(*each) for each in zip((mean, variance), moments, strict=True))
        y, weight = np.append(y, far[1]), np.append(weight, far[2])
    return _learned(mean, variance, noise, y, near, weight, means)


def scales_of_left_out(mean: Array, variance: Array, noise: NoiseModel, targets: Array, weight: Array) -> NoiseScales:
    """Learn scales of the noise from rows (n,) at which fits without them have these moments of f, if one is less."""
    own = _densities(mean, variance, noise, targets, _WIDE)
    found = _weigh(own, np.zeros_like(own), weight, NoiseScales(_WIDE, np.ones(_WIDE.size), 0.0)).weights
    gain = weight @ (logsumexp(np.log(found) + own, axis=1) - own[:, _WIDE == 1.0].ravel())
    kept = (_WIDE == 1.0) if gain < _CLEAR else found * weight.sum() >= 1.0  # of one row at least
    return NoiseScales(_WIDE[kept], found[kept] / found[kept].sum(), 0.0)


def precision_of_rows(problem: Problem, point: Point, posterior: Cavities, scales: NoiseScales) -> Array:
    """Return the mean (n,) of 1/scale of the noise of each row given the others, by its own density alone."""
    joint = np.log(scales.weights) + densities_of_rows(problem, point, posterior, scales.factors)
    return _precision(joint, scales.factors)


def densities_of_rows(problem: Problem, point: Point, posterior: Cavities, factors: Array) -> Array:
    """Return the log density (n, s) of each row given the others, if the noise were wider by each factor."""
    variance = np.maximum(posterior.cavity_variance, 0.0)
    return _densities(posterior.cavity_mean, variance, problem.noise_at(point), problem.targets, factors)


def _densities(
    mean: Array, variance: Array, noise: NoiseModel, targets: Array, factors: Array, offsets: ArrayLike = 0.0
) -> Array:
    """Return the log densities (n, s) of targets for f of given moments; NaN where these are not finite."""
    out = np.full((mean.size, factors.size), np.nan)
    known = np.isfinite(mean + variance)
    y, m, v = targets[known], mean[known], variance[known]
    for i, (factor, offset) in enumerate(zip(factors, np.broadcast_to(offsets, factors.shape), strict=True)):
        out[known, i] = widen(noise.at(known), factor).predictive_log_density(y - offset, m, v)
    return out


def few(n: int) -> int:
    """Return the number of nearest rows whose densities are compared if one posterior has all n rows."""
    return min(_NEAREST, n // 4)


def _learned(
    mean: Array,
    variance: Array,
    noise: NoiseModel,
    targets: Array,
    of_others: Array,
    weight: Array,
    means: bool = True,
) -> RowScales:
    """Find the scales that maximise the log density of rows; ``of_others`` (n, s) is the mean over near rows.

    With ``means`` they have offsets if f follows a frequent value or the noise is skewed.
    """
    own = _densities(mean, variance, noise, targets, _FACTORS)
    solved, offsets = np.isfinite(own + of_others).all(axis=1), np.zeros(_FACTORS.size)
    every = _weigh(own[solved], of_others[solved], weight[solved])
    residual = np.where(solved, targets - mean, 0.0)
    means &= "quantile" not in noise.parameters and bool(solved.any())  # f is the median, or a quantile
    if means and not mostly_equal(targets, weight):
        precision = _precision(np.log(every.weights) + own[solved], _FACTORS)
        means = _leans((residual - noise.mean)[solved], weight[solved], precision)
    for _ in range(_TURNS if means else 0):
        joint = np.log(every.at(of_others).T + _TINY) + own
        share = np.where(solved, weight * np.exp(joint - logsumexp(joint, axis=1, keepdims=True)).T, 0.0)
        offsets = share @ residual / np.maximum(share.sum(axis=1), _TINY)
        own = _densities(mean, variance, noise, targets, _FACTORS, offsets)
        every = _weigh(own[solved], of_others[solved], weight[solved], every)
    probable = every.at(np.vstack([of_others[solved], np.zeros(_FACTORS.size)])).mean(axis=1) >= _RARE
    weights = every.weights[probable] / every.weights[probable].sum()
    scales = NoiseScales(_FACTORS[probable], weights, every.shared, offsets[probable])
    with np.errstate(divide="ignore"):
        joint = np.log(scales.at(of_others[:, probable]).T) + own[:, probable]
    log_density = np.where(solved, logsumexp(joint, axis=1), np.nan)
    return RowScales(scales, log_density, _precision(joint, scales.factors))


def _precision(joint: Array, factors: Array) -> Array:
    """Return the mean (n,) of 1/scale by log densities (n, s) of rows and scales together."""
    return np.exp(log_softmax(joint, axis=1)) @ (1.0 / factors)


def is_far(precision: Array) -> Mask:
    """Return which rows have far wider noise than most, by the mean of 1/scale."""
    return ~(precision >= _FAR * np.quantile(precision, _NARROW))


def _leans(residual: Array, weight: Array, precision: Array) -> bool:
    """Return whether most residuals lean to the same side as all, as in skewed noise, and not by errors on one side."""
    near = ~is_far(precision)
    same = (weight @ residual) * (weight[near] @ residual[near]) > 0.0
    return bool(same) and is_biased(residual[near], weight[near])


def is_biased(residual: Array, weight: Array, errors: float = _BIASED) -> bool:
    """Return whether residuals (n,) from the mean given the others are far from 0, in standard errors of their mean."""
    return abs(float(weight @ residual)) > errors * float(residual.std()) * float(weight.sum()) ** 0.5


def _weigh(known: Array, given: Array, times: Array, before: NoiseScales | None = None) -> NoiseScales:
    """Find weights of all scales, from any ``before``, and how far neighbours share them, by log densities (n, s)."""
    prior = np.where(_FACTORS == 1.0, _PRIOR, _LEAST) if before is None else np.full(before.weights.size, _LEAST)
    start = np.log(prior if before is None else before.weights)
    densities, of_others = (each - each.max(axis=1, keepdims=True) for each in (known, given))
    likelihood = np.exp(np.maximum(densities, _LOWEST))

    def loss(logits: Array, shares: Array) -> tuple[float, Array]:
        """Return minus the log density of the rows and the log prior, and the gradient."""
        log_weights = log_softmax(logits)
        chosen = shares * np.exp(log_weights)
        chosen /= chosen.sum(axis=1, keepdims=True)
        joint = chosen * likelihood
        total = joint.sum(axis=1)
        gradient = times @ (joint / total[:, None] - chosen) + prior - prior.sum() * np.exp(log_weights)
        return -float(times @ np.log(total) + prior @ log_weights), -gradient

    shares = [np.exp(np.maximum(shared * of_others, _LOWEST)) for shared in _SHARED]
    found = [minimize(loss, start, args=(each,), jac=True, method="L-BFGS-B") for each in shares]
    best = int(np.argmin([each.fun for each in found]))
    factors = _FACTORS if before is None else before.factors
    return NoiseScales(factors, np.maximum(np.exp(log_softmax(found[best].x)), _TINY), _SHARED[best])


def solved_rows(problem: Problem, point: Point, progress: str = "", known: Array | None = None) -> SolvedRows:
    """Solve all rows by mean field in small blocks, cut at the lengthscales, unless their columns (n, 4) are known."""

    def solve() -> SolvedRows:
        if known is not None:
            return SolvedRows(*known.T)
        unit, every, small = lengthscales(problem, point), np.arange(problem.targets.size), list[Rows]()
        for block in range(len(problem.blocks)):
            rows = every[problem.blocks.rows(block)]
            blocks = local_blocks(problem.inputs[rows], _SMALL, lengthscale=unit, random_seed=0)
            small += [rows[blocks.rows(i)] for i in range(len(blocks))]

        def of_block(i: int) -> Array:
            part = problem.take(small[i])
            K, mean, noise = part.dense_at(point)
            found = mean_field(K, part.targets, noise, mean=mean, mismatch=MISMATCH)
            if not found.converged:
                return np.column_stack([np.zeros(mean.size), np.zeros(mean.size), mean, K.diag])
            precision = found.site_precision
            location = found.dual_coef + precision * (found.mean - mean)
            return np.column_stack([location, precision, found.cavity_mean, found.cavity_variance])

        return SolvedRows(*scatter(small, each_block(of_block, len(small), progress)).T)

    return problem.cached(("solved", *(np.asarray(value).tobytes() for value in point.values())), solve)


def moments_given(problem: Problem, point: Point, X: Array, near: Rows, progress: str = "") -> tuple[Array, Array]:
    """Return the mean and variance (m,) of f by mean field on rows ``near`` (m, k)."""
    count = near.shape[1]
    noise, solved = problem.noise_of_rows(point), solved_rows(problem, point, progress)
    size = max(1, _ENTRIES // count**2)

    def of_group(i: int) -> NearestMoments:
        new = slice(i * size, (i + 1) * size)
        rows = near[new]
        K, mean = problem.prior_of_each(point, np.concatenate([X[new, None], problem.inputs[rows]], axis=1))
        each, start = noise.at(rows.ravel()), np.stack([site[rows] for site in solved[:2]], axis=1)
        return nearest_moments(K, mean, problem.targets[rows], each, jitter=problem.prior.jitter, start=start)

    parts = each_block(of_group, -(-len(X) // size), progress)
    mean, variance, converged = (np.concatenate(each) for each in zip(*parts, strict=True))
    alone = _open_ends(problem)[:, near].all(axis=2).any(axis=0)
    if alone.any():
        warn(
            f"all {count} nearest rows of {alone.sum()} of {len(X)} new inputs are censored on one side, and f is "
            "little more than its prior there: give more neighbours"
        )
    if not converged.all():
        bad = len(X) - np.count_nonzero(converged)
        warn_unconverged(f"mean field on the {count} nearest rows did not converge for {bad} of {len(X)} new inputs")
    return mean, variance


def nearest_rows(problem: Problem, point: Point, X: Array, count: int) -> Rows:
    """Return numbers of the training rows nearest to each input; at most ``count`` or all, and `with_uncensored`."""
    near = _nearest(problem, point, X, count, np.arange(problem.targets.size))
    censored = _open_ends(problem).any(axis=0)
    return with_uncensored(near, censored, some_uncensored(censored, count), partial(_nearest, problem, point, X))


def some_uncensored(censored: Mask, count: int) -> Rows:
    """Return numbers of twice as many rows, far and near, that are not censored; none if none is censored."""
    some = np.flatnonzero(~censored) if censored.any() else np.zeros(0, dtype=np.int64)
    return np.random.default_rng(0).permutation(some)[: 2 * count]


def with_uncensored(near: Rows, censored: Mask, spread: Rows, nearest: Callable[[int, Rows], Rows]) -> Rows:
    """Return near rows (m, k), half of them rows of ``spread`` where most are censored: f would be arbitrary there."""
    half = max(1, near.shape[1] // 2)
    if spread.size < half:
        return near
    others, row = nearest(half, np.sort(spread)), np.arange(len(near))[:, None] * censored.size
    last = np.where(np.isin(row + others, row + near), near[:, -half:], others)
    mostly = censored[near].mean(axis=1, keepdims=True) > 0.5
    return np.hstack([near[:, :-half], np.where(mostly, last, near[:, -half:])])


def _open_ends(problem: Problem) -> NDArray[np.bool_]:
    """Return which ends of the targets are infinite, (2, n); (0, n) if the targets have no ends."""
    none = np.empty((0, problem.targets.size))
    return problem.cached("open ends", lambda: np.isinf([*problem.given_ends().values()] or none))


def _nearest(problem: Problem, point: Point, X: Array, count: int, rows: Rows) -> Rows:
    """Return numbers of the rows, of some ascending ones, nearest to each input, nearest first."""
    apart, unit = _apart(problem, point, X), _unit(problem, point)
    if apart is not None:
        return np.asarray(rows[np.argsort(apart[:, rows], axis=1, kind="stable")[:, :count]])
    search = problem.cached(("search", rows.size, *unit.tolist()), lambda: search_in(problem.inputs[rows] / unit))
    return np.asarray(rows[search(X / unit, min(count, rows.size))[1]])


def search_in(inputs: Array) -> Callable[[Array, int], tuple[Array, Rows]]:
    """Return the search for the nearest inputs: distances and numbers (m, count) for Z (m, d), nearest first."""
    if inputs.shape[1] > _FLAT:
        from sklearn.neighbors import NearestNeighbors  # slow to import

        return cast(Callable[..., tuple[Array, Rows]], NearestNeighbors(algorithm="brute").fit(inputs).kneighbors)
    tree = cKDTree(inputs)
    return lambda Z, count: tree.query(Z, k=np.arange(1, count + 1))


def nearest_others(problem: Problem, point: Point, rows: Rows, count: int) -> Rows:
    """Return numbers of the nearest training rows of some training rows, without the row itself."""
    unit, n = _unit(problem, point), problem.targets.size
    count, parts = min(count, n - 1), range(0, n, _TREE)  # one tree of all rows would have to be in memory
    apart = _apart(problem, point, problem.inputs[rows])
    if apart is not None:
        apart[np.arange(rows.size), rows] = np.inf
        return np.argsort(apart, axis=1, kind="stable")[:, :count]
    scaled = ((np.arange(at, min(at + _TREE, n)), problem.inputs[at : at + _TREE] / unit) for at in parts)
    _, near = nearest_in(scaled, problem.inputs[rows] / unit, count + 1)
    # Among many equal rows the row itself may be missing: then the last one is left out.
    other = near != rows[:, None]
    other[other.all(axis=1), -1] = False
    return near[other].reshape(rows.size, count)


def nearest_in(parts: Iterable[tuple[Rows, Array]], Z: Array, count: int) -> tuple[Array, Rows]:
    """Return distances and numbers (m, count) of the rows nearest to Z (m, d), among parts (numbers, inputs)."""
    distance, near = np.empty((len(Z), 0)), np.empty((len(Z), 0), dtype=np.int64)
    for of_rows, inputs in parts:
        found = search_in(inputs)(Z, min(count, len(inputs)))
        distance, near = np.hstack([distance, found[0]]), np.hstack([near, of_rows[found[1]]])
        kept = np.argsort(distance, axis=1, kind="stable")[:, :count]
        distance, near = np.take_along_axis(distance, kept, axis=1), np.take_along_axis(near, kept, axis=1)
    return distance, near


def _apart(problem: Problem, point: Point, X: Array) -> Array | None:
    """Return prior variances (m, n) of differences of f, up to a term per input; None with blocks or lengthscales."""
    if problem.composite is not None or problem.blocks.several or lengthscales(problem, point) is not None:
        return None
    return np.asarray(problem.cross(point, problem.inputs)[1] - 2.0 * problem.cross(point, X)[0])


def _unit(problem: Problem, point: Point) -> Array:
    unit = lengthscales(problem, point)
    return np.where(np.ptp(problem.inputs, axis=0) > 0, problem.inputs.std(axis=0), 1.0) if unit is None else unit

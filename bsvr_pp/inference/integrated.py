"""Hyperparameters integrated out, by weighted points of their posterior.

The points lie in the unconstrained space of the model, where the log density includes the Jacobian of the transforms.
The second derivatives near the optimum give a Student t distribution, whose quasi-random points have importance weights
(Rue, Martino & Chopin 2009 use the same derivatives). If these are too unequal, points drawn by weight move by
Hamiltonian Monte Carlo (Neal 2011). The evidence is then a bridge estimate between both sets of points (Meng & Wong
1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from numpy.random import Generator
from rich.progress import track
from scipy.optimize import nnls
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_t, norm, qmc

from bsvr_pp.core.approximations.smc import importance_estimate
from bsvr_pp.core.arrays import Array, Mask, Rows, check_count
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.inference.approximate import MeanField, solve_at
from bsvr_pp.inference.fitted import Cloud, Fitted, has_matched, systematic
from bsvr_pp.inference.protocol import IntegratesLatent, Options, check_latent
from bsvr_pp.inference.search.optimize import SharedObjective
from bsvr_pp.inference.search.quasi_newton import Ascent, Evaluate, ascend
from bsvr_pp.inference.search.starts import initial_point
from bsvr_pp.model.problem import Point, Problem

GOOD_K = 0.7  # largest k-hat of reliable importance weights (Vehtari et al. 2024)
_EQUAL = 1e-6  # log ratios that are closer are equal: no Pareto distribution can be fitted to them

_FLATTEST = 0.25  # smallest curvature used: where the density is flat, points stay within a few units
TAIL = 5.0  # degrees of freedom of the proposal: its tails must not be lighter than the posterior's
_SIDES = 0.25  # share of the number of points, below which the mode and the widths of both sides are found first,
_DROP, _WIDEST = 2.0**0.5, 2.5  # at this distance, and the largest width
_STEP, _FINEST = 0.05, 1e-4  # of unconstrained values, for second derivatives; least share of it where it is too long
_OVER_KINKS = 0.8  # step on both sides for Laplace, whose evidence has kinks: about a posterior standard deviation
_NEWTON = 1.5  # largest step to the mode, in standard deviations of the proposal
_SLOPE, _ASCENT = 0.7, 0.1  # slope there, in nats for a standard deviation, from which it climbs, to this tolerance
_AWAY = 15.0  # distance of an optimum from the initial point beyond which the prior is infinite there, or a ridge
_LEAST = 8.0  # effective number of points, from which moving points are drawn,
_LEAPS, _SIZE = 3, 0.7  # leapfrog steps of a move, and their first size,
_ACCEPTED, _RATE = 0.7, 0.25  # adapted to this share of accepted moves, at this rate
_LOST = 1000.0  # a move that loses as many nats is not accepted, and ends
_STUCK = 0.1  # share of accepted moves below which the points do not follow the posterior
_MIRRORED, _APART = 3.0, 4.0  # nats and standard deviations between the points and another mode of the same size
_SAME_POINT = 1e-8  # variance of a point given others, of a kernel of variance 1, below which it adds nothing
_NO_WEIGHT = 1e-6  # share of the largest weight, below which a point is never kept
_CUT = 0.1  # share of points without density above which the posterior ends at an edge, where its mode may be
BY_DRAWS = "sample the hyperparameters, with NUTS(latent=...)"  # the remedy then
_ONE_SIGN = f"give them priors of one sign, such as HalfNormal, or {BY_DRAWS}"


@dataclass(frozen=True, slots=True)
class Integrated:
    """Hyperparameters integrated out by weighted points of their posterior, near its mode.

    It needs about a hundred evaluations of the evidence, `NUTS` thousands. Predictions average over ``kept`` of the
    points; the result has draws from all points, with f from its posteriors.

    Parameters
    ----------
    latent : MeanField, Laplace or another approximation
        Method that integrates the latent function out. Its evidence must be continuous: Laplace needs the local
        curvature.
    points : int
        Number of points, at least 25.
    kept : int
        Largest number of points in predictions, and of moving points if weights are too unequal.

    Raises
    ------
    ValueError
        If a number is out of range.
    TypeError
        If latent is not an approximation.

    Notes
    -----
    The result has the attributes ``log_evidence`` with the hyperparameters integrated out, ``log_evidence_error``,
    ``k_hat`` of the importance weights, and ``effective_points``. It has not converged if k-hat is above 0.7 and the
    points do not move, or if hyperparameters of another sign are about as probable: use ``NUTS(latent=...)`` then.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Integrated().name
    'integrated (mean field)'
    """

    latent: IntegratesLatent = field(default_factory=MeanField)
    points: int = 64
    kept: int = 16

    def __post_init__(self) -> None:
        check_latent(self.latent)
        check_count("points", self.points, 25)
        check_count("kept", self.kept, 1)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"integrated ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: Generator) -> Fitted:
        """Optimise the hyperparameters that are not given, and integrate them out around the optimum."""
        problem.check_one_period(given)
        found: Fitted = self.latent.run(problem, given, options, rng)  # type: ignore[assignment]
        if set(problem.hyperparameters) <= set(given):
            return found
        try:
            return self.around([problem], given, [found], rng, options.progressbar)[0]
        except KeyboardInterrupt:
            return replace(found, converged=False, message="interrupted: the hyperparameters are those of the optimum")

    def around(
        self,
        problems: Sequence[Problem],
        given: Point,
        found: Sequence[Fitted],
        rng: Generator,
        progressbar: bool = False,
    ) -> list[Fitted]:
        """Integrate out the hyperparameters that are not given, around an optimum, which has weight zero.

        Several problems share the hyperparameters of the kernel, and have one evidence together.
        """
        self.latent.check_sampling(problems[0])
        density = SharedObjective(problems, self.latent, given, warm_starts=False, density=True)
        with threads_for(max(problem.targets.size for problem in problems)):
            ends = [each.points[0] for each in found], [initial_point(problem) for problem in problems]
            x, start = map(density.pack, ends)
            cloud = _cloud(density, x, start, all(each.converged for each in found), self, rng, progressbar)
            transforms = problems[0].model.rvs_to_transforms
            signed = [density.are_of([str(v.name)]) for v, transform in transforms.items() if transform is None]
            cloud = cloud._replace(mirrored=_mirrored(density, cloud, signed))
            points = list(zip(*map(density.unpack, cloud.x), strict=True))
            return [self._averaged(cloud, *each) for each in zip(problems, points, found, strict=True)]

    def _averaged(self, cloud: _Cloud, problem: Problem, points: Sequence[Point], found: Fitted) -> Fitted:
        chosen, weights = cloud.thinned(self.kept)
        posteriors = [solve_at(problem, self.latent, points[i]) for i in chosen]
        mode = cloud.climb or found
        message, good = mode.message, cloud.k_hat <= GOOD_K or cloud.accepted >= _STUCK
        if cloud.lost > _CUT:
            good, message = False, f"{cloud.lost:.0%} of the points have no density, which ends at an edge: {BY_DRAWS}"
        elif cloud.mirrored:
            good, message = False, f"hyperparameters of another sign are about as probable, and left out: {_ONE_SIGN}"
        elif not good:
            message = (
                f"k-hat of the weights is {cloud.k_hat:.2f}, and only {cloud.accepted:.0%} of the moves are accepted: "
                + BY_DRAWS
            )
        more = {"log_evidence_error": cloud.error, "k_hat": cloud.k_hat, "effective_points": cloud.effective}
        return replace(
            found,
            points=[found.points[0], *(points[i] for i in chosen)],
            posteriors=[found.posteriors[0], *posteriors],
            weights=np.append(0.0, weights),
            converged=bool(mode.converged and good and all(map(has_matched, posteriors))),
            message=message,
            log_evidence=cloud.log_evidence,
            more={**found.more, **more},
            cloud=Cloud(list(points), cloud.weights, self.latent),
        )


class _Cloud(NamedTuple):
    """Points (m, k) with their weights, and their estimate of the evidence."""

    x: Array
    weights: Array
    log_evidence: float
    error: float  # standard error of the log evidence
    k_hat: float
    effective: float
    climb: Ascent | None  # to the mode, if it is far from the optimum
    lost: float  # share of points without density
    accepted: float = 1.0  # share of the moves
    mirrored: bool = False  # whether there is another mode at other signs

    def thinned(self, kept: int) -> tuple[Rows, Array]:
        """Return at most ``kept`` points, with weights that keep the means of smooth functions (kernel quadrature)."""
        known = np.flatnonzero(self.weights > _NO_WEIGHT * self.weights.max())  # others may have no density
        x, weights = self.x[known], self.weights[known] / self.weights[known].sum()
        if known.size <= kept:
            return known, weights
        spread = np.sqrt(weights @ (x - weights @ x) ** 2)
        places = x / np.where(spread > 0.0, spread, 1.0)
        kernel = np.exp(-0.5 * cdist(places, places, "sqeuclidean") / places.shape[1])
        mean = kernel @ weights
        left, error, order = kernel.copy(), mean, []
        for _ in range(kept):  # the point that explains most of what is left of the mean
            variance = left.diagonal()
            gain = np.where(variance > _SAME_POINT, error**2, 0.0) / np.maximum(variance, _SAME_POINT)
            if not gain.any():
                break
            order.append(int(np.argmax(gain)))
            share = left[:, order[-1]] / left[order[-1], order[-1]]
            error, left = error - share * error[order[-1]], left - np.outer(share, left[order[-1]])
        found = np.unique(order)
        root = np.linalg.cholesky(kernel[np.ix_(found, found)] + _SAME_POINT * np.eye(found.size))
        solved = nnls(root.T, np.linalg.solve(root, mean[found]))[0]
        return known[found[solved > 0.0]], solved[solved > 0.0] / solved.sum()


def _cloud(
    density: Evaluate, x: Array, start: Array, converged: bool, method: Integrated, rng: Generator, progressbar: bool
) -> _Cloud:
    """Return the weighted points around the end x (k,) of a search, or around the mode that is near the start (k,)."""
    points, chains, k = method.points, min(method.kept, method.points), x.size
    few = 2 * k <= _SIDES * points
    away = few and np.abs(x - start).max() > _AWAY
    step = _STEP if isinstance(method.latent, MeanField) else _OVER_KINKS
    centre, scale, value, slope = _normal(density, start if away else x, step)
    # With more coordinates a climb gained nothing in predictions.
    climb = None
    if away or not converged or (few and slope > _SLOPE):
        climb = ascend(density, centre, 1, tolerance=_ASCENT)
        centre, scale, value, _ = _normal(density, climb.x, step)
    sides = np.ones((2, k))
    if few:
        sides = np.stack([[_side(value - density(centre + way * at)[0]) for at in scale.T] for way in (-_DROP, _DROP)])
    uniform = qmc.Sobol(k + 1, rng=rng).random_base2(int(np.ceil(np.log2(points))))[:points]
    uniform = np.clip(uniform, 1e-9, 1.0 - 1e-9)
    z = norm.ppf(uniform[:, :k]) * np.sqrt(TAIL / chi2.ppf(uniform[:, k:], TAIL))
    proposal = multivariate_t(np.zeros(k), np.eye(k), df=TAIL)
    log_volume = float(np.linalg.slogdet(scale)[1])

    def log_ratio(values: Array, places: Array) -> Array:
        """Return the log ratio of posterior and proposal densities, at places (m, k) on the proposal's scale."""
        widths = np.where(places < 0.0, *sides)
        ratio = values - np.reshape(proposal.logpdf(places / widths), len(places))
        return ratio + np.log(widths).sum(axis=1) + log_volume

    z *= np.where(z < 0.0, *sides)
    proposed = centre + z @ scale.T
    shown = track(proposed, description="hyperparameters integrated out", disable=not progressbar, transient=True)
    found = [density(each) for each in shown]
    ratio = log_ratio(np.array([value for value, _ in found]), z)
    lost = 1.0 - float(np.isfinite(ratio).mean())
    if lost == 1.0:
        ratio = np.zeros(points)
    smoothed, k_hat = pareto_weights(np.where(np.isfinite(ratio), ratio, ratio[np.isfinite(ratio)].min() - 700.0))
    weights = np.exp(smoothed)
    effective = float(1.0 / np.sum(weights**2))
    log_evidence, error = importance_estimate(ratio)
    if k_hat <= GOOD_K and effective >= points / 2:
        return _Cloud(proposed, weights / weights.sum(), log_evidence, error, k_hat, effective, climb, lost)
    drawn = _drawn(ratio, chains)
    times, known = max(1, points // (2 * chains)), [found[i] for i in drawn]
    reached, values, accepted = _moved(density, scale, proposed[drawn], known, times, rng)
    others = log_ratio(values, np.linalg.solve(scale, (reached - centre).T).T)
    log_evidence, error = bridge_estimate(ratio, others, chains)
    equal = np.full(len(reached), 1.0 / len(reached))
    return _Cloud(reached, equal, log_evidence, error, k_hat, float(chains), climb, lost, accepted)


def _normal(density: Evaluate, x: Array, size: float) -> tuple[Array, Array, float, float]:
    """Return the end (k,) of a step to the mode, scale (k, k) (its square inverts minus the curvature), value, slope.

    The slope is the largest, in nats for a unit of the scale.
    """
    value, gradient = density(x)
    if size <= _STEP:
        turns = [gradient - density(x + step)[1] for step in size * np.eye(x.size)]
    else:
        turns = [0.5 * (density(x - step)[1] - density(x + step)[1]) for step in size * np.eye(x.size)]
    curvature = np.stack(turns) / size
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    vectors = vectors * np.where(np.sum(vectors**3, axis=0) < 0.0, -1.0, 1.0)  # LAPACK's signs depend on the order of x
    scale = np.asarray(vectors / np.sqrt(np.maximum(np.abs(values), _FLATTEST)))
    if np.abs(values).max() * size**2 > 1.0 and _FINEST * _STEP < size <= _STEP:
        return _normal(density, x, 0.1 * size)
    step = scale.T @ gradient
    step = scale @ (step * min(1.0, _NEWTON / max(float(np.abs(step).max()), 1e-300)))
    for share in (1.0, 0.5, 0.25):
        reached, slope = density(x + share * step)
        if reached >= value:
            x, value, gradient = x + share * step, reached, slope
            break
    return x, scale, value, float(np.abs(scale.T @ gradient).max())


def _mirrored(density: Evaluate, cloud: _Cloud, signed: Sequence[Mask]) -> bool:
    """Whether the density is as large far from the points, with other signs of ``signed`` variables.

    It is where only squares or products count: of one value, of a variable, or of all of them.
    """
    centre = cloud.weights @ cloud.x
    apart = 2.0 * np.abs(centre) > _APART * np.sqrt(cloud.weights @ (cloud.x - centre) ** 2)
    every = np.any(signed, axis=0) if signed else np.zeros_like(apart)
    changed = [*np.eye(centre.size, dtype=bool)[every], *signed, every]
    level = density(centre)[0] - _MIRRORED if (every & apart).any() else np.inf
    far = [each for each in changed if (each & apart).any() and np.isfinite(level)]
    return any(density(np.where(each, -centre, centre))[0] > level for each in far)


def _side(drop: float) -> float:
    """Return the width of one side of the density, from its drop where a normal density drops by 1."""
    return float(np.clip(drop**-0.5 if drop > 0.0 else _WIDEST, 1.0 / _WIDEST, _WIDEST))


def _drawn(log_ratio: Array, count: int) -> Rows:
    """Return numbers of points, drawn by weights to the largest power with enough effective points."""
    for power in 0.8 ** np.arange(60.0):
        weights = np.exp(power * (log_ratio - log_ratio.max()))
        if np.sum(weights) ** 2 / np.sum(weights**2) >= min(_LEAST, 0.5 * np.isfinite(log_ratio).sum()):
            break
    return systematic(weights, count)


def _moved(
    density: Evaluate, scale: Array, x: Array, found: list[tuple[float, Array]], times: int, rng: Generator
) -> tuple[Array, Array, float]:
    """Move points x (c, k) by Hamiltonian Monte Carlo, on the scale of the posterior; the step size follows acceptance.

    ``found`` has their values and gradients. Return the points and values after each move, (times·c, k) and (times·c,),
    and the share of the last moves that was accepted.
    """
    x, size, states = x.copy(), _SIZE, []
    for _ in range(times):
        accepted = np.zeros(len(x), dtype=bool)
        for i, ((value, gradient), place) in enumerate(zip(found, x, strict=True)):
            momentum = rng.standard_normal(place.size)
            energy, step = value - 0.5 * momentum @ momentum, size * rng.uniform(0.8, 1.2)
            for _ in range(_LEAPS):
                momentum = momentum + 0.5 * step * (scale.T @ gradient)
                place = place + step * (scale @ momentum)
                value, gradient = density(place)
                if not value > energy - _LOST:
                    break
                momentum = momentum + 0.5 * step * (scale.T @ gradient)
            rise = value - 0.5 * momentum @ momentum - energy
            accepted[i] = np.log(rng.random()) < rise  # not where the density is zero
            size *= np.exp(_RATE * (np.exp(min(rise, 0.0)) - _ACCEPTED if np.isfinite(rise) else -_ACCEPTED))
            if accepted[i]:
                x[i], found[i] = place, (value, gradient)
        states.append((x.copy(), [value for value, _ in found]))
    reached, values = map(np.concatenate, zip(*states, strict=True))
    return reached, values, float(accepted.mean())


def bridge_estimate(of_proposal: Array, of_posterior: Array, independent: int) -> tuple[float, float]:
    """Return log normaliser and standard error, from log ratios at points of a proposal and of the posterior.

    This is the optimal bridge of Meng & Wong (1996, equation 4.1), with the error of Frühwirth-Schnatter (2004) for an
    ``independent`` number of points of the posterior.
    """
    n, m = of_proposal.size, of_posterior.size
    share, value = np.log(n / (n + m)), importance_estimate(of_proposal)[0]
    for _ in range(200):
        both = [np.logaddexp(share + ratio, np.log(m / (n + m)) + value) for ratio in (of_proposal, of_posterior)]
        upper, lower = of_proposal - both[0], -both[1]
        last, value = value, float(logsumexp(upper) - np.log(n) - logsumexp(lower) + np.log(m))
        if abs(value - last) < 1e-10:
            break
    spread = [np.exp(part - logsumexp(part) + np.log(part.size)) for part in (upper, lower)]
    return value, float(np.sqrt(spread[0].var() / n + spread[1].var() / independent))


def pareto_weights(log_ratio: Array) -> tuple[Array, float]:
    """Return normalised, smoothed log weights (draws,), from unnormalised log importance ratios, and k-hat."""
    # If all are equal within ArviZ's own tail, the largest min(n/5, 3√n) ratios, no Pareto distribution can be fitted.
    tail = max(int(min(0.2 * log_ratio.size, 3.0 * np.sqrt(log_ratio.size))), 1)
    if np.ptp(np.sort(log_ratio)[-tail:]) < _EQUAL:
        return log_ratio - logsumexp(log_ratio), 0.0
    smoothed, k_hat = array_stats.psislw(-log_ratio)
    return smoothed, float(k_hat)

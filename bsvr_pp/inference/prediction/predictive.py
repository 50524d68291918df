"""Predictive distributions of targets for a mixture of components: Gaussian f with weight and noise.

Arrays of moments are (components, n_new); the parameters of a noise are numbers or (n_new,) arrays. Up to sixteen
components the mixture is exact; with more components, which are draws, f is drawn once per component. With weights
(components, n_new), one column for each input, it is always exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import elementwise
from scipy.special import logsumexp, ndtri

from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.inference.prediction.component import CHUNK, Component, NoiseOfRows, noise_of_rows
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.elementwise import NO_WEIGHT, mixture_quantiles
from bsvr_pp.losses.noise import widened

Array = NDArray[np.float64]

_MOMENTS = 1_000_000  # number of means of f, over components and new inputs, that are processed together
_FEW = 16
_THINNED = 100  # number of draws whose cdfs are averaged for the score
_REACH = 12.0  # range of the integral for the continuous ranked probability score, in predictive standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def predictions(
    parts: Iterable[Component],
    X: Array,
    levels: Array,
    targets: Array | None,
    rng: np.random.Generator,
    noise_of: NoiseOfRows | None = None,
    values: Array | None = None,
) -> dict[str, Array]:
    """Compute the arrays that `predict` returns from components; without levels there are no quantiles.

    With ``values`` (m,) the result has ``y_survival`` (m, n_new) too, the probabilities that a new target exceeds them.
    """
    moments, noises, weights = [], [], []
    cutpoints: list[Array] = []
    alike = True  # whether the weights are those of all new inputs
    for part in parts:  # one at a time, since each holds a factor of n² numbers
        noise_of = noise_of or noise_of_rows(part.problem, X)
        mean, variance, probability = part.moments_and_scales(X)
        noise, factors = noise_of(part.point), [1.0] if part.scales is None else part.scales.factors
        for factor, probability_of in zip(factors, probability, strict=True):
            moments.append((mean, variance))
            noises.append(noise if factor == 1.0 else widened(noise, factor))
            weights.append(part.weight * probability_of)
        alike = alike and len(factors) == 1
        classes = part.problem.cutpoints_at(part.point)
        if classes is not None:
            cutpoints.append(classes)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    share = np.stack(weights) / np.sum(weights, axis=0)
    size = max(CHUNK, _MOMENTS // len(noises)) if alike else CHUNK

    def of_chunk(i: int) -> dict[str, Array]:
        rows = slice(i * size, (i + 1) * size)
        known = None if targets is None else targets[rows]
        there, here = [noise.at(rows) for noise in noises], share[:, 0] if alike else share[:, rows]
        if cutpoints or noises[0].kind.targets.values:
            return new_values(here, means[:, rows], variances[:, rows], there, cutpoints, known)
        return new_targets(here, means[:, rows], variances[:, rows], there, levels, known, rng, values)

    count = -(-len(X) // size)  # in turn where f is drawn, otherwise in several threads
    out = [of_chunk(i) for i in range(count)] if alike else each_block(of_chunk, count)
    return {name: np.concatenate([chunk[name] for chunk in out], axis=-1) for name in out[0]}


def new_targets(
    weights: Array,
    means: Array,
    variances: Array,
    noises: list[NoiseModel],
    levels: Array,
    targets: Array | None,
    rng: np.random.Generator,
    values: Array | None = None,
) -> dict[str, Array]:
    """Predict real targets at new inputs, from components (components, n_new), and their survival function at values.

    The survival function is ``y_survival`` (values, n_new), the probability that a new target is larger.
    """
    shifted = means + _stacked([noise.mean for noise in noises])
    spread = variances + _stacked([noise.variance for noise in noises])
    out = mixed("f", weights, means, variances) | mixed("y", weights, shifted, spread)
    few = len(noises) <= _FEW or weights.ndim == 2
    drawn = means if few else means + np.sqrt(variances) * rng.standard_normal(means.shape)
    if levels.size and few:
        share = np.broadcast_to(_columns(weights), means.shape)
        out["y_quantile"] = mixture_quantile(levels, share, means, variances, noises)
    elif levels.size:
        out["y_quantile"] = _quantiles_of_draws(drawn, noises, levels)

    def cdf(y: Array, step: int = 1) -> Array:
        draws = slice(None, None, step)
        if few:
            each = zip(noises[draws], means[draws], variances[draws], strict=True)
            below = np.stack([noise.predictive_cdf(y, m, v) for noise, m, v in each])
            share = weights[draws] / weights[draws].sum(axis=0)
            return np.asarray((_columns(share) * below).sum(axis=0))
        return np.mean([noise.cdf(y - f) for noise, f in zip(noises[draws], drawn[draws], strict=True)], axis=0)

    if values is not None:
        n = means.shape[1]
        out["y_survival"] = np.stack([1.0 - cdf(np.full(n, value)) for value in values])
    if targets is not None:
        out["y_cdf"] = cdf(targets)
        step = -(-len(noises) // _THINNED)
        out["y_crps"] = _crps(lambda y: cdf(y, step), targets, out["y_mean"], np.sqrt(out["y_variance"]))
        each = zip(noises, means, variances, strict=True)
        logs = np.stack([noise.predictive_log_density(targets, m, v) for noise, m, v in each])
        out["y_log_density"] = logsumexp(logs, axis=0, b=_columns(weights))
    return out


def mixture_quantile(
    levels: Array, weights: Array, means: Array, variances: Array, noises: Sequence[NoiseModel]
) -> Array:
    """Quantiles (levels, n) of mixtures of f + noise, for levels strictly between 0 and 1.

    Weights, which sum to one, means and variances of f are (components, n); each component has its noise, all of one
    loss, with parameters that are numbers or (n,) arrays.
    """
    if len(noises) == 1:
        return np.asarray(noises[0].predictive_quantile(levels[:, None], means[0], variances[0]))
    ascending, place = np.unique(levels, return_inverse=True)
    # The quantile of the mixture lies between those of its components.
    ends = np.stack(
        [
            noise.predictive_quantile(ascending[[0, -1], None], m, v)
            for m, v, noise in zip(means, variances, noises, strict=True)
        ]
    )
    some = weights > NO_WEIGHT
    low, high = np.where(some, ends[:, 0], inf).min(axis=0), np.where(some, ends[:, 1], -inf).max(axis=0)
    rows = means.shape[1] if any(noise.n_points is not None for noise in noises) else 1
    parameters = np.concatenate(
        [np.broadcast_to(noise.stacked_parameters(), (len(noise.parameters), rows)) for noise in noises], axis=1
    )
    pieces = noises[0].kind.table(np.ascontiguousarray(parameters), np.ones(parameters.shape[1]))
    mixture = map(np.ascontiguousarray, (weights, means, variances))
    return np.asarray(mixture_quantiles(ascending, ndtri(ascending), *mixture, pieces, low, high)[place])


def mixed(name: str, weights: Array, means: Array, variances: Array) -> dict[str, Array]:
    """Mean and variance of a mixture of components (components, n_new), by their names."""
    share = _columns(weights)
    mean = (share * means).sum(axis=0)
    return {f"{name}_mean": mean, f"{name}_variance": (share * (variances + (means - mean) ** 2)).sum(axis=0)}


def _columns(weights: Array) -> Array:
    """Weights as an array that broadcasts with (components, n_new)."""
    return weights if weights.ndim == 2 else weights[:, None]


def _stacked(values: list[float | Array]) -> Array:
    """Stack a number, or an (n_new,) array, of each component."""
    return np.stack(np.broadcast_arrays(*(np.atleast_1d(value) for value in values)))


def new_values(
    weights: Array,
    means: Array,
    variances: Array,
    noises: list[NoiseModel],
    cutpoints: list[Array],
    targets: Array | None,
) -> dict[str, Array]:
    """Predict labels, or ordered classes by the cut points of each component, from components (components, n_new)."""
    kind: Any = noises[0].kind.targets
    values = np.arange(cutpoints[0].size + 1.0) if cutpoints else np.array(kind.values)
    probability = np.zeros((values.size, means.shape[1]))
    for i, (share, mean, variance, noise) in enumerate(zip(weights, means, variances, noises, strict=True)):
        masses = _class_masses(noise, mean, variance, cutpoints[i]) if cutpoints else kind.masses(noise, mean, variance)
        probability += share * masses
    probability /= probability.sum(axis=0)
    y_mean = values @ probability
    out = mixed("f", weights, means, variances)
    out |= {"y_mean": y_mean, "y_variance": ((values[:, None] - y_mean) ** 2 * probability).sum(axis=0)}
    out |= {"y_class_probability": probability} if cutpoints else {"y_probability": probability[-1]}
    if targets is not None:
        if not np.isin(targets, values).all():
            words = f"classes from 0 to {len(values) - 1}" if cutpoints else f"the {kind.words}"
            raise ValueError(f"y_new must hold {words}, got {targets[~np.isin(targets, values)][0]}")
        out["y_log_density"] = np.log(probability[np.searchsorted(values, targets), np.arange(targets.size)])
    return out


def _class_masses(noise: NoiseModel, mean: Array, variance: Array, cutpoints: Array) -> Array:
    """Probability of each class (classes, n) for Gaussian f."""
    zero, ends = np.zeros_like(mean), np.concatenate([[-np.inf], cutpoints, [np.inf]])
    between = [noise.between(zero + low, zero + high) for low, high in pairwise(ends)]
    return np.exp([each.predictive_log_density(zero, mean, variance) for each in between])


def _crps(cdf: Callable[[Array], Array], y: Array, mean: Array, sd: Array) -> Array:
    """Continuous ranked probability score ∫ (F(z) - 1[z ≥ y])² dz of each target, by quadrature on both sides."""
    low, high = np.minimum(mean - _REACH * sd, y), np.maximum(mean + _REACH * sd, y)
    total = np.zeros_like(y)
    for node, weight in zip(0.5 * (1 + _NODES), 0.5 * _WEIGHTS, strict=True):
        below, above = y - low, high - y
        # Nodes are dense near the target, where F is steep: z = y ± width·node².
        total += 2 * node * weight * below * cdf(y - below * node**2) ** 2
        total += 2 * node * weight * above * (1 - cdf(y + above * node**2)) ** 2
    return total


def _quantiles_of_draws(f: Array, noises: list[NoiseModel], levels: Array) -> Array:
    """Quantiles of the mixture over draws of f (draws, n_new), each with its noise."""
    low = np.min([noise.quantile(0.5 * levels[:, None]) for noise in noises], axis=0) + f.min(axis=0)
    high = np.max([noise.quantile(0.5 + 0.5 * levels[:, None]) for noise in noises], axis=0) + f.max(axis=0)

    columns = np.arange(low.shape[1]) * 1.0  # the solver takes arrays of one type

    def excess(y: Array, level: Array, column: Array) -> Array:
        at, flat = np.ravel(column).astype(np.intp), np.ravel(y)
        below = np.mean([noise.at(at).cdf(flat - row[at]) for noise, row in zip(noises, f, strict=True)], axis=0)
        return np.reshape(below, np.shape(y)) - level

    found = elementwise.find_root(
        excess,
        (low, high),
        args=(np.broadcast_to(levels[:, None], low.shape), np.broadcast_to(columns, low.shape)),
        tolerances={"xrtol": 1e-10, "fatol": 1e-12},
    )
    return np.asarray(found.x)

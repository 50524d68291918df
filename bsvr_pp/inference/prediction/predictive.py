"""Predictions from components: the distribution of new targets, labels or ordered classes at new inputs.

Arrays of moments are (components, n_new); the parameters of a noise are numbers or (n_new,) arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from bsvr_pp.core.arrays import Array
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import widened
from bsvr_pp.inference.prediction.component import Component, NoiseOfRows, noise_of_rows
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution


def draw_jointly(parts: Callable[[], Iterable[Component]], X: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws (size, n) of f + noise at X together; ``parts`` makes components, of which each holds n² numbers."""
    out, found = np.empty((size, len(X))), list(parts())
    weights = np.array([part.weight for part in found])
    chosen = rng.choice(len(found), size=size, p=weights / weights.sum())
    for i in np.unique(chosen):
        at = np.flatnonzero(chosen == i)
        out[at] = found[i].draw(X, at.size, rng)
    return out


def mixture_of(
    parts: Iterable[Component], X: Array, noise_of: NoiseOfRows | None = None, **units: Any
) -> tuple[PredictiveDistribution, list[Array]]:
    """The distribution of targets at new inputs, with a component for each scale of the noise, and any cut points."""
    moments, noises, weights, offsets = [], [], [], []
    cutpoints: list[Array] = []
    for part in parts:  # one at a time, since each holds a factor of n² numbers
        noise_of = noise_of or noise_of_rows(part.problem, X)
        mean, variance, probability = part.moments_and_scales(X)
        noise, scales = noise_of(part.point), part.scales
        for factor, offset, share in zip(scales.factors, np.asarray(scales.offsets), probability, strict=True):
            moments.append((mean + offset, variance))
            offsets.append([offset])
            noises.append(noise if factor == 1.0 else widened(noise, factor))
            weights.append(part.weight * share)
        classes = part.problem.cutpoints_at(part.point)
        if classes is not None:
            cutpoints.append(classes)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    shares = np.stack(weights) / np.sum(weights, axis=0)
    found = PredictiveDistribution(shares, means, variances, tuple(noises), offsets=np.array(offsets), **units)
    return found, cutpoints


def predictions(
    parts: Iterable[Component], X: Array, levels: Array, targets: Array | None, noise_of: NoiseOfRows | None = None
) -> dict[str, Array]:
    """Compute the arrays that `predict` returns from components; without levels there are no quantiles."""
    found, cutpoints = mixture_of(parts, X, noise_of)
    if cutpoints or found.noises[0].kind.targets.values:
        return new_values(found, cutpoints, targets)
    return new_targets(found, levels, targets)


def new_targets(distribution: PredictiveDistribution, levels: Array, targets: Array | None) -> dict[str, Array]:
    """Moments of f and of real targets, quantiles (levels, n), and scores of targets, if they are given."""
    f = distribution.mean_and_variance_of_f()
    out = {"f_mean": f[0], "f_variance": f[1], "y_mean": distribution.mean(), "y_variance": distribution.var()}
    if levels.size:
        out["y_quantile"] = distribution.ppf(levels[:, None])
    if targets is not None:
        out["y_cdf"], out["y_crps"] = distribution.cdf(targets), distribution.crps(targets)
        out["y_log_density"] = distribution.logpdf(targets)
    return out


def new_values(found: PredictiveDistribution, cutpoints: list[Array], targets: Array | None) -> dict[str, Array]:
    """Predict labels, or ordered classes by the cut points of each component."""
    kind: Any = found.noises[0].kind.targets
    values = np.arange(cutpoints[0].size + 1.0) if cutpoints else np.array(kind.values)
    probability = np.zeros((values.size, len(found)))
    components = zip(found.weights, found.means, found.variances, found.noises, strict=True)
    for i, (share, mean, variance, noise) in enumerate(components):
        masses = _class_masses(noise, mean, variance, cutpoints[i]) if cutpoints else kind.masses(noise, mean, variance)
        probability += share * masses
    probability /= probability.sum(axis=0)
    y_mean = values @ probability
    f = found.mean_and_variance_of_f()
    out = {
        "f_mean": f[0],
        "f_variance": f[1],
        "y_mean": y_mean,
        "y_variance": ((values[:, None] - y_mean) ** 2 * probability).sum(axis=0),
    }
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

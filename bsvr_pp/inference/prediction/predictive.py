"""Predictions from components: the distribution of new targets, labels or ordered classes at new inputs.

Arrays of moments are (components, n_new); the parameters of a noise are numbers or (n_new,) arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bsvr_pp._arrays import Array
from bsvr_pp.inference.prediction.component import Component, NoiseOfRows, noise_of_rows
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution, mixed
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.noise import widened


class Mixture(NamedTuple):
    """Weights, means and variances (components, n_new) of f, noise of each component, any cut points, and offsets."""

    weights: Array
    means: Array
    variances: Array
    noises: tuple[NoiseModel, ...]
    cutpoints: list[Array]
    offsets: Array

    def distribution(self, **units: Any) -> PredictiveDistribution:
        """The distribution of real targets."""
        means = self.means + self.offsets
        return PredictiveDistribution(self.weights, means, self.variances, self.noises, offsets=self.offsets, **units)


def mixture_of(parts: Iterable[Component], X: Array, noise_of: NoiseOfRows | None = None) -> Mixture:
    """The mixture of components at new inputs: one for each scale of the noise."""
    moments, noises, weights, offsets = [], [], [], []
    cutpoints: list[Array] = []
    for part in parts:  # one at a time, since each holds a factor of n² numbers
        noise_of = noise_of or noise_of_rows(part.problem, X)
        mean, variance, probability = part.moments_and_scales(X)
        noise, scales = noise_of(part.point), part.scales or NoiseScales(np.ones(1), np.ones(1), 0.0)
        offsets.append(np.asarray(scales.offsets)[:, None])
        for factor, probability_of in zip(scales.factors, probability, strict=True):
            moments.append((mean, variance))
            noises.append(noise if factor == 1.0 else widened(noise, factor))
            weights.append(part.weight * probability_of)
        classes = part.problem.cutpoints_at(part.point)
        if classes is not None:
            cutpoints.append(classes)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    shares = np.stack(weights) / np.sum(weights, axis=0)
    return Mixture(shares, means, variances, tuple(noises), cutpoints, np.concatenate(offsets))


def distribution_of(
    parts: Iterable[Component], X: Array, noise_of: NoiseOfRows | None = None, **units: Any
) -> PredictiveDistribution:
    """The distribution of real targets at new inputs, in these units."""
    return mixture_of(parts, X, noise_of).distribution(**units)


def predictions(
    parts: Iterable[Component], X: Array, levels: Array, targets: Array | None, noise_of: NoiseOfRows | None = None
) -> dict[str, Array]:
    """Compute the arrays that `predict` returns from components; without levels there are no quantiles."""
    found = mixture_of(parts, X, noise_of)
    if found.cutpoints or found.noises[0].kind.targets.values:
        return new_values(*found[:5], targets)
    return new_targets(found.distribution(), levels, targets)


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


def new_values(
    weights: Array,
    means: Array,
    variances: Array,
    noises: tuple[NoiseModel, ...],
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
    f = mixed(weights, means, variances)
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

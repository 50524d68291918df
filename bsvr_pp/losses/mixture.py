"""Quantiles of mixtures of f + noise, where f is Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._compiler import compiled
from bsvr_pp.losses.elementwise import convolved_density, convolved_tail
from bsvr_pp.losses.pieces import Pieces

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["mixture_quantile"]

Array = NDArray[np.float64]

_NEAR = 1e-7  # distance in the log of the probability from which one step of Newton's method is the last
_NONE = 1e-16  # a smaller weight is taken as 0


def mixture_quantile(
    levels: Array, weights: Array, means: Array, variances: Array, noises: Sequence[NoiseModel]
) -> Array:
    """Quantiles (levels, n) of mixtures of f + noise, for levels strictly between 0 and 1.

    Weights, which sum to one, means and variances of f are (components, n); each component has its noise, all of one
    loss, with parameters that are numbers or (n,) arrays.
    """
    each = np.stack(
        [noise.predictive_quantile(levels[:, None], m, v) for m, v, noise in zip(means, variances, noises, strict=True)]
    )
    if len(noises) == 1:
        return np.asarray(each[0])
    # The quantile of the mixture lies between those of its components.
    some = (weights > _NONE)[:, None, :]
    low, high = np.where(some, each, inf).min(axis=0), np.where(some, each, -inf).max(axis=0)
    start = np.clip((weights[:, None, :] * each).sum(axis=0), low, high)
    rows = means.shape[1] if any(noise.n_points is not None for noise in noises) else 1
    parameters = np.concatenate(
        [np.broadcast_to(noise.stacked_parameters(), (len(noise.parameters), rows)) for noise in noises], axis=1
    )
    pieces = noises[0].kind.table(np.ascontiguousarray(parameters), np.ones(parameters.shape[1]))
    mixture = map(np.ascontiguousarray, (weights, means, variances))
    return np.asarray(_quantiles(levels, *mixture, pieces, start, low, high))


@compiled
def _quantiles(
    levels: Array, weights: Array, means: Array, variances: Array, pieces: Pieces, start: Array, low: Array, high: Array
) -> Array:
    """Newton's method on the log of the tail, with bisection where it leaves the bounds."""
    components, n = means.shape
    of_point = 1 if pieces.knots.shape[0] > components else 0  # whether each point has a row of the table
    out, moments = np.empty((levels.shape[0], n)), np.empty((pieces.slope.shape[1], 3))
    for q in range(levels.shape[0]):
        upper_tail = levels[q] > 0.5
        target, sign = (1.0 - levels[q], -1.0) if upper_tail else (levels[q], 1.0)
        for i in range(n):
            z, below, above = start[q, i], low[q, i], high[q, i]
            for _ in range(200):
                tail, density = 0.0, 0.0
                for c in range(components):
                    if weights[c, i] > _NONE:
                        k = c * n + i if of_point == 1 else c
                        r, v = z - means[c, i], variances[c, i]
                        tail += weights[c, i] * convolved_tail(r, v**0.5, upper_tail, k, pieces, moments)
                        density += weights[c, i] * convolved_density(r, v, k, pieces, moments)[0]
                if (tail < target) == upper_tail:
                    above = z
                else:
                    below = z
                distance = log(target / tail) if tail > 0.0 else inf
                moved = z + sign * distance * tail / density if density > 0.0 else inf
                small = abs(distance) <= _NEAR or above - below <= 4e-16 * max(abs(above), abs(below))
                z = moved if below < moved < above else (z if small else 0.5 * (below + above))
                if small:
                    break
            out[q, i] = z
    return out

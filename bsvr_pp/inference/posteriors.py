"""A cache of the Gaussian posteriors of results, so that each is factored once.

A result contains two vectors. The factorisation made by `fit` is reused by `predict`, `loo` and others for the same
model, but only if vectors, prior covariance and prior mean are equal to the last bit.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.approximations import BlockDiagonal, Covariance, LatentPosterior
from bsvr_pp.approximations.posterior import from_sites
from bsvr_pp.covariance.block_diagonal import BlockFactor
from bsvr_pp.model.problem import Problem

__all__ = ["keep", "posterior_of"]

Array = NDArray[np.float64]

_MOST = 4  # largest number of posteriors of a model,
_BYTES = 2**30  # and their largest memory

_KEPT: WeakKeyDictionary[pm.Model, tuple[LatentPosterior, ...]] = WeakKeyDictionary()


def keep(problem: Problem, posterior: LatentPosterior) -> None:
    """Store a posterior of f while its model exists, unless newer posteriors replace it."""
    if isinstance(posterior.factor, BlockFactor):  # which holds no factors
        return
    kept: list[LatentPosterior] = []
    total = 0
    for each in (posterior.compact(), *_KEPT.get(problem.model, ())):
        total += each.factor.nbytes  # type: ignore[union-attr]  # no BlockFactor is kept
        if len(kept) < _MOST and total <= _BYTES:
            kept.append(each)
    _KEPT[problem.model] = tuple(kept)


def posterior_of(
    problem: Problem, K: Covariance | BlockDiagonal, mean: Array, dual_coef: Array, site_precision: Array
) -> LatentPosterior:
    """Return the posterior of f that is given by the two vectors of a result."""
    for kept in _KEPT.get(problem.model, ()):
        same = np.array_equal(kept.dual_coef, dual_coef) and np.array_equal(kept.site_precision, site_precision)
        if same and isinstance(K, Covariance) and kept.has_prior(K, mean):
            return kept
    found = from_sites(K, mean, dual_coef, site_precision)
    keep(problem, found)
    return found

"""Scorers of predictive distributions, for `cross_val_score` and `GridSearchCV`; larger is better."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper

import numpy as np
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsvr_pp.assess.partial_dependence import in_steps
from bsvr_pp.core.arrays import Array, check_no_times, check_order, check_unmasked, checked_weights
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution

__all__ = ["log_density", "neg_crps"]


class _Scorer:
    """A function that scores, with the request for ``weights`` that scikit-learn's metadata routing needs."""

    __name__: str

    def __init__(self, score: Callable[..., float], weights: bool | str | None = None) -> None:
        update_wrapper(self, score)
        self._score, self._alias = score, weights
        self._request = MetadataRequest(owner=self)
        self._request.score.add_request(param="sample_weight", alias=weights)

    def __call__(
        self, estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        return self._score(estimator, X, y, sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None) -> _Scorer:
        """Return the scorer with a request for sample weights."""
        if not sklearn.get_config()["enable_metadata_routing"]:
            raise RuntimeError("set_score_request needs sklearn.set_config(enable_metadata_routing=True)")
        return _Scorer(self._score, sample_weight)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request."""
        return self._request

    def __repr__(self) -> str:
        return f"bsvr_pp.scorers.{self.__name__}"

    def __reduce__(self) -> str | tuple[object, ...]:
        return self.__name__ if self._alias is None else (_requesting, (self.__name__, self._alias))


def _requesting(name: str, weights: bool | str | None) -> _Scorer:
    return _Scorer(globals()[name]._score, weights)


@_Scorer
@shared
def log_density(estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean log predictive density of targets.

    <scored>

    Returns
    -------
    float
        Natural log of the density, in the inverse unit of the target.

    <curve>
    >>> from sklearn.model_selection import cross_val_score
    >>> found = cross_val_score(bp.LSSVR(), X, y, cv=3, scoring=bp.scorers.log_density)
    >>> found.shape
    (3,)
    """
    found, targets = _scored(estimator, X, y, sample_weight)
    return _mean(found.logpdf(targets), sample_weight)


@_Scorer
@shared
def neg_crps(estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return minus the mean continuous ranked probability score of targets (Gneiting & Raftery 2007).

    <scored>

    Returns
    -------
    float
        Minus the score, in the unit of the target.

    <curve>
    >>> -0.1 < bp.scorers.neg_crps(bp.LSSVR().fit(X, y), X, y) < 0
    True
    """
    found, targets = _scored(estimator, X, y, sample_weight)
    return -_mean(found.crps(targets), sample_weight)


def _mean(values: Array, weight: ArrayLike | None) -> float:
    return float(np.average(values, weights=checked_weights(weight, values.size)))


def _scored(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[PredictiveDistribution, Array]:
    """Return the predictive distribution of an estimator, of a search or pipeline, and as many targets."""
    check_order(X, y=y, sample_weight=sample_weight)
    estimator, steps = in_steps(estimator)
    for step in steps:
        X = step.transform(X)
    if not hasattr(estimator, "predict_distribution"):
        raise TypeError(f"estimator must have predict_distribution, got {type(estimator).__name__}")
    found = estimator.predict_distribution(X)
    if not isinstance(found, PredictiveDistribution):
        raise ValueError(f"estimator must predict one target, got {len(found)}: score each of its estimators_")
    check_unmasked("y", y)
    targets = column_or_1d(y)
    check_no_times("y", targets.dtype)
    check_consistent_length(found, targets)
    return found, targets

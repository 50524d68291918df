"""Other packages with their defaults, as functions from training data to a function that scores new targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.quality import regression_process
from benchmarks.scores import LEVELS, Array

Density = tuple[Array, Array, Array]  # log density of the test targets, 99 quantiles (99, m), and means


def normal_density(y: Array, mean: Array, deviation: Array) -> Density:
    """Of normal predictions."""
    return norm.logpdf(y, mean, deviation), mean + norm.ppf(LEVELS)[:, None] * deviation, mean


def gaussian_process(X: Array, y: Array) -> Callable[[Array, Array], Density]:
    """Gaussian process regression of scikit-learn, one start."""
    model = regression_process(X.shape[1], more_starts=0).fit(X, y)
    return lambda X, y: normal_density(y, *model.predict(X, return_std=True))


def ngboost(X: Array, y: Array) -> Callable[[Array, Array], Density]:
    """NGBoost, normal targets."""
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=0).fit(X, y)

    def predict(X: Array, y: Array) -> Density:
        found = model.pred_dist(X)
        return normal_density(y, found.loc, found.scale)

    return predict


def catboost(X: Any, y: Array, words: Sequence[str] = ()) -> Callable[[Any, Array], Density]:
    """CatBoost with the uncertainty of normal targets; some columns may be words."""
    from catboost import CatBoostRegressor

    options: dict[str, Any] = {"verbose": False, "random_seed": 0, "thread_count": 1, "allow_writing_files": False}
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", cat_features=list(words), **options).fit(X, y)

    def predict(X: Any, y: Array) -> Density:
        mean, variance = model.predict(X).T
        return normal_density(y, mean, np.sqrt(variance))

    return predict


def lightgbm(X: Array, y: Array) -> Callable[[Array, Array], Density]:
    """LightGBM, nine quantiles and the mean."""
    from lightgbm import LGBMRegressor

    levels = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])
    common: dict[str, Any] = {"n_jobs": 1, "random_state": 0, "verbose": -1}
    models = [LGBMRegressor(objective="quantile", alpha=level, **common).fit(X, y) for level in levels]
    centre = LGBMRegressor(**common).fit(X, y)

    def predict(X: Array, y: Array) -> Density:
        known = np.sort([model.predict(X) for model in models], axis=0)
        quantiles = np.stack([np.interp(norm.ppf(LEVELS), norm.ppf(levels), row) for row in known.T], axis=1)
        return np.full(len(y), np.nan), quantiles, np.asarray(centre.predict(X))

    return predict


def explainable(X: Array, y: Array) -> Callable[[Array, Array], Density]:
    """Explainable boosting machine with normal noise."""
    from interpret.glassbox import ExplainableBoostingRegressor

    held_out = np.random.default_rng(0).random(len(y)) < 0.2
    options = {"outer_bags": 4, "random_state": 0, "n_jobs": 1}
    part = ExplainableBoostingRegressor(**options).fit(X[~held_out], y[~held_out])
    deviation = np.sqrt(np.mean((y[held_out] - part.predict(X[held_out])) ** 2))
    model = ExplainableBoostingRegressor(**options).fit(X, y)
    return lambda X, y: normal_density(y, model.predict(X), np.full(len(y), deviation))

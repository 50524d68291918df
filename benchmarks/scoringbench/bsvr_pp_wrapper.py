"""`BayesianSVR` as a model of ScoringBench; it belongs into ``scoringbench/univariate/wrappers/`` there (README.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import DistributionPrediction, ProbabilisticWrapper

LEVELS = (np.arange(200) + 0.5) / 200


class BayesianSVRWrapper(ProbabilisticWrapper):
    """Bayesian support vector regression with its defaults; tables with words, dates and gaps are taken as they are.

    Its predictive distribution is given by its mean and 200 quantiles. Options are those of `bsvr_pp.BayesianSVR`.
    """

    def __init__(self, **options: Any) -> None:
        self.options = {"random_state": 0, **options}

    def fit(self, X: Any, y: Any) -> BayesianSVRWrapper:
        """Fit the rows whose target is finite."""
        from bsvr_pp import BayesianSVR

        self._set_train_range(y)
        target = np.asarray(y, dtype=np.float64).reshape(-1)
        finite = np.isfinite(target)
        self.model_ = BayesianSVR(**self.options).fit(X[finite], target[finite])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict the mean."""
        return self.model_.predict_distribution(X).mean()

    def predict_distribution(self, X: Any) -> DistributionPrediction:
        """Predict the distribution of each row."""
        found = self.model_.predict_distribution(X)
        quantiles = found.ppf(LEVELS[:, None]).T
        return DistributionPrediction.from_multi_quantile(
            quantiles, LEVELS, found.mean(), train_range=self._y_train_range
        )

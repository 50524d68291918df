"""Regressors of this package in skpro, whose predictions are distributions with the index and columns of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from bsvr_pp.core.arrays import Array, Rows
from bsvr_pp.core.losses import gaussian
from bsvr_pp.core.losses.pieces import NODES, WEIGHTS
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.survival.base import BaseSurvReg
except ImportError as missing:
    raise ImportError("regressors of skpro need skpro: pip install 'bsvr-pp[skpro]'") from missing

__all__ = ["ProbaDistribution", "ProbaRegressor"]

_LEVELS, _MASSES = NODES**2 * (3.0 - 2.0 * NODES), 6.0 * NODES * (1.0 - NODES) * WEIGHTS  # dense at 0 and 1


def _by_rows(name: str) -> Callable[..., Array]:
    """Make a skpro method from a method of the object without arguments or with one (n, 1) array."""

    def method(self: ProbaDistribution, **given: Array) -> Array:
        return getattr(self.predictive, name)(*(values.ravel() for values in given.values())).reshape(self.shape)

    return method


class ProbaDistribution(BaseDistribution):
    """A `bp.PredictiveDistribution` as a distribution of skpro: one column, and a row for each new input.

    It has the methods of the object; ``energy(y) - energy() / 2`` is `crps`. Draws are independent between rows.

    Parameters
    ----------
    predictive : PredictiveDistribution
        Distribution of n new targets.
    index, columns : pandas.Index, optional
        Names of the n rows and of the target. One row without names is a scalar distribution.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.integrations.skpro import ProbaDistribution
    >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit([[0], [1], [2], [3]], [0, 1, 1, 0])
    >>> ProbaDistribution(svr.predict_distribution([[1.0], [2.0]]), index=["a", "b"]).ppf(0.5).index.tolist()
    ['a', 'b']
    """

    _tags: ClassVar = {
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "surv", "haz", "ppf"],
        "capabilities:approx": ["pdfnorm"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self, predictive: PredictiveDistribution, index: pd.Index | None = None, columns: pd.Index | None = None
    ):
        self.predictive = predictive
        if index is None and (columns is not None or len(predictive) != 1):
            index = pd.RangeIndex(len(predictive))
        super().__init__(index=index, columns=[0] if index is not None and columns is None else columns)

    _mean, _var, _pdf, _log_pdf = map(_by_rows, ("mean", "var", "pdf", "logpdf"))
    _cdf, _surv, _ppf, _crps = map(_by_rows, ("cdf", "sf", "ppf", "crps"))

    def _energy_self(self) -> Array:
        """Return the mean distance of two targets, which is twice the mean score of a target."""
        scores = self.predictive.crps(self.predictive.ppf(_LEVELS[:, None]))
        return np.asarray(2.0 * _MASSES @ scores).reshape(self.shape)

    def _energy_x(self, x: Array) -> Array:
        return self._crps(x=x) + 0.5 * self._energy_self()

    def _sample(self, n_samples: int | None = None) -> pd.DataFrame | float:
        """Draw by NumPy's global random state, as all distributions of skpro."""
        drawn = self.predictive.rvs(n_samples, check_random_state(None).randint(2**31 - 1))
        if self.ndim == 0:
            return drawn[0] if n_samples is None else pd.DataFrame(drawn)
        frames = [pd.DataFrame(row, self.index, self.columns) for row in np.atleast_2d(drawn)]
        return frames[0] if n_samples is None else pd.concat(frames, keys=range(n_samples))

    def _subset_param(
        self, val: PredictiveDistribution, rowidx: Rows | None, colidx: object, coerce_scalar: bool = False
    ) -> PredictiveDistribution:
        return val if rowidx is None else val[rowidx]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return the settings with which skpro checks the class."""
        three = PredictiveDistribution(np.ones((1, 3)), np.arange(3.0)[None], np.ones((1, 3)), (gaussian(4.0),))
        return [{"predictive": three}, {"predictive": three[:1]}]


class ProbaRegressor(BaseSurvReg):
    """A regressor of this package as a probabilistic regressor of skpro, also of censored targets.

    ``fit(X, y, C)`` takes data frames; C is 1 if y is a time of censoring and 0 if it is exact. `predict` is the mean
    of the distribution, also with ``log_targets``.

    Parameters
    ----------
    estimator : regressor of bsvr_pp, optional
        A regressor with `predict_distribution`, `bp.BayesianSVR()` by default; only this one takes censored targets.
        Its options have names such as ``estimator__noise`` in a search.

    Attributes
    ----------
    estimator_ : regressor of bsvr_pp
        The fitted regressor.

    Examples
    --------
    >>> import pandas as pd, bsvr_pp as bp
    >>> from bsvr_pp.integrations.skpro import ProbaRegressor
    >>> data = pd.DataFrame({"x": [0, 1, 2, 3], "y": [0, 1, 1, 0]})
    >>> svr = ProbaRegressor(bp.BayesianSVR(restarts=1, random_state=0)).fit(data[["x"]], data[["y"]])
    >>> svr.predict_proba(data[["x"]]).ppf(0.5).shape
    (4, 1)
    """

    _tags: ClassVar = {"capability:missing": False}

    def __init__(self, estimator: BaseEstimator | None = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame, C: pd.DataFrame | None = None) -> Self:
        estimator = BayesianSVR() if self.estimator is None else clone(self.estimator)
        if not hasattr(estimator, "predict_distribution"):
            raise TypeError(f"estimator must have predict_distribution, got {type(estimator).__name__}")
        if y.shape[1] > 1:
            raise ValueError(f"y must have one column, got {y.shape[1]}: fit a regressor to each")
        targets, censored = (0 if given is None else given.to_numpy(dtype=np.float64)[:, 0] for given in (y, C))
        if (other := np.setdiff1d(censored, (0, 1))).size:
            raise ValueError(f"C must be 1 for a censored target and 0 for an exact one, got {other[0]}")
        if np.any(censored):
            if not isinstance(estimator, BayesianSVR):
                raise ValueError(f"C is for BayesianSVR, which takes censored targets, got {type(estimator).__name__}")
            targets = np.rec.fromarrays([censored == 0, targets], names="event,time")
        self.estimator_ = estimator.fit(X.rename(columns=str), targets)
        return self

    def _predict_proba(self, X: pd.DataFrame) -> ProbaDistribution:
        found = self.estimator_.predict_distribution(X.rename(columns=str))
        return ProbaDistribution(found, index=X.index, columns=self._get_columns(method="predict"))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return the settings with which skpro checks the class."""
        return [{"estimator": BayesianSVR(noise, restarts=1, random_state=0)} for noise in ("absolute", "huber")]

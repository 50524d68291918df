"""Predictive intervals around any regressor, from its cross-validated residuals (Lin & Weng 2004)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.cluster import KMeans
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.svm import SVR
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._checks import check_count, check_share, checked_levels, numbers
from bsvr_pp.estimators.options import ends, seeded, validated

__all__ = ["FamilyTest", "ResidualIntervals", "gaussian_or_laplace"]

Array = NDArray[np.float64]
Family = Literal["auto", "gaussian", "laplace", "laplace_trimmed", "histogram"]

_FAMILIES = ("auto", "gaussian", "laplace", "laplace_trimmed", "histogram")
_SIMULATIONS = 10_000  # simulations of the null distribution of the test
_EXTREME = 5.0  # standard deviations beyond which a residual is trimmed


class FamilyTest(NamedTuple):
    """The most powerful scale-invariant test of Gaussian against Laplace residuals.

    Attributes
    ----------
    statistic : float
        √Σζ² / Σ|ζ|.
    critical : float
        Critical value, above which Gaussian residuals are rejected at level alpha.
    p_value : float
        p-value for Gaussian residuals.
    family : str
        "laplace" if Gaussian residuals are rejected, otherwise "gaussian".
    """

    statistic: float
    critical: float
    p_value: float
    family: str


def gaussian_or_laplace(residuals: ArrayLike, *, alpha: float = 0.05) -> FamilyTest:
    """Test zero-mean Gaussian against Laplace residuals (Lin & Weng 2004, Corollary 2).

    Parameters
    ----------
    residuals : (l,) array
        Out-of-sample residuals, not all 0.
    alpha : float
        Level of the test, between 0 and 1; the critical value is simulated with a fixed seed.

    Returns
    -------
    FamilyTest

    Raises
    ------
    ValueError
        If there are fewer than two residuals, they are not finite or all 0, or alpha is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.estimators.intervals import gaussian_or_laplace
    >>> gaussian_or_laplace(np.random.default_rng(0).laplace(size=300)).family
    'laplace'
    """
    values = numbers("residuals", residuals, ("l",))
    if values.size < 2 or not values.any():
        raise ValueError(f"residuals must be at least two and not all 0, got {values.size}, the largest {values.max()}")
    check_share("alpha", alpha)
    statistic = float(np.sqrt(np.sum(values**2)) / np.sum(np.abs(values)))
    null = _null(values.size)
    critical = float(np.quantile(null, 1 - alpha))
    p_value = float((1 + np.sum(null >= statistic)) / (1 + null.size))
    return FamilyTest(statistic, critical, p_value, "laplace" if statistic > critical else "gaussian")


@lru_cache(maxsize=64)
def _null(size: int) -> Array:
    """Simulate the statistic for Gaussian residuals; it does not depend on their scale."""
    rng = np.random.default_rng(0)
    out = np.empty(_SIMULATIONS)
    chunk = max(1, 1_000_000 // size)
    for at in range(0, _SIMULATIONS, chunk):
        z = rng.standard_normal((min(chunk, _SIMULATIONS - at), size))
        out[at : at + chunk] = np.sqrt(np.sum(z * z, axis=1)) / np.sum(np.abs(z), axis=1)
    return out


class ResidualIntervals(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predictive intervals for any regressor, from the distribution of its cross-validated residuals.

    The residuals ζ = y - f̂ of k-fold cross-validation represent the errors of new predictions. A zero-mean Gaussian or
    Laplace distribution is fitted to them by maximum likelihood, or their empirical quantiles are used.

    Parameters
    ----------
    estimator : regressor, optional
        The regressor; by default `sklearn.svm.SVR`. Its parameters are not tuned: pass a grid search object if they are
        to be chosen.
    family : {"auto", "gaussian", "laplace", "laplace_trimmed", "histogram"}
        Distribution of the residuals. "auto" tests Gaussian against Laplace (Corollary 2). "laplace_trimmed" is Lap* of
        the paper: residuals beyond five standard deviations are removed once before the scale is estimated. "histogram"
        uses order statistics; its intervals need not be symmetric.
    cv : int
        Number of folds.
    groups : int
        Number of clusters of the inputs, each with its own scale. The paper proposes this if the scale depends on
        the inputs (`scale_dependence_`).
    alpha : float
        Level of the test.
    random_state : int or None
        Random seed of folds and clusters.

    Attributes
    ----------
    estimator_ : regressor
        The regressor, fitted to all rows.
    residuals_ : (n,) array
        Out-of-sample residuals.
    test_ : FamilyTest
        The test, applied to all residuals.
    family_ : str
        Family that was used.
    scale_ : (groups,) array
        σ of (2) or (3) in each group, in the target's units; NaN for "histogram".
    scale_dependence_ : tuple
        Spearman correlation of |ζ| with the prediction, and its p-value. A small p-value means that one scale is wrong.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> from sklearn.svm import SVR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + rng.laplace(scale=0.1, size=200)
    >>> intervals = bp.ResidualIntervals(SVR(C=10.0), random_state=0).fit(X, y)
    >>> intervals.predict_interval([[0.0]], coverage=0.8).round(1).tolist()
    [[-0.1, 0.2]]
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        family: Family = "auto",
        cv: int = 5,
        groups: int = 1,
        alpha: float = 0.05,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.family = family
        self.cv = cv
        self.groups = groups
        self.alpha = alpha
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Cross-validate, fit the distribution of the residuals, and fit the regressor to all rows.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array
            Targets.

        Raises
        ------
        ValueError
            If an option is out of range, the data are not finite, or there are fewer rows than folds.
        """
        self._check_options()
        inputs, targets = validated(self, X, y, y_numeric=True, ensure_min_samples=self.cv)
        regressor = SVR() if self.estimator is None else self.estimator
        folds = KFold(self.cv, shuffle=True, random_state=self.random_state)
        predicted = cross_val_predict(clone(regressor), inputs, targets, cv=folds)
        self.residuals_ = np.asarray(targets - predicted, dtype=np.float64)
        if not self.residuals_.any():
            self.residuals_[0] = np.finfo(float).tiny  # for a perfect fit the scale is 0 in every family
        self.test_ = gaussian_or_laplace(self.residuals_, alpha=self.alpha)
        self.family_ = self.test_.family if self.family == "auto" else self.family
        self.scale_dependence_ = self._dependence(predicted)
        self._clusters = None
        label = np.zeros(targets.size, dtype=int)
        if self.groups > 1:
            self._center, width = inputs.mean(axis=0), inputs.std(axis=0)
            self._width = np.where(width > 0, width, 1.0)
            self._clusters = KMeans(self.groups, n_init=5, random_state=self.random_state)
            label = self._clusters.fit_predict((inputs - self._center) / self._width)
        self._members = [np.sort(self.residuals_[label == g]) for g in range(self.groups)]
        self.scale_ = np.array([_scale(members, self.family_) for members in self._members])
        self.estimator_ = clone(regressor).fit(inputs, targets)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predict by the regressor; an (n_new,) array."""
        check_is_fitted(self)
        new = validated(self, X, reset=False)
        return np.asarray(self.estimator_.predict(new), dtype=np.float64)

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Central predictive intervals.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        coverage : float
            Probability that a new target lies inside, between 0 and 1.

        Returns
        -------
        (n_new, 2) array
            Lower and upper ends, (25) and (26).

        Raises
        ------
        ValueError
            If coverage is out of range.
        """
        return self.predict_quantiles(X, ends(coverage))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Array:
        """Quantiles of new targets.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        quantiles : sequence of float
            Levels between 0 and 1.

        Returns
        -------
        (n_new, number of quantiles) array

        Raises
        ------
        ValueError
            If a quantile is out of range.
        """
        levels = checked_levels(quantiles)
        center = self.predict(X)
        offsets = np.stack([self._quantiles(g, levels) for g in range(self.groups)])
        return center[:, None] + offsets[self._group_of(X)]

    def _check_options(self) -> None:
        if self.family not in _FAMILIES:
            raise ValueError(f"family must be one of {', '.join(_FAMILIES)}, got {self.family!r}")
        for name, least in (("cv", 2), ("groups", 1)):
            check_count(name, getattr(self, name), least)
        check_share("alpha", self.alpha)
        seeded(self.random_state)  # raises the error for a bad value

    def _dependence(self, predicted: Array) -> tuple[float, float]:
        if np.ptp(predicted) == 0 or np.ptp(np.abs(self.residuals_)) == 0:
            return 0.0, 1.0
        found = stats.spearmanr(np.abs(self.residuals_), predicted)
        return float(found.statistic), float(found.pvalue)

    def _group_of(self, X: ArrayLike) -> NDArray[np.intp]:
        new = validated(self, X, reset=False)
        if self._clusters is None:
            return np.zeros(len(new), dtype=np.intp)
        return np.asarray(self._clusters.predict((new - self._center) / self._width), dtype=np.intp)

    def _quantiles(self, group: int, levels: Array) -> Array:
        """Quantiles of the residuals of one group."""
        if self.family_ == "histogram":
            # The ⌈s·l⌉-th order statistic, where l is the number of residuals.
            return np.quantile(self._members[group], levels, method="inverted_cdf")
        family = stats.norm if self.family_ == "gaussian" else stats.laplace
        quantiles: Array = self.scale_[group] * family.ppf(levels)
        return quantiles


def _scale(residuals: Array, family: str) -> float:
    """Maximum likelihood scale, (4) or (5)."""
    if family == "histogram":
        return np.nan
    if family == "gaussian":
        return float(np.sqrt(np.mean(residuals**2)))
    scale = float(np.mean(np.abs(residuals)))
    if family == "laplace_trimmed":
        scale = float(np.mean(np.abs(residuals[np.abs(residuals) <= _EXTREME * np.sqrt(2.0) * scale])))
    return scale

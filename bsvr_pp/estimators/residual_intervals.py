"""Predictive intervals around any regressor, from its cross-validated residuals (Lin & Weng 2004)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import BaseCrossValidator, KFold, check_cv
from sklearn.svm import SVR
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bsvr_pp.core.arrays import (
    Array,
    check_choice,
    check_count,
    check_share,
    check_varies,
    checked_levels,
    checked_weights,
    numbers,
)
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import absolute, gaussian
from bsvr_pp.estimators.base import CentralIntervals, HoldsFit, seeded
from bsvr_pp.estimators.training_data import TrainingData, merge_rows
from bsvr_pp.estimators.validation import Columns, Learned, new_inputs, training_arrays
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.tables.columns import table_of

Family = Literal["auto", "gaussian", "laplace", "laplace_trimmed", "histogram"]

_SIMULATIONS = 10_000  # simulations of the null distribution of the test
_EXTREME = 5.0  # standard deviations beyond which a residual is trimmed


class FamilyTest(NamedTuple):
    """The most powerful scale-invariant test of Gaussian against Laplace residuals: the statistic is √Σζ² / Σ|ζ|.

    The p-value is for Gaussian residuals; if the statistic exceeds the critical value, the family is "laplace".
    """

    statistic: float
    critical: float
    p_value: float
    family: str


def gaussian_or_laplace(
    residuals: ArrayLike, *, alpha: float = 0.05, sample_weight: ArrayLike | None = None
) -> FamilyTest:
    """Test zero-mean Gaussian against Laplace residuals (Lin & Weng 2004, Corollary 2) at level ``alpha``.

    The (l,) residuals are out-of-sample and not all 0; each has its share of the weights. The critical value is
    simulated with a fixed seed, for the effective number (Σw)²/Σw² of residuals.
    """
    values = numbers("residuals", residuals, ("l",))
    if values.size < 2 or not values.any():
        raise ValueError(f"residuals must be at least two and not all 0, got {values.size}, the largest {values.max()}")
    check_share("alpha", alpha)
    weight = checked_weights(sample_weight, values.size)
    share = weight / weight.sum()
    effective = max(round(float(1.0 / (share @ share))), 2)
    statistic = float(np.sqrt(share @ values**2 / effective) / (share @ np.abs(values)))
    null = _null(effective)
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


@shared
@dataclass(eq=False, repr=False)
class ResidualIntervals(HoldsFit, CentralIntervals, MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predictive intervals for any regressor, from the distribution of its cross-validated residuals.

    The residuals ζ = y - f̂ of k-fold cross-validation represent the errors of new predictions
    (docs/how-to/intervals.md).

    Parameters
    ----------
    estimator : regressor, optional
        The regressor, which is not tuned; by default `sklearn.svm.SVR`. Sample weights are passed to its `fit`. It is
        given the encoded columns of a DataFrame, or the DataFrame if one of its steps is a `ColumnTransformer`.
    family : {"auto", "gaussian", "laplace", "laplace_trimmed", "histogram"}
        Distribution of the residuals, by maximum likelihood. "auto" tests Gaussian against Laplace (Corollary 2).
        "laplace_trimmed" is Lap* of the paper: residuals beyond five standard deviations are first removed, once.
        "histogram" uses order statistics.
    cv : int, splitter or iterable
        Number of folds, or folds as in scikit-learn. With a number, equal rows are in one fold, and there are at most
        as many folds as distinct rows. Of as many equal rows as folds, or more, the share of a fold is held out.
    alpha : float
        Level of the test.
    random_state : int or None
        Random seed of the folds.

    Attributes
    ----------
    estimator_ : regressor
        The regressor, fitted to all rows. If it takes weights, equal rows are one row with their number as its weight.
    residuals_ : (n,) array
        Out-of-sample residuals; NaN if no fold tests a row, or its weight is 0.
    test_ : FamilyTest
        The test, applied to all residuals.
    family_ : str
        Family used.
    scale_ : float
        σ of (2) or (3), in the target's units; NaN for "histogram".
    scale_dependence_ : tuple
        Spearman correlation of |ζ| with the prediction, and its p-value, of the rows without their weights. A small
        p-value means that one scale is wrong.

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

    estimator: BaseEstimator | None = None
    _: KW_ONLY
    family: Family = "auto"
    cv: int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] = 5
    alpha: float = 0.05
    random_state: int | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Cross-validate, fit the distribution of the residuals, and fit the regressor to all rows.

        <inputs>
        y : (n,) array
            Targets.
        <counts>

        Raises
        ------
        ValueError
            If an option is out of range, the data are not finite, there are fewer rows than folds, or the regressor
            does not take weights.
        """
        self._check_options()
        least = self.cv if isinstance(self.cv, int | np.integer) else 2
        inputs, given, columns = training_arrays(self, X, y, sample_weight, y_numeric=True, least=int(least))
        targets = given.astype(np.float64)
        regressor = SVR() if self.estimator is None else self.estimator
        times = checked_weights(sample_weight, len(targets))
        weighted = self._takes_weights(regressor, sample_weight)
        rows = merge_rows(inputs, targets, times if weighted else None)
        check_varies("y", rows.y)
        seen = _as_seen(clone(regressor), X, inputs, columns)
        copy = pd.Series(rows.place).groupby(rows.place).cumcount().to_numpy()  # number of each row among equal ones

        def fit(weight: Array) -> BaseEstimator:
            """Fit one of equal rows with its weight, or as many as the weight says if the regressor takes none."""
            of_each = np.append(weight, 0.0)[rows.place]  # -1 is left out
            used = np.flatnonzero((of_each > 0) & (copy < (1 if weighted else np.rint(of_each))))
            used = used[np.argsort(rows.place[used])] if weighted else used  # the order of the rows does not count
            options = {} if not weighted or (of_each[used] == 1).all() else {"sample_weight": of_each[used]}
            return clone(regressor).fit(seen.take(used, axis=0), targets[used], **options)

        residuals = np.full(len(targets), np.nan)
        for weight, tested in self._splits(inputs, targets, times if weighted else np.ones(times.size), rows):
            if np.isfinite(residuals[tested]).any():
                again = tested[np.isfinite(residuals[tested])][0]
                raise ValueError(f"cv must test each row once, as KFold does, and tests row {again} again")
            if tested.size:  # not a fold of rows whose weight is 0
                residuals[tested] = targets[tested] - fit(weight).predict(seen.take(tested, axis=0))
        used = (times > 0) & np.isfinite(residuals)
        residuals[~used] = np.nan
        found, times = residuals[used], times[used]
        if not found.size:
            raise ValueError("cv must test rows of the data, and tests none: let its folds test all rows")
        if not found.any():
            found[0] = np.finfo(float).tiny  # for a perfect fit the scale is 0 in every family
        test = gaussian_or_laplace(found, alpha=self.alpha, sample_weight=times)
        family = test.family if self.family == "auto" else self.family
        size, predicted = np.abs(found), targets[used] - found
        constant = np.ptp(size) == 0 or np.ptp(predicted) == 0
        value = {
            "residuals_": residuals,
            "test_": test,
            "family_": family,
            "scale_dependence_": (0.0, 1.0) if constant else tuple(map(float, stats.spearmanr(size, predicted))),
            "scale_": _scale(found, times, family),
            "estimator_": fit(rows.weight),
            "_weighted": (found, times),
        }
        return self._keep(value, columns)

    def _attributes(self, fit: Learned, columns: Columns) -> Learned:
        return fit

    def get_metadata_routing(self) -> MetadataRouter:
        """Sample weights are for this estimator, and for the regressor."""
        regressor = SVR() if self.estimator is None else self.estimator
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=regressor, method_mapping=mapping)

    def _takes_weights(self, regressor: BaseEstimator, given: ArrayLike | None) -> bool:
        """Return whether weights are passed to the regressor: if it takes, or under routing requests them."""
        if get_config()["enable_metadata_routing"] and given is not None:
            return "sample_weight" in process_routing(self, "fit", sample_weight=given)["estimator"]["fit"]
        takes = has_fit_parameter(regressor, "sample_weight")
        if given is not None and not takes:
            raise ValueError(f"estimator must take sample_weight in its fit, got {regressor!r}")
        return bool(takes)

    def _splits(
        self, inputs: Array, targets: Array, times: Array, rows: TrainingData
    ) -> Iterator[tuple[Array, NDArray[np.intp]]]:
        """Return for each fold the weight of each of ``rows`` in training, and the given rows that are tested."""
        m = len(rows.y)
        if isinstance(self.cv, int | np.integer):
            copies = np.bincount(rows.place[rows.place >= 0], minlength=m)
            left = np.where(copies >= self.cv, 1.0 - 1.0 / self.cv, 0.0) * rows.weight
            for train, test in KFold(min(self.cv, m), shuffle=True, random_state=self.random_state).split(rows.X):
                weight = left.copy()
                weight[train] = rows.weight[train]
                yield weight, np.flatnonzero(np.isin(rows.place, test))
            return
        for fold in check_cv(self.cv).split(inputs, targets):
            train, test = (np.arange(len(targets))[np.asarray(part)] for part in fold)
            kept = train[rows.place[train] >= 0]
            yield np.bincount(rows.place[kept], times[kept], minlength=m), test[rows.place[test] >= 0]

    def predict(self, X: ArrayLike) -> Array:
        """Predict by the regressor; an (n_new,) array."""
        new = new_inputs(self, X)
        return np.asarray(self.estimator_.predict(_as_seen(self.estimator_, X, new, self._columns)), dtype=np.float64)

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the distribution of new targets at inputs (n_new, d): the regressor's prediction plus a residual.

        ValueError if the residuals have no density, with the family "histogram".
        """
        check_is_fitted(self)
        if self.family_ == "histogram":
            raise ValueError("family must have a density for predict_distribution, got 'histogram'")
        center = self.predict(X)[None]
        scale = max(self.scale_, np.finfo(float).tiny ** 0.5)
        noise = gaussian(C=scale**-2.0) if self.family_ == "gaussian" else absolute(C=1.0 / scale)
        return PredictiveDistribution(np.ones_like(center), center, np.zeros_like(center), (noise,))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Array:
        """Return quantiles of new targets.

        <quantiles>
        """
        levels = checked_levels(quantiles)
        center = self.predict(X)[:, None]
        if self.family_ == "histogram":
            # The ⌈s·l⌉-th order statistic, where l is the number of residuals.
            found, times = self._weighted
            return center + np.quantile(found, levels, weights=times, method="inverted_cdf")
        family = stats.norm if self.family_ == "gaussian" else stats.laplace
        return center + self.scale_ * family.ppf(levels)

    def _check_options(self) -> None:
        check_choice("family", self.family, get_args(Family))
        if isinstance(self.cv, bool | float | int | np.number):
            check_count("cv", self.cv, 2)
        elif isinstance(self.cv, str) or not (hasattr(self.cv, "split") or isinstance(self.cv, Iterable)):
            raise ValueError(f"cv must be a number of folds, a splitter or an iterable of folds, got {self.cv!r}")
        check_share("alpha", self.alpha)
        seeded(self.random_state)  # raises an error for an invalid value


def _as_seen(regressor: BaseEstimator, X: ArrayLike, inputs: Array, columns: Columns) -> Array | pd.DataFrame:
    """Return what the regressor is given: the inputs, or the table if it has numbers or a step chooses columns."""
    chooses = any(isinstance(each, ColumnTransformer) for each in regressor.get_params().values())
    if columns.encoding is None or not (columns.encoding.plain or chooses):
        return inputs
    table = table_of(X)
    filled = table is None or (columns.encoding.plain and table.isna().any(axis=None))  # gaps have the median
    return pd.DataFrame(inputs, columns=columns.encoding.names) if filled else table


def _scale(residuals: Array, times: Array, family: str) -> float:
    """Return the maximum likelihood scale, (4) or (5)."""
    if family == "histogram":
        return np.nan
    if family == "gaussian":
        return float(np.sqrt(np.average(residuals**2, weights=times)))
    size = np.abs(residuals)
    scale = float(np.average(size, weights=times))
    if family == "laplace_trimmed":
        near = size <= _EXTREME * np.sqrt(2.0) * scale
        scale = float(np.average(size[near], weights=times[near]))
    return scale

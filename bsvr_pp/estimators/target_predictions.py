"""Predictions of the targets by a fitted regression: moments, intervals, quantiles and joint draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bsvr_pp.core.arrays import (
    Array,
    check_count,
    check_order,
    check_share,
    checked_levels,
    checked_weights,
    labels_of,
    numbers,
)
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import parameters_in_unit
from bsvr_pp.estimators.base import CentralIntervals, predicts_each, seeded
from bsvr_pp.estimators.standard_fit import OfStandardModel
from bsvr_pp.estimators.training_data import Units
from bsvr_pp.estimators.validation import Columns, Learned, RandomState, targets_of
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.tables import check_target


@shared
class TargetPredictions(OfStandardModel, CentralIntervals):
    """Predictions of a fitted estimator with standardised inputs and targets."""

    intervals: bool = False
    noise_scales: bool = True
    C_: float
    noise_variance_: float

    @predicts_each
    def predict(
        self, X: ArrayLike, return_std: bool = False, diagonal: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """Predict targets: their mean, or with pinball noise their quantile.

        <new_inputs>
        return_std : bool
            Whether to return also the standard deviation of a new target, including the noise; `predict_f` gives the
            standard deviation of the function.
        <diagonal>

        Returns
        -------
        mean, or mean and standard deviation, (n_new,) arrays

        Raises
        ------
        ValueError
            If ``return_std`` is used in a model of log y, where it may be infinite.
        """
        if return_std and self._checked().units.target_scale.is_log:
            raise ValueError("return_std must be False with log_targets=True: predict_quantiles gives the spread")
        found = self._predictive(X, diagonal, moments=return_std)
        mean = self._centre(found)
        return (mean, found.std()) if return_std else mean

    @predicts_each
    def predict_distribution(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> PredictiveDistribution:
        """Predict the whole distribution of new targets, in closed form.

        <new_inputs>
        <diagonal>

        Returns
        -------
        PredictiveDistribution
            Densities, probabilities, quantiles, draws and scores, in units of the target.

        <curve>
        >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, y)
        >>> bool(svr.predict_distribution([[1.0]]).sf(0.5)[0] > 0.9)
        True
        """
        return self._predictive(X, diagonal)

    def _predictive(self, X: ArrayLike, diagonal: ArrayLike | None, *, moments: bool = True) -> PredictiveDistribution:
        inputs = self._new_rows(X, diagonal, moments=moments)
        return self._fit.predictive(inputs, self._local(), self.noise_scales)

    @predicts_each
    def predict_f(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> tuple[Array, Array]:
        """Predict mean and standard deviation of the function, as a target without noise; of log y with log_targets.

        <new_inputs>
        <diagonal>

        Returns
        -------
        mean, standard deviation : (n_new,) arrays
        """
        return self.predict_distribution(X, diagonal).moments_of_f()

    @predicts_each
    def predict_uncertainty(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> pd.DataFrame:
        """Predict the parts of the spread of a new target: standard deviations, whose squares add up to the total.

        <new_inputs>
        <diagonal>

        Returns
        -------
        DataFrame
            Columns "function" (f at given hyperparameters; more rows nearby lower it), "hyperparameters" (0 if they are
            not integrated out), "noise" (more rows do not lower it) and "total". With log_targets they are of log y.
            The rows have the index of X.

        <curve>
        >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, y)
        >>> parts = svr.predict_uncertainty([[0.0], [6.0]])
        >>> bool(parts["function"][1] > 2 * parts["function"][0]), parts.columns.tolist()
        (True, ['function', 'hyperparameters', 'noise', 'total'])
        """
        found = self.predict_distribution(X, diagonal)
        on_scale = found.modelled
        between, given = found.unit**2 * np.stack(on_scale.variances_of_f())
        total = on_scale.var()
        noise = np.maximum(total - between - given, 0.0)
        parts = {"function": given, "hyperparameters": between, "noise": noise, "total": total}
        shares = np.sqrt(pd.DataFrame(parts, index=labels_of(X)))
        return shares if found.scale.is_log else shares.mul(found.std() / on_scale.std(), axis=0)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination of predictions; for intervals and censored targets, concordance.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : array
            Targets, as in `fit`.
        sample_weight : (n,) array, optional
            Weights of exact targets.

        Raises
        ------
        ValueError
            If no pair of the intervals has a known order, or they come with weights.
        """
        check_order(X, y=y, sample_weight=sample_weight)
        targets, predicted = targets_of(y, allowed=self.intervals), np.asarray(self.predict(X))
        targets.check_like(self._columns.targets)
        return targets.score(predicted, checked_weights(sample_weight, len(predicted)))

    @predicts_each
    def predict_survival_function(self, X: ArrayLike, times: ArrayLike, diagonal: ArrayLike | None = None) -> Array:
        """Predict the probability that a new target is larger than given values.

        <new_inputs>
        <diagonal>
        times : (m,) array
            Values, such as times.

        Returns
        -------
        (n_new, m) array

        Raises
        ------
        ValueError
            If times are not finite, or not positive in a model of log y.
        """
        values = self._checked_times(times)
        with self._local().threads():
            return self.predict_distribution(X, diagonal).sf(values[:, None]).T

    @predicts_each
    def predict_quantiles(self, X: ArrayLike, quantiles: Sequence[float], diagonal: ArrayLike | None = None) -> Array:
        """Predict quantiles of a new target; ``diagonal`` is as in `predict`.

        <quantiles>
        """
        levels = checked_levels(quantiles)
        with self._local().threads():
            return self.predict_distribution(X, diagonal).ppf(levels[:, None]).T

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0) -> Array:
        """Draw new targets jointly at several inputs: one latent function per draw, plus noise.

        With blocks each input has the distribution of `predict_distribution`. The function is correlated within a
        block; inputs in different blocks are independent given the hyperparameters.

        <new_inputs>
        n_samples : int
            Number of draws.
        random_state : int, RandomState or None
            Random seed; the same seed gives the same draws.

        Returns
        -------
        (n_new, n_samples) array
        """
        check_count("n_samples", n_samples, 1)
        return self._draws(X, n_samples, seeded(random_state))

    @predicts_each
    def _draws(self, X: ArrayLike, n_samples: int, rng: np.random.Generator) -> Array:
        return self.predict_distribution(X).rvs(n_samples, rng, joint=True).T

    @predicts_each
    def predict_table(
        self, X: ArrayLike, coverage: float = 0.9, target: str = "y", times: ArrayLike | None = None
    ) -> pd.DataFrame:
        """Predict mean, standard deviation, central interval and survival function of a new target at once.

        <new_inputs>
        coverage : float
            Probability of the interval, between 0 and 1.
        target : str
            Name of the target.
        times : (m,) array, optional
            Values of `predict_survival_function`.

        Returns
        -------
        DataFrame
            Columns ``target`` (what `predict` returns), "sd" (not with log_targets), and the ends of the interval. Each
            time has the probability that it is exceeded, as "P(> 2)". The rows have the index of X.

        Raises
        ------
        ValueError
            If coverage or times are out of range, or target is the name of another column.
        """
        check_target(target)
        check_share("coverage", coverage)
        values = None if times is None else self._checked_times(times)
        found = self.predict_distribution(X)
        columns = {target: self._centre(found)}
        if not self._fit.units.target_scale.is_log:
            columns["sd"] = found.std()
        with self._local().threads():
            for side, ends in zip(("lower", "upper"), found.interval(coverage), strict=True):
                columns[f"{side} {100 * coverage:.12g} %"] = ends
            for value in () if values is None else values:
                columns[f"P(> {repr(float(value)).removesuffix('.0')})"] = found.sf(value)
        return pd.DataFrame(columns, index=labels_of(X))

    def _centre(self, found: PredictiveDistribution) -> Array:
        """Return the output of `predict`: the mean, exp of the mean of log y, or with pinball noise the mean of f."""
        logarithm = found.scale.is_log
        one = found.modelled if logarithm else found
        centre = found.moments_of_f()[0] if self._fit.model.noise == "pinball" else one.mean()
        return np.exp(centre) if logarithm else centre

    def _checked_times(self, times: ArrayLike) -> Array:
        values = numbers("times", times, ("m",))
        self._checked().units.target_scale.check("times", values)
        return values


def hyperparameters(noise: NoiseModel, inverse: Array | None, units: Units, columns: Columns) -> Learned:
    """Return attributes: the units, and noise and inverse lengthscales in these units."""
    found: Learned = {f"{name}_": getattr(units, name) for name in ("mean", "scale", "location", "unit")}
    for name, value in parameters_in_unit(noise, units.unit).items():
        if noise.kind.parameter(name).prior is not None:
            found[f"{name}_"] = float(value)
    found["noise_variance_"] = float(noise.variance) * units.unit**2
    found["target_scale_"] = np.array(astuple(units.target_scale), dtype=np.float64)
    if inverse is None:
        return found
    each = columns.of_each(inverse)
    return found | {"lengthscale_": columns.width(units) / each, "relevance_": columns.named(each**2)}

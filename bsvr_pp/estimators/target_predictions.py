"""Predictions of the targets by a fitted regression: moments, intervals, quantiles and joint draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._checks import check_count, checked_levels, numbers
from bsvr_pp._compiler import threads_for
from bsvr_pp.estimators.censored import concordance, ends_of_targets, logs_of_targets
from bsvr_pp.estimators.local_blocks import LocalBlocks, blocks_from
from bsvr_pp.estimators.options import ends, seeded, validated
from bsvr_pp.inference.component import Component
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.predictive import predictions
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.noise import parameters_in_unit
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.row_kinds import representative

__all__ = ["TargetPredictions"]

Array = NDArray[np.float64]


class TargetPredictions:
    """Predictions of an estimator that has standardised inputs and targets and a fitted state."""

    noise: str
    log_targets: bool = False
    mean_: Array
    scale_: Array
    location_: float
    unit_: float
    C_: float
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    noise_scales: bool = True
    _fitted: Fitted

    def _problem(self) -> Problem:
        raise NotImplementedError

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict targets: their mean, or with pinball noise their quantile.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        return_std : bool
            Whether to return also the standard deviation of a new target, in which the noise is included;
            `predict_f` gives that of the function alone.

        Returns
        -------
        mean, or mean and standard deviation, (n_new,) arrays

        Raises
        ------
        ValueError
            If the standard deviation is asked for in a model of log y, where it may be infinite.
        """
        if return_std and self.log_targets:
            raise ValueError("return_std must be False with log_targets=True: predict_quantiles gives the spread")
        found = self._predictions(X)
        centre = found["f_mean"] if self.noise == "pinball" else found["y_mean"]
        mean = self._original(centre)
        return (mean, self.unit_ * np.sqrt(found["y_variance"])) if return_std else mean

    def predict_f(self, X: ArrayLike) -> tuple[Array, Array]:
        """Predict mean and standard deviation of the latent function, without the noise; of log y with log_targets.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.

        Returns
        -------
        mean, standard deviation : (n_new,) arrays
        """
        found = self._predictions(X)
        return self.location_ + self.unit_ * found["f_mean"], self.unit_ * np.sqrt(found["f_variance"])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the predictions; for intervals, also censored ones, their concordance.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : array
            Targets, as in `fit`.
        sample_weight : (n,) array, optional
            Weights, of targets that are exact.

        Raises
        ------
        ValueError
            If no pair of the intervals has a known order, or they come with weights.
        """
        ends = ends_of_targets(y)
        if ends is None:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        if sample_weight is not None:
            raise ValueError("sample_weight is for exact targets, and y has intervals")
        return concordance(ends, np.asarray(self.predict(X)))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Predict the central interval that contains a new target with the given probability.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        coverage : float
            Probability, between 0 and 1.

        Returns
        -------
        (n_new, 2) array
            Lower and upper end.

        Raises
        ------
        ValueError
            If coverage is out of range.
        """
        return self.predict_quantiles(X, ends(coverage))

    def predict_survival_function(self, X: ArrayLike, times: ArrayLike) -> Array:
        """Predict the probability that a new target is larger than given values.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
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
        inputs = self._standardised(X)
        return self._at(inputs, values=self._standardised_times(times))["y_survival"].T

    def predict_quantiles(self, X: ArrayLike, quantiles: Sequence[float]) -> Array:
        """Predict quantiles of a new target.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        quantiles : sequence of float
            Levels between 0 and 1.

        Returns
        -------
        (n_new, len(quantiles)) array

        Raises
        ------
        ValueError
            If a quantile is out of range.
        """
        found = self._predictions(X, checked_levels(quantiles))["y_quantile"]
        return self._original(found.T)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new targets jointly at several inputs: one latent function per draw, plus noise.

        With blocks, inputs in different blocks are independent given the hyperparameters.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        n_samples : int
            Number of draws.
        random_state : int, RandomState or None
            Random seed; the same seed gives the same draws.

        Returns
        -------
        (n_new, n_samples) array
        """
        check_count("n_samples", n_samples, 1)
        inputs = self._standardised(X)
        rng = seeded(random_state)
        out = np.empty((len(inputs), n_samples))
        parts = list(self._with_or_without_scales().components(self._problem()))
        weights = np.array([part.weight for part in parts])
        chosen = rng.choice(len(parts), size=n_samples, p=weights / weights.sum())
        for i in np.unique(chosen):
            at = np.flatnonzero(chosen == i)
            out[:, at] = parts[i].draw(inputs, at.size, rng).T
        return self._original(out)

    def predict_table(
        self, X: ArrayLike, coverage: float = 0.9, target: str = "y", times: ArrayLike | None = None
    ) -> pd.DataFrame:
        """Predict mean, standard deviation, central interval and survival function of a new target at once.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        coverage : float
            Probability of the interval, between 0 and 1.
        target : str
            Name of the target.
        times : (m,) array, optional
            Values of `predict_survival_function`.

        Returns
        -------
        DataFrame
            Columns ``target`` (what `predict` returns), "sd" (not with log_targets), the ends of the interval, and
            the probability of each time to be exceeded, such as "P(> 2)".

        Raises
        ------
        ValueError
            If coverage is out of range, or times are not finite, or not positive in a model of log y.
        """
        levels = checked_levels(ends(coverage))
        values = None if times is None else self._standardised_times(times)
        found = self._at(self._standardised(X), levels, values)
        columns = {target: self._original(found["f_mean" if self.noise == "pinball" else "y_mean"])}
        if not self.log_targets:
            columns["sd"] = self.unit_ * np.sqrt(found["y_variance"])
        for side, quantiles in zip(("lower", "upper"), found["y_quantile"], strict=True):
            columns[f"{side} {100 * coverage:g} %"] = self._original(quantiles)
        if times is not None:
            names = [f"P(> {time:g})" for time in np.asarray(times)]
            columns |= dict(zip(names, found["y_survival"], strict=True))
        return pd.DataFrame(columns)

    def _set_hyperparameters(self, noise: NoiseModel, inverse_lengthscale: Array | None) -> None:
        """Set the attributes of the hyperparameters, in the units of the data."""
        for name, value in parameters_in_unit(noise, self.unit_).items():
            if noise.kind.parameter(name).prior is not None:
                setattr(self, f"{name}_", float(value))
        self.noise_variance_ = float(noise.variance) * self.unit_**2
        if inverse_lengthscale is not None:
            inverse = np.broadcast_to(inverse_lengthscale, self.scale_.shape)
            self.lengthscale_, self.relevance_ = self.scale_ / inverse, inverse**2

    def _original(self, values: Array) -> Array:
        """Standardised targets in their unit."""
        targets = np.asarray(self.location_ + self.unit_ * values)
        return np.exp(targets) if self.log_targets else targets

    def _targets_of(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array | None]:
        """Check training data; return inputs, targets or a number of each interval, and ends (n, 2) of intervals."""
        ends = ends_of_targets(y)
        given = y if ends is None else representative(ends[:, 0], ends[:, 1])
        inputs, targets = validated(self, X, given, y_numeric=True, ensure_min_samples=2)
        targets = np.asarray(targets, np.float64)
        return inputs, *(logs_of_targets(targets, ends) if self.log_targets else (targets, ends))

    def _standardised(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        inputs: Array = (validated(self, X, reset=False) - self.mean_) / self.scale_
        return inputs

    def _standardised_times(self, times: ArrayLike) -> Array:
        values = numbers("times", times, ("m",))
        if self.log_targets:
            if not (values > 0).all():
                raise ValueError(f"times must be positive with log_targets=True, got {values[~(values > 0)][0]:g}")
            values = np.log(values)
        return np.asarray((values - self.location_) / self.unit_)

    def _local(self) -> LocalBlocks:
        return blocks_from(self.blocks) or LocalBlocks()

    def _with_or_without_scales(self) -> Fitted:
        return self._fitted if self.noise_scales else replace(self._fitted, scales=None)

    def _predictions(self, X: ArrayLike, levels: Array | None = None) -> dict[str, Array]:
        return self._at(self._standardised(X), levels)

    def _at(self, inputs: Array, levels: Array | None = None, values: Array | None = None) -> dict[str, Array]:
        """Predictions at standardised inputs, on the standardised scale."""
        problem, rng = self._problem(), np.random.default_rng(0)
        with threads_for(problem.targets.size), self._local().threads():
            wanted = np.empty(0) if levels is None else levels
            return predictions(self._components(problem), inputs, wanted, None, rng, values=values)

    def _components(self, problem: Problem) -> Iterable[Component]:
        in_blocks = problem.blocks is not None and self._fitted.draws is None
        neighbours = self._local().neighbours_of(in_blocks=in_blocks)
        return self._with_or_without_scales().components(problem, neighbours)

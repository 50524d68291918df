"""Default models of standardised training data, compiled once per structure and used with any data, and their fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._arrays import Array
from bsvr_pp._compiler import interruptible, rarely_collected
from bsvr_pp.approximations.posterior import without_factor
from bsvr_pp.classification.default_models import class_thresholds, standard_label_model, standard_ordinal_model
from bsvr_pp.estimators.training_data import (
    CheckedScore,
    TrainingData,
    as_given,
    mean_and_width,
    tied_inputs,
    validated,
)
from bsvr_pp.inference.approximate import Committee, at_optima, solve_at
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.fitted import Fitted, fitted_at, fitted_draws, read_fitted
from bsvr_pp.inference.partial_dependence import sums_of_f
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.protocol import Method, Options
from bsvr_pp.inference.result import blocks_of
from bsvr_pp.inference.search.at_size import AtSize, cut, search_in_blocks
from bsvr_pp.inference.search.optimize import initial_point
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.priors import Kernel, Tied, standard_model
from bsvr_pp.model.problem import Problem, read_model


@dataclass(frozen=True, slots=True)
class StandardModel:
    """A default model: its structure, which is noise, kernel and numbers of inputs and cut points, and its data.

    The noises "hinge" and "known_label" are for labels -1 and +1, with a fixed ``C`` if it is not learned, and
    ``n_cutpoints`` > 0 for ordered classes 0, 1, ..., n_cutpoints. Inputs of one number in ``tied``
    have one lengthscale.
    """

    noise: str
    kernel: Kernel
    ard: bool
    rows: TrainingData
    beta: float = 0.0
    quantile: float = 0.5
    n_cutpoints: int = 0
    blocks: Blocks | None = None
    C: float | None = None
    tied: Tied = None

    @property
    def problem(self) -> Problem:
        """The model, read; models of one structure share compiled functions."""
        if callable(self.kernel):  # the function may look at the inputs
            return read_model(self.make(self.blocks))
        rows = self.rows
        known: dict[str, Any] = {"beta": self.beta}
        if rows.weight is not None:
            known["weight"] = rows.weight
        if self.C is not None:
            known["C"] = float(self.C)
        if rows.ends is not None:
            known |= {"lower": rows.ends[:, 0], "upper": rows.ends[:, 1]}
        if self.n_cutpoints:
            known["thresholds"] = class_thresholds(rows.y, self.n_cutpoints)
        d = rows.X.shape[1]
        structure = self.noise, self.kernel, self.ard and d > 1, d, self.quantile, self.n_cutpoints, self.tied
        variant = {"weighted": rows.weight is not None, "intervals": rows.ends is not None, "fixed": self.C is not None}
        compiled = _compiled(*structure, **variant)
        return compiled.with_data(rows.X, rows.y, blocks=self.blocks, **known)

    def make(self, blocks: Blocks | None) -> pm.Model:
        """A PyMC model of the data in these blocks, whose priors are the same for all data."""
        rows = self.rows
        options: dict[str, Any] = {"kernel": self.kernel, "ard": self.ard, "tied": self.tied}
        if self.noise in ("hinge", "known_label"):
            options |= {"known": self.noise == "known_label", "weight": rows.weight, "C": self.C, "blocks": blocks}
            return standard_label_model(rows.X, rows.y, **options)
        if self.n_cutpoints:
            return standard_ordinal_model(rows.X, rows.y, self.n_cutpoints, noise=self.noise, **options)
        options |= {"beta": self.beta, "quantile": self.quantile, "weight": rows.weight, "ends": rows.ends}
        return standard_model(rows.X, rows.y, noise=self.noise, blocks=blocks, **options)


@lru_cache(maxsize=64)
@rarely_collected()
def _compiled(
    noise: str,
    kernel: Kernel,
    ard: bool,
    n_inputs: int,
    quantile: float,
    n_cutpoints: int,
    tied: Tied,
    *,
    weighted: bool,
    intervals: bool,
    fixed: bool,
) -> Problem:
    """The problem of a structure, with data that do not matter."""
    y = np.arange(n_cutpoints + 1.0) if n_cutpoints else np.array([1.0, -1.0])
    X = np.tile(np.linspace(1.0, -1.0, y.size)[:, None], (1, n_inputs))
    rows = as_given(X, y, np.stack([y, y], axis=1) if intervals else None)
    if weighted:
        rows = replace(rows, weight=np.ones(y.size))
    model = StandardModel(noise, kernel, ard, rows, 0.5, quantile, n_cutpoints, None, 1.0 if fixed else None, tied)
    problem = read_model(model.make(None))
    initial_point(problem)  # kept for all data
    return problem


class OfStandardModel(CheckedScore):
    """An estimator that fits a default model to standardised inputs, and keeps what the fit found."""

    _methods: ClassVar[Mapping[str, Method]]  # names of the option inference
    inference: Any
    mean_: Array
    scale_: Array
    _rows: TrainingData
    _model: StandardModel
    _fitted: Fitted

    def _standard_model(self, rows: TrainingData, blocks: Blocks | None = None) -> StandardModel:
        """The model of standardised rows."""
        raise NotImplementedError

    def _describe(self) -> None:
        """Set the attributes."""
        raise NotImplementedError

    def _method(self) -> Method:
        method: Method = self._methods[self.inference] if isinstance(self.inference, str) else self.inference
        return method

    def _problem(self) -> Problem:
        """The model with the training data."""
        return self._model.problem

    def _standardise(self, rows: TrainingData, location: float = 0.0, unit: float = 1.0) -> None:
        """Set the scales of the inputs, and the standardised rows."""
        self.mean_, self.scale_ = mean_and_width(rows.X, rows.weight, tied_inputs(self))
        self._rows = self._in_standard_units(rows, location, unit)

    def _in_standard_units(self, rows: TrainingData, location: float = 0.0, unit: float = 1.0) -> TrainingData:
        ends = None if rows.ends is None else (rows.ends - location) / unit
        return replace(rows, X=(rows.X - self.mean_) / self.scale_, y=(rows.y - location) / unit, ends=ends)

    def _standardised(self, X: ArrayLike) -> Array:
        """New inputs on the standardised scale."""
        check_is_fitted(self)
        inputs: Array = (validated(self, X, reset=False) - self.mean_) / self.scale_
        return inputs

    def _sums_of_f(self, X: Any, weights: Any) -> tuple[Array, list[tuple[Array, Array]]]:
        """Shares of the members, and of each the mean (k,) and covariance (k, k) of sparse weights (k, m) times f at X.

        In units of the targets.
        """
        inputs = self._standardised(X)
        units = {"location": getattr(self, "location_", 0.0), "unit": getattr(self, "unit_", 1.0)}
        return sums_of_f(self._components(), inputs, weights, **units)

    def _components(self) -> Iterable[Component]:
        """The fitted function."""
        return self._fitted.components(self._problem())

    def _result(self) -> xr.DataTree:
        return self._fitted.result(self._problem(), self._method())

    def _restore(self, result: xr.DataTree) -> None:
        self._model = self._standard_model(self._rows, blocks_of(result))
        self._fitted = read_fitted(self._problem(), result)
        self._describe()


@interruptible()
def fit_problem(
    problem: Problem,
    method: Method,
    model: Callable[[Blocks | None], pm.Model],
    *,
    rows: int | None = None,
    known: AtSize | None = None,
    options: Options,
    rng: np.random.Generator,
) -> tuple[Fitted, AtSize | None]:
    """Fit a compiled model: `fit` without a result, whose problem and hyperparameters are new each time.

    With ``rows`` it is divided into blocks of at most so many rows. With ``known``, which were found before for almost
    the same rows, only the blocks are cut again. NUTS samples what ``model`` makes.
    """
    found, latent = None, method.latent
    assert latent is not None  # as the estimators check
    if rows is not None:
        if known is None:
            found = search_in_blocks(problem, latent, rows=rows, options=options, rng=rng)
        else:
            found = replace(known, blocks=cut(problem, known.point, rows))
        problem = problem.take(np.arange(problem.targets.size), found.blocks)
    if method.capabilities.draws:
        draws = fit(method, model(problem.blocks), random_seed=rng, progressbar=False)
        return fitted_draws(problem, draws), found
    if found is not None:
        posterior = without_factor(solve_at(problem, latent, found.point, options.progressbar))
        state = fitted_at([found.point], [posterior], np.ones(1), found.optima, at_size=found.record())
        message = found.end.message if posterior.converged else "the solve of a block"
        return replace(state, converged=posterior.converged and found.end.converged, message=message), found
    check_budget(method, problem.targets.size, divisible=problem.ends.exact)
    committee = isinstance(method, Committee)
    return at_optima(latent, problem, {}, options, rng, all_optima=committee), None

"""Fits of the same model to some of its rows, so that `arviz.reloo` and `arviz.loo_kfold` run on results."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats import SamplingWrapper
from numpy.typing import ArrayLike, NDArray
from pymc.model.fgraph import clone_model
from pytensor.compile.sharedvalue import SharedVariable

from bsvr_pp.inference.component import noise_of_rows, rowwise_data
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.objective import initial_point
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.result import check_match, check_result
from bsvr_pp.model.graphs import copying
from bsvr_pp.model.problem import ModelError, Problem, read_model

__all__ = ["Refit", "Subsets"]


class _Fitted(NamedTuple):
    """A result, and the rows to which it was fitted."""

    result: xr.DataTree
    rows: NDArray[np.intp]


class Refit(SamplingWrapper):  # type: ignore[misc]
    """The `arviz.SamplingWrapper` of a result of any method: it fits the model again, without some of its rows.

    Inputs and targets of the model, and other data with a row for each training point, are `pm.Data`. Hyperparameters
    are optimised or sampled again at each refit, unless they are given. ``options`` are those of `fit`, such as
    ``restarts``. The density of a row that was left out is that of `predict`, with f, and draws of the
    hyperparameters, integrated out.
    """

    def __init__(
        self,
        result: xr.DataTree,
        *,
        model: pm.Model | None = None,
        hyperparameters: Mapping[str, ArrayLike] | None = None,
        random_seed: int = 0,
        **options: Any,
    ) -> None:
        check_result("result", result)
        problem = read_model(model)
        check_match(problem, result)
        rows = Subsets(problem)
        point = initial_point(problem)
        first = {name: values[1:] for name, values in rowwise_data(problem).items()}
        noise_of_rows(problem, problem.inputs[1:], first)(point)
        super().__init__(problem.model, idata_orig=result)
        self._rows, self._inputs, self._method = rows, problem.inputs, method_of(result)
        self._targets = result["observed_data"].to_dataset()[problem.target]
        self._given = {"hyperparameters": hyperparameters, "random_seed": random_seed, "progressbar": False} | options

    def sel_observations(self, idx: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions of the rows that are kept, and of those that are left out."""
        left_out = np.atleast_1d(np.asarray(idx, dtype=np.intp))
        return np.setdiff1d(np.arange(self._targets.size), left_out), left_out

    def sample(self, modified_observed_data: NDArray[np.intp]) -> _Fitted:
        """Fit the model to the rows at these positions."""
        kept = self._rows.choose(modified_observed_data)
        return _Fitted(fit(self._method, kept, **self._given), modified_observed_data)

    def get_inference_data(self, fitted_model: _Fitted) -> xr.DataTree:
        """Return the result of a refit, with the positions of its rows as the attribute ``rows``."""
        fitted_model.result.attrs["rows"] = fitted_model.rows
        return fitted_model.result

    def log_likelihood__i(self, excluded_obs: NDArray[np.intp], idata__i: xr.DataTree) -> xr.DataArray:
        """Log density of each row that was left out, (1, 1, rows), averaged over the posterior of the refit."""
        model, targets = self._rows.choose(idata__i.attrs["rows"]), self._targets[excluded_obs]
        inputs, others = self._inputs[excluded_obs], self._rows.data(excluded_obs)
        seen = predict(idata__i, inputs, model=model, y_new=targets.values, quantiles=(0.5,), data=others)
        return targets.copy(data=seen["y_log_density"].values).expand_dims(("chain", "draw"))


class Subsets:
    """A copy of a model whose rows can be chosen again and again; its functions are compiled once.

    Inputs and targets must be `pm.Data`, and so must whatever else has a row for each of them.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        for label, variable in (("X", problem.X), (problem.target, problem.y)):
            if not isinstance(variable, SharedVariable) or variable.name not in problem.data:
                raise ModelError(f"{label} must be pm.Data, so that the model can be fitted to some of its rows")
        self._others = rowwise_data(problem)
        values = {problem.X.name: problem.inputs, problem.y.name: problem.targets, **self._others}
        self._values = {name: np.asarray(value, dtype=problem.data[name].dtype) for name, value in values.items()}
        with copying():
            copy = clone_model(model)
        copy._coords = dict(copy._coords)
        # PyMC's copy has other variables, which hold the same values.
        for variable in {*copy.named_vars.values(), *copy.dim_lengths.values()}:
            if isinstance(variable, SharedVariable):
                variable.container = deepcopy(variable.container)
        rowwise = [*self._values, problem.target, problem.prior.name]
        dims = [model.named_vars_to_dims.get(name, (None,))[0] for name in rowwise]
        self._dims = {dim: model.coords.get(dim) for dim in dims if dim is not None}
        self.model: pm.Model = copy

    def choose(self, rows: ArrayLike) -> pm.Model:
        """Return the copy, with the rows at these positions."""
        kept = np.asarray(rows, dtype=np.intp)
        for dim, labels in self._dims.items():
            self.model.set_dim(dim, kept.size, None if labels is None else [labels[i] for i in kept])
        for name, values in self._values.items():
            self.model[name].set_value(values[kept])
        return self.model

    def data(self, rows: ArrayLike) -> dict[str, NDArray[Any]]:
        """Values at these positions of the data with a row for each point, without inputs and targets, by name."""
        kept = np.asarray(rows, dtype=np.intp)
        return {name: values[kept] for name, values in self._others.items()}

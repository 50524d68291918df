"""Refits without some rows, so that `arviz.reloo` and `arviz.loo_kfold` run on results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats import SamplingWrapper
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.assess.subset import Rows
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.layout import layout_of
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.new_rows import noise_of_rows, rowwise_data
from bsvr_pp.inference.objective import initial_point
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.result import check_match, check_result
from bsvr_pp.model.problem import read_model

__all__ = ["Refit"]


class _Fitted(NamedTuple):
    """A result, and the rows to which it was fitted."""

    result: xr.DataTree
    rows: NDArray[np.intp]


class Refit(SamplingWrapper):  # type: ignore[misc]
    """The `arviz.SamplingWrapper` of a result: it fits the model again, without some of its rows.

    Hyperparameters are optimised or sampled again at each refit, unless they are given. The density of a row that was
    left out is that of `predict`, with f, and draws of the hyperparameters, integrated out.

    Parameters
    ----------
    result : DataTree
        Result of `fit`, by any method.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``. Its inputs and targets, and other data
        with a row for each training point, are `pm.Data`.
    hyperparameters : dict, optional
        Hyperparameters that were given to `fit`, by name; they keep these values.
    random_seed : int
        Random seed of each refit.
    **options
        Other options of `fit`, such as ``restarts``.

    Raises
    ------
    ModelError
        If inputs or targets are not `pm.Data`.
    ValueError
        If result and model do not belong together, or the noise has a value for each training point that is not
        computed from `pm.Data`.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import arviz as az, bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> az.loo_kfold(result, bp.Refit(result, model=model, hyperparameters=at), k=3).n_folds
    3
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
        rows = Rows(problem)
        point = initial_point(problem)
        first = {name: values[1:] for name, values in rowwise_data(problem).items()}
        noise_of_rows(problem, problem.inputs[1:], first)(point, problem.noise_at(point))
        super().__init__(problem.model, idata_orig=result)
        self._rows, self._problem, self._method = rows, problem, method_of(result)
        self._given = {"hyperparameters": hyperparameters, "random_seed": random_seed, "progressbar": False} | options

    def sel_observations(self, idx: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions of the rows that are kept, and of those that are left out."""
        left_out = np.atleast_1d(np.asarray(idx, dtype=np.intp))
        return np.setdiff1d(np.arange(self._problem.targets.size), left_out), left_out

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
        problem, layout = self._problem, layout_of(self._problem)
        model = self._rows.choose(idata__i.attrs["rows"])
        others = {name: values[excluded_obs] for name, values in rowwise_data(problem).items()}
        inputs, targets = problem.inputs[excluded_obs], problem.targets[excluded_obs]
        seen = predict(idata__i, inputs, model=model, y_new=targets, quantiles=(0.5,), data=others)
        labels = np.asarray(layout.coords[layout.row])[excluded_obs]
        values = seen["y_log_density"].values[None, None]
        return xr.DataArray(values, dims=("chain", "draw", layout.row), coords={layout.row: labels})

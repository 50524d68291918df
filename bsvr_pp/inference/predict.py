"""Predictions from any result, independent of the method that made it.

At one point of the hyperparameters f is Gaussian at the new inputs (for MAP a point), and a new target is f plus noise.
Densities and cdfs are averaged over draws or points of the hyperparameters; quantiles invert the averaged cdf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp.core.arrays import check_choice, check_size, checked_levels, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.fitted import components
from bsvr_pp.inference.parts import names_of_latents
from bsvr_pp.inference.prediction.component import mixture_of, new_rows, noise_of_rows, predictions, rowwise_data
from bsvr_pp.inference.prediction.distribution import QUANTILES, PredictiveDistribution, mixed
from bsvr_pp.inference.result import NamesOfRows, dim_of_new_rows, problem_of
from bsvr_pp.model.problem import Problem

_NAMES = ["class", "quantile", "f_mean", "f_variance", "y_mean", "y_variance", "y_quantile", "y_new", "y_probability"]
_NAMES += ["y_class_probability", "y_log_density", "y_cdf", "y_crps"]


@shared
def predict(
    result: xr.DataTree,
    X_new: ArrayLike | None = None,
    *,
    model: pm.Model | None = None,
    quantiles: Sequence[float] = QUANTILES,
    y_new: ArrayLike | None = None,
    data: Mapping[str, ArrayLike] | None = None,
    target: str | None = None,
    component: str | None = None,
    neighbours: int | None = None,
    **names: Unpack[NamesOfRows],
) -> xr.Dataset:
    """Predict the latent function and new targets.

    Parameters
    ----------
    result : DataTree
        Result of `fit`. Of many draws 200 are used, at even distances.
    X_new : (n_new, d) array, optional
        New inputs of the first process that has the rows of the targets. Without such a process give only ``data``.
    <model>
    quantiles : sequence of float
        Levels of quantiles of the new targets, between 0 and 1.
    y_new : (n_new,) array, optional
        Targets at the new inputs. ``y_log_density`` is their log density, ``y_cdf`` their probability integral
        transform, and ``y_crps`` their continuous ranked probability score, in the units of the target.
    data : dict, optional
        Values by name of the other `pm.Data` on which noise, linear terms or processes depend, one row for each new
        input. Inputs that are `pm.Data` have the values of X_new.
    target : str, optional
        Name of the observed variable whose values are predicted; needed if several are observed.
    component : str, optional
        Name of one process of a sum, or of the coefficients of a linear term. Only ``f_mean`` and ``f_variance`` of
        this part of f are returned.
    neighbours : int, optional
        Number of nearest training rows. f then has a separate mean-field fit on these at each new input (Gramacy &
        Apley 2015). The result must come from an approximation at one point of the hyperparameters. 64 rows take about
        a millisecond for each input. By default f comes from the model; with blocks, from the block whose region
        contains the input.
    dims, coords : str, dict, optional
        Name of the dimension of the new rows, by default "obs_new", and its coordinate by this name, by default row
        numbers.

    Returns
    -------
    xarray.Dataset
        ``f_mean``, ``f_variance``, ``y_mean`` and ``y_variance`` of the new rows, and ``y_quantile`` over ``quantile``.
        With targets also ``y_log_density``, ``y_cdf`` and ``y_crps``, and the coordinate ``y_new``. The variance of f
        is Chu, Keerthi & Ong 2004, (44), or its equivalent for mean field; the variance of y adds (15). For labels the
        result has ``y_probability``, the probability of +1, instead of quantiles. It is averaged over the posterior
        (Sollich 2002, (33)), or at the mode for MAP (37). For ordered classes it has ``y_class_probability`` over
        ``class`` and the rows, and y_mean and y_variance of the class number. For censored targets and intervals the
        latent target is predicted, and y_new are exact targets.

    Raises
    ------
    ValueError
        If X_new, data, dims or coords do not fit, a quantile is outside (0, 1), or result and model do not belong
        together. Also if the noise of new points is unknown, because it has a value for each training point, or depends
        on missing data.
    <no_result>

    <pymc_model>
    ...     result = bp.fit(bp.Laplace(), hyperparameters={"C": 10.0}, progressbar=False)
    ...     prediction = bp.predict(result, [[0.0], [9.0]])
    >>> bool(prediction["f_variance"][0] < prediction["f_variance"][1])
    True
    """
    if unknown := names.keys() - NamesOfRows.__annotations__.keys():
        raise TypeError(f"predict() got an unexpected keyword argument {min(unknown)!r}")
    problem = problem_of(result, model)
    data = _of_target(problem, target, X_new, data)
    X = new_rows(problem, X_new, data, y_new)
    levels = checked_levels(quantiles)
    targets = None if y_new is None else numbers("y_new", y_new, (len(X),))
    if targets is not None:
        check_size("y_new", targets)
    row, labels = dim_of_new_rows(len(X), _NAMES, **names)
    at: dict[str, Any] = {row: labels}
    if component is not None:
        if y_new is not None:
            raise ValueError("component is a part of f, without noise, and y_new has noise: give one of the two")
        known = names_of_latents(problem) if problem.composite is not None else []
        if component not in known:
            raise ValueError(
                f"component must be a part of f, {', '.join(known) or 'and it has none'}, got {component!r}"
            )
        parts = components(problem, result, component, neighbours)
        moments = [(part.weight, *part.moments(X)[:2]) for part in parts]
        weights, means, variances = (np.stack(each) for each in zip(*moments, strict=True))
        mean, variance = mixed(weights[:, None] / weights.sum(), means, variances)
        return xr.Dataset({"f_mean": (row, mean), "f_variance": (row, variance)}, coords=at)
    noise_of = noise_of_rows(problem, X, data)
    joined = predictions(components(problem, result, None, neighbours), X, levels, targets, noise_of)
    if "y_quantile" in joined:
        at["quantile"] = levels
    if targets is not None:
        at["y_new"] = (row, targets)
    over = {"y_quantile": ("quantile", row), "y_class_probability": ("class", row)}
    return xr.Dataset({name: (over.get(name, (row,)), value) for name, value in joined.items()}, coords=at)


@shared
def predict_distribution(
    result: xr.DataTree,
    X_new: ArrayLike | None = None,
    *,
    model: pm.Model | None = None,
    data: Mapping[str, ArrayLike] | None = None,
    target: str | None = None,
    neighbours: int | None = None,
) -> PredictiveDistribution:
    """Predict the whole distribution of new targets.

    Parameters
    ----------
    result, X_new, model, data, target, neighbours
        As in `predict`.

    Returns
    -------
    PredictiveDistribution
        Densities, probabilities, quantiles, draws and scores of new targets, in closed form.

    Raises
    ------
    ValueError
        As in `predict`; also for labels and ordered classes, which have only probabilities.
    <no_result>

    <sinc_result>
    >>> bp.predict_distribution(result, [[0.0]], model=model).interval(0.5)[1] > 0
    array([ True])
    """
    problem = problem_of(result, model)
    data = _of_target(problem, target, X_new, data)
    X = new_rows(problem, X_new, data)
    check_real(problem, "predict_distribution", "use predict")
    parts = partial(components, problem, result, neighbours=neighbours)
    return mixture_of(parts(), X, noise_of_rows(problem, X, data), jointly=parts)[0]


def check_real(problem: Problem, name: str, remedy: str) -> None:
    """Check that targets are no classes, which have probabilities and no other distribution."""
    if problem.ends.cutpoints or problem.loss.targets.values:
        raise ValueError(f"{name} takes real targets, and the model has classes: {remedy}")


def _of_target(
    problem: Problem, target: str | None, X_new: ArrayLike | None, data: Mapping[str, ArrayLike] | None
) -> Mapping[str, ArrayLike] | None:
    """The data of new rows of a target, which must be named if there are several."""
    if problem.sources is None:
        check_choice("target", problem.target if target is None else target, [problem.target])
        return data
    first = next(iter((data or {}).values()), ()) if X_new is None else X_new
    return problem.sources.of_new_rows(target, len(np.atleast_1d(first)), data or {}, rowwise_data(problem))

"""Coordinates in which full NUTS samples a model: the latent function is whitened by the sites of mean field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.optimize import maximize
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.whiten import can_whiten, whiten

__all__ = ["whitened"]

Array = NDArray[np.float64]


def whitened(problem: Problem, progressbar: bool) -> pm.Model:
    """Return the model in the coordinates of `whiten`, with the sites of mean field at its optimum.

    The model is returned as it is if f has no coordinates (``reparameterize=False``), the model sets initial values,
    has labels or discrete hyperparameters, or mean field fails.

    Parameters
    ----------
    problem : Problem
        The model.
    progressbar : bool
        Whether to show progress of the optimisation.

    Raises
    ------
    KeyboardInterrupt
        If the optimisation is interrupted.
    """
    discrete = any(np.dtype(v.dtype).kind != "f" for v in problem.variables)
    if discrete or problem.loss.classification or not can_whiten(problem):
        return problem.model
    method = MeanField()
    point = {}
    if problem.hyperparameters:
        rng = np.random.default_rng(0)
        options: dict[str, Any] = {"restarts": None, "objective": "posterior", "progressbar": progressbar}
        optimum = maximize(problem, method, {}, rng=rng, **options)[0]
        if optimum.message.startswith("interrupted"):
            raise KeyboardInterrupt
        if not np.isfinite(optimum.objective):
            return problem.model
        point = {name: _rounded(optimum.point[name]) for name in problem.hyperparameters}
    K, mean, noise = problem.at(point)
    found = method.solve(K, problem.targets, noise, mean)
    if not found.converged:
        return problem.model
    natural_mean = found.dual_coef + found.site_precision * (found.mean - mean)
    return whiten(problem, point, _rounded(found.site_precision), _rounded(natural_mean))


def _rounded(values: Array) -> Array:
    """Round to three digits, so that the draws do not depend on the last digits of the optimum."""
    with np.errstate(divide="ignore"):
        digit = 10.0 ** np.floor(np.log10(np.abs(values)) - 2.0)
    return np.where(values == 0.0, 0.0, np.rint(values / np.where(digit > 0, digit, 1.0)) * digit)

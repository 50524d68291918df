"""Coordinates in which NUTS samples a model: f whitened by the sites of mean field, and noise by scale and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.optimize import maximize
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.model.marginalize import marginalize
from bsvr_pp.model.noise_coordinates import NOISE_COORDINATES, noise_coordinates, with_noise_coordinates
from bsvr_pp.model.problem import Point, Problem, read_model
from bsvr_pp.model.whiten import can_whiten, whiten

__all__ = ["sampled_model"]

Array = NDArray[np.float64]


def sampled_model(problem: Problem, latent: Approximation | None, progressbar: bool) -> pm.Model:
    """Return the model that is sampled, in its coordinates.

    The noise has those of `with_noise_coordinates`, and f those of `whiten`, with the sites of mean field at its
    optimum. f stays as it is if it has no coordinates (``reparameterize=False``), the model sets initial values, has
    labels or discrete hyperparameters, or mean field fails.

    Parameters
    ----------
    problem : Problem
        The model.
    latent : Laplace, MeanField or another approximation, optional
        Method that integrates f out.
    progressbar : bool
        Whether to show progress of the optimisation.

    Raises
    ------
    KeyboardInterrupt
        If the optimisation is interrupted.
    """
    moved = with_noise_coordinates(problem)
    same = moved is problem.model
    if latent is None:
        point, sites = _optimum(problem, progressbar)
        if sites is not None:
            return _starting(whiten(problem if same else read_model(moved), *sites), problem, point)
    model = moved if latent is None else marginalize(latent, moved)
    return model if same else _starting(model, problem, _first(problem))


def _optimum(problem: Problem, progressbar: bool) -> tuple[Point, tuple[Array, Array] | None]:
    """Hyperparameters of mean field, and the precisions and natural means of its sites if `whiten` can take them."""
    discrete = any(np.dtype(v.dtype).kind != "f" for v in problem.variables)
    point: Point = {}
    if discrete or problem.loss.classification or not can_whiten(problem):
        return point, None
    method = MeanField()
    if problem.hyperparameters:
        rng = np.random.default_rng(0)
        options: dict[str, Any] = {"restarts": None, "objective": "posterior", "progressbar": progressbar}
        optimum = maximize(problem, method, {}, rng=rng, **options)[0]
        if optimum.message.startswith("interrupted"):
            raise KeyboardInterrupt
        if not np.isfinite(optimum.objective):
            return point, None
        point = {name: _rounded(optimum.point[name]) for name in problem.hyperparameters}
    K, mean, noise = problem.at(point)
    found = method.solve(K, problem.targets, noise, mean)
    natural_mean = found.dual_coef + found.site_precision * (found.mean - mean)
    return point, (_rounded(found.site_precision), _rounded(natural_mean)) if found.converged else None


def _first(problem: Problem) -> Point:
    """The model's initial hyperparameters."""
    point = problem.model.initial_point(0)
    return problem.to_constrained([point[value.name] for value in problem.values])


def _starting(model: pm.Model, problem: Problem, point: Point) -> pm.Model:
    """Let samplers start at a point of the original model; the copy is changed in place."""
    free = {v.name for v in model.free_RVs}
    start = {name: at for name, at in point.items() if name in free}
    if set(NOISE_COORDINATES) <= free:
        start |= noise_coordinates(problem.noise_at(point))
    for name, at in start.items():
        model.rvs_to_initial_values[model[name]] = np.asarray(at)
    return model


def _rounded(values: Array) -> Array:
    """Round to three digits, so that the draws do not depend on the last digits of the optimum."""
    with np.errstate(divide="ignore"):
        digit = 10.0 ** np.floor(np.log10(np.abs(values)) - 2.0)
    return np.where(values == 0.0, 0.0, np.rint(values / np.where(digit > 0, digit, 1.0)) * digit)

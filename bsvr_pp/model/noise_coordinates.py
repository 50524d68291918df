"""A model whose noise is sampled by its standard deviation and its shape instead of by C and epsilon.

Data determine the standard deviation of soft insensitive noise well, and hardly its shape, which depends on C·epsilon
alone. So C and epsilon lie along a curve a posteriori, along which NUTS takes small steps. The coordinates here are
log(C·epsilon) and the log of the standard deviation. The map from log C and log epsilon has the Jacobian 1: the
posterior of the model is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogTransform
from pymc.model.fgraph import (
    fgraph_from_model,
    model_deterministic,
    model_free_rv,
    model_from_fgraph,
    model_potential,
)
from pymc.pytensorf import toposort_replace
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.graphs import can_copy, copying
from bsvr_pp.model.problem import Problem

__all__ = ["NOISE_COORDINATES", "noise_coordinates", "unit_variance", "with_noise_coordinates"]

NOISE_COORDINATES = ("noise_log_tube_", "noise_log_sd_")
_SMOOTH = {"soft_insensitive": None, "epsilon_insensitive": 0.0, "huber": 1.0}  # beta, or None if it is a parameter


def unit_variance(tube: Any, beta: Any) -> Any:
    """Variance of the noise with C = 1 and epsilon = tube: Chu, Keerthi & Ong 2004, (14) and (15), as a graph."""
    a, q = (1.0 - beta) * tube, beta * tube
    root = pt.sqrt(pt.maximum(q, 1e-30))
    smooth, tail = np.pi**0.5 * root * pt.erf(root), pt.exp(-q)
    second = a**3 / 3.0 + (a**2 + 2.0 * q) * smooth + 4.0 * a * q + (a**2 + 2.0 * tube + 2.0 * q + 2.0) * tail
    return second / (a + smooth + tail)


def with_noise_coordinates(problem: Problem) -> pm.Model:
    """Copy a model so that its free variables are `NOISE_COORDINATES` instead of C and epsilon.

    Parameters
    ----------
    problem : Problem
        The model.

    Returns
    -------
    pm.Model
        The model with C and epsilon as Deterministics of the same names; the model itself unless the noise is soft
        insensitive (or epsilon-insensitive, or Huber's), both are positive random numbers of which beta is independent,
        and PyMC can copy the model.
    """
    model = problem.model
    named = dict(zip(problem.loss.parameters, problem.parameters, strict=True))
    if problem.loss.name not in _SMOOTH or not can_copy(model):
        return model
    given = [named[name] for name in ("C", "epsilon")]
    beta = pt.as_tensor_variable(named.get("beta", _SMOOTH[problem.loss.name]))
    if beta.ndim > 0 or not all(_is_log(model, v) and v not in ancestors([beta]) for v in given):
        return model
    with copying():
        fgraph, memo = fgraph_from_model(model)
    old = [memo[v] for v in given]
    smooth = graph_replace([beta], {v: memo[v] for v in ancestors([beta]) if v in memo}, strict=False)[0]
    log_tube, log_sd = (_free(name) for name in NOISE_COORDINATES)
    log_C = 0.5 * pt.log(unit_variance(pt.exp(log_tube), smooth)) - log_sd
    logs = [log_C, log_tube - log_C]
    density = sum(pm.logp(v.owner.inputs[0], pt.exp(x)) + x for v, x in zip(old, logs, strict=True))
    new = [model_deterministic(pt.exp(x), v.name) for v, x in zip(given, logs, strict=True)]
    for variable in (log_tube, log_sd):
        fgraph.add_output(variable, import_missing=True)
    fgraph.add_output(model_potential(density, f"{NOISE_COORDINATES[0]}density"))
    toposort_replace(fgraph, tuple(zip(old, new, strict=True)))
    return model_from_fgraph(fgraph, mutate_fgraph=True)


def noise_coordinates(noise: NoiseModel) -> dict[str, Any]:
    """Compute the values of `NOISE_COORDINATES`.

    Examples
    --------
    >>> from bsvr_pp.losses import soft_insensitive
    >>> from bsvr_pp.model.noise_coordinates import noise_coordinates
    >>> {name: float(x.round(3)) for name, x in noise_coordinates(soft_insensitive(5.0, 0.2, 0.8)).items()}
    {'noise_log_tube_': 0.0, 'noise_log_sd_': -1.104}
    """
    tube = np.ravel(noise.parameters["C"])[0] * np.ravel(noise.parameters["epsilon"])[0]
    values = np.log(tube), 0.5 * np.log(np.ravel(noise.variance)[0])
    return dict(zip(NOISE_COORDINATES, values, strict=True))


def _is_log(model: pm.Model, variable: Any) -> bool:
    positive = isinstance(model.rvs_to_transforms.get(variable), LogTransform)
    return variable in model.free_RVs and variable.ndim == 0 and positive


def _free(name: str) -> Any:
    variable = pm.Flat.dist()
    return model_free_rv(variable, variable.type(name=name), None, name)

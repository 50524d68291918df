"""A model in coordinates in which NUTS takes few steps; its posterior stays the same.

`GP.prior` writes f = m + L·u with u standard normal. With Gaussian sites, of precisions τ and natural means ν, held
fixed, the posterior of u is N(M⁻¹Lᵀν, M⁻¹) with M = I + LᵀτL = GGᵀ. So u = G⁻ᵀ(v + G⁻¹Lᵀν) makes v nearly standard
normal, whatever the hyperparameters are. Data determine the standard deviation of soft insensitive noise well, and
hardly its shape, C·epsilon: the coordinates are the logs of both. The map from log C and log epsilon has Jacobian 1.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogTransform
from pymc.model.fgraph import fgraph_from_model, model_deterministic, model_free_rv, model_from_fgraph, model_potential
from pymc.pytensorf import toposort_replace
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import WalkingGraphRewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from bsvr_pp.core.arrays import Array, Number, Tensor
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.model.compiled import CompiledModel
from bsvr_pp.model.gaussian import replace_in
from bsvr_pp.model.gp import copy_model, factor_of

LATENT_COORDINATES = "f_posterior_white_"
NOISE_COORDINATES = ("noise_log_tube_", "noise_log_sd_")
_SMOOTH = {"soft_insensitive": 0.5, "epsilon_insensitive": 0.0, "huber": 1.0}  # beta, where it is no parameter
_REWRITES = ("ShapeOpt", "merge", "canonicalize", "stabilize")
_PASSES = 2  # the second one merges what the first one has made equal


def can_whiten(problem: CompiledModel) -> bool:
    """Whether `whiten` can transform the model: f is whitened by its prior, and PyMC can copy the model."""
    return problem.prior.whitened is not None and _can_copy(problem.model)


def _can_copy(model: pm.Model) -> bool:
    """Whether PyMC can copy the model: it has no parent and no initial values."""
    return model.parent is None and all(value is None for value in model.rvs_to_initial_values.values())


def whiten(problem: CompiledModel, precision: Array, natural_mean: Array) -> pm.Model:
    """Copy a model with v (`LATENT_COORDINATES`) for u = L⁻¹(f - m), given Gaussian sites τ ≥ 0 and ν (n,) of f - m."""
    model, name = problem.model, problem.prior.whitened
    fgraph, memo = copy_model(model, fgraph_from_model)
    old = memo[model[name]]
    variable, value = old.owner.inputs
    v = model_free_rv(variable, value.type(name=LATENT_COORDINATES), None, LATENT_COORDINATES, *old.owner.op.dims)
    L = memo[factor_of(model[problem.prior.name])]
    G = pt.linalg.cholesky(pt.eye(L.shape[0]) + L.T @ (pt.constant(precision)[:, None] * L))
    shifted = v + pt.linalg.solve_triangular(G, L.T @ pt.constant(natural_mean), lower=True)
    u = pt.linalg.solve_triangular(G.T, shifted, lower=False)
    log_ratio = 0.5 * (pt.sqr(v).sum() - pt.sqr(u).sum()) - pt.log(pt.diagonal(G)).sum()
    toposort_replace(fgraph, ((old, model_deterministic(u, name, *old.owner.op.dims)),))
    fgraph.add_output(v)
    fgraph.add_output(model_potential(log_ratio, f"{LATENT_COORDINATES}density"))
    copy = model_from_fgraph(fgraph, mutate_fgraph=True)
    copy.__class__ = _Merged
    return copy


class _Merged(pm.Model):
    """A model whose log density has each factorisation once: PyMC writes equal parts in two ways, and finds none."""

    def logp(self, *args: object, **kwargs: object) -> Tensor | list[Tensor]:
        """Log density, as `pm.Model.logp`."""
        graph = super().logp(*args, **kwargs)
        if isinstance(graph, list):
            return graph
        for _ in range(_PASSES):
            graph = rewrite_graph(
                graph, include=_REWRITES, custom_rewrite=WalkingGraphRewriter(_expand_inputs), clone=False
            )
        return graph


@node_rewriter([DimShuffle])
def _expand_inputs(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Give a new axis to the inputs of an elementwise operation on numbers instead of to its result."""
    made = node.inputs[0].owner
    if node.inputs[0].type.ndim > 0 or made is None or not isinstance(made.op, Elemwise) or len(made.outputs) > 1:
        return None
    return made.op.make_node(*(node.op(x) for x in made.inputs)).outputs


def unit_variance(tube: Number, beta: Number) -> Tensor:
    """Variance of the noise with C = 1 and epsilon = tube: Chu, Keerthi & Ong 2004, (14) and (15), as a graph."""
    a, q = (1.0 - beta) * tube, beta * tube
    root = pt.sqrt(pt.maximum(q, 1e-30))
    smooth, tail = np.pi**0.5 * root * pt.erf(root), pt.exp(-q)
    second = a**3 / 3.0 + (a**2 + 2.0 * q) * smooth + 4.0 * a * q + (a**2 + 2.0 * tube + 2.0 * q + 2.0) * tail
    return second / (a + smooth + tail)


def with_noise_coordinates(problem: CompiledModel) -> pm.Model:
    """Copy a model with `NOISE_COORDINATES` for C and epsilon; itself if they are not free or it cannot be copied."""
    model = problem.model
    named = dict(zip(problem.loss.parameters, problem.parameters, strict=True))
    if problem.loss.name not in _SMOOTH or not _can_copy(model):
        return model
    given = [named[name] for name in ("C", "epsilon")]
    beta = named["beta"] if "beta" in named else pt.as_tensor_variable(_SMOOTH[problem.loss.name])
    if beta.ndim > 0 or not all(_is_log(model, v) and v not in ancestors([beta]) for v in given):
        return model
    fgraph, memo = copy_model(model, fgraph_from_model)
    old = [memo[v] for v in given]
    smooth = replace_in(beta, {cast(Tensor, v): memo[v] for v in ancestors([beta]) if v in memo})
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


def noise_coordinates(noise: NoiseModel) -> dict[str, Array]:
    """Values of `NOISE_COORDINATES`."""
    tube = np.ravel(noise.parameters["C"])[0] * np.ravel(noise.parameters["epsilon"])[0]
    values = np.log(tube), 0.5 * np.log(np.ravel(noise.variance)[0])
    return dict(zip(NOISE_COORDINATES, values, strict=True))


def _is_log(model: pm.Model, variable: Tensor) -> bool:
    positive = isinstance(model.rvs_to_transforms.get(variable), LogTransform)
    return variable in model.free_RVs and variable.ndim == 0 and positive


def _free(name: str) -> Tensor:
    variable = pm.Flat.dist()
    return model_free_rv(variable, variable.type(name=name), None, name)

"""A model whose latent function is whitened by its approximate posterior instead of its prior.

`GP.prior` writes f = m + L·u with LLᵀ = K(θ) and u standard normal a priori. A posteriori u is correlated, and NUTS
takes many steps. With Gaussian sites, of precisions τ and natural means ν, held fixed for all θ, the posterior of u is
N(M⁻¹Lᵀν, M⁻¹) with M = I + LᵀτL = GGᵀ. So u = G⁻ᵀ(v + G⁻¹Lᵀν) makes v nearly standard normal where the sites are those
of a good approximation, whatever the hyperparameters are. This changes coordinates only: the posterior of the model is
the same for any sites.
"""

from __future__ import annotations

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.fgraph import (
    fgraph_from_model,
    model_deterministic,
    model_free_rv,
    model_from_fgraph,
    model_potential,
)
from pymc.pytensorf import toposort_replace
from pytensor.graph.rewriting.basic import WalkingGraphRewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from bsvr_pp.model.gp import factor_of
from bsvr_pp.model.graphs import can_copy, copying
from bsvr_pp.model.problem import Problem

__all__ = ["COORDINATES", "can_whiten", "whiten"]

Array = NDArray[Any]

COORDINATES = "f_posterior_white_"


@node_rewriter([DimShuffle])
def _expand_inputs(fgraph: Any, node: Any) -> list[Any] | None:
    """Give a new axis to the inputs of an elementwise operation on numbers instead of to its result."""
    made = node.inputs[0].owner
    if node.inputs[0].type.ndim > 0 or made is None or not isinstance(made.op, Elemwise) or len(made.outputs) > 1:
        return None
    return [made.op(*(node.op(x) for x in made.inputs))]


_REWRITES = ("ShapeOpt", "merge", "canonicalize", "stabilize")
_PASSES = 2  # the second one merges what the first one has made equal


class _Merged(pm.Model):
    """A model whose log density has each factorisation once.

    PyMC builds the densities of variables and of potentials apart, and writes shapes and scalar factors in two ways, so
    that equal parts are not found: they would be computed twice, and their gradients too.
    """

    def logp(self, *args: Any, **kwargs: Any) -> Any:
        """Log density, as `pm.Model.logp`."""
        graph = super().logp(*args, **kwargs)
        if isinstance(graph, list):
            return graph
        for _ in range(_PASSES):
            graph = rewrite_graph(
                graph, include=_REWRITES, custom_rewrite=WalkingGraphRewriter(_expand_inputs), clone=False
            )
        return graph


def can_whiten(problem: Problem) -> bool:
    """Whether `whiten` can transform the model: f is whitened by its prior, and PyMC can copy the model."""
    return problem.prior.whitened is not None and can_copy(problem.model)


def whiten(problem: Problem, precision: Array, natural_mean: Array) -> pm.Model:
    """Copy a model so that its free variable is v instead of the vector u = L⁻¹(f - m).

    Parameters
    ----------
    problem : Problem
        The model, for which `can_whiten` is true.
    precision, natural_mean : (n,) arrays
        Precisions τ ≥ 0 of the Gaussian sites, and precision times mean of f - m.

    Returns
    -------
    pm.Model
        The model with the free variable `COORDINATES`, in which u is a Deterministic of the same name as before.
    """
    model, name = problem.model, problem.prior.whitened
    with copying():
        fgraph, memo = fgraph_from_model(model)
    old = memo[model[name]]
    variable, value = old.owner.inputs
    v = model_free_rv(variable, value.type(name=COORDINATES), None, COORDINATES, *old.owner.op.dims)
    L = memo[factor_of(model[problem.prior.name])]
    G = pt.linalg.cholesky(pt.eye(L.shape[0]) + L.T @ (pt.constant(precision)[:, None] * L))
    shifted = v + pt.linalg.solve_triangular(G, L.T @ pt.constant(natural_mean), lower=True)
    u = pt.linalg.solve_triangular(G.T, shifted, lower=False)
    log_ratio = 0.5 * (pt.sqr(v).sum() - pt.sqr(u).sum()) - pt.log(pt.diagonal(G)).sum()
    toposort_replace(fgraph, ((old, model_deterministic(u, name, *old.owner.op.dims)),))
    fgraph.add_output(v)
    fgraph.add_output(model_potential(log_ratio, f"{COORDINATES}density"))
    copy = model_from_fgraph(fgraph, mutate_fgraph=True)
    copy.__class__ = _Merged
    return copy

"""A model without its latent function: PyMC model in, PyMC model out.

The targets of the new model are one random vector whose density is the evidence of Laplace or mean field, and whose
draws are those of the old model: a draw of f and noise around it. Everything else (hyperparameters, priors,
transforms, data, coordinates) is the old model's, so that `pm.sample`, `pm.find_MAP`, `pm.sample_smc` and
`pm.sample_prior_predictive` work on it.
"""

from __future__ import annotations

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph, model_observed_rv
from pymc.pytensorf import normalize_rng_param, toposort_replace
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from bsvr_pp.approximations import _jax
from bsvr_pp.approximations.ops import latent_evidence
from bsvr_pp.inference.methods import Laplace, MeanField
from bsvr_pp.problem import ModelError, Problem, copying, read_model

__all__ = ["marginalize", "source_of"]


class MarginalTargetsRV(SymbolicRandomVariable):
    """Targets with the latent function integrated out.

    Inputs are two generators, K without its jitter, the prior mean, the other inputs of the targets' own random
    variable, and the parameters of its loss; ``source`` is the model that was marginalised.
    """

    name = "marginal_targets"
    _print_name = ("MarginalTargets", "\\operatorname{MarginalTargets}")

    def __init__(
        self,
        *args: Any,
        method: Laplace | MeanField,
        loss: str,
        n_loss: int,
        jitter: float,
        source: pm.Model,
        **kwargs: Any,
    ) -> None:
        self.method, self.loss, self.n_loss, self.jitter, self.source = method, loss, n_loss, jitter, source
        super().__init__(*args, ndim_supp=1, **kwargs)


@_logprob.register(MarginalTargetsRV)
def _marginal_logp(op: MarginalTargetsRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    (y,) = values
    K, mean, *rest = inputs[2:]
    return latent_evidence(op.method.operation, op.loss, K, mean, y, rest[len(rest) - op.n_loss :], op.jitter)[0]


def marginalize(model: pm.Model | None, method: Laplace | MeanField) -> pm.Model:
    """Integrate the latent function out of a model.

    Parameters
    ----------
    model : pm.Model or None
        A model with a `GP` prior and support vector noise; None for that of the surrounding ``with``.
    method : Laplace or MeanField
        How to integrate. With little smoothness (small ``beta``) exact Laplace has an evidence that jumps, and
        sampling on it fails in silence: prefer ``Laplace(curvature="local")`` or `MeanField`.

    Returns
    -------
    pm.Model
        The same hyperparameters, priors, transforms, data and coordinates, without f and the Deterministics of f
        (which `recover_latent` gives back). Where the evidence fails its log is -inf.

    Raises
    ------
    ModelError
        If the model is not a support vector model, has labels, or has a potential on its latent function.
    TypeError
        If method has no evidence.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model() as model:
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    >>> marginal = bp.marginalize(model, bp.MeanField())
    >>> [v.name for v in marginal.free_RVs], [v.name for v in marginal.observed_RVs]
    (['C'], ['y'])
    """
    if not isinstance(method, Laplace | MeanField):
        raise TypeError(f"method must be Laplace() or MeanField(), which integrate f out, got {method!r}")
    _jax.register()  # so that NumPyro and BlackJAX can sample the result
    problem = read_model(model)
    if problem.loss.classification:
        raise ModelError(
            f"{problem.target} are labels: without f their density is the naive evidence, which is not normalised over "
            "labels; use bp.classification_evidence or bp.BayesianSVC"
        )
    source = problem.model
    if any(value is not None for value in source.rvs_to_initial_values.values()):
        raise ModelError("the model sets initial values (initval=...), which cannot be carried over: leave them out")
    target = source[problem.target]
    f, white = source[problem.prior.name], problem.prior.whitened
    latent = {f} if white is None else {f, source[white]}
    held = [v.name for v in source.potentials if latent & set(ancestors([v]))]
    if held:
        raise ModelError(f"the potential {held[0]} depends on the latent function {f.name}, which is integrated out")
    with copying():
        fgraph, memo = fgraph_from_model(source)
    inputs = [problem.smooth, problem.mean, *_others(target, f), *problem.parameters]
    named = {v: memo[v] for v in ancestors(inputs) if v in memo and memo[v] in fgraph.variables}
    mapped = graph_replace(inputs, named, strict=False)
    y = _marginal(problem, method, target, f, mapped)
    gone = {memo[v] for v in latent}
    observed = memo[target]
    dims = observed.owner.op.dims
    toposort_replace(fgraph, ((observed, model_observed_rv(y, observed.owner.inputs[1], problem.target, *dims)),))
    for i in reversed(range(len(fgraph.outputs))):
        if gone & set(ancestors([fgraph.outputs[i]])):
            fgraph.remove_output(i)
    return model_from_fgraph(fgraph, mutate_fgraph=True)


def source_of(model: pm.Model) -> MarginalTargetsRV:
    """The record of `marginalize` in a model it made, or in a copy of it.

    Raises
    ------
    ModelError
        If the model was not made by `marginalize`.
    """
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    for variable in model.observed_RVs:
        if isinstance(variable.owner.op, MarginalTargetsRV):
            return variable.owner.op
    raise ModelError("the model has no targets made by bp.marginalize")


def _others(target: Any, f: Any) -> list[Any]:
    """Inputs of the targets' random variable but for its generator and the latent function."""
    return [v for i, v in enumerate(target.owner.inputs) if i > 0 and v is not f]


def _marginal(problem: Problem, method: Laplace | MeanField, target: Any, f: Any, inputs: list[Any]) -> Any:
    """The targets as a random vector: f is drawn inside, and the targets' own random variable around it."""
    generators = [normalize_rng_param(None) for _ in range(2)]
    inner = [v.type() for v in (*generators, *inputs)]
    rng_f, rng_y, K, mean, *others = inner
    next_f, white = pt.random.normal(size=K.shape[0], rng=rng_f, return_next_rng=True)
    drawn = mean + pt.linalg.cholesky(K + problem.prior.jitter * pt.eye(K.shape[0])) @ white
    rest = iter(others)
    given = [rng_y if i == 0 else drawn if v is f else next(rest) for i, v in enumerate(target.owner.inputs)]
    next_y, y = target.owner.op.make_node(*given).outputs
    op = MarginalTargetsRV(
        inner,
        [y, next_f, next_y],
        method=method,
        loss=problem.loss.name,
        n_loss=len(problem.parameters),
        jitter=problem.prior.jitter,
        source=problem.model,
    )
    return op(*generators, *inputs)[0]

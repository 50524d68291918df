"""Copies of a PyMC model for samplers: without its latent function, or in other coordinates.

The targets of a model without f are one random vector. Its density is the evidence of Laplace or mean field, and its
draws are as in the original model: a draw of f plus noise. Everything else is unchanged, so PyMC's samplers work. With
blocks, a scan applies the graph of the evidence of one block to the rows of each.

In other coordinates NUTS needs fewer steps, and the posterior is the same (docs/sampling.md). For f = m + L·u they are
v with u = G⁻ᵀ(v + G⁻¹Lᵀν), where GGᵀ = I + LᵀτL and the sites are fixed. The coordinates of the noise are the logs of
C·epsilon and of its standard deviation. The map from log C and log epsilon has Jacobian 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.logprob.transforms import LogTransform
from pymc.model.fgraph import (
    fgraph_from_model,
    model_deterministic,
    model_free_rv,
    model_from_fgraph,
    model_observed_rv,
    model_potential,
)
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.pytensorf import normalize_rng_param, toposort_replace
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import WalkingGraphRewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import TensorLike
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.arrays import Array, ModelError, Number, Tensor
from bsvr_pp.core.covariance.covariance import AnyCovariance
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.compiled import data_of
from bsvr_pp.model.distributions import FIXED_BETA
from bsvr_pp.model.gaussian import above, gradients, replace_in, replace_in_all
from bsvr_pp.model.gp import copy_model, factor_of, in_blocks, remove_below, set_initial_values
from bsvr_pp.model.operation import CovarianceGraph, TargetsGraph, latent_evidence
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.reader import read_model


class Integrator(Protocol):
    """The part of a method (`bsvr_pp.inference.protocol.IntegratesLatent`) that `marginalize` needs."""

    @property
    def core(self) -> str:
        """Compiled core of ``evidence_graph``, one of `bsvr_pp.model.operation.APPROXIMATIONS`."""
        raise NotImplementedError

    def solve(
        self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Return the posterior of the latent function; ``start`` (2, n) has the sites of a similar problem."""

    def evidence_graph(
        self,
        loss: str,
        K: CovarianceGraph,
        mean: TensorLike,
        targets: TargetsGraph,
        parameters: Sequence[TensorLike],
        start: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log evidence of ``solve``, its convergence flag and its sites as graphs."""
        return latent_evidence(self.core, loss, K, mean, targets, parameters, start)


class MarginalTargetsRV(SymbolicRandomVariable):
    """Targets without f, from generators, K or its root, prior mean, inputs of the targets, bounds, and parameters."""

    name = "marginal_targets"
    _print_name = ("MarginalTargets", "\\operatorname{MarginalTargets}")

    def __init__(self, *args: Any, evidence: DenseEvidence, **kwargs: Any) -> None:
        self.method, self.problem, self.evidence = evidence.method, evidence.problem, evidence
        super().__init__(*args, ndim_supp=1, **kwargs)


@_logprob.register(MarginalTargetsRV)
def _marginal_logp(op: MarginalTargetsRV, values: Sequence[Tensor], *inputs: Tensor, **kwargs: object) -> Tensor:
    (y,) = values
    K, mean, *rest = inputs[2:]
    return op.evidence.graph(y, K, mean, rest)


@shared
def marginalize(method: Integrator, model: pm.Model | None = None) -> pm.Model:
    """Integrate the latent function out of a model.

    Parameters
    ----------
    method : Laplace, MeanField or another approximation
        Method of integration. For small ``beta`` the evidence of exact Laplace is discontinuous, and sampling then
        fails without a warning: prefer ``Laplace(curvature="local")`` or `MeanField`.
    model : pm.Model, optional
        A model with a `GP` prior and support vector noise; by default the model of the surrounding ``with`` block.

    Returns
    -------
    pm.Model
        The same hyperparameters, priors, transforms, data and coordinates, without f and the Deterministics of f
        (`recover_latent` computes these). With several observed variables the data are constants, in the order of the
        stacked rows. If the evidence cannot be computed, its log is -inf.

    Raises
    ------
    ModelError
        If the model is not a support vector model, has labels, or has a potential on its latent function.
    TypeError
        If method does not integrate f out.

    <pymc_model>
    >>> marginal = bp.marginalize(bp.MeanField(), model)
    >>> [v.name for v in marginal.free_RVs], [v.name for v in marginal.observed_RVs]
    (['C'], ['y'])
    """
    if isinstance(method, type) or not hasattr(method, "evidence_graph"):
        raise TypeError(f"method must integrate f out, as Laplace() and MeanField() do, got {method!r}")
    problem = read_model(model)
    if refusal := problem.loss.targets.refusal("marginal", target=problem.target):
        raise ModelError(refusal)
    source = problem.model
    f, latent = problem.latent, {source[name] for name in problem.prior.latents}
    fgraph, memo = copy_model(source, fgraph_from_model)
    X = pt.as_tensor_variable(problem.columns.X if problem.composite is None else problem.prior.X)
    covariance, mean = problem.prior_at(X)
    K, mean = in_blocks(covariance.given, problem.blocks), _as_read(problem, X, mean)
    evidence = BlockEvidence(problem, method) if problem.blocks.several else DenseEvidence(problem, method)
    others = [v for v in problem.ends.noise.owner.inputs[1:] if v is not f]  # without the generator
    known = replace_in_all([*problem.ends.bounds, *problem.site_parameters], {problem.matrix: problem.columns.matrix})
    inputs = [K, mean, *others, *known, *evidence.inputs]
    named = {v: memo[v] for v in ancestors(inputs) if v in memo and memo[v] in fgraph.variables}
    y = _marginal(replace_in_all(inputs, named), evidence)
    observed = memo[source[problem.target]]
    dims = observed.owner.op.dims
    toposort_replace(fgraph, ((observed, model_observed_rv(y, observed.owner.inputs[1], problem.target, *dims)),))
    remove_below(fgraph, {memo[v] for v in latent})
    made = set_initial_values(model_from_fgraph(fgraph, mutate_fgraph=True), source)
    if problem.sources is None:
        return made
    return set_initial_values(copy_model(made, partial(freeze_dims_and_data, dims=[])), made)


def _as_read(problem: Problem, U: Tensor, mean: Tensor) -> Tensor:
    """The prior mean at rows, whose value is an error where data mix values of a process that they did not mix."""
    affine, model, same = problem.composite, problem.model, list[Tensor]()
    processes = {} if affine is None else affine.processes
    if affine is None or above([problem.latent], {model[f] for f in processes}).isdisjoint(data_of(model)):
        return mean
    for name, process in processes.items():
        if process.unit or not (process.aligned or process.single):
            continue
        v = pt.cos(1.0 + pt.arange(U.shape[0] if process.aligned else process.leaf.type.shape[0]))
        once, first, second = (affine.at(U, f={name: v**k}) - affine.at(U) for k in range(3))
        found, expected = (first, once * v) if process.aligned else (first**2, once * second)
        same.append(~pt.any(pt.abs(found - expected) > 1e-8 * pt.abs(found).max()))
    names = f"rows of {problem.target} depend on {', '.join(processes)}"
    check = CheckAndRaise(ModelError, f"data that were set later change how {names}: call bp.marginalize with them")
    return cast(Tensor, check(mean, *same)) if same else mean


def source_of(model: pm.Model) -> MarginalTargetsRV:
    """Return the record that `marginalize` stored in a model, or in a copy of the model."""
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    for variable in model.observed_RVs:
        if isinstance(variable.owner.op, MarginalTargetsRV):
            return variable.owner.op
    raise ModelError("the model has no targets made by bp.marginalize")


def _marginal(inputs: list[Tensor], evidence: DenseEvidence) -> Tensor:
    """Return the targets as a random vector: f is drawn inside, and then the original random variable given f."""
    problem, generators = evidence.problem, [normalize_rng_param(None) for _ in range(2)]
    inner = [v.type() for v in (*generators, *inputs)]
    rng_f, rng_y, K, mean, *others = inner
    next_f, white = pt.random.normal(size=K.shape[1], rng=rng_f, return_next_rng=True)
    drawn = mean + problem.covariance._replace(given=K).factor @ white
    rest = iter(others)
    noise = problem.ends.noise
    given = [
        rng_y if i == 0 else drawn if v is problem.latent else next(rest) for i, v in enumerate(noise.owner.inputs)
    ]
    next_y, y = noise.owner.op.make_node(*given).outputs
    y = problem.ends.observed(y, rest)
    return MarginalTargetsRV(inner, [y, next_f, next_y], evidence=evidence)(*generators, *inputs)[0]


class DenseEvidence:
    """Log evidence of a problem as a graph; ``inputs`` are further inputs of the graph."""

    def __init__(self, problem: Problem, method: Integrator) -> None:
        self.problem, self.method = problem, method
        self.inputs: list[Tensor] = []

    def graph(self, y: Tensor, K: Tensor, mean: Tensor, rest: list[Tensor]) -> Tensor:
        """Return the log evidence of the targets y (n,), given the inputs of `MarginalTargetsRV` after the mean."""
        problem, first = self.problem, len(rest) - len(self.problem.site_parameters)
        bounds, last = rest[first - len(problem.ends.bounds) : first], first + len(problem.parameters)
        covariance = problem.covariance._replace(given=K)
        targets = TargetsGraph.of(*problem.ends.graph(y, bounds), rest[last])  # the weights are last
        return self.method.evidence_graph(problem.loss.name, covariance, mean, targets, rest[first:last])[0]


class BlockEvidence(DenseEvidence):
    """Log evidence of blocks with its gradients; ``inputs`` are X and the variables of kernel and prior mean."""

    def __init__(self, problem: Problem, method: Integrator) -> None:
        super().__init__(problem, method)
        if not problem.ends.exact or any(p.ndim > 0 for p in problem.site_parameters):
            raise ModelError(
                f"hyperparameters of blocks are sampled where all rows have exact targets and one noise, and rows of "
                f"{problem.target} have weights, intervals, classes or noise of their own: bp.MeanField() takes them"
            )
        self._blocks = cast(Blocks, problem.blocks)
        found = set(ancestors([problem.covariance.given, problem.mean]))
        leaves = [v for v in [*problem.variables, *data_of(problem.model)] if v in found]
        self._leaves = cast(list[Tensor], leaves)
        self.inputs = [problem.columns.X, *self._leaves]

    def graph(self, y: Tensor, K: Tensor, mean: Tensor, rest: list[Tensor]) -> Tensor:
        """Return the log evidence of the targets y (n,), from the parameters of the loss and, last, ``inputs``."""
        order, end = self._blocks.order, len(rest) - len(self.inputs)
        first = end - len(self.problem.site_parameters)
        parameters, (X, *leaves) = rest[first : end - 1], rest[end:]  # without weights
        given = [*(pt.as_tensor_variable(p) for p in parameters), *leaves]
        outer = [pt.matrix(), pt.vector(), *(v.type() for v in given)]
        total, slopes = self._sum_blocks(outer, len(parameters))

        def pullback(_: object, outputs: list[Tensor], cotangents: list[Tensor]) -> list[object]:
            nothing = DisconnectedType()
            by = iter(outputs[1:])
            return [nothing(), nothing(), *(cotangents[0] * next(by) if _continuous(v) else nothing() for v in given)]

        # Only the value is differentiable, by the continuous variables.
        connected = [[by, *[False] * len(slopes)] for by in (False, False, *map(_continuous, given))]
        operation = OpFromGraph(
            outer, [total, *slopes], pullback=pullback, connection_pattern=connected, name="BlockEvidence"
        )
        node = operation.make_node(X[order], pt.as_tensor_variable(y)[order], *given)
        return cast(Tensor, node.outputs[0])

    def _sum_blocks(self, outer: list[Tensor], n_parameters: int) -> tuple[Tensor, list[Tensor]]:
        """Return the value, and gradients by the continuous variables, added up over the blocks."""
        problem, offsets = self.problem, self._blocks.offsets
        given = outer[2:]  # after X and y
        differentiable = [v for v in given if _continuous(v)]
        start = [pt.constant(np.float64(0.0)), *(pt.zeros_like(v) for v in differentiable)]

        def step(first: Tensor, last: Tensor, *state: Tensor) -> list[Tensor]:
            sums, (inputs, targets, *values) = state[: len(start)], state[len(start) :]
            rows, parameters, leaves = inputs[first:last], values[:n_parameters], values[n_parameters:]
            K, mean = problem.prior_at(rows)
            smooth, offset = replace_in_all([K.smooth, mean], dict(zip(self._leaves, leaves, strict=True)))
            covariance = CovarianceGraph(smooth, problem.prior.jitter)
            known = TargetsGraph.of(targets[first:last])
            value, *_ = self.method.evidence_graph(problem.loss.name, covariance, offset, known, parameters)
            wanted = [v for v in values if _continuous(v)]
            slopes = gradients(value, wanted) if wanted else []
            return [s + new for s, new in zip(sums, [value, *slopes], strict=True)]

        sequences = [pt.constant(np.asarray(ends, dtype=np.int64)) for ends in (offsets[:-1], offsets[1:])]
        sums = pytensor.scan(step, sequences, start, outer, return_updates=False, strict=True)
        total, *slopes = [s[-1] for s in (sums if isinstance(sums, list) else [sums])]
        return total, slopes


def _continuous(variable: Tensor) -> bool:
    return np.dtype(variable.dtype).kind == "f"


LATENT_COORDINATES = "f_posterior_white_"
NOISE_COORDINATES = ("noise_log_tube_", "noise_log_sd_")
_REWRITES = ("ShapeOpt", "merge", "canonicalize", "stabilize")
_PASSES = 2  # the second one merges parts that the first one made equal


def can_whiten(problem: Problem) -> bool:
    """Return whether `whiten` can transform the model: f is whitened by its prior, and PyMC can copy the model."""
    return problem.prior.whitened is not None and _can_copy(problem.model)


def _can_copy(model: pm.Model) -> bool:
    return model.parent is None and all(value is None for value in model.rvs_to_initial_values.values())


def whiten(problem: Problem, precision: Array, natural_mean: Array) -> pm.Model:
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
    """A model whose log density has each factorisation once: PyMC writes equal parts in two ways, without merging."""

    def logp(self, *args: object, **kwargs: object) -> Tensor | list[Tensor]:
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
    """Return the noise variance with C = 1, epsilon = tube (Chu, Keerthi & Ong 2004, (14), (15)) as a graph."""
    a, q = (1.0 - beta) * tube, beta * tube
    root = pt.sqrt(pt.maximum(q, 1e-30))
    smooth, tail = np.pi**0.5 * root * pt.erf(root), pt.exp(-q)
    second = a**3 / 3.0 + (a**2 + 2.0 * q) * smooth + 4.0 * a * q + (a**2 + 2.0 * tube + 2.0 * q + 2.0) * tail
    return second / (a + smooth + tail)


def with_noise_coordinates(problem: Problem) -> pm.Model:
    """Copy a model with `NOISE_COORDINATES` for C and epsilon; return it unchanged if this is not possible."""
    model = problem.model
    if problem.loss.name not in FIXED_BETA or not _can_copy(model):
        return model
    parameters: list[TensorLike] = [*problem.parameters, *FIXED_BETA[problem.loss.name]]
    *given, beta = (pt.as_tensor_variable(each) for each in parameters)
    if beta.ndim > 0 or not all(_is_log(model, v) and v not in ancestors([beta]) for v in given):
        return model
    fgraph, memo = copy_model(model, fgraph_from_model)
    old = [memo[v] for v in given]
    smooth = replace_in(beta, {v: memo[v] for v in ancestors([beta]) if v in memo})
    flat = [(pm.Flat.dist(), name) for name in NOISE_COORDINATES]
    log_tube, log_sd = (model_free_rv(v, v.type(name=name), None, name) for v, name in flat)
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
    """Return values of `NOISE_COORDINATES`."""
    tube = np.ravel(noise.parameters["C"])[0] * np.ravel(noise.parameters["epsilon"])[0]
    values = np.log(tube), 0.5 * np.log(np.ravel(noise.variance)[0])
    return dict(zip(NOISE_COORDINATES, values, strict=True))


def _is_log(model: pm.Model, variable: Tensor) -> bool:
    positive = isinstance(model.rvs_to_transforms.get(variable), LogTransform)
    return variable in model.free_RVs and variable.ndim == 0 and positive

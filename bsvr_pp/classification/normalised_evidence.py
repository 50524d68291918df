"""Evidences of labels at given hyperparameters, and the hyperparameters that maximise them (Sollich 2002, 4 and 5).

The naive evidence is log Q(Y|X) (27), the conditional log Q(Y|X) - log N(X) (25), and the joint log Q(Y|X) - log N̂
(30), up to a constant (docs/explanation/normalisation.md). A step of the maximisation costs O(n³).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import zero_grad
from scipy.optimize import minimize

from bsvr_pp.classification.normaliser import KINDS, EvidenceKind, NormaliserCloud
from bsvr_pp.core.approximations.posterior import Gradient
from bsvr_pp.core.arrays import Array, ModelError, check_choice, check_count, warn
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.registry import LABELS
from bsvr_pp.inference.approximate import Annealed, MeanField
from bsvr_pp.inference.fitted import Fitted, fitted_at
from bsvr_pp.inference.protocol import (
    Anneals,
    Evidence,
    HasEvidence,
    IntegratesLatent,
    Objective,
    Options,
    check_latent,
)
from bsvr_pp.inference.search.optimize import Optimum, SearchObjective
from bsvr_pp.inference.search.starts import initial_point
from bsvr_pp.model.operation import CovarianceGraph, TargetsGraph
from bsvr_pp.model.problem import Point, Problem

NORMALISER = Annealed(particles=1000, groups=16, moves=4, efficiency=0.93)
_FAR = 20.0  # change of an unconstrained value above which a hyperprior is considered improper
_TO_ROUNDING = {"ftol": 0.0, "gtol": 1e-9}
_RATE = 0.2  # of the first half of the steps
_DECAY, _DECAY_SQUARE = 0.8, 0.95  # of the averages of the gradient and of its square
_ENOUGH = 30  # steps; fewer do not go far, wherever they are
_STEADY = 0.3  # largest change of a log hyperparameter between the averages of the last two sixths of the steps


def labels_at(problem: Problem, point: Point) -> tuple[Covariance, Array, NoiseModel]:
    """Return prior covariance, prior mean, which is zero, and noise of a model with labels at given hyperparameters."""
    if problem.loss.targets is not LABELS:
        kind = "is a label with" if problem.loss.name == "known_label" else "is no label but has"
        raise ModelError(
            f"{problem.target} {kind} {problem.loss.name} noise, whose evidence is normalised: use "
            "bp.log_evidence with kind='naive', or bp.fit with bp.MeanField()"
        )
    K, mean, noise = problem.dense_at(point)
    if np.any(mean != 0):
        raise ModelError("the mean of the Gaussian process must be zero, as in Sollich's prior (3)")
    return K, mean, noise


def normalised(problem: Problem, point: Point, method: HasEvidence, kind: str, rng: np.random.Generator) -> Evidence:
    """Return log evidence of labels minus the log normaliser, annealed (as by ``method`` if it anneals)."""
    K, mean, noise = labels_at(problem, point)
    naive = method.evidence(K, problem.targets, noise, mean, rng)
    log_normaliser, error = normaliser(kind, K, noise, method if isinstance(method, Anneals) else NORMALISER, rng)
    value, error = naive.value - log_normaliser, float(np.hypot(naive.standard_error, error))
    _check_bound(kind, value, error)
    return Evidence(value, error, naive.converged)


def _check_bound(kind: str, value: float, error: float) -> None:
    """Warn of an impossible evidence: N(X) is the sum of Q over all labels, which may all have the other sign."""
    if kind == "conditional" and value > 3.0 * error - np.log(2.0):
        warn(
            f"a conditional evidence is at most -log 2, and {value:.3g} was found: the particles of the normaliser "
            "have not reached where its mass is; Annealed() with more particles and moves reaches it"
        )


def normaliser(
    kind: str, K: Covariance, noise: NoiseModel, annealing: Anneals, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the log normaliser of a kind of evidence, and its standard error."""
    if (factor := KINDS[kind]) is None:
        return 0.0, 0.0
    run = annealing.posterior(K, None, factor(noise.parameters["C"], noise.weight), np.zeros(K.size), rng)
    return run.log_evidence, run.standard_error


class LabelPrior(SearchObjective):
    """Covariance, C, hyperprior and evidence of labels, as functions of free unconstrained hyperparameters."""

    def __init__(
        self, problem: Problem, given: Point, latent: IntegratesLatent, objective: Objective = "posterior"
    ) -> None:
        super().__init__(problem, latent, given, "evidence")
        self._priors_count = objective == "posterior"
        initial = initial_point(problem) | given
        noise = labels_at(problem, initial)[2]
        if np.ndim(noise.parameters["C"]):
            raise ValueError(
                "C has a value for each training point, which says nothing about new ones: give it a number"
            )
        log_prior = problem.model.logp(vars=problem.prior_terms)
        graphs = [*problem.model.replace_rvs_by_values([problem.covariance.matrix, *problem.parameters]), log_prior]
        self._hyperprior = problem.function("hyperprior of labels", lambda: self._compiled([log_prior]))
        self._values = problem.function("labels", lambda: problem.compile_on(problem.values, graphs))
        self._total = problem.function(f"gradient of labels by {latent!r}", self._compile_total)
        self.weight, self.start = noise.weight, self._mode(self.pack(initial))

    def _compile_total(self) -> Callable[..., list[Array]]:
        """Compile the naive log evidence, minus sums of K and C with weights d_K and d_C if solved; and its sites."""
        problem = self._problem
        y, sites, d_K, d_C = inputs = [pt.vector(), pt.matrix(), pt.matrix(), pt.scalar()]
        K, C = problem.model.replace_rvs_by_values([problem.covariance.smooth, *problem.parameters])
        covariance, targets = CovarianceGraph(K, problem.prior.jitter), TargetsGraph.of(y, weight=problem.weight)
        naive, _, found = self._method.evidence_graph(problem.loss.name, covariance, 0.0, targets, [C], sites)
        solved = zero_grad(pt.switch(pt.isinf(naive), 0.0, 1.0))
        return self._compiled([naive - solved * ((d_K * K).sum() + d_C * C), found], inputs)

    def _mode(self, initial: Array) -> Array:
        """Return the mode of the hyperprior, or the initial point of the model if it has none."""

        def descent(x: Array) -> tuple[float, Array]:
            value, *slopes = self._hyperprior(*self._split(x), *self._problem.given_data)
            return -float(value), -self._flat(slopes).data

        bounds = np.stack([initial - _FAR, initial + _FAR], axis=1)
        found = minimize(descent, initial, jac=True, method="L-BFGS-B", bounds=bounds, options=_TO_ROUNDING)
        return np.asarray(found.x) if (np.abs(found.x - initial) < _FAR).all() else initial

    def at(self, x: Array) -> tuple[Covariance, float, float]:
        """Return covariance with its jitter, C, and log hyperprior (a density of the unconstrained hyperparameters)."""
        K, C, log_prior = self._values(*self._split(x), *self._problem.given_data)
        return Covariance(K, jitter=self._problem.prior.jitter), float(C), float(log_prior)

    def gradient(self, x: Array, normalisers: Sequence[Gradient]) -> Array:
        """Return the gradient of log evidence, 0 if it fails, plus log hyperprior if the objective has it."""
        y, given = self._problem.targets, [*self._split(x), *self._problem.given_data]
        by_K = sum((each.K for each in normalisers), np.zeros((y.size, y.size)))
        by_C = sum(float(each.parameters["C"]) for each in normalisers)
        _, sites, *slopes = self._total(*given, y, self._sites[0], by_K, by_C)
        self._sites = [sites if np.isfinite(sites).all() else np.zeros_like(sites)]
        by_prior = self._flat(self._hyperprior(*given)[1:]).data if self._priors_count else 0.0
        return np.asarray(self._flat(slopes).data + by_prior)


@dataclass(frozen=True, slots=True)
class NormalisedEvidence:
    """Hyperparameters of labels at the maximum of their evidence times the hyperpriors (Sollich 2002).

    The maximum is with respect to the unconstrained hyperparameters (usually logs). The start is the mode of the
    hyperpriors.

    Parameters
    ----------
    kind : {"conditional", "joint", "naive"}
        The evidence: of the labels given the inputs (25), of both (30), or unnormalised (27).
    latent : Laplace, MeanField or another approximation
        Method for the naive part, and for the posterior of f.
    steps : int
        Number of steps; 0 uses the start.
    particles : int
        Number of particles of the normaliser, at least 2 (a quarter in each of 16 groups for its final value).

    Raises
    ------
    ValueError
        If kind is not one of these, or a number is out of range.
    TypeError
        If latent is not an approximation.

    Notes
    -----
    ``log_evidence`` of the result is the normalised evidence, and ``log_evidence_error`` is its standard error from
    annealing. ``converged`` is true if the last of at least 30 steps have no trend. A slow slope may hide one: compare
    with more steps.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.classification.NormalisedEvidence(kind="joint").name
    'joint evidence (mean field)'
    """

    kind: EvidenceKind = "conditional"
    latent: IntegratesLatent = field(default_factory=MeanField)
    steps: int = 50
    particles: int = 100

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_latent(self.latent)
        for name, least in (("steps", 0), ("particles", 2)):
            check_count(name, getattr(self, name), least)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.kind} evidence ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Maximise the evidence over the hyperparameters that are not given, and solve there."""
        point, optima = given, []
        if not self.steps and options.objective == "evidence":
            raise ValueError("steps must be at least 1 with objective='evidence', got 0: the start knows priors alone")
        if set(given) != set(problem.hyperparameters):
            optima = [self._maximise(problem, given, options.objective, rng)]
            point = optima[0].point
        K, mean, noise = labels_at(problem, point)
        posterior = self.latent.solve(K, problem.targets, noise, mean)
        # A quarter is enough: the density of the normaliser is as wide as the prior.
        annealing = replace(NORMALISER, particles=max(self.particles // 4, 2))
        log_normaliser, error = normaliser(self.kind, K, noise, annealing, rng)
        found = fitted_at(point, posterior, optima, log_evidence_error=error)
        value = float(posterior.log_evidence) - log_normaliser
        _check_bound(self.kind, value, error)
        return replace(found, log_evidence=value)

    def _maximise(self, problem: Problem, given: Point, objective: Objective, rng: np.random.Generator) -> Optimum:
        """Find the optimum of the hyperparameters that are not given."""
        prior = LabelPrior(problem, given, self.latent, objective)
        if not self.steps:
            return Optimum(prior.unpack(prior.start), np.nan, True, "mode of the hyperpriors, without an ascent", 0)
        factor = KINDS[self.kind]
        clouds = [] if factor is None else [NormaliserCloud(factor, self.particles, rng, prior.weight)]

        def gradient(x: Array) -> Array:
            K, C, _ = prior.at(x)
            return prior.gradient(x, [cloud.gradient(K, C) for cloud in clouds])

        with threads_for(problem.targets.size):
            best, trace = stochastic_ascent(gradient, prior.start, steps=self.steps)
        sixth = self.steps // 6
        last, before = trace[-sixth:], trace[-2 * sixth : -sixth]
        steady = self.steps >= _ENOUGH and bool(np.abs(last.mean(axis=0) - before.mean(axis=0)).max() <= _STEADY)
        message = f"stochastic ascent, {'steady' if steady else 'still moving'} after {self.steps} steps"
        return Optimum(prior.unpack(best), np.nan, steady, message, self.steps)


def stochastic_ascent(gradient: Callable[[Array], Array], start: Array, *, steps: int) -> tuple[Array, Array]:
    """Run Adam (Kingma & Ba 2015); return the average of the last third of the steps, and all points."""
    x, first, second = np.array(start, dtype=np.float64), np.zeros(start.size), np.zeros(start.size)
    trace = np.empty((steps, start.size))
    for step in range(steps):
        slope = gradient(x)
        first += (1 - _DECAY) * (slope - first)
        second += (1 - _DECAY_SQUARE) * (slope**2 - second)
        size = np.sqrt(second / (1 - _DECAY_SQUARE ** (step + 1))) + 1e-12
        x = x + _RATE * min(1.0, 2.0 * (1.0 - step / steps)) * first / (1 - _DECAY ** (step + 1)) / size
        trace[step] = x
    return trace[-max(steps // 3, 1) :].mean(axis=0), trace

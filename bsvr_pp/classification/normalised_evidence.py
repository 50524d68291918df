"""Optimisation of the hyperparameters of labels by their normalised evidence (Sollich 2002, sections 4 and 5).

The gradient of the naive part is that of mean field with warm starts. The gradient of a normaliser is an average over
its density of f, which is represented by particles (`bsvr_pp.classification.normaliser`). The optimisation is therefore
stochastic. A step costs O(n³).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._checks import check_count
from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import annealed
from bsvr_pp.classification.label_prior import LabelPrior, labels_at
from bsvr_pp.classification.normaliser import NORMALISERS, EvidenceKind, NormaliserCloud, check_kind
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.fitted import Fitted, fitted_at
from bsvr_pp.inference.optimize import Optimum
from bsvr_pp.inference.protocol import Approximation, Capabilities, Options, can
from bsvr_pp.model.problem import Point, Problem

__all__ = ["NormalisedEvidence", "stochastic_ascent"]

Array = NDArray[np.float64]

_GROUPS = 16
_DECAY, _DECAY_SQUARE = 0.8, 0.95  # of the averages of the gradient and of its square
_STEADY = 0.3  # largest change of a log hyperparameter between the averages of the last two sixths of the steps


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
    annealing. ``converged`` is true if the last steps have no trend.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.classification.NormalisedEvidence(kind="joint").name
    'joint evidence (mean field)'
    """

    kind: EvidenceKind = "conditional"
    latent: Approximation = field(default_factory=MeanField)
    steps: int = 50
    particles: int = 100

    capabilities: ClassVar[Capabilities] = Capabilities(normalises=True)

    def __post_init__(self) -> None:
        check_kind(self.kind)
        if not can(self.latent, "integrates"):
            raise TypeError(f"latent must integrate f out, as Laplace() and MeanField() do, got {self.latent!r}")
        for name, least in (("steps", 0), ("particles", 2)):
            check_count(name, getattr(self, name), least)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.kind} evidence ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Maximise the evidence over the hyperparameters that are not given, and solve there."""
        point, optima = given, []
        if set(given) != set(problem.hyperparameters):
            optima = [self._maximised(problem, given, rng)]
            point = optima[0].point
        K, noise = labels_at(problem, point)
        posterior = self.latent.solve(K, problem.targets, noise, np.zeros(problem.targets.size))
        value, error = float(posterior.log_evidence), 0.0
        if self.kind != "naive":
            known = NORMALISERS[self.kind](noise.parameters["C"], weight=noise.weight)
            particles = max(self.particles // 4, 2)  # the density is as wide as the prior
            run = annealed(
                K, None, known, particles=particles, groups=_GROUPS, moves=4, efficiency=0.93, random_seed=rng
            )
            value, error = value - run.log_evidence, run.standard_error
        found = fitted_at([point], [posterior], np.ones(1), optima, log_evidence_error=error)
        return replace(found, log_evidence=value)

    def _maximised(self, problem: Problem, given: Point, rng: np.random.Generator) -> Optimum:
        """Find the optimum of the hyperparameters that are not given."""
        prior = LabelPrior(problem, given)
        if not self.steps:
            return Optimum(prior.point(prior.start), np.nan, True, "mode of the hyperpriors, without an ascent", 0)
        cloud = None if self.kind == "naive" else NormaliserCloud(self.kind, self.particles, rng, prior.weight)
        sites = np.zeros((2, problem.targets.size))

        def gradient(x: Array) -> Array:
            nonlocal sites
            normaliser = None
            if cloud is not None:
                K, C, _ = prior.at(x)
                normaliser = cloud.gradient(K, C)
            slope, found = prior.gradient(x, self.latent, normaliser, sites)
            sites = found if np.isfinite(found).all() else np.zeros_like(sites)
            return slope

        with threads_for(problem.targets.size):
            best, trace = stochastic_ascent(gradient, prior.start, steps=self.steps)
        sixth = max(self.steps // 6, 1)
        drift = float(np.abs(trace[-sixth:].mean(axis=0) - trace[-2 * sixth : -sixth].mean(axis=0)).max())
        steady = self.steps > 1 and drift <= _STEADY
        message = f"stochastic ascent, {'steady' if steady else 'still moving'} after {self.steps} steps"
        return Optimum(prior.point(best), np.nan, bool(steady), message, self.steps)


def stochastic_ascent(
    gradient: Callable[[Array], Array], start: Array, *, steps: int, rate: float = 0.2
) -> tuple[Array, Array]:
    """Maximise a function with unbiased, noisy gradients: Adam (Kingma & Ba 2015) with decreasing steps.

    The steps have the size ``rate``, which in the second half decreases to 0. Returned are the average of the last
    third of the steps, (k,), and the points after each step, (steps, k).
    """
    x, first, second = np.array(start, dtype=np.float64), np.zeros(start.size), np.zeros(start.size)
    trace = np.empty((steps, start.size))
    for step in range(steps):
        slope = gradient(x)
        first += (1 - _DECAY) * (slope - first)
        second += (1 - _DECAY_SQUARE) * (slope**2 - second)
        size = np.sqrt(second / (1 - _DECAY_SQUARE ** (step + 1))) + 1e-12
        x = x + rate * min(1.0, 2.0 * (1.0 - step / steps)) * first / (1 - _DECAY ** (step + 1)) / size
        trace[step] = x
    return trace[-max(steps // 3, 1) :].mean(axis=0), trace

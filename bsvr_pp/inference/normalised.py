"""Optimisation of the hyperparameters of labels by their normalised evidence (Sollich 2002, sections 4 and 5).

The gradient of the naive part is that of mean field with warm starts. The gradient of a normaliser is an average over
its density of f, which is represented by particles (`bsvr_pp.approximations.normaliser`). The optimisation is therefore
stochastic. A step costs O(n³).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bsvr_pp._checks import check_count
from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import annealed
from bsvr_pp.approximations.normaliser import NORMALISERS, EvidenceKind, NormaliserCloud
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.labels import LabelPrior, labels_at
from bsvr_pp.inference.optimize import Optimum
from bsvr_pp.inference.protocol import Approximation, Capabilities, Options, can
from bsvr_pp.inference.solution import AtPoint
from bsvr_pp.inference.stochastic import stochastic_ascent
from bsvr_pp.model.problem import Point, Problem

__all__ = ["NormalisedEvidence"]

Array = NDArray[np.float64]

_GROUPS = 16
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
    >>> bp.NormalisedEvidence(kind="joint").name
    'joint evidence (mean field)'
    """

    kind: EvidenceKind = "conditional"
    latent: Approximation = field(default_factory=MeanField)
    steps: int = 50
    particles: int = 100

    capabilities: ClassVar[Capabilities] = Capabilities(labels=True)

    def __post_init__(self) -> None:
        if self.kind not in ("naive", *NORMALISERS):
            raise ValueError(f"kind must be 'naive', 'conditional' or 'joint', got {self.kind!r}")
        if not can(self.latent, "integrates"):
            raise TypeError(f"latent must integrate f out, as Laplace() and MeanField() do, got {self.latent!r}")
        for name, least in (("steps", 0), ("particles", 2)):
            check_count(name, getattr(self, name), least)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.kind} evidence ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> AtLabels:
        """Maximise the evidence over the hyperparameters that are not given, and solve there.

        Raises
        ------
        ModelError
            If the model has no labels, or its prior mean is not zero.
        ValueError
            If C has a value for each training point.
        """
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
        return AtLabels(AtPoint(point, posterior, optima), value, error)

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


class AtLabels(NamedTuple):
    """Posterior of f at one point of the hyperparameters of labels, with its normalised evidence.

    Attributes
    ----------
    at_point : AtPoint
        The point, and the posterior of f there.
    log_evidence, standard_error : float
        Log of the evidence, and the standard error of its normaliser.
    """

    at_point: AtPoint
    log_evidence: float
    standard_error: float

    def diagnosis(self) -> dict[str, Any]:
        """Log evidence, its standard error, convergence and the message of the optimiser."""
        found = {"log_evidence": self.log_evidence, "log_evidence_error": self.standard_error}
        return self.at_point.diagnosis() | found

    def tree(self, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator) -> xr.DataTree:
        """The result."""
        return self.at_point.tree(problem, attributes, rng)

"""Methods that compute a Gaussian posterior of the latent function at one point of the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.approximations import Covariance, LatentPosterior, laplace, mean_field
from bsvr_pp.approximations.mean_field import TARGET
from bsvr_pp.approximations.operation import latent_evidence
from bsvr_pp.approximations.posterior import joined, without_factor
from bsvr_pp.inference.optimize import Optimum, maximize
from bsvr_pp.inference.posteriors import keep
from bsvr_pp.inference.protocol import Approximation, Capabilities, Options
from bsvr_pp.inference.solution import AtPoint
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, Problem

__all__ = ["MAP", "Laplace", "MeanField", "run_at_optimum", "solve_at"]

Array = NDArray[np.float64]

# In a search, which gives a start: evidence accurate to 1e-8 nats, gradients to about 1e-4, in half of the time.
_SEARCH_MISMATCH = 1e-4


def run_at_optimum(
    method: Approximation, problem: Problem, given: Point, options: Options, rng: np.random.Generator
) -> AtPoint:
    """Optimise the hyperparameters that are not given by the evidence, and solve there: ``run`` of a method."""
    optima: list[Optimum] = []
    point = given
    if set(given) != set(problem.hyperparameters):
        optima = maximize(
            problem,
            method,
            given,
            restarts=options.restarts,
            objective=options.objective,
            rng=rng,
            progressbar=options.progressbar,
        )
        point = {name: optima[0].point[name] for name in problem.hyperparameters}
    posterior = solve_at(problem, method, point, options.progressbar)
    keep(problem, posterior)
    return AtPoint(point, posterior, optima)


def solve_at(problem: Problem, method: Approximation, point: Point, progressbar: bool = False) -> LatentPosterior:
    """Posterior of f at given hyperparameters; the device of the problem solves what it can."""
    text = "blocks" if progressbar else ""
    K, mean, noise = problem.at(point, text)
    known = problem.device.posteriors(problem, method, point, text)
    if not known:
        return method.solve(K, problem.targets, noise, mean)
    if problem.blocks is None:
        return replace(known[0], factor=K.factor(known[0].site_precision))

    def solved(part: Covariance, rows: NDArray[np.int64]) -> LatentPosterior:
        return without_factor(method.solve(part, problem.targets[rows], noise, mean[rows]))

    return joined(K, K.each(solved, known))


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace's approximation around the mode (Chu, Keerthi & Ong 2004).

    Parameters
    ----------
    curvature : {"exact", "local"}
        "exact", as in the paper, is sparse, but its evidence is discontinuous in the hyperparameters. "local"
        integrates each site with the local linear form of the prior; it is dense and continuous.

    Raises
    ------
    ValueError
        If curvature is neither.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Laplace().name, bp.Laplace(curvature="local").name
    ('Laplace', 'Laplace (local)')
    """

    curvature: Literal["exact", "local"] = "exact"

    def __post_init__(self) -> None:
        if self.curvature not in ("exact", "local"):
            raise ValueError(f"curvature must be 'exact' or 'local', got {self.curvature!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "Laplace" if self.curvature == "exact" else "Laplace (local)"

    @property
    def capabilities(self) -> Capabilities:
        """An evidence with gradients, which is discontinuous if the curvature is exact."""
        return Capabilities(evidence=True, integrates=True, continuous=self.curvature == "local")

    @property
    def latent(self) -> Laplace:
        """The method itself."""
        return self

    run = run_at_optimum

    def solve(self, K: Covariance, y: Array, noise: NoiseModel, mean: Array) -> LatentPosterior:
        """Posterior of the latent function."""
        return laplace(K, y, noise, mean=mean, curvature=self.curvature)

    def evidence_graph(
        self, loss: str, K: Any, mean: Any, targets: Any, parameters: Any, start: Any = None
    ) -> tuple[Any, Any, Any]:
        """Log evidence of ``solve`` as a graph."""
        core = "laplace" if self.curvature == "exact" else "laplace_local"
        return latent_evidence(core, loss, K, mean, targets, parameters, start)


@dataclass(frozen=True, slots=True)
class MeanField:
    """Mean field or TAP equations (Gao, Gunn & Harris 2002), by expectation propagation: a smooth, accurate evidence.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.MeanField().name
    'mean field'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(evidence=True, integrates=True, on_device=True)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "mean field"

    @property
    def latent(self) -> MeanField:
        """The method itself."""
        return self

    run = run_at_optimum

    def solve(self, K: Covariance, y: Array, noise: NoiseModel, mean: Array) -> LatentPosterior:
        """Posterior of the latent function."""
        return mean_field(K, y, noise, mean=mean)

    def evidence_graph(
        self, loss: str, K: Any, mean: Any, targets: Any, parameters: Any, start: Any = None
    ) -> tuple[Any, Any, Any]:
        """Log evidence of ``solve`` as a graph."""
        mismatch = TARGET if start is None else _SEARCH_MISMATCH
        return latent_evidence("mean_field", loss, K, mean, targets, parameters, start, mismatch)


@dataclass(frozen=True, slots=True)
class MAP:
    """The most probable latent function: the dual of support vector regression, without error bars.

    MAP has no evidence: hyperparameters that are not given are optimised by the Laplace evidence.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.MAP().name
    'MAP'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(plug_in=True)
    latent: ClassVar[None] = None

    @property
    def name(self) -> str:
        """Name in tables."""
        return "MAP"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> AtPoint:
        """Optimise the Laplace evidence, and return the mode."""
        return run_at_optimum(Laplace(), problem, given, options, rng)._replace(plug_in=True)

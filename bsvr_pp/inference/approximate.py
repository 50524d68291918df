"""Methods at points of the hyperparameters: Gaussian posteriors of the latent function, and annealing.

Annealing is an unbiased evidence with a standard error, the reference for the approximations.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.variable import TensorConstant
from scipy.special import softmax

from bsvr_pp.core.approximations import BlockDiagonal, Covariance, LatentPosterior, annealed, laplace, mean_field
from bsvr_pp.core.approximations.mean_field import TARGET
from bsvr_pp.core.approximations.smc import AnnealedPosterior, Annealing, LogLikelihood
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.covariance.block_diagonal import AnyCovariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import unit_noise
from bsvr_pp.inference.fitted import Fitted, fitted_at, keep
from bsvr_pp.inference.protocol import Averages, Evidence, IntegratesLatent, Method, Options, Search, check_latent
from bsvr_pp.inference.search.optimize import maximize
from bsvr_pp.model.compiled import value_of
from bsvr_pp.model.problem import Point, Problem

_SMOOTH = 0.2  # smallest beta for which the jumps of exact Laplace are small
_SAME = 1e-2  # relative distance of hyperparameters below which two optima are considered equal


def run_at_optimum(
    method: IntegratesLatent, problem: Problem, given: Point, options: Options, rng: Generator
) -> Fitted:
    """Optimise the hyperparameters that are not given by the evidence, and solve there: ``run`` of a method."""
    fitted = at_optima(method, problem, given, options, rng)
    keep(problem, fitted.posteriors[0])
    return fitted


def solve_at(problem: Problem, method: IntegratesLatent, point: Point, progressbar: bool = False) -> LatentPosterior:
    """Posterior of f at given hyperparameters."""
    K, mean, noise = problem.at(point, "blocks" if progressbar else "")
    return method.solve(K, problem.targets, noise, mean)


@dataclass(frozen=True, slots=True)
class Laplace(IntegratesLatent):
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

    def __new__(cls, *options: object, **named: object) -> Laplace:
        """Refuse the arguments of `pm.Laplace`."""
        if len(options) > 1 or named.keys() - {"curvature"}:
            raise TypeError(
                "bp.Laplace is a method of inference: for targets write pm.Laplace('y', mu=f, b=1 / C, ...)"
            )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.curvature not in ("exact", "local"):
            raise ValueError(f"curvature must be 'exact' or 'local', got {self.curvature!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "Laplace" if self.curvature == "exact" else "Laplace (local)"

    @property
    def core(self) -> str:
        """Compiled core of the evidence."""
        return "laplace" if self.curvature == "exact" else "laplace_local"

    @property
    def search(self) -> Search:
        """If the curvature is exact, the evidence is discontinuous, and the optimum depends on the start."""
        return Search(5, 0.5, 0.0) if self.curvature == "exact" else Search()

    run = run_at_optimum

    def check_sampling(self, problem: Problem) -> None:
        """Warn if the evidence is discontinuous: chains then get stuck without divergences."""
        beta = dict(zip(problem.loss.parameters, problem.parameters, strict=True)).get("beta", pt.constant(1.0))
        given = isinstance(beta, TensorConstant | SharedVariable)  # a sampled beta may be small
        least = float(value_of(beta).min()) if given else 0.0
        smooth = least >= _SMOOTH and unit_noise(problem.loss.name, beta=least).smooth
        if self.curvature == "exact" and not smooth:
            warnings.warn(
                f"the evidence of {self.name} is discontinuous where the noise is not smooth (small beta), and NUTS "
                "then fails without divergences: prefer latent=MeanField() or latent=Laplace(curvature='local')",
                UserWarning,
                stacklevel=4,
            )

    def solve(
        self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Posterior of the latent function."""
        return laplace(K, y, noise, mean=mean, curvature=self.curvature, start=start)


@dataclass(frozen=True, slots=True)
class MeanField(IntegratesLatent):
    """Mean field or TAP equations (Gao, Gunn & Harris 2002), by expectation propagation, with a smooth evidence."""

    name: ClassVar[str] = "mean field"
    core: ClassVar[str] = "mean_field"
    mismatch: ClassVar[float] = TARGET

    run = run_at_optimum

    def solve(
        self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Posterior of the latent function."""
        return mean_field(K, y, noise, mean=mean, start=start)


@dataclass(frozen=True, slots=True)
class MAP:
    """The most probable latent function: the dual of support vector regression, without error bars.

    MAP has no evidence: hyperparameters that are not given are optimised by the Laplace evidence.
    """

    name: ClassVar[str] = "MAP"
    latent: ClassVar[None] = None

    def run(self, problem: Problem, given: Point, options: Options, rng: Generator) -> Fitted:
        """Optimise the Laplace evidence, and return the mode."""
        return replace(run_at_optimum(Laplace(), problem, given, options, rng), plug_in=True)


@dataclass(frozen=True, slots=True)
class Committee:
    """Predictions that average over all optima of the hyperparameters, by evidence (Chu et al. 2004, section V-B).

    Everything but predictions is of the best optimum.

    Parameters
    ----------
    latent : MeanField, Laplace or another approximation
        Method that integrates the latent function out.

    Raises
    ------
    TypeError
        If it does not.
    """

    latent: IntegratesLatent = field(default_factory=MeanField)

    def __post_init__(self) -> None:
        check_latent(self.latent)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"committee ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: Generator) -> Fitted:
        """Optimise the hyperparameters that are not given from several starts, and solve at each optimum."""
        return at_optima(self, problem, given, options, rng)

    def members(self, points: Sequence[Point], objectives: Sequence[float]) -> list[int]:
        """Numbers of distinct optima."""
        kept: list[int] = []
        for i, point in enumerate(points):
            same = any(all(np.allclose(point[v], points[j][v], rtol=_SAME) for v in point) for j in kept)
            if not same and np.isfinite(objectives[i]):
                kept.append(i)
        return kept or [0]


@dataclass(frozen=True, slots=True)
class Annealed(Annealing):
    """Annealed estimate of the evidence at given hyperparameters: the reference for the approximations.

    Parameters
    ----------
    particles : int
        Number of particles in each group, at least 2.
    groups : int
        Number of independent groups, at least 2; their variation gives the standard error.
    moves : int
        Number of elliptical slice moves of each particle at each power, at least 1.
    efficiency : float
        Ratio, below 1, of the effective to the actual number of particles from one power to the next in the pilot run.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    moves: int = 5

    name: ClassVar[str] = "annealed"

    def posterior(
        self, K: Covariance, y: Array | None, likelihood: NoiseModel | LogLikelihood, mean: Array, rng: Generator
    ) -> AnnealedPosterior:
        """Draws of f and the log evidence; arguments as of `bsvr_pp.approximations.annealed`."""
        return annealed(K, y, likelihood, self, mean=mean, random_seed=rng)

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Estimate the log evidence with its standard error."""
        if isinstance(K, BlockDiagonal):  # the estimates of blocks are independent
            each = [self.evidence(K.part(b), y[rows], noise, mean[rows], rng) for b, rows in enumerate(K.rows)]
            error = float(np.sqrt(sum(part.standard_error**2 for part in each)))
            return Evidence(float(sum(part.value for part in each)), error, True)
        forwards = self.posterior(K, y, noise, mean, rng)
        return Evidence(forwards.log_evidence, forwards.standard_error, True)


def at_optima(method: Method, problem: Problem, given: Point, options: Options, rng: Generator) -> Fitted:
    """Solve at the best optimum of the hyperparameters that are not given, or at those that the method averages."""
    latent = method.latent
    assert latent is not None
    if set(given) == set(problem.hyperparameters):
        return fitted_at([given], [solve_at(problem, latent, given, options.progressbar)], np.ones(1), [])
    optima = maximize(problem, latent, given, options, rng, all_optima=isinstance(method, Averages))
    kept = optima[:1]
    if isinstance(method, Averages):
        kept = [optima[i] for i in method.members([o.point for o in optima], [o.objective for o in optima])]
    weights = softmax([optimum.objective for optimum in kept]) if len(kept) > 1 else np.ones(1)
    points = [{name: optimum.point[name] for name in problem.hyperparameters} for optimum in kept]
    posteriors = [solve_at(problem, latent, point, options.progressbar) for point in points]
    return fitted_at(points, posteriors, weights, optima)

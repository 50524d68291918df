"""Methods at points of the hyperparameters: Gaussian posteriors of the latent function, and annealing.

Annealing gives an unbiased evidence with a standard error, the reference for the approximations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.variable import TensorConstant

from bsvr_pp.core.approximations import BlockDiagonal, Covariance, LatentPosterior, annealed, laplace, mean_field
from bsvr_pp.core.approximations.laplace import is_local
from bsvr_pp.core.approximations.mean_field import TARGET
from bsvr_pp.core.approximations.smc import AnnealedPosterior, Annealing, LogLikelihood
from bsvr_pp.core.arrays import Array, warn
from bsvr_pp.core.covariance.covariance import AnyCovariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import unit_noise
from bsvr_pp.inference.fitted import Fitted, fitted_at
from bsvr_pp.inference.protocol import Evidence, IntegratesLatent, Options, Search
from bsvr_pp.inference.search.optimize import Optimum, maximize
from bsvr_pp.model.gaussian import value_of
from bsvr_pp.model.problem import Point, Problem

_SMOOTH = 0.2  # smallest beta for which the jumps of exact Laplace are small


def at_optimum(latent: IntegratesLatent, problem: Problem, given: Point, options: Options, rng: Generator) -> Fitted:
    """Solve at the best optimum of the hyperparameters that are not given: ``run`` of a method."""
    optima: list[Optimum] = []
    if set(given) != set(problem.hyperparameters):
        optima = maximize(problem, latent, given, options, rng)
    found = optima[0].point if optima else given
    point = {name: found[name] for name in problem.hyperparameters}
    return fitted_at(point, solve_at(problem, latent, point, options.progressbar), optima)


def solve_at(problem: Problem, method: IntegratesLatent, point: Point, progressbar: bool = False) -> LatentPosterior:
    """Return the posterior of f at given hyperparameters."""
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
        is_local(self.curvature)  # raises an error for another value

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
        """Options of the search: with exact curvature the evidence has jumps, and the optimum depends on the start."""
        return Search(5, 0.5, 0.0) if self.curvature == "exact" else Search()

    run = at_optimum

    def check_sampling(self, problem: Problem) -> None:
        """Warn if the evidence is discontinuous: chains then get stuck without divergences."""
        beta = dict(zip(problem.loss.parameters, problem.parameters, strict=True)).get("beta", pt.constant(1.0))
        given = isinstance(beta, TensorConstant | SharedVariable)  # a sampled beta may be small
        least = float(value_of(beta).min()) if given else 0.0
        smooth = least >= _SMOOTH and unit_noise(problem.loss.name, beta=least).smooth
        if self.curvature == "exact" and not smooth:
            warn(
                f"the evidence of {self.name} is discontinuous where the noise is not smooth (small beta): chains of "
                "NUTS get stuck without divergences, and weights of Integrated are wrong: prefer latent=MeanField() "
                "or latent=Laplace(curvature='local')"
            )

    def solve(
        self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Return the posterior of the latent function."""
        return laplace(K, y, noise, mean=mean, curvature=self.curvature, start=start)


@dataclass(frozen=True, slots=True)
class MeanField(IntegratesLatent):
    """Mean field or TAP equations (Gao, Gunn & Harris 2002), by expectation propagation, with a smooth evidence."""

    name: ClassVar[str] = "mean field"
    core: ClassVar[str] = "mean_field"
    mismatch: ClassVar[float] = TARGET

    run = at_optimum

    def solve(
        self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Return the posterior of the latent function."""
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
        return replace(at_optimum(Laplace(), problem, given, options, rng), plug_in=True)


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
        """Return draws of f and the log evidence; arguments as of `bsvr_pp.approximations.annealed`."""
        return annealed(K, y, likelihood, self, mean=mean, random_seed=rng)

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Estimate the log evidence with its standard error."""
        if isinstance(K, BlockDiagonal):  # the estimates of blocks are independent
            each = [self.evidence(K.part(b), y[rows], noise, mean[rows], rng) for b, rows in enumerate(K.rows)]
            error = float(np.sqrt(sum(part.standard_error**2 for part in each)))
            return Evidence(float(sum(part.value for part in each)), error, True)
        forwards = self.posterior(K, y, noise, mean, rng)
        return Evidence(forwards.log_evidence, forwards.standard_error, True)

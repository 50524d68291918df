"""Methods that compute a Gaussian posterior of the latent function at optima of the hyperparameters.

`fit_problem` is the fit of estimators, by any method: it makes no result, which has draws of f.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import softmax

from bsvr_pp.approximations import Covariance, LatentPosterior, laplace, mean_field
from bsvr_pp.approximations.mean_field import TARGET
from bsvr_pp.approximations.operation import latent_evidence
from bsvr_pp.approximations.posterior import joined, without_factor
from bsvr_pp.inference.at_size import AtSize, search_in_blocks
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.fitted import Fitted, fitted_at, fitted_draws, keep
from bsvr_pp.inference.neighbours import NoiseScales, scales_at, scales_of_posterior
from bsvr_pp.inference.optimize import Optimum, lengthscales, maximize
from bsvr_pp.inference.protocol import Approximation, Capabilities, Method, Options, can
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.blocks import Blocks, local_blocks
from bsvr_pp.model.problem import Point, Problem

__all__ = ["MAP", "Committee", "Laplace", "MeanField", "fit_problem", "learned_scales", "run_at_optimum", "solve_at"]

Array = NDArray[np.float64]

_SAME = 1e-2  # relative distance of hyperparameters below which two optima are considered equal
_SEED = 0  # of the blocks and of rows for scales of the noise, so that the same rows are cut in the same way

# In a search, which gives a start: evidence accurate to 1e-8 nats, gradients to about 1e-4, in half of the time.
_SEARCH_MISMATCH = 1e-4


def run_at_optimum(
    method: Approximation, problem: Problem, given: Point, options: Options, rng: np.random.Generator
) -> Fitted:
    """Optimise the hyperparameters that are not given by the evidence, and solve there: ``run`` of a method."""
    fitted = _at_optima(method, problem, given, options, rng)
    keep(problem, fitted.posteriors[0])
    return fitted


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

    return joined(K, K.each(solved, known), mean)


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

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
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

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Committee(bp.Laplace()).name
    'committee (Laplace)'
    """

    latent: Approximation = field(default_factory=MeanField)

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __post_init__(self) -> None:
        if not can(self.latent, "integrates"):
            raise TypeError(f"latent must integrate f out, as Laplace() and MeanField() do, got {self.latent!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"committee ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Optimise the hyperparameters that are not given from several starts, and solve at each optimum."""
        return _at_optima(self.latent, problem, given, options, rng, all_optima=True)


def fit_problem(
    problem: Problem,
    method: Method,
    model: Callable[[Blocks | None], pm.Model],
    *,
    rows: int | None = None,
    known: AtSize | None = None,
    restarts: int | None = None,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> tuple[Fitted, AtSize | None]:
    """Fit a compiled model: `fit` without a result, whose problem and hyperparameters are new each time.

    With ``rows`` it is divided into blocks of at most so many rows. With ``known``, which were found before for almost
    the same rows, only the blocks are cut again. NUTS samples what ``model`` makes.
    """
    found, latent = None, method.latent
    assert latent is not None  # as the estimators check
    if rows is not None:
        if known is None:
            options: dict[str, Any] = {"restarts": restarts, "rng": rng, "progressbar": progressbar}
            found = search_in_blocks(problem, latent, rows=rows, **options)
        else:
            lengthscale = lengthscales(problem, known.point)
            cut = local_blocks(problem.inputs, rows, lengthscale=lengthscale, random_seed=_SEED)
            found = replace(known, blocks=cut)
        problem = problem.take(np.arange(problem.targets.size), found.blocks)
    if method.capabilities.draws:
        draws = fit(method, model(problem.blocks), random_seed=rng, progressbar=False)
        return fitted_draws(problem, draws), found
    if found is not None:
        posterior = without_factor(solve_at(problem, latent, found.point, progressbar))
        state = fitted_at([found.point], [posterior], np.ones(1), found.optima, at_size=found.record())
        message = state.message if posterior.converged else "the solve of a block"
        return replace(state, converged=posterior.converged, message=message), found
    check_budget(method, problem.targets.size, divisible=problem.ends.kind == "exact")
    committee = isinstance(method, Committee)
    return _at_optima(latent, problem, {}, Options(restarts), rng, all_optima=committee), None


def learned_scales(
    problem: Problem, fitted: Fitted, method: Method, neighbours: int | None, progressbar: bool = False
) -> NoiseScales | None:
    """Scales of the noise: with blocks of fits on nearest rows, of dense mean field otherwise; None for other fits."""
    if len(fitted.posteriors) != 1:  # draws or a committee
        return None
    if problem.blocks is None:
        dense = isinstance(method, MeanField)
        return scales_of_posterior(problem, fitted.points[0], fitted.posteriors[0]) if dense else None
    if neighbours is None:  # the own block has one noise
        return None
    progress = "scales of the noise" if progressbar else ""
    return scales_at(problem, fitted.points[0], neighbours, np.random.default_rng(_SEED), progress=progress)


def _at_optima(
    method: Approximation,
    problem: Problem,
    given: Point,
    options: Options,
    rng: np.random.Generator,
    *,
    all_optima: bool = False,
) -> Fitted:
    """Solve at the best optimum of the hyperparameters that are not given, or at all, weighted by their objective."""
    if set(given) == set(problem.hyperparameters):
        return fitted_at([given], [solve_at(problem, method, given, options.progressbar)], np.ones(1), [])
    optima = maximize(
        problem,
        method,
        given,
        restarts=options.restarts,
        objective=options.objective,
        rng=rng,
        progressbar=options.progressbar,
        all_optima=all_optima,
    )
    kept = _distinct(optima) if all_optima else optima[:1]
    weights = softmax([optimum.objective for optimum in kept]) if len(kept) > 1 else np.ones(1)
    points = [{name: optimum.point[name] for name in problem.hyperparameters} for optimum in kept]
    posteriors = [solve_at(problem, method, point, options.progressbar) for point in points]
    return fitted_at(points, posteriors, weights, optima)


def _distinct(optima: list[Optimum]) -> list[Optimum]:
    """Return distinct optima, best first."""
    kept: list[Optimum] = []
    for optimum in optima:
        same = any(
            all(np.allclose(optimum.point[name], other.point[name], rtol=_SAME) for name in optimum.point)
            for other in kept
        )
        if not same and np.isfinite(optimum.objective):
            kept.append(optimum)
    return kept or optima[:1]

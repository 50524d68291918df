"""The evidence of a model, and a result with its model: what judgements need of both, in the terms of the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from rich.progress import track

from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import generator
from bsvr_pp.core.covariance.block_diagonal import AnyCovariance
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.inference.fitted import latent_posterior
from bsvr_pp.inference.protocol import Anneals, Evidence, HasEvidence, Method, check_evidence
from bsvr_pp.inference.result import check_match, latent_draws, points_of, problem_of
from bsvr_pp.methods import method_of
from bsvr_pp.model.problem import Point, Problem, read_model


class JudgedModel:
    """A model (by default that of the surrounding ``with``), which is read once, and its evidence at any point."""

    def __init__(self, model: pm.Model | None = None, problem: Problem | None = None) -> None:
        self.problem = problem = read_model(model) if problem is None else problem
        self.model, self.target, self.targets = problem.model, problem.target, problem.targets
        self.hyperparameters, self.loss = problem.hyperparameters, problem.loss

    def at(self, point: Point) -> tuple[AnyCovariance, Array, NoiseModel]:
        """Prior covariance, prior mean and noise of the training rows, of which evidences with f integrated out are."""
        self.problem.check_integrable()
        return self.problem.at(point)

    def evidence(self, point: Point, method: HasEvidence, rng: np.random.Generator) -> Evidence:
        """Log evidence at checked hyperparameters."""
        K, mean, noise = self.at(point)
        return method.evidence(K, self.targets, noise, mean, rng)


class Judged(JudgedModel):
    """A result of `fit`, and the model with the data that it was computed from; errors call the result ``name``.

    ``purpose`` is what is refused for some kinds of targets, a key of `Numbers.refusal`.
    """

    def __init__(
        self, result: xr.DataTree, model: pm.Model | None = None, name: str = "result", purpose: str = ""
    ) -> None:
        super().__init__(problem=problem_of(result, model, name))
        if purpose and (refusal := self.loss.targets.refusal(purpose, name=self.loss.name)):
            raise ValueError(refusal)
        check_match(self.problem, result, name)
        self.result = result

    @property
    def method(self) -> Method:
        """The method of the result."""
        return method_of(self.result)

    def at_its_point(self) -> tuple[LatentPosterior, NoiseModel]:
        """Gaussian posterior of f and the noise, of a result at one point of the hyperparameters."""
        return latent_posterior(self.problem, self.result)

    @cached_property
    def points(self) -> list[Point]:
        """The hyperparameters of each draw, chain after chain."""
        return points_of(self.result["posterior"].to_dataset(), self.hyperparameters)

    def rows_of(self, group: str, variable: str) -> Array:
        """A variable with a value for each draw and training point, as a (draws, n) array."""
        return np.reshape(self.result[group].to_dataset()[variable].values, (-1, self.targets.size))

    def evenly(self, most: int) -> NDArray[np.intp]:
        """Positions of at most so many draws, evenly spaced among all."""
        total = len(self.points)
        return np.unique(np.linspace(0, total - 1, min(most, total)).astype(int))

    def at_draws(
        self, chosen: NDArray[np.intp], description: str = "", progressbar: bool = False
    ) -> Iterator[tuple[AnyCovariance, Array, NoiseModel]]:
        """Prior covariance, prior mean and noise of the training rows at each of these draws of the hyperparameters."""
        for s in track(chosen, description=description, disable=not progressbar, transient=True):
            yield self.at(self.points[s])


def some_draws(posterior: xr.Dataset, chosen: NDArray[np.intp], chains: int = 1) -> xr.Dataset:
    """The draws at these positions, chain after chain, as so many chains; repeated positions are allowed."""
    posterior = posterior.transpose("chain", "draw", ...)
    kept = {}
    for name, variable in posterior.items():
        flat = variable.values.reshape(-1, *variable.shape[2:])[chosen]
        kept[name] = (variable.dims, flat.reshape(chains, -1, *flat.shape[1:]))
    return xr.Dataset(kept, coords={dim: at for dim, at in posterior.coords.items() if dim not in ("chain", "draw")})


@shared
def log_evidence(
    method: HasEvidence,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    draws: ArrayLike | xr.DataTree | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Compute the natural log of the evidence p(y | hyperparameters), with the latent function integrated out.

    Parameters
    ----------
    method : Laplace, MeanField, Annealed or another method with an evidence
        Method of integration. The annealed estimate is exact up to its standard error.
    <model>
    hyperparameters : dict, optional
        A value for each hyperparameter of the model; not needed if there are none.
    draws : (draws, n) array or DataTree, optional
        Draws of the latent function from the exact posterior at these hyperparameters, such as a result of
        ``fit(NUTS(), hyperparameters=...)``. The annealed path is then followed in reverse, from these draws to the
        start. The expectation of this estimate is above the log evidence; that of the forward run is below it.
    random_seed : int or Generator, optional
        Random seed of the annealed estimate.

    Returns
    -------
    Evidence
        A named tuple of ``value``, its ``standard_error`` (0 if the method has none), and ``converged``.

    Raises
    ------
    TypeError
        If the method has no evidence.
    ValueError
        If a hyperparameter is missing, unknown or outside its support, or draws have the wrong shape or are given
        with another method.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)), jitter=0.0)
    ...     _ = pm.Normal("y", mu=f, sigma=1.0, observed=[1.0])
    ...     round(bp.log_evidence(bp.MeanField()).value, 6)
    -1.515512
    """
    check_evidence(method)
    if draws is None:
        judged = JudgedModel(model)
        return judged.evidence(judged.problem.complete(hyperparameters), method, generator(random_seed))
    if not isinstance(method, Anneals):
        raise ValueError(f"draws are for Annealed(), got them with {method!r}")
    judged = Judged(draws, model, "draws") if isinstance(draws, xr.DataTree) else JudgedModel(model)
    point = judged.problem.complete(hyperparameters)
    f = _draws_at(judged, point) if isinstance(judged, Judged) else draws
    K, mean, noise = judged.at(point)
    return method.evidence(K, judged.targets, noise, mean, generator(random_seed), f)


def _draws_at(fitted: Judged, point: Mapping[str, Array]) -> Array:
    """Draws (draws, n) of f from a result that sampled it at these hyperparameters."""
    posterior = fitted.result["posterior"].to_dataset()
    for name, value in point.items():
        if not np.allclose(posterior[name].values, value, rtol=1e-12, atol=0.0):
            raise ValueError(f"draws must be at the given hyperparameters, but have other values of {name}")
    return latent_draws(fitted.result)

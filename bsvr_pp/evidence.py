"""The evidence of a model at given hyperparameters, by any method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from bsvr_pp.approximations import reverse_annealed
from bsvr_pp.approximations.paths import path_to
from bsvr_pp.checks import check_count, generator
from bsvr_pp.inference.methods import Annealed, Laplace, MeanField
from bsvr_pp.inference.result import check_result
from bsvr_pp.problem import Problem, read_model

__all__ = ["Evidence", "approximation_of", "integrated_evidence", "log_evidence"]

Array = NDArray[np.float64]

_APPROXIMATIONS = {method.name: method for method in (Laplace(), Laplace(curvature="local"), MeanField())}
_TAIL = 5  # degrees of freedom of the proposal, whose tails must not be lighter than the posterior's
_GOOD = 0.7


class Evidence(NamedTuple):
    """Log evidence with its standard error (0 where the method has none) and whether the method converged."""

    value: float
    standard_error: float
    converged: bool


def log_evidence(
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    *,
    method: Laplace | MeanField | Annealed,
    model: pm.Model | None = None,
    draws: ArrayLike | xr.DataTree | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Natural log of the evidence p(y | hyperparameters), the latent function integrated out.

    Parameters
    ----------
    hyperparameters : dict, optional
        A value for each hyperparameter of the model; may be left out where there are none.
    method : Laplace, MeanField or Annealed
        How to integrate. The annealed estimate is right up to its standard error.
    model : pm.Model, optional
        By default that of the surrounding ``with``.
    draws : (draws, n) array or DataTree, optional
        Draws of the latent function from the exact posterior at these hyperparameters, such as a result of
        ``fit(NUTS(), hyperparameters=...)``. The annealed path is then walked back from them: the expectation of
        that estimate lies above the log evidence, as that of the run forwards lies below it.
    random_seed : int or Generator, optional
        For the annealed estimate.

    Returns
    -------
    Evidence

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
    ...     round(bp.log_evidence(method=bp.MeanField()).value, 6)
    -1.515512
    """
    if not isinstance(method, Laplace | MeanField | Annealed):
        raise TypeError(f"method must be Laplace(), MeanField() or Annealed(), which have an evidence, got {method!r}")
    if draws is not None and not isinstance(method, Annealed):
        raise ValueError(f"draws are for Annealed(), got them with {method!r}")
    problem = read_model(model)
    K, mean, noise = problem.at(problem.complete(hyperparameters))
    if isinstance(method, Annealed):
        rng = generator(random_seed)
        forwards = method.solve(K, problem.targets, noise, mean, rng)
        if draws is None:
            return Evidence(forwards.log_evidence, forwards.standard_error, True)
        if isinstance(draws, xr.DataTree):
            check_result("draws", draws)
            f = draws["posterior"].to_dataset()[problem.prior.name].values
            draws = f.reshape(-1, f.shape[-1])
        value, error = reverse_annealed(
            draws, K, problem.targets, noise, forwards.powers, mean=mean, moves=method.moves, random_seed=rng
        )
        return Evidence(value, error, True)
    posterior = method.solve(K, problem.targets, noise, mean, problem.prior.jitter)
    return Evidence(float(posterior.log_evidence) if posterior.converged else -np.inf, 0.0, posterior.converged)


def integrated_evidence(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    draws: int = 200,
    particles: int = 500,
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Natural log of p(y), latent function and hyperparameters integrated out.

    Importance sampling from a Student t fitted to the sampled hyperparameters, on their unconstrained scale. Where
    f was integrated out, p(y|θ) is that of the approximation; where it was sampled, an unbiased estimate by particles
    as in `verify`, and p(y) is then exact up to its error.

    Parameters
    ----------
    result : DataTree
        Of ``fit(NUTS(...))`` with sampled hyperparameters.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    draws : int
        Points of the hyperparameters, at least 25.
    particles : int
        Draws of f at each, at least 2, where f was sampled.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    Evidence
        ``converged`` says whether k-hat of the weights is at most 0.7.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, or a number is out of range.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model() as model:
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    >>> bp.integrated_evidence(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_result("result", result)
    method = str(result.attrs["inference"])
    check_count("draws", draws, 25)
    check_count("particles", particles, 2)
    problem = read_model(model)
    posterior = result["posterior"].to_dataset()
    sampled = [name for name in problem.hyperparameters if name in posterior and np.ptp(posterior[name].values) > 0]
    if not method.startswith("NUTS") or sampled != list(problem.hyperparameters) or not sampled:
        raise ValueError(f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {method}")
    rng = generator(random_seed)
    theta = _unconstrained(problem, posterior)
    proposal = multivariate_t(theta.mean(axis=0), np.atleast_2d(np.cov(theta.T)), df=_TAIL, seed=rng)
    proposed = np.reshape(proposal.rvs(draws), (draws, -1))
    prior = problem.model.compile_fn(
        problem.model.logp(vars=problem.variables), inputs=problem.values, point_fn=False, mode="FAST_COMPILE"
    )
    approximation = approximation_of(result)
    shapes = [np.shape(v) for v in problem.to_unconstrained({n: posterior[n].values[0, 0] for n in sampled})]
    weight = np.empty(draws)
    for s, flat in enumerate(proposed):
        values = _split(flat, shapes)
        K, mean, noise = problem.at(problem.to_constrained(values))
        if approximation is None:
            path = path_to(K, problem.targets, noise, mean)
            evidence = path.log_mass + logsumexp(path.level(path.draw(particles, rng))) - np.log(particles)
        else:
            latent = approximation.solve(K, problem.targets, noise, mean, problem.prior.jitter)
            evidence = latent.log_evidence if latent.converged else -np.inf
        weight[s] = evidence + float(prior(*values)) - proposal.logpdf(flat)
    value = float(logsumexp(weight) - np.log(draws))
    error = float(np.exp(weight - value).std(ddof=1) / np.sqrt(draws))
    finite = weight[np.isfinite(weight)]
    return Evidence(value, error, bool(float(array_stats.psislw(-finite)[1]) <= _GOOD))


def approximation_of(result: xr.DataTree) -> Laplace | MeanField | None:
    """The approximation whose evidence a result rests on; None for MAP, and where f was sampled.

    Parameters
    ----------
    result : DataTree
        Of `fit`.

    Returns
    -------
    Laplace, MeanField or None
    """
    name = str(result.attrs["inference"])
    return _APPROXIMATIONS.get(name.removeprefix("NUTS (")[:-1] if name.startswith("NUTS (") else name)


def _unconstrained(problem: Problem, posterior: xr.Dataset) -> Array:
    """Draws (draws, size) of all hyperparameters on the unconstrained scale."""
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    drawn = {n: posterior[n].values.reshape(total, *posterior[n].shape[2:]) for n in problem.hyperparameters}
    return np.stack(
        [
            np.concatenate([np.ravel(v) for v in problem.to_unconstrained({n: x[s] for n, x in drawn.items()})])
            for s in range(total)
        ]
    )


def _split(flat: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    """A flat vector as arrays of the given shapes."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]

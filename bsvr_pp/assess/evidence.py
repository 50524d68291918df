"""The evidence of a model at given hyperparameters, by any method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pymc.blocking import DictToArrayBijection, RaveledVars
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from bsvr_pp._arrays import Array
from bsvr_pp._checks import check_count, generator
from bsvr_pp._docs import shared
from bsvr_pp.approximations.smc import importance
from bsvr_pp.assess.judged import Judged, JudgedModel
from bsvr_pp.assess.reweighting import GOOD_K, pareto_weights
from bsvr_pp.inference.protocol import Anneals, Evidence, HasEvidence, check_evidence

_TAIL = 5  # degrees of freedom of the proposal: its tails must not be lighter than those of the posterior


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
    return fitted.f


@shared
def integrated_evidence(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    draws: int = 200,
    particles: int = 500,
    random_seed: int | np.random.Generator | None = None,
) -> Evidence:
    """Estimate the natural log of p(y), with the latent function and the hyperparameters integrated out.

    The method is importance sampling from a Student t distribution that is fitted to the sampled hyperparameters, on
    their unconstrained scale. If f was integrated out, p(y|θ) is that of the approximation. If f was sampled, p(y|θ) is
    an unbiased estimate by particles as in `verify`, and p(y) is exact up to its standard error.

    Parameters
    ----------
    result : DataTree
        Result of ``fit(NUTS(...))`` with sampled hyperparameters.
    <model>
    draws : int
        Number of points of the hyperparameters, at least 25.
    particles : int
        Number of draws of f at each point, at least 2; used if f was sampled.
    <random_seed>

    Returns
    -------
    Evidence
        As of `log_evidence`; ``converged`` is true if the k-hat of the weights is at most 0.7.

    Raises
    ------
    ValueError
        If the hyperparameters were not sampled, or a number is out of range.
    <no_result>

    <pymc_model>
    >>> bp.integrated_evidence(bp.fit(bp.MAP(), model, progressbar=False), model=model)
    Traceback (most recent call last):
    ValueError: result must have sampled hyperparameters, as of fit(NUTS(...)), got one of MAP
    """
    check_count("draws", draws, 25)
    check_count("particles", particles, 2)
    fitted = Judged(result, model)
    method, problem, names = fitted.method, fitted.problem, fitted.hyperparameters
    posterior = result["posterior"].to_dataset()
    sampled = [name for name in names if name in posterior and np.ptp(posterior[name].values) > 0]
    if sampled != list(names) or not sampled:
        raise ValueError(f"result must have sampled hyperparameters, as of fit(NUTS(...)), got one of {method.name}")
    rng = generator(random_seed)
    unconstrained = [dict(zip(names, problem.to_unconstrained(point), strict=True)) for point in fitted.points]
    drawn = [DictToArrayBijection.map(values) for values in unconstrained]
    theta, shapes = np.stack([draw.data for draw in drawn]), drawn[0].point_map_info
    proposal = multivariate_t(theta.mean(axis=0), np.atleast_2d(np.cov(theta.T)), df=_TAIL, seed=rng)
    proposed = np.reshape(proposal.rvs(draws), (draws, -1))
    prior = problem.model.compile_fn(
        problem.model.logp(vars=problem.prior_terms), inputs=problem.values, point_fn=False, mode="FAST_COMPILE"
    )
    weight = np.empty(draws)
    for s, flat in enumerate(proposed):
        values = list(DictToArrayBijection.rmap(RaveledVars(flat, shapes)).values())
        point = problem.to_constrained(values)
        if method.latent is None:
            K, mean, noise = fitted.at(point)
            evidence, _ = importance(K, problem.targets, noise, mean, particles, rng)
        else:
            evidence = fitted.evidence(point, method.latent, rng).value
        weight[s] = evidence + float(prior(*values)) - proposal.logpdf(flat)
    value = float(logsumexp(weight) - np.log(draws))
    error = float(np.exp(weight - value).std(ddof=1) / np.sqrt(draws))
    finite = weight[np.isfinite(weight)]
    return Evidence(value, error, pareto_weights(finite)[1] <= GOOD_K)

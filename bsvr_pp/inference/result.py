"""The one schema of results: an `xarray.DataTree` that ArviZ takes as it is and netCDF keeps.

Groups: ``posterior`` (hyperparameters and f), ``log_likelihood`` (p(y_i|f_i); not of MAP, which has no draws to
average over, so that `arviz.loo` says so), ``posterior_predictive``, ``observed_data``, ``constant_data`` (X),
``sample_stats``, ``latent_posterior`` (mean, variance, dual_coef, site_precision, support at the training inputs) and
``optima`` (all ends of the optimiser). Where the hyperparameters were sampled with f integrated out, ``latent_draws``
holds dual_coef and site_precision of every draw, and ``leave_one_out`` the log density of each target given the
others. Attributes of the root: inference, method, log_evidence, converged (0 or 1), sampling_time in seconds, loss,
objective, bsvr_pp_version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import NDArray

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.classification.probability import label_probability
from bsvr_pp.inference.optimize import Optimum
from bsvr_pp.losses import NoiseModel
from bsvr_pp.problem import Point, Problem
from bsvr_pp.version import __version__

__all__ = ["check_result", "check_results", "draw_sites", "from_latent", "from_samples"]

Array = NDArray[np.float64]

_DRAWS = 500  # of f under a Gaussian approximation, and of new targets


def check_result(name: str, result: object) -> None:
    """Refuse what is not a result.

    Raises
    ------
    TypeError
        Naming the argument and what it is.
    """
    if not isinstance(result, xr.DataTree) or "inference" not in result.attrs:
        raise TypeError(f"{name} must be a result of fit, got {type(result).__name__}")


def check_results(results: object) -> None:
    """Refuse what is not a dict with at least one result.

    Raises
    ------
    TypeError
        If it is no dict, or holds something else.
    ValueError
        If it is empty.
    """
    if not isinstance(results, Mapping):
        raise TypeError(f"results must be a dict from names to results, got {type(results).__name__}")
    if not results:
        raise ValueError("results must hold at least one result")
    for name, result in results.items():
        check_result(f"results[{name!r}]", result)


def from_latent(
    problem: Problem,
    point: Point,
    posterior: LatentPosterior,
    optima: list[Optimum],
    attributes: Mapping[str, Any],
    *,
    plug_in: bool,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Result of a method with a Gaussian posterior at one point of the hyperparameters.

    With ``plug_in`` (MAP) the latent function is its mode alone: one draw, no variance, no sites.
    """
    K, _, noise = problem.at(point)
    f = posterior.mean[None] if plug_in else posterior.mean + draw_sites(K, posterior.site_precision, _DRAWS, rng)
    draws = {name: np.broadcast_to(value, (1, len(f), *np.shape(value))) for name, value in point.items()}
    predicted = posterior.mean + np.zeros((_DRAWS, 1)) if plug_in else f
    zero = np.zeros_like(posterior.variance)
    latent = {
        "mean": posterior.mean,
        "variance": zero if plug_in else posterior.variance,
        "dual_coef": posterior.dual_coef,
        "site_precision": zero if plug_in else posterior.site_precision,
        "support": posterior.support,
    }
    tree = _tree(
        problem,
        {**draws, problem.prior.name: f[None]},
        {} if plug_in else {problem.target: _log_likelihood(noise, problem.targets, f)[None]},
        {problem.target: _new_targets(noise, predicted, rng)[None]},
        latent,
        {**attributes, "n_iter": posterior.n_iter, "duality_gap": posterior.duality_gap},
    )
    tree["sample_stats"] = xr.DataTree(
        xr.Dataset({"converged": (("chain", "draw"), np.full((1, len(f)), int(posterior.converged)))})
    )
    if optima:
        tree["optima"] = xr.DataTree(_optima(optima))
    return tree


def from_samples(
    problem: Problem, samples: xr.DataTree, fixed: Point, attributes: Mapping[str, Any], rng: np.random.Generator
) -> xr.DataTree:
    """Result of sampling: PyMC's own tree, completed; hyperparameters that were given stand beside the others."""
    name = problem.prior.name
    drawn = samples["posterior"].to_dataset()
    f = drawn[name].values
    flat = f.reshape(-1, f.shape[-1])
    draws = {str(v): drawn[v].values for v in drawn.data_vars}
    chosen = np.unique(np.linspace(0, len(flat) - 1, min(len(flat), 4 * _DRAWS)).astype(int))
    likelihood, predicted = np.empty_like(flat), np.empty((len(chosen), flat.shape[1]))
    place = {int(c): i for i, c in enumerate(chosen)}
    for s in range(len(flat)):
        chain, draw = divmod(s, f.shape[1])
        point = {h: draws[h][chain, draw] for h in problem.hyperparameters}
        noise = problem.noise_at(point)
        likelihood[s] = _log_likelihood(noise, problem.targets, flat[s])
        if s in place:
            predicted[place[s]] = _new_targets(noise, flat[s], rng)
    for fixed_name, value in fixed.items():
        draws[fixed_name] = np.broadcast_to(value, (*f.shape[:2], *np.shape(value)))
    latent = {"mean": flat.mean(axis=0), "variance": flat.var(axis=0, ddof=1) if len(flat) > 1 else 0 * flat[0]}
    tree = _tree(
        problem,
        draws,
        {problem.target: likelihood.reshape(f.shape)},
        {problem.target: predicted[None]},
        latent,
        attributes,
    )
    for group in ("sample_stats", "leave_one_out", "latent_draws"):
        if group in samples.children:
            tree[group] = samples[group]
    return tree


def _tree(
    problem: Problem,
    posterior: Mapping[str, Any],
    log_likelihood: Mapping[str, Any],
    posterior_predictive: Mapping[str, Any],
    latent: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> xr.DataTree:
    n = problem.targets.size
    obs = {"obs": np.arange(n)}
    data = {
        "posterior": dict(posterior),
        "log_likelihood": dict(log_likelihood),
        "posterior_predictive": dict(posterior_predictive),
        "observed_data": {problem.target: problem.targets},
        "constant_data": {"X": problem.inputs},
    }
    dims = {problem.target: ["obs"], problem.prior.name: ["obs"], "X": ["obs", "input"]}
    if problem.prior.whitened:
        dims[problem.prior.whitened] = ["obs"]
    tree: xr.DataTree = from_dict({group: held for group, held in data.items() if held}, dims=dims, coords=obs)
    tree["latent_posterior"] = xr.DataTree(
        xr.Dataset({name: ("obs", np.asarray(value)) for name, value in latent.items()}, coords=obs)
    )
    tree.attrs.update({"loss": problem.loss.name, "bsvr_pp_version": __version__, **attributes})
    return tree


def _log_likelihood(noise: NoiseModel, y: Array, f: Array) -> Array:
    """Log p(y|f); of labels the unnormalised Q(y|f) of Sollich 2002, (4), under which f was found."""
    return noise.log_density(1.0 - y * f if noise.kind.classification else y - f)


def _new_targets(noise: NoiseModel, f: Array, rng: np.random.Generator) -> Array:
    """One new target for each f; labels from the normalised P(y|f) of Sollich 2002, (10)."""
    if noise.kind.classification:
        return np.where(rng.random(f.shape) < label_probability(f, noise.parameters["C"]), 1.0, -1.0)
    return f + noise.sample(f.shape, rng)


def draw_sites(K: Array, precision: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws of f - mean under N(0, (K⁻¹ + diag(τ))⁻¹): a prior draw, corrected by its own noisy sites."""
    n = len(precision)
    factor = np.linalg.cholesky(K + 1e-10 * np.mean(np.diag(K)) * np.eye(n))
    prior = rng.standard_normal((size, n)) @ factor.T
    root = np.sqrt(precision)
    system = np.eye(n) + root[:, None] * K * root
    # With pseudo-targets f + e/√τ the correction is -K√τ B⁻¹(√τ f + e).
    noisy = prior * root + rng.standard_normal((size, n))
    corrected: Array = prior - (np.linalg.solve(system, noisy.T).T * root) @ K
    return corrected


def _optima(optima: list[Optimum]) -> xr.Dataset:
    """All ends of the optimiser, best first."""
    data: dict[str, Any] = {
        "objective": ("optimum", [o.objective for o in optima]),
        "converged": ("optimum", [int(o.converged) for o in optima]),
        "n_evaluations": ("optimum", [o.n_evaluations for o in optima]),
        "message": ("optimum", [o.message for o in optima]),
    }
    for name in optima[0].point:
        stacked = np.stack([np.asarray(o.point[name]) for o in optima])
        data[name] = (("optimum", *(f"{name}_dim_{i}" for i in range(stacked.ndim - 1))), stacked)
    return xr.Dataset(data)

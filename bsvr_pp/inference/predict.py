"""Predictions from any result, never asking which method made it.

At one point of the hyperparameters f is Gaussian at the new inputs (MAP: a point), and a new target is f plus noise:
its density is the mass of Gaussian times site, its cdf the convolution of the two. With draws, every draw gives such
a Gaussian, and densities and cdfs are averaged over the draws; quantiles invert the averaged cdf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import elementwise

from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.classification.probability import average_probability
from bsvr_pp.losses import NoiseModel
from bsvr_pp.problem import Problem, read_model

__all__ = ["checked_inputs", "latent_posterior", "predict"]

Array = NDArray[np.float64]

_DRAWS = 500  # draws of the hyperparameters that predictions average over
_CHUNK = 2000  # new inputs at a time
_QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)
_THINNED = 100  # draws whose cdfs the score averages
_REACH = 12.0  # predictive standard deviations to which the continuous ranked probability score integrates
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def predict(
    result: xr.DataTree,
    X_new: ArrayLike,
    *,
    model: pm.Model | None = None,
    quantiles: Sequence[float] = _QUANTILES,
    y_new: ArrayLike | None = None,
    random_seed: int | np.random.Generator | None = 0,
) -> xr.Dataset:
    """Predict the latent function and new targets.

    Parameters
    ----------
    result : DataTree
        Of `fit`.
    X_new : (n_new, d) array
        New inputs.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    quantiles : sequence of float
        Of the new targets, between 0 and 1.
    y_new : (n_new,) array, optional
        Targets at the new inputs; their log density is returned as ``y_log_density``, their probability integral
        transform as ``y_cdf``, their continuous ranked probability score, in the target's units, as ``y_crps``.
    random_seed : int or Generator
        For results with draws.

    Returns
    -------
    xarray.Dataset
        ``f_mean``, ``f_variance``, ``y_mean``, ``y_variance`` over ``obs_new``; ``y_quantile`` over ``quantile`` and
        ``obs_new``; ``y_log_density``, ``y_cdf`` and ``y_crps`` if targets are given. The variance of f is Chu,
        Keerthi & Ong 2004, (44), or its mean-field twin, that of y adds (15). For labels there is ``y_probability``
        of +1 instead of quantiles, averaged over the posterior (Sollich 2002, (33)), or at the mode of MAP (37).

    Raises
    ------
    ValueError
        If X_new does not fit the model, a quantile is outside (0, 1), or the noise has a value for each training
        point, which says nothing about new ones.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     result = bp.fit(bp.Laplace(), hyperparameters={"C": 10.0}, progressbar=False)
    ...     prediction = bp.predict(result, [[0.0], [9.0]])
    >>> bool(prediction["f_variance"][0] < prediction["f_variance"][1])
    True
    """
    problem = read_model(model)
    X = checked_inputs(problem, X_new)
    levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {quantiles!r}")
    targets = None if y_new is None else np.asarray(y_new, dtype=np.float64)
    if targets is not None and targets.shape != (len(X),):
        raise ValueError(f"y_new must be a ({len(X)},) array as X_new has {len(X)} rows, got shape {targets.shape}")
    rng = np.random.default_rng(random_seed)
    components = list(_components(problem, result, rng))
    parts = [
        _predict_chunk(
            problem,
            components,
            X[at : at + _CHUNK],
            levels,
            None if targets is None else targets[at : at + _CHUNK],
            rng,
        )
        for at in range(0, len(X), _CHUNK)
    ]
    joined = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    dims = {"y_quantile": ("quantile", "obs_new")}
    return xr.Dataset(
        {name: (dims.get(name, ("obs_new",)), value) for name, value in joined.items()},
        coords={"obs_new": np.arange(len(X))} | ({"quantile": levels} if "y_quantile" in joined else {}),
    )


def checked_inputs(problem: Problem, X_new: ArrayLike) -> Array:
    """New inputs as an (n_new, d) array that fits the model."""
    d = problem.inputs.shape[1]
    try:
        X = np.asarray(X_new, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"X_new must be an (n_new, {d}) array of numbers, got {type(X_new).__name__}") from None
    if X.ndim != 2 or X.shape[1] != d or len(X) == 0:
        raise ValueError(f"X_new must be an (n_new, {d}) array with n_new >= 1, got shape {X.shape}")
    if not np.isfinite(X).all():
        raise ValueError("X_new must be finite")
    return X


class _Component:
    """One point of the hyperparameters: mean and variance of f anywhere, and the noise."""

    def __init__(self, point: dict[str, Any], noise: NoiseModel, gaussian: Any) -> None:
        self.point, self.noise, self._gaussian = point, noise, gaussian

    def latent(self, problem: Problem, X: Array) -> tuple[Array, Array]:
        mean, variance = self._gaussian(*problem.cross(self.point, X))
        return mean, variance


def latent_posterior(problem: Problem, result: xr.DataTree) -> tuple[LatentPosterior, NoiseModel]:
    """Gaussian posterior of f, and the noise, of a result at one point of the hyperparameters.

    Raises
    ------
    ValueError
        If result and model do not belong together.
    """
    _check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    K, mean, noise = problem.at({name: posterior[name].values[0, 0] for name in problem.hyperparameters})
    gaussian = _gaussian(K, mean, latent["dual_coef"].values, latent["site_precision"].values)
    return gaussian, noise


def _gaussian(K: Array, mean: Array, dual_coef: Array, site_precision: Array) -> LatentPosterior:
    """The Gaussian that a result keeps as two vectors; how it was found is of no concern here."""
    support = np.zeros(len(mean), dtype=np.int64)
    return from_sites(K, mean, dual_coef, site_precision, np.nan, support, converged=True, n_iter=0, duality_gap=0.0)


def _check_match(problem: Problem, result: xr.DataTree) -> None:
    posterior = result["posterior"].to_dataset()
    missing = [name for name in problem.hyperparameters if name not in posterior.data_vars]
    if missing:
        raise ValueError(f"result has no hyperparameter {missing[0]!r}: is it of this model?")
    if posterior[problem.prior.name].sizes.get("obs") != problem.targets.size:
        raise ValueError("result and model have different numbers of training points")


def _components(problem: Problem, result: xr.DataTree, rng: np.random.Generator) -> Iterator[_Component]:
    _check_match(problem, result)
    posterior = result["posterior"].to_dataset()
    if "dual_coef" in result["latent_posterior"].to_dataset():
        gaussian, noise = latent_posterior(problem, result)
        point = {name: posterior[name].values[0, 0] for name in problem.hyperparameters}
        plug_in = not result["latent_posterior"].to_dataset()["variance"].values.any()

        def at_sites(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
            f_mean, f_variance = gaussian.predict(K_star, diagonal, offset)
            return f_mean, np.zeros_like(f_variance) if plug_in else f_variance

        yield _Component(point, noise, at_sites)
        return
    f = posterior[problem.prior.name].values
    total = f.shape[0] * f.shape[1]
    integrated = result["latent_draws"].to_dataset() if "latent_draws" in result.children else None
    for s in np.unique(np.linspace(0, total - 1, min(total, _DRAWS)).astype(int)):
        chain, draw = divmod(int(s), f.shape[1])
        point = {name: posterior[name].values[chain, draw] for name in problem.hyperparameters}
        K, mean, noise = problem.at(point)
        if integrated is not None:
            sites = (integrated[name].values[chain, draw] for name in ("dual_coef", "site_precision"))
            yield _Component(point, noise, _gaussian(K, mean, *sites).predict)
            continue
        factor = cholesky(K, lower=True)
        whitened = problem.prior.whitened
        if whitened is not None and whitened in posterior.data_vars:
            white = posterior[whitened].values[chain, draw]
        else:
            white = solve_triangular(factor, f[chain, draw] - mean, lower=True)

        def at_draw(
            K_star: Array, diagonal: Array, offset: Array, factor: Array = factor, white: Array = white
        ) -> tuple[Array, Array]:
            half = solve_triangular(factor, K_star.T, lower=True)
            return half.T @ white + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

        yield _Component(point, noise, at_draw)


def _predict_chunk(
    problem: Problem,
    components: list[_Component],
    X: Array,
    levels: Array,
    targets: Array | None,
    rng: np.random.Generator,
) -> dict[str, Array]:
    latent = [component.latent(problem, X) for component in components]
    means, variances = (np.stack(part) for part in zip(*latent, strict=True))
    noises = [component.noise for component in components]
    if any(noise.n_points is not None for noise in noises):
        raise ValueError(
            "the noise has a value for each training point, which says nothing about new ones: give it numbers"
        )
    if noises[0].kind.classification:
        return _predict_labels(means, variances, noises, targets)
    noise_mean = np.array([noise.mean for noise in noises])[:, None]
    noise_variance = np.array([noise.variance for noise in noises])[:, None]
    out = {
        "f_mean": means.mean(axis=0),
        "f_variance": variances.mean(axis=0) + means.var(axis=0),
        "y_mean": (means + noise_mean).mean(axis=0),
        "y_variance": (variances + noise_variance).mean(axis=0) + (means + noise_mean).var(axis=0),
    }
    drawn = means
    if len(components) == 1:
        out["y_quantile"] = _quantiles(means[0], variances[0], noises[0], levels)
    else:
        drawn = means + np.sqrt(variances) * rng.standard_normal(means.shape)
        out["y_quantile"] = _mixture_quantiles(drawn, noises, levels)
    if targets is not None:
        every = range(len(noises))

        def cdf(y: Array, draws: Sequence[int]) -> Array:
            if len(noises) == 1:
                return noises[0].predictive_cdf(y, means[0], variances[0])
            return np.mean([noises[s].cdf(y - drawn[s]) for s in draws], axis=0)

        out["y_cdf"] = cdf(targets, every)
        thinned = every[:: -(-len(every) // _THINNED)]
        out["y_crps"] = _crps(lambda y: cdf(y, thinned), targets, out["y_mean"], np.sqrt(out["y_variance"]))
        logs = np.stack(
            [_log_density(m, v, noise, targets) for m, v, noise in zip(means, variances, noises, strict=True)]
        )
        top = logs.max(axis=0)
        out["y_log_density"] = top + np.log(np.exp(logs - top).mean(axis=0))
    return out


def _predict_labels(
    means: Array, variances: Array, noises: list[NoiseModel], targets: Array | None
) -> dict[str, Array]:
    """Labels at new inputs, from components (components, n_new)."""
    each = [
        average_probability(m, v, float(noise.parameters["C"]))
        for m, v, noise in zip(means, variances, noises, strict=True)
    ]
    probability: Array = np.mean(each, axis=0)
    out = {
        "f_mean": means.mean(axis=0),
        "f_variance": variances.mean(axis=0) + means.var(axis=0),
        "y_mean": 2 * probability - 1,
        "y_variance": 4 * probability * (1 - probability),
        "y_probability": probability,
    }
    if targets is not None:
        if not np.isin(targets, (-1.0, 1.0)).all():
            raise ValueError(f"y_new must hold the labels -1 and +1, got {targets[~np.isin(targets, (-1.0, 1.0))][0]}")
        out["y_log_density"] = np.log(np.where(targets > 0, probability, 1 - probability))
    return out


def _log_density(mean: Array, variance: Array, noise: NoiseModel, y: Array) -> Array:
    """Log p(y) for y = f + noise, f Gaussian (a point where the variance is 0)."""
    out = np.array(noise.log_density(y - mean))
    wide = variance > 0
    out[wide] = noise.tilted(mean[wide], variance[wide], y[wide])[0]
    return out


def _crps(cdf: Callable[[Array], Array], y: Array, mean: Array, sd: Array) -> Array:
    """Continuous ranked probability score ∫ (F(z) - 1[z ≥ y])² dz of each target, by quadrature on both sides."""
    low, high = np.minimum(mean - _REACH * sd, y), np.maximum(mean + _REACH * sd, y)
    total = np.zeros_like(y)
    for node, weight in zip(0.5 * (1 + _NODES), 0.5 * _WEIGHTS, strict=True):
        below, above = y - low, high - y
        # Nodes crowd at the target, where F is steep: z = y ± width·node².
        total += 2 * node * weight * below * cdf(y - below * node**2) ** 2
        total += 2 * node * weight * above * (1 - cdf(y + above * node**2)) ** 2
    return total


def _quantiles(mean: Array, variance: Array, noise: NoiseModel, levels: Array) -> Array:
    """Quantiles of f + noise, (levels, n_new)."""
    reach = np.sqrt(variance)[None] * 9.0
    low = mean + np.asarray(noise.quantile(levels * 0.5))[:, None] - reach
    high = mean + np.asarray(noise.quantile(0.5 + levels * 0.5))[:, None] + reach
    wanted = np.broadcast_to(levels[:, None], low.shape)

    def excess(y: Array, q: Array, m: Array, v: Array) -> Array:
        return noise.predictive_cdf(y, m, v) - q

    found = elementwise.find_root(
        excess,
        (low, high),
        args=(wanted, np.broadcast_to(mean, low.shape), np.broadcast_to(variance, low.shape)),
        tolerances={"xrtol": 1e-10, "fatol": 1e-12},
    )
    quantile: Array = np.asarray(found.x)
    return quantile


def _mixture_quantiles(f: Array, noises: list[NoiseModel], levels: Array) -> Array:
    """Quantiles of the mixture over draws of f (draws, n_new), each with its noise."""
    low: Array = np.min([noise.quantile(1e-4 * levels.min()) for noise in noises]) + f.min(axis=0)
    high = np.max([noise.quantile(1 - 1e-4 * (1 - levels.max())) for noise in noises]) + f.max(axis=0)
    out = np.empty((levels.size, f.shape[1]))
    for i, level in enumerate(levels):
        a, b = low.copy(), high.copy()
        for _ in range(40):
            middle = 0.5 * (a + b)
            cdf = np.mean([noise.cdf(middle - row) for noise, row in zip(noises, f, strict=True)], axis=0)
            a, b = np.where(cdf < level, middle, a), np.where(cdf < level, b, middle)
        out[i] = 0.5 * (a + b)
    return out

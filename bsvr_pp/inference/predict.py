"""Predictions from any result, never asking which method made it.

At one point of the hyperparameters f is Gaussian at the new inputs (MAP: a point), and a new target is f plus noise:
its density is the mass of Gaussian times site, its cdf the convolution of the two. With draws (or a committee), every
draw gives such a component, and densities and cdfs are averaged over them; quantiles invert the averaged cdf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular

from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.checks import checked_levels, generator, numbers
from bsvr_pp.inference.mixture import new_labels, new_targets
from bsvr_pp.inference.result import check_result
from bsvr_pp.losses import NoiseModel
from bsvr_pp.problem import Point, Problem, read_model

__all__ = [
    "Component",
    "checked_inputs",
    "components",
    "gaussian",
    "latent_posterior",
    "predict",
    "predictions",
]

Array = NDArray[np.float64]

_DRAWS = 500  # draws of the hyperparameters that predictions average over
_CHUNK = 2000  # new inputs at a time
_QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)


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
        point, which says nothing about new ones, or result and model do not belong together.
    TypeError
        If result is not one of `fit`.

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
    levels = checked_levels(quantiles)
    targets = None if y_new is None else numbers("y_new", y_new, (len(X),))
    rng = generator(random_seed)
    joined = predictions(problem, components(problem, result, rng), X, levels, targets, rng)
    dims = {"y_quantile": ("quantile", "obs_new")}
    return xr.Dataset(
        {name: (dims.get(name, ("obs_new",)), value) for name, value in joined.items()},
        coords={"obs_new": np.arange(len(X))} | ({"quantile": levels} if "y_quantile" in joined else {}),
    )


def checked_inputs(problem: Problem, X_new: ArrayLike) -> Array:
    """New inputs as an (n_new, d) array that fits the model."""
    return numbers("X_new", X_new, ("n_new", problem.inputs.shape[1]))


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the hyperparameters, with its weight: mean and variance of f anywhere, and the noise.

    ``gaussian`` maps the prior covariance with the training inputs, the prior variance and the prior mean at new
    inputs to mean and variance of f there; ``site_precision`` tells how sure f is (None where it is one draw).
    """

    point: Point
    noise: NoiseModel
    gaussian: Callable[[Array, Array, Array], tuple[Array, Array]]
    weight: float = 1.0
    site_precision: Array | None = None

    def latent(self, problem: Problem, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at new inputs."""
        return self.gaussian(*problem.cross(self.point, X))


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
    return gaussian(K, mean, latent["dual_coef"].values, latent["site_precision"].values), noise


def gaussian(K: Array, mean: Array, dual_coef: Array, site_precision: Array) -> LatentPosterior:
    """The Gaussian that a result keeps as two vectors; how it was found is of no concern here."""
    support = np.zeros(len(mean), dtype=np.int64)
    return from_sites(K, mean, dual_coef, site_precision, np.nan, support, converged=True, n_iter=0, duality_gap=0.0)


def _check_match(problem: Problem, result: xr.DataTree) -> None:
    check_result("result", result)
    posterior = result["posterior"].to_dataset()
    missing = [name for name in problem.hyperparameters if name not in posterior.data_vars]
    if missing:
        raise ValueError(f"result has no hyperparameter {missing[0]!r}: is it of this model?")
    if posterior[problem.prior.name].sizes.get("obs") != problem.targets.size:
        raise ValueError("result and model have different numbers of training points")
    if result.attrs["loss"] != problem.loss.name:
        raise ValueError(
            f"result has {result.attrs['loss']} noise and the model {problem.loss.name}: is it of this model?"
        )


def components(problem: Problem, result: xr.DataTree, rng: np.random.Generator) -> Iterator[Component]:
    """Components of a result: one, or (at most 500 of) its draws."""
    _check_match(problem, result)
    posterior = result["posterior"].to_dataset()
    if "dual_coef" in result["latent_posterior"].to_dataset():
        at_point, noise = latent_posterior(problem, result)
        point = {name: posterior[name].values[0, 0] for name in problem.hyperparameters}
        plug_in = not result["latent_posterior"].to_dataset()["variance"].values.any()

        def at_sites(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
            f_mean, f_variance = at_point.predict(K_star, diagonal, offset)
            return f_mean, np.zeros_like(f_variance) if plug_in else f_variance

        yield Component(point, noise, at_sites, site_precision=at_point.site_precision)
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
            found = gaussian(K, mean, *sites)
            yield Component(point, noise, found.predict, site_precision=found.site_precision)
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

        yield Component(point, noise, at_draw)


def predictions(
    problem: Problem,
    parts: Iterable[Component],
    X: Array,
    levels: Array,
    targets: Array | None,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """What `predict` gives, as arrays, from components; without levels there are no quantiles."""
    moments, noises, weights = [], [], []
    for part in parts:  # one at a time: each holds a factor of n² numbers
        if part.noise.n_points is not None:
            raise ValueError(
                "the noise has a value for each training point, which says nothing about new ones: give it numbers"
            )
        chunks = [part.latent(problem, X[at : at + _CHUNK]) for at in range(0, len(X), _CHUNK)]
        moments.append([np.concatenate(each) for each in zip(*chunks, strict=True)])
        noises.append(part.noise)
        weights.append(part.weight)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    share = np.array(weights) / np.sum(weights)
    out = []
    for at in range(0, len(X), _CHUNK):
        rows = slice(at, at + _CHUNK)
        known = None if targets is None else targets[rows]
        if noises[0].kind.classification:
            out.append(new_labels(share, means[:, rows], variances[:, rows], noises, known))
        else:
            out.append(new_targets(share, means[:, rows], variances[:, rows], noises, levels, known, rng))
    return {name: np.concatenate([chunk[name] for chunk in out], axis=-1) for name in out[0]}

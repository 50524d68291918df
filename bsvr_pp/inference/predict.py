"""Predictions from any result, independent of the method that made it.

At one point of the hyperparameters f is Gaussian at the new inputs (for MAP a point), and a new target is f plus noise.
Its density is the integral of Gaussian times noise factor, and its cdf is the convolution of the two. With draws (or a
committee), every draw gives such a component, and densities and cdfs are averaged over them; quantiles invert the
averaged cdf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import check_size, checked_levels, generator, numbers
from bsvr_pp.approximations import Covariance
from bsvr_pp.approximations.posterior import LatentPosterior, from_sites
from bsvr_pp.inference.posteriors import posterior_of
from bsvr_pp.inference.predictive import new_classes, new_labels, new_targets
from bsvr_pp.inference.result import check_match, points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.ends import cutpoints_at
from bsvr_pp.model.problem import Point, Problem, read_model

__all__ = [
    "Component",
    "checked_inputs",
    "components",
    "latent_posterior",
    "predict",
    "predictions",
]

Array = NDArray[np.float64]

_DRAWS = 500  # largest number of draws of the hyperparameters in predictions
_CHUNK = 2000  # number of new inputs that are processed together
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
        Result of `fit`.
    X_new : (n_new, d) array
        New inputs.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    quantiles : sequence of float
        Levels of quantiles of the new targets, between 0 and 1.
    y_new : (n_new,) array, optional
        Targets at the new inputs; their log density is returned as ``y_log_density``, their probability integral
        transform as ``y_cdf``, and their continuous ranked probability score, in the units of the target, as
        ``y_crps``.
    random_seed : int or Generator
        Random seed for results with draws.

    Returns
    -------
    xarray.Dataset
        ``f_mean``, ``f_variance``, ``y_mean``, ``y_variance`` over ``obs_new``; ``y_quantile`` over ``quantile`` and
        ``obs_new``; ``y_log_density``, ``y_cdf`` and ``y_crps``, and the coordinate ``y_new``, if targets are given.
        The variance of f is Chu, Keerthi & Ong 2004, (44), or the corresponding formula for mean field; that of y adds
        (15). For labels the result has ``y_probability``, the probability of +1, instead of quantiles: averaged over
        the posterior (Sollich 2002, (33)), or at the mode for MAP (37). For ordered classes it has
        ``y_class_probability`` over ``class`` and ``obs_new``, and y_mean and y_variance are those of the class. For
        censored targets and intervals it predicts the latent target, and y_new are exact targets.

    Raises
    ------
    ValueError
        If X_new does not fit the model, a quantile is outside (0, 1), the noise has a value for each training point, so
        that the noise of new points is unknown, or result and model do not belong together.
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
    if targets is not None:
        check_size("y_new", targets)
    rng = generator(random_seed)
    joined = predictions(problem, components(problem, result, rng), X, levels, targets, rng)
    dims = {"y_quantile": ("quantile", "obs_new"), "y_class_probability": ("class", "obs_new")}
    return xr.Dataset(
        {name: (dims.get(name, ("obs_new",)), value) for name, value in joined.items()},
        coords={"obs_new": np.arange(len(X))}
        | ({"quantile": levels} if "y_quantile" in joined else {})
        | ({} if targets is None else {"y_new": ("obs_new", targets)}),
    )


def checked_inputs(problem: Problem, X_new: ArrayLike) -> Array:
    """Check new inputs, and convert them to an (n_new, d) array that fits the model."""
    X = numbers("X_new", X_new, ("n_new", problem.inputs.shape[1]))
    check_size("X_new", X)
    return X


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the hyperparameters with its weight, the noise, and mean and variance of f at any inputs.

    ``gaussian`` maps the prior covariance with the training inputs, the prior variance and the prior mean at new inputs
    to mean and variance of f there; ``site_precision`` is None if f is a single draw.
    """

    point: Point
    noise: NoiseModel
    gaussian: Callable[[Array, Array, Array], tuple[Array, Array]]
    weight: float = 1.0
    site_precision: Array | None = None
    cutpoints: Array | None = None

    def latent(self, problem: Problem, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at new inputs."""
        return self.gaussian(*problem.cross(self.point, X))

    def draw_latent(self, problem: Problem, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n_new) of f at new inputs jointly, where f has sites."""
        assert self.site_precision is not None
        sites = np.append(self.site_precision, np.zeros(len(X)))
        drawn = problem.joint(self.point, X).factor(sites).draw(size, rng)[:, problem.targets.size :]
        return np.asarray(self.latent(problem, X)[0] + drawn)


def latent_posterior(problem: Problem, result: xr.DataTree) -> tuple[LatentPosterior, NoiseModel]:
    """Gaussian posterior of f, and the noise, of a result at one point of the hyperparameters.

    Raises
    ------
    ValueError
        If result and model do not belong together.
    """
    check_match(problem, result)
    posterior, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
    K, mean, noise = problem.at({name: posterior[name].values[0, 0] for name in problem.hyperparameters})
    return posterior_of(problem, K, mean, latent["dual_coef"].values, latent["site_precision"].values), noise


def components(problem: Problem, result: xr.DataTree, rng: np.random.Generator) -> Iterator[Component]:
    """Yield the components of a result: one, or at most 500 of its draws."""
    check_match(problem, result)
    posterior = result["posterior"].to_dataset()
    if "dual_coef" in result["latent_posterior"].to_dataset():
        at_point, noise = latent_posterior(problem, result)
        (point,) = points_of(posterior.isel(chain=[0], draw=[0]), problem.hyperparameters)
        plug_in = not result["latent_posterior"].to_dataset()["variance"].values.any()

        def at_sites(K_star: Array, diagonal: Array, offset: Array) -> tuple[Array, Array]:
            f_mean, f_variance = at_point.predict(K_star, diagonal, offset)
            return f_mean, np.zeros_like(f_variance) if plug_in else f_variance

        cuts = cutpoints_at(problem, point)
        yield Component(point, noise.of_residuals, at_sites, cutpoints=cuts, site_precision=at_point.site_precision)
        return
    f = posterior[problem.prior.name].values
    total = f.shape[0] * f.shape[1]
    integrated = result["latent_draws"].to_dataset() if "latent_draws" in result.children else None
    points = points_of(posterior, problem.hyperparameters)
    for s in np.unique(np.linspace(0, total - 1, min(total, _DRAWS)).astype(int)):
        (chain, draw), point = divmod(int(s), f.shape[1]), points[s]
        K, mean, noise = problem.at(point)
        noise, cuts = noise.of_residuals, cutpoints_at(problem, point)
        if integrated is not None:
            sites = (integrated[name].values[chain, draw] for name in ("dual_coef", "site_precision"))
            found = from_sites(K, mean, *sites)
            yield Component(point, noise, found.predict, cutpoints=cuts, site_precision=found.site_precision)
            continue
        whitened = problem.prior.whitened
        if whitened is not None and whitened in posterior.data_vars:
            white = posterior[whitened].values[chain, draw]
        else:
            white = K.whiten(f[chain, draw] - mean)

        def at_draw(
            K_star: Array, diagonal: Array, offset: Array, K: Covariance = K, white: Array = white
        ) -> tuple[Array, Array]:
            half = K.whiten(K_star.T)
            return half.T @ white + offset, np.maximum(diagonal - np.einsum("ij,ij->j", half, half), 0.0)

        yield Component(point, noise, at_draw, cutpoints=cuts)


def predictions(
    problem: Problem,
    parts: Iterable[Component],
    X: Array,
    levels: Array,
    targets: Array | None,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Compute the arrays that `predict` returns from components; without levels there are no quantiles."""
    moments, noises, weights = [], [], []
    cutpoints: list[Array] = []
    for part in parts:  # one at a time, since each holds a factor of n² numbers
        if part.noise.n_points is not None:
            raise ValueError(
                "the noise has a value for each training point, which says nothing about new ones: give it numbers"
            )
        chunks = [part.latent(problem, X[at : at + _CHUNK]) for at in range(0, len(X), _CHUNK)]
        moments.append([np.concatenate(each) for each in zip(*chunks, strict=True)])
        noises.append(part.noise)
        weights.append(part.weight)
        if part.cutpoints is not None:
            cutpoints.append(part.cutpoints)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    share = np.array(weights) / np.sum(weights)
    out = []
    for at in range(0, len(X), _CHUNK):
        rows = slice(at, at + _CHUNK)
        known = None if targets is None else targets[rows]
        if noises[0].kind.classification:
            out.append(new_labels(share, means[:, rows], variances[:, rows], noises, known))
        elif cutpoints:
            out.append(new_classes(share, means[:, rows], variances[:, rows], noises, cutpoints, known))
        else:
            out.append(new_targets(share, means[:, rows], variances[:, rows], noises, levels, known, rng))
    return {name: np.concatenate([chunk[name] for chunk in out], axis=-1) for name in out[0]}

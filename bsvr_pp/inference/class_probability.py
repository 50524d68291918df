"""Class probabilities of a model with labels at new inputs, for given hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import generator, numbers
from bsvr_pp.approximations import find_mode
from bsvr_pp.approximations.posterior import LatentDraws
from bsvr_pp.inference.labels import label_scale, labels_at
from bsvr_pp.inference.protocol import can
from bsvr_pp.losses.label import average_probability, label_probability
from bsvr_pp.model.problem import read_model

__all__ = ["class_probability"]

Array = NDArray[np.float64]


def class_probability(
    method: Any,
    X_new: ArrayLike,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    probability: Literal["average", "mean", "map"] = "average",
    random_seed: int | np.random.Generator | None = None,
) -> Array:
    """Compute the probability of the label +1 at new inputs.

    Parameters
    ----------
    method : Laplace, MeanField, Annealed or another method with an evidence
        Method for the posterior of f; "map" does not use it.
    X_new : (n_new, d) array
        New inputs.
    model : pm.Model, optional
        A model whose labels are `bp.SVMLabel`; by default that of the surrounding ``with``.
    hyperparameters : dict, optional
        A value for each hyperparameter; not needed if there are none.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), at its mean (36), or at its mode, the support vector classifier (37).
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.

    Returns
    -------
    (n_new,) array

    Raises
    ------
    TypeError
        If method is not one of these.
    ValueError
        If another argument is out of range, or a hyperparameter is missing or outside its support.
    ModelError
        If the model has no labels, or its prior mean is not zero.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-1, 1, 6)[:, None]
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SVMLabel("y", f=f, C=2.0, observed=[-1, -1, -1, 1, 1, 1])
    ...     bp.class_probability(bp.MeanField(), [[-1.0], [0.0], [1.0]], probability="map").round(3).tolist()
    [0.011, 0.5, 0.989]
    """
    if not can(method, "evidence"):
        raise TypeError(f"method must have an evidence, as Laplace(), MeanField() and Annealed() have, got {method!r}")
    if probability not in ("average", "mean", "map"):
        raise ValueError(f"probability must be 'average', 'mean' or 'map', got {probability!r}")
    problem = read_model(model)
    point = problem.complete(hyperparameters)
    K, noise = labels_at(problem, point)
    X = numbers("X_new", X_new, ("n_new", problem.inputs.shape[1]))
    C = label_scale(noise)
    y, (K_star, diagonal, _) = problem.targets, problem.cross(point, X)
    if probability == "map":
        return label_probability(K_star @ find_mode(K, y, noise).dual_coef, C)
    nothing = np.zeros(y.size)
    if can(method, "integrates"):
        posterior = method.solve(K, y, noise, nothing)
        mean, variance = posterior.predict(K_star, diagonal)
        return label_probability(mean, C) if probability == "mean" else average_probability(mean, variance, C)
    rng = generator(random_seed)
    draws = LatentDraws(K, method.posterior(K, y, noise, nothing, rng).f)
    if probability == "mean":
        return label_probability(draws.mean(K_star), C)
    return np.asarray(label_probability(draws.sample(K_star, diagonal, rng), C).mean(axis=0))

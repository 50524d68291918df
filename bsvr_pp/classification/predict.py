"""Class probabilities of a model of labels at new inputs, at given hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.approximations import find_mode
from bsvr_pp.checks import generator, numbers
from bsvr_pp.classification.evidence import Chaining, label_problem
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.probability import Draws, average_probability, label_probability
from bsvr_pp.inference.methods import Laplace, MeanField

__all__ = ["class_probability"]

Array = NDArray[np.float64]


def class_probability(
    X_new: ArrayLike,
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    *,
    probability: Literal["average", "mean", "map"] = "average",
    method: Laplace | MeanField | Chaining | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Array:
    """Probability of the label +1 at new inputs.

    Parameters
    ----------
    X_new : (n_new, d) array
        New inputs.
    model : pm.Model, optional
        A model whose labels are `bp.SVMLabel`; by default that of the surrounding ``with``.
    hyperparameters : dict, optional
        A value for each hyperparameter; may be left out where there are none.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), at its mean (36), or at its mode, the support vector classifier (37).
    method : Laplace, MeanField or Chaining, optional
        The posterior of f, chaining by default; "map" has no need of it.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    (n_new,) array

    Raises
    ------
    TypeError
        If method is none of these.
    ValueError
        If another argument is out of range, or a hyperparameter is missing or outside its support.
    ModelError
        If the model is not one of labels, or its prior mean is not zero.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-1, 1, 6)[:, None]
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SVMLabel("y", f=f, C=2.0, observed=[-1, -1, -1, 1, 1, 1])
    ...     bp.class_probability([[-1.0], [0.0], [1.0]], probability="map").round(3).tolist()
    [0.011, 0.5, 0.989]
    """
    if probability not in ("average", "mean", "map"):
        raise ValueError(f"probability must be 'average', 'mean' or 'map', got {probability!r}")
    method = Chaining() if method is None else method
    if not isinstance(method, Laplace | MeanField | Chaining):
        raise TypeError(f"method must be Laplace(), MeanField() or Chaining(), got {method!r}")
    problem, point, K, noise = label_problem(model, hyperparameters)
    X = numbers("X_new", X_new, ("n_new", problem.inputs.shape[1]))
    C = noise.parameters["C"]
    if np.ndim(C):
        raise ValueError("C has a value for each training point, which says nothing about new ones: give it a number")
    y, (K_star, diagonal, _) = problem.targets, problem.cross(point, X)
    if probability == "map":
        return label_probability(K_star @ find_mode(K, y, noise).dual_coef, C)
    if isinstance(method, Chaining):
        rng = generator(random_seed)
        draws = Draws(K, method.run(K, Factors("hinge", C, y), rng, (y, noise)).f)
        if probability == "mean":
            return label_probability(draws.mean(K_star), C)
        return draws.average_probability(K_star, diagonal, float(C), rng)
    mean, variance = method.solve(K, y, noise, np.zeros(y.size)).predict(K_star, diagonal)
    return label_probability(mean, C) if probability == "mean" else average_probability(mean, variance, float(C))

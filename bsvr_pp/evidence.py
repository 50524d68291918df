"""The evidence of a model at given hyperparameters, by any method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from bsvr_pp.inference.methods import Laplace, MeanField
from bsvr_pp.problem import read_model

__all__ = ["Evidence", "log_evidence"]


class Evidence(NamedTuple):
    """Log evidence with its standard error (0 where the method has none) and whether the method converged."""

    value: float
    standard_error: float
    converged: bool


def log_evidence(
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    *,
    method: Laplace | MeanField,
    model: pm.Model | None = None,
) -> Evidence:
    """Natural log of the evidence p(y | hyperparameters), the latent function integrated out.

    Parameters
    ----------
    hyperparameters : dict, optional
        A value for each hyperparameter of the model; may be left out where there are none.
    method : Laplace or MeanField
        How to integrate.
    model : pm.Model, optional
        By default that of the surrounding ``with``.

    Returns
    -------
    Evidence

    Raises
    ------
    TypeError
        If the method has no evidence.
    ValueError
        If a hyperparameter is missing, unknown or outside its support.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)), jitter=0.0)
    ...     _ = pm.Normal("y", mu=f, sigma=1.0, observed=[1.0])
    ...     round(bp.log_evidence(method=bp.MeanField()).value, 6)
    -1.515512
    """
    if not isinstance(method, Laplace | MeanField):
        raise TypeError(f"method must be Laplace() or MeanField(), which have an evidence, got {method!r}")
    problem = read_model(model)
    point = problem.checked(hyperparameters)
    missing = [name for name in problem.hyperparameters if name not in point]
    if missing:
        raise ValueError(f"hyperparameters must give every hyperparameter of the model, {', '.join(missing)} missing")
    K, mean, noise = problem.at(point)
    posterior = method.solve(K, problem.targets, noise, mean)
    return Evidence(float(posterior.log_evidence) if posterior.converged else -np.inf, 0.0, posterior.converged)

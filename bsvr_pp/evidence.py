"""The evidence of a model at given hyperparameters, by any method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp.approximations import reverse_annealed
from bsvr_pp.inference.methods import Annealed, Laplace, MeanField
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
    point = problem.checked(hyperparameters)
    missing = [name for name in problem.hyperparameters if name not in point]
    if missing:
        raise ValueError(f"hyperparameters must give every hyperparameter of the model, {', '.join(missing)} missing")
    K, mean, noise = problem.at(point)
    if isinstance(method, Annealed):
        rng = np.random.default_rng(random_seed)
        forwards = method.solve(K, problem.targets, noise, mean, rng)
        if draws is None:
            return Evidence(forwards.log_evidence, forwards.standard_error, True)
        if isinstance(draws, xr.DataTree):
            f = draws["posterior"].to_dataset()[problem.prior.name].values
            draws = f.reshape(-1, f.shape[-1])
        value, error = reverse_annealed(
            draws, K, problem.targets, noise, forwards.powers, mean=mean, moves=method.moves, random_seed=rng
        )
        return Evidence(value, error, True)
    posterior = method.solve(K, problem.targets, noise, mean)
    return Evidence(float(posterior.log_evidence) if posterior.converged else -np.inf, 0.0, posterior.converged)

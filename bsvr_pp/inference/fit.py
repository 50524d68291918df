"""The front door: one function runs a model under any method.

Checks, seeds, timing, provenance and the failure policy stand here; the mathematics of a method does not.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp.checks import check_count, generator
from bsvr_pp.inference import sample
from bsvr_pp.inference.methods import MAP, NUTS, Laplace, MeanField
from bsvr_pp.inference.optimize import Objective, Optimum, maximize
from bsvr_pp.inference.result import from_latent, from_samples
from bsvr_pp.problem import Point, Problem, copying, read_model

__all__ = ["ConvergenceWarning", "fit"]


class ConvergenceWarning(UserWarning):
    """A result did not converge; it is returned with ``converged`` 0."""


def fit(
    method: MAP | Laplace | MeanField | NUTS,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    restarts: int = 5,
    objective: Objective = "posterior",
    evidence: Literal["naive"] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    checkpoint: str | Path | None = None,
) -> xr.DataTree:
    """Run a support vector model under a method of inference.

    Parameters
    ----------
    method : MAP, Laplace, MeanField or NUTS
        Method, with its own options.
    model : pm.Model, optional
        A model with a `GP` prior and support vector noise; by default that of the surrounding ``with``.
    hyperparameters : dict, optional
        Values of some or all hyperparameters, by name. The others are optimised (or, by NUTS, sampled).
    restarts : int
        Starts of the optimiser. Beyond 500 rows they are tried on some of the rows, and the best goes on with all; of
        exact Laplace, whose evidence jumps, the better half.
    objective : {"posterior", "evidence"}
        What the optimum is of: evidence times hyperpriors, or the evidence alone.
    evidence : "naive", optional
        Asks for what is refused otherwise: to choose or sample the hyperparameters of labels (`bp.SVMLabel`) by
        their naive evidence, which is not normalised (Sollich 2002, section 4).
    random_seed : int or Generator, optional
        Same seed, same result.
    progressbar : bool
        Whether to show progress.
    checkpoint : str or Path, optional
        For NUTS: a folder in which draws are kept as they arrive. The same call again goes on from what is there,
        whatever had stopped it.

    Returns
    -------
    xarray.DataTree
        Groups and attributes as in `bsvr_pp.inference.result`. Save it with ``to_netcdf``, read it with
        ``xarray.open_datatree``.

    Raises
    ------
    TypeError
        If method is not a method, or there is no model.
    ValueError
        If an option is out of range, a hyperparameter is unknown or outside its support, or checkpoint is given
        with another method or is a folder of another run.
    ModelError
        If the model is not a support vector model.

    Warns
    -----
    ConvergenceWarning
        If the result did not converge.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     result = bp.fit(bp.Laplace(), hyperparameters={"C": 10.0}, progressbar=False)
    >>> result.attrs["inference"], result.attrs["converged"]
    ('Laplace', 1)
    """
    if not isinstance(method, MAP | Laplace | MeanField | NUTS):
        raise TypeError(f"method must be MAP(), Laplace(), MeanField() or NUTS(), got {method!r}")
    check_count("restarts", restarts, 1)
    if objective not in ("posterior", "evidence"):
        raise ValueError(f"objective must be 'posterior' or 'evidence', got {objective!r}")
    if checkpoint is not None and not isinstance(method, NUTS):
        raise ValueError(f"checkpoint is for NUTS(), whose runs are long, got it with {method!r}")
    problem = read_model(model)
    fixed = problem.checked(hyperparameters)
    _check_normalized(problem, fixed, evidence)
    rng = generator(random_seed)
    began = time.perf_counter()
    attributes: dict[str, Any] = {"inference": method.name, "method": repr(method), "objective": objective}

    if isinstance(method, NUTS):
        if fixed:
            with copying():
                problem = read_model(pm.do(problem.model, dict(fixed)))
        samples = sample.draw(problem, method, rng, progressbar, checkpoint)
        attributes |= sample.diagnosis(samples, problem.hyperparameters, method.draws)
        attributes["sampling_time"] = time.perf_counter() - began
        return _reported(from_samples(problem, samples, fixed, attributes, rng))

    optima: list[Optimum] = []
    point = fixed
    if set(fixed) != set(problem.hyperparameters):
        optima = maximize(
            problem,
            method.operation,
            fixed,
            restarts=restarts,
            objective=objective,
            rng=rng,
            progressbar=progressbar,
        )
        point = {name: optima[0].point[name] for name in problem.hyperparameters}
    K, mean, noise = problem.at(point)
    posterior = method.solve(K, problem.targets, noise, mean, problem.prior.jitter)
    converged = posterior.converged and (not optima or optima[0].converged)
    attributes |= {
        "log_evidence": float(posterior.log_evidence),
        "converged": int(converged),
        "message": optima[0].message if optima else "hyperparameters were given",
        "sampling_time": time.perf_counter() - began,
    }
    return _reported(
        from_latent(problem, point, posterior, optima, attributes, plug_in=isinstance(method, MAP), rng=rng)
    )


def _check_normalized(problem: Problem, fixed: Point, evidence: str | None) -> None:
    """Refuse to choose hyperparameters of labels by an evidence that is not normalised, unless asked for."""
    if evidence not in (None, "naive"):
        raise ValueError(f"evidence must be 'naive' or None, got {evidence!r}")
    free = [name for name in problem.hyperparameters if name not in fixed]
    if problem.loss.classification and free and evidence is None:
        raise ValueError(
            f"{', '.join(free)} would be chosen by the naive evidence of {problem.target}, which is not normalised: "
            "give hyperparameters, as bp.classification_evidence or bp.BayesianSVC find them, or ask for "
            "evidence='naive'"
        )


def _reported(result: xr.DataTree) -> xr.DataTree:
    if not result.attrs["converged"]:
        warnings.warn(
            f"{result.attrs['inference']} did not converge: {result.attrs['message']}", ConvergenceWarning, stacklevel=3
        )
    return result

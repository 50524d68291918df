"""The function `fit`, which runs a model under any method.

It contains the checks, seeds, timing, provenance and the treatment of failures; the mathematics is in the methods.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp.core.arrays import ModelError, NotRead, check_count, generator, warn
from bsvr_pp.core.compiler import interruptible
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.protocol import (
    Integrates,
    Method,
    Normalises,
    Objective,
    Options,
    Samples,
    attributes_of,
    warn_unconverged,
)
from bsvr_pp.model.distributions import has_labels
from bsvr_pp.model.gaussian import shape_of
from bsvr_pp.model.problem import Point, Problem, checked_point
from bsvr_pp.model.reader import read_model


@shared
def fit(
    method: Method,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    restarts: int | None = None,
    objective: Objective = "posterior",
    evidence: Literal["naive"] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    draws: int | None = None,
) -> xr.DataTree:
    """Apply a method of inference to a support vector model.

    Parameters
    ----------
    method : MAP, Laplace, MeanField, NUTS or another method
        Method, with its own options.
    model : pm.Model, optional
        A model with a `GP` prior and support vector noise; by default the model of the surrounding ``with`` block.
        `NUTS()` accepts every PyMC model.
    hyperparameters : dict, optional
        Values of some or all hyperparameters, by name; their priors do not count (as with `pm.do`). The others are
        optimised (or, by NUTS, sampled).
    restarts : int, optional
        Number of starts of the optimiser: by default 2, or 5 for exact Laplace, whose evidence is discontinuous. Above
        400 rows they are compared on a part of the rows (docs/defaults.md).
    objective : {"posterior", "evidence"}
        Objective of the optimisation: evidence times hyperpriors, or only the evidence.
    evidence : "naive", optional
        Allow optimising or sampling the hyperparameters of labels (`bp.SVMLabel`) by their naive evidence, which is not
        normalised (Sollich 2002, section 4). Without this option it is an error. It and ``restarts`` are refused for
        methods of the normalised evidence.
    random_seed : int or Generator, optional
        Random seed of starts and draws; the same seed gives the same result.
    progressbar : bool
        Whether to show progress.
    draws : int, optional
        Number of draws of f in the result of a method at a point of the hyperparameters. The default is 500, or fewer
        with many rows in blocks. NUTS has this option itself.

    Returns
    -------
    xarray.DataTree
        The documentation lists its groups and attributes; `save` and `load` store it. For a model that other methods
        refuse, `NUTS()` returns the tree of PyMC, with the reason in the attribute ``other_methods``.

    Raises
    ------
    TypeError
        If method is not a method, or there is no model.
    ValueError
        If an option is out of range, or a hyperparameter is unknown or outside its support.
    ModelError
        If the model is not a support vector model.
    MemoryError
        If the rows need more than the free memory.

    Warns
    -----
    ConvergenceWarning
        If the result did not converge.
    UserWarning
        If coefficients of mu are optimised instead of integrated out.

    <pymc_model>
    ...     result = bp.fit(bp.Laplace(), hyperparameters={"C": 10.0}, progressbar=False)
    >>> result.attrs["inference"], result.attrs["converged"]
    ('Laplace', 1)
    """
    _check_options(method, restarts, objective, evidence, draws)
    samples_f = isinstance(method, Samples) and method.latent is None
    try:
        problem = read_model(model, samples_f=samples_f)
    except NotRead as error:
        unread, sample = pm.modelcontext(model), getattr(method, "run_unread", None) if samples_f else None
        # PyMC does not say that the evidence of labels is not normalised.
        if sample is None or has_labels(unread) != (evidence == "naive"):
            raise
        fixed = checked_point(unread, {v.name: shape_of(v) for v in unread.free_RVs}, hyperparameters)
        rng, began = generator(random_seed), time.perf_counter()
        with interruptible() as came:
            result: xr.DataTree = sample(unread, fixed, progressbar, rng)
            if not result.attrs["converged"]:
                came.clear()
        result.attrs |= attributes_of(method, objective) | {"other_methods": f"do not apply: {error}"}
        return _judge(result, began)
    fixed = problem.checked(hyperparameters)
    _check_problem(problem, method, fixed, objective, evidence)
    rng, began = generator(random_seed), time.perf_counter()
    with interruptible() as came:
        found = method.run(problem, fixed, Options(restarts, objective, progressbar), rng)
        diagnosis = found.diagnosis()
        if not diagnosis["converged"]:
            came.clear()  # the interruption has ended the search or the sampling
    return _judge(found.tree(problem, diagnosis | attributes_of(method, objective), rng, draws), began)


def _check_options(
    method: object, restarts: int | None, objective: str, evidence: str | None, draws: int | None
) -> None:
    if isinstance(method, pm.Model):
        raise TypeError("method comes before model: write bp.fit(bp.Laplace(), model), or with another method")
    if not isinstance(method, Method):
        given = str(getattr(method, "__name__", method)).replace("_", "").lower()
        named = next((name for name in ("MAP", "MeanField", "NUTS", "Integrated") if name.lower() == given), "Laplace")
        raise TypeError(
            f"method must be MAP(), Laplace(), MeanField(), NUTS() or another method, got {method!r}: write "
            f"bp.fit(bp.{named}(), model)"
        )
    if restarts is not None:
        check_count("restarts", restarts, 1)
    if objective not in ("posterior", "evidence"):
        raise ValueError(f"objective must be 'posterior' or 'evidence', got {objective!r}")
    if evidence not in (None, "naive"):
        raise ValueError(f"evidence must be 'naive' or None, got {evidence!r}")
    if draws is not None:
        check_count("draws", draws, 1)
        if isinstance(method, Samples):
            raise ValueError(f"draws is for methods at a point of the hyperparameters, got it with {method!r}")
    for name, value in {"restarts": restarts, "evidence": evidence}.items():
        if value is not None and isinstance(method, Normalises):
            raise ValueError(f"{name} is for methods that search by their own evidence, got {value!r} with {method!r}")
    if objective == "evidence" and isinstance(method, Samples | Integrates):
        raise ValueError(f"objective='evidence' is for methods that optimise hyperparameters, got it with {method!r}")


def _check_problem(problem: Problem, method: Method, fixed: Point, objective: str, evidence: str | None) -> None:
    if objective == "evidence" and problem.terms:
        raise ModelError(
            f"objective='evidence' leaves priors out, and {problem.terms[0].name} is a term of the "
            "hyperparameters' prior: use objective='posterior', or take it out of the model"
        )
    free = [name for name in problem.hyperparameters if name not in fixed]
    # An evidence that is not normalised over the targets is used only on request.
    refusal = problem.loss.targets.refusal("normalised evidence", target=problem.target, free=", ".join(free))
    if evidence == "naive" and not refusal:
        raise ValueError(f"evidence='naive' is for labels, and {problem.target} has {problem.loss.name} noise")
    if refusal and free and evidence is None and not isinstance(method, Normalises):
        raise ValueError(refusal)
    check_budget(
        method,
        problem.targets.size,
        blocks=len(problem.blocks),
        rank=problem.rank,
        divisible=not problem.loss.targets.refusal("blocks", target=problem.target),
    )
    if isinstance(method, Integrates):
        problem.warn_of_priors(fixed)
    optimises = bool(free) and not isinstance(method, Samples | Integrates)
    held = [name for name in problem.coefficients() if name in free] if optimises else []
    if held:
        warn(
            f"{', '.join(held)} of mu: optimised and not integrated out, so that the evidence is another quantity. "
            "What is integrated out has a normal prior without a transform, is linear in mu, and nothing else depends "
            "on it; bp.NUTS() samples all"
        )


def _judge(result: xr.DataTree, began: float) -> xr.DataTree:
    result.attrs["sampling_time"] = time.perf_counter() - began
    if not result.attrs["converged"]:
        warn_unconverged(f"{result.attrs['inference']} did not converge: {result.attrs['message']}")
    return result

"""Results of several methods, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.checks import generator
from bsvr_pp.evidence import Evidence, approximation_of, integrated_evidence, log_evidence
from bsvr_pp.inference.methods import Annealed, Laplace, MeanField
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.result import check_results
from bsvr_pp.leave_one_out import CavityLOO
from bsvr_pp.leave_one_out import loo as leave_one_out
from bsvr_pp.problem import Problem, read_model
from bsvr_pp.scoring import hyperparameter_draws, latent_k_hat, marginal_distances, scores
from bsvr_pp.verdict import evidence_sentence, summary, verdicts
from bsvr_pp.verification import verify

__all__ = ["compare"]

Array = NDArray[np.float64]

_YARDSTICK = Annealed(particles=200)
_DRAWS = 100  # of the hyperparameters that k-hat and p(y) look at


def compare(
    results: Mapping[str, xr.DataTree],
    reference: str | None = None,
    *,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    annealed: Annealed | None = _YARDSTICK,
    integrated: bool = True,
    loo: bool = True,
    k_hat: bool = True,
    random_seed: int | None = 0,
) -> pd.DataFrame:
    """Lay the results of several methods on one model side by side, and say which of them to trust.

    Parameters
    ----------
    results : dict
        Name to result of `fit`.
    reference : str, optional
        The result to which the others are compared.
    X_test, y_test : arrays, optional
        Test data, for `scores`.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``. Without one, what needs it is left out.
    hyperparameters : dict, optional
        Where the evidences are compared: one point for all. By default the mean of the reference, else the mean field
        optimum, else that of the first result.
    annealed : Annealed, optional
        The yardstick of the evidences; None to do without.
    integrated : bool
        Whether to estimate p(y) of sampled results, by a hundred evidences each.
    loo : bool
        Whether to compute leave-one-out densities.
    k_hat : bool
        Whether to hold approximations against the model's own density; with sampled hyperparameters by `verify`.
    random_seed : int, optional
        Of the annealed and integrated evidences and of k-hat.

    Returns
    -------
    DataFrame
        A row a result:

        - ``log_evidence`` of the method at its own hyperparameters; ``evidence at theta`` and its ``se`` at the
          common point (exact, by annealing, where f was sampled), ``evidence error`` its difference from the annealed
          one; ``p(y)`` with the hyperparameters integrated out, in log, and its ``se``;
        - mean and ``sd`` of each hyperparameter (the latter NaN for a point);
        - ``f differs``, the largest difference of the means of f from the reference in posterior standard deviations
          of f, ``y differs`` the same in predictive ones of y; ``W f`` and ``KL f``, the mean over the training
          inputs of Wasserstein distance (in standard deviations) and KL divergence of the marginals of f, and the
          same of each hyperparameter (`bsvr_pp.scoring.marginal_distances`);
        - the scores on test data; ``elpd``, its ``se`` and its ``kind``, which must agree where it is compared;
        - numbers of support vectors; ``k-hat``; ``R-hat``, ``ESS``, ``divergences`` and ``ESS/s`` (of sampling
          alone); ``converged``, ``seconds``, ``note``, ``inference``;
        - ``verdict``: what speaks against the result, in words.

        ``attrs`` hold ``theta`` and ``evidence`` (all evidences there, as `Evidence`), ``reference``, and the
        ``summary`` in words.

    Raises
    ------
    ValueError
        If there is no result, the reference is not among them, only one of X_test and y_test is given, or the
        hyperparameters do not fit the model.
    TypeError
        If results is not a dict of results, annealed is neither `Annealed` nor None, or test data or hyperparameters
        are given without a model.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y)
    >>> at = {"lengthscale": 2.0, "C": 5.0, "epsilon": 0.1}
    >>> methods = (bp.Laplace(), bp.MeanField())
    >>> results = {m.name: bp.fit(m, model, hyperparameters=at, progressbar=False) for m in methods}
    >>> table = bp.compare(results, reference="mean field", model=model)
    >>> table["converged"].tolist(), table.attrs["theta"]["C"]
    ([True, True], 5.0)
    """
    _check(results, reference, X_test, y_test, annealed)
    generator(random_seed)  # says what is wrong with it
    model = model if model is not None else pm.Model.get_context(error_if_none=False)
    needed = X_test is not None or hyperparameters is not None
    problem = None if model is None and not needed else read_model(model)
    theta = _theta(results, reference, problem, hyperparameters)
    evidence = {} if problem is None else _evidences(results, theta, problem, annealed, random_seed)
    rows = {}
    for name, result in results.items():
        row = _evidence_columns(result, evidence)
        # The evidence of labels is not normalised, and its integral no probability.
        labels = problem is not None and problem.loss.classification
        if integrated and problem is not None and not labels:
            row |= _integrated_columns(result, problem, random_seed)
        row |= _hyperparameter_columns(result)
        if reference is not None:
            row |= _distances(result, results[reference])
        if X_test is not None and y_test is not None:
            row |= scores(predict(result, X_test, model=model, y_new=y_test), y_test)
        if loo and problem is not None and not labels:
            row |= _loo_columns(result, problem)
        row |= _diagnostics(result, problem if k_hat else None, k_hat, random_seed)
        rows[name] = {**row, "inference": str(result.attrs["inference"])}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "method"
    n_test = 0 if y_test is None else len(np.asarray(y_test))
    table["verdict"], shared = verdicts(table, reference, n_test)
    table.attrs = {
        "theta": theta,
        "evidence": evidence,
        "reference": reference,
        "summary": " ".join([summary(dict(table["verdict"]), dict(table["seconds"])), *shared]),
        "evidence_summary": evidence_sentence(evidence),
    }
    return table


def _check(results: Any, reference: Any, X_test: Any, y_test: Any, annealed: Any) -> None:
    check_results(results)
    if reference is not None and reference not in results:
        raise ValueError(f"reference must be one of {', '.join(results)}, got {reference!r}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    if annealed is not None and not isinstance(annealed, Annealed):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")


def _theta(
    results: Mapping[str, xr.DataTree], reference: str | None, problem: Problem | None, given: Any
) -> dict[str, Any]:
    """The common point, as plain numbers and lists."""
    if given is not None:
        assert problem is not None
        point: dict[str, Any] = problem.checked(given)
    else:
        field = next((r for r in results.values() if r.attrs["inference"] == "mean field"), None)
        first = next(iter(results.values()))
        chosen = results[reference] if reference is not None else first if field is None else field
        posterior = chosen["posterior"].to_dataset()
        names = [str(v) for v in posterior.data_vars if "obs" not in posterior[v].dims]
        point = {name: posterior[name].mean(("chain", "draw")).values for name in names}
    return {name: np.asarray(value).tolist() for name, value in point.items()}


def _evidences(
    results: Mapping[str, xr.DataTree],
    theta: Mapping[str, Any],
    problem: Problem,
    annealed: Annealed | None,
    random_seed: int | None,
) -> dict[str, Evidence]:
    """Laplace, mean field and annealed, and what else the results use, at one point."""
    methods = [Laplace(), MeanField(), *(approximation_of(r) for r in results.values())]
    out = {m.name: log_evidence(theta, method=m, model=problem.model) for m in dict.fromkeys(methods) if m is not None}
    if annealed is not None:
        out["annealed"] = log_evidence(theta, method=annealed, model=problem.model, random_seed=random_seed)
    return out


def _evidence_columns(result: xr.DataTree, evidence: Mapping[str, Evidence]) -> dict[str, float]:
    # The mode has no evidence of its own, and draws have none without further work.
    mode = result.attrs["inference"] == "MAP"
    row = {"log_evidence": np.nan if mode else float(result.attrs["log_evidence"])}
    if not evidence:
        return row
    method, truth = approximation_of(result), evidence.get("annealed")
    sampled = result.attrs["inference"] == "NUTS"
    own = evidence[method.name] if method is not None else truth if sampled else None
    row["evidence at theta"] = np.nan if own is None else own.value
    row["evidence at theta se"] = np.nan if own is None else own.standard_error
    if truth is not None:
        row["evidence error"] = np.nan if method is None else row["evidence at theta"] - truth.value
        row["evidence error se"] = np.nan if method is None else truth.standard_error
    return row


def _integrated_columns(result: xr.DataTree, problem: Problem, random_seed: int | None) -> dict[str, float]:
    posterior = result["posterior"].to_dataset()
    free = [name for name in problem.hyperparameters if np.ptp(posterior[name].values) > 0]
    if not free or len(free) < len(problem.hyperparameters):
        return {"p(y)": np.nan, "p(y) se": np.nan}
    found = integrated_evidence(result, model=problem.model, draws=_DRAWS, random_seed=random_seed)
    return {"p(y)": found.value, "p(y) se": found.standard_error if found.converged else np.inf}


def _hyperparameter_columns(result: xr.DataTree) -> dict[str, float]:
    row = {}
    for label, values in hyperparameter_draws(result).items():
        row[label] = float(values.mean())
        row[f"{label} sd"] = float(values.std(ddof=1)) if values.size > 1 else np.nan
    return row


def _distances(result: xr.DataTree, reference: xr.DataTree) -> dict[str, float]:
    row = dict(zip(("f differs", "y differs"), _differences(result, reference), strict=True))
    f, g = _latent_draws(result), _latent_draws(reference)
    each = [marginal_distances(f[:, i], g[:, i]) for i in range(f.shape[1])]
    row["W f"], row["KL f"] = (float(np.mean(part)) for part in zip(*each, strict=True))
    others = hyperparameter_draws(reference)
    for label, values in hyperparameter_draws(result).items():
        row[f"W {label}"], row[f"KL {label}"] = marginal_distances(values, others[label])
    return row


def _latent_draws(result: xr.DataTree) -> Array:
    posterior = result["posterior"].to_dataset()
    names = [v for v in posterior.data_vars if "obs" in posterior[v].dims]
    # Of a sampled f its whitened twin is kept as well, under a name of its own.
    name = min(names, key=lambda v: len(str(v)))
    values: Array = posterior[name].values
    return values.reshape(-1, values.shape[-1])


def _differences(result: xr.DataTree, reference: xr.DataTree) -> tuple[float, float]:
    """Largest difference of the means of f, in standard deviations of f and of y under the reference."""
    mean, other = (r["latent_posterior"].to_dataset()["mean"].values for r in (result, reference))
    sd_f = np.sqrt(reference["latent_posterior"].to_dataset()["variance"].values)
    predicted = reference["posterior_predictive"].to_dataset()
    sd_y = predicted[next(iter(predicted.data_vars))].std(("chain", "draw")).values
    if not sd_f.any():
        return float("nan"), float(np.max(np.abs(mean - other) / sd_y))
    return float(np.max(np.abs(mean - other) / sd_f)), float(np.max(np.abs(mean - other) / sd_y))


def _loo_columns(result: xr.DataTree, problem: Problem) -> dict[str, Any]:
    if result.attrs["inference"] == "MAP":
        return {"elpd": np.nan, "elpd se": np.nan, "elpd kind": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ warns of is said in the kind
        found = leave_one_out(result, model=problem.model)
    if isinstance(found, CavityLOO):
        kind = "cavities, θ fixed"
    else:
        kind = "PSIS of cavities" if "leave_one_out" in result.children else "PSIS"
        bad = int(np.sum(found.pareto_k.values > found.good_k))
        kind += f", {bad} of {found.n_data_points} not reliable" if bad else ""
    return {"elpd": float(found.elpd), "elpd se": float(found.se), "elpd kind": kind}


def _diagnostics(result: xr.DataTree, problem: Problem | None, k_hat: bool, random_seed: int | None) -> dict[str, Any]:
    attributes = result.attrs
    latent = result["latent_posterior"].to_dataset()
    seconds = float(attributes["sampling_time"])
    row: dict[str, Any] = {}
    if "support" in latent:
        support = latent["support"].values
        row |= {"off-bound": int(np.sum(support == 1)), "on-bound": int(np.sum(support == 2))}
    if k_hat:
        row["k-hat"] = _k_hat(result, problem, random_seed)
    if "r_hat" in attributes:
        row |= {
            "R-hat": float(attributes["r_hat"]),
            "ESS": float(attributes["ess"]),
            "ESS/s": float(attributes["ess"]) / seconds,
            "divergences": int(attributes["divergences"]),
        }
    return row | {
        "converged": bool(attributes["converged"]),
        "seconds": seconds,
        "note": str(attributes.get("message", "")),
    }


def _k_hat(result: xr.DataTree, problem: Problem | None, random_seed: int | None) -> float:
    if "latent_draws" not in result.children:
        return latent_k_hat(result)
    drawn = result["posterior"].sizes
    if problem is None or drawn["chain"] * drawn["draw"] < _DRAWS:
        return np.nan
    return verify(result, model=problem.model, draws=_DRAWS, random_seed=random_seed, progressbar=False).k_hat

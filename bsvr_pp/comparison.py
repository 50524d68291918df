"""Results of several methods, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.inference.predict import predict

__all__ = ["compare", "scores"]

Array = NDArray[np.float64]

_COVERAGES = (0.8, 0.95)


def scores(prediction: xr.Dataset, y: ArrayLike) -> dict[str, float]:
    """Score predictions on test targets.

    Parameters
    ----------
    prediction : Dataset
        Of `predict`, with ``y_new`` and the quantiles 0.025, 0.1, 0.9 and 0.975.
    y : (n,) array
        Test targets.

    Returns
    -------
    dict
        ``ase`` and ``aae``, the average squared and absolute error of the latent function (Chu, Keerthi & Ong 2004,
        section VII), in the target's units squared and units; ``mlpd``, the mean log predictive density;
        ``coverage 80 %`` and ``coverage 95 %``, the shares of targets in the central intervals.
    """
    targets = np.asarray(y, dtype=np.float64)
    error = targets - prediction["f_mean"].values
    out = {
        "ase": float(np.mean(error**2)),
        "aae": float(np.mean(np.abs(error))),
        "mlpd": float(prediction["y_log_density"].mean()),
    }
    for coverage in _COVERAGES:
        low, high = (
            prediction["y_quantile"].sel(quantile=q, method="nearest").values
            for q in (0.5 - coverage / 2, 0.5 + coverage / 2)
        )
        out[f"coverage {coverage:.0%}".replace("%", " %")] = float(np.mean((low <= targets) & (targets <= high)))
    return out


def compare(
    results: Mapping[str, xr.DataTree],
    *,
    reference: str | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    model: pm.Model | None = None,
) -> pd.DataFrame:
    """Lay the results of several methods on one model side by side.

    Parameters
    ----------
    results : dict
        Name to result of `fit`.
    reference : str, optional
        The result to which the others are compared: ``f differs`` is the largest difference of the posterior means
        of f at the training inputs, in posterior standard deviations of f under the reference; ``y differs`` the
        same in predictive standard deviations of y.
    X_test, y_test : arrays, optional
        Test data, for `scores`.
    model : pm.Model, optional
        The model, for predictions; by default that of the surrounding ``with``.

    Returns
    -------
    DataFrame
        A row a result: ``log_evidence`` (of the method, at its own hyperparameters), mean and standard deviation of
        each hyperparameter (the latter NaN for a point), the scores, the differences, numbers of support vectors,
        ``R-hat``, ``ESS`` and ``divergences`` (of sampling alone), ``converged``, ``seconds`` and ``note``.

    Raises
    ------
    ValueError
        If there is no result, the reference is not among them, or only one of X_test and y_test is given.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y)
    >>> at = {"lengthscale": 2.0, "C": 5.0, "epsilon": 0.1}
    >>> methods = (bp.Laplace(), bp.MeanField())
    >>> results = {m.name: bp.fit(m, model, hyperparameters=at, progressbar=False) for m in methods}
    >>> bp.compare(results, reference="mean field")["converged"].tolist()
    [True, True]
    """
    if not results:
        raise ValueError("results must hold at least one result")
    if reference is not None and reference not in results:
        raise ValueError(f"reference must be one of {', '.join(results)}, got {reference!r}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    rows = {}
    for name, result in results.items():
        row = _row(result)
        if reference is not None:
            row["f differs"], row["y differs"] = _differences(result, results[reference])
        if X_test is not None and y_test is not None:
            prediction = predict(result, X_test, model=model, y_new=y_test)
            row |= scores(prediction, y_test)
        row |= {
            "converged": bool(result.attrs["converged"]),
            "seconds": float(result.attrs["sampling_time"]),
            "note": str(result.attrs.get("message", "")),
        }
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "method"
    return table


def _row(result: xr.DataTree) -> dict[str, Any]:
    attributes = result.attrs
    # The mode has no evidence of its own.
    row: dict[str, Any] = {
        "log_evidence": np.nan if attributes["inference"] == "MAP" else float(attributes["log_evidence"])
    }
    sampled = "dual_coef" not in result["latent_posterior"].to_dataset()
    posterior = result["posterior"].to_dataset()
    for name in sorted(str(v) for v in posterior.data_vars):
        values = posterior[name]
        if "obs" in values.dims:
            continue
        flat = values.values.reshape(values.shape[0] * values.shape[1], -1)
        for i in range(flat.shape[1]):
            label = name if flat.shape[1] == 1 else f"{name}[{i}]"
            row[label] = float(flat[:, i].mean())
            row[f"{label} sd"] = float(flat[:, i].std(ddof=1)) if sampled and len(flat) > 1 else np.nan
    if not sampled:
        support = result["latent_posterior"]["support"].values
        row |= {"off-bound": int(np.sum(support == 1)), "on-bound": int(np.sum(support == 2))}
    else:
        row |= {
            "R-hat": float(attributes["r_hat"]),
            "ESS": float(attributes["ess"]),
            "divergences": int(attributes["divergences"]),
        }
    return row


def _differences(result: xr.DataTree, reference: xr.DataTree) -> tuple[float, float]:
    """Largest difference of the means of f, in standard deviations of f and of y under the reference."""
    mean, other = (r["latent_posterior"].to_dataset()["mean"].values for r in (result, reference))
    sd_f = np.sqrt(reference["latent_posterior"].to_dataset()["variance"].values)
    predicted = reference["posterior_predictive"].to_dataset()
    sd_y = predicted[next(iter(predicted.data_vars))].std(("chain", "draw")).values
    if not sd_f.any():
        return float("nan"), float(np.max(np.abs(mean - other) / sd_y))
    return float(np.max(np.abs(mean - other) / sd_f)), float(np.max(np.abs(mean - other) / sd_y))

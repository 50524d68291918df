"""Scores of predictions on test data."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp._arrays import Array
from bsvr_pp._checks import numbers

COVERAGES = {"coverage 80 %": 0.8, "coverage 95 %": 0.95}  # shares of targets in central intervals of a probability


def scores(prediction: xr.Dataset, y: ArrayLike) -> dict[str, float]:
    """Score predictions on test targets.

    Parameters
    ----------
    prediction : Dataset
        Output of `predict` with ``y_new`` and the quantiles 0.025, 0.1, 0.9 and 0.975; or for labels.
    y : (n,) array
        Test targets.

    Returns
    -------
    dict
        ``ase`` and ``aae``, the average squared and absolute error of the latent function (Chu, Keerthi & Ong 2004,
        section VII), in the target's units squared and units; ``mlpd``, the mean log predictive density; ``crps``, the
        mean continuous ranked probability score, in the target's units; ``coverage 80 %`` and ``coverage 95 %``, the
        shares of targets in the central intervals; `calibration_error`. For labels ``error rate`` and ``mlpd``.

    Raises
    ------
    ValueError
        If the prediction lacks the targets' density or a quantile, or y is not what `predict` was given as y_new.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=10.0, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     prediction = bp.predict(bp.fit(bp.MeanField(), progressbar=False), [[0.5], [1.5]], y_new=[0.5, 1.0])
    >>> bp.scores(prediction, [0.5, 1.0])["coverage 95 %"]
    1.0
    """
    if not isinstance(prediction, xr.Dataset) or not {"y_log_density", "y_new"} <= set(prediction.variables):
        raise ValueError("prediction must be of predict(..., y_new=...), with the density of the targets")
    targets = numbers("y", y, prediction["y_log_density"].shape)
    if not np.array_equal(targets, prediction["y_new"].values):
        raise ValueError("y must be the targets that predict was given as y_new, and differs from them")
    log_density = float(prediction["y_log_density"].mean())
    labels = None
    if "y_probability" in prediction:
        labels = np.where(prediction["y_probability"].values > 0.5, 1.0, -1.0)
    elif "y_class_probability" in prediction:
        labels = prediction["y_class_probability"].values.argmax(axis=0)
    if labels is not None:
        return {"error rate": float((labels != targets).mean()), "mlpd": log_density}
    error = targets - prediction["f_mean"].values
    return {
        "ase": float(np.mean(error**2)),
        "aae": float(np.mean(np.abs(error))),
        "mlpd": log_density,
        "crps": float(prediction["y_crps"].mean()),
        **{column: _covered(prediction, targets, probability) for column, probability in COVERAGES.items()},
        "calibration error": calibration_error(prediction["y_cdf"].values),
    }


def _covered(prediction: xr.Dataset, targets: Array, probability: float) -> float:
    """Share of the targets in the central intervals of a probability."""
    ends = [0.5 - probability / 2, 0.5 + probability / 2]
    if "y_quantile" not in prediction or not np.isclose(prediction["quantile"].values[:, None], ends).any(0).all():
        raise ValueError(f"prediction must have the quantiles {ends[0]:g} and {ends[1]:g}, for the coverage")
    low, high = prediction["y_quantile"].sel(quantile=ends, method="nearest").values
    return float(np.mean((low <= targets) & (targets <= high)))


def calibration_error(pit: ArrayLike) -> float:
    """Mean distance between the predicted and the observed share of targets below a quantile, ∫ |F_n(u) - u| du.

    ``pit`` (n,) holds probability integral transforms. The value is between 0 and 0.5; about 0.31/√n for perfect ones.
    """
    u = np.sort(np.asarray(pit, dtype=np.float64))
    # In one dimension the distance between distribution functions is that between quantile functions, cell by cell.
    edges = np.arange(u.size + 1) / u.size
    low, high = edges[:-1] - u, edges[1:] - u
    crossing = (low < 0) & (high > 0)
    area = np.where(crossing, 0.5 * (low**2 + high**2), 0.5 * np.abs(low + high) / u.size)
    return float(area.sum())

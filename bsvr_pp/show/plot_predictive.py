"""Predictive bands with data, tube and support vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bsvr_pp._checks import is_number, numbers
from bsvr_pp.inference.component import latent_posterior
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.result import check_results
from bsvr_pp.model.problem import read_model
from bsvr_pp.show.colours import BAND, INK, OFF_BOUND, ON_BOUND

__all__ = ["plot_predictive"]


class _Units(NamedTuple):
    """Mean and standard deviation of the target, and of a single input."""

    location: float
    scale: float
    input_location: float
    input_scale: float

    def x(self, X: Any) -> Any:
        """The first input in its own units."""
        return self.input_location + self.input_scale * X[:, 0]

    def y(self, y: Any) -> Any:
        """Targets in their own units."""
        return self.location + self.scale * np.asarray(y)


def plot_predictive(
    results: Mapping[str, xr.DataTree],
    *,
    model: pm.Model | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    location: float = 0.0,
    scale: float = 1.0,
    input_location: float = 0.0,
    input_scale: float = 1.0,
    labels: tuple[str, str] = ("x", "y"),
) -> Figure:
    """Plot predictive bands with the data and the support vectors, in one panel per result.

    The figure is drawn in matplotlib.

    With one input the plot shows the mean of f, the tube around it, and the central 80 % and 95 % intervals of y. With
    several inputs it shows test targets (or training targets, if there is no test set) against their predictions, with
    80 % intervals.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``.
    X_test, y_test : arrays, optional
        Test data.
    location, scale : float
        If the targets were standardised, their mean and standard deviation: the plot is in the original units.
    input_location, input_scale : float
        The same for a single input.
    labels : (str, str)
        Names of the input and the target.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no result, one of X_test and y_test is missing or does not fit, or scales or labels are invalid.
    TypeError
        If results is not a dict of results of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> bp.plot_predictive({"mean field": result}, model=model).axes[0].get_title()
    'mean field'
    """
    check_results(results)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    if y_test is not None:
        X_test = numbers("X_test", X_test, ("n_test", "d"))
        y_test = numbers("y_test", y_test, (len(X_test),))
    for label, value in (("scale", scale), ("input_scale", input_scale)):
        if not (is_number(value) and value > 0):
            raise ValueError(f"{label} must be a positive number, got {value!r}")
    if len(labels) != 2:
        raise ValueError(f"labels must be two, of the input and the target, got {labels!r}")
    units = _Units(location, scale, input_location, input_scale)
    n = len(results)
    columns = min(n, 2)
    figure, axes = plt.subplots(
        -(-n // columns),
        columns,
        figsize=(5.2 * columns, 3.6 * -(-n // columns)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[n:]:
        axis.set_visible(False)
    for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
        X, y = result["constant_data"].to_dataset()["X"].values, _targets(result)
        if X.shape[1] == 1:
            _bands(axis, result, model, X, y, units)
            axis.set_xlabel(labels[0])
            axis.set_ylabel(labels[1])
        else:
            if X_test is not None and y_test is not None:
                X, y = np.asarray(X_test), np.asarray(y_test)
            _against(axis, result, model, X, y, units)
            axis.set_xlabel(f"predicted {labels[1]}")
            axis.set_ylabel(f"{labels[1]}")
        axis.set_title(name)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _targets(result: xr.DataTree) -> Any:
    data = result["observed_data"].to_dataset()
    return data[next(iter(data.data_vars))].values


def _bands(axis: Any, result: xr.DataTree, model: pm.Model | None, X: Any, y: Any, units: _Units) -> None:
    margin = 0.05 * np.ptp(X)
    grid = np.linspace(X.min() - margin, X.max() + margin, 200)[:, None]
    seen = predict(result, grid, model=model)
    quantile, x = units.y(seen["y_quantile"]), units.x(grid)
    axis.fill_between(x, quantile[0], quantile[4], color=BAND, alpha=0.18, lw=0, label="95 % of y")
    axis.fill_between(x, quantile[1], quantile[3], color=BAND, alpha=0.3, lw=0, label="80 % of y")
    centre = units.y(seen["f_mean"])
    axis.plot(x, centre, color=INK, lw=1.6, label="mean of f")
    half = units.scale * _tube(result, model)
    if half > 0:
        for edge, label in ((half, "tube, ±epsilon"), (-half, None)):
            axis.plot(x, centre + edge, color=INK, lw=0.8, ls=(0, (4, 3)), label=label)
    at, y = units.x(X), units.y(y)
    latent = result["latent_posterior"].to_dataset()
    axis.plot(at, y, "o", ms=3, color="0.45", label="data")
    if "support" in latent:
        for kind, colour, label in (
            (1, OFF_BOUND, "off-bound support vector"),
            (2, ON_BOUND, "on-bound support vector"),
        ):
            chosen = latent["support"].values == kind
            axis.plot(at[chosen], y[chosen], "o", ms=7, mfc="none", mec=colour, label=label)


def _tube(result: xr.DataTree, model: pm.Model | None) -> float:
    """Half-width of the tube; 0 for draws, and for noise without a tube."""
    if "dual_coef" not in result["latent_posterior"].to_dataset():
        return 0.0
    _, noise = latent_posterior(read_model(model), result)
    half = np.asarray(noise.parameters.get("epsilon", 0.0))
    return float(half) if half.ndim == 0 and noise.name != "huber" else 0.0


def _against(axis: Any, result: xr.DataTree, model: pm.Model | None, X: Any, y: Any, units: _Units) -> None:
    seen = predict(result, X, model=model)
    low, high = (units.y(seen["y_quantile"].sel(quantile=q, method="nearest")) for q in (0.1, 0.9))
    mean, y = units.y(seen["y_mean"]), units.y(y)
    # The interval is drawn at its prediction; a target outside it is marked.
    outside = (y < low) | (y > high)
    axis.vlines(mean, low, high, color=BAND, alpha=0.25, lw=1, label="80 % of y")
    axis.plot(mean[~outside], y[~outside], "o", ms=3, color=INK, label="inside")
    axis.plot(mean[outside], y[outside], "o", ms=3, color=OFF_BOUND, label="outside")
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    axis.plot(ends, ends, color="0.6", lw=0.8, zorder=0)

"""Calibration plots: comparison of predicted probabilities with observed shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from arviz_plots import PlotCollection
from numpy.typing import ArrayLike

from bsvr_pp._checks import check_share
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.result import check_results
from bsvr_pp.show.backends import backend_of, drawing, merged

__all__ = ["plot_calibration"]


def plot_calibration(
    results: Mapping[str, xr.DataTree],
    *,
    X_test: ArrayLike,
    y_test: ArrayLike,
    model: pm.Model | None = None,
    probability: float = 0.95,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot calibration on test data: predicted quantiles (top), central intervals (bottom), one column per result.

    Every curve is the observed share minus the predicted share. If the predictions are right, it stays inside the band
    with the given probability. For quantiles, a slope at the ends means that the tails are too light or too heavy, and
    a hump means that predictions are too high or too low. Intervals are too wide above 0 and too narrow below 0.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    X_test, y_test : arrays
        Test data, in the units of the model.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``.
    probability : float
        Probability of the band, between 0 and 1.
    plot_collection : PlotCollection, optional
        A collection to draw on; by default a new one.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        Backend of ArviZ; by default ``arviz.rcParams["plot.backend"]``.
    visuals : dict, optional
        Options of the elements of the plot, as in `arviz.plot_ecdf_pit`.
    **pc_kwargs
        Options of the new `PlotCollection`, such as ``figure_kwargs``.

    Returns
    -------
    arviz_plots.PlotCollection
        As in `arviz.plot_ecdf_pit`; ``savefig`` writes it.

    Raises
    ------
    ValueError
        If there is no result, probability is out of range, or the targets are labels.
    TypeError
        If results is not a dict of results of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data, test = sinc(15, random_seed=1), sinc(10, random_seed=2)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> picture = bp.plot_calibration({"mean field": result}, X_test=test.X, y_test=test.y, model=model)
    >>> picture.get_target("share", {"of": "intervals", "method": "mean field"}).get_xlabel()
    'predicted share'
    """
    check_results(results)
    check_share("probability", probability)
    pit = []
    for result in results.values():
        seen = predict(result, X_test, model=model, y_new=y_test)
        if "y_cdf" not in seen:
            raise ValueError("model must have targets that are not labels: a label has no quantiles")
        pit.append(seen["y_cdf"].values)
    u = np.stack(pit)
    shares = xr.DataArray(
        np.stack([u, np.abs(2 * u - 1)]),
        dims=("of", "method", "sample"),
        coords={"of": ["quantiles", "intervals"], "method": list(results)},
    )
    tree = xr.DataTree.from_dict({"calibration": xr.Dataset({"share": shares})})
    n = len(results)
    kind = backend_of(plot_collection, backend)
    figure = {"figsize": (max(2.7 * n, 4.0), 4.6), "sharex": True, "sharey": True}
    options = merged(pc_kwargs, figure, kind, cols=["of", "method"], col_wrap=n) if plot_collection is None else {}
    picture = az.plot_ecdf_pit(
        tree,
        group="calibration",
        sample_dims=["sample"],
        envelope_prob=probability,
        plot_collection=plot_collection,
        backend=kind,
        visuals={"xlabel": False, "ylabel": False, "title": False, **(visuals or {})},
        **options,
    )
    draw = drawing(picture)
    for method in results:
        draw.title(method, picture.get_target("share", {"of": "quantiles", "method": method}))
        draw.xlabel("predicted share", picture.get_target("share", {"of": "intervals", "method": method}))
    for of in ("quantiles", "intervals"):
        target = picture.get_target("share", {"of": of, "method": next(iter(results))})
        draw.ylabel(f"{of}:\nobserved − predicted", target)
    return picture

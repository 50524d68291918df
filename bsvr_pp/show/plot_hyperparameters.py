"""Plots of the hyperparameters (densities of draws, lines for point estimates) and of the relevance of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray

from bsvr_pp.inference.result import check_results, shown_names
from bsvr_pp.show.colours import colours

__all__ = ["plot_hyperparameters", "plot_relevance"]

Array = NDArray[np.float64]

_COLUMNS = 3
_FEWEST_TICKS, _MOST_TICKS = 3, 5
_LEAST_SPAN = 0.5  # smallest span of an axis with only point estimates, relative or in logs
_HARDLY_RELEVANT = 0.01  # relative to the largest relevance: such inputs hardly change predictions


def plot_hyperparameters(
    results: Mapping[str, xr.DataTree], *, names: Mapping[str, Sequence[str]] | None = None
) -> PlotCollection:
    """Plot every hyperparameter for every method: the density of draws, or a line with a dot for a point estimate.

    Positive hyperparameters are plotted on a log scale. An axis with only point estimates spans at least a factor of
    1.6 (without a log scale, half of the value), so that points that nearly agree are plotted close together.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.

    Returns
    -------
    arviz_plots.PlotCollection
        As in `arviz.plot_dist`; ``savefig`` writes it.

    Raises
    ------
    ValueError
        If there is no result, the model has no hyperparameters, or names does not have a name for each entry.
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
    >>> picture = bp.plot_hyperparameters({"mean field": result})
    >>> sorted(picture.viz["plot"].data_vars)
    ['C', 'amplitude', 'epsilon', 'lengthscale']
    """
    check_results(results)
    drawn = {method: _hyperparameters(result, names or {}) for method, result in results.items()}
    first = next(iter(drawn.values()))
    if not first.data_vars:
        raise ValueError("results must have hyperparameters, and the model has none")
    positive = [v for v in first.data_vars if all((data[v] > 0).all() for data in drawn.values())]
    drawn = {method: data.assign({v: np.log10(data[v]) for v in positive}) for method, data in drawn.items()}
    colour = colours(results)
    points = [method for method, data in drawn.items() if not _varies(data)]
    sampled = {method: data for method, data in drawn.items() if _varies(data)}
    picture = _panels(first, sampled, colour)
    for name in first.data_vars:
        for entry in _entries(first[name]):
            axis = picture.get_target(name, entry)
            top = axis.get_ylim()[1] if sampled else 1.0
            for i, method in enumerate(points):
                at = float(drawn[method][name].sel(entry).isel(chain=0, draw=0))
                # Point estimates of different methods often coincide: each line has its own height.
                height = top * (1.0 - 0.6 * i / max(len(points) - 1, 1))
                axis.plot([at, at], [0, height], color=colour[method], lw=1.6)
                axis.plot(at, height, "o", ms=6, color=colour[method])
            axis.set_title(" ".join([str(name), *map(str, entry.values())]))
            axis.margins(x=0.15)
            if not sampled:
                _widen(axis, 1.0 / np.log(10.0) if name in positive else None)
            axis.xaxis.set_major_locator(MaxNLocator(4))
            if name in positive:
                _label_powers(axis)
            axis.set_yticks([])
            axis.set_ylim(bottom=0)
            axis.spines[["left", "top", "right"]].set_visible(False)
    _legend(picture, {method: (colour[method], "" if method in sampled else "o") for method in results})
    return picture


def plot_relevance(
    results: Mapping[str, xr.DataTree],
    *,
    name: str = "lengthscale",
    inputs: Sequence[str] | None = None,
) -> PlotCollection:
    """Plot the relevance of each input, 1/lengthscale², on a log scale, with intervals if there are draws.

    Relevances can be compared only if the inputs have the same scale, for example if they are standardised. The dotted
    line is at a hundredth of the largest median: inputs to the left of it hardly change the prediction.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    name : str
        The hyperparameter with one lengthscale per input.
    inputs : sequence of str, optional
        Names of the inputs.

    Returns
    -------
    arviz_plots.PlotCollection
        As in `arviz.plot_forest`: median, central 50 % and 90 %; ``savefig`` writes it.

    Raises
    ------
    ValueError
        If there is no result, no such hyperparameter, it is a number, or inputs does not have a name for each entry.
    TypeError
        If results is not a dict of results of `fit`.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).normal(size=(15, 2))
    >>> model = bp.default_model(X, X[:, 0], kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": [1, 0.1111], "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> picture = bp.plot_relevance({"mean field": result}, inputs=["height", "width"])
    >>> picture.viz["plot"].sel(column="forest").item().get_xlabel()
    '1 / lengthscale²'
    """
    check_results(results)
    size = max(r["posterior"].sizes["chain"] * r["posterior"].sizes["draw"] for r in results.values())
    trees, largest = {}, 0.0
    for method, result in results.items():
        posterior = result["posterior"].to_dataset()
        if name not in posterior or posterior[name].ndim != 3:
            raise ValueError(f"name must be a hyperparameter with an entry for each input, got {name!r}")
        values = posterior[name].values
        labels = list(inputs) if inputs is not None else [str(i) for i in range(values.shape[2])]
        if len(labels) != values.shape[2]:
            raise ValueError(f"inputs must have {values.shape[2]} names, one an entry of {name}, got {len(labels)}")
        coords: dict[str, Any] = {"input": labels}
        data = xr.Dataset({"relevance": (("chain", "draw", "input"), _spread(values, size) ** -2.0)}, coords=coords)
        trees[method] = xr.DataTree.from_dict({"posterior": data})
        largest = max(largest, float(np.median(values, axis=(0, 1)).min()) ** -2.0)
    colour = colours(results)
    picture = az.plot_forest(
        trees,
        combined=True,
        ci_kind="eti",
        ci_probs=(0.5, 0.9),
        point_estimate="median",
        labels=["input"],
        color=list(colour.values()),
        figure_kwargs={
            "figsize": (7.0, 0.9 + len(labels) * (0.16 * len(results) + 0.22)),
            "width_ratios": [1, 3],
            "layout": "constrained",
        },
    )
    labels_axis, axis = (picture.viz["plot"].sel(column=column).item() for column in ("labels", "forest"))
    labels_axis.spines["bottom"].set_visible(False)
    labels_axis.set_xticks([])
    axis.set_xscale("log")
    axis.axvline(_HARDLY_RELEVANT * largest, color="0.6", lw=1, ls=":")
    for part in (labels_axis, axis):
        part.margins(y=0.02)
    axis.set_xlabel(f"1 / {name}²")
    _legend(picture, {m: (colour[m], "") for m in results})
    return picture


def _hyperparameters(result: xr.DataTree, names: Mapping[str, Sequence[str]]) -> xr.Dataset:
    """Draws of the hyperparameters, with named entries; of an inverse and its Deterministic, the latter."""
    posterior = result["posterior"].to_dataset()
    kept = posterior[shown_names(result)]
    for name in kept.data_vars:
        for dim in set(kept[name].dims) - {"chain", "draw"}:
            labels = names.get(str(name), [str(i) for i in range(kept.sizes[dim])])
            if len(labels) != kept.sizes[dim]:
                raise ValueError(f"names[{name!r}] must hold {kept.sizes[dim]} names, got {len(labels)}")
            kept = kept.assign_coords({dim: list(labels)})
    return kept


def _widen(axis: Any, unit: float | None) -> None:
    """Extend an axis to the smallest allowed span, in the given unit or relative to its values."""
    low, high = axis.get_xlim()
    centre = 0.5 * (low + high)
    least = _LEAST_SPAN * (unit if unit is not None else max(abs(centre), high - low))
    if high - low < least:
        axis.set_xlim(centre - 0.5 * least, centre + 0.5 * least)


def _label_powers(axis: Any) -> None:
    """Label an axis of decimal logarithms with the numbers themselves; with round numbers if the range is large."""
    low, high = axis.get_xlim()
    for subs in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        exponents = np.log10(LogLocator(subs=subs).tick_values(10**low, 10**high))
        inside = exponents[(low <= exponents) & (exponents <= high)]
        if len(inside) >= _FEWEST_TICKS:
            axis.set_xticks(inside[:: -(-len(inside) // _MOST_TICKS)])
            break
    axis.xaxis.set_major_formatter(lambda exponent, _: f"{10**exponent:.3g}")


def _spread(values: Array, size: int) -> Array:
    """Repeat draws evenly to the shape (1, size, ...), since ArviZ compares methods only with equal shapes."""
    flat = values.reshape(-1, *values.shape[2:])
    return flat[np.linspace(0, len(flat) - 1, size).astype(int)][None]


def _varies(data: xr.Dataset) -> bool:
    return any(np.ptp(data[name].values, axis=(0, 1)).all() for name in data.data_vars)


def _entries(variable: xr.DataArray) -> list[dict[Any, Any]]:
    """Selections of the scalar entries of a variable."""
    dims = [d for d in variable.dims if d not in ("chain", "draw")]
    if not dims:
        return [{}]
    (dim,) = dims
    return [{dim: value} for value in variable[dim].values]


def _panels(first: xr.Dataset, sampled: Mapping[str, xr.Dataset], colour: Mapping[str, str]) -> PlotCollection:
    dims = [d for d in first.dims if d not in ("chain", "draw")]
    n = sum(len(_entries(first[name])) for name in first.data_vars)
    columns = min(n, _COLUMNS)
    layout: dict[str, Any] = {
        "cols": ["__variable__", *dims],
        "col_wrap": columns,
        "figure_kwargs": {"figsize": (3.3 * columns, 2.3 * -(-n // columns) + 0.5), "layout": "constrained"},
    }
    if not sampled:
        return PlotCollection.wrap(first, backend="matplotlib", **layout)
    size = max(data.sizes["chain"] * data.sizes["draw"] for data in sampled.values())
    trees = {}
    for method, data in sampled.items():
        kept = {name: (data[name].dims, _spread(data[name].values, size)) for name in data.data_vars}
        coords = {dim: data[dim].values for dim in dims}
        trees[method] = xr.DataTree.from_dict({"posterior": xr.Dataset(kept, coords=coords)})
    return az.plot_dist(
        trees,
        kind="kde",
        backend="matplotlib",
        visuals={
            "point_estimate": False,
            "point_estimate_text": False,
            "credible_interval": False,
            "face": {"alpha": 0.15},
        },
        aes={"color": ["model"]},
        color=[colour[method] for method in sampled],
        **layout,
    )


def _legend(picture: PlotCollection, lines: Mapping[str, tuple[str, str]]) -> None:
    figure = picture.viz["figure"].item()
    handles = [Line2D([], [], color=colour, marker=marker, ms=5, lw=2) for colour, marker in lines.values()]
    figure.legend(
        handles, list(lines), loc="outside upper center", ncols=min(len(lines), 4), fontsize="small", frameon=False
    )

"""Plots of the hyperparameters (densities of draws, lines for point estimates) and of the relevance of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import arviz as az
import numpy as np
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray

from bsvr_pp.inference.result import check_results, shown_names
from bsvr_pp.show.backends import backend_of, drawing, merged
from bsvr_pp.show.colours import colours

__all__ = ["plot_hyperparameters", "plot_relevance"]

Array = NDArray[np.float64]

_COLUMNS = 3
_FEWEST_TICKS, _MOST_TICKS = 3, 5
_LEAST_SPAN = 0.5  # smallest span of an axis with only point estimates, relative or in logs
_HARDLY_RELEVANT = 0.01  # relative to the largest relevance: such inputs hardly change predictions


def plot_hyperparameters(
    results: Mapping[str, xr.DataTree],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
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
    plot_collection : PlotCollection, optional
        A collection to draw on; by default a new one.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        Backend of ArviZ; by default ``arviz.rcParams["plot.backend"]``.
    visuals : dict, optional
        Options of the elements of the plot, as in `arviz.plot_dist`.
    **pc_kwargs
        Options of the new `PlotCollection`, such as ``figure_kwargs``.

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
    picture = _panels(first, sampled, colour, plot_collection, backend, visuals or {}, pc_kwargs)
    draw, plain = drawing(picture), picture.backend == "matplotlib"
    for name in first.data_vars:
        for entry in _entries(first[name]):
            target = picture.get_target(name, entry)
            each = {method: np.ravel(data[name].sel(entry).values) for method, data in drawn.items()}
            top = _height([each[method] for method in sampled]) if sampled else 1.0
            if plain and sampled:
                top = target.get_ylim()[1]
            for i, method in enumerate(points):
                at = float(each[method][0])
                # Point estimates of different methods often coincide: each line has its own height.
                height = top * (1.0 - 0.6 * i / max(len(points) - 1, 1))
                draw.line([at, at], [0, height], target, color=colour[method], width=1.6)
                draw.scatter([at], [height], target, color=colour[method])
            draw.title(" ".join([str(name), *map(str, entry.values())]), target)
            if plain:
                _tidy(target, bool(sampled), name in positive)
            elif name in positive:
                _label_powers(draw, target, *_span(each.values()))
    _legend(picture, {method: (colour[method], "" if method in sampled else "o") for method in results})
    return picture


def plot_relevance(
    results: Mapping[str, xr.DataTree],
    *,
    name: str = "lengthscale",
    inputs: Sequence[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
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
    plot_collection : PlotCollection, optional
        A collection to draw on; by default a new one.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        Backend of ArviZ; by default ``arviz.rcParams["plot.backend"]``.
    visuals : dict, optional
        Options of the elements of the plot, as in `arviz.plot_forest`.
    **pc_kwargs
        Options of the new `PlotCollection`, such as ``figure_kwargs``.

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
    kind = backend_of(plot_collection, backend)
    size_of = (7.0, 0.9 + len(labels) * (0.16 * len(results) + 0.22))
    options = {"color": list(colour.values())}
    if plot_collection is None:
        options = merged(pc_kwargs, {"figsize": size_of, "width_ratios": [1, 3]}, kind, **options)
    picture = az.plot_forest(
        trees,
        combined=True,
        ci_kind="eti",
        ci_probs=(0.5, 0.9),
        point_estimate="median",
        labels=["input"],
        plot_collection=plot_collection,
        backend=kind,
        visuals=visuals,
        **(options if plot_collection is None else {}),
    )
    draw = drawing(picture)
    labels_target, target = (picture.viz["plot"].sel(column=column).item() for column in ("labels", "forest"))
    draw.xscale(target, "log")
    draw.vline(
        _HARDLY_RELEVANT * largest, target, color="gray", width=1, linestyle=draw.get_default_aes("linestyle", 3)[2]
    )
    draw.xlabel(f"1 / {name}²", target)
    if kind == "matplotlib":
        labels_target.spines["bottom"].set_visible(False)
        labels_target.set_xticks([])
        for part in (labels_target, target):
            part.margins(y=0.02)
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


def _tidy(axis: Any, sampled: bool, positive: bool) -> None:
    """Limits, ticks and frame of a panel in matplotlib."""
    axis.margins(x=0.15)
    if not sampled:
        _widen(axis, 1.0 / np.log(10.0) if positive else None)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    if positive:
        _label_powers(import_module("arviz_plots.backend.matplotlib"), axis, *axis.get_xlim())
    axis.set_yticks([])
    axis.set_ylim(bottom=0)
    axis.spines[["left", "top", "right"]].set_visible(False)


def _span(values: Iterable[Array]) -> tuple[float, float]:
    """Range of an axis with some values, with a margin."""
    joined = np.concatenate(list(values))
    low, high = float(joined.min()), float(joined.max())
    margin = max(0.15 * (high - low), 0.25)
    return low - margin, high + margin


def _height(draws: Iterable[Array]) -> float:
    """Height of a panel with densities of some draws."""
    return 1.2 * max(float(np.histogram(x, bins=20, density=True)[0].max()) for x in draws)


def _label_powers(draw: Any, target: Any, low: float, high: float) -> None:
    """Label an axis of decimal logarithms with the numbers themselves; with round numbers if the range is large."""
    for subs in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        exponents = np.log10(LogLocator(subs=subs).tick_values(10**low, 10**high))
        inside = exponents[(low <= exponents) & (exponents <= high)]
        if len(inside) >= _FEWEST_TICKS:
            ticks = inside[:: -(-len(inside) // _MOST_TICKS)]
            draw.xticks(list(ticks), [f"{10**tick:.3g}" for tick in ticks], target)
            return
    if hasattr(target, "xaxis") and hasattr(target.xaxis, "set_major_formatter"):
        target.xaxis.set_major_formatter(lambda exponent, _: f"{10**exponent:.3g}")


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


def _panels(
    first: xr.Dataset,
    sampled: Mapping[str, xr.Dataset],
    colour: Mapping[str, str],
    plot_collection: PlotCollection | None,
    backend: str | None,
    visuals: Mapping[str, Any],
    pc_kwargs: Mapping[str, Any],
) -> PlotCollection:
    dims = [d for d in first.dims if d not in ("chain", "draw")]
    n = sum(len(_entries(first[name])) for name in first.data_vars)
    columns = min(n, _COLUMNS)
    kind = backend_of(plot_collection, backend)
    figure = {"figsize": (3.3 * columns, 2.3 * -(-n // columns) + 0.5)}
    layout = merged(pc_kwargs, figure, kind, cols=["__variable__", *dims], col_wrap=columns)
    if not sampled:
        return plot_collection or PlotCollection.wrap(first, backend=kind, **layout)
    size = max(data.sizes["chain"] * data.sizes["draw"] for data in sampled.values())
    trees = {}
    for method, data in sampled.items():
        kept = {name: (data[name].dims, _spread(data[name].values, size)) for name in data.data_vars}
        coords = {dim: data[dim].values for dim in dims}
        trees[method] = xr.DataTree.from_dict({"posterior": xr.Dataset(kept, coords=coords)})
    shades = [colour[method] for method in sampled]
    return az.plot_dist(
        trees,
        kind="kde",
        plot_collection=plot_collection,
        backend=kind,
        visuals={
            "point_estimate": False,
            "point_estimate_text": False,
            "credible_interval": False,
            "face": {"alpha": 0.15},
            **visuals,
        },
        **({} if plot_collection is not None else {"aes": {"color": ["model"]}, "color": shades, **layout}),
    )


def _legend(picture: PlotCollection, lines: Mapping[str, tuple[str, str]]) -> None:
    if picture.backend != "matplotlib":
        if "model" in picture.aes_set or len(lines) > 1:
            with suppress(ValueError, KeyError):  # a collection without colours of models has no legend
                picture.add_legend("model")
        return
    figure = picture.viz["figure"].item()
    handles = [Line2D([], [], color=colour, marker=marker, ms=5, lw=2) for colour, marker in lines.values()]
    figure.legend(
        handles, list(lines), loc="outside upper center", ncols=min(len(lines), 4), fontsize="small", frameon=False
    )

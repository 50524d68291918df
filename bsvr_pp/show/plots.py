"""Plots that ArviZ does not have: bands with support vectors, evidence, relevance; and those of the report page.

Plots that are made by ArviZ return its `PlotCollection`, the others a matplotlib figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import cycle
from typing import Any, NamedTuple

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import rcParams
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike

from bsvr_pp._arrays import Array
from bsvr_pp._checks import generator, is_number, numbers
from bsvr_pp._docs import shared
from bsvr_pp.assess.judged import Judged, JudgedModel, some_draws
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Anneals, IntegratesLatent
from bsvr_pp.inference.result import check_results, data_of, is_sampled, shown_names
from bsvr_pp.tables.columns import Encoding

_Evidence = Callable[..., tuple[float, float]]

BAND, INK, _OFF_BOUND, _ON_BOUND = "#4477aa", "#224466", "#ee6677", "#aa3377"
# One colour per method in every plot, also distinct for colour-blind readers (Paul Tol's bright scheme).
_METHODS = {
    "MAP": "#777777",
    "Laplace": "#ee6677",
    "Laplace (local)": "#ccbb44",
    "mean field": "#4477aa",
    "NUTS": "#228833",
    "NUTS (mean field)": "#66ccee",
    "NUTS (Laplace (local))": "#aa3377",
}
_POINTS = 9  # annealed points along a hyperparameter
_DEPTH = 12.0  # range of the contours in nats below the maximum
_HARDLY_RELEVANT = 0.01  # relative to the largest relevance: such inputs hardly change predictions


@shared
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
    <model>
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

    <sinc_model>
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
    n, columns = len(results), min(len(results), 2)
    figure, axes = _panels(-(-n // columns), columns, (5.2 * columns, 3.6 * -(-n // columns)))
    for axis in axes.flat[n:]:
        axis.set_visible(False)
    for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
        data = data_of(result)
        X, y = data["inputs"], data["targets"]
        if X.shape[1] == 1:
            _bands(axis, result, model, X, y, units)
            axis.set(title=name, xlabel=labels[0], ylabel=labels[1])
        else:
            if X_test is not None and y_test is not None:
                X, y = np.asarray(X_test), np.asarray(y_test)
            _against(axis, result, model, X, y, units)
            axis.set(title=name, xlabel=f"predicted {labels[1]}", ylabel=labels[1])
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    """A figure with panels (rows, columns) that share their axes."""
    return plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained")


class _Units(NamedTuple):
    """Mean and standard deviation of the target, and of a single input."""

    location: float
    scale: float
    input_location: float
    input_scale: float

    def x(self, X: Array) -> Array:
        """The first input in its own units."""
        return self.input_location + self.input_scale * X[:, 0]

    def y(self, y: Array | xr.DataArray) -> Array:
        """Targets in their own units."""
        return self.location + self.scale * np.asarray(y)


def _bands(axis: Axes, result: xr.DataTree, model: pm.Model | None, X: Array, y: Array, units: _Units) -> None:
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
            (1, _OFF_BOUND, "off-bound support vector"),
            (2, _ON_BOUND, "on-bound support vector"),
        ):
            chosen = latent["support"].values == kind
            axis.plot(at[chosen], y[chosen], "o", ms=7, mfc="none", mec=colour, label=label)


def _tube(result: xr.DataTree, model: pm.Model | None) -> float:
    """Half-width of the tube; 0 for draws, and for noise without a tube."""
    if is_sampled(result):
        return 0.0
    _, noise = Judged(result, model).at_its_point()
    half = np.asarray(noise.parameters.get("epsilon", 0.0))
    return float(half) if half.ndim == 0 and noise.name != "huber" else 0.0


def _against(axis: Axes, result: xr.DataTree, model: pm.Model | None, X: Array, y: Array, units: _Units) -> None:
    seen = predict(result, X, model=model)
    low, high = (units.y(seen["y_quantile"].sel(quantile=q, method="nearest")) for q in (0.1, 0.9))
    mean, y = units.y(seen["y_mean"]), units.y(y)
    # The interval is drawn at its prediction; a target outside it is marked.
    outside = (y < low) | (y > high)
    axis.vlines(mean, low, high, color=BAND, alpha=0.25, lw=1, label="80 % of y")
    axis.plot(mean[~outside], y[~outside], "o", ms=3, color=INK, label="inside")
    axis.plot(mean[outside], y[outside], "o", ms=3, color=_OFF_BOUND, label="outside")
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    axis.plot(ends, ends, color="0.6", lw=0.8, zorder=0)


@shared
def plot_evidence(
    along: Mapping[str, ArrayLike],
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    methods: Sequence[IntegratesLatent] = (Laplace(), MeanField()),
    annealed: Annealed | None = None,
    model: pm.Model | None = None,
    random_seed: int | None = 0,
) -> Figure:
    """Plot the log evidence along one or two hyperparameters.

    The figure is drawn in matplotlib.

    Parameters
    ----------
    along : dict
        One or two hyperparameters with increasing values at which the evidence is evaluated; all entries of a vector
        get the same value.
    hyperparameters : dict, optional
        Values of the other hyperparameters; values of those in ``along`` are marked if they are numbers.
    methods : sequence of Laplace, MeanField or other approximations
        Methods; each gives a line for one hyperparameter, or a panel for two.
    annealed : Annealed, optional
        If given, the annealed evidence is added: at nine points with two standard errors, or as another panel.
    <model>
    random_seed : int, optional
        Random seed of the annealed evidence.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If along does not have one or two names, its values do not increase, or a hyperparameter is missing, unknown or
        outside its support.
    TypeError
        If methods or annealed have a wrong type.

    <sinc_model>
    >>> figure = bp.plot_evidence({"inverse_lengthscale": [0.2, 0.5, 1.0, 2.0]}, hyperparameters=at, model=model)
    >>> [line.get_label() for line in figure.axes[0].lines][:2]
    ['Laplace', 'mean field']
    """
    judged = JudgedModel(model)
    problem = judged.problem
    grids = _checked(along, judged)
    centre = problem.checked(hyperparameters)
    missing = [name for name in problem.hyperparameters if name not in centre and name not in grids]
    if missing:
        raise ValueError(f"hyperparameters must give every hyperparameter but those along, {missing[0]} missing")
    if not methods or not all(isinstance(method, IntegratesLatent) for method in methods):
        raise TypeError(f"methods must hold Laplace(), MeanField() or other approximations, got {methods!r}")
    if annealed is not None and not isinstance(annealed, Anneals):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")

    def evidence(method: IntegratesLatent | Annealed, *values: float) -> tuple[float, float]:
        """Log evidence and its standard error; NaN if the method did not converge."""
        moved = {name: np.full(problem.shape_of(name), value) for name, value in zip(grids, values, strict=True)}
        found = judged.evidence(centre | moved, method, generator(random_seed))
        return (found.value if found.converged else np.nan), found.standard_error

    marked = {name: centre[name].item() for name in grids if name in centre and centre[name].size == 1}
    return (_lines if len(grids) == 1 else _surfaces)(grids, marked, evidence, methods, annealed)


def _checked(along: Mapping[str, ArrayLike], judged: JudgedModel) -> dict[str, Array]:
    if not isinstance(along, Mapping) or len(along) not in (1, 2):
        raise ValueError(f"along must map one or two hyperparameters to their values, got {along!r}")
    grids = {name: numbers(f"along[{name!r}]", values) for name, values in along.items()}
    for name, grid in grids.items():
        if grid.ndim != 1 or grid.size < 2 or not (np.diff(grid) > 0).all():
            raise ValueError(f"along[{name!r}] must be at least two increasing values, got {along[name]!r}")
        for end in (grid[0], grid[-1]):
            judged.problem.checked({name: end})
    return grids


def _lines(
    grids: Mapping[str, Array], marked: Mapping[str, float], evidence: _Evidence, methods: Sequence[Any], annealed: Any
) -> Figure:
    ((name, grid),) = grids.items()
    figure, axis = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
    colour = _colours(method.name for method in methods)
    for method in methods:
        values = [evidence(method, x)[0] for x in grid]
        axis.plot(grid, values, color=colour[method.name], lw=1.8, label=method.name)
    if annealed is not None:
        at = grid[np.unique(np.linspace(0, grid.size - 1, _POINTS).astype(int))]
        found = np.array([evidence(annealed, x) for x in at])
        axis.errorbar(
            at, found[:, 0], 2 * found[:, 1], fmt="o", ms=4, color="black", capsize=2, label="annealed (true)", zorder=5
        )
    if marked:
        axis.axvline(marked[name], color="0.6", lw=1, ls=":")
    _log_where_wide(axis, "x", grid)
    axis.set(xlabel=name, ylabel="log evidence")
    axis.legend(fontsize="small", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _surfaces(
    grids: Mapping[str, Array], marked: Mapping[str, float], evidence: _Evidence, methods: Sequence[Any], annealed: Any
) -> Figure:
    (first, xs), (second, ys) = grids.items()
    everything = [*methods] if annealed is None else [*methods, annealed]
    figure, axes = _panels(1, len(everything), (3.6 * len(everything) + 0.8, 3.5))
    for axis, method in zip(axes.flat, everything, strict=True):
        surface = np.array([[evidence(method, x, y)[0] for x in xs] for y in ys])
        below = surface - np.nanmax(surface)
        filled = axis.contourf(xs, ys, below, np.linspace(-_DEPTH, 0.0, 13), cmap="viridis", extend="min")
        row, column = np.unravel_index(np.nanargmax(surface), surface.shape)
        axis.plot(xs[column], ys[row], "o", ms=7, mfc="none", mec=INK, mew=1.5)
        if len(marked) == 2:
            axis.plot(marked[first], marked[second], "+", color="white", ms=11, mew=2)
        axis.set(title=method.name, xlabel=first)
        _log_where_wide(axis, "x", xs)
        _log_where_wide(axis, "y", ys)
    axes.flat[0].set_ylabel(second)
    figure.colorbar(filled, ax=axes, label="log evidence minus its maximum")
    return figure


def _log_where_wide(axes: Axes, which: str, grid: Array) -> None:
    """Use a log scale with plain numbers if the grid spans more than a factor of five."""
    if grid[0] > 0 and grid[-1] > 5 * grid[0]:
        axes.set(**{f"{which}scale": "log"})
        axis = getattr(axes, f"{which}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())


def plot_relevance(
    results: Mapping[str, xr.DataTree],
    *,
    name: str = "lengthscale",
    inputs: Sequence[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Mapping[str, object] | None = None,
    **pc_kwargs: object,
) -> PlotCollection:
    """Plot the relevance of each input, 1/lengthscale², on a log scale, with intervals if there are draws.

    Relevances can be compared only if the inputs have the same scale, for example if they are standardised. The dotted
    line is at a hundredth of the largest median: inputs to the left of it hardly change the prediction.

    Parameters
    ----------
    results : dict
        Results of `fit`, or ``result_`` of estimators, by name.
    name : str
        The hyperparameter with one lengthscale per input.
    inputs : sequence of str, optional
        Names of the inputs; by default those of the encoded columns, for the ``result_`` of an estimator.
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
    drawn, largest = {}, 0.0
    for method, result in results.items():
        posterior = result["posterior"].to_dataset()
        if name not in posterior or posterior[name].ndim != 3:
            raise ValueError(f"name must be a hyperparameter with an entry for each input, got {name!r}")
        values = posterior[name].values
        labels = list(inputs) if inputs is not None else _inputs_of(result, values.shape[2])
        if len(labels) != values.shape[2]:
            raise ValueError(f"inputs must have {values.shape[2]} names, one an entry of {name}, got {len(labels)}")
        relevance = xr.DataArray(values**-2.0, dims=("chain", "draw", "input"), coords={"input": labels})
        drawn[method] = xr.Dataset({"relevance": relevance})
        largest = max(largest, float(np.median(values, axis=(0, 1)).min()) ** -2.0)
    options = {"labels": ["input"], "plot_collection": plot_collection, "visuals": visuals}
    picture = _forest(drawn, len(labels), backend, pc_kwargs, **options)
    draw, target = _drawing(picture), picture.viz["plot"].sel(column="forest").item()
    draw.xscale(target, "log")
    limit, dotted = _HARDLY_RELEVANT * largest, draw.get_default_aes("linestyle", 3)[2]
    draw.vline(limit, target, color="gray", width=1, linestyle=dotted)
    draw.xlabel(f"1 / {name}²", target)
    return picture


def _inputs_of(result: xr.DataTree, n: int) -> list[str]:
    """Names of the n inputs: of the encoded columns if the result is that of an estimator fitted to a table."""
    columns = json.loads(result.attrs.get("recipe", "{}")).get("columns")
    return [str(i) for i in range(n)] if columns is None else list(Encoding.from_json(columns).names)


def hyperparameters_picture(results: Mapping[str, xr.DataTree], names: Mapping[str, Sequence[str]]) -> PlotCollection:
    """Median and central 50 % and 90 % of every hyperparameter; ``names`` are those of the entries of vectors."""
    drawn = {}
    for method, result in results.items():
        kept = result["posterior"].to_dataset()[shown_names(result)]
        entries = {d: list(names[v]) for v in names.keys() & kept.keys() for d in kept[v].dims[2:]}
        drawn[method] = kept.assign_coords(entries)
    first = next(iter(drawn.values()))
    picture = _forest(drawn, sum(first[v][0, 0].size for v in first), None, {})
    if all((data[name] > 0).all() for data in drawn.values() for name in data):
        _drawing(picture).xscale(picture.viz["plot"].sel(column="forest").item(), "log")
    return picture


def calibration_picture(
    results: Mapping[str, xr.DataTree], X_test: ArrayLike, y_test: ArrayLike, model: pm.Model
) -> PlotCollection:
    """Observed minus predicted share of quantiles (top) and of central intervals (bottom), one column per result."""
    pit = {name: predict(result, X_test, model=model, y_new=y_test)["y_cdf"] for name, result in results.items()}
    shares = {f"{name}\nquantiles": u for name, u in pit.items()}
    shares |= {f"{name}\nintervals": abs(2 * u - 1) for name, u in pit.items()}
    return az.plot_ecdf_pit(
        xr.DataTree.from_dict({"calibration": xr.Dataset(shares)}),
        group="calibration",
        sample_dims=["obs_new"],
        envelope_prob=0.95,
        visuals={"xlabel": {"text": "predicted share"}, "ylabel": {"text": "observed − predicted"}},
        col_wrap=len(pit),
        figure_kwargs={
            "figsize": (max(2.7 * len(pit), 4.0), 5.6),
            "sharex": True,
            "sharey": True,
            "layout": "constrained",
        },
    )


def _forest(
    drawn: Mapping[str, xr.Dataset],
    rows: int,
    backend: str | None,
    pc_kwargs: Mapping[str, Any],
    plot_collection: PlotCollection | None = None,
    **options: Any,
) -> PlotCollection:
    """`arviz.plot_forest` of the variables of several methods, each in its colour."""
    sizes = {method: data.sizes["chain"] * data.sizes["draw"] for method, data in drawn.items()}
    # ArviZ compares methods only with equal shapes: draws are repeated evenly.
    chosen = {method: np.linspace(0, size - 1, max(sizes.values())).astype(int) for method, size in sizes.items()}
    equal = {method: {"posterior": some_draws(data, chosen[method])} for method, data in drawn.items()}
    colour = _colours(drawn)
    if plot_collection is None:
        kind = str(rcParams["plot.backend"]) if backend is None else backend
        figure: dict[str, Any] = {"figsize": (7.0, 0.9 + rows * (0.16 * len(drawn) + 0.22)), "width_ratios": [1, 3]}
        figure |= {"layout": "constrained"} if kind == "matplotlib" else {}
        figure |= pc_kwargs.get("figure_kwargs", {})
        options |= {"color": list(colour.values()), **pc_kwargs, "figure_kwargs": figure, "backend": kind}
    picture = az.plot_forest(
        {method: xr.DataTree.from_dict(groups) for method, groups in equal.items()},
        combined=True,
        ci_kind="eti",
        ci_probs=(0.5, 0.9),
        point_estimate="median",
        plot_collection=plot_collection,
        **options,
    )
    if picture.backend == "matplotlib":
        for target in picture.viz["plot"].values:
            target.margins(y=0.02)
        for target in picture.viz["plot"].sel(column=picture.viz["plot"].column != "forest").values:
            target.spines["bottom"].set_visible(False)
            target.set_xticks([])
        handles = [Line2D([], [], color=each, lw=2) for each in colour.values()]
        picture.viz["figure"].item().legend(
            handles,
            list(colour),
            loc="outside upper center",
            ncols=min(len(colour), 4),
            fontsize="small",
            frameon=False,
        )
    elif "model" in picture.aes_set or len(drawn) > 1:
        with suppress(ValueError, KeyError):  # a collection without colours of models has no legend
            picture.add_legend("model")
    return picture


def _drawing(picture: PlotCollection) -> Any:
    """The functions of ArviZ that draw on the targets of a collection, in any of its backends."""
    return import_module(f"arviz_plots.backend.{picture.backend}")


def _colours(names: Iterable[str]) -> dict[str, str]:
    """Assign a colour to every name of a method, in the order of the results."""
    wanted = list(names)
    free = cycle([colour for method, colour in _METHODS.items() if method not in wanted] or _METHODS.values())
    return {name: _METHODS.get(name) or next(free) for name in wanted}

"""Plots that ArviZ does not have: bands with support vectors, evidence, relevance; and those of the report page.

Plots that are made by ArviZ return its `PlotCollection`, the others a matplotlib figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import cycle
from typing import Any

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

from bsvr_pp.assess.evidence import Judged, JudgedModel, some_draws
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import generator, is_number, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Anneals, IntegratesLatent
from bsvr_pp.inference.result import check_results, data_of, is_sampled, shown_names
from bsvr_pp.tables.columns import Encoding

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
    n, columns = len(results), min(len(results), 2)
    size, shared_axes = (5.2 * columns, 3.6 * -(-n // columns)), {"sharex": True, "sharey": True, "squeeze": False}
    figure, axes = plt.subplots(-(-n // columns), columns, figsize=size, layout="constrained", **shared_axes)
    for axis in axes.flat[n:]:
        axis.set_visible(False)
    for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
        data = data_of(result)
        X, y = data["inputs"], data["targets"]
        if X.shape[1] == 1:
            margin = 0.05 * np.ptp(X)
            grid = np.linspace(X.min() - margin, X.max() + margin, 200)[:, None]
            x, at = (input_location + input_scale * each[:, 0] for each in (grid, X))
            seen = _in_units(predict(result, grid, model=model), location, scale)
            _draw_bands(axis, x, seen, scale * _tube(result, model))
            _draw_data(axis, at, location + scale * y, result["latent_posterior"].to_dataset())
            axis.set(title=name, xlabel=labels[0], ylabel=labels[1])
        else:
            if X_test is not None and y_test is not None:
                X, y = np.asarray(X_test), np.asarray(y_test)
            _draw_against(axis, _in_units(predict(result, X, model=model), location, scale), location + scale * y)
            axis.set(title=name, xlabel=f"predicted {labels[1]}", ylabel=labels[1])
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _in_units(seen: xr.Dataset, location: float, scale: float) -> xr.Dataset:
    """Means and quantiles in the units of the target."""
    return location + scale * seen[["f_mean", "y_mean", "y_quantile"]]


def _draw_bands(axis: Axes, x: Array, seen: xr.Dataset, tube: float) -> None:
    quantile, centre = seen["y_quantile"].values, seen["f_mean"].values
    axis.fill_between(x, quantile[0], quantile[4], color=BAND, alpha=0.18, lw=0, label="95 % of y")
    axis.fill_between(x, quantile[1], quantile[3], color=BAND, alpha=0.3, lw=0, label="80 % of y")
    axis.plot(x, centre, color=INK, lw=1.6, label="mean of f")
    if tube > 0:
        for edge, label in ((tube, "tube, ±epsilon"), (-tube, None)):
            axis.plot(x, centre + edge, color=INK, lw=0.8, ls=(0, (4, 3)), label=label)


def _draw_data(axis: Axes, x: Array, y: Array, latent: xr.Dataset) -> None:
    """Data, with circles around support vectors."""
    axis.plot(x, y, "o", ms=3, color="0.45", label="data")
    kinds = ((1, _OFF_BOUND, "off-bound support vector"), (2, _ON_BOUND, "on-bound support vector"))
    for kind, colour, label in kinds if "support" in latent else ():
        chosen = latent["support"].values == kind
        axis.plot(x[chosen], y[chosen], "o", ms=7, mfc="none", mec=colour, label=label)


def _tube(result: xr.DataTree, model: pm.Model | None) -> float:
    """Half-width of the tube; 0 for draws, and for noise without a tube."""
    if is_sampled(result):
        return 0.0
    _, noise = Judged(result, model).at_its_point()
    half = np.asarray(noise.parameters.get("epsilon", 0.0))
    return float(half) if half.ndim == 0 and noise.name != "huber" else 0.0


def _draw_against(axis: Axes, seen: xr.Dataset, y: Array) -> None:
    low, high = (seen["y_quantile"].sel(quantile=q, method="nearest").values for q in (0.1, 0.9))
    mean = seen["y_mean"].values
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
    """Plot the log evidence along a hyperparameter.

    The figure is drawn in matplotlib.

    Parameters
    ----------
    along : dict
        A hyperparameter with increasing values at which the evidence is evaluated; all entries of a vector get the same
        value.
    hyperparameters : dict, optional
        Values of the other hyperparameters; the value of that in ``along`` is marked if it is a number.
    methods : sequence of Laplace, MeanField or other approximations
        Methods, with a line for each.
    annealed : Annealed, optional
        If given, the annealed evidence is added at nine points, with two standard errors.
    <model>
    random_seed : int, optional
        Random seed of the annealed evidence.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If along does not have one name, its values do not increase, or a hyperparameter is missing, unknown or outside
        its support.
    TypeError
        If methods or annealed have a wrong type.

    <sinc_model>
    >>> figure = bp.plot_evidence({"inverse_lengthscale": [0.2, 0.5, 1.0, 2.0]}, hyperparameters=at, model=model)
    >>> [line.get_label() for line in figure.axes[0].lines][:2]
    ['Laplace', 'mean field']
    """
    judged = JudgedModel(model)
    problem = judged.problem
    if not isinstance(along, Mapping) or len(along) != 1:
        raise ValueError(f"along must map one hyperparameter to its values, got {along!r}")
    ((name, values),) = along.items()
    grid = numbers(f"along[{name!r}]", values)
    if grid.ndim != 1 or grid.size < 2 or not (np.diff(grid) > 0).all():
        raise ValueError(f"along[{name!r}] must be at least two increasing values, got {values!r}")
    for end in (grid[0], grid[-1]):
        problem.checked({name: end})
    centre = problem.checked(hyperparameters)
    missing = [each for each in problem.hyperparameters if each not in centre and each != name]
    if missing:
        raise ValueError(f"hyperparameters must give every hyperparameter but the one along, {missing[0]} missing")
    if not methods or not all(isinstance(method, IntegratesLatent) for method in methods):
        raise TypeError(f"methods must hold Laplace(), MeanField() or other approximations, got {methods!r}")
    if annealed is not None and not isinstance(annealed, Anneals):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")

    def evidences(method: IntegratesLatent | Annealed, at: Array) -> Array:
        """Log evidences, NaN where the method did not converge, and their standard errors."""
        points = (centre | {name: np.full(problem.shape_of(name), x)} for x in at)
        found = [judged.evidence(point, method, generator(random_seed)) for point in points]
        return np.array([[each.value if each.converged else np.nan, each.standard_error] for each in found]).T

    figure, axis = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
    for method, colour in zip(methods, _colours(method.name for method in methods).values(), strict=True):
        axis.plot(grid, evidences(method, grid)[0], color=colour, lw=1.8, label=method.name)
    if annealed is not None:
        at = grid[np.unique(np.linspace(0, grid.size - 1, _POINTS).astype(int))]
        value, error = evidences(annealed, at)
        style = {"fmt": "o", "ms": 4, "color": "black", "capsize": 2, "zorder": 5}
        axis.errorbar(at, value, 2 * error, label="annealed (true)", **style)
    if name in centre and centre[name].size == 1:
        axis.axvline(centre[name].item(), color="0.6", lw=1, ls=":")
    if grid[0] > 0 and grid[-1] > 5 * grid[0]:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
    axis.set(xlabel=name, ylabel="log evidence")
    axis.legend(fontsize="small", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


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

"""Plots that ArviZ does not have: bands with support vectors, evidence, effects; and plots of the report page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_plots import PlotCollection
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike

from bsvr_pp.assess.assessment import hyperparameter_draws, in_words
from bsvr_pp.assess.evidence import Judged, evidence_at
from bsvr_pp.assess.partial_dependence import Column, effect
from bsvr_pp.core.arrays import Array, check_order, generator, is_number, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.estimators.standard_fit import OfStandardModel
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.predict import check_real, predict
from bsvr_pp.inference.protocol import Anneals, IntegratesLatent
from bsvr_pp.inference.result import check_results, data_of, is_sampled, problem_of
from bsvr_pp.model.reader import read_model

_BAND, _INK, _OFF_BOUND, _ON_BOUND = "#4477aa", "#224466", "#ee6677", "#aa3377"
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
_IN_A_ROW = 4  # panels of effects
_WORDS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")  # of the same scheme
_POINTS = 9  # annealed points along a hyperparameter


@shared
def plot_predictive(
    results: Mapping[str, xr.DataTree],
    *,
    model: pm.Model | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    input_units: tuple[float, float] = (0.0, 1.0),
    target_units: tuple[float, float] = (0.0, 1.0),
    labels: tuple[str, str] = ("x", "y"),
) -> Figure:
    """Plot predictive bands with the data and the support vectors, in one panel per result.

    With one input the plot shows the mean of f, the tube around it, the central 80 % and 95 % intervals of y, and any
    test data. With several inputs it shows test targets (or training targets, if there is no test set) against their
    predictions, with 80 % intervals.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    <model>
    X_test, y_test : arrays, optional
        Test data.
    input_units, target_units : (float, float)
        If a single input or the targets were standardised, their mean and standard deviation: the plot is in the
        original units.
    labels : (str, str)
        Names of the input and the target.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no result, one of X_test and y_test is missing or does not fit, or units or labels are invalid. Also
        for labels and ordered classes, of which `predict` gives the probabilities.
    TypeError
        If results is not a dict of results of `fit`.

    <sinc_result>
    >>> bp.plot_predictive({"mean field": result}, model=model).axes[0].get_title()
    'mean field'
    """
    check_results(results)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    if y_test is not None:
        d = data_of(next(iter(results.values())))["inputs"].shape[1]
        X_test = numbers("X_test", X_test, ("n_test", d))
        check_order(X_test, y_test=y_test)
        y_test = numbers("y_test", y_test, (len(X_test),))
    for label, units in (("input_units", input_units), ("target_units", target_units)):
        if np.shape(units) != (2,) or not all(map(is_number, units)) or units[1] <= 0:
            raise ValueError(f"{label} must be a number and a positive number, got {units!r}")
    if len(labels) != 2:
        raise ValueError(f"labels must be two, of the input and the target, got {labels!r}")
    for result in results.values():
        check_real(problem := problem_of(result, model), "plot_predictive", "use predict")
        others = [str(each.name) for each in problem.columns.data if each.columns[-1] < problem.width]
        if others and problem.sources is None:
            raise ValueError(f"plot_predictive draws f of X alone, and here it depends on {others[0]}: use predict")
    (middle, width), (location, scale), names = input_units, target_units, [_plain(label) for label in labels]
    figure, axes = _panels(len(results), min(len(results), 2), (5.2, 3.6), sharex=True, sharey=True)
    for axis, (name, result) in zip(axes, results.items(), strict=True):
        data = data_of(result)
        X, y = data["inputs"], data["targets"]
        at, along = X, X.shape[1] == 1
        if along:
            margin = 0.05 * np.ptp(X)
            at = np.linspace(X.min() - margin, X.max() + margin, 200)[:, None]
        elif X_test is not None and y_test is not None:
            at, y, data = np.asarray(X_test), np.asarray(y_test), {}
        seen = location + scale * predict(result, at, model=model)[["f_mean", "y_mean", "y_quantile"]]
        axis.set(title=_plain(name), xlabel=names[0] if along else f"predicted {names[1]}", ylabel=names[1])
        ends = [location + scale * data.get(f"{side} ends", y) for side in ("lower", "upper")]
        if along:
            _draw_bands(axis, middle + width * at[:, 0], seen, scale * _tube(result, model))
            latent = result["latent_posterior"].to_dataset()
            _draw_data(axis, middle + width * X[:, 0], location + scale * y, ends, latent)
            if X_test is not None and y_test is not None:
                drawn = middle + width * np.asarray(X_test), location + scale * np.asarray(y_test)
                axis.plot(*drawn, "x", ms=4, color="black", label="test data")
        else:
            _draw_against(axis, seen, ends)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _panels(n: int, columns: int, size: tuple[float, float], **options: bool) -> tuple[Figure, list[Axes]]:
    """Make a figure with n panels of a size, in rows of at most ``columns``."""
    rows = -(-n // columns)
    total = size[0] * columns, size[1] * rows
    figure, axes = plt.subplots(rows, columns, figsize=total, squeeze=False, layout="constrained", **options)
    for axis in axes.flat[n:]:
        axis.set_axis_off()
    return figure, list(axes.flat[:n])


def _draw_bands(axis: Axes, x: Array, seen: xr.Dataset, tube: float) -> None:
    quantile, centre = seen["y_quantile"].values, seen["f_mean"].values
    axis.fill_between(x, quantile[0], quantile[4], color=_BAND, alpha=0.18, lw=0, label="95 % of y")
    axis.fill_between(x, quantile[1], quantile[3], color=_BAND, alpha=0.3, lw=0, label="80 % of y")
    axis.plot(x, centre, color=_INK, lw=1.6, label="mean of f")
    if tube > 0:
        for edge, label in ((tube, "tube, ±epsilon"), (-tube, None)):
            axis.plot(x, centre + edge, color=_INK, lw=0.8, ls=(0, (4, 3)), label=label)


def _draw_data(axis: Axes, x: Array, y: Array, ends: Sequence[Array], latent: xr.Dataset) -> None:
    """Draw data, or the ends of intervals, with circles around support vectors."""
    exact = ends[0] == ends[1]
    axis.plot(x[exact], y[exact], "o", ms=3, color="0.45", label="data")
    for end, mark, label in zip(ends, "^v", ("lower end", "upper end"), strict=True) if not exact.all() else ():
        rows = ~exact & np.isfinite(end)
        axis.plot(x[rows], end[rows], mark, ms=4, mfc="none", color="0.45", label=label)
    kinds = ((1, _OFF_BOUND, "off-bound support vector"), (2, _ON_BOUND, "on-bound support vector"))
    for kind, colour, label in kinds if "support" in latent else ():
        chosen = latent["support"].values == kind
        axis.plot(x[chosen], y[chosen], "o", ms=7, mfc="none", mec=colour, label=label)


def _tube(result: xr.DataTree, model: pm.Model | None) -> float:
    """Return the half-width of the tube; 0 for draws, and for noise without a tube."""
    if is_sampled(result):
        return 0.0
    fitted = Judged(result, model)
    noise = fitted.problem.noise_at(fitted.points[0])
    half = np.asarray(noise.parameters.get("epsilon", 0.0))
    return float(half) if half.ndim == 0 and noise.name != "huber" else 0.0


def _draw_against(axis: Axes, seen: xr.Dataset, ends: Sequence[Array]) -> None:
    """Draw exact data, or the finite ends of intervals, against their predictions."""
    low, high = (seen["y_quantile"].sel(quantile=q, method="nearest").values for q in (0.1, 0.9))
    mean = seen["y_mean"].values
    # The interval is drawn at its prediction; a target outside it, or an interval that does not meet it, is marked.
    exact, outside = ends[0] == ends[1], (ends[1] < low) | (ends[0] > high)
    axis.vlines(mean, low, high, color=_BAND, alpha=0.25, lw=1, label="80 % of y")
    for chosen, colour, label in ((~outside, _INK, "inside"), (outside, _OFF_BOUND, "outside")):
        axis.plot(mean[chosen & exact], ends[0][chosen & exact], "o", ms=3, color=colour, label=label)
        for end, mark in zip(ends, "^v", strict=True):
            rows = chosen & ~exact & np.isfinite(end)
            axis.plot(mean[rows], end[rows], mark, ms=4, mfc="none", color=colour)
    known = np.concatenate([mean, *(end[np.isfinite(end)] for end in ends)])
    whole = [known.min(), known.max()]
    axis.plot(whole, whole, color="0.6", lw=0.8, zorder=0)


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

    Parameters
    ----------
    along : dict
        A hyperparameter with increasing values at which the evidence is evaluated; all entries of a vector have the
        same value.
    hyperparameters : dict, optional
        Values of the other hyperparameters; a number for the one in ``along`` is marked.
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
    problem = read_model(model)
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
        """Return the log evidences, NaN where the method did not converge, and their standard errors."""
        points = (centre | {name: np.full(problem.shape_of(name), x)} for x in at)
        found = [evidence_at(problem, point, method, generator(random_seed)) for point in points]
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
        axis.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_locator=NullLocator())
    axis.set(xlabel=name, ylabel="log evidence")
    axis.legend(fontsize="small", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_effect(
    estimator: object,
    X: ArrayLike | pd.DataFrame,
    features: Column | tuple[Column, Column] | list[Column | tuple[Column, Column]],
    *,
    target: str = "f",
    **options: Any,
) -> Figure:
    """Plot the effects of columns on the function of a fit, with joint bands and shares of the variance.

    Parameters
    ----------
    estimator, X
        As in `effect`: a fitted estimator or a result, and rows over which its function is averaged.
    features : str, int, tuple of two, or a list of them
        Columns by name or number, one panel for each; a tuple is two columns together.
    target : str
        Name of the target on the axes.
    **options
        Options of `effect`: ``model``, ``values``, ``rows``, ``coverage``, and ``ice``, the number of rows drawn as
        thin lines.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each feature; docs/how-to/effects.md shows the kinds.

    Raises
    ------
    ValueError, TypeError, MemoryError
        As in `effect`; ValueError if there is no feature.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> svr = bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1).fit(X, X[:, 0] * X[:, 1])
    >>> figure = bp.plot_effect(svr, X, [0, (0, 1)], ice=5, target="y")
    >>> [axis.get_ylabel() for axis in figure.axes[:2]]
    ['effect on y', 'x1']
    """
    chosen = features if isinstance(features, list) else [features]
    if not chosen:
        raise ValueError("features must have at least one column of X, got []")
    tables = [effect(estimator, X, feature, **options).rename_axis(index=_plain) for feature in chosen]
    target = _plain(target)
    figure, axes = _panels(len(tables), min(len(tables), _IN_A_ROW), (3.4, 3.2))
    first = None
    for axis, table in zip(axes, tables, strict=True):
        if table.index.nlevels == 2 and not any(_has_words(each) or len(each) == 1 for each in table.index.levels):
            _draw_contours(axis, table, target)
            continue
        _draw_curves(axis, table)
        axis.set_title(f"share {table.attrs['share']:.2f}", fontsize="small")
        axis.set_ylabel(f"effect on {target}")
        first = first or axis
        axis.sharey(first)
    return figure


def plot_warping(estimator: object) -> Figure:
    """Plot the learned scales of the inputs of a fit, with ticks at the training rows.

    Parameters
    ----------
    estimator : BayesianSVR, BayesianSVC or BayesianOrdinalSVC
        A fitted estimator whose kernel has scales of inputs.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each input with a scale: the given input against the input on the scale of the kernel, in standard
        deviations. A straight line is an unchanged input.

    Raises
    ------
    TypeError, ValueError
        If it is another estimator, has no such input, or has more than two classes without an order.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).lognormal(size=(60, 2))
    >>> svr = bp.BayesianSVR(kernel="main_effects", inference="mean_field", restarts=1).fit(X, np.log(X[:, 0]))
    >>> [axis.get_xlabel() for axis in bp.plot_warping(svr).axes]
    ['x0', 'x1']
    """
    if not isinstance(estimator, OfStandardModel):
        raise TypeError(f"estimator must be a BayesianSVR, SVC or OrdinalSVC, got {type(estimator).__name__}")
    scales = estimator._inputs_on_scales()
    if not scales:
        raise ValueError("estimator must have inputs with a scale, and its warping_ is empty")
    figure, axes = _panels(len(scales), min(len(scales), _IN_A_ROW), (2.6, 2.4))
    for axis, (name, (given, scaled)) in zip(axes, scales.items(), strict=True):
        order = np.argsort(given)
        axis.plot(given[order], scaled[order], color=_INK, lw=1.6)
        axis.plot(given, np.zeros(len(given)), "|", color="0.4", transform=axis.get_xaxis_transform(), clip_on=False)
        axis.set(xlabel=_plain(name), ylabel="learned scale")
    return figure


def _has_words(values: pd.Index) -> bool:
    """Return whether values are words or booleans instead of numbers or dates."""
    return values.dtype.kind not in "iufM"


def _plain(name: object) -> str:
    """Return text that Matplotlib shows as it is, without formulas, and also where it begins with _ in a legend."""
    return re.sub("^_", "\u200b_", str(name)).replace("$", r"\$")


def _draw_curves(axis: Axes, table: pd.DataFrame) -> None:
    """Draw the effect of one column; or of two, a curve for each word, or the single value, of one of them."""
    if table.index.nlevels == 2:
        first, second = table.index.levels
        last = len(first) > 1 and (_has_words(second) or len(second) == 1)
        along, by = table.index.names if last else table.index.names[::-1]
        words = table.index.unique(by)
        for i, (word, colour) in enumerate(zip(words, cycle(_WORDS), strict=False)):
            _draw_curve(axis, table.xs(word, level=by), colour, _plain(word), 0.8 * ((i + 0.5) / len(words) - 0.5))
        axis.legend(title=by, fontsize="small")
        axis.set_xlabel(along)
        return
    axis.set_xlabel(table.index.name)
    at = np.arange(len(table)) if _has_words(table.index) else table.index
    for curve in table.filter(regex=r"^row \d+$"):
        axis.plot(at, table[curve], color="0.6", lw=0.6, alpha=0.7)
    if _has_words(table.index):
        base = table["mean"].mean()
        axis.bar(at, table["mean"] - base, 0.6, base, color=_BAND, alpha=0.4)
        axis.axhline(base, color="0.6", lw=0.8)
    else:
        axis.plot(at, np.zeros(len(at)), "|", color="0.4", transform=axis.get_xaxis_transform(), clip_on=False)
    _draw_curve(axis, table, _INK)


def _draw_curve(axis: Axes, table: pd.DataFrame, colour: str, label: str | None = None, shift: float = 0.0) -> None:
    """Draw mean and band: a curve, or error bars of words, shifted by a part of their distance."""
    if _has_words(table.index):
        at = np.arange(len(table))
        reach = table["upper"] - table["mean"]
        axis.errorbar(at + shift, table["mean"], reach, fmt="o", color=colour, ms=4, capsize=3, label=label)
        axis.set_xticks(at, [_plain(word) for word in table.index], rotation=0 if len(at) < 4 else 60)
        return
    axis.fill_between(table.index, table["lower"], table["upper"], color=colour, alpha=0.25, lw=0)
    axis.plot(table.index, table["mean"], color=colour, lw=1.6, label=label)
    _name_dates(axis.xaxis, table.index)


def _draw_contours(axis: Axes, table: pd.DataFrame, target: str) -> None:
    """Draw filled contours of the mean, and lines of the standard deviation."""
    first, second = table.index.names
    mean, sd = (table[name].unstack(first) for name in ("mean", "sd"))
    filled = axis.contourf(mean.columns, mean.index, mean, levels=12)
    axis.clabel(axis.contour(sd.columns, sd.index, sd, levels=4, colors="white", linewidths=0.8), fontsize="x-small")
    axis.figure.colorbar(filled, ax=axis, label=f"effect on {target} (lines: its sd)")
    axis.set(xlabel=first, ylabel=second)
    _name_dates(axis.xaxis, mean.columns)
    _name_dates(axis.yaxis, mean.index)


def _name_dates(axis: Axis, values: pd.Index) -> None:
    """Write short dates on the clock of their zone, if the values are dates."""
    if values.dtype.kind == "M":
        zone = getattr(values, "tz", None)
        axis.set_major_locator(AutoDateLocator(zone, minticks=3, maxticks=7))
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator(), zone))


def hyperparameters_picture(results: Mapping[str, xr.DataTree], names: Mapping[str, Sequence[str]]) -> Figure:
    """Plot median and central 50 % and 90 % of hyperparameters; ``names`` has names of entries of vectors."""
    drawn = {method: hyperparameter_draws(result) for method, result in results.items()}
    named = {f"{name}[{i}]": f"{name} {_plain(each)}" for name in names for i, each in enumerate(names[name])}
    entries = list(next(iter(drawn.values())))
    height = 0.9 + len(entries) * (0.16 * len(drawn) + 0.22)
    figure, axis = plt.subplots(figsize=(7.0, height), layout="constrained")
    for i, (method, colour) in enumerate(_colours(results).items()):
        for row, entry in enumerate(entries):
            low, left, middle, right, high = np.quantile(drawn[method][entry], (0.05, 0.25, 0.5, 0.75, 0.95))
            at = row + 0.7 * ((i + 0.5) / len(drawn) - 0.5)
            axis.plot([low, high], [at, at], color=colour, lw=1)
            axis.plot([left, right], [at, at], color=colour, lw=3)
            axis.plot(middle, at, "o", color=colour, ms=5, label=method if row == 0 else None)
    axis.set_yticks(range(len(entries)), [named.get(entry, in_words(entry)) for entry in entries])
    axis.invert_yaxis()
    if all((x > 0).all() for found in drawn.values() for x in found.values()):
        axis.set_xscale("log")
    figure.legend(loc="outside upper center", ncols=min(len(drawn), 4), fontsize="small", frameon=False)
    return figure


def calibration_picture(
    results: Mapping[str, xr.DataTree], X_test: ArrayLike, y_test: ArrayLike, model: pm.Model
) -> PlotCollection:
    """Plot observed minus predicted shares of quantiles (top) and central intervals (bottom), a column per result."""
    pit = {name: predict(result, X_test, model=model, y_new=y_test)["y_cdf"] for name, result in results.items()}
    shares = {f"{name}\nquantiles": u for name, u in pit.items()}
    shares |= {f"{name}\nintervals": abs(2 * u - 1) for name, u in pit.items()}
    picture = az.plot_ecdf_pit(
        xr.DataTree.from_dict({"calibration": xr.Dataset(shares)}),
        group="calibration",
        sample_dims=["obs_new"],
        envelope_prob=0.95,
        visuals={"xlabel": {"text": "predicted share"}, "ylabel": {"text": "observed − predicted"}},
        col_wrap=len(pit),
        figure_kwargs=dict(figsize=(max(2.7 * len(pit), 4.0), 5.6), sharex=True, sharey=True, layout="constrained"),
    )
    # ArviZ sets the limits of each panel, and those of the last would hold for all.
    axes = picture.viz["figure"].item().axes
    axes[0].autoscale(axis="y")
    axes[0].margins(y=0.2)
    for text in (text for axis in axes for text in axis.texts):  # p-values, outside the new limits
        text.set(y=axes[0].get_ylim()[1], verticalalignment="top")
    return picture


def _colours(names: Iterable[str]) -> dict[str, str]:
    """Assign a colour to every name of a method, in the order of the results."""
    wanted = list(names)
    free = cycle([colour for method, colour in _METHODS.items() if method not in wanted] or _METHODS.values())
    return {name: _METHODS.get(name) or next(free) for name in wanted}

"""Plots of partial dependence: curves with bands, bars of words, and contours of two columns."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from bsvr_pp.assess.partial_dependence import Column, effect
from bsvr_pp.show.plots import BAND, INK

_IN_A_ROW = 4  # panels
_WORDS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")  # Paul Tol's bright scheme


def plot_effect(
    estimator: Any,
    X: Any,
    features: Column | tuple[Column, Column] | list[Column | tuple[Column, Column]],
    *,
    target: str = "f",
    **options: Any,
) -> Figure:
    """Plot what columns of a table do to the function of a fit, with joint bands and shares of its variance.

    Parameters
    ----------
    estimator, X
        As in `effect`: a fitted estimator or a result, and rows over which its function is averaged.
    features : str, int, tuple of two, or a list of them
        Columns by name or number, a panel each; a tuple is two columns together.
    target : str
        Name of what the effects are on.
    **options
        Options of `effect`: ``model``, ``values``, ``rows``, ``coverage``, ``random_seed``, and ``ice``, the number of
        rows whose own curves are thin lines.

    Returns
    -------
    matplotlib.figure.Figure
        Of numbers and dates a curve with its band, and ticks at the values; of words and booleans bars from the mean of
        the panel, with the band as error bars; of two columns of numbers or dates filled contours of the mean, and
        lines of equal standard deviation; of others a curve for each word.

    Raises
    ------
    ValueError, TypeError, MemoryError
        As in `effect`; ValueError if there is no feature.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> svr = bp.LSSVR().fit(X, X[:, 0] * X[:, 1])
    >>> figure = bp.plot_effect(svr, X, [0, (0, 1)], ice=5, target="y")
    >>> [axis.get_ylabel() for axis in figure.axes[:2]]
    ['effect on y', 'x1']
    """
    chosen = features if isinstance(features, list) else [features]
    if not chosen:
        raise ValueError("features must have at least one column of X, got []")
    tables = [effect(estimator, X, feature, **options) for feature in chosen]
    columns = min(len(tables), _IN_A_ROW)
    lines = -(-len(tables) // columns)
    size = (3.4 * columns, 3.2 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    first = None
    for axis, table in zip(axes.flat, tables, strict=False):
        if table.index.nlevels == 2 and not any(map(_has_words, table.index.levels)):
            _draw_contours(axis, table, target)
            continue
        _draw_curves(axis, table)
        axis.set_title(f"share {table.attrs['share']:.2f}", fontsize="small")
        axis.set_ylabel(f"effect on {target}")
        first = first or axis
        axis.sharey(first)
    for axis in axes.flat[len(tables) :]:
        axis.set_axis_off()
    return figure


def _has_words(values: pd.Index) -> bool:
    """Whether values are words or booleans, and not numbers or dates."""
    return values.dtype.kind not in "iufM"


def _draw_curves(axis: Axes, table: pd.DataFrame) -> None:
    """The effect of a column; or of two, a curve for each word of the second, or of the only one with words."""
    if table.index.nlevels == 2:
        along, by = table.index.names if _has_words(table.index.levels[1]) else table.index.names[::-1]
        words = table.index.unique(by)
        for i, (word, colour) in enumerate(zip(words, cycle(_WORDS), strict=False)):
            _draw_curve(axis, table.xs(word, level=by), colour, str(word), 0.8 * ((i + 0.5) / len(words) - 0.5))
        axis.legend(title=by, fontsize="small")
        axis.set_xlabel(along)
        return
    axis.set_xlabel(table.index.name)
    at = np.arange(len(table)) if _has_words(table.index) else table.index
    for curve in table.filter(regex=r"^row \d+$"):
        axis.plot(at, table[curve], color="0.6", lw=0.6, alpha=0.7)
    if _has_words(table.index):
        base = table["mean"].mean()
        axis.bar(at, table["mean"] - base, 0.6, base, color=BAND, alpha=0.4)
        axis.axhline(base, color="0.6", lw=0.8)
    else:
        axis.plot(at, np.zeros(len(at)), "|", color="0.4", transform=axis.get_xaxis_transform(), clip_on=False)
    _draw_curve(axis, table, INK)


def _draw_curve(axis: Axes, table: pd.DataFrame, colour: str, label: str | None = None, shift: float = 0.0) -> None:
    """Mean and band: a curve, or error bars of words, moved by a part of their distance."""
    if _has_words(table.index):
        at = np.arange(len(table))
        reach = table["upper"] - table["mean"]
        axis.errorbar(at + shift, table["mean"], reach, fmt="o", color=colour, ms=4, capsize=3, label=label)
        axis.set_xticks(at, table.index.astype(str), rotation=0 if len(at) < 4 else 60)
        return
    axis.fill_between(table.index, table["lower"], table["upper"], color=colour, alpha=0.25, lw=0)
    axis.plot(table.index, table["mean"], color=colour, lw=1.6, label=label)
    _name_dates(axis.xaxis, table.index)


def _draw_contours(axis: Axes, table: pd.DataFrame, target: str) -> None:
    """Filled contours of the mean, and lines of the standard deviation."""
    first, second = table.index.names
    mean, sd = (table[name].unstack(first) for name in ("mean", "sd"))
    filled = axis.contourf(mean.columns, mean.index, mean, levels=12)
    axis.clabel(axis.contour(sd.columns, sd.index, sd, levels=4, colors="white", linewidths=0.8), fontsize="x-small")
    axis.figure.colorbar(filled, ax=axis, label=f"effect on {target} (lines: its sd)")
    axis.set(xlabel=first, ylabel=second)
    _name_dates(axis.xaxis, mean.columns)
    _name_dates(axis.yaxis, mean.index)


def _name_dates(axis: Axis, values: pd.Index) -> None:
    """Short names of dates, if the values are dates."""
    if values.dtype.kind == "M":
        axis.set_major_locator(AutoDateLocator(minticks=3, maxticks=7))
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))

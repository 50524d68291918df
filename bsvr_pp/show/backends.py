"""Drawing on a `PlotCollection` of ArviZ in any of its backends: matplotlib, bokeh, plotly, or none (data alone)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from arviz_base import rcParams
from arviz_plots import PlotCollection

__all__ = ["backend_of", "drawing", "merged"]


def backend_of(plot_collection: PlotCollection | None, backend: str | None) -> str:
    """Return the backend of a plot: the given one, that of the collection, or the default of ArviZ."""
    if backend is not None:
        return backend
    return str(rcParams["plot.backend"] if plot_collection is None else plot_collection.backend)


def drawing(picture: PlotCollection) -> Any:
    """Return the functions of ArviZ that draw on the targets of a collection."""
    return import_module(f"arviz_plots.backend.{picture.backend}")


def merged(given: Mapping[str, Any], figure: Mapping[str, Any], backend: str, **defaults: Any) -> dict[str, Any]:
    """Options of a `PlotCollection`: those given, and defaults; matplotlib also arranges the figure by itself."""
    layout = {"layout": "constrained"} if backend == "matplotlib" else {}
    figure_kwargs = {**layout, **figure, **given.get("figure_kwargs", {})}
    return {**defaults, **given, "figure_kwargs": figure_kwargs}

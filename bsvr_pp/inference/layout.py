"""Names of the dimensions of a result, and their coordinates: those of the model, where the user gave any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pytensor.graph.traversal import ancestors

from bsvr_pp.model.gp import processes_of
from bsvr_pp.model.problem import Point, Problem

__all__ = ["Layout", "latent_draws", "layout_of", "row_of"]

Array = NDArray[np.float64]

_ROW = "obs"  # dimension of the training points, if the model has no name for it


class Layout(NamedTuple):
    """Names of dimensions and their coordinates.

    ``row`` is the dimension of the training points: that of the targets in the model, else of f, else of the inputs,
    else "obs". ``dims`` are those of each variable that has named ones, without chain and draw.
    """

    row: str
    dims: Mapping[str, list[str]]
    coords: Mapping[str, Any]

    def dataset(self, values: Mapping[str, Any], before: tuple[str, ...] = ()) -> xr.Dataset:
        """Data set of arrays whose dimensions are ``before``, and then those of the variable of that name."""
        made: dict[str, Any] = {}
        for name, value in values.items():
            array = np.asarray(value)
            inner = array.ndim - len(before)
            own = self.dims.get(name, [f"{name}_dim_{i}" for i in range(inner)])
            made[name] = ((*before, *own), array)
        used = {dim for dims, _ in made.values() for dim in dims}
        return xr.Dataset(made, coords={dim: at for dim, at in self.coords.items() if dim in used})


def layout_of(problem: Problem) -> Layout:
    """Names of the dimensions of a model, for a result on the data of a problem."""
    model, prior, n = problem.model, problem.prior, problem.targets.size
    known, named = coords_and_dims_for_inferencedata(model)
    dims = {name: each for name, each in named.items() if None not in each}
    inputs = dims.get(str(getattr(problem.X, "name", None)), [])
    candidates = (dims.get(problem.target, []), dims.get(prior.name, []), inputs[:1])
    row = next((each[0] for each in candidates if len(each) == 1), _ROW)
    processes = processes_of(model)
    # Computed from f point by point, as far as its shape tells.
    pointwise = [v.name for v in model.deterministics if v.ndim == 1 and set(processes) & set(ancestors([v]))]
    inner = [name for f, p in processes.items() for name in (f.name, p.whitened) if name is not None]
    by_row = [problem.target, prior.name, *(name for name in (*inner, *pointwise) if name not in dims)]
    dims |= {name: [row] for name in by_row}
    dims["X"] = inputs if len(inputs) == 2 else [row, "input"]
    sizes = {row: n} | dict(zip(dims["X"], (n, problem.n_inputs), strict=True))
    coords = {dim: at for dim, at in known.items() if len(at) == sizes.get(dim, len(at))}
    return Layout(row, dims, {row: np.arange(n)} | coords)


def row_of(result: xr.DataTree) -> str:
    """Dimension of the training points of a result."""
    held = result["latent_posterior"].to_dataset() if "latent_posterior" in result.children else xr.Dataset()
    return str(next(iter(held.data_vars.values())).dims[-1]) if held.data_vars else _ROW


def latent_draws(result: xr.DataTree) -> Array:
    """Draws (draws, n) of the latent function of a result."""
    posterior, row = result["posterior"].to_dataset(), row_of(result)
    name = result.attrs.get("latent")
    if name is None:  # a tree that was not made by `fit`
        name = min((str(v) for v in posterior.data_vars if row in posterior[v].dims), key=len)
    values: Array = posterior[name].values
    return values.reshape(-1, values.shape[-1])


def points_of(posterior: xr.Dataset, names: Iterable[str]) -> list[Point]:
    """The hyperparameters of each draw, chain after chain."""
    flat = {name: posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in names}
    return [
        {name: values[s] for name, values in flat.items()}
        for s in range(posterior.sizes["chain"] * posterior.sizes["draw"])
    ]

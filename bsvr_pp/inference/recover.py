"""The latent function given draws of the hyperparameters, after it was integrated out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pymc.model.fgraph import clone_model
from pytensor.compile.sharedvalue import SharedVariable
from rich.progress import track

from bsvr_pp.core.arrays import Array, Values, generator
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.parts import draw_latents
from bsvr_pp.inference.prediction.component import Member, component, new_rows
from bsvr_pp.inference.result import check_draws, check_same, dim_of_new_rows, layout_of, points_of, with_missing
from bsvr_pp.model.gaussian import value_of
from bsvr_pp.model.gp import copy_model, share_data
from bsvr_pp.model.marginalize import Integrator, source_of
from bsvr_pp.model.problem import Point, Problem, check_labels
from bsvr_pp.model.reader import read_model


@shared
def recover_latent(
    samples: xr.DataTree,
    *,
    model: pm.Model,
    X_new: ArrayLike | None = None,
    data: Mapping[str, ArrayLike] | None = None,
    dims: str | Sequence[str] = "obs_new",
    coords: Mapping[str, Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    """Draw the latent function for every draw of the hyperparameters.

    Parameters
    ----------
    samples : DataTree
        Result of `pm.sample` (or any other sampler) on a model of `marginalize`.
    model : pm.Model
        That model.
    X_new : (n_new, d) array, optional
        New inputs at which the latent function is drawn as well, jointly in each block. Given the hyperparameters,
        these draws are independent of those at the training inputs. Memory and time grow as the square and the cube of
        the number of rows; rows of several calls are independent of each other.
    data, dims, coords
        As in `bp.predict`; of the data only those on which f depends.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same draws.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    DataTree
        The samples with additions. ``posterior`` has f, its Deterministics and ``f_new``, or ``mu_new`` of a location
        with other parts. ``log_likelihood`` has the pointwise log p(y_i|f_i). ``leave_one_out`` has log p(y_i|y_-i,
        hyperparameters) from the cavities. ``latent_draws`` has dual_coef, site_precision and the log evidence of each
        draw.

    Raises
    ------
    ModelError
        If the model was not made by `marginalize`.
    ValueError
        If the samples lack a hyperparameter of the model or have its labels in another order, or X_new, data, dims or
        coords do not fit it.
    MemoryError
        If there are too many new inputs.
    TypeError
        If samples is not a DataTree with a posterior, or model is not a model.

    <pymc_model>
    >>> import xarray as xr
    >>> marginal = bp.marginalize(bp.MeanField(), model)
    >>> draws = xr.Dataset({"C": (("chain", "draw"), [[5.0, 8.0, 10.0]])})
    >>> samples = xr.DataTree.from_dict({"posterior": draws})
    >>> bp.recover_latent(samples, model=marginal, progressbar=False)["posterior"]["f"].shape
    (1, 3, 12)
    """
    if not isinstance(samples, xr.DataTree) or "posterior" not in samples.children:
        raise TypeError(f"samples must be a DataTree with a group posterior, got {type(samples).__name__}")
    check_draws("samples", samples)
    record = source_of(model)
    _check_data(samples, model)
    problem = read_model(share_data(copy_model(record.problem.model, clone_model), model))
    first = samples["posterior"].to_dataset().isel(chain=0, draw=0)
    for name in problem.hyperparameters:
        check_labels(f"{name} of samples", problem.model, name, first.get(name))
    new = None
    if X_new is not None or data:
        X, taken = new_rows(problem, X_new, data), {"chain", "draw", *problem.model.coords}
        new = X, *dim_of_new_rows(len(X), taken, dims=dims, coords=coords)
    return recover(problem, samples, record.method, generator(random_seed), progressbar, new)


def recover(
    problem: Problem,
    samples: xr.DataTree,
    method: Integrator,
    rng: np.random.Generator,
    progressbar: bool,
    at_new: tuple[Array, str, Values] | None = None,
) -> xr.DataTree:
    """Compute `recover_latent` for a problem; new rows have a dimension and its coordinate."""
    posterior = samples["posterior"].to_dataset()
    missing = [name for name in problem.hyperparameters if name not in posterior.data_vars]
    if missing:
        raise ValueError(f"samples must have the hyperparameter {missing[0]!r} of the model")
    draws = {dim: posterior[dim] for dim in ("chain", "draw")}
    posterior = posterior.assign_coords(draws)
    latent, new = problem.prior.name, f"{problem.prior.name}_new"
    groups: dict[str, list[Point]] = defaultdict(list)  # values of each draw
    points, kept = points_of(posterior, problem.hyperparameters), {*problem.model.named_vars, new}
    last: Point | None = None
    for point in track(points, description="latent function", disable=not progressbar, transient=True):
        if last is None or any(not np.array_equal(point[name], last[name]) for name in point):
            K, mean, noise = problem.at(point)
            found, last = method.solve(K, problem.targets, noise, mean), point
            log_loo = found.log_loo(problem.targets, noise)
        drawn = with_missing(problem, point, draw_latents(problem, point, found, 1, rng), rng)
        drawn = {name: values[0] for name, values in drawn.items()}
        if at_new is not None:
            member = Member(point, found.dual_coef, found.site_precision)
            at_point = component(problem, member, predict=found.predict)
            new_mean, variance, _ = at_point.moments(at_new[0])
            drawn[new] = new_mean + np.where(variance > 0.0, at_point.deviations(at_new[0], 1, rng)[0], 0.0)
        groups["posterior"].append({name: values for name, values in drawn.items() if name in kept})
        groups["log_likelihood"].append({problem.target: noise.log_likelihood(problem.targets, drawn[latent])})
        groups["leave_one_out"].append({problem.target: log_loo})
        vectors = {name: np.asarray(getattr(found, name)) for name in ("dual_coef", "site_precision", "log_evidence")}
        groups["latent_draws"].append(vectors)

    layout = layout_of(problem)
    dims, labels = {**layout.dims, "dual_coef": [layout.row], "site_precision": [layout.row]}, dict(layout.coords)
    if at_new is not None:
        dims[new], labels[at_new[1]] = [at_new[1]], at_new[2]
    layout = layout._replace(dims=dims, coords=labels)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]

    out = samples.copy()
    for group, values in groups.items():
        arrays = {k: np.reshape([each[k] for each in values], (*shape, *np.shape(at))) for k, at in values[0].items()}
        data = layout.dataset(arrays, ("chain", "draw")).assign_coords(draws)
        out[group] = xr.DataTree(posterior.assign(data.variables) if group == "posterior" else data)
    return out


def _check_data(samples: xr.DataTree, model: pm.Model) -> None:
    shared = {name: v.get_value() for name, v in model.named_vars.items() if isinstance(v, SharedVariable)}
    observed = {v.name: value_of(model.rvs_to_values[v]) for v in model.observed_RVs}
    for group, present in (("constant_data", shared), ("observed_data", observed)):
        held = samples[group].to_dataset() if group in samples.children else xr.Dataset()
        for name in held.keys() & present.keys():
            check_same(
                f"samples were drawn with other values of {name} than the model has", held[name].values, present[name]
            )

"""The schema of all results: an `xarray.DataTree` that ArviZ reads directly and that can be saved as netCDF.

`docs/api/index.md` lists groups and attributes of the root. All groups with draws have the same chains and draws, and
the dimensions and coordinates of the model, or PyMC's defaults such as ``f_dim_0``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pytensor.graph.traversal import ancestors

from bsvr_pp.core import __version__
from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.core.approximations.mode import duality_gap
from bsvr_pp.core.approximations.posterior import from_sites
from bsvr_pp.core.arrays import Array, ModelError, Values, check_fields, numbers
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import IntervalNoise
from bsvr_pp.inference.parts import draw_latents, moments_of_parts, names_of_latents, sum_of_parts
from bsvr_pp.inference.search.optimize import OF_OPTIMUM, Optimum
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks, Partition
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.reader import read_model
from bsvr_pp.model.row_kinds import missing_name

_ONE_POINT = "hyperparameters are one point, equal in all draws of f: ESS, R-hat and MCSE have no meaning"
_DRAWS = 500  # number of draws of f from a Gaussian approximation, and of new targets,
_FEWEST, _NUMBERS = 20, 2_000_000  # fewer with many rows: about this many numbers
_SAME, _ROUNDING = 1e-5, 1e-10  # tolerances of a second computation, of the largest value and of the terms of K·a


def check_result(name: str, result: object) -> None:
    """Check that an object is a result of this package for a model that all methods accept."""
    if not isinstance(result, xr.DataTree) or "inference" not in result.attrs:
        other = ": draws of bp.marginalize have bp.recover_latent(X_new=...)" if isinstance(result, xr.DataTree) else ""
        if hasattr(result, "predict"):
            other = ": call its own methods, such as predict; cross_val_predict of scikit-learn leaves rows out"
        raise TypeError(f"{name} must be a result of fit, got {type(result).__name__}{other}")
    if "other_methods" in result.attrs:
        raise ModelError(
            f"{name} is one for PyMC and ArviZ, such as pm.sample_posterior_predictive and az.loo: other methods "
            f"{result.attrs['other_methods']}"
        )
    check_draws(name, result)


def check_draws(name: str, samples: xr.DataTree) -> None:
    """Check that draws of all groups have the dimensions chain and draw first."""
    for group, node in samples.children.items():
        for label, values in node.data_vars.items():
            if values.dims[:2] != (first := ("chain", "draw")) and set(first) <= set(values.dims):
                got = ", ".join(map(str, values.dims))
                raise ValueError(f"{name} has {label} in {group} over ({got}): transpose('chain', 'draw', ...)")


def problem_of(result: xr.DataTree, model: pm.Model | None, name: str = "result") -> Problem:
    """Read the model of a result; if f was sampled, potentials and variables may depend on it."""
    check_result(name, result)
    latent = result["latent_posterior"].to_dataset() if "latent_posterior" in result.children else xr.Dataset()
    return read_model(model, samples_f="dual_coef" not in latent and "latent_draws" not in result.children)


def is_sampled(result: xr.DataTree) -> bool:
    """Return whether a result has draws from the posterior, instead of f at one point of the hyperparameters."""
    return "dual_coef" not in result["latent_posterior"].to_dataset()


def is_mode(result: xr.DataTree) -> bool:
    """Return whether f is only the mode of its posterior."""
    return not is_sampled(result) and not result["latent_posterior"].to_dataset()["variance"].values.any()


def check_results(results: object) -> None:
    """Check that an object is a dict with at least one result."""
    if not isinstance(results, Mapping):
        raise TypeError(f"results must be a dict from names to results, got {type(results).__name__}")
    if not results:
        raise ValueError("results must hold at least one result")
    for name, result in results.items():
        check_result(f"results[{name!r}]", result)


def check_match(problem: Problem, result: xr.DataTree, name: str = "result") -> None:
    """Check that a result was computed from this model with its current data; the result has a copy of them."""
    check_result(name, result)
    posterior = result["posterior"].to_dataset()
    complete = "loss" in result.attrs  # from `fit`; other trees may have only the hyperparameters
    held_in = dict.fromkeys(problem.hyperparameters, "posterior") | (
        {problem.prior.name: _group_of_mu(result)} if complete else {}
    )
    for variable, group in held_in.items():
        if variable not in result[group]:
            raise ValueError(f"{name} has no variable {variable!r}: is it of this model?")
    for variable in problem.hyperparameters:
        shape, asked = posterior[variable].shape[2:], problem.shape_of(variable)
        if shape != asked:
            raise ValueError(f"{name} has {variable} of shape {shape} and the model {asked}: is it of this model?")
    if complete and latent_draws(result).shape[1] != problem.targets.size:
        raise ValueError(f"{name} and model have different numbers of training points")
    loss = result.attrs.get("loss", problem.loss.name)
    if loss != problem.loss.name:
        raise ValueError(f"{name} has {loss} noise and the model {problem.loss.name}: is it of this model?")
    if complete and result.attrs.get("targets", "exact") != problem.ends.kind.known:
        raise ValueError(
            f"{name} has other targets (intervals, classes or numbers) than the model: is it of this model?"
        )
    if complete:
        _check_vectors(problem, result, name)
    blocks = problem.blocks.label_of(problem.targets.size)
    inputs = problem.inputs[:, : problem.n_inputs]
    present: dict[str, Values] = {"inputs": inputs, "targets": problem.targets, "blocks": blocks}
    others = other_data(problem)
    present |= _ends(problem.given_ends() | others) | {f"values of {label}": value for label, value in others.items()}
    held = data_of(result)
    if complete:
        constant = result["constant_data"].to_dataset()
        held |= {f"values of {label}": array.values for label, array in constant.items()}
    for label, value in held.items():
        if label in present:  # ends of the model may depend on its hyperparameters
            check_same(f"{name} was computed with other {label} than the model has", value, present[label])
    if complete:
        _check_functions(problem, result, name)


def _check_functions(problem: Problem, result: xr.DataTree, name: str) -> None:
    """Check that kernel, mean and noise of a model give what a result has at its first point, in its first block."""
    own, rows = problem.part(0), problem.blocks.rows(0)
    (point,) = points_of(result["posterior"].to_dataset().isel(chain=[0], draw=[0]), problem.hyperparameters)
    K, mean, noise = own.dense_at(point)

    def first(group: str, variable: str) -> Array:
        return np.reshape(result[group].to_dataset()[variable].values, (-1, problem.targets.size))[0, rows]

    f, white = first(_group_of_mu(result), problem.prior.name), str(problem.prior.whitened)
    same: dict[str, tuple[Array, Array, float]] = {}  # by the result, by the model, and another tolerance
    if "log_likelihood" in result.children:
        likelihood = noise.log_likelihood(own.targets, f)
        same["log likelihood of a draw at row {}"] = first("log_likelihood", problem.target), likelihood, 0.0
    if not is_sampled(result):
        dual, sd = first("latent_posterior", "dual_coef"), np.sqrt(K.diag)
        rounding = _ROUNDING * sd.max() * float(sd @ np.abs(dual))
        same["mean of f at row {}"] = first("latent_posterior", "mean"), mean + K.matvec(dual), rounding
        if is_mode(result):
            worst = float(result.attrs["duality_gap"])
            gap = duality_gap(K, own.targets, noise, dual, mean)
            same["relative duality gap"] = np.full(1, worst), np.full(1, gap), _SAME + worst
    elif "leave_one_out" in result.children:
        found = from_sites(K, mean, *(first("latent_draws", each) for each in ("dual_coef", "site_precision")))
        others = found.log_loo(own.targets, noise)
        same["log density given the others at row {}"] = first("leave_one_out", problem.target), others, 0.0
    elif white in result["posterior"]:
        same["f of a draw at row {}"] = f, mean + K.unwhiten(first("posterior", white)), 0.0
    for label, (held, present, tolerance) in same.items():
        excess = np.abs(held - present) - _SAME * np.abs(held).max() - tolerance
        if not (excess <= 0).all():
            i = int(np.argmax(excess))
            raise ValueError(
                f"{name} was computed with another kernel, mean or noise than the model has: the "
                f"{label.format(np.arange(problem.targets.size)[rows][i])} is {held[i]:.6g} by the result and "
                f"{present[i]:.6g} by the model"
            )


def _check_vectors(problem: Problem, result: xr.DataTree, name: str) -> None:
    """Check that a result has the vectors for predictions: finite numbers, one for each row."""
    gaussian = "duality_gap" in result.attrs  # from `from_latent`
    needed = {
        "posterior": [*problem.hyperparameters],
        "latent_posterior": ["dual_coef", "site_precision", "variance"] if gaussian else [],
    }
    needed.setdefault(_group_of_mu(result), []).append(problem.prior.name)
    # The vectors that predictions read.
    for group in ("posterior", "location", "latent_posterior", "latent_draws", "members"):
        held: dict[Hashable, xr.DataArray] = dict(result[group].data_vars) if group in result.children else {}
        wanted = {*needed.get(group, ()), *(() if group == "posterior" else held)}
        found = {label: array for label, array in held.items() if label in wanted}
        for label, array in check_fields(f"{group} of {name}", found, wanted).items():
            sizes = [problem.targets.size if axis == row_of(result) else size for axis, size in array.sizes.items()]
            given = array.values if array.dtype.kind in "iuf" else array.dtype
            numbers(f"{label} of {group} of {name}", given, tuple(sizes))


def data_of(result: xr.DataTree) -> dict[str, NDArray[Any]]:
    """Return inputs (n, d), targets (n,), block numbers (n,) and interval ends (n,) of a result, if present."""
    held: dict[str, NDArray[Any]] = {}
    if "loss" in result.attrs:
        constant = result["constant_data"].to_dataset()
        of_f, n = result["latent_posterior"].to_dataset(), latent_draws(result).shape[1]
        named = constant if "inputs" in result.attrs else of_f
        inputs = str(result.attrs.get("inputs", "inputs"))
        held["inputs"] = np.asarray(named[inputs]) if inputs in named else np.zeros((n, 0))
        held["blocks"] = blocks_of(result).label_of(n)
    if "observed_data" in result.children:
        (targets,) = result["observed_data"].to_dataset().data_vars.values()
        held["targets"] = targets.values
    if result.attrs.get("targets") in ("censored", "interval"):
        held |= _ends(result["constant_data"].to_dataset())
    return held


def _ends(constant: Mapping[str, ArrayLike] | xr.Dataset) -> dict[str, Values]:
    """Return ends among constant data, as `data_of` names them."""
    return {f"{side} ends": np.asarray(constant[side]) for side in ("lower", "upper") if side in constant}


def blocks_of(result: xr.DataTree) -> Partition:
    """Return the blocks of rows of a result."""
    if "blocks" not in result.children:
        return ONE_BLOCK
    return Blocks.from_arrays({str(name): array.values for name, array in result["blocks"].data_vars.items()})


def optima_of(problem: Problem, result: xr.DataTree) -> list[Optimum]:
    """Return end points of all starts of the optimiser, best first."""
    if "optima" not in result.children:  # all hyperparameters were given
        return []
    ends = result["optima"].to_dataset()
    points = points_of(ends, problem.hyperparameters, ["optimum"])
    each = zip(points, *(ends[name].values.tolist() for name in OF_OPTIMUM), strict=True)
    return [Optimum(point, value, bool(converged), message, count) for point, value, converged, message, count in each]


def hyperparameters_of(result: xr.DataTree) -> list[str]:
    """Return names of the hyperparameters of a result, without derived variables."""
    return list(json.loads(result.attrs["hyperparameters"]))


def shown_names(result: xr.DataTree) -> list[str]:
    """Return names of the hyperparameters to show: all, with Deterministics instead of their inverses."""
    names = sorted({*hyperparameters_of(result), *json.loads(result.attrs["derived"])})
    return [name for name in names if not (name.startswith("inverse_") and name.removeprefix("inverse_") in names)]


def row_of(result: xr.DataTree) -> str:
    """Return the dimension of the training points of a result."""
    return str(_mu(result).dims[-1])


def _group_of_mu(result: xr.DataTree) -> str:
    """Return the group with draws of the location of the targets: "location" if it is not a variable of the model."""
    return "location" if "location" in result.children else "posterior"


def _mu(result: xr.DataTree) -> xr.DataArray:
    return result[_group_of_mu(result)].to_dataset()[result.attrs["latent"]]


def latent_draws(result: xr.DataTree) -> Array:
    """Return draws (draws, n) of the latent function of a result."""
    values: Array = _mu(result).values
    return values.reshape(-1, values.shape[-1])


def points_of(data: xr.Dataset, names: Iterable[str], dims: Sequence[str] = ("chain", "draw")) -> list[Point]:
    """Return values of variables by name, such as hyperparameters, at each place of the leading dimensions."""
    count = prod(data.sizes[dim] for dim in dims)
    flat = {name: data[name].values.reshape(count, *data[name].shape[len(dims) :]) for name in names}
    return [{name: values[s] for name, values in flat.items()} for s in range(count)]


def check_same(difference: str, held: Values, present: Values) -> None:
    """Check that two arrays are equal; the error names the first row that differs."""
    if held.shape != present.shape:
        raise ValueError(f"{difference}: shape {held.shape}, not {present.shape}")
    differs = np.atleast_1d(held != present)
    rows = np.flatnonzero(differs.reshape(len(differs), -1).any(axis=1))
    if rows.size:
        raise ValueError(f"{difference}: {rows.size} of {len(differs)} rows differ, the first is row {rows[0]}")


def from_latent(
    problem: Problem,
    point: Point,
    posterior: LatentPosterior,
    optima: list[Optimum],
    attributes: Mapping[str, object],
    *,
    plug_in: bool,
    rng: np.random.Generator,
    draws: int | None = None,
) -> xr.DataTree:
    """Make the result of a Gaussian posterior of f at one point, with draws; with ``plug_in`` f is only its mode."""
    noise = problem.in_intervals(problem.noise_at(point), point)
    parts = draw_latents(problem, point, posterior, draws or draws_of(problem), None if plug_in else rng)
    parts = with_missing(problem, point, parts, rng)
    f = parts.pop(problem.prior.name)
    held = with_derived(problem, point).items()
    repeated = {name: np.broadcast_to(value, (1, len(f), *np.shape(value))) for name, value in held}
    zero = np.zeros_like(posterior.variance)
    latent = {
        "mean": posterior.mean,
        "variance": zero if plug_in else posterior.variance,
        "dual_coef": posterior.dual_coef,
        "site_precision": zero if plug_in else posterior.site_precision,
        **({"support": posterior.support} if posterior.support.size else {}),  # mean field does not compute the mode
    }
    tree = _tree(
        problem,
        noise,
        {**repeated, **{name: values[None] for name, values in parts.items()}, problem.prior.name: f[None]},
        None if plug_in else noise.log_likelihood(problem.targets, f)[None],
        _new_targets(noise, f, rng, problem.cutpoints_at(point))[None],
        latent,
        {**attributes, "n_iter": posterior.n_iter, "duality_gap": posterior.duality_gap, "note": _ONE_POINT},
    )
    each = {"converged": int(posterior.converged), "log_evidence": posterior.log_evidence}
    stats = {name: np.full((1, len(f)), value) for name, value in each.items()}
    tree["sample_stats"] = xr.DataTree(layout_of(problem)._replace(dims={}).dataset(stats, ("chain", "draw")))
    if problem.composite is not None:
        moments = moments_of_parts(problem, point, posterior, plug_in=plug_in)
        missing = missing_name(problem.target)
        if (of_f := moments.pop(missing, None)) is not None and (own := noise_of_missing(problem, point)) is not None:
            moments[missing] = np.stack([of_f[0], np.sqrt(of_f[1] ** 2 + own.variance)])
        shown = layout_of(problem).dataset(moments, ("moment",))
        tree["moments"] = xr.DataTree(shown.assign_coords(moment=["mean", "sd"]))
    keep_optima(tree, optima)
    return tree


def keep_optima(tree: xr.DataTree, optima: Sequence[Optimum]) -> None:
    """Add the end points of all starts of the optimiser to a result, if there are any."""
    if optima:
        ends = {name: ("optimum", [getattr(each, name) for each in optima]) for name in OF_OPTIMUM}
        ends["converged"] = ("optimum", [int(each.converged) for each in optima])
        tree["optima"] = xr.DataTree(xr.Dataset(ends | stacked_points("optimum", [each.point for each in optima])))


def draws_of(problem: Problem) -> int:
    """Return the number of draws of f in a result."""
    return int(np.clip(_NUMBERS // problem.targets.size, _FEWEST, _DRAWS))


def _derived_names(problem: Problem) -> list[str]:
    """Return Deterministics of the model that are functions of hyperparameters alone, such as an inverse."""
    known, latents = set(problem.hyperparameters), problem.prior.latents
    above = {v.name: {a.name for a in ancestors([v])} for v in problem.model.deterministics}
    return [name for name, each in above.items() if each & known and not each & latents]


def with_derived(problem: Problem, point: Point) -> Point:
    """Return a point of the hyperparameters, with the Deterministics that follow from it."""
    names = _derived_names(problem)
    derived = problem.evaluate("derived", lambda: [problem.model[name] for name in names], point) if names else []
    return dict(zip(names, map(np.asarray, derived), strict=True)) | point


def from_samples(
    problem: Problem, samples: xr.DataTree, fixed: Point, attributes: Mapping[str, object], rng: np.random.Generator
) -> xr.DataTree:
    """Make the result of sampling from the tree of PyMC; given hyperparameters are added to the sampled ones."""
    name, n = problem.prior.name, problem.targets.size
    drawn = samples["posterior"].to_dataset()
    shape = drawn.sizes["chain"], drawn.sizes["draw"]
    points = points_of(drawn, problem.hyperparameters)
    if name in drawn:
        flat = drawn[name].values.reshape(-1, n)
    else:
        flat = sum_of_parts(problem, points_of(drawn, [*problem.hyperparameters, *names_of_latents(problem)]))
    draws = {str(v): drawn[v].values for v in drawn.data_vars} | {name: flat.reshape(*shape, n)}
    likelihood, predicted = np.empty_like(flat), np.empty_like(flat)
    if "latent_draws" not in samples.children:
        located = points_of(drawn, {missing_name(problem.target)} & set(map(str, drawn.data_vars)))
        each = [with_missing(problem, *pair, rng) for pair in zip(points, located, strict=True)]
        draws |= {key: np.reshape([one[key] for one in each], (*shape, -1)) for key in each[0]}
    for s, point in enumerate(points):
        noise = problem.in_intervals(problem.noise_at(point), point)
        likelihood[s] = noise.log_likelihood(problem.targets, flat[s])
        predicted[s] = _new_targets(noise, flat[s], rng, problem.cutpoints_at(point))
    draws |= {given: np.broadcast_to(value, (*shape, *np.shape(value))) for given, value in fixed.items()}
    latent = {"mean": flat.mean(axis=0), "variance": flat.var(axis=0, ddof=1) if len(flat) > 1 else 0 * flat[0]}
    of_targets = likelihood.reshape(*shape, n), predicted.reshape(*shape, n)
    named = {"hyperparameters": json.dumps([*problem.hyperparameters, *fixed])}
    tree = _tree(problem, noise, draws, *of_targets, latent, {**attributes, **named})
    if problem.hyperparameters:
        tree["log_prior"] = xr.DataTree(log_prior(problem, drawn))
    for group in ("sample_stats", "leave_one_out", "latent_draws"):
        if group in samples.children:
            tree[group] = samples[group]
    return tree


class Layout(NamedTuple):
    """Dimensions of variables, without chain and draw, and coordinates; ``row`` is the dimension of f."""

    row: str
    dims: Mapping[str, list[str]]
    coords: Mapping[str, Values]

    def dataset(self, values: Mapping[str, ArrayLike], before: tuple[str, ...] = ()) -> xr.Dataset:
        """Return a data set of arrays with the numbered dimensions ``before`` and then those of each variable."""
        made: dict[str, tuple[tuple[str, ...], Values]] = {}
        for name, value in values.items():
            inner, own = np.shape(value)[len(before) :], self.dims.get(name, [])
            held = [len(self.coords.get(dim, range(size))) for dim, size in zip(own, inner, strict=False)]
            own = own if held == list(inner) else [f"{name}_dim_{i}" for i in range(len(inner))]
            made[name] = ((*before, *own), np.asarray(value))
        data, known = xr.Dataset(made), {dim: at for dim, at in self.coords.items() if dim not in before}
        return data.assign_coords({dim: known.get(str(dim), np.arange(size)) for dim, size in data.sizes.items()})


def layout_of(problem: Problem) -> Layout:
    """Return names of the dimensions of a model, for a result on the data of a problem."""
    known, named = coords_and_dims_for_inferencedata(problem.model)
    dims = {name: [dim or f"{name}_dim_{i}" for i, dim in enumerate(each)] for name, each in named.items()}
    rows = {name: dims.get(name, [f"{name}_dim_0"])[0] for name in (problem.prior.name, problem.target)}
    kept = {dim: at for dim, at in known.items() if dim not in rows.values() or len(at) == problem.targets.size}
    return Layout(rows[problem.prior.name], dims, {dim: _stored(at) for dim, at in kept.items()})


class NamesOfRows(TypedDict, total=False):
    """The arguments of `dim_of_new_rows` that name new rows."""

    dims: str | Sequence[str]
    coords: Mapping[str, Any] | None


def dim_of_new_rows(
    n: int, taken: Iterable[str], *, dims: object = "obs_new", coords: object = None
) -> tuple[str, Values]:
    """Check the name of the dimension of n new rows, which is not taken by others, and its coordinate."""
    names = [dims] if isinstance(dims, str) else list(dims) if isinstance(dims, Sequence) else []
    if len(names) != 1 or not isinstance(names[0], str) or names[0] in taken:
        raise ValueError(
            f"dims must be one name, of the new rows, and none of {', '.join(sorted(taken))}, got {dims!r}"
        )
    given = {} if coords is None else coords
    if not isinstance(given, Mapping) or set(given) - set(names) or any(np.shape(at) != (n,) for at in given.values()):
        raise ValueError(f"coords must be a dict from {names[0]} to the {n} labels of the new rows, got {coords!r}")
    return names[0], _stored(given.get(names[0], np.arange(n)))


def _stored(labels: ArrayLike | pd.Index[str]) -> Values:
    """Return labels of a coordinate for netCDF: numbers and dates without a zone unchanged, others as text."""
    index = pd.Index(labels)
    simple = isinstance(index.dtype, np.dtype) and index.dtype.kind in "biufMm"
    return index.to_numpy() if simple else np.array([str(label) for label in index])


def _tree(
    problem: Problem,
    noise: NoiseModel,
    draws: Mapping[str, Array],
    likelihood: Array | None,
    predicted: Array,
    latent: Mapping[str, Values],
    attributes: Mapping[str, object],
) -> xr.DataTree:
    layout, target = layout_of(problem), problem.target
    drawn = partial(layout.dataset, before=("chain", "draw"))
    (X, _), inputs = problem.own_names, problem.inputs[:, : problem.n_inputs]
    data = other_data(problem) | {name: value for name, value in problem.data.items() if name == X}
    kept: dict[str, Values] = {name: value for name, value in data.items() if name not in draws}
    of_targets = {name: value for name, value in _known(problem, noise).items() if name not in kept}
    as_targets = dict.fromkeys(of_targets, layout.dims.get(target, [f"{target}_dim_0"]))
    as_data = X in kept and problem.columns.kept is None
    of_f = latent if as_data or not problem.n_inputs else {**latent, "inputs": inputs}
    as_f = {name: [layout.row, f"{name}_dim_1"][: np.ndim(value)] for name, value in of_f.items()}
    named = {name: value for name, value in draws.items() if name in problem.model.named_vars}
    # ArviZ draws densities of real numbers, but not of classes.
    kind = np.int64 if problem.loss.targets.values or problem.ends.cutpoints else np.float64
    groups = {
        "posterior": drawn(named),
        **({} if len(named) == len(draws) else {"location": drawn({problem.prior.name: draws[problem.prior.name]})}),
        **({} if likelihood is None else {"log_likelihood": drawn({target: likelihood})}),
        "posterior_predictive": drawn({target: predicted.astype(kind)}),
        "observed_data": layout.dataset({target: problem.targets.astype(kind)}),
        "constant_data": layout._replace(dims={**layout.dims, **as_targets}).dataset(kept | of_targets),
        "latent_posterior": layout._replace(dims=as_f).dataset(of_f),
    }
    tree = xr.DataTree.from_dict(groups)
    if arrays := problem.blocks.to_arrays():
        tree["blocks"] = xr.DataTree(
            xr.Dataset({name: ([f"{name}_dim_{i}" for i in range(a.ndim)], a) for name, a in arrays.items()})
        )
    if isinstance(noise, IntervalNoise) and np.any(noise.ends[:, 0] == noise.ends[:, 1]):
        tree.attrs["evidence_unit"] = "a density of the exact targets, which depends on the unit of y"
    tree.attrs.update(
        {
            "loss": problem.loss.name,
            "targets": problem.ends.kind.known,
            "hyperparameters": json.dumps(problem.hyperparameters),
            "derived": json.dumps(_derived_names(problem)),
            "latent": problem.prior.name,
            **({} if "inputs" in of_f else {"inputs": X}),
            "bsvr_pp_version": __version__,
            **attributes,
        }
    )
    return tree


def other_data(problem: Problem) -> dict[str, Array]:
    """Return data of the model other than inputs and targets."""
    return {name: value for name, value in problem.data.items() if name not in problem.own_names}


def log_prior(problem: Problem, posterior: xr.Dataset) -> xr.Dataset:
    """Return log prior density of the constrained values of each hyperparameter (a sum over a vector) for each draw."""
    points, count = points_of(posterior, problem.hyperparameters), len(problem.hyperparameters)
    values = np.array([problem.log_prior_at(point)[:count] for point in points])
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    columns = {name: column.reshape(shape) for name, column in zip(problem.hyperparameters, values.T, strict=True)}
    return layout_of(problem)._replace(dims={}).dataset(columns, ("chain", "draw"))


def with_missing(problem: Problem, point: Point, draws: Mapping[str, Array], rng: np.random.Generator) -> Point:
    """Return draws with missing targets instead of their location; without them if their noise is unknown."""
    name = missing_name(problem.target)
    kept = {label: values for label, values in draws.items() if label != name}
    if name not in draws or (noise := noise_of_missing(problem, point)) is None:
        return kept
    return kept | {name: _new_targets(noise, draws[name], rng, problem.cutpoints_at(point))}


def noise_of_missing(problem: Problem, point: Point) -> NoiseModel | None:
    """Return the noise of the missing targets; None if it has a value for each row and is not computed row by row."""
    kept, by_row = problem.columns.kept, [p for p in problem.parameters if not all(p.type.broadcastable)]
    if not by_row:
        return problem.noise_at(point)
    if kept is None or not all(problem.matrix in ancestors([p]) for p in by_row):
        return None
    (rows,) = problem.evaluate("all rows", lambda: [problem.columns.all_rows], point)
    return problem.noise_at(point, np.delete(rows, kept, axis=0))


def _new_targets(noise: NoiseModel, f: Array, rng: np.random.Generator, cutpoints: Array | None) -> Array:
    """Draw one new target for each f, without censoring."""
    drawn = noise.kind.targets.draw(noise.sample, noise.parameters, f, rng)
    return drawn if cutpoints is None else np.searchsorted(cutpoints, drawn).astype(np.float64)


def _known(problem: Problem, noise: NoiseModel) -> dict[str, Values]:
    """Return constant data of the targets: under their name whether they are uncensored, and interval ends."""
    if not isinstance(noise, IntervalNoise) or not problem.ends.row_bounds:
        return {}
    return {problem.target: np.isfinite(noise.ends).all(axis=1).astype(np.int64), **problem.given_ends()}


def stacked_points(dim: str, points: Sequence[Point]) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Return variables of a data set with several points of the hyperparameters along a dimension."""
    stacked = {name: np.stack([np.asarray(point[name]) for point in points]) for name in points[0]}
    return {name: ((dim, *(f"{name}_dim_{i}" for i in range(a.ndim - 1))), a) for name, a in stacked.items()}

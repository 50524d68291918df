"""The latent function given draws of the hyperparameters, after it was integrated out."""

from __future__ import annotations

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.model.fgraph import clone_model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from rich.progress import track

from bsvr_pp._checks import generator
from bsvr_pp.inference.component import component, new_rows
from bsvr_pp.inference.parts import draw_parts, names_of_latents
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.inference.result import check_same, layout_of, points_of
from bsvr_pp.model.graphs import copying
from bsvr_pp.model.marginalize import source_of
from bsvr_pp.model.problem import Problem, read_model

__all__ = ["recover", "recover_latent"]

Array = NDArray[np.float64]


def recover_latent(
    samples: xr.DataTree,
    *,
    model: pm.Model,
    X_new: ArrayLike | None = None,
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
        New inputs at which the latent function is drawn as well. Given the hyperparameters, these draws are independent
        of those at the training inputs.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same draws.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    DataTree
        The samples with these additions: in ``posterior`` f, its Deterministics and ``f_new``; in ``log_likelihood``
        the pointwise log p(y_i|f_i); in ``leave_one_out`` log p(y_i|y_-i, hyperparameters) from the cavities; in
        ``latent_draws`` dual_coef, site_precision and the log evidence of each draw.

    Raises
    ------
    ModelError
        If the model was not made by `marginalize`.
    ValueError
        If the samples lack a hyperparameter of the model, or X_new does not fit it.
    TypeError
        If samples is not a DataTree with a posterior, or model is not a model.

    Examples
    --------
    >>> import numpy as np, pymc as pm, xarray as xr, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model() as model:
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    >>> marginal = bp.marginalize(bp.MeanField(), model)
    >>> draws = xr.Dataset({"C": (("chain", "draw"), [[5.0, 8.0, 10.0]])})
    >>> samples = xr.DataTree.from_dict({"posterior": draws})
    >>> bp.recover_latent(samples, model=marginal, progressbar=False)["posterior"]["f"].shape
    (1, 3, 12)
    """
    if not isinstance(samples, xr.DataTree) or "posterior" not in samples.children:
        raise TypeError(f"samples must be a DataTree with a group posterior, got {type(samples).__name__}")
    record = source_of(model)
    _check_data(samples, model)
    problem = read_model(_with_data_of(model, record.source))
    rng = generator(random_seed)
    X = None if X_new is None else new_rows(problem, X_new)
    return recover(problem, samples, record.method, rng, progressbar, X)


def recover(
    problem: Problem,
    samples: xr.DataTree,
    method: Approximation,
    rng: np.random.Generator,
    progressbar: bool,
    X_new: Array | None = None,
) -> xr.DataTree:
    """Compute `recover_latent` for a problem that was already read."""
    posterior = samples["posterior"].to_dataset()
    missing = [name for name in problem.hyperparameters if name not in posterior.data_vars]
    if missing:
        raise ValueError(f"samples must have the hyperparameter {missing[0]!r} of the model")
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    posterior = posterior.assign_coords({dim: posterior[dim] for dim in ("chain", "draw")})
    n, n_new = problem.targets.size, 0 if X_new is None else len(X_new)
    f, likelihood, loo, dual, precision = (np.empty((*shape, n)) for _ in range(5))
    f_new, log_evidence = np.empty((*shape, n_new)), np.empty(shape)
    rebuilt = _Deterministics(problem)
    others: dict[str, list[Array]] = {}
    points = list(zip(np.ndindex(*shape), points_of(posterior, problem.hyperparameters), strict=True))
    for at, point in track(points, description="latent function", disable=not progressbar, transient=True):
        K, mean, noise = problem.at(point)
        found = method.solve(K, problem.targets, noise, mean)
        parts: dict[str, Array] = {}
        if problem.composite is None:
            f[at] = found.draw(1, rng)[0]
        else:
            drawn_f, drawn_parts = draw_parts(problem, point, found, 1, rng)
            f[at], parts = drawn_f[0], {name: values[0] for name, values in drawn_parts.items()}
        likelihood[at] = noise.log_likelihood(problem.targets, f[at])
        loo[at] = found.log_loo(problem.targets, noise)
        dual[at], precision[at], log_evidence[at] = found.dual_coef, found.site_precision, found.log_evidence
        if X_new is not None:
            pair = found.dual_coef, found.site_precision
            known = found.predict if problem.blocks is None else None
            new_mean, new_variance = component(problem, point, *pair, predict=known).moments(X_new)
            f_new[at] = new_mean + np.sqrt(new_variance) * rng.standard_normal(n_new)
        for name, value in (parts | rebuilt(point, parts or {problem.prior.name: f[at]})).items():
            others.setdefault(name, []).append(value)

    layout = layout_of(problem)
    draws = {dim: posterior[dim] for dim in ("chain", "draw")}

    def over_draws(values: dict[str, Array]) -> xr.Dataset:
        return layout.dataset(values, ("chain", "draw")).assign_coords(draws)

    drawn = {name: np.stack(values).reshape(*shape, *np.shape(values[0])) for name, values in others.items()}
    out = samples.copy()
    held = posterior.assign(over_draws({problem.prior.name: f, **drawn}).variables)
    if X_new is not None:
        held[f"{problem.prior.name}_new"] = (("chain", "draw", "obs_new"), f_new)
    out["posterior"] = xr.DataTree(held)
    for group, values in (("log_likelihood", likelihood), ("leave_one_out", loo)):
        out[group] = xr.DataTree(over_draws({problem.target: values}))
    by_row = {"dual_coef": dual, "site_precision": precision}
    arrays = {name: (("chain", "draw", layout.row), values) for name, values in by_row.items()}
    coords = draws | {layout.row: layout.coords[layout.row]}
    out["latent_draws"] = xr.DataTree(
        xr.Dataset(arrays | {"log_evidence": (("chain", "draw"), log_evidence)}, coords=coords)
    )
    return out


def _check_data(samples: xr.DataTree, model: pm.Model) -> None:
    """Check that the data of samples, if they contain any, are the current data of the model."""
    shared = {name: v.get_value() for name, v in model.named_vars.items() if isinstance(v, SharedVariable)}
    observed = {v.name: model.rvs_to_values[v].eval() for v in model.observed_RVs}
    for group, present in (("constant_data", shared), ("observed_data", observed)):
        held = samples[group].to_dataset() if group in samples.children else xr.Dataset()
        for name in held.keys() & present.keys():
            check_same(
                f"samples were drawn with other values of {name} than the model has", held[name].values, present[name]
            )


class _Deterministics:
    """Return the Deterministics that depend on f or its parts, as functions of hyperparameters and of these."""

    def __init__(self, problem: Problem) -> None:
        model, latents = problem.model, {problem.model[name] for name in names_of_latents(problem)}
        graphs = [
            v
            for v in model.deterministics
            if v not in latents and v.name != problem.prior.name and latents & set(ancestors([v]))
        ]
        self.names = [v.name for v in graphs]
        self._problem = problem
        if graphs:
            given = {v: v.type(v.name) for v in latents}
            self._inputs = [v.name for v in latents]
            self._function = problem.compile(graph_replace(graphs, given, strict=False), extra=list(given.values()))

    def __call__(self, point: dict[str, Array], latents: dict[str, Array]) -> dict[str, Array]:
        if not self.names:
            return {}
        found = self._function(*self._problem.arguments(point), *(latents[name] for name in self._inputs))
        return {name: np.asarray(value) for name, value in zip(self.names, found, strict=True)}


def _with_data_of(model: pm.Model, source: pm.Model) -> pm.Model:
    """Copy the original model with the current data of the marginal model."""
    with copying():
        copy = clone_model(source)
    for name, variable in copy.named_vars.items():
        if isinstance(variable, SharedVariable) and name in model.named_vars:
            variable.set_value(model[name].get_value())
    return copy

"""Simulation-based calibration of a method on a model.

Hyperparameters are drawn from their priors and targets from the model. If the method is exact, the rank of the true
hyperparameter among its posterior draws is uniform over many such data sets (Talts et al. 2018).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from joblib import Parallel, delayed, wrap_non_picklable_objects
from pymc.distributions.distribution import PartialObservedRV
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph, model_named, model_observed_rv
from pymc.pytensorf import toposort_replace
from rich.progress import track
from threadpoolctl import threadpool_limits

from bsvr_pp.core.arrays import Array, ModelError, check_count, generator
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses.registry import NUMBERS
from bsvr_pp.inference.protocol import Normalises, Samples
from bsvr_pp.inference.sampling.nuts import ADAPTATION, NUTS
from bsvr_pp.model.distributions import noise_of
from bsvr_pp.model.gp import copy_model, processes_of, set_initial_values
from bsvr_pp.model.marginalize import marginalize
from bsvr_pp.model.problem import restricted
from bsvr_pp.model.row_kinds import known_of

_TARGETS = "calibration_targets"
_RANKS = 100  # number of thinned draws for each rank


@shared
def calibrate(
    method: NUTS,
    model: pm.Model,
    *,
    simulations: int = 200,
    n_jobs: int = 1,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    """Rank the true hyperparameters of simulated data sets among their posterior draws.

    Parameters
    ----------
    method : NUTS
        NUTS with or without ``latent``. For each data set one chain with its ``draws`` and ``tune`` is run and thinned
        to 100.
    model : pymc.Model
        The model. The simulated targets replace what it observes; its other numbers stay, such as priors scaled by
        the data.
    simulations : int
        Number of data sets, at least 2.
    n_jobs : int
        Number of joblib processes; with the Dask backend of joblib these are workers of a cluster.
    random_seed : int, optional
        Random seed; the same seed gives the same ranks for every n_jobs.
    progressbar : bool
        Whether to show progress (of the first process).

    Returns
    -------
    DataTree
        Group ``prior_sbc``: the ranks as shares in [0, 1], (chain, draw) = (1, simulations), as `arviz.plot_ecdf_pit`
        expects. Groups ``truth`` (the hyperparameters drawn) and ``diagnostics`` (divergences, effective draws).

    Raises
    ------
    TypeError
        If the method is not NUTS, the only method that draws hyperparameters, or model is no model.
    ValueError
        If a number is out of range.
    ModelError
        If the model observes no variable or several, labels, intervals or targets with gaps, or if draws from it ignore
        a part: a potential, or a transform that leaves out a part of a prior.

    <pymc_model>
    >>> method = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=100, tune=100)
    >>> ranks = bp.calibrate(method, model, simulations=2, random_seed=1, progressbar=False)
    >>> ranks["prior_sbc"]["C"].shape
    (1, 2)
    """
    if not isinstance(method, Samples) or isinstance(method, Normalises):
        raise TypeError(f"method must be NUTS(...), which draws the hyperparameters, got {method!r}")
    for label, count, least in (("simulations", simulations, 2), ("n_jobs", n_jobs, 1)):
        check_count(label, count, least)
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    generator(random_seed)  # raises an error if it is invalid
    truth, targets = _simulate(model, int(simulations), random_seed)
    given = wrap_non_picklable_objects(lambda: model)  # PyMC gives variables methods that joblib does not pickle
    seeds = np.random.SeedSequence(random_seed).generate_state(simulations)
    shares = np.array_split(np.arange(simulations), n_jobs)
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_posteriors)(given, method, targets[share], seeds[share], progressbar and i == 0)
        for i, share in enumerate(shares)
    )
    found = [each for part in parts for each in part]
    ranks, truths = {}, {}
    for name, value in truth.items():
        if name not in found[0][0]:  # a coefficient, which is integrated out as f is
            continue
        dims = tuple(f"{name}_dim_{i}" for i in range(value.ndim - 1))
        draws = np.stack([draws[name] for draws, _ in found])
        # At the centre of a bin the ranks of an exact method are uniform on [0, 1] up to 1/(2·draws).
        rank = ((draws < value[:, None]).sum(axis=1) + 0.5) / (draws.shape[1] + 1)
        ranks[name], truths[name] = (("chain", "draw", *dims), rank[None]), (("draw", *dims), value)
    diagnostics = {key: ("draw", [each[key] for _, each in found]) for key in ("divergences", "ess")}
    return xr.DataTree.from_dict(
        {"prior_sbc": xr.Dataset(ranks), "truth": xr.Dataset(truths), "diagnostics": xr.Dataset(diagnostics)}
    )


def _hyperparameters(model: pm.Model) -> list[str]:
    return [str(v.name) for v in model.free_RVs if not v.name.endswith("_rotated_")]


def _simulate(model: pm.Model, simulations: int, random_seed: int | None) -> tuple[dict[str, Array], Array]:
    if len(model.observed_RVs) != 1:
        observed = ", ".join(v.name for v in model.observed_RVs) or "none"
        raise ModelError(f"model must observe one variable, got {observed}")
    if model.potentials:
        name = model.potentials[0].name
        raise ModelError(f"model must leave out the potential {name}, which draws from the prior ignore")
    (target,) = model.observed_RVs
    known, processes = known_of(target), processes_of(model)
    noise = noise_of(known.noise)
    if noise is not None and noise[0].targets != NUMBERS:
        raise ModelError(f"{target.name} are labels, and the targets of the model must be numbers")
    if known.kind.observed is not None or isinstance(target.owner.op, PartialObservedRV):
        raise ModelError(f"{target.name} are intervals or have gaps, and targets that replace them would have none")
    names = [name for name in _hyperparameters(model) if model[name] not in processes]
    if not names:
        raise ModelError("model must have free hyperparameters, whose draws are compared with those of the prior")
    for name in restricted(model, [model[name] for name in names]):
        raise ModelError(f"model must leave out the transform of {name}, which draws from the prior ignore")
    drawn = pm.draw([model[name] for name in names] + [target], draws=simulations, random_seed=random_seed)
    return {name: np.asarray(value) for name, value in zip(names, drawn[:-1], strict=True)}, np.asarray(drawn[-1])


def _posteriors(
    given: Callable[[], pm.Model], method: NUTS, targets: Array, seeds: Array, progressbar: bool
) -> list[tuple[dict[str, Array], dict[str, float]]]:
    """Return draws of the hyperparameters (thinned) and diagnostics for each set of targets, with one compilation."""
    import arviz as az
    import nutpie

    model = given()
    if method.latent is not None:
        model = marginalize(method.latent, model)
    model = _with_free_targets(model)
    names = _hyperparameters(model)
    kept = np.unique(np.linspace(0, method.draws - 1, min(_RANKS, method.draws)).astype(int))
    found = []
    with threadpool_limits(limits=1):
        compiled = nutpie.compile_pymc_model(model, var_names=names)
        sets = list(zip(targets, seeds, strict=True))
        for y, seed in track(sets, description="calibrate", disable=not progressbar, transient=True):
            samples = nutpie.sample(
                compiled.with_data(**{_TARGETS: y.astype(model[_TARGETS].dtype)}),
                draws=method.draws,
                tune=method.tune,
                chains=1,
                target_accept=method.target_accept,
                **ADAPTATION,
                seed=int(seed),
                progress_bar=False,
            )
            posterior = samples["posterior"].to_dataset()
            ess = min(float(each.min()) for each in az.ess(posterior[names]).data_vars.values())
            diverging = float(samples["sample_stats"].to_dataset()["diverging"].sum())
            draws = {name: posterior[name].values[0, kept] for name in names}
            found.append((draws, {"divergences": diverging, "ess": ess}))
    return found


def _with_free_targets(model: pm.Model) -> pm.Model:
    """Return the model with its targets as data that can be replaced without a new compilation."""
    (target,) = model.observed_RVs
    fgraph, memo = copy_model(model, fgraph_from_model)
    observed = memo[target]
    variable, value = observed.owner.inputs
    data = pytensor.shared(np.asarray(value.eval(), dtype=variable.dtype), name=_TARGETS, shape=(None,))
    free = model_observed_rv(variable, model_named(data, _TARGETS), target.name, *observed.owner.op.dims)
    toposort_replace(fgraph, ((observed, free),))
    return set_initial_values(model_from_fgraph(fgraph, mutate_fgraph=True), model)

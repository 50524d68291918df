"""Sampling through `pm.sample`: over hyperparameters and latent function, or with the latter integrated out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import nutpie
import pymc as pm
import xarray as xr
from joblib import cpu_count
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.variable import TensorConstant
from threadpoolctl import threadpool_limits

from bsvr_pp.inference.checkpoint import Checkpoint, by_chain, together
from bsvr_pp.inference.marginalize import marginalize
from bsvr_pp.inference.methods import NUTS, Laplace, MeanField
from bsvr_pp.inference.recover import recover
from bsvr_pp.problem import Problem

__all__ = ["ADAPTATION", "diagnosis", "draw"]

_RHAT = 1.01
_SMOOTH = 0.2  # beta from which the jumps of exact Laplace are small
_SMALLEST_STEP = 1e-4
# C and epsilon are correlated, and so are neighbouring values of f: a diagonal adaptation takes twice the steps.
ADAPTATION: Mapping[str, str] = MappingProxyType({"adaptation": "low_rank"})


def draw(
    problem: Problem,
    method: NUTS,
    rng: np.random.Generator,
    progressbar: bool,
    checkpoint: str | Path | None = None,
) -> xr.DataTree:
    """Sample the model. BLAS keeps to one thread a chain while the chains run side by side.

    An interruption ends the sampling; what was drawn so far is returned.
    """
    model = problem.model
    if method.latent is not None:
        _warn_of_jumps(problem, method.latent)
        model = marginalize(problem.model, method.latent)
    if checkpoint is None:
        chains = by_chain(_sample(model, method, rng, progressbar))
    else:
        folder = Checkpoint(checkpoint, problem, method)
        _draw_missing(folder, model, method, rng, progressbar)
        chains = list(folder.chains().values())
    samples = together(chains, method.draws)
    if method.latent is not None:
        samples = recover(problem, samples, method.latent, rng, progressbar)
    return samples


def _sample(model: pm.Model, method: NUTS, rng: np.random.Generator, progressbar: bool) -> xr.DataTree:
    adaptation = ADAPTATION if method.sampler in (None, "nutpie") else {}
    with threadpool_limits(limits=1):
        samples: xr.DataTree = pm.sample(
            draws=int(method.draws),
            tune=int(method.tune),
            chains=int(method.chains),
            cores=min(int(method.chains), cpu_count()),  # by itself PyMC leaves half of them idle
            nuts={"target_accept": method.target_accept, **adaptation},
            nuts_sampler=method.sampler or "nutpie",
            random_seed=int(rng.integers(2**31)),
            progressbar=progressbar,
            model=model,
        )
    return samples


def _draw_missing(
    folder: Checkpoint, model: pm.Model, method: NUTS, rng: np.random.Generator, progressbar: bool
) -> None:
    """Sample what chains lack, into a Zarr store as draws arrive, which `pm.sample` does not offer."""
    there = folder.chains()
    lengths = [there[c]["posterior"].sizes["draw"] if c in there else 0 for c in range(method.chains)]
    short = [c for c, length in enumerate(lengths) if length < method.draws]
    if not short:
        return
    with threadpool_limits(limits=1):
        nutpie.sample(
            nutpie.compile_pymc_model(model),
            draws=int(method.draws - min(lengths)),
            tune=int(method.tune),
            chains=len(short),
            target_accept=method.target_accept,
            **ADAPTATION,
            seed=int(rng.integers(2**31)) + len(there),
            progress_bar=progressbar,
            zarr_store=nutpie.zarr_store.LocalStore(str(folder.new_segment(short))),
        )


def _warn_of_jumps(problem: Problem, latent: Laplace | MeanField) -> None:
    """Exact Laplace jumps where a point crosses the rim of the tube, and chains stick there without divergences."""
    if latent != Laplace() or problem.loss.name == "gaussian":
        return
    beta = problem.parameters[2] if problem.loss.name == "soft_insensitive" else None
    known = beta.data if isinstance(beta, TensorConstant) else 0.0  # a sampled beta may be small
    if isinstance(beta, SharedVariable):
        known = beta.get_value()
    smooth = float(np.min(known)) >= _SMOOTH
    if not smooth and problem.loss.name != "huber":
        warnings.warn(
            "the evidence of Laplace() jumps in the hyperparameters where the noise is not smooth (small beta), and "
            "NUTS then fails without divergences: prefer latent=MeanField() or latent=Laplace(curvature='local')",
            UserWarning,
            stacklevel=4,
        )


def diagnosis(samples: xr.DataTree, hyperparameters: Sequence[str], draws: int) -> dict[str, Any]:
    """R-hat, effective sample size and divergences as attributes of a result, and whether they are good."""
    import arviz as az  # loads slowly, and point methods do not need it

    posterior = samples["posterior"].to_dataset()
    watched = [name for name in hyperparameters if name in posterior] or [str(name) for name in posterior.data_vars]
    several = posterior.sizes["chain"] > 1 and posterior.sizes["draw"] > 3
    r_hat = _worst(az.rhat(samples, var_names=watched), max) if several else np.nan
    ess = _worst(az.ess(samples, var_names=watched), min) if posterior.sizes["draw"] > 3 else np.nan
    stats = samples["sample_stats"].to_dataset() if "sample_stats" in samples.children else xr.Dataset()
    divergences = int(stats["diverging"].sum()) if stats else 0
    bad = []
    if posterior.sizes["draw"] < draws:
        bad.append(f"interrupted after {posterior.sizes['draw']} of {draws} draws")
    if several and not r_hat <= _RHAT:
        bad.append(f"R-hat reaches {r_hat:.3f} (> {_RHAT})")
    failed = _failed_densities(stats)
    if divergences:
        bad.append(f"{divergences} divergences")
    if failed:
        bad.append(f"{failed} of them where the log density is -inf")
    step = float(stats["step_size"].min()) if "step_size" in stats else np.inf  # not all samplers say
    if step < _SMALLEST_STEP:
        bad.append(f"the step size fell to {step:.1e}")
    return {
        "r_hat": r_hat,
        "ess": ess,
        "divergences": divergences,
        "failed_densities": failed,
        "converged": int(not bad),
        "message": "; ".join(bad) or "chains agree",
        "log_evidence": np.nan,
    }


def _failed_densities(stats: xr.Dataset) -> int:
    """Divergences at a point without a density, as where the solve of the evidence fails; only nutpie tells them."""
    if "divergence_energy_error" not in stats:
        return 0
    return int((stats["diverging"] & ~np.isfinite(stats["divergence_energy_error"])).sum())


def _worst(statistic: Any, choose: Any) -> float:
    data = statistic.to_dataset() if isinstance(statistic, xr.DataTree) else statistic
    if "posterior" in getattr(statistic, "children", {}):
        data = statistic["posterior"].to_dataset()
    return float(choose(float(choose(np.ravel(data[name].values))) for name in data.data_vars))

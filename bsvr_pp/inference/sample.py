"""Full sampling: NUTS over hyperparameters and the whitened latent function, through `pm.sample`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from threadpoolctl import threadpool_limits

from bsvr_pp.inference.methods import NUTS
from bsvr_pp.problem import Problem

__all__ = ["diagnosis", "draw"]

_RHAT = 1.01


def draw(problem: Problem, method: NUTS, rng: np.random.Generator, progressbar: bool) -> xr.DataTree:
    """Sample the model. BLAS keeps to one thread a chain while the chains run side by side."""
    with threadpool_limits(limits=1):
        samples: xr.DataTree = pm.sample(
            draws=int(method.draws),
            tune=int(method.tune),
            chains=int(method.chains),
            target_accept=method.target_accept,
            nuts_sampler=method.sampler or "nutpie",
            random_seed=int(rng.integers(2**31)),
            progressbar=progressbar,
            model=problem.model,
        )
    return samples


def diagnosis(samples: xr.DataTree, hyperparameters: Sequence[str]) -> dict[str, Any]:
    """R-hat, effective sample size and divergences as attributes of a result, and whether they are good."""
    import arviz as az  # loads slowly, and point methods do not need it

    posterior = samples["posterior"].to_dataset()
    watched = [name for name in hyperparameters if name in posterior] or [str(name) for name in posterior.data_vars]
    several = posterior.sizes["chain"] > 1 and posterior.sizes["draw"] > 3
    r_hat = _worst(az.rhat(samples, var_names=watched), max) if several else np.nan
    ess = _worst(az.ess(samples, var_names=watched), min) if posterior.sizes["draw"] > 3 else np.nan
    divergences = int(samples["sample_stats"]["diverging"].sum()) if "sample_stats" in samples.children else 0
    bad = []
    if several and not r_hat <= _RHAT:
        bad.append(f"R-hat reaches {r_hat:.3f} (> {_RHAT})")
    if divergences:
        bad.append(f"{divergences} divergences")
    return {
        "r_hat": r_hat,
        "ess": ess,
        "divergences": divergences,
        "converged": int(not bad),
        "message": "; ".join(bad) or "chains agree",
        "log_evidence": np.nan,
    }


def _worst(statistic: Any, choose: Any) -> float:
    data = statistic.to_dataset() if isinstance(statistic, xr.DataTree) else statistic
    if "posterior" in getattr(statistic, "children", {}):
        data = statistic["posterior"].to_dataset()
    return float(choose(float(choose(np.ravel(data[name].values))) for name in data.data_vars))

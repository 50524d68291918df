"""Sampling over hyperparameters and latent function, or with the latter integrated out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from joblib import cpu_count
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.variable import TensorConstant
from threadpoolctl import threadpool_limits

from bsvr_pp.inference.chains import by_chain, together, without
from bsvr_pp.inference.checkpoint import Checkpoint, check_folder
from bsvr_pp.inference.coordinates import sampled_model
from bsvr_pp.inference.fingerprint import fingerprint
from bsvr_pp.inference.protocol import Approximation, Options
from bsvr_pp.inference.recover import recover
from bsvr_pp.losses.functions import unit_noise
from bsvr_pp.model.noise_coordinates import NOISE_COORDINATES
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.whiten import COORDINATES

if TYPE_CHECKING:
    from bsvr_pp.inference.nuts import NUTS

__all__ = ["ADAPTATION", "diagnosis", "draw"]

_RHAT = 1.01
_SMOOTH = 0.2  # smallest beta for which the jumps of exact Laplace are small
_SMALLEST_STEP = 1e-4
# C and epsilon are correlated, and so are neighbouring values of f: diagonal adaptation needs twice as many steps.
ADAPTATION: Mapping[str, str] = MappingProxyType({"adaptation": "low_rank"})


def draw(
    problem: Problem,
    method: NUTS,
    rng: np.random.Generator,
    options: Options,
) -> xr.DataTree:
    """Sample the model. BLAS uses one thread per chain while the chains run in parallel.

    An interruption ends the sampling; what was drawn so far is returned. The same seed gives the same draws in every
    process: Numba may not reorder sums here (fastmath), since code that comes from its cache would do so in another
    way than code that was just compiled. Where any seed will do, a checkpoint keeps that of its run.

    Raises
    ------
    KeyboardInterrupt
        If the sampling is interrupted before there is a draw.
    ValueError
        If checkpoint is not a folder for this run, or the sampler cannot keep one.
    """
    if options.checkpoint is not None:
        if method.sampler not in (None, "nutpie"):
            raise ValueError(f"checkpoint needs the sampler nutpie, got sampler={method.sampler!r}")
        check_folder(options.checkpoint)
    seed = int(rng.integers(2**31))
    with pytensor.config.change_flags(numba__fastmath=False):
        if method.latent is not None:
            _warn_of_jumps(problem, method.latent)
        model = sampled_model(problem, method.latent, options.progressbar)
        if options.checkpoint is None:
            chains = by_chain(_sample(model, method, seed, options.progressbar))
        else:
            import nutpie  # imports the plots of ArviZ, which takes a second, and is needed for sampling alone

            from bsvr_pp.inference.segments import draw_segments

            record = fingerprint(problem, model, method, seed)
            folder = Checkpoint(options.checkpoint, record, any_seed=options.any_seed)
            if options.any_seed:
                rng = np.random.default_rng(folder.seed)
            chains = draw_segments(
                lambda: nutpie.compile_pymc_model(model), method, folder, dict(ADAPTATION), options.progressbar
            )
    samples = together(without(chains, [COORDINATES, *NOISE_COORDINATES]), method.draws)
    if method.latent is not None:
        samples = recover(problem, samples, method.latent, rng, options.progressbar)
    return samples


def _sample(model: pm.Model, method: NUTS, seed: int, progressbar: bool) -> xr.DataTree:
    adaptation = ADAPTATION if method.sampler in (None, "nutpie") else {}
    try:
        with threadpool_limits(limits=1):
            samples: xr.DataTree = pm.sample(
                draws=int(method.draws),
                tune=int(method.tune),
                chains=int(method.chains),
                cores=min(int(method.chains), cpu_count()),  # by itself PyMC leaves half of them idle
                nuts={"target_accept": method.target_accept, **adaptation},
                nuts_sampler=method.sampler or "nutpie",
                random_seed=seed,
                progressbar=progressbar,
                quiet=not progressbar,
                model=model,
            )
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # nutpie cannot return what has no draws
            raise KeyboardInterrupt from error
        raise
    return samples


def _warn_of_jumps(problem: Problem, latent: Approximation) -> None:
    """Warn if the evidence is discontinuous: chains then get stuck without divergences."""
    if latent.capabilities.continuous:
        return
    beta = dict(zip(problem.loss.parameters, problem.parameters, strict=True)).get("beta", pt.constant(1.0))
    known = beta.data if isinstance(beta, TensorConstant) else 0.0  # a sampled beta may be small
    if isinstance(beta, SharedVariable):
        known = beta.get_value()
    least = float(np.min(known))
    if least < _SMOOTH or not unit_noise(problem.loss.name, beta=least).smooth:
        warnings.warn(
            f"the evidence of {latent.name} is discontinuous where the noise is not smooth (small beta), and NUTS then "
            "fails without divergences: prefer latent=MeanField() or latent=Laplace(curvature='local')",
            UserWarning,
            stacklevel=4,
        )


def diagnosis(
    samples: xr.DataTree, hyperparameters: Sequence[str], draws: int, least_ess: float = 0.0
) -> dict[str, Any]:
    """Compute R-hat, effective sample size and divergences as attributes of a result, and whether they are good."""
    import arviz as az  # slow to import, and not needed for point estimates

    posterior = samples["posterior"].to_dataset()
    watched = [name for name in hyperparameters if name in posterior] or [str(name) for name in posterior.data_vars]
    several = posterior.sizes["chain"] > 1 and posterior.sizes["draw"] > 3
    r_hat = _worst(az.rhat(samples, var_names=watched), max) if several else np.nan
    ess = _worst(az.ess(samples, var_names=watched), min) if posterior.sizes["draw"] > 3 else np.nan
    stats = samples["sample_stats"].to_dataset() if "sample_stats" in samples.children else xr.Dataset()
    divergences = int(stats["diverging"].sum()) if "diverging" in stats else 0
    bad = []
    if posterior.sizes["draw"] < draws:
        bad.append(f"interrupted after {posterior.sizes['draw']} of {draws} draws")
    if several and not r_hat <= _RHAT:
        bad.append(f"R-hat reaches {r_hat:.3f} (> {_RHAT})")
    if least_ess > 0 and not ess >= least_ess:
        bad.append(f"{ess:.0f} effective draws (< {least_ess:.0f})")
    failed = _failed_densities(stats)
    if divergences:
        bad.append(f"{divergences} divergences")
    if failed:
        bad.append(f"{failed} of them where the log density is -inf")
    step = float(stats["step_size"].min()) if "step_size" in stats else np.inf  # not all samplers report it
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
    """Count divergences at points with density zero, for example after a failed solve; only nutpie reports them."""
    if "divergence_energy_error" not in stats:
        return 0
    return int((stats["diverging"] & ~np.isfinite(stats["divergence_energy_error"])).sum())


def _worst(statistic: Any, choose: Any) -> float:
    data = statistic.to_dataset() if isinstance(statistic, xr.DataTree) else statistic
    if "posterior" in getattr(statistic, "children", {}):
        data = statistic["posterior"].to_dataset()
    return float(choose(float(choose(np.ravel(data[name].values))) for name in data.data_vars))

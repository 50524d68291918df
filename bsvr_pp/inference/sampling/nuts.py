"""NUTS as a method: over hyperparameters and latent function, or with the latent function integrated out.

A model is sampled in the coordinates of `bsvr_pp.model.marginalize`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from joblib import cpu_count
from pytensor.graph.traversal import ancestors
from threadpoolctl import threadpool_limits

from bsvr_pp.core import __version__
from bsvr_pp.core.arrays import Array, ModelError, check_count, check_share, warn
from bsvr_pp.core.compiler import interruptible
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.fitted import Fitted, fitted_draws
from bsvr_pp.inference.protocol import IntegratesLatent, Options, attributes_of, check_latent
from bsvr_pp.inference.recover import recover
from bsvr_pp.inference.result import from_samples
from bsvr_pp.inference.search.optimize import check_continuous, maximize
from bsvr_pp.inference.search.starts import initial_point
from bsvr_pp.model.distributions import NoiseRV
from bsvr_pp.model.gp import copy_model, set_initial_values
from bsvr_pp.model.marginalize import (
    LATENT_COORDINATES,
    NOISE_COORDINATES,
    can_whiten,
    marginalize,
    noise_coordinates,
    whiten,
    with_noise_coordinates,
)
from bsvr_pp.model.operation import CompiledOp
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.reader import read_model

_MOST_ROWS = 2000  # of full NUTS with blocks, for which the prior covariance of all rows is one dense matrix
_ON_JAX = ("numpyro", "blackjax")
# C and epsilon are correlated, and so are neighbouring values of f: diagonal adaptation needs twice as many steps.
ADAPTATION = {"adaptation": "low_rank"}
_HIDDEN = [LATENT_COORDINATES, *NOISE_COORDINATES]  # variables that the user's model lacks
_RHAT = 1.01
_SMALLEST_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class NUTS:
    """The No-U-Turn sampler, over hyperparameters and latent function or over the hyperparameters only.

    Parameters
    ----------
    latent : Laplace, MeanField or another approximation, optional
        Method that integrates the latent function out; by default it is sampled as well.
    draws, tune : int
        Numbers of draws and of adaptation steps, per chain.
    chains : int
        Number of chains, at least 1; convergence can be judged with 2 or more.
    nuts_sampler : {"nutpie", "pymc", "numpyro", "blackjax"}, optional
        Sampler, as in `pm.sample`; by default nutpie, and PyMC's for discrete hyperparameters. NumPyro and BlackJAX run
        on JAX, which compiles models of exact targets with soft insensitive, ε-insensitive or Huber noise. Intervals,
        labels, models without f (``latent``) and the kernels of `bsvr_pp.cov` need nutpie or PyMC.
    target_accept : float
        Target acceptance rate of the adaptation.
    cores : int, optional
        Number of chains at a time; by default as many as there are processors.
    nuts_sampler_kwargs : dict, optional
        Further options of the sampler by name: numbers, words, lists or dicts.

    Raises
    ------
    ValueError
        If a number is out of range.
    TypeError
        If latent is not an approximation, or nuts_sampler_kwargs has other values.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.NUTS(draws=200).name, bp.NUTS(latent=bp.MeanField()).name
    ('NUTS', 'NUTS (mean field)')
    """

    latent: IntegratesLatent | None = None
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    nuts_sampler: str | None = None
    target_accept: float = 0.9
    cores: int | None = None
    nuts_sampler_kwargs: Mapping[str, object] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.latent is not None:
            check_latent(self.latent, "be None or ")
        for name in ("draws", "tune", "chains"):
            check_count(name, getattr(self, name), 1)
        check_share("target_accept", self.target_accept)
        if self.nuts_sampler not in (None, "nutpie", "pymc", *_ON_JAX):
            raise ValueError(f"nuts_sampler must be nutpie, pymc, numpyro or blackjax, got {self.nuts_sampler!r}")
        if self.cores is not None:
            check_count("cores", self.cores, 1)
        kwargs = self.nuts_sampler_kwargs or {}
        try:
            json.dumps(dict(kwargs))  # raises unless results can store them
        except (TypeError, ValueError):
            raise TypeError(f"nuts_sampler_kwargs must be a dict to numbers and words, got {kwargs!r}") from None
        if own := sorted(set(kwargs) & {option.name for option in fields(self)}):
            raise ValueError(f"nuts_sampler_kwargs must not have {own[0]}, which is an option of NUTS")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "NUTS" if self.latent is None else f"NUTS ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Sample the variables that are not given."""
        rows = problem.targets.size
        if self.latent is None and problem.blocks.several and rows > _MOST_ROWS:
            raise ModelError(
                f"NUTS() samples f at each of {rows} rows, and takes at most {_MOST_ROWS} rows in blocks: "
                "use NUTS(latent=MeanField())"
            )
        if given:
            problem = read_model(_with_given(problem.model, given), samples_f=self.latent is None)
        if self.latent is not None and not problem.hyperparameters:
            raise ModelError(f"{self.name} samples hyperparameters, and none is free: use {self.latent!r}")
        sampler, latent = _sampler_for(problem.model, self), self.latent
        if sampler != "pymc":  # which has other steps for discrete variables
            check_continuous(problem, given)
        if latent is not None:
            latent.check_sampling(problem)
        seed, model = int(rng.integers(2**31)), sampled_model(problem, latent, options.progressbar)
        samples = _sample(model, self, sampler, seed, options.progressbar)
        samples = samples.map_over_datasets(lambda data: data.drop_vars(_HIDDEN, errors="ignore"))
        if latent is not None:
            samples = recover(problem, samples, latent, rng, options.progressbar)
        found = diagnosis(samples, problem.hyperparameters, self.draws) | attributes_of(self)
        return fitted_draws(problem, from_samples(problem, samples, given, found, rng))

    def run_unread(self, model: pm.Model, given: Point, progressbar: bool, rng: np.random.Generator) -> xr.DataTree:
        """Sample a model that other methods refuse by PyMC; return its tree."""
        model = _with_given(model, given) if given else model
        sampler, names = _sampler_for(model, self), [v.name for v in model.free_RVs]
        samples = _sample(model, self, sampler, int(rng.integers(2**31)), progressbar)
        if model.observed_RVs:
            pm.compute_log_likelihood(samples, model=model, progressbar=False)
        samples.attrs |= diagnosis(samples, names, self.draws) | {"bsvr_pp_version": __version__}
        return samples


def _with_given(model: pm.Model, given: Point) -> pm.Model:
    return set_initial_values(copy_model(model, lambda each: pm.do(each, dict(given))), model)


def _sampler_for(model: pm.Model, method: NUTS) -> str:
    """Return the sampler of a method: by default nutpie, and PyMC's for discrete variables and flat densities."""
    flat = [v.name for v in model.free_RVs if isinstance(v.owner.op, NoiseRV)]
    if flat and method.nuts_sampler == "nutpie":
        raise ValueError(f"nuts_sampler='nutpie' cannot sample {flat[0]}, whose density is flat: use 'pymc'")
    if method.nuts_sampler is None and any(np.dtype(v.dtype).kind != "f" for v in model.free_RVs):
        return "pymc"
    if flat and method.nuts_sampler is None:
        warn(f"PyMC's NUTS samples the model: nutpie cannot sample {flat[0]}, whose density is flat")
        return "pymc"
    return method.nuts_sampler or "nutpie"


def _sample(model: pm.Model, method: NUTS, sampler: str, seed: int, progressbar: bool) -> xr.DataTree:
    """Sample a model, with one BLAS thread per chain; an interruption leaves `complete_draws`."""
    graphs = ancestors([model.logp()]) if sampler in _ON_JAX else []
    if any(v.owner is not None and isinstance(v.owner.op, CompiledOp) for v in graphs):
        raise ValueError(
            f"nuts_sampler={sampler!r} needs a density that JAX can compile, and intervals, labels, models without f "
            "and kernels of bp.cov have none: use nuts_sampler='nutpie' or nuts_sampler='pymc'"
        )
    adaptation = ADAPTATION if sampler == "nutpie" else {}
    nuts = {"target_accept": method.target_accept, **adaptation, **(method.nuts_sampler_kwargs or {})}
    by_gradients = any(np.dtype(v.dtype).kind == "f" for v in model.free_RVs)
    # No fastmath: cached Numba code would reorder sums in another way than fresh code.
    plain = pytensor.config.change_flags(numba__fastmath=False)
    with plain, interruptible() as came, threadpool_limits(limits=1):
        try:
            found = pm.sample(
                draws=int(method.draws),
                tune=int(method.tune),
                chains=int(method.chains),
                cores=min(int(method.chains), method.cores or cpu_count()),  # PyMC's default leaves half of them idle
                **({"nuts": nuts} if by_gradients else {}),
                nuts_sampler=sampler,
                random_seed=seed,
                progressbar=progressbar,
                quiet=not progressbar,
                model=model,
            )
        except Exception as error:
            if came:  # samplers cannot return a result without draws
                raise KeyboardInterrupt from error
            if method.nuts_sampler_kwargs and isinstance(error, AttributeError | TypeError):
                raise ValueError(f"nuts_sampler_kwargs must have options of {sampler}: {error}") from error
            raise
        finally:
            came.clear()
    samples = complete_draws(found, method.draws, [v.name for v in model.free_RVs])
    samples.update({group: found[group] for group in ("observed_data", "constant_data") if group in found.children})
    return samples


def sampled_model(problem: Problem, latent: IntegratesLatent | None, progressbar: bool) -> pm.Model:
    """Return the model to sample, in coordinates of the noise, and of f by any mean-field sites at the optimum."""
    moved = with_noise_coordinates(problem)
    same = moved is problem.model
    if latent is None and (found := _optimum(problem, progressbar)) is not None:
        point, *sites = found
        return _starting(whiten(problem if same else read_model(moved, samples_f=True), *sites), problem, point)
    model = moved if latent is None else marginalize(latent, moved)
    return model if same else _starting(model, problem, initial_point(problem))


def _optimum(problem: Problem, progressbar: bool) -> tuple[Point, Array, Array] | None:
    """Return mean-field hyperparameters, site precisions and natural means; None if `whiten` does not apply."""
    discrete = any(np.dtype(v.dtype).kind != "f" for v in problem.variables)
    if discrete or problem.loss.targets.refusal("normalised evidence") or not can_whiten(problem):
        return None
    method, point = MeanField(), Point()
    if problem.hyperparameters:
        with interruptible():
            optimum = maximize(problem, method, {}, Options(progressbar=progressbar), np.random.default_rng(0))[0]
        if not np.isfinite(optimum.objective):
            return None
        point = {name: _round(optimum.point[name]) for name in problem.hyperparameters}
    K, mean, noise = problem.at(point)
    found = method.solve(K, problem.targets, noise, mean)
    if not found.converged:
        return None
    natural_mean = found.dual_coef + found.site_precision * (found.mean - mean)
    return point, _round(found.site_precision), _round(natural_mean)


def _starting(model: pm.Model, problem: Problem, point: Point) -> pm.Model:
    """Let samplers start at a point of the original model; the copy is changed in place."""
    free = {v.name for v in model.free_RVs}
    start = {name: at for name, at in point.items() if name in free}
    if set(NOISE_COORDINATES) <= free:
        start |= noise_coordinates(problem.noise_at(point))
    for name, at in start.items():
        model.rvs_to_initial_values[model[name]] = np.asarray(at)
    return model


def _round(values: Array) -> Array:
    """Round to three digits: draws must not depend on the last digits of the optimum."""
    with np.errstate(divide="ignore"):
        digit = 10.0 ** np.floor(np.log10(np.abs(values)) - 2.0)
    return np.where(values == 0.0, 0.0, np.rint(values / np.where(digit > 0, digit, 1.0)) * digit)


def complete_draws(samples: xr.DataTree, draws: int, free: Sequence[str]) -> xr.DataTree:
    """Cut chains to the common length with most draws, at most ``draws``; without draws raise an interruption.

    Draws after an interruption have NaN in the ``free`` variables; other ones may be NaN themselves.
    """
    both = ("posterior", "sample_stats")  # the latter is empty for steps without statistics
    groups = [group for group in both if group in samples.children and samples[group].sizes]
    data = {group: samples[group].to_dataset().drop_vars(["chain", "draw"], errors="ignore") for group in groups}
    posterior = data["posterior"][free]
    inner = set(posterior.dims) - {"chain", "draw"}
    complete = posterior.notnull().all(inner).to_array().all("variable")
    counts = complete.astype(int).cumprod("draw").sum("draw").values
    lengths = sorted(np.minimum(counts, draws).tolist(), reverse=True)
    length = max(lengths, key=lambda n: n * sum(other >= n for other in lengths), default=0)
    if length == 0:
        raise KeyboardInterrupt
    chosen = np.flatnonzero(counts >= length)
    coords = {"chain": np.arange(chosen.size), "draw": np.arange(length)}
    cut = {group: found.isel(chain=chosen, draw=slice(length)) for group, found in data.items()}
    return xr.DataTree.from_dict({group: found.assign_coords(coords) for group, found in cut.items()})


def diagnosis(
    samples: xr.DataTree, hyperparameters: Sequence[str], draws: int, least_ess: float = 0.0
) -> dict[str, object]:
    """Compute R-hat, effective sample size and divergences as attributes of a result, and whether they are good."""
    import arviz as az  # slow to import, and not needed for point estimates

    posterior = samples["posterior"].to_dataset()
    sampled = [name for name in hyperparameters if name in posterior]
    watched = posterior[sampled] if sampled else posterior
    several = posterior.sizes["chain"] > 1 and posterior.sizes["draw"] > 3
    with np.errstate(invalid="ignore"):  # undefined for constant draws, such as indicators
        r_hat = float(az.rhat(watched).max().to_array().max()) if several else np.nan
        ess = float(az.ess(watched).min().to_array().min()) if posterior.sizes["draw"] > 3 else np.nan
    stats = samples["sample_stats"].to_dataset() if "sample_stats" in samples.children else xr.Dataset()
    diverging = stats["diverging"] if "diverging" in stats else xr.DataArray(False)
    failed = 0  # divergences at points with density zero, for example after a failed solve; only nutpie reports them
    if "divergence_energy_error" in stats:
        failed = int((diverging & ~np.isfinite(stats["divergence_energy_error"])).sum())
    bad = [] if several else ["too few chains or draws to judge"]
    if posterior.sizes["draw"] < draws:
        bad.append(f"interrupted after {posterior.sizes['draw']} of {draws} draws")
    if several and not r_hat <= _RHAT:
        bad.append(f"R-hat reaches {r_hat:.3f} (> {_RHAT})")
    if least_ess > 0 and not ess >= least_ess:
        bad.append(f"{ess:.0f} effective draws (< {least_ess:.0f})")
    if divergences := int(diverging.sum()):
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

"""NUTS over the hyperparameters with f integrated out, compared with NUTS over all variables.

The model is sinc with five free hyperparameters. Everything is sampled by nutpie, whose compilation is timed
separately. The output is the posterior means and standard deviations (which must agree), and the smallest bulk
effective sample size per second of processor time (which does not depend on other work on the computer) and per
gradient.

Runs are cached, since full NUTS takes minutes to an hour; ``--fresh`` runs them again. Full NUTS is omitted where it
would take days, and its slower variant above a hundred points. Above 300 points chains are a fifth as long.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import arviz as az
import numpy as np
import nutpie
import pymc as pm
import typer
import xarray as xr
from threadpoolctl import threadpool_limits

import bsvr_pp as bp
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import sinc
from bsvr_pp.losses import soft_insensitive

CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "bsvr-pp" / "sampling"
# The approximation that integrates f out, the adaptation (the default of PyMC is diagonal), and the largest n.
METHODS: dict[str, tuple[bp.Laplace | bp.MeanField | None, str, int]] = {
    "full NUTS": (None, "diag", 100),
    "full NUTS, low rank": (None, "low_rank", 300),
    "local Laplace": (bp.Laplace(curvature="local"), "low_rank", 10_000),
    "mean field": (bp.MeanField(), "low_rank", 300),
}
_LONG = 300  # points up to which chains have their full length


def five_free(n: int) -> pm.Model:
    """Build a sinc model with free lengthscale, signal, bias, C and epsilon, and data with noise from the model.

    If the noise were Gaussian, the posterior would have a second mode, a wide tube with a large C. Every sampler rarely
    switches to it, and effective sample sizes would be random. With C·epsilon = 3 local Laplace is accurate.
    """
    data = sinc(n, noise=0.0, random_seed=0)
    y = data.y + soft_insensitive(C=10.0, epsilon=0.3, beta=0.3).sample(n, 1)
    with pm.Model() as model:
        lengthscale = pm.InverseGamma("lengthscale", 5, 10)
        signal = pm.LogNormal("signal", -1.0, 0.7)
        bias = pm.LogNormal("bias", -1.0, 0.7)
        C = pm.LogNormal("C", 2.0, 0.7)
        epsilon = pm.LogNormal("epsilon", -1.2, 0.7)
        cov = signal**2 * pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(bias**2)
        f = bp.GP(cov_func=cov).prior("f", X=data.X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    return model


def run(n: int, name: str, draws: int, tune: int, chains: int, seed: int, fresh: bool) -> xr.DataTree:
    """Return the posterior of the hyperparameters, and the seconds of compilation and of sampling."""
    file = CACHE / f"{name.replace(', ', '-').replace(' ', '-')}-{n}-{chains}x{draws}+{tune}-{seed}.nc"
    if file.exists() and not fresh:
        return xr.open_datatree(file).load()
    method, adaptation, _ = METHODS[name]
    model = five_free(n) if method is None else bp.marginalize(method, five_free(n))
    with threadpool_limits(limits=1):
        began = time.perf_counter()
        compiled = nutpie.compile_pymc_model(model)
        compiling = time.perf_counter() - began
        nutpie.sample(compiled, draws=2, tune=2, chains=1, seed=seed, progress_bar=False)  # compiles what is left
        began, busy = time.perf_counter(), time.process_time()
        samples = nutpie.sample(
            compiled,
            draws=draws,
            tune=tune,
            chains=chains,
            cores=2,
            seed=seed,
            adaptation=adaptation,
            progress_bar=False,
        )
    hyperparameters = ["lengthscale", "signal", "bias", "C", "epsilon"]
    stats = samples["sample_stats"].to_dataset()[["n_steps", "diverging"]]
    warm = samples["warmup_sample_stats"].to_dataset()["n_steps"] if "warmup_sample_stats" in samples.children else 0
    out = xr.DataTree.from_dict(
        {"posterior": samples["posterior"].to_dataset()[hyperparameters], "sample_stats": stats}
    )
    out.attrs |= {
        "compiling": compiling,
        "sampling": time.perf_counter() - began,
        "processor": time.process_time() - busy,
        "gradients": int(stats["n_steps"].sum() + np.sum(warm)),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    out.to_netcdf(file)
    return out


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    draws: Annotated[int, typer.Option(help="Draws of each chain; a fifth of them above 300 points.")] = 2500,
    tune: Annotated[int, typer.Option(help="Adaptation steps of each chain; half of them above 300 points.")] = 1000,
    chains: Annotated[int, typer.Option(help="Chains, two at a time.")] = 4,
    fresh: Annotated[bool, typer.Option(help="Run cached runs again.")] = False,
    methods: Annotated[list[str] | None, typer.Option("--method", help="Which of them.")] = None,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare effective draws per second with f integrated out and with f sampled."""
    if unknown := set(methods or METHODS) - set(METHODS):
        raise typer.BadParameter(f"--method is one of {', '.join(METHODS)}; got {', '.join(unknown)}")
    tables = []
    for n in sizes or [100, 300, 1000]:
        wanted = [name for name in methods or METHODS if n <= METHODS[name][2]]
        if not wanted:
            print(f"n = {n}: too many points for {', '.join(methods or METHODS)}")
            continue
        full = [name for name in wanted if METHODS[name][0] is None]
        length, warmup = (draws, tune) if n <= _LONG else (draws // 5, tune // 2)
        results = {name: run(n, name, length, warmup, chains, 0, fresh) for name in wanted}
        columns = (
            "",
            "compile s",
            "sample s",
            "processor s",
            "min ESS",
            "ESS/processor s",
            "ratio to full NUTS",
            "ESS/1000 gradients",
            "R-hat",
            "divergences",
        )
        title = f"n = {n}, {chains} chains of {length} draws after {warmup}, two at a time, one BLAS thread each"
        table = Timing(title, columns)
        speeds, effective = {}, {}
        for name, result in results.items():
            posterior = result["posterior"].to_dataset()
            ess = effective[name] = min(float(v) for v in az.ess(posterior).data_vars.values())
            r_hat = max(float(v) for v in az.rhat(posterior).data_vars.values())
            speeds[name] = ess / result.attrs["processor"]
            ratios = [f"{speeds[name] / speeds[other]:.1f}" for other in full if other in speeds]
            table.add(
                name,
                f"{result.attrs['compiling']:.1f}",
                f"{result.attrs['sampling']:.1f}",
                f"{result.attrs['processor']:.1f}",
                f"{ess:.0f}",
                f"{speeds[name]:.2f}",
                " / ".join(ratios) or "–",
                f"{1e3 * ess / result.attrs['gradients']:.1f}",
                f"{r_hat:.3f}",
                str(int(result["sample_stats"].to_dataset()["diverging"].sum())),
            )
        tables.append(table)
        if not full:
            continue
        reference = max(full, key=lambda name: effective[name])
        moments = Timing(
            f"n = {n}, log hyperparameters: mean ± sd; differences in sd of {reference}, Monte Carlo error",
            ("", *results),
        )
        truth = np.log(results[reference]["posterior"].to_dataset())
        for name in truth.data_vars:
            row = [str(name)]
            for method, result in results.items():
                x = np.log(result["posterior"].to_dataset()[name])
                cell = f"{float(x.mean()):.3f} ± {float(x.std()):.3f}"
                if method != reference:
                    sd = float(truth[name].std())
                    shift, spread = (float(x.mean()) - float(truth[name].mean())) / sd, float(x.std()) / sd - 1
                    error = np.hypot(
                        *(1 / np.sqrt(float(az.ess(v.to_dataset(name="x"))["x"])) for v in (x, truth[name]))
                    )
                    cell += f"  {shift:+.2f} sd ± {error:.2f}, spread {spread:+.0%}"
                row.append(cell)
            moments.add(*row)
        tables.append(moments)
    publish("sampling", tables, save)

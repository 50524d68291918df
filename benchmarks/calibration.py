"""Simulation-based calibration of NUTS with f integrated out, at n = 40; draws ``docs/calibration.png``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import typer
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import kstest

import bsvr_pp as bp

METHODS = {"mean field": bp.MeanField(), "local Laplace": bp.Laplace(curvature="local")}
X = np.linspace(-4, 4, 40)[:, None]


def build_model(y: NDArray[np.float64] | None) -> pm.Model:
    """Build a model with four hyperparameters with moderately informative priors and 40 points."""
    with pm.Model() as model:
        lengthscale = pm.InverseGamma("lengthscale", 5, 6)
        signal = pm.LogNormal("signal", 0.0, 0.5)
        C = pm.LogNormal("C", 1.5, 0.5)
        epsilon = pm.LogNormal("epsilon", -1.5, 0.5)
        f = bp.GP(cov_func=signal**2 * pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    return model


def figure(results: dict[str, xr.DataTree], file: Path) -> None:
    """Plot the distribution of the ranks minus the uniform one, with the joint 95 % band over all hyperparameters."""
    from arviz_stats.ecdf_utils import ecdf_pit

    names = list(next(iter(results.values()))["prior_sbc"].to_dataset().data_vars)
    fig, axes = plt.subplots(1, len(names), figsize=(11, 2.8), sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        for label, colour in zip(results, ("C0", "C1"), strict=True):
            ranks = results[label]["prior_sbc"].to_dataset()[name].values.ravel()
            at, ecdf, low, high = ecdf_pit(ranks, 1 - 0.05 / len(names), 2000, rng=np.random.default_rng(0))
            outside = int(np.sum((ecdf < low) | (ecdf > high)))
            print(f"{label}, {name}: {outside} of {len(at)} points of the ECDF outside the joint 95 % band")
            axis.step(at, ecdf - at, where="post", color=colour, label=label)
        axis.fill_between(at, low - at, high - at, color="0.88", zorder=0)
        axis.set(title=name, xlabel="rank")
    axes[0].set(ylabel="ECDF − uniform")
    axes[0].legend(fontsize=8)
    fig.savefig(file, dpi=130)


def main(
    simulations: Annotated[int, typer.Option(help="How many simulated sets.")] = 200,
    draws: Annotated[int, typer.Option(help="Draws and adaptation steps of each chain.")] = 300,
    n_jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    out: Annotated[Path, typer.Option(help="Output folder of ranks and plot.")] = Path("docs"),
) -> None:
    """Compute rank statistics of mean field and local Laplace over simulated data sets."""
    results = {}
    for name, latent in METHODS.items():
        method = bp.NUTS(latent=latent, draws=draws, tune=draws)
        found = bp.calibrate(method, build_model, simulations=simulations, n_jobs=n_jobs, random_seed=1)
        results[name] = found
        found.to_netcdf(out / f"calibration-{name.replace(' ', '-')}.nc")
        for hyperparameter, ranks in found["prior_sbc"].to_dataset().items():
            values = ranks.values.ravel()
            print(
                f"{name}, {hyperparameter}: mean rank {values.mean():.3f} (0.5 ± {1 / np.sqrt(12 * values.size):.3f}), "
                f"sd {values.std():.3f} (0.289), Kolmogorov-Smirnov p = {kstest(values, 'uniform').pvalue:.3f}",
                flush=True,
            )
    figure(results, out / "calibration.png")


if __name__ == "__main__":
    typer.run(main)

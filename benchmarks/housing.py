"""NUTS over the sixteen hyperparameters of Boston housing with one lengthscale per input, f integrated out."""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import pymc as pm
import typer

import bsvr_pp as bp
from bsvr_pp.datasets import load

METHODS = {"laplace_local": bp.Laplace(curvature="local"), "mean_field": bp.MeanField()}


def model() -> pm.Model:
    """Build the model: all 506 rows, standardised; thirteen lengthscales, signal variance, C and epsilon."""
    data = load("boston_housing")
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    y = (data.y - data.y.mean()) / data.y.std()
    with pm.Model() as out:
        priors = bp.default_priors(X, y)
        signal = pm.LogNormal("signal_variance", 0.0, 1.0)
        kernel = signal * pm.gp.cov.ExpQuad(X.shape[1], ls=priors["lengthscale"]) + pm.gp.cov.Constant(100.0)
        f = bp.GP(cov_func=kernel).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=priors["C"], epsilon=priors["epsilon"], beta=0.3, observed=y)
    return out


def main(
    methods: Annotated[str, typer.Option(help=f"Any of {','.join(METHODS)}.")] = ",".join(METHODS),
    draws: Annotated[int, typer.Option(help="Draws kept per chain.")] = 500,
    tune: Annotated[int, typer.Option(help="Adaptation steps of each chain.")] = 250,
    target_accept: Annotated[float, typer.Option(help="Of the sampler.")] = 0.8,
) -> None:
    """Measure minutes, processor minutes, effective draws and R-hat of four chains."""
    for name in methods.split(","):
        began, busy = time.perf_counter(), time.process_time()
        method = bp.NUTS(latent=METHODS[name], draws=draws, tune=tune, target_accept=target_accept)
        result = bp.fit(method, model(), random_seed=0, progressbar=False)
        minutes, processor = (time.perf_counter() - began) / 60, (time.process_time() - busy) / 60
        relevance = np.exp(-np.log(result["posterior"]["lengthscale"]).mean(("chain", "draw")).values)
        attributes = result.attrs
        print(
            f"{method.name}: {minutes:.1f} min ({processor:.1f} of processor time), "
            f"ESS {attributes['ess']:.0f}, R-hat {attributes['r_hat']:.3f}, "
            f"{attributes['divergences']} divergences; 1/lengthscale {np.round(relevance, 2)}",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)

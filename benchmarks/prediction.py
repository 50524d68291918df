"""Predictions with error bars at many points, compared with Gaussian process regression."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np
import typer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import bsvr_pp as bp
from benchmarks.regression import data
from benchmarks.side_by_side import Timing, medians, publish, threads


def main(
    n: Annotated[int, typer.Option(help="Training points.")] = 2000,
    n_new: Annotated[int, typer.Option(help="New points.")] = 100_000,
    d: Annotated[int, typer.Option(help="Inputs.")] = 2,
    repeats: Annotated[int, typer.Option(help="Repeats of each timing.")] = 3,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure the seconds of predict(X, return_std=True), and of scores and quantiles of the distribution."""
    X, y, _, _ = data(n, d)
    new = np.random.default_rng(0).normal(size=(n_new, d))
    kernel = RBF(1.0) + ConstantKernel(1.0) + WhiteKernel(0.05)
    estimators = {
        "GPR": GaussianProcessRegressor(kernel, optimizer=None).fit(X, y),
        "exact Laplace": bp.BayesianSVR(beta=0.3, ard=False, inference="laplace", restarts=1, random_state=0).fit(X, y),
        "mean field": bp.BayesianSVR(beta=0.3, ard=False, inference="mean_field", restarts=1, random_state=0).fit(X, y),
    }
    found = medians({name: partial(m.predict, new, return_std=True) for name, m in estimators.items()}, repeats)
    table = Timing(
        f"predict(X, return_std=True) at {n_new} points, n = {n}, d = {d}, {threads()} threads",
        ("", "seconds", "GPR's seconds over these", "points with a site"),
    )
    for name, estimator in estimators.items():
        sites = n if name == "GPR" else int((estimator.result_["latent_posterior"]["site_precision"].values > 0).sum())
        table.add(name, f"{found[name]:.2f}", f"{found['GPR'] / found[name]:.1f}", sites)
    distribution = estimators["mean field"].predict_distribution(new)
    targets, levels = distribution.rvs(random_state=0), np.linspace(0.01, 0.99, 99)[:, None]
    functions = {
        f"logpdf of {n_new} targets": partial(distribution.logpdf, targets),
        f"crps of {n_new} targets": partial(distribution.crps, targets),
        "99 quantiles of 2000 targets": partial(distribution[:2000].ppf, levels),
    }
    components = len(distribution.noises)
    scores = Timing(f"predict_distribution, {components} components, {threads()} threads", ("", "seconds"))
    for name, seconds in medians(functions, repeats).items():
        scores.add(name, f"{seconds:.2f}")
    publish("prediction", [table, scores], save)


if __name__ == "__main__":
    typer.run(main)

"""One evidence with gradient in a PyMC model, compared with marginal Laplace of pymc-extras (optional)."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import typer
from rich.console import Console

import bsvr_pp as bp
from benchmarks.side_by_side import Timing, medians, publish, threads
from bsvr_pp.datasets import sinc
from bsvr_pp.losses import soft_insensitive

OURS = {"Laplace": bp.Laplace(), "Laplace (local)": bp.Laplace(curvature="local"), "mean field": bp.MeanField()}


def models(n: int) -> tuple[pm.Model, pm.Model, Any]:
    """Build the same model for both: with our GP, and with the precision matrix that pymc-extras needs."""
    data = sinc(n, noise=0.0, random_seed=0)
    y = data.y + soft_insensitive(C=10.0, epsilon=0.1, beta=0.3).sample(n, 1)

    def priors() -> tuple[Any, Any, Any]:
        lengthscale = pm.InverseGamma("lengthscale", 5, 10)
        return lengthscale, pm.LogNormal("C", 2.0, 0.7), pm.LogNormal("epsilon", -2.3, 0.7)

    with pm.Model() as ours:
        lengthscale, C, epsilon = priors()
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=data.X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    with pm.Model() as theirs:
        lengthscale, C, epsilon = priors()
        K = pm.gp.cov.ExpQuad(1, ls=lengthscale)(data.X) + 1e-6 * pt.eye(n)
        Q = pm.Deterministic("Q", pt.linalg.inv(K))
        f = pm.MvNormal("f", mu=np.zeros(n), tau=Q)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    return ours, theirs, Q


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of each timing.")] = 5,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Time value and gradient of the density of the marginal model."""
    import pymc_extras as pmx

    console = Console(width=120)
    table = Timing(
        f"value and gradient of the marginal model's log density: ms (times faster), log density, {threads()} threads",
        ("n", "pymc-extras Laplace", *OURS),
    )
    for n in sizes or [100, 300]:
        ours, theirs, Q = models(n)
        functions, values = {}, {}
        all_models = {name: bp.marginalize(method, ours) for name, method in OURS.items()}
        all_models["peer"] = pmx.marginalize(theirs, laplace_approx={theirs["f"]: Q})
        for name, model in all_models.items():
            began = time.perf_counter()
            function = model.logp_dlogp_function(ravel_inputs=True)
            function.set_extra_values({})
            x = np.log([3.0, 10.0, 0.1])
            order = {"lengthscale_log__": 0, "C_log__": 1, "epsilon_log__": 2}
            point = np.array([x[order[v.name]] for v in function._grad_vars])
            values[name] = float(np.asarray(function(point)[0]))
            console.print(f"n = {n}, {name}: {time.perf_counter() - began:.1f} s to compile and call once")
            functions[name] = partial(function, point)
        found = medians(functions, repeats)
        table.add(
            n,
            f"{1e3 * found['peer']:.1f}, {values['peer']:.2f}",
            *(f"{1e3 * found[k]:.2f} ({found['peer'] / found[k]:.0f}), {values[k]:.2f}" for k in OURS),
        )
    publish("marginal", [table], save)

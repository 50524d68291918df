"""One evidence with its gradient by the hyperparameters, against scikit-learn's Gaussian process regression.

Kernel, evidence and gradient are timed together for both, interleaved, at the same hyperparameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_info

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.optimize import compile_objective
from bsvr_pp.problem import read_model

OPERATIONS = {"Laplace": "laplace", "Laplace (local)": "laplace_local", "mean field": "mean_field"}


def medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each function, called in turn."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():  # compile
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of each timing.")] = 15,
) -> None:
    """Time one evidence with gradient against GaussianProcessRegressor.log_marginal_likelihood."""
    console = Console(width=120)
    threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
    table = Table(title=f"evidence and gradient, ms and ratio to scikit-learn's GPR ({threads} BLAS threads)")
    for column in ("n", "scikit-learn GPR", *OPERATIONS):
        table.add_column(column, justify="right")
    for n in sizes or [100, 200, 500, 1000]:
        data = sinc(n, random_seed=0)
        problem = read_model(bp.default_model(data.X, data.y))
        at = problem.checked({"lengthscale": 2.0, "C": 8.0, "epsilon": 0.1})
        functions: dict[str, Callable[[], object]] = {}
        kernel = RBF(2.0) + ConstantKernel(1.0) + WhiteKernel(0.04)
        peer = GaussianProcessRegressor(kernel, optimizer=None).fit(data.X, data.y)
        functions["peer"] = partial(peer.log_marginal_likelihood, peer.kernel_.theta, eval_gradient=True)
        for name, operation in OPERATIONS.items():
            evaluate, pack, _ = compile_objective(problem, operation, {}, "posterior")
            functions[name] = partial(evaluate, pack(at))
        found = medians(functions, repeats)
        ratios = (f"{1e3 * found[name]:.2f} ({found[name] / found['peer']:.2f})" for name in OPERATIONS)
        table.add_row(str(n), f"{1e3 * found['peer']:.2f}", *ratios)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

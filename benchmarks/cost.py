"""One evidence with its gradient by the hyperparameters, compared with Gaussian process regression of scikit-learn.

Kernel, evidence and gradient are timed together for both, interleaved, at the same hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import bsvr_pp as bp
from benchmarks.regression import data
from benchmarks.side_by_side import Timing, medians, publish, threads
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.problem import read_model

METHODS = {method.name: method for method in (bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField())}


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of each timing.")] = 15,
    inputs: Annotated[list[int] | None, typer.Option("--d", help="Numbers of inputs.")] = None,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Time one evidence with gradient against GaussianProcessRegressor.log_marginal_likelihood."""
    tables = []
    for d in inputs or [1, 8]:
        table = Timing(
            f"evidence and gradient, d = {d}: ms (ratio to scikit-learn's GPR), {threads()} threads",
            ("n", "scikit-learn GPR", *METHODS),
        )
        for n in sizes or [100, 200, 500, 1000, 2000]:
            X, y, _, _ = data(n, d)
            problem = read_model(bp.default_model(X, y, kernel="rbf", ard=False))
            at = problem.checked({"amplitude": 1.0, "inverse_lengthscale": d**-0.5, "C": 8.0, "epsilon": 0.1})
            functions: dict[str, Callable[[], object]] = {}
            kernel = RBF(d**0.5) + ConstantKernel(1.0) + WhiteKernel(0.04)
            peer = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
            functions["peer"] = partial(peer.log_marginal_likelihood, peer.kernel_.theta, eval_gradient=True)
            for name, method in METHODS.items():
                evaluate = SearchObjective(problem, method, {}, "posterior", warm_starts=False)
                functions[name] = partial(evaluate, evaluate.pack(at))
            found = medians(functions, repeats if n < 1000 else 3)
            ratios = (f"{1e3 * found[name]:.2f} ({found[name] / found['peer']:.2f})" for name in METHODS)
            table.add(n, f"{1e3 * found['peer']:.2f}", *ratios)
        tables.append(table)
    publish("cost", tables, save)


if __name__ == "__main__":
    typer.run(main)

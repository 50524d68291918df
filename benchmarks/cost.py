"""One evidence with its gradient by the hyperparameters, compared with Gaussian process regression of scikit-learn.

Kernel, evidence and gradient are timed together for both, interleaved, at the same hyperparameters. Two more tables are
of models that are read as affine functions: f at permuted rows and z·f beside f alone, and a linear model without a
process, fitted with the search for its hyperparameters, beside LIBLINEAR at the hyperparameters of MAP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import pymc as pm
import typer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.svm import LinearSVR

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
    publish("cost", [*tables, _affine(), _linear()], save)


def _affine() -> Timing:
    """Time a process alone, at permuted rows, and times a covariate; five alternating calls."""
    shapes = ("f", "f at rows", "z*f")
    table = Timing(
        f"Laplace, evidence and gradient of a process in mu: ms (ratio to f), {threads()} threads", ("n", *shapes)
    )
    for n in (100, 300, 1000):
        rng = np.random.default_rng(0)
        X, z, idx = rng.uniform(-2, 2, size=(n, 1)), rng.normal(size=n), rng.permutation(n)
        functions: dict[str, Callable[[], object]] = {}
        for shape in shapes:
            with pm.Model() as model:
                C, ls, eta = pm.LogNormal("C", 1, 1), pm.InverseGamma("ls", 3, 1), pm.HalfNormal("eta", 2)
                f = bp.GP(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=ls)).prior("f", X=pm.Data("X", X))
                mu: Any = f if shape == "f" else f[pm.Data("idx", idx)] if shape == "f at rows" else pm.Data("z", z) * f
                y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
                bp.SoftInsensitive("y", mu=mu, C=C, epsilon=0.1, beta=0.3, observed=y)
            evaluate = SearchObjective(read_model(model), bp.Laplace(), {}, "posterior", warm_starts=False)
            functions[shape] = partial(evaluate, evaluate.pack({"C": 3.0, "ls": 1.0, "eta": 1.0}))
        found = medians(functions, 5)
        table.add(n, *(f"{1e3 * found[shape]:.2f} ({found[shape] / found['f']:.2f})" for shape in shapes))
    return table


def _linear(n: int = 10_000, m: int = 50) -> Timing:
    """Time fits of coefficients with a common scale, with scale, C and epsilon free."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m))
    y = X @ (rng.normal(size=m) * (rng.random(m) < 0.4)) + 0.5 * rng.standard_t(4, size=n)
    methods = (bp.MAP(), bp.Laplace(), bp.MeanField())
    names = (
        *(f"{method.name}, with search" for method in methods),
        "LinearSVR, one fit",
        "its largest difference to a coefficient of MAP",
    )
    table = Timing(
        f"{n} rows, {m} coefficients, no process: seconds of a processor, {threads()} threads", ("n", *names)
    )
    seconds, results = [], []
    for method in methods:
        with pm.Model() as model:
            scale, C, epsilon = pm.HalfNormal("scale", 1), pm.LogNormal("C", 1, 1.5), pm.HalfNormal("epsilon", 0.5)
            b = pm.Normal("b", 0, scale, shape=m)
            bp.SoftInsensitive("y", mu=pm.Data("X", X) @ b, C=C, epsilon=epsilon, beta=0.3, observed=y)
        start = time.process_time()
        results.append(bp.fit(method, model, progressbar=False, random_seed=1)["posterior"])
        seconds.append(time.process_time() - start)
    at = {name: float(results[0][name].values[0, 0]) for name in ("scale", "C", "epsilon")}
    start = time.process_time()
    peer = LinearSVR(C=at["C"] * at["scale"] ** 2, epsilon=at["epsilon"], fit_intercept=False, max_iter=100_000).fit(
        X, y
    )
    seconds.append(time.process_time() - start)
    apart = np.abs(peer.coef_ - results[0]["b"].values[0, 0]).max()
    table.add(n, *(f"{value:.2f}" for value in seconds), f"{apart:.4f}")
    return table


if __name__ == "__main__":
    typer.run(main)

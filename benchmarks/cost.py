"""One evidence with its gradient by the hyperparameters, compared with Gaussian process regression of scikit-learn.

Kernel, evidence and gradient are timed together for both, interleaved, at the same hyperparameters. Two more tables are
of models that are read as affine functions: f at permuted rows and z·f beside f alone, and a linear model without a
process, fitted with the search for its hyperparameters, beside LIBLINEAR at the hyperparameters of MAP. The last table
is of a fit of `BayesianSVR` and an interval after it: what they make and compile, and through how many files of the
package they pass.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pymc as pm
import typer
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.svm import LinearSVR

import bsvr_pp as bp
from benchmarks.side_by_side import Timing, medians, publish, threads
from bsvr_pp.estimators import training_data
from bsvr_pp.inference.prediction import neighbours
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.reader import read_model

METHODS = {method.name: method for method in (bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField())}


def data(n: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inputs and noisy targets of a smooth function of all inputs."""
    weights = np.random.default_rng(d).normal(size=d)
    weights /= np.linalg.norm(weights)
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X @ weights) + 0.5 * np.cos(X[:, 0]) + 0.2 * rng.normal(size=n)


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
            X, y = data(n, d)
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
    publish("cost", [*tables, _affine(), _linear(), fit_and_interval(repeats)], save)


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


COUNTED = {  # what a fit and an interval make, and where
    "problems": (Problem, "__init__"),
    "standardisations": (training_data, "mean_and_deviation"),
    "trees": (neighbours, "cKDTree"),
    "functions compiled": (Problem, "compile_on"),
}


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count what is made in this context, by the names of `COUNTED`, and "files": those of the package that run."""
    found, files, package = Counter[str](), set[str](), str(Path(bp.__file__).parent)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            found[name] += 1
            return function(*given, **options)

        return call

    def trace(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(package):
            files.add(frame.f_code.co_filename)

    patches = [patch.object(*place, counted(name, getattr(*place))) for name, place in COUNTED.items()]
    for each in patches:
        each.start()
    sys.setprofile(trace)
    try:
        yield found
    finally:
        sys.setprofile(None)
        for each in patches:
            each.stop()
        found["files"] = len(files)


def own_kernel(X: NDArray[np.float64]) -> Any:
    """A kernel function."""
    return pm.HalfNormal("amplitude", 1.0) ** 2 * pm.gp.cov.ExpQuad(X.shape[1], ls=pm.InverseGamma("lengthscale", 3, 1))


def fit_and_interval(repeats: int = 15, n: int = 300) -> Timing:
    """Count and time a fit of 300 rows and the interval of five rows after it."""
    table = Timing(
        f"BayesianSVR: a fit of {n} rows, and `predict_interval` of 5 rows after it, {threads()} threads",
        ("kernel", "call", "ms", *COUNTED, "files of the package (both)"),
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)
    for name, kernel in {"auto": "auto", "function": own_kernel}.items():
        svr: Any = bp.BayesianSVR(kernel=kernel, random_state=0)
        with counting() as of_fit:
            svr.fit(X, y)
        with counting() as of_interval:
            svr.predict_interval(X[:5])
        with counting() as both:
            svr.fit(X, y).predict_interval(X[:5])
        calls = {"fit": partial(svr.fit, X, y), "interval": partial(svr.predict_interval, X[:5])}
        seconds = medians(calls, max(repeats, 5))
        for call, found in (("fit", of_fit), ("interval", of_interval)):
            made = (str(found[each]) for each in COUNTED)
            table.add(name, call, f"{1e3 * seconds[call]:.2f}", *made, str(both["files"]) if call == "fit" else "")
    return table

"""Fitting the hyperparameters: Laplace evidence compared with Gaussian process regression and a grid search.

Each method has one start. The data are a smooth function of one or eight inputs, the same for every number of points,
with Gaussian noise. The error is the average squared error on 1000 noise-free points, divided by the variance of the
targets.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

import bsvr_pp as bp
from benchmarks.problems import wave
from benchmarks.side_by_side import Timing, publish, threads

Array = NDArray[np.float64]

GRID = {"C": np.logspace(-1, 2, 7), "gamma": np.logspace(-2, 1, 7)}


def data(n: int, d: int) -> tuple[Array, Array, Array, Array]:
    """Training inputs and targets, test inputs and noise-free targets."""
    weights = np.random.default_rng(d).normal(size=d)
    weights /= np.linalg.norm(weights)
    rng = np.random.default_rng(n + d)
    X, X_test = rng.normal(size=(n, d)), rng.normal(size=(1000, d))
    return X, wave(X, weights) + 0.2 * rng.normal(size=n), X_test, wave(X_test, weights)


def estimators() -> dict[str, Callable[[], Any]]:
    """The three estimators."""
    kernel = ConstantKernel() * RBF() + ConstantKernel() + WhiteKernel(0.1)
    return {
        "BayesianSVR": partial(bp.BayesianSVR, beta=0.3, ard=False, inference="laplace", restarts=1, random_state=0),
        "GPR": partial(GaussianProcessRegressor, kernel, normalize_y=True),
        "grid search": partial(GridSearchCV, SVR(epsilon=0.1), GRID, scoring="neg_mean_squared_error", n_jobs=-1),
    }


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    inputs: Annotated[list[int] | None, typer.Option("--d", help="Numbers of inputs.")] = None,
    peers_up_to: Annotated[int, typer.Option(help="Largest n at which GPR is fitted.")] = 2000,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure seconds and test errors of one fit."""
    tables = []
    for d in inputs or [1, 8]:
        table = Timing(
            f"fit, d = {d}: seconds (times BayesianSVR's) and test error, {threads()} threads",
            ("n", *estimators(), *(f"error {name}" for name in estimators())),
        )
        times = []
        for n in sizes or [500, 1000, 2000, 4000]:
            X, y, X_test, truth = data(n, d)
            estimators()["BayesianSVR"]().fit(X[:100], y[:100])  # compiles
            seconds, errors = {}, {}
            for name, estimator in estimators().items():
                if name == "GPR" and n > peers_up_to:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # GPR's bounds
                    began = time.perf_counter()
                    fitted = estimator().fit(X, y)
                    seconds[name] = time.perf_counter() - began
                errors[name] = float(np.mean((fitted.predict(X_test) - truth) ** 2) / np.var(truth))
            ours = seconds["BayesianSVR"]
            times.append((n, ours))
            table.add(
                n,
                *(f"{seconds[m]:.2f} ({seconds[m] / ours:.1f})" if m in seconds else "–" for m in estimators()),
                *(f"{errors[m]:.2e}" if m in errors else "–" for m in estimators()),
            )
        if len(times) > 1:
            slope = np.polyfit(*np.log(np.array(times)).T, 1)[0]
            table.notes = f"Time of BayesianSVR grows as n to the power {slope:.2f}."
        tables.append(table)
    publish("regression", tables, save)


if __name__ == "__main__":
    typer.run(main)

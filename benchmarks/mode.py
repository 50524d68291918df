"""The mode compared with LIBSVM: the same radial kernel, C and tube; the time includes the kernel for both.

LIBSVM has a free bias, ours has a variance (100 times the variance of the targets), so that the objectives differ
slightly; each is reported with its own relative duality gap. LIBSVM supports only β = 0; for β > 0 the loss differs.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVR

from benchmarks.problems import wave
from benchmarks.side_by_side import Timing, medians, publish, threads
from bsvr_pp.approximations import Covariance, Mode, find_mode
from bsvr_pp.losses import soft_insensitive

Array = NDArray[np.float64]

C, EPSILON, BIAS, JITTER = 10.0, 0.1, 100.0, 1e-6


def problem(n: int, d: int) -> tuple[Array, Array, float]:
    """Inputs, targets and the kernel's gamma: a smooth function of all inputs with noise of standard deviation 0.2."""
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d))
    weights = rng.normal(size=d) / d**0.5
    y = wave(X, weights) + 0.2 * rng.normal(size=n)
    return X, (y - y.mean()) / y.std(), 0.5 / d


def ours(X: Array, y: Array, gamma: float, beta: float) -> Mode:
    """Kernel and mode."""
    K = rbf_kernel(X, gamma=gamma)
    K += BIAS
    K[np.diag_indices_from(K)] += JITTER
    return find_mode(Covariance(K, jitter=JITTER), y, soft_insensitive(C, EPSILON, beta))


def theirs(X: Array, y: Array, gamma: float, tol: float) -> SVR:
    """Run LIBSVM, which computes kernel rows when it needs them."""
    return SVR(C=C, epsilon=EPSILON, gamma=gamma, tol=tol, cache_size=1000).fit(X, y)


def svr_gap(svr: SVR, X: Array, y: Array, gamma: float) -> tuple[float, float]:
    """Compute primal objective and relative duality gap of the LIBSVM solution, for the problem of LIBSVM."""
    a = svr.dual_coef_.ravel()
    K = rbf_kernel(X, X[svr.support_], gamma=gamma)
    f = K @ a
    quadratic = 0.5 * a @ f[svr.support_]
    loss = C * np.maximum(np.abs(y - f - svr.intercept_) - EPSILON, 0.0).sum()
    dual = -quadratic + a @ y[svr.support_] - EPSILON * np.abs(a).sum()
    primal = quadratic + loss
    return float(primal), float((primal - dual) / (1.0 + abs(primal) + abs(dual)))


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of points.")] = None,
    inputs: Annotated[list[int] | None, typer.Option("--d", help="Numbers of inputs.")] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of each timing.")] = 3,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure seconds, objectives and duality gaps of find_mode and of sklearn.svm.SVR."""
    columns = ("n", "d", "SVR 1e-3", "SVR 1e-6", "β = 0", "β = 0.1", "β = 0.3", "gap 1e-3", "gap 1e-6", "largest gap")
    table = Timing(
        f"mode at fixed hyperparameters: seconds (ratio to SVR at tol 1e-6), {threads()} threads",
        (*columns, "objective SVR 1e-6", "objective β = 0"),
        notes=f"C = {C:g}, ε = {EPSILON:g}, kernel construction included. "
        "Gaps are relative; the third column from the right is our largest gap.",
    )
    for n in sizes or [500, 1000, 2000, 4000, 8000]:
        for d in inputs or [1, 8, 21]:
            X, y, gamma = problem(n, d)
            names = {f"β = {beta:g}": partial(ours, X, y, gamma, beta) for beta in (0.0, 0.1, 0.3)}
            peers = {f"SVR {tol:.0e}".replace("e-0", "e-"): partial(theirs, X, y, gamma, tol) for tol in (1e-3, 1e-6)}
            found = medians({**peers, **names}, repeats if n <= 2000 else 1)
            modes = {name: function() for name, function in names.items()}
            gaps = {name: svr_gap(function(), X, y, gamma) for name, function in peers.items()}
            peer = found["SVR 1e-6"]
            table.add(
                n,
                d,
                f"{found['SVR 1e-3']:.3g}",
                f"{peer:.3g}",
                *(f"{found[name]:.3g} ({found[name] / peer:.2f})" for name in names),
                *(f"{gap:.0e}" for _, gap in gaps.values()),
                f"{max(mode.duality_gap for mode in modes.values()):.0e}",
                f"{gaps['SVR 1e-6'][0]:.4f}",
                f"{modes['β = 0'].objective:.4f}",
            )
    publish("mode", [table], save)


if __name__ == "__main__":
    typer.run(main)

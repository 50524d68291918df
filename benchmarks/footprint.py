"""Memory of one evidence with gradient, and seconds of imports, each in a separate process."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import numpy as np
import typer

from benchmarks.side_by_side import Timing, publish

_DATA = """
import numpy as np, resource, sys
n, d = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
X = rng.normal(size=(n, d))
y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)
"""
_PEAK = "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
_OURS = """
import bsvr_pp as bp
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.problem import read_model
problem = read_model(bp.default_model(X, y, kernel="rbf", ard=True))
evaluate = SearchObjective(problem, {method}, {{}}, "posterior")
inverse = np.full(d if d > 1 else (), 0.5)
at = problem.checked({{"amplitude": 1.0, "inverse_lengthscale": inverse, "C": 8.0, "epsilon": 0.1}})
assert np.isfinite(evaluate(evaluate.pack(at))[0])
"""
_GPR = """
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
kernel = RBF(np.full(d, 2.0)) + ConstantKernel(1.0) + WhiteKernel(0.04)
peer = GaussianProcessRegressor(kernel, optimizer=None)
peer.X_train_, peer.y_train_, peer.kernel_ = X, y, kernel
assert np.isfinite(peer.log_marginal_likelihood(kernel.theta, eval_gradient=True)[0])
"""


def peak(script: str, n: int, d: int) -> float | None:
    """Largest resident memory of the script in GiB; None if the memory was insufficient."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DATA + script + _PEAK, str(n), str(d)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 0 and "MemoryError" not in done.stderr:
        raise RuntimeError(done.stderr)
    return float(done.stdout) if done.returncode == 0 else None


def seconds_to_import(module: str, repeats: int) -> float:
    """Median seconds of an import in a fresh process."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    run = [sys.executable, "-W", "ignore", "-c", code]
    times = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(repeats + 1)]
    return float(np.median([float(t) for t in times[1:]]))


def main(
    n: Annotated[int, typer.Option(help="Points.")] = 8000,
    inputs: Annotated[list[int] | None, typer.Option("--d", help="Numbers of inputs.")] = None,
    peer: Annotated[bool, typer.Option(help="Measure the other package too; it may run out of memory.")] = True,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure peak memory and import times."""
    memory = Timing(
        f"one evidence with gradient, one lengthscale per input, n = {n}: largest resident memory, GiB",
        ("inputs", "scikit-learn GPR", "Laplace", "mean field"),
        notes="– means that the memory was insufficient.",
    )
    for d in inputs or [1, 8]:
        scripts = [_GPR, _OURS.format(method="bp.Laplace()"), _OURS.format(method="bp.MeanField()")]
        found = [peak(script, n, d) if peer or script is not _GPR else None for script in scripts]
        memory.add(d, *("–" if value is None else f"{value:.1f}" for value in found))
    imports = Timing("import, seconds in a fresh process", ("pymc", "bsvr_pp", "bsvr_pp after pymc"))
    alone, ours = (seconds_to_import(module, 5) for module in ("pymc", "bsvr_pp"))
    imports.add(f"{alone:.2f}", f"{ours:.2f}", f"{seconds_to_import('pymc, bsvr_pp', 5) - alone:+.2f}")
    publish("footprint", [memory, imports], save)


if __name__ == "__main__":
    typer.run(main)

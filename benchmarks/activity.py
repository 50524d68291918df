"""The computer activity data with one lengthscale for each of 21 inputs: fits on 2000 rows and on all rows.

Gaussian process regression of scikit-learn makes an array of n² numbers for every lengthscale: 11 GB at 8192 rows.
"""

from __future__ import annotations

import resource
import time
from typing import Annotated

import numpy as np
import typer

import bsvr_pp as bp
from benchmarks.side_by_side import Timing, publish, threads
from bsvr_pp.datasets import load


def main(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Rows to train on.")] = None,
    restarts: Annotated[int, typer.Option(help="Starts.")] = 1,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure minutes, memory and test error of BayesianSVR with ARD."""
    data = load("cpu_act")
    order = np.random.default_rng(0).permutation(len(data.y))
    table = Timing(
        f"computer activity, {data.X.shape[1]} inputs, ARD, {restarts} start: {threads()} threads",
        ("rows", "minutes", "peak GiB", "mean squared error on the other rows", "relevant inputs"),
    )
    bp.BayesianSVR(restarts=1).fit(data.X[:100], data.y[:100])  # compiles
    for n in sizes or [2000, len(data.y)]:
        train, test = order[:n], order[n:]
        began = time.perf_counter()
        svr = bp.BayesianSVR(restarts=restarts, random_state=0).fit(data.X[train], data.y[train])
        minutes = (time.perf_counter() - began) / 60
        error = float(np.mean((svr.predict(data.X[test]) - data.y[test]) ** 2)) if test.size else np.nan
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        relevant = int((svr.relevance_ > 0.01 * svr.relevance_.max()).sum())
        table.add(n, f"{minutes:.2f}", f"{peak:.1f}", "–" if np.isnan(error) else f"{error:.2f}", relevant)
    publish("activity", [table], save)


if __name__ == "__main__":
    typer.run(main)

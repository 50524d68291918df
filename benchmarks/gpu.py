"""A GPU compared with the processor: dense problems, many blocks, and a fit of three million rows.

Each pair of seconds is of one call after another that compiles. The solve makes K, finds the sites and returns
vectors; the evidence comes with its gradient by the hyperparameters. Of many blocks the processor solves some, whose
seconds are multiplied. The difference is the largest one of the means of f, in posterior standard deviations, or that
of the gradients relative to the largest component.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import bsvr_pp as bp
from benchmarks.large import split
from benchmarks.regression import data
from benchmarks.side_by_side import Timing, publish, threads
from bsvr_pp._device import PROCESSOR, Device, device_named
from bsvr_pp.datasets import data_folder
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.problem import Problem, read_model

Array = NDArray[np.float64]

D = 8
AT = {"amplitude": 1.0, "inverse_lengthscale": D**-0.5, "C": 8.0, "epsilon": 0.1}
METHOD = bp.MeanField()


def problem_of(rows: int, blocks: int = 1) -> Problem:
    """The default model of so many blocks of so many rows."""
    X, y, _, _ = data(rows * blocks, D)
    problem = read_model(bp.default_model(X[:rows], y[:rows], kernel="rbf", ard=False))
    label = np.repeat(np.arange(blocks), rows)
    return problem.with_data(X, y, blocks=Blocks(label) if blocks > 1 else None)


def part_of(problem: Problem, count: int) -> Problem:
    """The first blocks of a problem."""
    if problem.blocks is None or count >= len(problem.blocks):
        return problem
    rows = [problem.blocks.rows(block) for block in range(count)]
    label = np.repeat(np.arange(count), [part.size for part in rows])
    return problem.take(np.concatenate(rows), Blocks(label) if count > 1 else None)


def solve(problem: Problem) -> Callable[[], Any]:
    """A function that solves for f and returns mean and standard deviation."""
    point = problem.complete(AT)

    def run() -> tuple[Array, Array]:
        posterior = solve_at(problem, METHOD, point)
        return posterior.mean, np.sqrt(posterior.variance)

    return run


def evidence(problem: Problem) -> Callable[[], Any]:
    """A function that computes the evidence, and returns its gradient and the largest component."""
    evaluate = SearchObjective(problem, METHOD, {}, "evidence", warm_starts=False)
    x = evaluate.pack(problem.complete(AT))

    def run() -> tuple[Array, float]:
        gradient = evaluate(x)[1]
        return gradient, float(np.abs(gradient).max())

    return run


def seconds(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of the first and the second call, and the result."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        found = function()
        times.append(time.perf_counter() - began)
    return times[0], times[1], found


def compare(table: Timing, problem: Problem, device: Device, share: int) -> None:
    """Add the lines of a problem; the processor computes ``share`` blocks."""
    count = 1 if problem.blocks is None else len(problem.blocks)
    few = part_of(problem, share)
    n = few.targets.size
    for name, make in (("solve", solve), ("evidence and gradient", evidence)):
        _, here, expected = seconds(make(few))
        first, there, _ = seconds(make(replace(problem, device=device)))
        found = make(replace(few, device=device))()
        difference = float(np.max(np.abs(found[0] - expected[0]) / expected[1]))
        here *= problem.targets.size / n
        rows = problem.targets.size // count
        cells = f"{here:.3g}", f"{there:.3g}", f"{here / there:.3g}", f"{first - there:.3g}", f"{difference:.1e}"
        table.add(count, rows, name, *cells)


def flights(device: str) -> Timing:
    """One fit of flights3m with the defaults, hyperparameters included."""
    X, X_test, y, y_test = split("flights3m", None, 2000)
    began = time.perf_counter()
    blocks: Any = bp.LocalBlocks(1000, device=device)
    svr = bp.BayesianSVR(inference=METHOD, blocks=blocks, outliers="keep", random_state=0).fit(X, y)
    took = time.perf_counter() - began
    error = float(np.sqrt(np.mean((svr.predict(X_test) - y_test) ** 2)) / np.std(y))
    table = Timing("flights3m: minutes of one fit", ("rows", "minutes", "RMSE / standard deviation", "converged"))
    table.add(len(y), f"{took / 60:.3g}", f"{error:.3g}", svr.converged_)
    return table


def main(
    dense: Annotated[str, typer.Option(help="Numbers of rows of dense problems.")] = "1000,4000,8000",
    blocks: Annotated[int, typer.Option(help="Number of blocks.")] = 500,
    rows: Annotated[str, typer.Option(help="Numbers of rows of a block.")] = "1000,2000",
    share: Annotated[int, typer.Option(help="Blocks that the processor computes.")] = 10,
    device: Annotated[str, typer.Option(help="gpu; or jax, the default device of JAX, for trials.")] = "gpu",
    many: Annotated[bool, typer.Option(help="Whether to fit flights3m.")] = True,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare a GPU with the processor."""
    try:
        found = device_named(device)
    except ValueError as error:
        print(f"nothing is measured: {error}")
        return
    if found is PROCESSOR:
        print("nothing is measured: device='cpu' is what a GPU is compared with")
        return
    where = f"{found.handle.device_kind} ({found.handle.platform}) and {threads()} threads of the processor"
    print(f"measured on {where}")
    table = Timing(
        f"seconds of {METHOD.name} on {where}",
        ("blocks", "rows", "", "processor", "device", "ratio", "compilation", "difference"),
    )
    for n in _numbers(dense):
        compare(table, problem_of(n), found, 1)
    for n in _numbers(rows):
        compare(table, problem_of(n, blocks), found, min(share, blocks))
    tables = [table]
    if many and (data_folder() / "large" / "flights3m.npz").is_file():
        tables.append(flights(device))
    elif many:
        print("flights3m is left out: the data folder has no large/flights3m.npz")
    if save and found.handle.platform != "gpu":
        print("not saved: these are no figures of a GPU")
        save = False
    publish("gpu", tables, save)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


if __name__ == "__main__":
    typer.run(main)

"""Samplers of Optuna on standard functions, with exact values and with a tenth of the values grossly wrong.

Each value is wrong with probability 0.1: it is shifted by 2 to 5 ranges of the function, up or down with equal
probability, so that half of the wrong values look better than they are. The same trials are wrong for all samplers of a
seed. The range of a function is the distance of its quantiles 5 % and 95 % over the search space, and the regret is the
true value at a point, less the minimum, in ranges: at the point that is recommended, which is `best_trial` of
`BayesianSVRSampler` and the best observed value of the others, and at the truly best point that was evaluated.

``python -m benchmarks optuna`` adds the runs that ``optuna_samplers.csv`` lacks, prints the table and plots
``docs/optuna.png``.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import optuna
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import qmc

from bsvr_pp.integrations.optuna import BayesianSVRSampler

Array = NDArray[np.float64]

FILE = Path(__file__).with_name("optuna_samplers.csv")
FIGURE = Path(__file__).parent.parent / "docs" / "optuna.png"
TRIALS, EVERY = 50, 10  # trials of a run, and after how many the regret is recorded
WRONG, LEAST, MOST = 0.1, 2.0, 5.0  # share of the values that are wrong, and by how many ranges
KEY = ["function", "values", "sampler", "seed"]
FIELDS = [*KEY, "trial", "recommended", "evaluated", "seconds"]


def branin(x: Array) -> float:
    """Minimum 0.397887."""
    a, b = x
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def hartmann(x: Array) -> float:
    """Minimum -3.32237."""
    A = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(A * (x - P) ** 2, axis=1)))


def ackley(x: Array) -> float:
    """Minimum 0 at 0."""
    waves = np.exp(np.mean(np.cos(2 * np.pi * x)))
    return float(20 + np.e - 20 * np.exp(-0.2 * np.sqrt(np.mean(x**2))) - waves)


def levy(x: Array) -> float:
    """Minimum 0 at 1."""
    w = 1 + (x - 1) / 4
    inner = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2))
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


def rosenbrock(x: Array) -> float:
    """Minimum 0 at 1."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def griewank(x: Array) -> float:
    """Minimum 0 at 0."""
    return float(1 + np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, x.size + 1)))))


class Function(NamedTuple):
    """A function with the ends of its inputs and its minimum."""

    value: Callable[[Array], float]
    ends: Array
    minimum: float

    def range(self) -> float:
        """Distance of the quantiles 5 % and 95 %."""
        cube = qmc.Sobol(len(self.ends), seed=0).random(1024)
        values = [self.value(x) for x in self.ends[:, 0] + cube * np.ptp(self.ends, axis=1)]
        return float(np.subtract(*np.quantile(values, [0.95, 0.05])))


FUNCTIONS = {
    "Branin 2": Function(branin, np.array([[-5.0, 10.0], [0.0, 15.0]]), 0.397887),
    "Hartmann 6": Function(hartmann, np.array([[0.0, 1.0]] * 6), -3.32237),
    "Ackley 5": Function(ackley, np.array([[-32.768, 32.768]] * 5), 0.0),
    "Levy 4": Function(levy, np.array([[-10.0, 10.0]] * 4), 0.0),
    "Rosenbrock 4": Function(rosenbrock, np.array([[-5.0, 10.0]] * 4), 0.0),
    "Griewank 5": Function(griewank, np.array([[-600.0, 600.0]] * 5), 0.0),
}
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "BayesianSVRSampler": lambda seed: BayesianSVRSampler(seed=seed),
    "GPSampler": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "TPESampler": lambda seed: optuna.samplers.TPESampler(seed=seed),
}


def wrong_by(values: str, seed: int) -> Array:
    """Errors of the values of all trials of a seed, in ranges."""
    rng = np.random.default_rng([seed, TRIALS])
    wrong = rng.random(TRIALS) < (WRONG if values == "corrupted" else 0.0)
    return np.where(wrong, rng.choice([-1.0, 1.0], TRIALS) * rng.uniform(LEAST, MOST, TRIALS), 0.0)


def run(function: str, values: str, sampler: str, seed: int) -> list[dict[str, Any]]:
    """Regret after every ten trials of one run."""
    f, shift = FUNCTIONS[function], wrong_by(values, seed)
    unit, true, rows = f.range(), [], []
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))

    def objective(trial: optuna.Trial) -> float:
        x = np.array([trial.suggest_float(f"x{i}", *ends) for i, ends in enumerate(f.ends)])
        true.append((f.value(x) - f.minimum) / unit)
        return unit * (true[-1] + float(shift[trial.number]))

    seconds = 0.0
    for trial in range(EVERY, TRIALS + 1, EVERY):
        began = time.process_time()
        study.optimize(objective, n_trials=EVERY)
        seconds += time.process_time() - began
        best = study.sampler.best_trial(study) if sampler == "BayesianSVRSampler" else study.best_trial
        found = dict(zip(KEY, (function, values, sampler, seed), strict=True))
        found |= {"trial": trial, "recommended": f"{true[best.number]:.3g}", "evaluated": f"{min(true):.3g}"}
        rows.append(found | {"seconds": f"{seconds:.2f}"})
    return rows


def table(results: pd.DataFrame) -> Table:
    """Medians over the seeds after the last trial."""
    last = results[results["trial"] == TRIALS]
    out = Table(title=f"median regret after {TRIALS} trials, in ranges: recommended point / best point evaluated")
    for column in ("", "", *SAMPLERS):
        out.add_column(column, justify="right" if column else "left")
    for values in ("exact", "corrupted"):
        for function in FUNCTIONS:
            cells = []
            for sampler in SAMPLERS:
                rows = last[(last["function"] == function) & (last["values"] == values) & (last["sampler"] == sampler)]
                cells.append(f"{rows['recommended'].median():.2g} / {rows['evaluated'].median():.2g}")
            out.add_row(values, function, *cells)
    return out


def plot(results: pd.DataFrame, path: Path) -> None:
    """Curves of the regret: medians over the seeds, of the recommended point (lines) and of the best point (dashes)."""
    figure, axes = plt.subplots(2, len(FUNCTIONS), figsize=(13, 5), sharex=True, squeeze=False, layout="constrained")
    for row, values in zip(axes, ("exact", "corrupted"), strict=True):
        for ax, function in zip(row, FUNCTIONS, strict=True):
            of_function = results[(results["function"] == function) & (results["values"] == values)]
            for i, sampler in enumerate(SAMPLERS):
                medians = of_function[of_function["sampler"] == sampler].groupby("trial").median(numeric_only=True)
                ax.plot(medians.index, medians["recommended"] + 1e-5, color=f"C{i}", label=sampler)
                ax.plot(medians.index, medians["evaluated"] + 1e-5, color=f"C{i}", ls="--", lw=1)
            ax.set(yscale="log", title=f"{function}, {values}")
            ax.title.set_fontsize(9)
        row[0].set_ylabel("regret, in ranges")
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel("trials")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 10,
    file: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = FILE,
    figure: Annotated[Path, typer.Option(help="Where the curves are plotted.")] = FIGURE,
) -> None:
    """Compare samplers of Optuna on exact and on corrupted values; finished runs are kept."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if not file.exists():
        file.write_text(",".join(FIELDS) + "\n")
    done = set(pd.read_csv(file)[KEY].itertuples(index=False, name=None))
    wanted = [(f, v, s, i) for i in range(seeds) for f in FUNCTIONS for v in ("exact", "corrupted") for s in SAMPLERS]
    for key in wanted:
        if key not in done:
            rows = run(*key)
            with file.open("a", newline="") as out:
                csv.DictWriter(out, FIELDS, lineterminator="\n").writerows(rows)
    results = pd.read_csv(file)
    Console(width=120).print(table(results))
    plot(results, figure)


if __name__ == "__main__":
    typer.run(main)

"""Simulated coverage of intervals of default fits, with and without noise scales, and of Gaussian processes.

Each replication draws a function of three inputs, uniform on [0, 1], from a Gaussian process with a Gaussian kernel of
variance 1 and lengthscale .5 (by 500 random cosines), n training rows and 1,000 test rows. The noise has the standard
deviation .3, except where it is said:

- normal;
- Student-t: three degrees of freedom;
- heteroscedastic: normal, with a deviation that grows linearly with the first input from .05 to .55;
- skewed: a gamma distribution of shape 2, less its mean;
- rounded: normal noise, then targets rounded to multiples of .5;
- noise-free.

Measured are the shares of test targets in central intervals of 50, 90 and 99 %, by their probabilities, the CRPS from
99 quantiles of every fifth row, and the log density. That of rounded targets compares methods only: their distribution
has no density.
Below 200 rows there are no noise scales, and the two fits of the package are one. Set ``OMP_NUM_THREADS``: seconds are
those of the processor for one thread. ``python -m benchmarks coverage`` adds the parts that ``coverage.csv`` lacks,
prints the table and plots ``docs/coverage.png``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import typer
from scipy.stats import norm

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.quality import regression_process
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish

INPUTS, LENGTHSCALE, DEVIATION, COSINES, TEST_ROWS = 3, 0.5, 0.3, 500, 1000
EACH = 5  # test row whose CRPS is computed: quantiles of mixtures take long
COVERAGES = (50, 90, 99)
SIZES = (100, 300, 1000)
SCALED_FROM = 200  # rows from which there are noise scales
FILE = Path(__file__).with_suffix(".csv")
FIGURE = Path(__file__).parent.parent / "docs" / "coverage.png"

# Targets with noise, from inputs, values of the function and a generator.
PROCESSES: dict[str, Callable[[Array, Array, np.random.Generator], Array]] = {
    "normal": lambda X, f, rng: f + DEVIATION * rng.normal(size=f.size),
    "Student-t": lambda X, f, rng: f + DEVIATION / np.sqrt(3.0) * rng.standard_t(3, f.size),
    "heteroscedastic": lambda X, f, rng: f + (0.05 + 0.5 * X[:, 0]) * rng.normal(size=f.size),
    "skewed": lambda X, f, rng: f + DEVIATION / np.sqrt(2.0) * (rng.gamma(2.0, size=f.size) - 2.0),
    "rounded": lambda X, f, rng: np.round(2.0 * (f + DEVIATION * rng.normal(size=f.size))) / 2.0,
    "noise-free": lambda X, f, rng: f,
}


def drawn(process: str, n: int, replication: int) -> tuple[Array, Array]:
    """Inputs and targets of training and then test rows."""
    rng = np.random.default_rng([list(PROCESSES).index(process), n, replication])
    X = rng.uniform(size=(n + TEST_ROWS, INPUTS))
    waves, phases = rng.normal(size=(INPUTS, COSINES)) / LENGTHSCALE, rng.uniform(0.0, 2.0 * np.pi, COSINES)
    f = np.sqrt(2.0 / COSINES) * np.cos(X @ waves + phases) @ rng.normal(size=COSINES)
    return X, PROCESSES[process](X, f, rng)


def bayesian(X: Array, y: Array, noise_scales: bool) -> Callable[[Array], Any]:
    """The default of the package, with or without noise scales."""
    return bp.BayesianSVR(noise_scales=noise_scales, random_state=0).fit(X, y).predict_distribution


def gaussian_process(X: Array, y: Array) -> Callable[[Array], Any]:
    """Gaussian process regression of scikit-learn, one start."""
    model = regression_process(X.shape[1], more_starts=0).fit(X, y)
    return lambda X: norm(*model.predict(X, return_std=True))


METHODS: dict[str, Callable[[Array, Array], Callable[[Array], Any]]] = {
    "bsvr_pp": lambda X, y: bayesian(X, y, True),
    "without scales": lambda X, y: bayesian(X, y, False),
    "GPR": gaussian_process,
}


@cache
def _warm_up() -> None:
    """Compile what the default needs."""
    for n in SIZES[:2]:
        bayesian(*(part[:n] for part in drawn("normal", n, 0)), True)


def measured(process: str, n: int, replication: int, method: str) -> dict[str, float]:
    """Coverages, scores, and processor seconds of the fit."""
    X, y = drawn(process, n, replication)
    _warm_up()
    began = time.process_time()
    predict = METHODS[method](X[:n], y[:n])
    seconds = time.process_time() - began
    found, y = predict(X[n:]), y[n:]
    outside = 100.0 * np.abs(2.0 * found.cdf(y) - 1.0)  # of which central interval y is an end
    inside = {f"cover {coverage}": float(np.mean(outside <= coverage)) for coverage in COVERAGES}
    some = predict(X[n::EACH])
    scores = {"CRPS": crps(y[::EACH], some.ppf(LEVELS[:, None])), "log density": float(np.mean(found.logpdf(y)))}
    return {**inside, **scores, "seconds": seconds}


def summary(rows: pd.DataFrame) -> list[Timing]:
    """Means with standard errors over the replications."""
    keys = [f"cover {coverage}" for coverage in COVERAGES]
    found = Timing(
        "Coverage (%) of nominal intervals, CRPS and log density: means over replications with standard errors",
        (
            "process",
            "rows",
            "method",
            "replications",
            *(f"{coverage} %" for coverage in COVERAGES),
            "CRPS",
            "log density",
        ),
    )
    by = rows.groupby(["process", "n", "method"], sort=False)
    mean, error, count = by.mean(numeric_only=True), by.sem(numeric_only=True), by.size()
    order = [(p, n, m) for p in PROCESSES for n in SIZES for m in METHODS if (p, n, m) in mean.index]
    for cell in order:
        covers = (f"{100 * mean.loc[cell, key]:.1f} ± {100 * error.loc[cell, key]:.1f}" for key in keys)
        scores = (f"{mean.loc[cell, key]:.4f} ± {error.loc[cell, key]:.4f}" for key in ("CRPS", "log density"))
        found.add(*cell, count[cell], *covers, *scores)
    noisy = [cell for cell in order if cell[0] != "noise-free" and cell[1] >= SCALED_FROM]
    for method in METHODS:
        values = [100 * mean.loc[cell, "cover 90"] for cell in noisy if cell[2] == method]
        if values:
            found.notes += f"{method}: 90 % intervals of noisy processes from {SCALED_FROM} rows cover "
            found.notes += f"{min(values):.1f} to {max(values):.1f} %. "
    return [found]


def plot(rows: pd.DataFrame, path: Path) -> None:
    """Coverage against the number of rows, one panel a process, with two standard errors."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), sharex=True, sharey=True, layout="constrained")
    for ax, process in zip(axes.flat, PROCESSES, strict=True):
        for coverage in COVERAGES:
            ax.axhline(coverage, color="0.6", lw=1, zorder=0)
            for i, method in enumerate(METHODS):
                part = rows[(rows["process"] == process) & (rows["method"] == method)]
                by = part.groupby("n")[f"cover {coverage}"]
                mean, error = 100 * by.mean(), 100 * by.sem().fillna(0.0)
                ax.errorbar(
                    mean.index * 1.06 ** (i - 1),
                    mean,
                    2.0 * error,
                    color=f"C{i}",
                    marker="os^"[i],
                    ms=4,
                    lw=1,
                    label=method if coverage == COVERAGES[0] else None,
                )
        ax.set(xscale="log", ylim=(30, 101), title=process, yticks=COVERAGES)
        ax.set_xticks(SIZES, [f"{n:,}" for n in SIZES])
        ax.minorticks_off()
    axes[0, 0].legend(fontsize=8)
    figure.supxlabel("training rows")
    figure.supylabel("test targets inside the interval (%)")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(
    replications: Annotated[int, typer.Option(help="Of 100 and 300 rows.")] = 100,
    of_most: Annotated[int, typer.Option(help="Of 1,000 rows.")] = 30,
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Numbers of training rows.")] = None,
    out: Annotated[Path, typer.Option(help="File of results; finished parts are kept.")] = FILE,
    figure: Annotated[Path, typer.Option(help="Where the coverage is plotted.")] = FIGURE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Measure the coverage of intervals on simulated processes."""
    parts = [
        {"process": process, "n": n, "replication": replication, "method": method}
        for replication in range(max(replications, of_most))
        for n in sizes or SIZES
        if replication < (of_most if n == SIZES[-1] else replications)
        for process in PROCESSES
        for method in METHODS
        if n >= SCALED_FROM or method != "without scales"
    ]
    rows = finished(out, parts, measured)
    publish("coverage", summary(rows), save)
    plot(rows, figure)

"""The UCI tables on the splits of Hernández-Lobato & Adams (2015), beside published figures and other packages.

Each of the 20 splits (five of Protein) keeps a tenth of the rows for the test; the permutations are those of
``numpy.random.RandomState(1)``, in the order in which the published tables drew them. Boston and Concrete are in the
shared data; ``--folder`` has the others as ``energy.csv``, ``kin8nm.csv``, ``power.csv``, ``protein.csv``, ``wine.csv``
and ``yacht.csv``: a line of names, numbers alone, the target in the last column. "wine, once" is Wine without repeated
rows. "protein, transformed" is that of the shared data, whose target is a function of the published one, so that the
published figures do not apply.

The packages and their defaults are those of the benchmark ``middle``; the Gaussian process is left out above 5,000
rows. Set ``OMP_NUM_THREADS``: seconds are those of the processor for one thread.

The published negative log likelihoods are those of Duan et al. (2020, table 1) for a Gaussian process, for NGBoost and
the best of the table.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.finished import finished
from benchmarks.large import read
from benchmarks.middle import PEERS
from benchmarks.scores import LEVELS, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import load

Array = NDArray[np.float64]

# Negative log likelihood of a Gaussian process, of NGBoost and the best of table 1 of Duan et al. (2020).
PUBLISHED = {
    "boston": (2.37, 2.43, 2.37),
    "concrete": (3.03, 3.04, 2.93),
    "energy": (0.66, 0.60, 0.60),
    "kin8nm": (-1.11, -0.49, -1.25),
    "power": (2.81, 2.79, 2.66),
    "protein": (2.89, 2.81, 2.59),
    "wine": (0.95, 0.91, 0.91),
    "yacht": (0.10, 0.20, 0.10),
}
SHARED = {"boston": "boston_housing", "concrete": "concrete"}
TRANSFORMED = "protein, transformed"
SPLITS, OF_PROTEIN, MOST_OF_PROCESS = 20, 5, 5000
PACKAGES = [name for name in ("bsvr_pp", "GPR", "NGBoost", "CatBoost", "LightGBM") if name in PEERS]
FILE = Path(__file__).with_suffix(".csv")


@cache
def table(name: str, folder: Path | None) -> tuple[Array, Array] | None:
    """Inputs and targets of a set; None where there is no file of it."""
    if name in SHARED:
        data = load(SHARED[name])
        return data.X, data.y
    if name == TRANSFORMED:
        return read("protein")[:2]
    set_, _, once = name.partition(", ")
    if folder is None or not (file := folder / f"{set_}.csv").exists():
        return None
    values = pd.read_csv(file).to_numpy(dtype=np.float64)
    if once:
        values = values[np.sort(np.unique(values, axis=0, return_index=True)[1])]
    return values[:, :-1], values[:, -1]


def split(n: int, number: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Training and test rows of a split."""
    random = np.random.RandomState(1)
    order = [random.choice(n, n, replace=False) for _ in range(number + 1)][-1]
    return np.split(order, [round(0.9 * n)])


@cache
def _warm_up(package: str) -> None:
    """Compile what the default needs."""
    X = np.random.default_rng(0).normal(size=(250, 2))
    PEERS[package](X, np.sin(X[:, 0]) + 0.1 * X[:, 1])


def measured(folder: Path | None, **part: Any) -> dict[str, float]:
    """Scores of a package on a split, with its processor seconds and the coverage of 90 % intervals."""
    X, y = table(part["set"], folder)  # type: ignore[misc]
    train, test = split(len(y), part["split"])
    X, X_test, y, y_test = X[train], X[test], y[train], y[test]
    varies = np.ptp(X, axis=0) > 0
    _warm_up(part["package"])
    began = time.process_time()
    predict = PEERS[part["package"]](X[:, varies], y)
    fitted = time.process_time()
    log_density, quantiles, mean = predict(X_test[:, varies], y_test)
    low, high = (quantiles[np.argmin(np.abs(LEVELS - level))] for level in (0.05, 0.95))
    return {
        "NLL": -float(np.mean(log_density)),
        "CRPS": crps(y_test, quantiles),
        "RMSE": float(np.sqrt(np.mean((y_test - mean) ** 2))),
        "cover": float(np.mean((low <= y_test) & (y_test <= high))),
        "seconds": fitted - began,
    }


def summary(rows: pd.DataFrame) -> list[Timing]:
    """Means over the splits with their standard errors, and mean ranks over the sets."""
    found = Timing(
        "UCI tables: means over splits with standard errors, coverage of 90 % intervals, and seconds of a fit",
        ("set", "package", "splits", "NLL", "CRPS", "RMSE", "cover", "seconds"),
    )
    for (name, package), part in rows.groupby(["set", "package"], sort=False):
        mean, error = (part[["NLL", "CRPS", "RMSE"]].agg(kind) for kind in ("mean", "sem"))
        scores = ("–" if np.isnan(mean[key]) else f"{mean[key]:.3g} ± {error[key]:.1g}" for key in mean.index)
        found.add(name, package, len(part), *scores, f"{part['cover'].mean():.3f}", f"{part['seconds'].mean():.1f}")
    for name, (process, boosted, best) in PUBLISHED.items():
        if name in set(rows["set"]):
            found.add(name, "published: GP; NGBoost; best", 20, f"{process}; {boosted}; {best}", *4 * "–")
    means = rows.groupby(["set", "package"])[["NLL", "CRPS", "RMSE"]].mean()
    ranks = []
    for score in means:
        values = means[score].unstack("package").dropna(axis=1)
        mean_rank = pd.Series(rankdata(values, axis=1).mean(axis=0), values.columns).sort_values()
        ranks.append(f"{score} " + ", ".join(f"{package} {rank:.1f}" for package, rank in mean_rank.items()))
    found.notes = "Mean ranks of the packages that ran on all sets: " + "; ".join(ranks) + "."
    return [found]


def main(
    folder: Annotated[Path | None, typer.Option(help="CSV files of the sets that are not in the shared data.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    packages: Annotated[list[str] | None, typer.Option("--package", help="Packages.")] = None,
    splits: Annotated[int, typer.Option(help="Number of splits, of at most 20.", max=SPLITS)] = SPLITS,
    out: Annotated[Path, typer.Option(help="File of results; finished parts are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score default fits on the UCI tables, on the published splits."""
    sets = [name for name in only or (*PUBLISHED, "wine, once", TRANSFORMED) if table(name, folder) is not None]
    parts = [
        {"set": name, "split": number, "package": package}
        for name in sets
        for number in range(min(splits, OF_PROTEIN) if name.startswith("protein") else splits)
        for package in packages or PACKAGES
        if package != "GPR" or len(table(name, folder)[1]) <= MOST_OF_PROCESS  # type: ignore[index]
    ]
    publish("uci", summary(finished(out, parts, lambda **part: measured(folder, **part))), save)


if __name__ == "__main__":
    typer.run(main)

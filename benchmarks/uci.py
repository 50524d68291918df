"""The UCI tables on the splits of Hernández-Lobato & Adams (2015), beside published figures and other packages.

Each of the 20 splits (five of Protein) keeps a tenth of the rows for the test; the permutations are those of
``numpy.random.RandomState(1)``, in the order in which the published tables drew them. The sets are ``uci/*.npz`` of the
shared data. "wine, once" is Wine without repeated rows.

The packages and their defaults are those of the benchmark ``middle``; the Gaussian process is left out above 5,000
rows. Set ``OMP_NUM_THREADS``: seconds are those of the processor for one thread.

The published negative log densities are those of TabPFN v2 with its defaults, of TabResFlow, and of XGBoost and
CatBoost after a search (README of ayhamo/Probabilistic_Point_Estimations, 2025); that of Boston is the best of Duan et
al. (2020).
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
from benchmarks.middle import PEERS
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import data_folder

Rows = NDArray[np.intp]

PUBLISHED = {  # of Boston the best of a table; of the others TabResFlow; XGBoost; CatBoost
    "boston": "2.37",
    "concrete": "2.89; 2.88; 2.95",
    "energy": "0.64; 0.26; 0.71",
    "kin8nm": "-1.28; -0.68; -0.84",
    "naval": "-5.33; -4.84; -4.81",
    "power": "2.58; 2.54; 2.71",
    "protein": "1.93; 2.63; 2.84",
    "wine": "-1.16; 0.84; 0.91",
    "yacht": "0.56; 1.04; 1.32",
}
TABPFN = {  # mean and standard deviation of its negative log density, RMSE; and the CRPS of TabResFlow
    "concrete": (2.2148, 0.1384, 3.91, 2.4417),
    "energy": (0.1500, 0.1219, 0.43, 0.2943),
    "kin8nm": (-1.2720, 0.0184, 0.071, 0.0387),
    "naval": (-7.3279, 0.0186, np.nan, 0.0007),
    "power": (2.2778, 0.0219, 3.01, 1.9334),
    "protein": (1.7316, 0.0178, 3.53, 1.6971),
    "wine": (-2.7230, 0.1714, 0.63, 0.3172),
    "yacht": (-0.7313, 0.2379, 0.45, 0.5382),
}
SPLITS, OF_PROTEIN, MOST_OF_PROCESS = 20, 5, 5000
PACKAGES = [name for name in ("bsvr_pp", "GPR", "NGBoost", "CatBoost", "LightGBM") if name in PEERS]
FILE = Path(__file__).with_suffix(".csv")


@cache
def table(name: str) -> tuple[Array, Array]:
    """Inputs and targets of a set."""
    set_, _, once = name.partition(", ")
    with np.load(data_folder() / "uci" / f"{set_}.npz") as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    kept = np.sort(np.unique(np.column_stack([X, y]), axis=0, return_index=True)[1]) if once else slice(None)
    return X[kept], y[kept]


def split(n: int, number: int) -> tuple[Rows, Rows]:
    """Training and test rows of a split."""
    random = np.random.RandomState(1)
    order = [random.choice(n, n, replace=False) for _ in range(number + 1)][-1]
    train, test = np.split(order, [round(0.9 * n)])
    return train, test


@cache
def _warm_up(package: str) -> None:
    """Compile what the default needs."""
    X = np.random.default_rng(0).normal(size=(250, 2))
    PEERS[package](X, np.sin(X[:, 0]) + 0.1 * X[:, 1])


def measured(**part: Any) -> dict[str, float]:
    """Scores of a package on a split, with its processor seconds and the coverage of 90 % intervals."""
    X, y = table(part["set"])
    return scored(part["package"], X, y, *split(len(y), part["split"]), interval=(0.05, 0.95))


def scored(
    package: str, X: Array, y: Array, train: Rows, test: Rows, interval: tuple[float, float]
) -> dict[str, float]:
    """Scores of a package that is fitted to some rows, on others, with the coverage of an interval."""
    varies = np.ptp(X[train], axis=0) > 0
    _warm_up(package)
    began = time.process_time()
    predict = PEERS[package](X[train][:, varies], y[train])
    fitted = time.process_time()
    log_density, quantiles, mean = predict(X[test][:, varies], y[test])
    low, high = (quantiles[np.argmin(np.abs(LEVELS - level))] for level in interval)
    return {
        "NLL": -float(np.mean(log_density)),
        "CRPS": crps(y[test], quantiles),
        "RMSE": float(np.sqrt(np.mean((y[test] - mean) ** 2))),
        "cover": float(np.mean((low <= y[test]) & (y[test] <= high))),
        "seconds": fitted - began,
    }


def summary(rows: pd.DataFrame) -> list[Timing]:
    """Means over the splits with their standard errors, and mean ranks over the sets."""
    found = Timing(
        "UCI tables: means over splits with standard errors, coverage of 90 % intervals, and seconds of a fit",
        ("set", "package", "splits", "NLL", "CRPS", "RMSE", "cover", "seconds"),
    )
    for (name, package), part in rows.groupby(["set", "package"]):
        mean, error = (part[["NLL", "CRPS", "RMSE"]].agg(kind) for kind in ("mean", "sem"))
        scores = ("–" if np.isnan(mean[key]) else f"{mean[key]:.3g} ± {error[key]:.1g}" for key in mean.index)
        found.add(name, package, len(part), *scores, f"{part['cover'].mean():.3f}", f"{part['seconds'].mean():.1f}")
    means = rows.groupby(["set", "package"])[["NLL", "CRPS", "RMSE"]].mean()
    ranks = []
    for score in means:
        values = means[score].unstack("package").dropna(axis=1, how="all").dropna()
        mean_rank = pd.Series(rankdata(values, axis=1).mean(axis=0), values.columns).sort_values()
        ranks.append(f"{score} " + ", ".join(f"{package} {rank:.1f}" for package, rank in mean_rank.items()))
    found.notes = "Mean ranks on the sets that all packages ran on: " + "; ".join(ranks) + "."
    return [found, beside_tabpfn(rows[rows["package"] == "bsvr_pp"])]


def beside_tabpfn(rows: pd.DataFrame) -> Timing:
    """Ours beside the published figures of two networks, from the worst set to the best."""
    found = Timing(
        "bsvr_pp beside published figures: its NLL, RMSE and seconds of one core, from the worst set to the best",
        (
            *("set", "splits", "NLL", "TabPFN", "difference", "TabResFlow; XGBoost; CatBoost"),
            *("RMSE", "TabPFN: RMSE", "CRPS", "TabResFlow: CRPS", "seconds"),
        ),
    )
    table = []
    for name, part in rows[rows["set"].isin(TABPFN)].groupby("set"):
        density, deviation, error, of_flow = TABPFN[name]
        n, mean = len(part), part.mean(numeric_only=True)
        behind = mean["NLL"] - density
        published = OF_PROTEIN - 1 if name == "protein" else SPLITS  # its table has four of the five
        sure = np.hypot(part["NLL"].sem(), deviation / np.sqrt(published))
        own = f"{np.sqrt(np.mean(part['RMSE'] ** 2)):.3g}", "–" if np.isnan(error) else f"{error:.3g}"
        scores = *own, f"{mean['CRPS']:.3g}", f"{of_flow:.3g}", f"{mean['seconds']:.0f}"
        densities = f"{mean['NLL']:.3f}", f"{density:.3f}", f"{behind:+.3f} ± {sure:.2g}", PUBLISHED[name]
        table.append((behind, name, n, *densities, *scores))
    for _, *line in sorted(table, key=lambda line: -line[0]):
        found.add(*line)
    ahead = sum(behind < 0 for behind, *_ in table)
    found.notes = (
        f"Ours is ahead in log density on {ahead} of {len(table)} sets. RMSE is the root of the mean square over "
        "splits; standard deviations of the published table are turned into standard errors. The targets of Wine, "
        "Power and Naval are on grids, which a density can use: CRPS and RMSE count more there. The best published NLL "
        f"of Boston is {PUBLISHED['boston']}."
    )
    return found


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    packages: Annotated[list[str] | None, typer.Option("--package", help="Packages.")] = None,
    splits: Annotated[int, typer.Option(help="Number of splits, of at most 20.", max=SPLITS)] = SPLITS,
    out: Annotated[Path, typer.Option(help="File of results; finished parts are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score default fits on the UCI tables, on the published splits."""
    sets = only or [*PUBLISHED, "wine, once"]
    parts = [
        {"set": name, "split": number, "package": package}
        for name in sets
        for number in range(min(splits, OF_PROTEIN) if name.startswith("protein") else splits)
        for package in packages or PACKAGES
        if package != "GPR" or len(table(name)[1]) <= MOST_OF_PROCESS
    ]
    publish("uci", summary(finished(out, parts, measured)), save)

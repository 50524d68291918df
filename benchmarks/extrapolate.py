"""Outside the data: default fits on tables without a third of the rows along one input, beside published figures.

The rows are sorted by each input. *Gap*: the middle third is the test. *Tail*: the first and the last sixth are. The
published figures are the best of seven neural methods in each score, mean over the splits (nnuncert/nnuncert). Energy
has its first five inputs, Boston all but CHAS, and Wine all eleven (ten in the published table, not named).
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from benchmarks.finished import finished
from benchmarks.middle import PEERS
from benchmarks.side_by_side import Timing, publish
from benchmarks.uci import Rows, scored, table

# Mean log density, CRPS and RMSE of gaps and of tails, each the best of any method.
PUBLISHED = {
    ("boston", "gap"): (-2.512, 1.689, 3.292),
    ("boston", "tail"): (-3.529, 2.861, 5.531),
    ("concrete", "gap"): (-3.306, 3.778, 6.994),
    ("concrete", "tail"): (-3.657, 4.828, 8.622),
    ("energy", "gap"): (-7.55, 3.667, 4.869),
    ("energy", "tail"): (-13.621, 4.512, 7.339),
    ("kin8nm", "gap"): (1.237, 0.041, 0.077),
    ("kin8nm", "tail"): (1.084, 0.049, 0.095),
    ("power", "gap"): (-2.869, 2.337, 4.212),
    ("power", "tail"): (-3.054, 2.870, 5.220),
    ("wine", "gap"): (-0.479, 0.350, 0.623),
    ("wine", "tail"): (-1.211, 0.425, 0.763),
    ("yacht", "gap"): (-1.577, 0.684, 1.132),
    ("yacht", "tail"): (-2.591, 1.694, 3.087),
}
COLUMNS = {"boston": [k for k in range(13) if k != 3], "energy": list(range(5))}
FILE = Path(__file__).with_suffix(".csv")


def columns(name: str) -> list[int]:
    """Inputs along which rows are left out."""
    return COLUMNS.get(name, list(range(table(name)[0].shape[1])))


def split(x: np.ndarray, kind: str) -> tuple[Rows, Rows]:
    """Training and test rows without the middle third of an input, or without its ends."""
    n, order = len(x), np.argsort(x, kind="stable")
    middle = np.zeros(n, dtype=bool)
    if kind == "gap":
        middle[int(n / 3) : int(2 * n / 3)] = True
    else:
        middle[: ceil(n / 6)] = middle[int(5 * n / 6) :] = True
    return order[~middle], order[middle]


def measured(**part: Any) -> dict[str, float]:
    """Scores of a package without some rows, and the coverage of 95 % intervals."""
    X, y = table(part["set"])
    return scored(part["package"], X, y, *split(X[:, part["column"]], part["kind"]), interval=(0.03, 0.97))


def summary(rows: pd.DataFrame) -> list[Timing]:
    """Means over the splits, beside the published ones."""
    found = Timing(
        "Gaps and tails: means over splits, coverage of 94 % intervals, and the best published",
        ("set", "kind", "package", "splits", "log density", "CRPS", "RMSE", "cover", "published"),
    )
    for (name, kind, package), part in rows.groupby(["set", "kind", "package"], sort=False):
        mean = part[["NLL", "CRPS", "RMSE", "cover"]].mean()
        scores = f"{-mean['NLL']:.3f}", f"{mean['CRPS']:.4g}", f"{mean['RMSE']:.4g}", f"{mean['cover']:.3f}"
        found.add(name, kind, package, len(part), *scores, "; ".join(map(str, PUBLISHED[name, kind])))
    return [found]


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    packages: Annotated[list[str] | None, typer.Option("--package", help="Packages.")] = None,
    out: Annotated[Path, typer.Option(help="File of results; finished parts are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score default fits outside the data: gaps and tails along each input."""
    parts = [
        {"set": name, "kind": kind, "column": column, "package": package}
        for name, kind in PUBLISHED
        for column in (columns(name) if only is None or name in only else [])
        for package in packages or [name for name in ("bsvr_pp", "GPR") if name in PEERS]
    ]
    publish("extrapolate", summary(finished(out, parts, measured)), save)

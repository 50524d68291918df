"""Few rows: hyperparameters at their optimum, integrated out by weighted points, and sampled.

The rows are a random part of each set, and up to 1,000 others are the test. ``integrated`` is the default of
`BayesianSVR` up to 300 rows. NUTS has two chains of 200 steps of adaptation and 100 draws, f integrated out by mean
field, for the first ``--sampled`` splits. Seconds are those of the processor, of one thread (set ``OMP_NUM_THREADS``),
after a first fit.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.middle import table as middle_table
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from benchmarks.uci import table as uci_table

UCI = ("boston", "concrete", "energy", "power", "wine", "yacht")
SETS = (*UCI, "auto_mpg", "space_ga", "stock", "elevators")
SIZES = (50, 100, 200, 400)
METHODS: dict[str, Any] = {
    "optimum": "mean_field",
    "integrated": bp.Integrated(points=32, kept=12),
    "NUTS": bp.NUTS(latent=bp.MeanField(), tune=200, draws=100, chains=2, cores=1),
}
SCORES = ["NLL", "CRPS", "cover", "half", "fit", "predict"]
FILE = Path(__file__).with_suffix(".csv")


@cache
def table(name: str) -> tuple[Array, Array]:
    """Inputs and targets of a set."""
    return uci_table(name) if name in UCI else middle_table(name)


def measured(**part: Any) -> dict[str, float]:
    """Scores of a method on a random part of a set, with its processor seconds and the coverage of two intervals."""
    X, y = table(part["set"])
    n, order = part["rows"], np.random.default_rng([part["split"], part["rows"]]).permutation(len(y))
    train, test = order[:n], order[n:][:1000]
    X = X[:, np.ptp(X[train], axis=0) > 0]
    svr = bp.BayesianSVR(inference=METHODS[part["method"]], random_state=0)
    if part["method"] != "NUTS":
        svr.fit(X[train], y[train])  # compiles what the fit needs
    began = time.process_time()
    svr.fit(X[train], y[train])
    fitted = time.process_time()
    svr.predict_interval(X[test[:5]])
    done = time.process_time()
    found = svr.predict_distribution(X[test])
    held = {name: found.interval(share) for name, share in (("cover", 0.9), ("half", 0.5))}
    return {
        "NLL": -float(np.mean(found.logpdf(y[test]))),
        "CRPS": crps(y[test], found.ppf(LEVELS[:, None])),
        **{name: float(np.mean((low <= y[test]) & (y[test] <= high))) for name, (low, high) in held.items()},
        "fit": fitted - began,
        "predict": done - fitted,
    }


def summary(lines: pd.DataFrame) -> list[Timing]:
    """Means over the splits, and means over the sets of what each method gains on the optimum."""
    found = Timing(
        "Few rows: NLL; CRPS; coverage of 90 % and of 50 % intervals; seconds", ("set", "rows", "splits", *METHODS)
    )
    means = lines.groupby(["set", "rows", "method"], sort=False)[SCORES].mean()
    for (name, rows), part in means.groupby(level=[0, 1], sort=False):
        known = part.droplevel([0, 1])
        cells = (
            "{:.3f}; {:.4g}; {:.3f}; {:.3f}; {:.2f}".format(*known.loc[m][:5]) if m in known.index else "–"
            for m in METHODS
        )
        found.add(name, rows, int(lines.query("set == @name and rows == @rows")["split"].nunique()), *cells)
    gains = Timing(
        "The same, in the mean over sets, on the splits of each method: change of NLL and of log CRPS from the optimum",
        ("rows", "method", "splits", "NLL", "log CRPS", "worst set", "90 %", "50 %", "fit", "predict"),
    )
    keys = ["set", "rows", "split"]
    wide = lines.set_index([*keys, "method"])[SCORES].unstack()
    for rows in lines["rows"].unique():
        for method in [m for m in METHODS if m != "optimum" and m in set(lines["method"])]:
            some = wide.xs(rows, level="rows").loc[:, (slice(None), ["optimum", method])].dropna()
            if not some.empty:
                log = np.log(some["CRPS"][method] / some["CRPS"]["optimum"])
                change = some["NLL"][method] - some["NLL"]["optimum"]
                times = [f"{(some[k][method] / some[k]['optimum']).median():.1f} times" for k in ("fit", "predict")]
                shares = [f"{some[k][method].mean():.3f}" for k in ("cover", "half")]
                worst = log.groupby("set").mean()
                at = f"{change.mean():.4f}", f"{log.mean():.4f}", f"{worst.idxmax()} {worst.max():+.3f}"
                gains.add(rows, method, len(some), *at, *shares, *times)
    return [found, gains]


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    rows: Annotated[list[int] | None, typer.Option("--n", help="Numbers of rows.")] = None,
    splits: Annotated[int, typer.Option(help="Random parts of each set.")] = 5,
    sampled: Annotated[int, typer.Option(help="Splits of these that NUTS is run on.")] = 0,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare hyperparameters at their optimum, integrated out, and sampled, on few rows."""
    parts = [
        {"set": name, "rows": n, "split": number, "method": method}
        for number in range(splits)
        for n in rows or SIZES
        for name in only or SETS
        for method in METHODS
        if (method != "NUTS" or number < sampled) and n <= 0.9 * len(table(name)[1])
    ]
    publish("integrated", summary(finished(out, parts, measured)), save)

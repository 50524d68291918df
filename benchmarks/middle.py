"""The middle sizes: the default fit and its prediction on real sets of 300 to 4,000 rows, beside other packages.

Each pair of a set and a size is one line of the file of results: the rows are a random part of the set, and up to 1,000
others are the test rows. `BayesianSVR` has its defaults; Gaussian process regression is scikit-learn's with a constant
times a Gaussian kernel of one lengthscale an input and white noise, standardised, with one start and its own bounds.
NGBoost and CatBoost with uncertainty have their defaults (normal targets). LightGBM predicts nine quantiles, between
which it is interpolated, and its mean.
The explainable boosting machine (EBM) has four outer bags, with which a fit takes a quarter of the time, and normal
noise with the deviation of a fifth of the rows, held out. What is not installed is left out
(``benchmarks/requirements-middle.txt``). Seconds are those of the processor, of one thread (set ``OMP_NUM_THREADS``),
in alternating runs after a fit on 400 rows. The continuous ranked probability score (CRPS) is computed from 99
quantiles, the negative log density (NLPD) is that of the predictive distribution itself.

Two other parts have ten named sets, with 400 rows or all but 50 (``--n`` for other numbers), and one split each.
``python -m benchmarks middle --part seeds`` repeats the fit with ten values of `random_state`: how far CRPS and log
evidence are apart. ``python -m benchmarks middle --part times`` compares times of fits and predictions with those of
Gaussian process regression.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.large import read
from benchmarks.peers import Density, catboost, explainable, gaussian_process, lightgbm, ngboost
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import data_folder, load

FILES = ("abalone", "auto_mpg", "boston_housing", "concrete", "cpusmall", "space_ga", "stock")
LARGE = ("elevators", "era_wind", "nycflights13", "pol", "protein")
NAMED = (
    *("uci/concrete", "uci/energy", "uci/yacht", "uci/boston", "uci/wine"),
    *("abalone", "elevators", "large/keggdirected", "protein", "stock"),
)
SIZES = (300, 500, 1000, 2000, 4000)
OF_SEEDS, OF_TIMES = (400, 600), (300, 400, 600, 1000)
RANDOM_STATES = 10
_TEST_ROWS, _LEAST = 1000, 50


@cache
def table(name: str) -> tuple[Array, Array]:
    """Inputs and targets of a set."""
    if name in LARGE:
        return read(name)[:2]
    if "/" in name:
        with np.load(data_folder() / f"{name}.npz") as file:
            return file["X"].astype(np.float64), file["y"].astype(np.float64)
    data = load(name)
    return data.X, data.y


def has(name: str, rows: int) -> bool:
    """Whether a set has so many training rows, and enough others for the test."""
    return len(table(name)[1]) - rows >= min(rows // 10, _LEAST)


def split(name: str, rows: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Training and test data of a random part."""
    X, y = table(name)
    order = np.random.default_rng([seed, rows, len(name)]).permutation(len(y))
    test, train = order[rows:][:_TEST_ROWS], order[:rows]
    varies = np.ptp(X[train], axis=0) > 0
    return X[train][:, varies], X[test][:, varies], y[train], y[test]


def bayesian(X: Any, y: Array, kernel: Any = "auto") -> Callable[[Any, Array], Density]:
    """The default of the package, or another kernel."""
    svr = bp.BayesianSVR(kernel=kernel, random_state=0).fit(X, y)

    def predict(X: Any, y: Array) -> Density:
        found = svr.predict_distribution(X)
        return found.logpdf(y), found.ppf(np.asarray(LEVELS)[:, None]), found.mean()

    return predict


_PRODUCT, _TIMED = "without main effects", ("bsvr_pp", "GPR")
PEERS: dict[str, Callable[..., Any]] = {
    "bsvr_pp": bayesian,
    _PRODUCT: partial(bayesian, kernel="rational_quadratic"),
    "GPR": gaussian_process,
}
_OTHERS = (
    ("ngboost", "NGBoost", ngboost),
    ("catboost", "CatBoost", catboost),
    ("lightgbm", "LightGBM", lightgbm),
    ("interpret", "EBM", explainable),
)
PEERS |= {name: peer for package, name, peer in _OTHERS if find_spec(package)}


def scores(peer: Callable[..., Any], X: Any, X_test: Any, y: Array, y_test: Array) -> dict[str, float]:
    """Processor seconds of fit and prediction, and the scores."""
    peer(X[:400], y[:400])  # compiles what the default needs
    began = time.process_time()
    predict = peer(X, y)
    fitted = time.process_time()
    log_density, quantiles, mean = predict(X_test, y_test)
    done = time.process_time()
    return {
        "fit": fitted - began,
        "predict": done - fitted,
        "NLPD": -float(np.mean(log_density)),
        "CRPS": crps(y_test, quantiles),
        "RMSE": float(np.sqrt(np.mean((y_test - mean) ** 2))),
    }


def measured(**part: Any) -> dict[str, float]:
    """Seconds and scores of a package on a random part of a set, and the number of inputs."""
    data = split(part["set"], part["rows"], part["seed"])
    return {"inputs": data[0].shape[1], **scores(PEERS[part["peer"]], *data)}


def table_of(lines: pd.DataFrame) -> Timing:
    """The lines, and the ratio of the time of a fit to that of Gaussian process regression."""
    peers = [name for name in PEERS if name in set(lines["peer"])]
    columns = ("set", "rows", "inputs", *(f"{name}: fit (s); NLPD; CRPS; RMSE" for name in peers))
    table = Timing("Default fits of middle sizes: processor seconds of a fit, and scores", columns)
    found = lines.set_index(["set", "rows", "inputs", "peer"])[["fit", "NLPD", "CRPS", "RMSE"]]
    for case, part in found.groupby(level=[0, 1, 2], sort=False):
        known = part.droplevel([0, 1, 2])
        cells = (
            "{:.1f}; {:.3f}; {:.4g}; {:.4g}".format(*known.loc[name]) if name in known.index else "–" for name in peers
        )
        table.add(*case, *cells)
    ratio = found["fit"].unstack().rdiv(found["fit"].unstack()["bsvr_pp"], axis=0)
    of_many = ratio["GPR"][ratio.index.get_level_values("rows") >= 500]
    ranks = []
    for score in ("NLPD", "CRPS", "RMSE"):
        mean = found[score].unstack().drop(columns=_PRODUCT).dropna(axis=1, how="all").rank(axis=1).mean().sort_values()
        ranks.append(f"{score} " + ", ".join(f"{name} {rank:.1f}" for name, rank in mean.items()))
    table.notes = (
        f"Fit of bsvr_pp over that of GPR: median {ratio['GPR'].median():.2f}, largest from 500 rows "
        f"{of_many.max():.2f}. Over that {_PRODUCT}: median {ratio[_PRODUCT].median():.2f}. Mean ranks: "
        f"{'; '.join(ranks)}."
    )
    return table


def of_random_state(**part: Any) -> dict[str, float]:
    """CRPS and log evidence of the default fit with a `random_state`."""
    X, X_test, y, y_test = split(part["set"], part["rows"], part["seed"])
    svr = bp.BayesianSVR(random_state=part["random_state"]).fit(X, y)
    quantiles = svr.predict_distribution(X_test).ppf(np.asarray(LEVELS)[:, None])
    return {"CRPS": crps(y_test, quantiles), "log evidence": svr.log_evidence_}


def table_of_seeds(lines: pd.DataFrame) -> Timing:
    """How far the scores of a set are apart over all values of `random_state`."""
    columns = ("set", "rows", "fits", "CRPS", "its range", "range of log evidence (nats)")
    table = Timing("Default fits with other values of random_state, one split", columns)
    steady = []
    for case, part in lines.groupby(["set", "rows"], sort=False):
        mean, nats = part["CRPS"].mean(), np.ptp(part["log evidence"])
        steady.append(np.ptp(part["CRPS"]) <= 0.01 * mean)
        table.add(*case, len(part), f"{mean:.4g}", f"{np.ptp(part['CRPS']) / mean:.2%}", f"{nats:.2f}")
    table.notes = f"CRPS varies by at most 1 % in {sum(steady)} of {len(steady)} lines."
    return table


def table_of_times(lines: pd.DataFrame) -> Timing:
    """Times beside those of Gaussian process regression."""
    columns = ("set", "rows", "inputs", "fit (s)", "that of GPR", "ratio", "predictions (s)", "those of GPR", "ratio")
    table = Timing("Default fits and predictions of up to 1,000 rows: processor seconds", columns)
    found = lines.set_index(["set", "rows", "inputs", "peer"])[["fit", "predict"]].unstack()
    ratio = found.xs("bsvr_pp", axis=1, level=1) / found.xs("GPR", axis=1, level=1)
    for case, seconds in found.iterrows():
        cells = ((*seconds[kind][["bsvr_pp", "GPR"]], ratio.loc[case, kind]) for kind in ("fit", "predict"))
        table.add(*case, *(f"{cell:.2f}" for triple in cells for cell in triple))
    medians = ", ".join(f"{n} rows {value:.2f}" for n, value in ratio["fit"].groupby("rows").median().items())
    middle, largest = ratio["fit"].median(), ratio["fit"].max()
    table.notes = f"Ratio of fits: median {middle:.2f} ({medians}), largest {largest:.2f}; of predictions: median "
    table.notes += f"{ratio['predict'].median():.2f}."
    return table


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    rows: Annotated[list[int] | None, typer.Option("--n", help="Numbers of rows.")] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of rows.")] = 0,
    part: Annotated[Literal["scores", "seeds", "times"], typer.Option(help="What is measured.")] = "scores",
    out: Annotated[Path | None, typer.Option(help="File of results; finished lines are kept.")] = None,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Time default fits on real sets beside Gaussian process regression and boosting, and score them."""
    title = "middle" if part == "scores" else f"middle-{part}"
    file = out or Path(f"bsvr-pp-{title}.csv")
    if part == "seeds":
        parts = [
            {"set": name, "rows": min(n, len(table(name)[1]) - _LEAST), "seed": seed, "random_state": state}
            for n in rows or OF_SEEDS
            for name in only or NAMED
            for state in range(RANDOM_STATES)
        ]
        publish(title, [table_of_seeds(finished(file, parts, of_random_state))], save)
        return
    sizes, sets, peers = (SIZES, (*FILES, *LARGE), tuple(PEERS)) if part == "scores" else (OF_TIMES, NAMED, _TIMED)
    parts = [
        {"set": name, "rows": n, "seed": seed, "peer": peer}
        for n in rows or sizes
        for name in only or sets
        if has(name, n)
        for peer in peers
    ]
    make = table_of if part == "scores" else table_of_times
    publish(title, [make(finished(file, parts, measured))], save)

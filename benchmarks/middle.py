"""The middle sizes: the default fit and its prediction on real sets of 300 to 4,000 rows, beside other packages.

Each pair of a set and a size is one line of the file of results: the rows are a random part of the set, and up to 1,000
others are the test rows. `BayesianSVR` has its defaults; Gaussian process regression is scikit-learn's with a constant
times a Gaussian kernel of one lengthscale an input and white noise, standardised, with one start and its own bounds.
NGBoost and CatBoost with uncertainty have their defaults (normal targets). LightGBM predicts nine quantiles, between
which it is interpolated, and its mean.
The explainable boosting machine (EBM) has four outer bags, with which a fit takes a quarter of the time, and normal
noise with the deviation of a fifth of the rows, held out. What is not installed is left out
(``benchmarks/requirements-middle.txt``). Seconds are those of the processor, of one thread (set ``OMP_NUM_THREADS``),
in alternating runs after a fit on 250 rows. The continuous ranked probability score (CRPS) is computed from 99
quantiles, the negative log density (NLPD) is that of the predictive distribution itself.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from scipy.stats import rankdata

import bsvr_pp as bp
from benchmarks.large import read
from benchmarks.peers import Density, catboost, explainable, gaussian_process, lightgbm, ngboost
from benchmarks.scores import LEVELS, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import load

Array = NDArray[np.float64]

FILES = ("abalone", "auto_mpg", "boston_housing", "concrete", "cpusmall", "space_ga", "stock")
LARGE = ("elevators", "era_wind", "nycflights13", "pol", "protein")
SIZES = (300, 500, 1000, 2000, 4000)
_TEST_ROWS = 1000


def split(name: str, rows: int, seed: int) -> tuple[Array, Array, Array, Array] | None:
    """Training and test data of a random part; None where the set has too few rows."""
    if name in LARGE:
        X, y, _ = read(name)
    else:
        data = load(name)
        X, y = data.X, data.y
    order = np.random.default_rng([seed, rows, len(name)]).permutation(len(y))
    test, train = order[rows:][:_TEST_ROWS], order[:rows]
    if test.size < min(rows // 10, 50):
        return None
    varies = np.ptp(X[train], axis=0) > 0
    return X[train][:, varies], X[test][:, varies], y[train], y[test]


def bayesian(X: Any, y: Array, kernel: Any = "auto") -> Callable[[Any, Array], Density]:
    """The default of the package, or another kernel."""
    svr = bp.BayesianSVR(kernel=kernel, random_state=0).fit(X, y)

    def predict(X: Any, y: Array) -> Density:
        found = svr.predict_distribution(X)
        return found.logpdf(y), found.ppf(np.asarray(LEVELS)[:, None]), found.mean()

    return predict


_PRODUCT = "without main effects"
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
    peer(X[:250], y[:250])  # compiles what the default needs
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


def table_of(lines: list[dict[str, Any]]) -> Timing:
    """The lines, and the ratio of the time of a fit to that of Gaussian process regression."""
    peers = list(dict.fromkeys(name for line in lines for name, one in line.items() if isinstance(one, dict)))
    columns = ("set", "rows", "inputs", *(f"{name}: fit (s); NLPD; CRPS; RMSE" for name in peers))
    table = Timing("Default fits of middle sizes: processor seconds of a fit, and scores", columns)
    for line in lines:
        cells = (
            f"{one['fit']:.1f}; {one['NLPD']:.3f}; {one['CRPS']:.4g}; {one['RMSE']:.4g}"
            if (one := line.get(name))
            else "–"
            for name in peers
        )
        table.add(line["set"], line["rows"], line["inputs"], *cells)
    ratio = {(line["set"], line["rows"]): line["bsvr_pp"]["fit"] / line["GPR"]["fit"] for line in lines}
    of_many = [value for (_, rows), value in ratio.items() if rows >= 500]
    table.notes = (
        f"Fit of bsvr_pp over that of GPR: median {np.median(list(ratio.values())):.2f}, "
        f"largest from 500 rows {max(of_many, default=np.nan):.2f}. Over that {_PRODUCT}: median "
        f"{np.median([line['bsvr_pp']['fit'] / line[_PRODUCT]['fit'] for line in lines]):.2f}. Mean ranks: "
        + "; ".join(f"{score} {_ranks(lines, peers, score)}" for score in ("NLPD", "CRPS", "RMSE"))
        + "."
    )
    return table


def _ranks(lines: list[dict[str, Any]], peers: list[str], score: str) -> str:
    """Mean rank of each package over the lines, in words; the best first."""
    peers = [name for name in peers if name != _PRODUCT]
    values = np.array([[line.get(name, {}).get(score, np.nan) for name in peers] for line in lines])
    with_score = ~np.isnan(values).all(axis=0)
    mean = dict(
        zip(
            np.array(peers)[with_score],
            np.nanmean(rankdata(values[:, with_score], axis=1, nan_policy="omit"), axis=0),
            strict=True,
        )
    )
    return ", ".join(f"{name} {rank:.1f}" for name, rank in sorted(mean.items(), key=lambda item: item[1]))


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    rows: Annotated[list[int] | None, typer.Option("--n", help="Numbers of rows.")] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of rows.")] = 0,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = Path("bsvr-pp-middle.jsonl"),
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Time default fits on real sets beside Gaussian process regression and boosting, and score them."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(line["set"], line["rows"], line["seed"]) for line in lines}
    wanted = [(name, n) for n in rows or SIZES for name in only or (*FILES, *LARGE)]
    for name, n in track([each for each in wanted if (*each, seed) not in known], description="sets"):
        if (data := split(name, n, seed)) is None:
            continue
        line: dict[str, Any] = {"set": name, "rows": n, "seed": seed, "inputs": data[0].shape[1]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            line |= {peer: scores(function, *data) for peer, function in PEERS.items()}
        lines.append(line)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    publish("middle", [table_of(lines)], save)


if __name__ == "__main__":
    typer.run(main)

"""What users get without choosing: the default estimator compared with its peers on many sets.

The sets are the regression sets of the data folder (at most 1000 rows; series and labels left out), the diabetes data
of scikit-learn, and three simulated ones: targets without any signal, twenty irrelevant inputs, and gross errors in one
twentieth of the training targets (the test targets are clean). Each split keeps three tenths of the rows for the test.

Errors, scores and standard deviations are in units of the standard deviation of the training targets. The continuous
ranked probability score (CRPS) is computed from 99 quantiles, the log density from mean and standard deviation as if
the prediction were Gaussian, for all methods alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import load

Splits = tuple[Array, Array, Array, Array]  # training inputs, test inputs, training targets, test targets

FILES = (
    "abalone",
    "auto_mpg",
    "bodyfat",
    "boston_housing",
    "concrete",
    "cpu_act",
    "cpusmall",
    "pyrim",
    "robot_arm",
    "space_ga",
    "stock",
    "triazines",
)
SIMULATED = ("no signal", "irrelevant inputs", "gross errors")
SETS = (*FILES, "diabetes", *SIMULATED)
GRID = {"svr__C": np.logspace(-1, 3, 7), "svr__gamma": np.logspace(-3, 1, 7), "svr__epsilon": [0.01, 0.1]}
MOST_ROWS = 1000


def split(name: str, seed: int) -> Splits:
    """Training and test data of one split."""
    rng = np.random.default_rng([seed, len(name)])
    if name == "no signal":
        X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    elif name in SIMULATED:
        X = rng.normal(size=(400, 24 if name == "irrelevant inputs" else 4))
        y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=400)
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        data = load(name)
        rows = rng.permutation(len(data.y))[:MOST_ROWS]
        X, y = data.X[rows], data.y[rows]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    if name == "gross errors":
        wrong = rng.choice(len(y_train), len(y_train) // 20, replace=False)
        y_train = y_train.copy()
        y_train[wrong] += rng.choice([-1.0, 1.0], wrong.size) * rng.uniform(10.0, 100.0, wrong.size)
    return X_train, X_test, y_train, y_test


def bayesian(**options: Any) -> Callable[..., dict[str, float]]:
    """Scores of `BayesianSVR` with some options."""

    def run(X: Array, X_test: Array, y: Array, y_test: Array) -> dict[str, float]:
        model = bp.BayesianSVR(random_state=0, **options)
        fitted = _timed(model, X, y)
        mean, deviation = model.predict(X_test, return_std=True)
        return fitted | _scores(y, y_test, mean, deviation, model.predict_quantiles(X_test, LEVELS).T)

    return run


def regression_process(n_inputs: int, more_starts: int) -> Pipeline:
    """Gaussian process regression of scikit-learn: amplitude, one lengthscale per input, white noise."""
    kernel = ConstantKernel() * RBF(np.ones(n_inputs)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=more_starts, random_state=0)
    return make_pipeline(StandardScaler(), process)


def gaussian_process(X: Array, X_test: Array, y: Array, y_test: Array) -> dict[str, float]:
    """Scores of Gaussian process regression, two starts."""
    model = regression_process(X.shape[1], more_starts=1)
    fitted = _timed(model, X, y)
    mean, deviation = model.predict(X_test, return_std=True)
    return fitted | _scores(y, y_test, mean, deviation, mean + norm.ppf(LEVELS)[:, None] * deviation)


def grid_search(X: Array, X_test: Array, y: Array, y_test: Array) -> dict[str, float]:
    """Errors of support vector regression with 98 combinations of its parameters, in five folds."""
    unit = float(np.std(y))
    search = GridSearchCV(make_pipeline(StandardScaler(), SVR()), GRID, scoring="neg_mean_absolute_error")
    fitted = _timed(search, X, y / unit)
    return fitted | _scores(y, y_test, unit * search.predict(X_test))


def boosting(X: Array, X_test: Array, y: Array, y_test: Array) -> dict[str, float]:
    """Errors of histogram gradient boosting."""
    model = HistGradientBoostingRegressor(random_state=0)
    fitted = _timed(model, X, y)
    return fitted | _scores(y, y_test, model.predict(X_test))


METHODS: dict[str, Callable[..., dict[str, float]]] = {
    "BayesianSVR": bayesian(),
    "BayesianSVR (Laplace)": bayesian(inference="laplace"),
    "GPR": gaussian_process,
    "SVR, grid": grid_search,
    "boosting": boosting,
}


SCORES = ("seconds", "absolute error", "rms error", "CRPS", "log density", "coverage")


def _timed(model: Any, X: Array, y: Array) -> dict[str, float]:
    began = time.process_time()
    model.fit(X, y)
    return {"seconds": time.process_time() - began}


def _scores(
    y: Array, y_test: Array, prediction: Array, deviation: Array | None = None, quantiles: Array | None = None
) -> dict[str, float]:
    quartiles = float(np.subtract(*np.percentile(y, [75, 25])))  # where gross errors inflate the deviation
    unit = float(np.std(y)) if np.ptp(y) < 20 * quartiles else quartiles / 1.349
    error = (y_test - prediction) / unit
    out = {"absolute error": float(np.mean(np.abs(error))), "rms error": float(np.sqrt(np.mean(error**2)))}
    if deviation is not None and quantiles is not None:
        low, high = quantiles[4], quantiles[94]
        out["CRPS"] = crps(y_test / unit, quantiles / unit)
        out["log density"] = float(np.mean(norm.logpdf(y_test, prediction, deviation)) + np.log(unit))
        out["coverage"] = float(np.mean((y_test >= low) & (y_test <= high)))
    return out


def measured(**part: Any) -> dict[str, float]:
    """Scores of a method on a split, NaN where it predicts no distribution."""
    return dict.fromkeys(SCORES, np.nan) | METHODS[part["method"]](*split(part["set"], part["split"]))


def summarize(rows: Any) -> list[Timing]:
    """Tables of the methods with all splits; if slow methods have fewer, also tables of all methods on these."""
    splits = rows.groupby("method")["split"].nunique()
    fewest, most = splits.min(), splits.max()
    tables = _tables(rows[rows["method"].isin(splits.index[splits == most])], f"{most} splits")
    if fewest < most:
        tables += _tables(rows[rows["split"].isin(range(fewest))], f"{fewest} splits")
    return tables


def _tables(rows: Any, splits: str) -> list[Timing]:
    """Mean ranks, and paired differences of the CRPS to that of Gaussian process regression."""
    total = Timing(
        f"all sets, {splits}: mean rank in absolute error and in CRPS, coverage of 90 % intervals, processor seconds",
        ("method", "rank, absolute error", "rank, CRPS", "coverage", "median seconds", "of GPR's: median", "largest"),
    )
    means = rows.groupby(["set", "method"]).mean(numeric_only=True)
    ranks = {key: means[key].dropna().groupby("set").rank() for key in ("absolute error", "CRPS")}
    for method in rows["method"].unique():
        of = means.xs(method, level="method")
        ratio = of["seconds"] / means.xs("GPR", level="method")["seconds"]
        by = [
            ranks[key].xs(method, level="method").mean() if method in ranks[key].index.unique("method") else np.nan
            for key in ("absolute error", "CRPS")
        ]
        coverage = of["coverage"].mean()
        cells = (f"{by[0]:.2f}", f"{by[1]:.2f}", f"{100 * coverage:.1f} %", f"{of['seconds'].median():.1f}")
        total.add(
            method, *("" if "nan" in cell else cell for cell in cells), f"{ratio.median():.2f}", f"{ratio.max():.2f}"
        )
    each = Timing(
        f"CRPS, and its difference to that of GPR (mean ± standard error over {splits})",
        ("set", *(m for m in rows["method"].unique() if rows[rows["method"] == m]["CRPS"].notna().any())),
    )
    table = rows.pivot_table(index=["set", "split"], columns="method", values="CRPS")
    for name in dict.fromkeys(rows["set"]):
        cells = []
        for method in each.columns[1:]:
            values = table.loc[name, method]
            difference = values - table.loc[name, "GPR"]
            error = difference.std() / max(len(difference), 1) ** 0.5
            cells.append(
                f"{values.mean():.4f}" + ("" if method == "GPR" else f" ({difference.mean():+.4f} ± {error:.4f})")
            )
        each.add(name, *cells)
    return [total, each]


def main(
    splits: Annotated[int, typer.Option(help="Random splits of each set.")] = 10,
    sets: Annotated[str, typer.Option(help=f"Any of {', '.join(SETS)}; separated by commas.")] = ",".join(SETS),
    methods: Annotated[str, typer.Option(help=f"Any of {', '.join(METHODS)}; separated by semicolons.")] = "",
    out: Annotated[Path, typer.Option(help="File of results; finished splits are kept.")] = Path("bsvr-pp-quality.csv"),
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare the default estimator with its peers."""
    parts = [
        {"set": name, "split": seed, "method": method}
        for seed in range(splits)
        for name in sets.split(",")
        for method in (methods.split(";") if methods else METHODS)
    ]
    publish("quality", summarize(finished(out, parts, measured)), save)

"""Intervals of the model compared with conformal ones around it by MAPIE: marginal and conditional coverage, and width.

Each split of a set of at most 500 rows keeps two fifths for the test. The model, and cross conformal prediction with
five folds, have the other rows; split conformal prediction fits half of them and scores the other half. Coverage is
that of all test rows, of each third of them by the standard deviation that the model predicts, and of the worst slab.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from mapie.regression import ConformalizedQuantileRegressor, CrossConformalRegressor, SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import train_test_split

import bsvr_pp as bp
from benchmarks.scores import Array
from bsvr_pp.datasets import load

SETS = ("abalone", "bodyfat", "boston_housing", "concrete")
COVERAGE = 0.9
LEVELS = (0.05, 0.95, 0.5)  # in the order of MAPIE
MOST_ROWS, SLAB, DIRECTIONS = 500, 0.2, 500
SCORES = {"absolute": "absolute", "standardised": "std_normalized"}
FILE = Path(__file__).with_suffix(".csv")


class Quantile(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A quantile of a fitted model as a regressor."""

    def __init__(self, svr: bp.BayesianSVR, level: float):
        self.svr, self.level = svr, level
        self.n_features_in_ = svr.n_features_in_

    def fit(self, X: Array, y: Array) -> Quantile:
        """Leave the model as it is."""
        return self

    def predict(self, X: Array) -> Array:
        """Predict the quantile."""
        return self.svr.predict_quantiles(X, [self.level])[:, 0]


def machine(noise: str = "soft_insensitive", quantile: float = 0.5) -> bp.BayesianSVR:
    """The default estimator."""
    return bp.BayesianSVR(noise, quantile=quantile, random_state=0)


def intervals(model: bp.BayesianSVR, X: Array, y: Array, X_test: Array) -> Iterator[tuple[str, Array]]:
    """Names of methods, and their intervals (m, 2); the first is the fitted model."""
    yield "model", model.predict_interval(X_test, COVERAGE)
    half = len(y) // 2
    first, second = (X[:half], y[:half]), (X[half:], y[half:])
    svr = machine().fit(*first)
    for name, score in SCORES.items():
        split = SplitConformalRegressor(svr, COVERAGE, score).conformalize(*second)
        yield f"split, {name}", split.predict_interval(X_test)[1][:, :, 0]
    of_model = [Quantile(svr, level) for level in LEVELS]
    pinball = [machine("pinball", level).fit(*first) for level in LEVELS]
    for name, quantiles in {"the model": of_model, "pinball noise": pinball}.items():
        conformal = ConformalizedQuantileRegressor(quantiles, COVERAGE, prefit=True).conformalize(*second)
        ends = conformal.predict_interval(X_test, symmetric_correction=True)[1][:, :, 0]
        yield f"split, quantiles of {name}", ends
    for name, score in SCORES.items():
        cross = CrossConformalRegressor(machine(), COVERAGE, score, cv=5).fit_conformalize(X, y)
        yield f"cross, {name}", cross.predict_interval(X_test)[1][:, :, 0]


def worst_slab(X: Array, inside: Array, rng: np.random.Generator) -> float:
    """Coverage of the slab v'x in [a, b] of at least a fifth of the rows that is worst on one half, on the other."""
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    half, worst, found = len(Z) // 2, np.inf, float(inside.mean())
    least = int(np.ceil(SLAB * half))
    for direction in rng.normal(size=(DIRECTIONS, Z.shape[1])):
        place = Z @ direction
        order = np.argsort(place[:half])
        total = np.append(0.0, np.cumsum(inside[:half][order]))
        start, end = np.triu_indices(half + 1, least)
        share = (total[end] - total[start]) / (end - start)
        if share.min() < worst:
            worst, i = share.min(), int(share.argmin())
            low, high = place[:half][order][[start[i], end[i] - 1]]
            held = (place[half:] >= low) & (place[half:] <= high)
            found = float(inside[half:][held].mean()) if held.any() else found
    return found


def one_split(name: str, seed: int) -> list[dict[str, float | str]]:
    """Coverages, widths and interval scores of all methods on one split."""
    data = load(name)
    rows = np.random.default_rng(seed).permutation(len(data.y))[:MOST_ROWS]
    X, X_test, y, y_test = train_test_split(data.X[rows], data.y[rows], test_size=0.4, random_state=seed)
    model = machine().fit(X, y)
    thirds = np.array_split(np.argsort(model.predict(X_test, return_std=True)[1]), 3)
    found = []
    for method, ends in intervals(model, X, y, X_test):
        low, high = ends.T
        inside = ((low <= y_test) & (y_test <= high)).astype(float)
        outside = np.maximum(np.maximum(low - y_test, y_test - high), 0.0)
        coverages = {f"third {i + 1}": inside[third].mean() for i, third in enumerate(thirds)}
        slab = worst_slab(X_test, inside, np.random.default_rng(seed))
        score = (high - low) + 2.0 / (1.0 - COVERAGE) * outside
        sizes = {"width": (high - low).mean() / y.std(), "interval score": score.mean() / y.std()}
        found.append({"set": name, "method": method, "coverage": inside.mean(), **coverages, "slab": slab, **sizes})
    return found


def main(
    sets: Annotated[str, typer.Option(help="Names of sets.")] = ",".join(SETS),
    splits: Annotated[int, typer.Option(help="Random splits of each set.")] = 10,
    out: Annotated[Path, typer.Option(help="File of the means over the splits.")] = FILE,
) -> None:
    """Measure coverage, width in standard deviations of the target, and the interval score of 90 % intervals."""
    tables = []
    for name in sets.split(","):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = pd.DataFrame([row for seed in range(splits) for row in one_split(name, seed)])
        tables.append(rows.groupby(["set", "method"], sort=False).mean().round(3))
        print(tables[-1].to_string(), flush=True)
    pd.concat(tables).to_csv(out)

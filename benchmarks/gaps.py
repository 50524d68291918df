"""Missing inputs: ways to fill them, on real sets from which cells are taken.

Cells of all inputs are taken at random, or with a probability that grows with the rank of the value from 0 to twice the
share; those of test rows too. Filled are the median of the column, with an indicator of the gaps (as in data frames) or
without, or what a Bayesian ridge regression on the other inputs predicts, also with or without indicators. The last way
is not to fill: for a Gaussian product kernel and missing inputs that are Gaussian and independent of the others the
covariance has a closed form (`Integrated`). It is compared with the same kernel on medians and indicators. Scores are
continuous ranked probability scores (CRPS) and negative log densities (NLPD) of up to 500 other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import typer
from scipy.stats import rankdata
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import FunctionTransformer

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import load

SETS = ("abalone", "auto_mpg", "boston_housing", "concrete")
SHARES = (0.1, 0.3)
_ROWS, _TEST_ROWS = 250, 500


def with_gaps(X: Array, share: float, by_value: bool, rng: np.random.Generator) -> Array:
    """Take cells away."""
    probability = 2.0 * share * (rankdata(X, axis=0) - 0.5) / len(X) if by_value else share
    return np.where(rng.random(X.shape) < probability, np.nan, X)


class Integrated(pm.gp.cov.Covariance):  # type: ignore[misc]
    """Gaussian kernel of inputs of which some are not known, but Gaussian around their mean.

    With m = 1 where an input is missing and x its mean there, the factor of input l of the covariance of two rows is
    (1 + v)^(-1/2) exp(-(x - x')²u²/(2(1 + v))), v = u²s²(m + m'), with the inverse lengthscale u and the variance s².
    The columns of X are the inputs, and then m.
    """

    def __init__(self, d: int, inverse: Any, variance: Any, spread: Array, centre: Array, width: Array) -> None:
        super().__init__(2 * d)
        self.inverse, self.variance, self.spread = inverse, variance, spread
        self.centre, self.width = centre, width  # of m, which the estimator standardises

    def full(self, X: Any, Xs: Any = None) -> Any:
        """Matrix (n, k)."""
        d, at = len(self.spread), []
        for points in (X, X if Xs is None else Xs):
            at.append((points[:, :d], points[:, d:] * self.width + self.centre))
        (x, m), (z, k) = at
        K = self.variance
        for i in range(d):
            square = self.inverse[i] ** 2
            more = 1.0 + square * self.spread[i] * (m[:, i, None] + k[None, :, i])
            K = K * pt.exp(-0.5 * square * (x[:, i, None] - z[None, :, i]) ** 2 / more) / pt.sqrt(more)
        return K + pt.diag(self.variance - pt.diag(K)) if Xs is None else K

    def diag(self, X: Any) -> Any:
        """Its diagonal."""
        return self.variance * pt.ones(X.shape[0])


def integrated(X: Array) -> Callable[[Any], pm.gp.cov.Covariance]:
    """The kernel function of `BayesianSVR` for the training inputs (n, 2d)."""
    d = X.shape[1] // 2
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    spread = 1.0 / (1.0 - mean[d:])  # of the known values, in units of those that are filled

    def kernel(Z: Any) -> pm.gp.cov.Covariance:
        inverse = pm.HalfNormal("inverse", 1.0 / np.sqrt(d), shape=d)
        amplitude = pm.HalfStudentT("amplitude", nu=3.0, sigma=1.0)
        return Integrated(d, inverse, amplitude**2, spread, mean[d:], np.where(deviation[d:] > 0, deviation[d:], 1.0))

    return kernel


def _ridge(indicator: bool) -> IterativeImputer:
    return IterativeImputer(add_indicator=indicator, random_state=0)


def _both(X: Array, new: Array) -> tuple[Array, Array]:
    """Means and indicators of all inputs."""
    mean = SimpleImputer().fit(X)
    return tuple(np.hstack([mean.transform(each), np.isnan(each)]) for each in (X, new))  # type: ignore[return-value]


WAYS: dict[str, tuple[Any, str]] = {
    "median, indicator": (SimpleImputer(strategy="median", add_indicator=True), "auto"),
    "data frame": ("data frame", "auto"),
    "median": (SimpleImputer(strategy="median"), "auto"),
    "ridge, indicator": (_ridge(True), "auto"),
    "ridge": (_ridge(False), "auto"),
    "Gaussian kernel: median, indicator": (SimpleImputer(strategy="median", add_indicator=True), "rbf"),
    "Gaussian kernel: integrated": (None, "integrated"),
}


def scores(way: str, name: str, share: float, by_value: bool, seed: int) -> dict[str, float]:
    """Scores of one way."""
    data, rng = load(name), np.random.default_rng([seed, len(name)])
    order, X = rng.permutation(len(data.y)), with_gaps(data.X, share, by_value, rng)
    train, test = order[:_ROWS], order[_ROWS:][:_TEST_ROWS]
    imputer, kernel = WAYS[way]
    if imputer == "data frame":
        imputer = FunctionTransformer(lambda X: pd.DataFrame(X).add_prefix("x"))
    filled = (
        _both(X[train], X[test]) if imputer is None else (imputer.fit_transform(X[train]), imputer.transform(X[test]))
    )
    option: Any = integrated(filled[0]) if kernel == "integrated" else kernel
    found = bp.BayesianSVR(kernel=option, random_state=0).fit(filled[0], data.y[train]).predict_distribution(filled[1])
    quantiles = found.ppf(np.asarray(LEVELS)[:, None])
    return {"CRPS": crps(data.y[test], quantiles), "NLPD": -float(np.mean(found.logpdf(data.y[test])))}


def table_of(lines: pd.DataFrame) -> Timing:
    """CRPS relative to that of medians with indicators, mean and standard error, and the difference of NLPD."""
    case = ["name", "share", "by_value", "seed"]
    CRPS, NLPD = (lines.pivot_table(index=case, columns="way", values=score) for score in ("CRPS", "NLPD"))
    first, *others = [way for way in WAYS if way in CRPS]
    table = Timing("Missing inputs: CRPS relative to medians with indicators; more NLPD", ("set", "missing", *others))
    ratio, more = CRPS.div(CRPS[first], axis=0), NLPD.sub(NLPD[first], axis=0)
    for (name, share, by_value), one in ratio.groupby(level=[0, 1, 2], sort=False):
        two, how = more.loc[one.index], "by value" if by_value else "at random"
        cells = (f"{one[way].mean():.3f} ± {one[way].sem():.3f}; {two[way].mean():+.3f}" for way in others)
        table.add(name, f"{share:.0%} {how}", *cells)
    table.add(
        "all", "", *(f"{ratio[way].mean():.3f} ± {ratio[way].sem():.3f}; {more[way].mean():+.3f}" for way in others)
    )
    return table


def main(
    seeds: Annotated[int, typer.Option(help="Random parts of each set.")] = 3,
    way: Annotated[list[str] | None, typer.Option(help="Ways, by default all.")] = None,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = Path("bsvr-pp-gaps.csv"),
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score ways to fill missing inputs."""
    parts = [
        {"name": name, "share": share, "by_value": by_value, "seed": seed, "way": each}
        for seed in range(seeds)
        for share in SHARES
        for by_value in (False, True)
        for name in SETS
        for each in way or WAYS
    ]
    publish("gaps", [table_of(finished(out, parts, scores))], save)

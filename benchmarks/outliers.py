"""Regression with a tenth to four tenths of the training targets wrong, beside robust Gaussian processes.

The protocol is that of Altamirano, Briol & Knoblauch (2024). A split keeps a tenth of the rows, clean, for the test.
Rows of the others are wrong in one of three ways: "uniform" shifts their targets by 3 to 9 standard deviations up or
down, "asymmetric" shifts all in one direction, which a coin decides, and "focused" moves them to a small box around the
median of each input and to targets three standard deviations below the median there. Real sets are standardised before;
"synthetic" is a function of one input, 300 values of a Gaussian process on [0, 20] of lengthscale and variance 1, with
noise of standard deviation .1, drawn anew for each split. The real sets are tables of `benchmarks.uci`.

The peers: Gaussian process regression of scikit-learn ("GPR"); relevance pursuit (Ament et al. 2024, "RRP"), which is
BoTorch's with its defaults and inputs scaled to the unit cube; and scikit-learn's Huber regression on 100 kernel
features, whose width around the median distance and whose penalty are chosen by absolute error in five folds. All have
one start. RRP is left out if BoTorch is not installed. The file has rows of two more: a process with Student-t noise of
four degrees of freedom ("t-GP"), and robust conjugate regression ("RCGP"), which is told the share of wrong rows, at
least a tenth. Their code is in the commits that these rows name. Set ``OMP_NUM_THREADS``: seconds are those of the
processor for one thread.

The score is the mean absolute error of the test rows, of precision and recall the share of the rows set aside that are
wrong, and of the wrong rows that are set aside. The published errors are those of a Gaussian process, one with
Student-t noise, and RCGP, each of ten starts on one split. The published code has a fifth of the synthetic rows wrong
in "asymmetric", and 40 degrees of freedom.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import median_abs_deviation
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import HuberRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.quality import regression_process
from benchmarks.scores import Array
from benchmarks.side_by_side import Timing, publish
from benchmarks.uci import table

Rows = NDArray[np.intp]
Fitted = tuple[Callable[[Array], Array], Rows | None]  # prediction, and rows set aside where a method does so

# Mean absolute error of a Gaussian process, of one with Student-t noise and of RCGP, with a tenth of the rows wrong.
PUBLISHED = {
    ("boston", "none"): (0.206, 0.200, 0.205),
    ("boston", "uniform"): (0.524, 0.303, 0.619),
    ("boston", "asymmetric"): (0.645, 0.527, 0.496),
    ("boston", "focused"): (0.277, 0.257, 0.227),
    ("energy", "none"): (0.028, 0.033, 0.021),
    ("energy", "uniform"): (0.256, 0.238, 0.241),
    ("energy", "asymmetric"): (0.551, 0.447, 0.507),
    ("energy", "focused"): (0.063, 0.030, 0.023),
    ("yacht", "none"): (0.012, 0.015, 0.017),
    ("yacht", "uniform"): (0.361, 0.162, 0.297),
    ("yacht", "asymmetric"): (0.548, 0.410, 0.367),
    ("yacht", "focused"): (0.283, 0.250, 0.103),
    ("synthetic", "none"): (0.090, 0.090, 0.087),
    ("synthetic", "uniform"): (0.346, 0.303, 0.217),
    ("synthetic", "asymmetric"): (1.149, 1.060, 0.829),
    ("synthetic", "focused"): (0.195, 0.209, 0.166),
}
SETS = ("boston", "energy", "yacht", "synthetic")
KINDS = ("uniform", "asymmetric", "focused")
SPLITS, TENTH = 50, 10
FILE = Path(__file__).with_suffix(".csv")


@cache
def real(name: str) -> tuple[Array, Array]:
    """Standardised inputs and targets of a real set."""
    values = np.column_stack(table(name))
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)
    return values[:, :-1], values[:, -1]


def synthetic(rng: np.random.Generator) -> tuple[Array, Array]:
    """A draw of a Gaussian process with noise."""
    X = np.linspace(0.0, 20.0, 300)[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    return X, rng.multivariate_normal(np.zeros(300), K, method="eigh") + 0.1 * rng.normal(size=300)


def corrupted(kind: str, share: float, X: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array, Rows]:
    """Training data of which a share is wrong, and the wrong rows."""
    X, y = X.copy(), y.copy()
    wrong = rng.permutation(len(y))[: int(share * len(y))]
    if kind == "focused":
        centre = np.argsort(X, axis=0)[len(y) // 2], np.arange(X.shape[1])
        width = 0.1 * X.shape[1] * median_abs_deviation(X)
        low = np.median(y[centre[0]]) - 3.0 * y.std()
        depth = 0.1 * median_abs_deviation(y)
        X[wrong] = X[centre] + width * rng.uniform(-0.5, 0.5, (wrong.size, X.shape[1]))
        y[wrong] = low - depth * rng.uniform(size=wrong.size)
    else:
        sign = rng.choice([-1.0, 1.0], wrong.size if kind == "uniform" else 1)
        y[wrong] += sign * y.std() * rng.uniform(3.0, 9.0, wrong.size)
    return X, y, wrong


def bayesian(X: Array, y: Array) -> Fitted:
    """The default of the package."""
    svr = bp.BayesianSVR(random_state=0).fit(X, y)
    return svr.predict, svr.outliers_


def gaussian_process(X: Array, y: Array) -> Fitted:
    """Gaussian process regression of scikit-learn."""
    return regression_process(X.shape[1], more_starts=0).fit(X, y).predict, None


def relevance_pursuit(X: Array, y: Array) -> Fitted:
    """RRP of BoTorch."""
    import torch
    from botorch import fit_gpytorch_mll
    from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
    from botorch.models.transforms import Normalize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    model = RobustRelevancePursuitSingleTaskGP(inputs, targets, input_transform=Normalize(X.shape[1]))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))

    def predict(X: Array) -> Array:
        with torch.no_grad():
            found: Array = model.posterior(torch.as_tensor(X)).mean[:, 0].numpy()
        return found

    return predict, np.array(model.likelihood.noise_covar.support, dtype=np.intp)


def huber(X: Array, y: Array) -> Fitted:
    """Huber regression on kernel features."""
    gamma = 0.5 / np.median(pdist(X)) ** 2
    features = Nystroem(n_components=min(100, len(y) // 2), random_state=0)
    model = make_pipeline(features, HuberRegressor())
    grid = {"nystroem__gamma": gamma * 4.0 ** np.arange(4), "huberregressor__alpha": [1e-3, 1e-1]}
    return GridSearchCV(model, grid, scoring="neg_mean_absolute_error").fit(X, y).predict, None


PEERS: dict[str, Callable[[Array, Array], Fitted]] = {
    "bsvr_pp": bayesian,
    "GPR": gaussian_process,
    "Huber": huber,
}
if find_spec("botorch"):
    PEERS["RRP"] = relevance_pursuit


@cache
def _warm_up() -> None:
    """Compile what the default needs."""
    X = np.random.default_rng(0).normal(size=(220, 2))
    bayesian(X, np.sin(X[:, 0]) + 0.1 * X[:, 1])


def measured(**part: Any) -> dict[str, float]:
    """Error of a package on a split, its processor seconds, and the rows it sets aside with precision and recall."""
    rng = np.random.default_rng([part["split"], part["percent"], KINDS.index(part["kind"]) if part["percent"] else 3])
    X, y = synthetic(np.random.default_rng(part["split"])) if part["set"] == "synthetic" else real(part["set"])
    test, train = np.split(np.random.default_rng(part["split"]).permutation(len(y)), [round(0.1 * len(y))])
    share = part["percent"] / 100
    X_train, y_train, wrong = corrupted(part["kind"], share, X[train], y[train], rng)
    varies = np.ptp(X_train, axis=0) > 0
    _warm_up()
    began = time.process_time()
    predict, aside = PEERS[part["package"]](X_train[:, varies], y_train)
    fitted = time.process_time()
    error = float(np.mean(np.abs(predict(X[test][:, varies]) - y[test])))
    found = {"error": error, "aside": np.nan, "precision": np.nan, "recall": np.nan, "seconds": fitted - began}
    if aside is not None:
        right = float(np.isin(aside, wrong).sum())
        found |= {"aside": len(aside), "precision": right / len(aside) if len(aside) else np.nan}
        found["recall"] = right / len(wrong) if len(wrong) else np.nan
    return found


def summary(rows: pd.DataFrame) -> list[Timing]:
    """Means with standard errors, the paired difference to the best other package with all splits, and mean ranks."""
    tables = []
    for percent, of_share in rows.groupby(rows["percent"].clip(lower=TENTH)):
        packages = list(dict.fromkeys(of_share["package"]))
        found = Timing(
            f"{percent} % of the training rows wrong: mean absolute error of clean test rows (splits); precision and "
            "recall of the rows set aside; paired difference of bsvr_pp to the best other package",
            (
                "set",
                "wrong",
                *packages,
                "set aside: bsvr_pp",
                "set aside: RRP",
                "difference",
                "published GP, t-GP, RCGP",
            ),
        )
        ranks, within = {}, 0
        for (name, kind), cell in of_share.groupby(["set", "kind"], sort=False):
            errors = cell.pivot(index="split", columns="package", values="error").reindex(columns=packages)
            mean, error, count = errors.mean(), errors.sem(), errors.count()
            cells = [f"{mean[n]:.3f} ± {error[n]:.3f} ({count[n]})" if count[n] else "–" for n in packages]
            aside = cell.groupby("package")[["precision", "recall"]].mean()
            for each in ("bsvr_pp", "RRP"):
                known = each in aside.index and not aside.loc[each].isna().all()
                none = known and np.isnan(aside.loc[each, "precision"])
                shares = ", ".join(f"{share:.2f}" for share in aside.loc[each].dropna()) if known else "–"
                cells.append("none" if none else shares)
            paired = errors.drop(columns="bsvr_pp").dropna(axis=1).rsub(errors["bsvr_pp"], axis=0)
            if paired.size:
                best = paired.mean().idxmax()
                worse, spread = paired[best].mean(), paired[best].sem()
                within += worse <= 2.0 * np.nan_to_num(spread)  # of one split there is no error
                cells.append(f"{worse:+.3f} ± {spread:.3f} to {best}")
            else:
                cells.append("–")
            published = PUBLISHED[name, kind] if percent == TENTH else ("–",)
            found.add(name, kind, *cells, ", ".join(map(str, published)))
            ranks[name, kind] = errors.dropna(axis=1).rank(axis=1).mean()
        means = pd.DataFrame(ranks).T.dropna(axis=1).mean().sort_values()
        found.notes = "Mean ranks of the packages that have all splits: "
        found.notes += ", ".join(f"{each} {rank:.2f}" for each, rank in means.items())
        found.notes += (
            f". bsvr_pp is within two standard errors of the best other, or better, in {within} of {len(ranks)}."
        )
        tables.append(found)
    packages = list(dict.fromkeys(rows["package"]))
    seconds = Timing("Processor seconds of a fit, means", ("set", *packages))
    for name, part in rows.groupby("set", sort=False):
        mean = part.groupby("package")["seconds"].mean()
        seconds.add(name, *(f"{mean[each]:.1f}" if each in mean else "–" for each in packages))
    return [*tables, seconds]


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    packages: Annotated[list[str] | None, typer.Option("--package", help="Packages.")] = None,
    percents: Annotated[list[int] | None, typer.Option("--percent", help="Percentages of wrong rows.")] = None,
    splits: Annotated[int, typer.Option(help="Number of splits.")] = SPLITS,
    out: Annotated[Path, typer.Option(help="File of results; finished parts are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score default fits with wrong training targets beside robust Gaussian processes."""
    parts = [
        {"set": name, "kind": kind, "percent": percent, "split": number, "package": package}
        for number in range(splits)
        for percent in percents or (0, 10, 20, 30, 40)
        for kind in (KINDS if percent else ("none",))
        for name in only or SETS
        for package in packages or PEERS
    ]
    publish("outliers", summary(finished(out, parts, measured)), save)

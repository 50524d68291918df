"""Tables with words and gaps: the default fit on data frames beside CatBoost and a Gaussian process of indicators.

Each set has columns of words, and each pair of a set and a size is fitted to random rows of it; at least a fifth of the
rows, or 1,000 others, are the test rows. `BayesianSVR` and CatBoost with uncertainty (normal targets) have their
defaults and take the columns as they are. For Gaussian process regression words become indicators, and gaps the mean
with an indicator. It is that of the benchmark "middle", with a gradient that needs no array of rows times rows times
inputs, and with the hyperparameters of 1,000 rows where there are more. Scores and seconds are as in that benchmark,
means over the random parts.

In the flights a code of the airport stands for its coordinates. The passengers of the Titanic and the penguins are in
the tests that are installed with scikit-learn.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import sklearn
import typer
from scipy.linalg import cho_solve, lapack
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.finished import finished
from benchmarks.middle import bayesian, scores
from benchmarks.peers import Density, catboost, normal_density
from benchmarks.scores import Array
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import data_folder

CASES = (
    ("auto_mpg", 300),
    ("abalone", 300),
    ("abalone", 1000),
    ("abalone", 3000),
    ("nycflights13", 1000),
    ("nycflights13", 4000),
    ("flights3m", 1000),
    ("flights3m", 4000),
    ("titanic", 1000),
    ("penguins", 250),
)
_TEST_ROWS = 1000
_MOST = 1000  # rows on which the hyperparameters of Gaussian process regression are optimised
_OF_TESTS = {"titanic": 40945, "penguins": 42585}  # numbers of OpenML
_LEFT_OUT = ["name", "ticket", "cabin", "boat", "body", "home.dest"]


def table(name: str) -> tuple[pd.DataFrame, Array]:
    """Inputs and targets of a set."""
    if name == "auto_mpg":
        found = pd.read_csv(data_folder() / "auto_mpg.csv").astype({"cylinders": str, "origin": str})
        return found.drop(columns="mpg"), found["mpg"].to_numpy(np.float64)
    if name == "abalone":
        found = pd.read_csv(data_folder() / "abalone.csv")
        return found.drop(columns="rings"), found["rings"].to_numpy(np.float64)
    if name in _OF_TESTS:
        target = {"titanic": "fare", "penguins": "body_mass_g"}[name]
        found = _of_tests(_OF_TESTS[name]).dropna(subset=target).drop(columns=_LEFT_OUT, errors="ignore")
        return found.drop(columns=target), found[target].to_numpy(np.float64)
    with np.load(data_folder() / "large" / f"{name}.npz") as file:
        found = pd.DataFrame(file["X"].astype(np.float64), columns=file["columns"])
        codes = {
            word: [f"{code}" for code in file[word]] for word in ("origin", "carrier", "destination") if word in file
        }
        if "destination" not in codes:
            codes["destination"] = [f"{code}" for code in found.groupby(["dlat", "dlon"]).ngroup()]
        coordinates = ["dlat", "dlon", "origin_lat", "origin_lon", "dest_lat", "dest_lon"]
        return found.drop(columns=coordinates, errors="ignore").assign(**codes), file["y"].astype(np.float64)


def _of_tests(number: int) -> pd.DataFrame:
    """A table of scikit-learn's tests."""
    folder = Path(sklearn.__file__).parent / "datasets" / "tests" / "data" / "openml" / f"id_{number}"
    lines = gzip.decompress(next(folder.glob("data*")).read_bytes()).decode().splitlines()
    start = [line.strip().lower() for line in lines].index("@data")
    names = [line.split()[1].strip("'\"") for line in lines[:start] if line.lower().startswith("@attribute")]
    rows = [line for line in lines[start + 1 :] if line and not line.startswith("%")]
    return pd.read_csv(StringIO("\n".join(rows)), names=names, na_values=["?", "_"])


def split(name: str, rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, Array, Array]:
    """Training and test data of random rows."""
    X, y = table(name)
    order = np.random.default_rng([seed, rows, len(name)]).permutation(len(y))
    train, test = order[:rows], order[rows:][:_TEST_ROWS]
    return X.iloc[train], X.iloc[test], y[train], y[test]


def catboost_on_words(X: pd.DataFrame, y: Array) -> Callable[[pd.DataFrame, Array], Density]:
    """CatBoost, with gaps of words as a word of their own; it takes those of numbers."""
    words = list(X.select_dtypes(exclude="number"))

    def filled(X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(**{name: X[name].fillna("gap") for name in words})

    predict = catboost(filled(X), y, words)
    return lambda X, y: predict(filled(X), y)


class Process(GaussianProcessRegressor):  # type: ignore[misc]
    """A constant times a Gaussian kernel of one lengthscale an input, and white noise, with the gradient by products.

    With z the inputs over the lengthscales and M = (αα' - K⁻¹) ∘ E, for E the first part of the kernel, the derivative
    by the logarithm of lengthscale l is Σ M_ij (z_il - z_jl)²/2, which is Σ_i z_il² Σ_j M_ij - z_l'M z_l.
    """

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """Evidence at logarithms of the hyperparameters, and its gradient."""
        if not eval_gradient or theta is None:
            return super().log_marginal_likelihood(theta, eval_gradient, clone_kernel)
        variance, noise, Z = np.exp(theta[0]), np.exp(theta[-1]), self.X_train_ / np.exp(theta[1:-1])
        square = np.sum(Z**2, axis=1)
        E = variance * np.exp(np.minimum(Z @ Z.T - 0.5 * (square + square[:, None]), 0.0))
        L, failed = lapack.dpotrf(E + (noise + self.alpha) * np.eye(len(E)), lower=1, clean=1)
        if failed:
            return -np.inf, np.zeros_like(theta)
        dual = cho_solve((L, True), self.y_train_)
        value = -0.5 * self.y_train_ @ dual - np.log(np.diag(L)).sum() - 0.5 * len(E) * np.log(2.0 * np.pi)
        inverse = np.tril(lapack.dpotri(L, lower=1)[0])
        W = np.outer(dual, dual) - inverse - np.tril(inverse, -1).T
        M = W * E
        lengthscales = M.sum(axis=1) @ Z**2 - np.einsum("il,il->l", Z, M @ Z)
        return value, np.concatenate([[0.5 * M.sum()], lengthscales, [0.5 * noise * np.trace(W)]])


def process_of_indicators(X: pd.DataFrame, y: Array) -> Callable[[pd.DataFrame, Array], Density]:
    """Gaussian process regression, one start; words that are not known have no indicator."""
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")),
        (SimpleImputer(add_indicator=True), make_column_selector(dtype_include="number")),
    )
    encoded = make_pipeline(encoder, StandardScaler())
    inputs = encoded.fit_transform(X)
    kernel = ConstantKernel() * RBF(np.ones(inputs.shape[1])) + WhiteKernel(0.1)
    model = Process(kernel, normalize_y=True).fit(inputs[:_MOST], y[:_MOST])
    if len(y) > _MOST:
        model = Process(model.kernel_, optimizer=None, normalize_y=True).fit(inputs, y)
    return lambda X, y: normal_density(y, *model.predict(encoded.transform(X), return_std=True))


PEERS: dict[str, Callable[..., Any]] = {
    "bsvr_pp": bayesian,
    "CatBoost": catboost_on_words,
    "GPR": process_of_indicators,
}
SCORES = ("fit", "NLPD", "CRPS", "RMSE")


def measured(**part: Any) -> dict[str, float]:
    """Seconds and scores of a package on a random part of a set."""
    return scores(PEERS[part["peer"]], *split(part["set"], part["rows"], part["seed"]))


def table_of(lines: pd.DataFrame) -> Timing:
    """Means over the random parts, and the number of cases in which the default is at least as good."""
    means = lines.groupby(["set", "rows", "peer"], sort=False)[list(SCORES)].mean().unstack()
    peers = [name for name in PEERS if name in set(lines["peer"])]
    columns = ("set", "rows", *(f"{name}: fit (s); NLPD; CRPS; RMSE" for name in peers))
    found = Timing("Tables with words: processor seconds of a fit, and scores", columns)
    for (name, rows), line in means.iterrows():
        cells = (
            "; ".join(
                f"{line[score, peer]:{form}}" for score, form in zip(SCORES, (".1f", ".3f", ".4g", ".4g"), strict=True)
            )
            for peer in peers
        )
        found.add(name, rows, *cells)
    better = (
        f"as {peer}: "
        + ", ".join(f"{score} {(means[score, 'bsvr_pp'] <= means[score, peer]).sum()}" for score in SCORES[1:])
        for peer in peers[1:]
    )
    found.notes = f"Cases of {len(means)} in which bsvr_pp is at least as good " + "; ".join(better) + "."
    return found


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    rows: Annotated[list[int] | None, typer.Option("--n", help="Numbers of rows.")] = None,
    seeds: Annotated[int, typer.Option(help="Random parts of each set.")] = 3,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = Path("bsvr-pp-tables.csv"),
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score default fits of tables with words beside CatBoost and Gaussian process regression."""
    parts = [
        {"set": name, "rows": n, "seed": seed, "peer": peer}
        for seed in range(seeds)
        for name, n in CASES
        if name in (only or [name]) and n in (rows or [n])
        for peer in PEERS
    ]
    publish("tables", [table_of(finished(out, parts, measured))], save)

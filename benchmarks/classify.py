"""Class probabilities of default classifiers on real sets, as they are and with a tenth of the training labels wrong.

The sets were fixed before anything was run on them, except crabs, Pima, breast cancer, wine and "elec, rare". Five are
simulated, with 3,000 rows: five overlapping clouds, moons with noise .3, twonorm and ringnorm of Breiman (1996), and
"imbalanced", of 20 inputs with 4 % in the smaller of two classes. Each split has
a random part of the rows for training, at most ``--rows``, and at most 2,000 others for the test; "elec in time" is
tested on the rows that follow, and 5 % of the rows of "elec, rare" are positive. A category of the inputs is one column
for each value, and a missing number is the median with a column that says so. Regression targets are cut at their
median.

`SVC` is a grid of 12 settings of C and gamma over five folds, inside `CalibratedClassifierCV`; it, the Gaussian process
(one lengthscale) and logistic regression have standardised inputs; the Gaussian process is left out above 1,500 rows.
Seconds are those of the processor for a fit, of one thread, after a fit on some rows. The calibration error is the mean
distance of share and probability in ten bins of the largest probability, weighted by their rows.

Two more tables ask whether a calibrator improves the probabilities of `BayesianSVC`: that of Platt, isotonic
regression, or that of Venn and Abers (Vovk, Petej & Fedorova 2015). It learns from the training rows, each predicted by
a fit without its fifth of them, each class against the others.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import sklearn
import typer
from numpy.typing import NDArray
from scipy.special import logit
from scipy.stats import rankdata
from sklearn import datasets
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.externals import _arff
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.large import read
from benchmarks.scores import Array
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import load

FILE = Path(__file__).with_suffix(".csv")
ARFF = {
    "kr-vs-kp": (3, "class"),
    "glass2": (40675, "class"),
    "titanic": (40945, "survived"),
    "penguins": (42585, "species"),
}
LEFT_OUT = ("name", "ticket", "cabin", "boat", "body", "home.dest")  # of titanic
CUT = ("abalone", "auto_mpg", "stock")
SIMULATED = ("blobs", "moons", "twonorm", "ringnorm", "imbalanced")
SETS = (
    *("crabs", "pima", "breast cancer", "iris", "wine", "digits 3, 8", "digits 4, 9", "digits 1, 7", "digits 5, 6"),
    *("digits 8, 9", *ARFF, *CUT, "elec", "elec in time", "elec, rare", *SIMULATED),
)
_TEST_ROWS, _PROCESS = 2000, 1500
_GRID = {"svc__C": [0.1, 1.0, 10.0, 100.0], "svc__gamma": ["scale", 0.01, 0.1]}
SCORES = ("log loss", "Brier", "calibration", "error", "seconds")


@cache
def data(name: str) -> tuple[Array, NDArray[Any]]:
    """Inputs and labels of a set."""
    if name in ARFF:
        number, target = ARFF[name]
        folder = Path(sklearn.__file__).parent / "datasets" / "tests" / "data" / "openml" / f"id_{number}"
        (path,) = folder.glob("data*.arff.gz")
        with gzip.open(path, "rt") as file:
            found = _arff.loads(file.read())
        table = pd.DataFrame(found["data"], columns=[column for column, _ in found["attributes"]])
        names = [column for column, kind in found["attributes"] if isinstance(kind, list) and column != target]
        inputs = pd.get_dummies(
            table.drop(columns=[target, *LEFT_OUT], errors="ignore"), columns=names, drop_first=True
        )
        inputs = inputs.astype(float)
        missing = inputs.isna().loc[:, inputs.isna().any()].add_suffix(" missing").astype(float)
        return pd.concat([inputs.fillna(inputs.median()), missing], axis=1).to_numpy(), table[target].to_numpy(str)
    if name.startswith("digits"):
        X, y = datasets.load_digits(return_X_y=True)
        kept = np.isin(y, [int(digit) for digit in name.removeprefix("digits ").split(", ")])
        return X[kept], y[kept]
    if name.startswith("elec"):
        X, y, _ = read("elec")
        kept = (y < 0) | (np.random.default_rng(0).random(len(y)) < (0.04 if name.endswith("rare") else 1.0))
        return X[kept], y[kept]
    if name == "pima":
        parts = [load("pima_train"), load("pima_test")]
        return np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts])
    if name in ("crabs", *CUT):
        found = load(name)
        return found.X, found.y if name == "crabs" else np.where(found.y > np.median(found.y), "high", "low")
    if name in SIMULATED:
        return simulated(name)
    made: Any = {"breast cancer": datasets.load_breast_cancer, "iris": datasets.load_iris, "wine": datasets.load_wine}
    X, y = made[name](return_X_y=True)
    return X, y


def simulated(name: str, n: int = 3000, d: int = 20) -> tuple[Array, NDArray[Any]]:
    """Inputs and labels of a simulated set."""
    if name == "blobs":
        return datasets.make_blobs(n, centers=5, cluster_std=2.5, random_state=3)
    if name == "moons":
        return datasets.make_moons(n, noise=0.3, random_state=3)
    if name == "imbalanced":
        return datasets.make_classification(n, d, n_informative=6, weights=[0.96], random_state=3)
    rng = np.random.default_rng(3)
    y, X = rng.integers(2, size=n), rng.standard_normal((n, d))
    if name == "twonorm":
        return X + np.where(y == 1, 2.0, -2.0)[:, None] / np.sqrt(d), y
    return np.where((y == 1)[:, None], 2.0 * X, X + 1.0 / np.sqrt(d)), y


def split(name: str, seed: int, rows: int, wrong: float) -> tuple[Array, Array, NDArray[Any], NDArray[Any]]:
    """Training and test data; a share ``wrong`` of the training labels are those of another class."""
    X, y = data(name)
    rng = np.random.default_rng([seed, len(name)])
    n = min(rows, 7 * len(y) // 10)
    order = rng.permutation(len(y))
    if name == "elec in time":
        order = (seed + 1) * (len(y) // 8) + np.arange(n + _TEST_ROWS)
        order[:n] = rng.permutation(order[:n])
    train, test = order[:n], order[n:][:_TEST_ROWS]
    classes, index = np.unique(y[train], return_inverse=True)
    moved = rng.random(n) < wrong
    index[moved] = (index[moved] + rng.integers(1, len(classes), moved.sum())) % len(classes)
    varies = np.ptp(X[train], axis=0) > 0
    return X[train][:, varies], X[test][:, varies], classes[index], y[test]


PEERS: dict[str, Callable[[int], Any]] = {  # of the number of inputs
    "BayesianSVC": lambda d: bp.BayesianSVC(random_state=0),
    "SVC": lambda d: CalibratedClassifierCV(GridSearchCV(make_pipeline(StandardScaler(), SVC()), _GRID, cv=5), cv=5),
    "boosting": lambda d: HistGradientBoostingClassifier(random_state=0),
    "logistic": lambda d: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "GP": lambda d: make_pipeline(
        StandardScaler(),
        GaussianProcessClassifier(ConstantKernel(1.0, (1e-3, 1e4)) * RBF(d**0.5, (1e-2, 1e4)), random_state=0),
    ),
}


def measured(**part: Any) -> dict[str, float]:
    """Scores of a classifier on a split, and the number of its training rows."""
    X, X_test, y, y_test = split(part["set"], part["seed"], part["cap"], part["wrong"])
    if part["peer"] in CALIBRATORS:
        calibrated = after_ours(part["peer"], part["set"], part["seed"], part["cap"], part["wrong"])
        return {"rows": len(y), **scores_of(calibrated, np.unique(y), y_test), "seconds": np.nan}
    machine = PEERS[part["peer"]](X.shape[1])
    if part["peer"] == "BayesianSVC":
        first = np.concatenate([np.flatnonzero(y == label)[:30] for label in np.unique(y)])
        clone(machine).fit(X[first], y[first])  # compiles
    return {"rows": len(y), **scores(machine, X, X_test, y, y_test)}


def scores(peer: Any, X: Array, X_test: Array, y: NDArray[Any], y_test: NDArray[Any]) -> dict[str, float]:
    """Processor seconds of a fit, and the scores of its probabilities."""
    began = time.process_time()
    peer.fit(X, y)
    seconds = time.process_time() - began
    return {**scores_of(peer.predict_proba(X_test), peer.classes_, y_test), "seconds": seconds}


def scores_of(P: Array, classes: NDArray[Any], y_test: NDArray[Any]) -> dict[str, float]:
    """Scores of probabilities (m, k)."""
    P, hit = np.clip(P, 1e-15, 1.0), classes == y_test[:, None]
    top, right = P.max(axis=1), hit[np.arange(len(P)), P.argmax(axis=1)]
    bins = np.minimum((10 * top).astype(int), 9)
    return {
        "log loss": -float(np.log(P[hit]).mean()),
        "Brier": float(((P - hit) ** 2).sum(axis=1).mean() / 2.0),
        "calibration": sum(abs(float((right - top)[bins == k].sum())) for k in range(10)) / len(P),
        "error": 1.0 - float(right.mean()),
    }


def platt(p: Array, hit: Array, new: Array) -> Array:
    """Calibrate by a logistic regression of the log odds."""
    p, new = (logit(np.clip(each, 1e-12, 1.0 - 1e-12))[:, None] for each in (p, new))
    return LogisticRegression(C=np.inf).fit(p, hit).predict_proba(new)[:, 1]


def isotonic(p: Array, hit: Array, new: Array) -> Array:
    """Calibrate by the best increasing function."""
    return IsotonicRegression(out_of_bounds="clip").fit(p, hit).predict(new)


def venn_abers(p: Array, hit: Array, new: Array) -> Array:
    """Calibrate by two increasing functions for each new row, which is added with either label."""
    low, high = (
        np.concatenate([isotonic(np.append(p, each), np.append(hit, label), each[None]) for each in new])
        for label in (0, 1)
    )
    return high / (1.0 - low + high)


CALIBRATORS = {"Platt": platt, "isotonic": isotonic, "Venn-Abers": venn_abers}


@cache
def held_out(name: str, seed: int, rows: int, wrong: float) -> tuple[Array, Array]:
    """Probabilities of `BayesianSVC` for training rows, each by a fit without its fifth of them, and for test rows."""
    X, X_test, y, _ = split(name, seed, rows, wrong)
    machine = PEERS["BayesianSVC"](X.shape[1])
    return cross_val_predict(machine, X, y, method="predict_proba"), machine.fit(X, y).predict_proba(X_test)


def after_ours(calibrator: str, name: str, seed: int, rows: int, wrong: float) -> Array:
    """Calibrated probabilities (m, k) of the test rows."""
    y = split(name, seed, rows, wrong)[2]
    hit = (np.unique(y) == y[:, None]).astype(float)
    pairs = zip(*(each.T for each in held_out(name, seed, rows, wrong)), hit.T, strict=True)
    P = np.stack([CALIBRATORS[calibrator](p, each, new) for p, new, each in pairs], axis=1)
    return P / P.sum(axis=1, keepdims=True)


def table_of(
    lines: pd.DataFrame, wrong: float, peers: Iterable[str] = PEERS, scores: Sequence[str] = SCORES, what: str = ""
) -> Timing:
    """Mean scores of each set, and mean ranks."""
    chosen = lines[lines.wrong == wrong]
    names = [name for name in peers if name in set(chosen.peer)]
    title = f"class probabilities{what}, {100 * wrong:.0f} % of the training labels wrong: " + "; ".join(scores)
    table = Timing(title, ("set", "rows", *names))
    mean = chosen.groupby(["set", "peer"], sort=False)[[*SCORES, "rows"]].mean()
    for name in dict.fromkeys(chosen["set"]):
        one = mean.loc[name]
        cells = (
            "; ".join(f"{one.loc[peer, score]:.3g}" for score in scores) if peer in one.index else "–" for peer in names
        )
        table.add(name, int(one.rows.iloc[0]), *cells)
    notes = []
    for score in ("log loss", "Brier"):
        values = mean[score].unstack()[names].dropna()
        ranks = zip(names, rankdata(values, axis=1).mean(axis=0), strict=True)
        notes.append(f"{score} " + ", ".join(f"{name} {rank:.2f}" for name, rank in sorted(ranks, key=lambda r: r[1])))
    loss = mean["log loss"].unstack()[names]
    simple = [name for name in ("SVC", "logistic") if name in names]
    if simple and "BayesianSVC" in names:
        ratio = (loss["BayesianSVC"] / loss[simple].min(axis=1)).dropna()
        notes.append(
            f"log loss of BayesianSVC at most 1.02 times the better of {' and '.join(simple)} on "
            f"{(ratio <= 1.02).sum()} of {len(ratio)} sets, at most {ratio.max():.2f} times ({ratio.idxmax()})"
        )
    for name in (each for each in names if each in CALIBRATORS and "BayesianSVC" in names):
        ratio = (loss[name] / loss["BayesianSVC"]).dropna()
        lower, higher = (ratio < 0.98).sum(), (ratio > 1.02).sum()
        notes.append(
            f"log loss of {name} below .98 times that on {lower} of {len(ratio)} sets, above 1.02 times on {higher}"
        )
    table.notes = f"Mean ranks where all were run: {'; '.join(notes)}. {int(chosen.seed.max()) + 1} splits."
    return table


def main(
    only: Annotated[list[str] | None, typer.Option(help="Sets.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Classifiers.")] = None,
    splits: Annotated[int, typer.Option(help="Number of splits.")] = 5,
    rows: Annotated[int, typer.Option(help="Largest number of training rows.")] = 1000,
    wrong: Annotated[list[float] | None, typer.Option(help="Shares of wrong labels.")] = None,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Score class probabilities on real sets beside calibrated machines, a Gaussian process and boosting."""
    shares = wrong or [0.0, 0.1]
    parts = [
        {"set": name, "seed": seed, "wrong": share, "cap": rows, "peer": peer}
        for seed in range(splits)
        for name in only or SETS
        for share in shares
        for peer in methods or (*PEERS, *CALIBRATORS)
        if peer != "GP" or min(rows, 7 * len(data(name)[1]) // 10) <= _PROCESS
    ]
    found = finished(out, parts, measured)
    tables = [table_of(found, share) for share in shares]
    if set(CALIBRATORS) & set(found.peer):
        given = ("BayesianSVC", *CALIBRATORS), ("log loss", "Brier"), ", calibrated after BayesianSVC"
        tables += [table_of(found, share, *given) for share in shares]
    publish("classify", tables, save)

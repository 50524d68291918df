"""Ordered classes with wrong labels: discretised regression sets, the benchmarks of Chu & Ghahramani 2005.

The targets of six sets are cut into five or ten bins of equal length, and a class is the number of its bin. The
training sizes are those of Chu & Ghahramani (2005, Journal of Machine Learning Research 6), and the splits are ours.
The model is theirs, a Gaussian process with one lengthscale that is cut at ordered points, by mean field: with Gaussian
noise as theirs, and with soft insensitive noise whose tails are learned (`default_ordinal_model`). In the second half
of the runs a tenth of the training labels is replaced by other classes.

The tables contain the mean absolute error of the class number by the median class, the share of wrong classes by the
most probable class, and the log loss of the test rows, of those whose class the training rows contain. The errors of
support vector ordinal regression (Chu & Keerthi 2007, SVOREX and SVORIM), by the package skordinal if it is installed,
are those of C and γ by five-fold cross-validation on a grid.

--quick uses three splits of the four small sets with five bins, and no cross-validation.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from experiments import Report, Table
from scipy import stats
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsvr_pp.datasets import load
from bsvr_pp.estimators.ordinal import BayesianOrdinalSVC

try:
    from skordinal.classifiers import SVOR
except ImportError:
    SVOR = None

MINUTES = (4, 1200)

# File, number of training rows, number of splits.
SETS = {
    "Pyrimidines": ("pyrim", 50, 20),
    "Triazines": ("triazines", 100, 20),
    "Auto MPG": ("auto_mpg", 200, 20),
    "Boston": ("boston_housing", 300, 20),
    "Stocks": ("stock", 600, 20),
    "Abalone": ("abalone", 1000, 20),
}
SMALL = 300
BINS = (5, 10)
CORRUPTED = (0.0, 0.1)
OPTIONS = {
    "Gaussian": {"noise": "gaussian", "kernel": "rbf", "ard": False},
    "Soft insensitive": {"noise": "soft_insensitive", "kernel": "rbf", "ard": False},
}
MACHINES = {"SVOREX": "explicit", "SVORIM": "implicit"}
GRID = {"svor__C": np.logspace(-1, 2, 4), "svor__gamma": np.logspace(-3, 0, 4)}


def binned(y, bins):
    """Return the number of the bin of each target, 0 to bins - 1, for bins of equal length over the range of all."""
    return np.minimum((bins * (y - y.min()) / np.ptp(y)).astype(int), bins - 1)


def corrupted(classes, share, bins, rng):
    """Replace the class of a share of the rows by another class, drawn with equal probabilities."""
    changed = classes.copy()
    rows = rng.choice(len(classes), round(share * len(classes)), replace=False)
    changed[rows] = (classes[rows] + rng.integers(1, bins, rows.size)) % bins
    return changed


def split(name, bins, share, seed):
    """Return inputs and classes of the training rows, with wrong labels among them, and of the test rows."""
    file, n_train, _ = SETS[name]
    data = load(file)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.y))
    train, test = order[:n_train], order[n_train:]
    classes = binned(data.y, bins)
    return data.X[train], corrupted(classes[train], share, bins, rng), data.X[test], classes[test]


def fit(name, bins, share, seed, method):
    """Compute the test errors of one Bayesian model on one split, and its time in seconds."""
    X, y, X_test, y_test = split(name, bins, share, seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence is in the table
        model = BayesianOrdinalSVC(**OPTIONS[method], random_state=seed).fit(X, y)
    seconds = time.perf_counter() - began
    probability, known = model.predict_proba(X_test), np.isin(y_test, model.classes_)
    of_class = probability[np.flatnonzero(known), np.searchsorted(model.classes_, y_test[known])]
    median = np.minimum((np.cumsum(probability, axis=1) < 0.5).sum(axis=1), model.classes_.size - 1)
    return {
        "MAE": np.abs(model.classes_[median] - y_test).mean(),
        "wrong": np.mean(model.classes_[probability.argmax(axis=1)] != y_test),
        "log loss": -np.log(of_class).mean(),
        "converged": float(model.converged_),
        "seconds": seconds,
    }


def machine(name, bins, share, seed, method):
    """Compute the test errors of support vector ordinal regression on one split, with C and γ by cross-validation."""
    X, y, X_test, y_test = split(name, bins, share, seed)
    began = time.perf_counter()
    pipeline = make_pipeline(StandardScaler(), SVOR(constraints=MACHINES[method]))
    folds = KFold(5, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(pipeline, GRID, cv=folds, scoring="neg_mean_absolute_error").fit(X, y)
    predicted = search.predict(X_test)
    seconds = time.perf_counter() - began
    return {"MAE": np.abs(predicted - y_test).mean(), "wrong": np.mean(predicted != y_test), "seconds": seconds}


def run(job):
    """Make the tables of errors and of paired differences."""
    found = {}
    for bins in BINS[:1] if job.quick else BINS:
        for name, (_, n_train, splits) in SETS.items():
            if job.quick and n_train > SMALL:
                continue
            for share in CORRUPTED:
                settings = [
                    {"name": name, "bins": bins, "share": share, "seed": job.seed + s}
                    for s in range(min(3, splits) if job.quick else splits)
                ]
                methods = dict.fromkeys(OPTIONS, fit)
                if SVOR is not None and not job.quick:
                    methods |= dict.fromkeys(MACHINES, machine)
                for method, function in methods.items():
                    label = f"{name}, {bins} bins, {100 * share:.0f} % wrong, {method}"
                    rows = job.each(function, [{**each, "method": method} for each in settings], label)
                    found[bins, share, name, method] = pd.DataFrame(rows)
    note = "Three splits." if job.quick else ""
    tables = [
        Table(column.replace(" ", "-").lower(), title, errors(found, column), note)
        for column, title in (
            ("MAE", "Mean absolute error of the class number"),
            ("wrong", "Share of wrong classes"),
            ("log loss", "Log loss"),
            ("seconds", "Seconds of a fit"),
        )
    ]
    return Report(
        [*tables, Table("paired", "Soft insensitive minus Gaussian noise, split by split", paired(found), note)]
    )


def errors(found, column):
    """Make the table of one error: mean and standard deviation over the splits."""
    rows = {}
    for (bins, share, name, method), frame in found.items():
        if column in frame:
            row = rows.setdefault((bins, f"{100 * share:.0f} %", name), {"splits": len(frame)})
            row[method], row[f"{method} sd"] = frame[column].mean(), frame[column].std()
    return pd.DataFrame(rows).T.rename_axis(["bins", "wrong labels", "data set"])


def paired(found):
    """Make the table of differences on the same splits: mean, its p-value (t-test), and how often it is negative."""
    rows = {}
    for bins, share, name in dict.fromkeys(key[:3] for key in found):
        ours, other = (found[bins, share, name, noise] for noise in ("Soft insensitive", "Gaussian"))
        row = {"splits": len(ours)}
        for column in ("log loss", "MAE"):
            difference = ours[column] - other[column]
            row[column], row[f"{column} sd"] = difference.mean(), difference.std()
            row[f"{column}, p"] = stats.ttest_1samp(difference, 0.0).pvalue if len(difference) > 1 else np.nan
            row[f"{column}, lower"] = int((difference < 0).sum())
        rows[bins, f"{100 * share:.0f} %", name] = row
    return pd.DataFrame(rows).T.rename_axis(["bins", "wrong labels", "data set"])

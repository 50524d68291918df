"""Right-censored targets: as intervals, dropped, and kept as if they were exact; simulated sets of 80 rows.

Targets are sin(x) plus Laplace noise with standard deviation 0.2; each row has a limit of its own, and 40 % of the
targets lie above it and are known only to do so. `BayesianSVR` is fitted to the intervals, to the exact rows alone, and
to the limits in the place of the censored targets. The table has the share of new targets, not censored, in the central
80 % intervals, and the error and the bias of the function. 20 sets; --quick uses four.
"""

from __future__ import annotations

import warnings

import matplotlib.pyplot as plt
import numpy as np
from experiments import Report, Table, summarize

from bsvr_pp.estimators.svr import BayesianSVR

MINUTES = (1, 3)

ROWS, NEW, CENSORED, SD = 80, 1000, 0.4, 0.2
WAYS = ("intervals", "dropped", "as exact")


def draw(seed):
    """Inputs, ends (n, 2) of the targets, and new inputs with their targets."""
    rng = np.random.default_rng(seed)
    X, X_new = np.sort(rng.uniform(-3, 3, (ROWS, 1)), axis=0), rng.uniform(-3, 3, (NEW, 1))
    y, y_new = (np.sin(Z[:, 0]) + SD / 2**0.5 * rng.laplace(size=len(Z)) for Z in (X, X_new))
    limit = rng.normal(scale=0.5, size=ROWS)
    limit += np.quantile(y - limit, 1 - CENSORED)
    return X, np.stack([np.minimum(y, limit), np.where(y > limit, np.inf, y)], axis=1), X_new, y_new


def fitted(X, ends, way):
    """Fit the estimator in one of the three ways."""
    svr, exact = BayesianSVR(kernel="rbf", intervals=True, restarts=1, random_state=0), np.isfinite(ends[:, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way == "intervals":
            return svr.fit(X, ends)
        return svr.fit(X[exact], ends[exact, 0]) if way == "dropped" else svr.fit(X, ends[:, 0])


def fit(seed, way):
    """Compute coverage, and error and bias of the function, on one set."""
    X, ends, X_new, y_new = draw(seed)
    svr = fitted(X, ends, way)
    low, high = svr.predict_interval(X_new, coverage=0.8).T
    error = svr.predict_f(X_new)[0] - np.sin(X_new[:, 0])
    return {
        "way": way,
        "inside 80 %": np.mean((low <= y_new) & (y_new <= high)),
        "error": np.sqrt(np.mean(error**2)),
        "bias": error.mean(),
        "noise sd": svr.noise_variance_**0.5,
    }


def figure(seed):
    """Plot one set with the three functions."""
    X, ends, _, _ = draw(seed)
    exact, grid = np.isfinite(ends[:, 1]), np.linspace(-3, 3, 200)[:, None]
    canvas, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    low, high = fitted(X, ends, "intervals").predict_interval(grid, coverage=0.8).T
    axes.fill_between(grid[:, 0], low, high, color="#bbccee", label="80 % interval of a new target")
    axes.plot(grid[:, 0], np.sin(grid[:, 0]), color="black", linewidth=1, label="the function")
    drawn = (("-", "#4477aa", "as intervals"), ("--", "#ee6677", "dropped"), (":", "#aa3377", "kept as exact"))
    for way, (style, colour, label) in zip(WAYS, drawn, strict=True):
        mean = fitted(X, ends, way).predict_f(grid)[0]
        axes.plot(grid[:, 0], mean, style, color=colour, linewidth=2, label=f"censored rows {label}")
    axes.plot(X[exact, 0], ends[exact, 0], "o", color="black", markersize=3, label="exact targets")
    axes.plot(X[~exact, 0], ends[~exact, 0], "^", color="grey", markersize=5, label="known to be above")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(fontsize="x-small", loc="upper left")
    return canvas


def run(job):
    """Make the table and the figure."""
    seeds = range(job.seed, job.seed + (4 if job.quick else 20))
    rows = job.each(fit, [{"seed": seed, "way": way} for way in WAYS for seed in seeds])
    note = "Four sets." if job.quick else "20 sets."
    table = Table("table", "40 % of 80 targets right-censored", summarize(rows, "way"), note)
    return Report([table], {"functions": figure(job.seed)})

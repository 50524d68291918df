"""BSVR, Gaussian process and cross-validated SVR for increasing n, Chu, Keerthi & Ong 2004, Fig. 4.

The data are sinc with Gaussian noise of variance 0.04, 10 to 1000 points, 20 draws each, and 3000 noise-free test
points. The figure of the paper shows errors and times. Its text states that both Bayesian methods are better than SVR
on few points, and that the time grows as n to the power 2.36 for BSVR and 3.05 for the Gaussian process. Here both run
in the same code (Gaussian noise is one of the losses), so that the exponents compare the methods. They are fitted from
100 points on, where the numerical work dominates the overhead of calls. Mean field is added; it starts at the
hyperparameters of BSVR, and only its own time is counted.

--quick uses three draws, one above 300 points.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from chu2004 import cross_validated_svr, errors, maximize, normalized
from experiments import Report, Table, summarize
from matplotlib import pyplot as plt

from bsvr_pp.datasets import sinc

MINUTES = (1, 120)

SIZES = (10, 20, 30, 50, 100, 200, 300, 500, 1000)
METHODS = ("BSVR", "GPR", "SVR", "mean field")
EXPONENTS = {"BSVR": 2.36, "GPR": 3.05}  # section VII-A


def fit(n, seed, method):
    """Compute errors and seconds of one method on one draw."""
    data = sinc(n, noise=0.2, random_seed=np.random.default_rng([n, seed]))
    x_test = np.linspace(-10, 10, 3000)[:, None]
    X, X_test = normalized(data.X, x_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "SVR":
            svr, seconds = cross_validated_svr(X, data.y, epsilon=0.1, seed=seed)
            predicted = svr.predict(X_test)
        else:
            found = maximize(X, data.y, noise="gaussian" if method == "GPR" else "soft_insensitive")
            if method == "mean field":
                found = maximize(X, data.y, method=method, start=found)
            predicted, seconds = found.predict(X_test)[0], found.seconds
    return {"method": method, "n": n, **errors(predicted, np.sinc(x_test[:, 0] / np.pi)), "seconds": seconds}


def run(job):
    """The figure, its numbers and the exponents."""
    settings = [
        {"n": n, "seed": job.seed + s, "method": method}
        for method in METHODS
        for n in SIZES
        for s in range(20 if not job.quick else 3 if n <= 300 else 1)
    ]
    job.each(fit, [{"n": 10, "seed": job.seed, "method": method} for method in METHODS], "compilation")
    frame = summarize(job.each(fit, settings, "fits"), ["method", "n"])
    exponents = {m: _exponent(frame.loc[m]) for m in METHODS}
    power = pd.DataFrame({"exponent": exponents, "exponent paper": EXPONENTS}).reindex(METHODS).rename_axis("method")
    note = "Three draws, one above 300 points." if job.quick else ""
    tables = [
        Table("figure-4", "Fig. 4: errors with respect to the noise-free function, and seconds", frame, note),
        Table("exponents", "Time as a power of n, 100 to 1000 points", power, note),
    ]
    return Report(tables, {"figure-4": figure(frame)})


def _exponent(frame):
    large = frame[frame.index >= 100]
    return np.polyfit(np.log(large.index), np.log(large["seconds"]), 1)[0]


def figure(frame):
    """Errors and seconds over n."""
    drawn, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for axis, column in zip(axes, ("AAE", "ASE", "seconds"), strict=True):
        for method in METHODS:
            mine = frame.loc[method]
            axis.errorbar(mine.index, mine[column], mine[f"{column} sd"], marker="x", capsize=2, label=method)
        axis.set(xscale="log", yscale="log", xlabel="n", ylabel=column)
        axis.legend()
    return drawn

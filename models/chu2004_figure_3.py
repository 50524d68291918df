"""Effect of the smooth fraction β on 4000 points of sinc, Chu, Keerthi & Ong 2004, Fig. 3.

The data are those of Table I; β varies from 0.001 to 1. The paper shows curves without a table. With increasing β the
number of support vectors decreases and the number of off-bound support vectors increases; the time of the evidence
increases with the latter. Evidence and error are unstable at very small β. The mean-field evidence at the same
hyperparameters is added. It shows how much of the decrease of the Laplace evidence at small β is an approximation
error.

--quick uses 1000 points.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from chu2004 import JITTER, errors, kernel, maximize
from chu2004_table_1 import draw
from experiments import Report, Table
from matplotlib import pyplot as plt

from bsvr_pp.core.approximations import find_mode, laplace_gradient, mean_field

MINUTES = (1, 180)

BETAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0)


def fit(n, seed, beta):
    """Fit one model: numbers of support vectors, times of mode and evidence gradient, evidences and error."""
    X, X_test, y, y_test, _, test_residual = draw(n, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = maximize(X, y, beta=beta)
    K = kernel(X, X, found.signal, found.relevance) + found.bias + JITTER * found.signal * np.eye(n)
    off_bound, on_bound = found.n_support
    return {
        "β": beta,
        "support": off_bound + on_bound,
        "off-bound": off_bound,
        "seconds, mode": _seconds(lambda: find_mode(K, y, found.noise)),
        "seconds, evidence": _seconds(lambda: laplace_gradient(K, y, found.noise)),
        "-ln P": -found.posterior.log_evidence,
        "-ln P, mean field": -mean_field(K, y, found.noise).log_evidence,
        "ASE - noise": errors(found.predict(X_test)[0], y_test)["ASE"] - np.mean(test_residual**2),
        "σ_n²": found.noise.variance,
    }


def _seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def run(job):
    """The figure, and its numbers."""
    n = 1000 if job.quick else 4000
    rows = job.each(fit, [{"n": n, "seed": job.seed, "beta": beta} for beta in BETAS], "β")
    frame = pd.DataFrame(rows).set_index("β")
    note = "1000 points instead of 4000." if job.quick else ""
    return Report([Table("figure-3", f"Fig. 3: sinc, {n} points, over β", frame, note)], {"figure-3": figure(frame)})


def figure(frame):
    """The four graphs."""
    drawn, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, layout="constrained")
    groups = (
        ("support vectors", ["support", "off-bound"]),
        ("seconds", ["seconds, evidence", "seconds, mode"]),
        ("-ln P", ["-ln P", "-ln P, mean field"]),
        ("ASE - noise", ["ASE - noise"]),
    )
    for axis, (label, columns) in zip(axes.flat, groups, strict=True):
        for column in columns:
            axis.semilogx(frame.index, frame[column], "o-", label=column)
        axis.set(xlabel="β", ylabel=label)
        axis.legend()
    return drawn

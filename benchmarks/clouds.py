"""Default classifiers of two Gaussian clouds whose labels are wrong with some probability, beside the Bayes rule.

The clouds have their centres at -a and a in both of two inputs, and unit variance. Test labels are wrong at the rate of
the training labels: `predict_proba` describes labels as they are recorded.
"""

from __future__ import annotations

import time
import warnings
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.special import expit
from sklearn.metrics import log_loss

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.scores import Array
from benchmarks.side_by_side import Timing, publish

FILE = Path(__file__).with_suffix(".csv")
_TEST_ROWS = 4000


def drawn(a: float, wrong: float, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Inputs, right labels and recorded labels."""
    labels = np.repeat([0.0, 1.0], [n // 2, n - n // 2])
    X = rng.normal(size=(n, 2)) + a * (2.0 * labels[:, None] - 1.0)
    return X, labels, np.where(rng.random(n) < wrong, 1.0 - labels, labels)


def measured(rows: int, a: float, wrong: float, seed: int) -> dict[str, float]:
    """Share of right classes less that of the Bayes rule, both log losses, number of warnings, and CPU seconds."""
    rng = np.random.default_rng([seed, rows, int(10 * a), int(100 * wrong)])
    X, _, y = drawn(a, wrong, rows, rng)
    X_test, right, recorded = drawn(a, wrong, _TEST_ROWS, rng)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        p = bp.BayesianSVC(random_state=0).fit(X, y).predict_proba(X_test)[:, 1]
        seconds = time.process_time() - began
    best = wrong + (1.0 - 2.0 * wrong) * expit(2.0 * a * X_test.sum(axis=1))
    gain = np.mean((p > 0.5) == right) - np.mean((best > 0.5) == right)
    losses = {"loss": log_loss(recorded, p), "truth": log_loss(recorded, best)}
    return {"gain": float(gain), **losses, "warnings": len(caught), "seconds": seconds}


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Numbers of training rows.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of data sets of each kind.")] = 10,
    out: Annotated[Path, typer.Option(help="File of the finished parts.")] = FILE,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare probabilities of separated classes with wrong labels with the true ones."""
    columns = ("rows", "a", "wrong", "accuracy less Bayes", "least", "log loss", "of the truth", "warnings", "seconds")
    table = Timing("two clouds at -a and a, means", columns)
    cells = list(product(rows or (300, 800), (2.0, 3.0, 4.0), (0.0, 0.05, 0.1, 0.2)))
    parts = [{"rows": n, "a": a, "wrong": wrong, "seed": seed} for n, a, wrong in cells for seed in range(seeds)]
    for cell, each in finished(out, parts, measured).groupby(["rows", "a", "wrong"]):
        if cell in cells:
            gain, loss = each["gain"], each["loss"]
            means = f"{loss.mean():.4f}", f"{each['truth'].mean():.4f}", int(each["warnings"].sum())
            table.add(*cell, f"{gain.mean():.4f}", f"{gain.min():.4f}", *means, f"{each['seconds'].mean():.2f}")
    publish("clouds", [table], save)

"""Plot docs/first.png: one-dimensional data with gross errors, by support vector regression and two processes."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

import bsvr_pp as bp

HERE = Path(__file__).parent
_EDGE = 4.5
GRID = {"C": np.geomspace(0.1, 100, 7), "epsilon": [0.01, 0.1, 0.3], "gamma": np.geomspace(0.01, 10, 7)}


def drawn(n: int, seed: int, wrong: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets of which so many are wrong, and which these are."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 10, (n, 1)), axis=0)
    y, errors = np.sin(X[:, 0]) + 0.1 * rng.laplace(size=n), rng.choice(n, wrong, replace=False)
    y[errors] += rng.choice([-1.0, 1.0], wrong) * rng.uniform(6.0, 9.0, wrong)
    return X, y, np.isin(np.arange(n), errors)


def main() -> None:
    """Fit all three, and plot their functions and 90 % bands with the share of clean new targets inside."""
    X, y, wrong = drawn(80, 0, wrong=5)
    new, targets, _ = drawn(2000, 1)
    grid = np.linspace(0, 10, 400)[:, None]
    svr = GridSearchCV(SVR(), GRID, cv=5).fit(X, y)
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says which rows are set aside
        ours = bp.BayesianSVR(random_state=0).fit(X, y)

    def band(at: np.ndarray) -> np.ndarray:
        mean, sd = process.predict(at, return_std=True)
        return mean[:, None] + norm.ppf([0.05, 0.95]) * sd[:, None]

    panels = (
        ("sklearn.svm.SVR, grid search", svr.predict, None),
        ("Gaussian process", process.predict, band),
        ("bsvr_pp.BayesianSVR", ours.predict, lambda at: ours.predict_interval(at, 0.9)),
    )
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
    for axis, (name, predict, interval) in zip(axes, panels, strict=True):
        error = np.sqrt(np.mean((predict(new) - np.sin(new[:, 0])) ** 2))
        text = f"error of the function {error:.3f}\n"
        if interval is None:
            text += "no intervals"
        else:
            low, high = interval(new).T
            held, width = np.mean((low < targets) & (targets < high)), np.mean(high - low)
            text += f"90 % intervals hold {100 * held:.0f} %, width {width:.2f}"
            axis.fill_between(grid[:, 0], *interval(grid).T, color="tab:blue", alpha=0.2, lw=0)
        axis.plot(grid, np.sin(grid), color="0.5", ls="--", lw=1)
        axis.plot(grid, predict(grid), color="tab:blue")
        axis.plot(X[~wrong], y[~wrong], ".", color="0.2", ms=4)
        for marker, side in (("^", wrong & (y > 0)), ("v", wrong & (y < 0))):  # wrong targets are far beyond the edge
            axis.plot(X[side], np.sign(y[side]) * _EDGE, marker, color="tab:red", ms=5, clip_on=False)
        axis.set_ylim(-_EDGE, _EDGE)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(text, fontsize=9)
    figure.savefig(HERE / "first.png", dpi=110)


if __name__ == "__main__":
    main()

"""Plot docs/densities.png: predictive densities of a real set beside normal ones, on how-to/distributions.md."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import bsvr_pp as bp
from bsvr_pp.datasets import load

PATH = Path(__file__).parent / "densities.png"
_TRAINING = 400


def main() -> None:
    """Fit Boston housing, and plot six test rows with the smallest to the largest standard deviation."""
    data = load("boston_housing")
    order = np.random.default_rng(0).permutation(len(data.y))
    train, test = order[:_TRAINING], order[_TRAINING:]
    predicted = bp.BayesianSVR(random_state=0).fit(data.X[train], data.y[train]).predict_distribution(data.X[test])
    mean, std, y = predicted.mean(), predicted.std(), data.y[test]
    normal = float(np.mean(norm.logpdf(y, mean, std)))
    print(f"mean log density of {len(test)} rows: {predicted.logpdf(y).mean():.3f}, of normals {normal:.3f}")
    figure, axes = plt.subplots(2, 3, figsize=(8.5, 4.2), layout="constrained")
    rows = np.argsort(std)[np.linspace(0, len(test) - 1, 6).astype(int)]
    for axis, row in zip(axes.flat, rows, strict=True):
        grid = np.linspace(mean[row] - 5 * std[row], mean[row] + 5 * std[row], 400)
        density = predicted[row].pdf(grid[:, None])[:, 0]
        axis.fill_between(grid, density, color="C0", alpha=0.35, lw=0, label="predicted")
        axis.plot(grid, norm.pdf(grid, mean[row], std[row]), "k--", lw=1, label="normal, same moments")
        axis.axvline(y[row], color="C3", lw=1.5, label="target")
        axis.set_yscale("log")
        axis.set_ylim(bottom=1e-4)
    axes[1, 2].legend(fontsize=7, loc="lower center")
    figure.supxlabel("median value of homes (1,000 $)", fontsize=9)
    figure.supylabel("density", fontsize=9)
    figure.savefig(PATH, dpi=100)


if __name__ == "__main__":
    main()

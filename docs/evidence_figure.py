"""Plot docs/evidence.png: the evidence against the width of the tube, by every approximation and by annealing."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp
from bsvr_pp.approximations import annealed, laplace, mean_field
from bsvr_pp.datasets import sinc
from bsvr_pp.losses import soft_insensitive


def main() -> None:
    """Plot two panels, for two smooth fractions of the loss."""
    data = sinc(50, random_seed=1)
    K = 0.3 * np.exp(-0.5 * (data.X - data.X.T) ** 2 / 2.0**2) + 1.0 + 1e-6 * np.eye(50)
    grid, few = np.geomspace(0.02, 1.0, 300), np.geomspace(0.02, 1.0, 16)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, beta in zip(axes, (0.3, 0.02), strict=True):
        noise = [soft_insensitive(8.0, epsilon, beta) for epsilon in grid]
        exact = [laplace(K, data.y, at).log_evidence for at in noise]
        local = [laplace(K, data.y, at, curvature="local").log_evidence for at in noise]
        field = [mean_field(K, data.y, at).log_evidence for at in noise]
        truth = [annealed(K, data.y, soft_insensitive(8.0, e, beta), bp.Annealed(), random_seed=0) for e in few]
        axis.plot(grid, exact, color="C3", lw=1, label="Laplace, exact curvature")
        axis.plot(grid, local, color="C1", lw=1.5, label="Laplace, local curvature")
        axis.plot(grid, field, color="C0", lw=1.5, label="mean field")
        axis.errorbar(
            few,
            [t.log_evidence for t in truth],
            [2 * t.standard_error for t in truth],
            fmt="k.",
            ms=5,
            lw=1,
            label="annealed, ± 2 standard errors",
        )
        axis.set(xscale="log", xlabel="epsilon", title=f"beta = {beta:g}")
        axis.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5, 1.0], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"])
        axis.set_xticks([], minor=True)
        print(
            beta, "mean field - annealed", np.abs(np.interp(few, grid, field) - [t.log_evidence for t in truth]).max()
        )
        print(beta, "local - annealed", (np.interp(few, grid, local) - [t.log_evidence for t in truth]).round(2))
        print(beta, "exact: largest jump", np.abs(np.diff(exact)).max(), "of mean field", np.abs(np.diff(field)).max())
    axes[0].set(ylabel="log evidence, nats")
    axes[0].set_ylim(min(field) - 6, max(field) + 8)
    axes[0].legend(fontsize=8)
    figure.savefig(Path(__file__).parent / "evidence.png", dpi=130)


if __name__ == "__main__":
    main()

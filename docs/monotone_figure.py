"""Plot docs/monotone.png: a dose and its response, with and without the knowledge that the response rises."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp

HERE = Path(__file__).parent


def main() -> None:
    """Fit both, and plot their means and 90 % bands of the function."""
    rng = np.random.default_rng(4)
    dose = np.sort(rng.uniform(0, 10, (40, 1)), axis=0)
    response = np.tanh(dose[:, 0] - 3.0) + 0.25 * rng.normal(size=40)
    grid = np.linspace(0, 10, 300)[:, None]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.0), sharey=True, layout="constrained")
    for axis, name, monotone in zip(axes, ("as the data say", "monotone={0: 1}"), (None, {0: 1}), strict=True):
        svr = bp.BayesianSVR(monotone=monotone, random_state=0).fit(dose, response)
        mean, deviation = svr.predict_f(grid)
        axis.fill_between(grid[:, 0], mean - 1.645 * deviation, mean + 1.645 * deviation, color="tab:blue", alpha=0.2)
        axis.plot(grid, mean, color="tab:blue")
        axis.plot(grid, np.tanh(grid - 3.0), color="0.5", ls="--", lw=1)
        axis.plot(dose, response, ".", color="0.2", ms=4)
        axis.set(title=name, xlabel="dose")
    axes[0].set_ylabel("response")
    figure.savefig(HERE / "monotone.png", dpi=110)


if __name__ == "__main__":
    main()

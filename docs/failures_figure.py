"""Plot docs/failures.png: the failures of each approximation of the evidence, over C·epsilon, beta and n.

The targets are sin(x)/x plus draws of the same noise that the model assumes, with standard deviation 0.2, so that no
failure comes from a wrong model. Each cell shows the worst of three data sets.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from arviz_stats.base import array_stats
from PIL import Image

import bsvr_pp as bp
from bsvr_pp.approximations import LatentPosterior, annealed, laplace, mean_field
from bsvr_pp.losses import NoiseModel, soft_insensitive

N = (25, 50, 100, 200)
BETA = (0.0, 0.03, 0.1, 0.3, 1.0)
TUBE = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # C·epsilon
NOISE, SEEDS, DRAWS = 0.2, 3, 4000
STEPS = np.linspace(0.9, 1.1, 101)  # of epsilon, for jumps
EQUAL = 0.99  # effective share of the draws from which their weights count as equal
ROWS = {
    "exact Laplace: jump of the evidence, nats": (0.0, 3.0, "Reds"),
    "exact Laplace: error of the evidence, nats": (-5.0, 5.0, "RdBu_r"),
    "local Laplace: error of the evidence, nats": (-5.0, 5.0, "RdBu_r"),
    "mean field: error of the evidence, nats": (-5.0, 5.0, "RdBu_r"),
    "local Laplace: k-hat of its draws of f": (0.0, 1.4, "RdBu_r"),
    "mean field: k-hat of its draws of f": (0.0, 1.4, "RdBu_r"),
}


def kernel(x: np.ndarray) -> np.ndarray:
    """The prior covariance of docs/evidence.png."""
    return 0.3 * np.exp(-0.5 * (x[:, None] - x) ** 2 / 2.0**2) + 1.0 + 1e-6 * np.eye(x.size)


def noise_of(tube: float, beta: float) -> NoiseModel:
    """The soft insensitive noise of standard deviation NOISE with this C·epsilon: C and epsilon only set its scale."""
    C = float(np.sqrt(soft_insensitive(1.0, tube, beta).variance)) / NOISE
    return soft_insensitive(C, tube / C, beta)


def jump(K: np.ndarray, y: np.ndarray, noise: NoiseModel) -> float:
    """Largest step of the exact Laplace evidence between neighbours, minus the median step (its slope)."""
    C, epsilon, beta = noise.parameters.values()
    step = np.diff([laplace(K, y, soft_insensitive(C, epsilon * s, beta)).log_evidence for s in STEPS])
    return float(np.abs(step - np.median(step)).max())


def k_hat(K: np.ndarray, y: np.ndarray, noise: NoiseModel, posterior: LatentPosterior, seed: int) -> float:
    """k-hat of the exact posterior divided by the Gaussian, for draws of the Gaussian; NaN if the weights are equal."""
    root = np.linalg.cholesky(K)
    inner = np.linalg.cholesky(np.eye(len(K)) + root.T @ (posterior.site_precision[:, None] * root))
    white = np.random.default_rng(seed).standard_normal((len(K), DRAWS))
    step = (root @ np.linalg.solve(inner.T, white)).T  # covariance (K⁻¹ + τ)⁻¹
    log_weight = noise.log_density(y - posterior.mean - step).sum(axis=1)
    log_weight += -step @ posterior.dual_coef + 0.5 * step**2 @ posterior.site_precision
    weight = np.exp(log_weight - log_weight.max())
    if weight.sum() ** 2 / (weight @ weight) > EQUAL * DRAWS:
        return float("nan")
    return float(array_stats.psislw(-log_weight)[1])


def cell(n: int, tube: float, beta: float) -> list[float]:
    """Compute the worst of several data sets, for each row of the figure."""
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        x, noise = np.sort(rng.uniform(-10, 10, n)), noise_of(tube, beta)
        K, y = kernel(x), np.sinc(x / np.pi) + noise.sample(n, rng)
        truth = annealed(K, y, noise, bp.Annealed(particles=300), random_seed=0).log_evidence
        exact, local, field = laplace(K, y, noise), laplace(K, y, noise, curvature="local"), mean_field(K, y, noise)
        errors = [posterior.log_evidence - truth for posterior in (exact, local, field)]
        found.append([jump(K, y, noise), *errors, *(k_hat(K, y, noise, q, seed) for q in (local, field))])
    return [_worst(column) for column in np.array(found).T]


def _worst(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known[np.abs(known).argmax()]) if known.size else float("nan")


def draw(grids: dict[int, np.ndarray]) -> None:
    """Plot one row per approximation and failure, one column per number of points."""
    figure, axes = plt.subplots(len(ROWS), len(N), figsize=(10.5, 14.5), sharex=True, sharey=True)
    figure.subplots_adjust(left=0.06, right=0.99, top=0.96, bottom=0.04, wspace=0.06, hspace=0.24)
    for row, (title, (low, high, colours)) in enumerate(ROWS.items()):
        axes[row, 0].annotate(title, (0, 1.05), xycoords="axes fraction", fontsize=12)
        axes[row, 0].set_ylabel("beta")
        for axis, grid in zip(axes[row], grids.values(), strict=True):
            values = grid[:, :, row]
            axis.imshow(values, vmin=low, vmax=high, cmap=colours, origin="lower", aspect="auto")
            for (i, j), value in np.ndenumerate(values):
                middle = low if colours == "Reds" else (low + high) / 2
                dark = abs(value - middle) > 0.65 * (high - middle)
                text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}" if row < 4 else f"{value:.2f}"
                text = f"{value:.1f}" if row >= 4 and value < 0 else text
                text = {"nan": "–", "-0.0": "0.0"}.get(text, text.replace("-", "−"))
                axis.text(j, i, text, ha="center", va="center", fontsize=9.5, color="w" if dark else "k")
    for axis, n in zip(axes[0], grids, strict=True):
        axis.annotate(f"n = {n}", (0.5, 1.22), xycoords="axes fraction", ha="center", fontsize=13, fontweight="bold")
        axis.set_xticks(range(len(TUBE)), [f"{t:g}" for t in TUBE])
        axis.set_yticks(range(len(BETA)), [f"{b:g}" for b in BETA])
    for axis in axes[-1]:
        axis.set_xlabel("C·epsilon")
    raw = BytesIO()
    figure.savefig(raw, dpi=100)
    Image.open(raw).convert("RGB").quantize(96).save(Path(__file__).parent / "failures.png", optimize=True)


def main() -> None:
    """Compute, print and plot."""
    grids = {}
    for n in N:
        grids[n] = np.array([[cell(n, tube, beta) for tube in TUBE] for beta in BETA])
        for row, title in enumerate(ROWS):
            print(f"n = {n}, {title}\n{grids[n][:, :, row].round(3)}", flush=True)
    draw(grids)


if __name__ == "__main__":
    main()

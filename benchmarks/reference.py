"""Reference posteriors: small fixed problems with accurate results from long annealing runs.

``python -m benchmarks.reference`` computes them again and writes ``bsvr_pp/data/reference_posteriors.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from bsvr_pp.approximations import annealed
from bsvr_pp.losses import NoiseModel, epsilon_insensitive, gaussian, hinge, huber, laplace, pinball, soft_insensitive
from bsvr_pp.reference import FILE, ReferencePosterior

Array = NDArray[np.float64]

PARTICLES, GROUPS, MOVES = 20_000, 10, 20  # about a quarter of an hour


def _inputs(n: int, d: int, rng: np.random.Generator) -> Array:
    return np.round(np.sort(rng.uniform(-3, 3, (n, d)), axis=0) if d == 1 else rng.uniform(-2, 2, (n, d)), 6)


def problems() -> list[ReferencePosterior]:
    """List the problems, still without results."""
    settings: list[tuple[str, int, int, float, float, NoiseModel]] = [
        # name, n, d, lengthscale, share of outliers, noise
        ("soft insensitive", 50, 1, 1.0, 0.0, soft_insensitive(10.0, 0.1, 0.3)),
        ("soft insensitive, outliers", 60, 1, 1.0, 0.1, soft_insensitive(5.0, 0.3, 0.05)),
        ("epsilon-insensitive, two inputs", 40, 2, 1.5, 0.0, epsilon_insensitive(8.0, 0.2)),
        ("epsilon-insensitive, wide tube", 30, 1, 0.7, 0.0, epsilon_insensitive(20.0, 0.5)),
        ("huber, three inputs, outliers", 50, 3, 2.0, 0.1, huber(6.0, 0.1)),
        ("laplace, outliers", 50, 1, 1.0, 0.1, laplace(4.0)),
        ("pinball", 40, 1, 1.0, 0.0, pinball(6.0, 0.3)),
        ("gaussian", 20, 1, 1.0, 0.0, gaussian(20.0)),
        ("hinge", 40, 1, 1.0, 0.0, hinge(2.0)),
    ]
    out = []
    nothing = np.empty(0)
    for seed, (name, n, d, lengthscale, outliers, noise) in enumerate(settings):
        rng = np.random.default_rng(seed)
        X = _inputs(n, d, rng)
        y = np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1:].sum(axis=1) + 0.2 * rng.normal(size=n)
        far = rng.choice(n, round(outliers * n), replace=False)
        y[far] += 2 * rng.standard_t(2, far.size)
        y = np.where(y > 0, 1.0, -1.0) if noise.name == "hinge" else np.round(y, 6)
        out.append(ReferencePosterior(name, X, y, lengthscale, 1.0, 1.0, 1e-6, noise, 0.0, 0.0, nothing, nothing))
    return out


def main() -> None:
    """Run the annealing and write the file."""
    records = []
    for problem in track(problems(), description="reference posteriors"):
        truth = annealed(
            problem.K, problem.y, problem.noise, particles=PARTICLES, groups=GROUPS, moves=MOVES, random_seed=1
        )
        records.append(
            {
                "name": problem.name,
                "X": problem.X.tolist(),
                "y": problem.y.tolist(),
                "lengthscale": problem.lengthscale,
                "signal_variance": problem.signal_variance,
                "bias_variance": problem.bias_variance,
                "jitter": problem.jitter,
                "loss": problem.noise.name,
                "parameters": dict(problem.noise.parameters),
                "log_evidence": round(truth.log_evidence, 5),
                "standard_error": round(truth.standard_error, 5),
                "mean": np.round(truth.mean, 5).tolist(),
                "variance": np.round(truth.variance, 6).tolist(),
            }
        )
    Path(str(FILE)).write_text(json.dumps(records) + "\n")


if __name__ == "__main__":
    main()

"""Reference posteriors: small fixed problems with accurate results from long annealing runs.

``python -m benchmarks.reference`` computes them again and writes ``reference_posteriors.json`` beside this file; with
``--only-intervals`` those whose targets are intervals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from bsvr_pp.approximations import annealed
from bsvr_pp.losses import (
    LOSSES,
    NoiseModel,
    absolute,
    epsilon_insensitive,
    gaussian,
    hinge,
    huber,
    pinball,
    soft_insensitive,
)
from bsvr_pp.model.row_kinds import representative

Array = NDArray[np.float64]

FILE = Path(__file__).with_name("reference_posteriors.json")
PARTICLES, GROUPS, MOVES = 20_000, 10, 20  # about a quarter of an hour
PARTICLES_OF_INTERVALS, MOVES_OF_INTERVALS = 500, 10  # a factor of an interval takes twenty times as long
CENSORED = 0.4  # share of the targets
CUTPOINTS = (-0.8, -0.3, 0.3, 0.8)


@dataclass(frozen=True, slots=True)
class ReferencePosterior:
    """A problem with the accurate evidence and moments of its posterior.

    The prior is a zero-mean Gaussian process with covariance
    signal_variance·exp(-½‖x - x'‖²/lengthscale²) + bias_variance + jitter·δ. Targets y (n,) are labels for the hinge,
    and a number of each interval where targets are intervals, whose ends are in ``noise``. The log evidence, with its
    standard error, is by `bsvr_pp.approximations.annealed`; mean and variance (n,) of f at the inputs are from 200,000
    particles (5,000 for intervals).
    """

    name: str
    X: Array
    y: Array
    lengthscale: float
    signal_variance: float
    bias_variance: float
    jitter: float
    noise: NoiseModel
    log_evidence: float
    standard_error: float
    mean: Array
    variance: Array

    @property
    def K(self) -> Array:
        """Prior covariance (n, n)."""
        distance = ((self.X[:, None] - self.X) ** 2).sum(-1)
        K: Array = self.signal_variance * np.exp(-0.5 * distance / self.lengthscale**2) + self.bias_variance
        return K + self.jitter * np.eye(len(K))


def reference_posteriors() -> list[ReferencePosterior]:
    """Load the reference posteriors, with which approximations can be tested."""
    out = []
    for record in json.loads(FILE.read_text()):
        arrays: dict[str, Any] = {key: np.asarray(record.pop(key)) for key in ("X", "y", "mean", "variance")}
        noise, ends = NoiseModel(LOSSES[record.pop("loss")], record.pop("parameters")), record.pop("ends", None)
        if ends is not None:  # JSON has no infinite numbers
            lower, upper = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
            noise = noise.between(np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf))
        out.append(ReferencePosterior(noise=noise, **arrays, **record))
    return out


def _inputs(n: int, d: int, rng: np.random.Generator) -> Array:
    return np.round(np.sort(rng.uniform(-3, 3, (n, d)), axis=0) if d == 1 else rng.uniform(-2, 2, (n, d)), 6)


def problems() -> list[ReferencePosterior]:
    """List the problems, still without results: exact targets and labels, then intervals."""
    return [*_exact(), *_intervals()]


def _exact() -> list[ReferencePosterior]:
    settings: list[tuple[str, int, int, float, float, NoiseModel]] = [
        # name, n, d, lengthscale, share of outliers, noise
        ("soft insensitive", 50, 1, 1.0, 0.0, soft_insensitive(10.0, 0.1, 0.3)),
        ("soft insensitive, outliers", 60, 1, 1.0, 0.1, soft_insensitive(5.0, 0.3, 0.05)),
        ("epsilon-insensitive, two inputs", 40, 2, 1.5, 0.0, epsilon_insensitive(8.0, 0.2)),
        ("epsilon-insensitive, wide tube", 30, 1, 0.7, 0.0, epsilon_insensitive(20.0, 0.5)),
        ("huber, three inputs, outliers", 50, 3, 2.0, 0.1, huber(6.0, 0.1)),
        ("absolute, outliers", 50, 1, 1.0, 0.1, absolute(4.0)),
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


def _intervals() -> list[ReferencePosterior]:
    """Problems whose targets are known only to lie in intervals."""
    out = []
    nothing = np.empty(0)
    settings: list[tuple[str, NoiseModel, Callable[[Array, np.random.Generator], tuple[Array, Array]]]] = [
        ("soft insensitive, 40 % right-censored", soft_insensitive(10.0, 0.1, 0.3), _censored),
        ("soft insensitive, intervals of 0.1 sd", soft_insensitive(10.0, 0.1, 0.3), partial(_rounded, width=0.0163)),
        ("absolute, intervals of 3 sd", absolute(7.0), partial(_rounded, width=0.606)),
        ("absolute, five classes", absolute(20.0), _classes),
    ]
    for seed, (name, noise, known) in enumerate(settings, start=100):
        rng = np.random.default_rng(seed)
        X = _inputs(40, 1, rng)
        lower, upper = known(np.round(np.sin(1.5 * X[:, 0]) + 0.2 * rng.normal(size=40), 6), rng)
        y = np.round(representative(lower, upper), 6)
        made = noise.between(lower, upper)
        out.append(ReferencePosterior(name, X, y, 1.0, 1.0, 1.0, 1e-6, made, 0.0, 0.0, nothing, nothing))
    return out


def _censored(y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Targets above a limit of their own, which is drawn and shifted so that a given share is censored."""
    limit = rng.normal(scale=0.7, size=y.size)
    limit = np.round(limit + np.quantile(y - limit, 1 - CENSORED), 6)
    return np.minimum(y, limit), np.where(y > limit, np.inf, y)


def _rounded(y: Array, rng: np.random.Generator, width: float) -> tuple[Array, Array]:
    """The interval of a grid that contains the target."""
    number = np.floor(y / width)
    return np.round(number * width, 6), np.round((number + 1) * width, 6)


def _classes(y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """The interval between two cut points that contains the target."""
    ends, k = np.array([-np.inf, *CUTPOINTS, np.inf]), np.searchsorted(CUTPOINTS, y)
    return ends[k], ends[k + 1]


def main(only_intervals: bool = False) -> None:
    """Run the annealing and write the file."""
    kept = json.loads(FILE.read_text()) if only_intervals else []
    records = [record for record in kept if "ends" not in record]
    for problem in track(_intervals() if only_intervals else problems(), description="reference posteriors"):
        ends = problem.noise.ends
        particles, moves = (PARTICLES, MOVES) if ends is None else (PARTICLES_OF_INTERVALS, MOVES_OF_INTERVALS)
        truth = annealed(
            problem.K, problem.y, problem.noise, particles=particles, groups=GROUPS, moves=moves, random_seed=1
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
                **(
                    {}
                    if ends is None
                    else {"ends": [[x if np.isfinite(x) else None for x in e] for e in ends.tolist()]}
                ),
                "log_evidence": round(truth.log_evidence, 5),
                "standard_error": round(truth.standard_error, 5),
                "mean": np.round(truth.mean, 5).tolist(),
                "variance": np.round(truth.variance, 6).tolist(),
            }
        )
    FILE.write_text(json.dumps(records) + "\n")


if __name__ == "__main__":
    main("--only-intervals" in sys.argv)

"""Data to try methods on: simulated and real data of the papers, CSV files, and problems with a known posterior."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bsvr_pp._arrays import Array
from bsvr_pp._checks import check_count, generator, is_number
from bsvr_pp.losses import LOSSES, NoiseModel
from bsvr_pp.tables import DataError
from bsvr_pp.tables.readers import Dataset, checked, read_data

__all__ = [
    "REFERENCE_FILE",
    "DataError",
    "Dataset",
    "ReferencePosterior",
    "Toy",
    "data_folder",
    "load",
    "read_csv",
    "reference_posteriors",
    "sinc",
    "svm_toy",
]

REFERENCE_FILE = files("bsvr_pp") / "data" / "reference_posteriors.json"

_GRID = 400  # grid points for the inputs of svm_toy
_TRIALS = 2000  # functions drawn at a time


def sinc(
    n: int = 100,
    *,
    noise: float = 0.2,
    outliers: float = 0.0,
    random_seed: int | np.random.Generator | None = None,
) -> Dataset:
    """Draw the sinc data of Chu, Keerthi & Ong 2004, section VII-A: y = sin(x)/x + Gaussian noise on [-10, 10].

    ``noise`` is a standard deviation. ``outliers`` is the share of targets to which a number between 1 and 3 is added
    or from which it is subtracted.
    """
    check_count("n", n, 1)
    if not (is_number(noise) and noise >= 0):
        raise ValueError(f"noise must be a number of at least 0, got {noise!r}")
    if not (is_number(outliers) and 0 <= outliers <= 1):
        raise ValueError(f"outliers must lie between 0 and 1, got {outliers!r}")
    rng = generator(random_seed)
    x = np.sort(rng.uniform(-10, 10, n))
    y = np.sinc(x / np.pi) + noise * rng.standard_normal(n)
    off = rng.random(n) < outliers
    y[off] += rng.choice([-1, 1], off.sum()) * rng.uniform(1, 3, off.sum())
    return Dataset(x[:, None], y, ("x",), "y")


@dataclass(frozen=True, slots=True)
class Toy:
    """Labels drawn from a known function, and that function on a grid of inputs."""

    data: Dataset
    grid: Array
    f: Array


def svm_toy(
    n: int = 50,
    *,
    C: float = 2.0,
    amplitude: float = 1.25,
    lengthscale: float = 0.05,
    random_seed: int | np.random.Generator | None = None,
) -> Toy:
    """Draw inputs and labels, -1 and +1, from the joint model of a support vector machine (Sollich 2002, 2 and 7).

    A function f is drawn from the Gaussian process on [0, 1], whose Gaussian kernel has variance ``amplitude``, and
    accepted with the probability that n labels contain no "don't know". This probability is N(f)ⁿ, (8), where N(f) is
    the mean of ν(f(x)); C is the inverse noise scale. The inputs, points of a grid, then have the density ν(f(x))/N(f),
    (12), and the labels the probability P(y|f(x)), (10).
    """
    check_count("n", n, 1)
    for name, value in (("C", C), ("amplitude", amplitude), ("lengthscale", lengthscale)):
        if not (is_number(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    rng = generator(random_seed)
    grid = (np.arange(_GRID) + 0.5) / _GRID
    spectrum, vectors = np.linalg.eigh(amplitude * np.exp(-0.5 * ((grid[:, None] - grid) / lengthscale) ** 2))
    kept = spectrum > 1e-10 * spectrum[-1]
    factor = vectors[:, kept] * np.sqrt(spectrum[kept])
    while True:
        f = rng.standard_normal((_TRIALS, factor.shape[1])) @ factor.T
        above, below = (np.exp(-C * np.maximum(1 - label * f, 0)) / (1 + np.exp(-2 * C)) for label in (1, -1))
        survives = np.flatnonzero(rng.random(_TRIALS) < (above + below).mean(axis=1) ** n)
        if survives.size:
            k = survives[0]
            break
    known = above[k] + below[k]
    place = np.sort(rng.choice(_GRID, size=n, p=known / known.sum()))
    y = np.where(rng.random(n) < above[k, place] / known[place], 1.0, -1.0)
    return Toy(Dataset(grid[place, None], y, ("x",), "label"), grid, f[k])


def data_folder() -> Path:
    """Return the folder with the data sets of the papers: the environment variable BSVR_PP_DATA, or ../shared/data."""
    return Path(os.environ.get("BSVR_PP_DATA", "../shared/data"))


def load(name: str) -> Dataset:
    """Load one of the data sets of the papers, such as "boston_housing", from ``name``.csv in `data_folder`.

    Columns of text (the sex of an abalone) become indicators; constant columns (of pyrim and triazines) are omitted.
    """
    path = data_folder() / f"{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no data set {name!r} at {path}: set BSVR_PP_DATA to the folder of the papers' data")
    table = pd.read_csv(path)
    target = str(table.columns[-1])
    numbers = pd.get_dummies(table, dtype=float)
    if numbers.isna().any(axis=None):
        raise DataError(f"{path}: has missing values")
    kept = numbers.loc[:, (numbers.nunique() > 1) | (numbers.columns == target)]
    inputs = tuple(str(column) for column in kept.columns if column != target)
    return checked(Dataset(kept[list(inputs)].to_numpy(), kept[target].to_numpy(), inputs, target), str(path))


def read_csv(path: str | Path, target: str | None = None) -> Dataset:
    """Read a CSV file of finite numbers with one header row; the target is by default the last column.

    Separators, decimal commas, row labels and archives are recognised; the ``notes`` of the data set say which.
    """
    return read_data(path, target, numeric=True).encode()[0]


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
    for record in json.loads(REFERENCE_FILE.read_text()):
        arrays: dict[str, Any] = {key: np.asarray(record.pop(key)) for key in ("X", "y", "mean", "variance")}
        noise, ends = NoiseModel(LOSSES[record.pop("loss")], record.pop("parameters")), record.pop("ends", None)
        if ends is not None:  # JSON has no infinite numbers
            lower, upper = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
            noise = noise.between(np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf))
        out.append(ReferencePosterior(noise=noise, **arrays, **record))
    return out

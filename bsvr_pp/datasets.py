"""Data to try methods on: simulated and real data of the papers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from bsvr_pp.core.arrays import check_count, check_share, generator, is_number
from bsvr_pp.tables import DataError
from bsvr_pp.tables.readers import Dataset, checked

__all__ = ["data_folder", "load", "sinc"]


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
    check_share("outliers", outliers, closed=True)
    rng = generator(random_seed)
    x = np.sort(rng.uniform(-10, 10, n))
    y = np.sinc(x / np.pi) + noise * rng.standard_normal(n)
    off = rng.random(n) < outliers
    y[off] += rng.choice([-1, 1], off.sum()) * rng.uniform(1, 3, off.sum())
    return Dataset(x[:, None], y, ("x",), "y")


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
    if table.isna().any(axis=None):
        raise DataError(f"{path}: has missing values")
    if not pd.api.types.is_numeric_dtype(table[target]):
        raise DataError(f"{path}: the last column, {target}, must be a target of numbers")
    numbers = pd.get_dummies(table, dtype=float).astype(float)
    kept = numbers.loc[:, (numbers.nunique() > 1) | (numbers.columns == target)]
    inputs = tuple(str(column) for column in kept.columns if column != target)
    return checked(Dataset(kept[list(inputs)].to_numpy(), kept[target].to_numpy(), inputs, target), str(path))

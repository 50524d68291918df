"""Data sets: the simulated and the real data of the papers, and CSV files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp._checks import check_count, check_share, check_size, check_spread, generator, is_number
from bsvr_pp.csv_files import DataError, read_table

__all__ = [
    "DataError",
    "Dataset",
    "Toy",
    "check_columns",
    "checked",
    "data_folder",
    "identifiers",
    "load",
    "read_csv",
    "read_inputs",
    "sinc",
    "split_rows",
    "svm_toy",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_FEWEST_ROWS = 10
_GRID = 400  # grid points for the inputs of svm_toy
_TRIALS = 2000  # functions drawn at a time


@dataclass(frozen=True, slots=True)
class Dataset:
    """Inputs X (n, d) and targets y (n,), with their names.

    ``notes`` state what `read_csv` recognised or left out, and which column may identify the rows.
    """

    X: Array
    y: Array
    inputs: tuple[str, ...]
    target: str
    notes: tuple[str, ...] = ()

    def split(
        self, test_fraction: float, random_seed: int | np.random.Generator | None = None
    ) -> tuple[Dataset, Dataset]:
        """Split the rows at random into a training and a test set.

        Parameters
        ----------
        test_fraction : float
            Share of the rows in the test set, between 0 and 1; each set has at least one row.
        random_seed : int or Generator, optional
            Random seed; the same seed gives the same split.

        Raises
        ------
        ValueError
            If test_fraction is not between 0 and 1.
        """
        train, test = split_rows(len(self.y), test_fraction, random_seed)
        return self._rows(train), self._rows(test)

    def _rows(self, rows: Rows) -> Dataset:
        return Dataset(self.X[rows], self.y[rows], self.inputs, self.target, self.notes)


def split_rows(n: int, test_fraction: float, random_seed: int | np.random.Generator | None) -> tuple[Rows, Rows]:
    """Draw the rows of a training and a test set, as `Dataset.split` does.

    Raises
    ------
    ValueError
        If test_fraction is not between 0 and 1.
    """
    check_share("test_fraction", test_fraction)
    order = generator(random_seed).permutation(n)
    n_test = min(max(round(test_fraction * n), 1), n - 1)
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def sinc(
    n: int = 100,
    *,
    noise: float = 0.2,
    outliers: float = 0.0,
    random_seed: int | np.random.Generator | None = None,
) -> Dataset:
    """Draw the sinc data of Chu, Keerthi & Ong 2004, section VII-A: y = sin(x)/x + noise on [-10, 10].

    Parameters
    ----------
    n : int
        Number of points, at least 1.
    noise : float
        Standard deviation of the Gaussian noise.
    outliers : float
        Share of the targets that are outliers: a number between 1 and 3 is added or subtracted.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same data.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from bsvr_pp.datasets import sinc
    >>> sinc(5, random_seed=1).X.shape
    (5, 1)
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
    """Draw inputs and labels from the joint model of a support vector machine (Sollich 2002, sections 2 and 7).

    A function f is drawn from the Gaussian process on [0, 1] and accepted with the probability that n labels contain no
    "don't know". This probability is N(f)ⁿ, (8), where N(f) is the mean of ν(f(x)). The inputs then have the density
    ν(f(x))/N(f), (12), and the labels the probability P(y|f(x)), (10).

    Parameters
    ----------
    n : int
        Number of points, at least 1.
    C, amplitude, lengthscale : float
        Inverse noise scale, and variance and lengthscale of the Gaussian kernel of f.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same data.

    Returns
    -------
    Toy
        The inputs are points of a grid; the labels are -1 and +1.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from bsvr_pp.datasets import svm_toy
    >>> toy = svm_toy(20, random_seed=1)
    >>> toy.data.X.shape, sorted(set(toy.data.y.tolist()))
    ((20, 1), [-1.0, 1.0])
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
    """Load one of the data sets of the papers, such as "boston_housing".

    Parameters
    ----------
    name : str
        Name of the CSV file without its extension. Columns of text (the sex of an abalone) become indicator columns;
        constant columns (of pyrim and triazines) are omitted.

    Raises
    ------
    FileNotFoundError
        If the file is not in `data_folder`.
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
    """Read a CSV file with one header row and only numeric columns.

    Separators, decimal commas, row labels and archives are recognised (`bsvr_pp.csv_files.read_table`); the ``notes``
    of the data set say which.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str, optional
        Name of the column to predict; by default the last one.

    Raises
    ------
    DataError
        If the file cannot be read, has duplicate or missing columns, anything but finite numbers, constant columns,
        or fewer than ten rows.
    """
    table = read_table(path)
    names = list(table.columns)
    chosen = target if target is not None else names[-1]
    check_columns(table.path, table.columns, [chosen])
    inputs = tuple(name for name in names if name != chosen)
    numbers, notes = table.numbers([*inputs, chosen])
    data = Dataset(numbers[:, :-1], numbers[:, -1], inputs, chosen, table.notes + notes)
    return replace(
        checked(data, str(path)),
        notes=data.notes + identifiers(dict(zip(data.inputs, data.X.T, strict=True)), str(path)),
    )


def read_inputs(path: str | Path, columns: Sequence[str]) -> Array:
    """Read the inputs of a model from a CSV file, by the names of their columns.

    Parameters
    ----------
    path : str or Path
        The file, in one of the forms that `read_csv` reads; other columns than the inputs are ignored.
    columns : sequence of str
        Names of the inputs, in the order of the model.

    Returns
    -------
    (n, d) array

    Raises
    ------
    DataError
        If the file cannot be read, lacks a column, has no rows or anything but finite numbers in the inputs.
    """
    table = read_table(path)
    check_columns(table.path, table.columns, columns)
    if not table.lines:
        raise DataError(f"{path}: has no rows")
    return table.numbers(columns)[0]


def check_columns(path: str, columns: Iterable[str], names: Iterable[str]) -> None:
    """Check that a file has some columns.

    Raises
    ------
    DataError
        If it lacks one.
    """
    for name in names:
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r}; it has: {', '.join(columns)}")


def check_rows(path: str, n: int) -> None:
    """Check that a file has enough rows for a model.

    Raises
    ------
    DataError
        If it has fewer than ten.
    """
    if n < _FEWEST_ROWS:
        raise DataError(f"{path}: has {n} rows, at least {_FEWEST_ROWS} are needed")


def check_column(path: str, name: str, values: Array) -> None:
    """Check that a model can be fitted to a column, of which the smallest and the largest value suffice.

    Raises
    ------
    DataError
        If it is constant, too large or lost in rounding.
    """
    if np.ptp(values) == 0:
        raise DataError(f"{path}: column {name!r} is constant ({values[0]:g})")
    try:
        check_size(f"{path}: column {name!r}", values)
        check_spread(f"{path}: column {name!r}", values)
    except ValueError as error:
        raise DataError(str(error)) from None


def checked(data: Dataset, path: str) -> Dataset:
    """Check that a model can be fitted to data, and return them.

    Raises
    ------
    DataError
        If there are fewer than ten rows or no inputs, or a column is constant, too large or lost in rounding.
    """
    check_rows(path, len(data.y))
    for name, column in zip((*data.inputs, data.target), (*data.X.T, data.y), strict=True):
        check_column(path, name, column)
    if not data.inputs:
        raise DataError(f"{path}: has no column except the target {data.target!r}")
    return data


def identifiers(columns: Mapping[str, Array], path: str) -> tuple[str, ...]:
    """A hint for each column that may number the rows."""
    return tuple(
        f"{path}: column {name!r} has another whole number in each row: leave it out if it identifies the rows"
        for name, column in columns.items()
        if (column == np.round(column)).all() and np.unique(column).size == column.size
    )

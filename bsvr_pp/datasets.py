"""Data: the simulated sets of the papers, their real ones where they are at hand, and any CSV."""

from __future__ import annotations

import csv
import lzma
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsvr_pp.checks import check_count, check_share, generator, is_number

__all__ = ["DataError", "Dataset", "Toy", "data_folder", "load", "read_csv", "read_inputs", "sinc", "svm_toy"]

Array = NDArray[np.float64]

_FEWEST_ROWS = 10
_GRID = 400  # places of svm_toy's inputs
_TRIALS = 2000  # functions it draws at a time


class DataError(ValueError):
    """A file that cannot serve as data; the message says in one line what is wrong and where."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Inputs X (n, d) with their names, and targets y (n,) with theirs."""

    X: Array
    y: Array
    inputs: tuple[str, ...]
    target: str

    def split(
        self, test_fraction: float, random_seed: int | np.random.Generator | None = None
    ) -> tuple[Dataset, Dataset]:
        """Split the rows at random into a training and a test set.

        Parameters
        ----------
        test_fraction : float
            Share of the rows to test on, between 0 and 1; at least one row each way.
        random_seed : int or Generator, optional
            Same seed, same split.

        Raises
        ------
        ValueError
            If test_fraction is not between 0 and 1.
        """
        check_share("test_fraction", test_fraction)
        order = generator(random_seed).permutation(len(self.y))
        n_test = min(max(round(test_fraction * len(self.y)), 1), len(self.y) - 1)
        test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
        return self._rows(train), self._rows(test)

    def _rows(self, rows: NDArray[np.intp]) -> Dataset:
        return Dataset(self.X[rows], self.y[rows], self.inputs, self.target)


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
        Share of the targets that are thrown off by ±1 to ±3.
    random_seed : int or Generator, optional
        Same seed, same data.

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
    """Labels drawn from a known function: the data, and that function on a grid of inputs."""

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

    A function f is drawn from the Gaussian process on [0, 1] until it survives n labels without a "don't know", which
    it does with the probability N(f)ⁿ, (8), N(f) the mean of ν(f(x)); inputs then have the density ν(f(x))/N(f),
    (12), and labels the probability P(y|f(x)), (10).

    Parameters
    ----------
    n : int
        Number of points, at least 1.
    C, amplitude, lengthscale : float
        Inverse noise scale, and variance and length scale of the function's Gaussian kernel.
    random_seed : int or Generator, optional
        Same seed, same data.

    Returns
    -------
    Toy
        Inputs are points of its grid, labels -1 and +1.

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
    """Folder of the papers' data sets: the environment variable BSVR_PP_DATA, by default ../shared/data."""
    return Path(os.environ.get("BSVR_PP_DATA", "../shared/data"))


def load(name: str) -> Dataset:
    """Load one of the papers' data sets, such as "boston_housing".

    Parameters
    ----------
    name : str
        Name of the CSV file, without its ending. Columns of words (the sex of an abalone) become indicators;
        constant columns (of pyrim and triazines), which say nothing, are left out.

    Raises
    ------
    FileNotFoundError
        If it is not in `data_folder`.
    """
    path = data_folder() / f"{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no data set {name!r} at {path}: set BSVR_PP_DATA to the folder of the papers' data")
    table = pd.get_dummies(pd.read_csv(path), dtype=float)
    target = pd.read_csv(path, nrows=0).columns[-1]
    return _dataset(table.loc[:, (table.nunique() > 1) | (table.columns == target)], str(target), str(path))


def read_csv(path: str | Path, target: str | None = None) -> Dataset:
    """Read a CSV file with one header row, all columns numbers.

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
    table = _table(path)
    names = list(table.columns)
    if target is not None and target not in names:
        raise DataError(f"{path}: has no column {target!r}; it has: {', '.join(names)}")
    return _dataset(table, target if target is not None else names[-1], str(path))


def read_inputs(path: str | Path, columns: Sequence[str]) -> Array:
    """Read the inputs of a model from a CSV file, by the names of their columns.

    Parameters
    ----------
    path : str or Path
        The file; columns beside the inputs are left alone.
    columns : sequence of str
        Names of the inputs, in the model's order.

    Returns
    -------
    (n, d) array

    Raises
    ------
    DataError
        If the file cannot be read, lacks a column, has no rows or anything but finite numbers in the inputs.
    """
    table = _table(path)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]!r}; it has: {', '.join(table.columns)}")
    if not len(table):
        raise DataError(f"{path}: has no rows")
    inputs = table[list(columns)]
    _check_numbers(inputs, str(path))
    return inputs.to_numpy(dtype=np.float64)


def _table(path: str | Path) -> pd.DataFrame:
    """The table of a CSV file whose columns have different names."""
    if "://" in str(path):
        raise DataError(f"{path}: is a web address, give a file")
    try:
        names = [str(c).strip() for c in pd.read_csv(path, nrows=1, header=None, dtype=str).iloc[0]]
        table = pd.read_csv(path, skipinitialspace=True)
        width = pd.read_csv(path, header=None, skiprows=1, nrows=1, dtype=str).shape[1] if len(table) else 0
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: is empty") from None
    except OSError as error:  # a folder, no permission, a broken archive
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, zipfile.BadZipFile, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be unpacked ({error})") from None
    except (pd.errors.ParserError, ValueError, IndexError) as error:
        raise DataError(f"{path}: is not a CSV file ({str(error).splitlines()[0]})") from None
    if width > len(names):
        # pandas takes the cells in front for row labels and shifts the others
        raise DataError(f"{path}: the rows have more cells than the header, which has {len(names)}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column name {repeated[0]!r} stands more than once")
    table.columns = pd.Index(names[: table.shape[1]])
    return table


def _check_numbers(table: pd.DataFrame, path: str) -> None:
    for name in table.columns:
        column = table[name]
        missing = column.isna()
        numbers = pd.to_numeric(column, errors="coerce")
        words = numbers.isna() & ~missing
        if words.any():
            row = int(np.flatnonzero(words)[0])
            raise DataError(f"{path}: column {name!r} is not numeric, row {_line(path, row)} has {column.iloc[row]!r}")
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            raise DataError(f"{path}: column {name!r} has a missing value in row {_line(path, row)}")
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise DataError(f"{path}: column {name!r} is not finite in row {_line(path, row)}")


def _line(path: str, row: int) -> int:
    """Line of the file on which a row of its table ends; pandas leaves blank lines out, an editor does not."""
    lines = pd.read_csv(
        path, header=None, names=["line"], sep="\x1f", quoting=csv.QUOTE_NONE, skip_blank_lines=False, dtype=str
    )
    reader = csv.reader(lines["line"].fillna(""))
    ends = [reader.line_num for cells in reader if any(cell.strip() for cell in cells) or len(cells) > 1]
    return ends[row + 1]


def _dataset(table: pd.DataFrame, target: str, path: str) -> Dataset:
    _check_numbers(table, path)
    if len(table) < _FEWEST_ROWS:
        raise DataError(f"{path}: has {len(table)} rows, at least {_FEWEST_ROWS} are needed")
    for name in table.columns:
        if table[name].nunique() == 1:
            raise DataError(f"{path}: column {name!r} is constant ({table[name].iloc[0]})")
    inputs = tuple(str(c) for c in table.columns if c != target)
    if not inputs:
        raise DataError(f"{path}: has no column beside the target {target!r}")
    return Dataset(
        table[list(inputs)].to_numpy(dtype=np.float64), table[target].to_numpy(dtype=np.float64), inputs, target
    )

"""Sparse inputs, such as counts of words: kernels of inner products see each row by its products with training rows.

No dense copy of the inputs is made. They are divided by one number and are not centred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from bsvr_pp.core.arrays import Array, check_fields, check_positive, numbers, warn

_TOGETHER = 256  # rows whose products are made at once
_SMALLEST, _ROUNDING = 1e-150, 1e-10  # of numbers and of variance: below, squares and distances lose digits
_MOST = 0.9  # share of the variance that one column or row may have without a warning


@dataclass(frozen=True, slots=True)
class SparseInputs:
    """The u distinct training rows in units of ``scale``, the root of their mean squared distance from the mean."""

    rows: csr_array  # (u, d)
    scale: float

    kernels: ClassVar = ("auto", "linear", "rbf", "rational_quadratic")  # of inner products and squared norms
    remedy: ClassVar[str] = "use blocks=None, or reduce X by sklearn.decomposition.TruncatedSVD"
    _AXES: ClassVar[dict[str, str]] = {"data": "number", "indices": "number", "indptr": "end"}

    @classmethod
    def of(cls, X: csr_array, weight: Array) -> tuple[Self, Array]:
        """Return the training rows without weight 0, and each row by its products."""
        X, used = sorted_rows(X), np.flatnonzero(weight > 0)
        # Rows are sorted by content, so repeated rows and whole weights give the same result.
        cells = zip(X.indptr[used], X.indptr[used + 1], strict=True)
        content = [X.indices[a:b].astype(np.int64).tobytes() + b"|" + X.data[a:b].tobytes() for a, b in cells]
        known = {row: i for i, row in enumerate(sorted(set(content)))}
        place = np.array([known[row] for row in content])
        first = used[np.unique(place, return_index=True)[1]]
        scale = _unit(X[first], np.bincount(place, weight[used]), first)
        found = cls(csr_array(X[first] / scale), scale)
        rows = np.zeros((X.shape[0], len(known) + 2))
        rows[used] = found.by_products(found.rows, np.arange(len(known)))[place]
        return found, rows

    def new_rows(self, X: csr_array) -> Array:
        """Return new inputs by their products with training rows."""
        return self.by_products(csr_array(sorted_rows(X) / self.scale), np.zeros(X.shape[0]))

    def by_products(self, X: csr_array, place: ArrayLike) -> Array:
        """Return scaled inputs as rows of a `ProductKernel`."""
        parts = [X[at : at + _TOGETHER] @ self.rows.T for at in range(0, X.shape[0], _TOGETHER)]
        products = np.vstack([part.toarray() for part in parts])
        return np.column_stack([products, _square_norms(X), place])

    def dataset(self) -> xr.Dataset:
        """Return the arrays as a group of a result; files have no empty ones, but a zero."""
        rows = self.rows if self.rows.nnz else csr_array(([0.0], ([0], [0])), shape=self.rows.shape)
        arrays = {name: (axis, getattr(rows, name)) for name, axis in self._AXES.items()}
        return xr.Dataset(arrays, attrs={"scale": self.scale, "d": self.rows.shape[1]})

    @classmethod
    def of_dataset(cls, held: xr.Dataset) -> Self:
        """Read the group of a result, and check it."""
        given = check_fields("sparse inputs of result", {str(name): x for name, x in held.items()}, cls._AXES)
        data, indices, indptr = (numbers(f"{name} of result", x.values, ("n",)) for name, x in given.items())
        known = check_fields("sparse inputs of result", dict(held.attrs), ("scale", "d"))
        scale = numbers("scale of result", known["scale"], ())
        check_positive("scale of result", scale)
        shape = indptr.size - 1, int(known["d"])
        rows = csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)
        rows.check_format()
        return cls(rows, float(scale))


def sorted_rows(X: csr_array) -> csr_array:
    """Return a copy whose columns are in order, each once and without zeros."""
    found = csr_array(X, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    return found


def _unit(X: csr_array, weight: Array, place: NDArray[np.intp]) -> float:
    """Return the root mean squared distance of rows from their mean; warn if one column or row dominates it."""
    of_each = weight / weight.sum()
    mean, largest = of_each @ X, float(np.abs(X.data).max(initial=0.0))
    if not largest:
        return 1.0
    if largest < _SMALLEST:
        raise ValueError(f"X must have numbers of at least {_SMALLEST:g}, got {largest:g}: use other units")
    norms = _square_norms(X)
    square = of_each @ norms
    of_columns = np.maximum(of_each @ X.multiply(X) - mean**2, 0.0)
    of_rows = of_each * np.maximum(norms - 2.0 * (X @ mean) + mean @ mean, 0.0)
    total = float(of_columns.sum())
    if total < _ROUNDING * square:
        raise ValueError(
            f"X must vary by at least {_ROUNDING:g} of its squared size, got {total / square:.1g}: the differences are "
            "lost in rounding, leave constant columns out"
        )
    columns = "column", np.arange(X.shape[1]), of_columns, "MaxAbsScaler"
    for words, numbers_of, each, remedy in (columns, ("row", place, of_rows, "Normalizer")):
        if each.size > 2 and each.max() > _MOST * total:
            share = 100.0 * each.max() / total
            warn(
                f"{words} {numbers_of[np.argmax(each)]} has {share:.0f} % of the variance of sparse X, which has one "
                f"unit and one lengthscale: the others hardly count, use sklearn.preprocessing.{remedy}"
            )
    return total**0.5


def _square_norms(X: csr_array) -> Array:
    return np.asarray(X.multiply(X).sum(axis=1)).ravel()

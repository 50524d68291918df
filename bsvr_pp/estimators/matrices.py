"""Inputs of estimators by values of kernels: matrices, objects with a kernel function between them, or sparse rows.

Kernels of inner products see a sparse row, such as counts of words, by its products with training rows. No dense copy
of such inputs is made. They are divided by one number and are not centred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from bsvr_pp.core.arrays import Array, check_fields, check_positive, numbers, warn
from bsvr_pp.model.matrices import MatrixKernel, checked_matrix
from bsvr_pp.tables.columns import table_of

_ALIKE = 1e-6  # of the largest value: smaller differences of a diagonal are rounding errors, also in 32 bits
_FAR = 30.0  # spread of the means of rows, in units of the variance: with 58, R² was .978 instead of .994
_TINY = 1e-12  # smallest value of a diagonal used as a divisor, relative to the largest
_TOGETHER = 256  # rows whose products are made at once
_SMALLEST, _ROUNDING = 1e-150, 1e-10  # of numbers and of variance: below, squares and distances lose digits
_MOST = 0.9  # share of the variance that one column or row may have without a warning


@dataclass(frozen=True, slots=True)
class PairwiseKernel:
    """A kernel between objects of any kind, such as strings or graphs: X is then a list of them.

    Parameters
    ----------
    function : callable
        Function of two lists of n and m objects. It returns the matrix (n, m) of a positive semidefinite kernel, or an
        array (n, m, q) of q kernels.

    Raises
    ------
    TypeError
        If it is not a function.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> words = ["a", "aa", "aab", "ab", "abb", "b"]
    >>> kernel = bp.PairwiseKernel(lambda A, B: [[1.0 + a.count("a") * b.count("a") for b in B] for a in A])
    >>> svr = bp.BayesianSVR(kernel=kernel, restarts=1).fit(words, [1.0, 2.1, 2.0, 0.9, 1.1, 0.0])
    >>> bool(svr.predict(["aaa"])[0] > 2.5)
    True
    """

    function: Callable[[Sequence[object], Sequence[object]], ArrayLike]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be a function of two lists of objects, got {self.function!r}")

    def between(self, A: Sequence[object], B: Sequence[object]) -> Array:
        """Return the values (n, m) or (n, m, q)."""
        if table_of(A) is not None:  # the list of a table would be its columns
            raise ValueError("X must be a list of objects with PairwiseKernel, got a table: use X.to_numpy()")
        if isinstance(A, str | bytes):
            raise ValueError(f"X must be a list of objects with PairwiseKernel, got one text: use [{A!r}]")
        A, B = list(A), list(B)
        found = numbers("what the function of PairwiseKernel gives", self.function(A, B))
        if found.shape[:2] != (len(A), len(B)):
            raise ValueError(
                f"the function of PairwiseKernel must give a ({len(A)}, {len(B)}) array, or have a third axis of q "
                f"kernels, got shape {found.shape}"
            )
        return found

    def own(self, A: Sequence[object]) -> Array:
        """Return the values (n,) or (n, q) of each object with itself."""
        return np.stack([self.between([each], [each])[0, 0] for each in A])


MatrixOption = Literal["precomputed"] | PairwiseKernel  # kernels of an estimator that do not use inputs


def is_matrix(kernel: object) -> bool:
    """Return whether an estimator with this kernel takes the matrix of a kernel, or objects, instead of inputs."""
    return isinstance(kernel, PairwiseKernel) or (isinstance(kernel, str) and kernel == "precomputed")


def values_of(kernel: object, X: ArrayLike | Sequence[object], others: Sequence[object]) -> ArrayLike:
    """Return the values of a kernel between X and others; a matrix X already has them, with names of its columns."""
    if isinstance(kernel, PairwiseKernel):
        return kernel.between(cast(Sequence[object], X), others)
    table = table_of(X)
    return cast(ArrayLike, X if table is None else table)


def training_rows(K: Array) -> Array:
    """Return rows of a matrix (n, n), or of q of them, (n, n, q), for a `MatrixKernel`; equal ones are one."""
    _, first, which = np.unique(K.reshape(len(K), -1), axis=0, return_index=True, return_inverse=True)
    at, stack = first[which.ravel()], K.reshape(*K.shape[:2], -1)
    stack = np.stack([checked_matrix("X", stack[:, :, j]) for j in range(stack.shape[2])], axis=2)
    stack = stack[at][:, at]  # equal also after rounding errors
    diagonal, means = np.diagonal(stack).T, stack.mean(axis=1)
    if (means.std(axis=0) > _FAR * (diagonal.mean(axis=0) - means.mean(axis=0))).any():
        warn(
            "X is a kernel of features far from 0, by which f hardly varies around a constant: centre it by "
            "sklearn.preprocessing.KernelCenterer"
        )
    return _rows(stack, np.where(_common(diagonal), diagonal[0], diagonal), at)


def new_rows(K: Array, known: Array, kernel: MatrixKernel, diagonal: ArrayLike | None, moments: bool) -> Array:
    """Return new rows (n_new, n) or (n_new, n, q), checked against ``known``, with their ``diagonal`` k(x, x).

    It is (n_new,) or (n_new, q), by default the common value of the training rows. Without ``moments`` no variance is
    needed.
    """
    own, stack = kernel.values(known)[:, kernel.n], K.reshape(*K.shape[:2], -1)
    shape = len(K), own.shape[1]
    if stack.shape[2] != shape[1]:
        raise ValueError(f"X must have the values of {shape[1]} kernels, as in fit, got {stack.shape[2]}")
    # By Cauchy-Schwarz a kernel has no smaller values.
    largest = own.max(axis=0)
    least = (stack[:, known[:, -1].astype(np.intp)] ** 2 / np.maximum(own, _TINY * largest)).max(axis=1)
    if diagonal is not None:
        given = numbers("diagonal", diagonal)
        given = numbers("diagonal", given[:, None] if given.ndim == 1 else given, shape)
    elif _common(own).all():
        given = np.broadcast_to(own[0], shape)
    elif moments:
        raise ValueError(
            f"diagonal must have the value k(x, x) of each new row, as those of fit are from {own.min():g} to "
            f"{own.max():g}: give it to predict or another method that takes it, or divide each k(x, z) by the root "
            "of k(x, x)·k(z, z)"
        )
    else:
        given = np.maximum(least, largest)
    for i, j in np.argwhere(given < least - _ALIKE * np.maximum(least, largest))[:1]:
        raise ValueError(
            f"diagonal must be at least k(x, z)²/k(z, z) for all training rows z, {least[i, j]:g} in row {i} of X, got "
            f"{given[i, j]:g}: the kernel of new rows must be that of fit"
        )
    return _rows(stack, given, np.zeros(len(K)))


def _common(diagonal: Array) -> NDArray[np.bool_]:
    """Return whether the diagonal of each kernel (m, q) is one number but for rounding, (q,)."""
    return np.asarray(np.ptp(diagonal, axis=0) <= _ALIKE * np.abs(diagonal).max(axis=0))


def _rows(stack: Array, diagonal: Array, places: ArrayLike) -> Array:
    return np.column_stack([np.concatenate([stack, diagonal[:, None]], axis=1).reshape(len(stack), -1), places])


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

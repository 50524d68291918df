"""Kernels given as matrices, for rows without inputs, such as strings and graphs.

In a PyMC model an input is the number of a row of the matrix (`Precomputed`). The rows of estimators contain the values
of the kernels, so new rows need no other matrix (`MatrixKernel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.gp.cov import Covariance
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import TensorLike

from bsvr_pp.core.arrays import Array, Tensor, check_size, numbers

_ROUNDING, _ROUNDING_32 = 1e-8, 1e-6  # of the largest value: smaller ones are rounding errors (second: 32-bit numbers)
_NUMBERS = "inputs of Precomputed must be numbers of rows, 0, 1, ..."
_CONSTANT = 0.1  # share of the mean diagonal below which the rest, a constant, is no part of the unit
UNITS = "matrix_units"  # name of the units in the data of a model


def checked_matrix(name: str, given: ArrayLike) -> Array:
    """Check the matrix (n, n) of a kernel, and set negative eigenvalues of rounding to 0."""
    K = numbers(name, given, ("n", "n"))
    check_size(name, K)
    with np.errstate(over="ignore"):
        rounding = _ROUNDING_32 if np.array_equal(K, K.astype(np.float32)) else _ROUNDING
    i, j = np.unravel_index(np.argmax(np.abs(K - K.T)), K.shape)
    if abs(K[i, j] - K[j, i]) > rounding * np.abs(K).max():
        raise ValueError(
            f"{name} must be symmetric, got {K[i, j]:g} in row {i}, column {j}, and {K[j, i]:g} in row {j}, column {i}"
        )
    K = 0.5 * (K + K.T)
    values, vectors = np.linalg.eigh(K)
    least, largest = values[0], values[-1]
    if least < -rounding * max(largest, 0.0):
        raise ValueError(
            f"{name} must have no negative eigenvalue, got {least:g} beside the largest, {largest:g}: it is no matrix "
            f"of a kernel; with {-least:g} added to its diagonal it is one"
        )
    if largest <= 0.0:
        raise ValueError(f"{name} must have a positive diagonal, got only zeros")
    return K if least >= 0.0 else (vectors * np.maximum(values, 0.0)) @ vectors.T


class Precomputed(Covariance):
    """The kernel of a matrix; its inputs are row numbers.

    Predictions at new rows need a matrix with these rows: it may have more rows than the model.

    Parameters
    ----------
    K : (n, n) array or pm.Data
        The symmetric and positive semidefinite matrix; `pm.Data` are not checked.

    Raises
    ------
    ValueError
        If K is not the matrix of a kernel.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> kernel = bp.cov.Precomputed([[2.0, 1.0], [1.0, 3.0]])
    >>> kernel(np.array([[1], [0]])).eval()
    array([[3., 1.],
           [1., 2.]])
    """

    def __init__(self, K: TensorLike) -> None:
        super().__init__(1)
        self.K = pt.as_tensor_variable(K if isinstance(K, Variable) else checked_matrix("K", cast(ArrayLike, K)))

    def full(self, X: TensorLike, Xs: TensorLike | None = None) -> Tensor:
        """Return the matrix of the kernel, (n, m)."""
        rows = _row_numbers(X)
        columns = rows if Xs is None else _row_numbers(Xs)
        return self._with(rows, columns)[rows][:, columns]

    def diag(self, X: TensorLike) -> Tensor:
        """Return the diagonal, (n,)."""
        rows = _row_numbers(X)
        return pt.diagonal(self._with(rows))[rows]

    def _with(self, *rows: Tensor) -> Tensor:
        known = pt.all([pt.all(pt.lt(each, self.K.shape[0])) for each in rows])
        return cast(Tensor, CheckAndRaise(ValueError, _NUMBERS + ", of K")(self.K, known))


def _row_numbers(X: TensorLike) -> Tensor:
    given = pt.as_tensor_variable(X)[:, 0]
    rows = given.astype("int64")
    return cast(Tensor, CheckAndRaise(ValueError, _NUMBERS)(rows, pt.all(pt.eq(rows, given) & pt.ge(rows, 0))))


class _OfRows(Covariance):
    """The sum of q kernels with their ``variance`` (q,), on rows of a `MatrixKernel`."""

    def __init__(self, width: int, n: int, variance: Tensor) -> None:
        super().__init__(width)
        self.n, self.variance = n, variance

    def full(self, X: Tensor, Xs: Tensor | None = None) -> Tensor:
        places = (X if Xs is None else Xs)[:, -1].astype("int64")
        return cast(Tensor, pt.dot(self._values(X)[:, places], self.variance))

    def diag(self, X: Tensor) -> Tensor:
        return cast(Tensor, pt.dot(self._values(X)[:, self.n], self.variance))

    def _values(self, X: TensorLike) -> Tensor:
        return pt.as_tensor_variable(X)[:, :-1].reshape((-1, self.n + 1, self.variance.type.shape[0]))


@dataclass(frozen=True, slots=True)
class OfTrainingRows:
    """A kernel of rows that have q values with each of n training rows, and with themselves.

    A row has (n + 1)·q numbers and, last, its place among the n rows.
    """

    n: int

    def values(self, X: Array) -> Array:
        """Return the values (m, n + 1, q)."""
        return X[:, :-1].reshape(len(X), self.n + 1, -1)

    def factors(self, X: Array) -> Array:
        """Return factors (q,) of the matrices in the kernel for distances, by expected differences of f."""
        return np.ones(1)

    def coordinates(self, X: Array) -> Array:
        """Return coordinates (m, m) of training rows, by the kernel with these factors."""
        K = self.values(X)[:, X[:, -1].astype(np.intp)] @ self.factors(X)
        values, vectors = np.linalg.eigh(K)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@dataclass(frozen=True, slots=True)
class MatrixKernel(OfTrainingRows):
    """A sum of q kernel matrices, each with a learned amplitude; ``scale`` is the scale of its prior."""

    scale: float = 1.0

    def __call__(self, X: Array) -> Covariance:
        """Make the kernel, with priors in the surrounding model; each matrix is divided by its `unit` in X."""
        unit = self.unit(X)
        sigma = self.scale / np.sqrt(unit.size)
        amplitude = pm.HalfStudentT("amplitude", nu=3.0, sigma=sigma, shape=unit.size)
        return _OfRows(X.shape[1], self.n, amplitude**2 / pt.specify_shape(pm.Data(UNITS, unit), unit.shape))

    def unit(self, X: Array) -> Array:
        """Return the mean diagonals (q,), or without the mean of all values if that is most of it."""
        values, place = self.values(X), X[:, -1].astype(np.intp)
        whole = values[:, self.n].mean(axis=0)
        varied = whole - values[:, place].mean(axis=(0, 1))  # as of inputs that are centred
        return np.where((varied > _ROUNDING * whole) & (varied < _CONSTANT * whole), varied, whole)

    def factors(self, X: Array) -> Array:
        """Return factors for equal amplitudes."""
        return 1.0 / self.unit(X)


@dataclass(frozen=True, slots=True)
class ProductKernel(OfTrainingRows):
    """A kernel of inner products, its values: "linear", "rbf" or "rational_quadratic", with one lengthscale.

    The mean squared distance of the inputs from their mean is one.
    """

    name: str = "rbf"


class OfProducts(Covariance):
    """A `ProductKernel` with its hyperparameters; a kernel without ``inverse_alpha`` is Gaussian."""

    def __init__(self, kernel: ProductKernel, ls: Tensor, variance: Tensor, inverse_alpha: Tensor | None) -> None:
        super().__init__(kernel.n + 2)
        self.kernel, self.rate, self.variance, self.inverse_alpha = kernel, ls**-2, variance, inverse_alpha

    def full(self, X: Tensor, Xs: Tensor | None = None) -> Tensor:
        """Return the matrix (m, k) of the kernel with k training rows."""
        given, others = (pt.as_tensor_variable(rows) for rows in (X, X if Xs is None else Xs))
        products = given[:, others[:, -1].astype("int64")]
        return self._at(products, given[:, self.kernel.n][:, None], others[:, self.kernel.n])

    def diag(self, X: Tensor) -> Tensor:
        """Return the diagonal, (m,)."""
        square = pt.as_tensor_variable(X)[:, self.kernel.n]
        return self._at(square, square, square)

    def _at(self, products: Tensor, square: Tensor, others: Tensor) -> Tensor:
        if self.kernel.name == "linear":
            return cast(Tensor, self.variance * self.rate * products)
        exponent = self.rate * pt.maximum(0.5 * (square + others) - products, 0.0)
        if self.inverse_alpha is not None:
            exponent = pt.log1p(self.inverse_alpha * exponent) / self.inverse_alpha
        return cast(Tensor, self.variance * pt.exp(-exponent))

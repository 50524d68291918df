"""Inputs of estimators: the matrix of a kernel, or objects with a kernel function between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.arrays import Array, numbers, warn
from bsvr_pp.model.matrices import MatrixKernel, checked_matrix
from bsvr_pp.tables.columns import table_of

_ALIKE = 1e-6  # of the largest value: smaller differences of a diagonal are rounding errors, also in 32 bits
_FAR = 30.0  # spread of the means of rows, in units of the variance: with 58, R² was .978 instead of .994
_TINY = 1e-12  # smallest value of a diagonal used as a divisor, relative to the largest


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
            f"{own.max():g}: give it, or divide each k(x, z) by the root of k(x, x)·k(z, z)"
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

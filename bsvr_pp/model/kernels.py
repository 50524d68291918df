"""Kernels beside those of `pm.gp.cov`: main effects, and the rational quadratic kernel by its inverse exponent.

Each is one pass over the pairs of rows, and so are its derivatives: the contraction with the derivative of any function
by the matrix. No other matrix of n² numbers is made, and the exponentials of a pair are computed several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Covariance, Stationary
from pytensor.gradient import grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor import TensorLike

from bsvr_pp.core.arrays import Array, Tensor
from bsvr_pp.core.checks import check_count
from bsvr_pp.core.compiler import compiled, vectorized
from bsvr_pp.core.losses.pieces import LN2_HIGH, LN2_LOW, decay
from bsvr_pp.model.density import CompiledOp, Graphs, Shape

__all__ = ["MainEffects", "RationalQuadratic"]

_KERNELS = ("main effects", "rational quadratic")
FLAT = 1e-15  # smallest 1/α of the rational quadratic kernel: with less it is Gaussian up to rounding
_SMALL = 1e-4  # argument of log(1 + s) below which a difference is a series
_LOG = tuple(2.0 / (2.0 * k + 1.0) for k in range(11))  # of log((1 + f)/(1 - f)) by odd powers of f
_SQUARE = 32  # rows of a square in which a matrix is mirrored


@vectorized
def log_above(s: float) -> float:
    """log(1 + s) for s >= 0, without branches."""
    w = 1.0 + s
    bits = np.float64(w).view(np.int64)
    exponent = ((bits + 0x95F6200000000) >> 52) - 1023  # so that the mantissa is below √2
    mantissa = np.int64(bits - (exponent << 52)).view(np.float64)
    f = s / (2.0 + s) if exponent == 0 else (mantissa - 1.0) / (mantissa + 1.0)
    square, value = f * f, _LOG[10]
    for k in range(9, -1, -1):
        value = _LOG[k] + square * value
    return exponent * LN2_HIGH + (f * value + exponent * LN2_LOW)


@vectorized
def _detail(e: float) -> float:
    """The 16th power: a Gaussian kernel of a quarter of the lengthscale from that of the whole."""
    square = e * e
    fourth = square * square
    eighth = fourth * fourth
    return eighth * eighth


@vectorized
def _main_effects(x: Array, z: Array, p: Array, i: int, row: Array) -> None:
    """Fill the row of K of one point of x (d, n) with the points of z (d, at least as many as the row)."""
    d = x.shape[0]
    row[:] = 0.0
    for k in range(d):
        at, variance, rate, share = x[k, i], p[k], 0.5 * p[d + k], p[2 * d]
        for j in range(row.shape[0]):
            e = decay(rate * (z[k, j] - at) ** 2)
            row[j] += variance * (e + share * _detail(e))


@vectorized
def _main_effects_gradient(x: Array, z: Array, p: Array, i: int, g: Array, out: Array) -> None:
    """Add the derivatives by p of the row times g."""
    d = x.shape[0]
    for k in range(d):
        at, rate, total, moment = x[k, i], 0.5 * p[d + k], 0.0, 0.0
        details, moment_of_details = 0.0, 0.0
        for j in range(g.shape[0]):
            square = (z[k, j] - at) ** 2
            e = decay(rate * square)
            smooth, detail = g[j] * e, g[j] * _detail(e)
            total += smooth
            moment += smooth * square
            details += detail
            moment_of_details += detail * square
        out[k] += total + p[2 * d] * details
        out[d + k] -= 0.5 * p[k] * (moment + 16.0 * p[2 * d] * moment_of_details)
        out[2 * d] += p[k] * details


@vectorized
def _half_square(x: Array, z: Array, inverse_square: Array, i: int, row: Array) -> None:
    """Half of the squared scaled distance."""
    row[:] = 0.0
    for k in range(x.shape[0]):
        at, scale = x[k, i], 0.5 * inverse_square[k]
        for j in range(row.shape[0]):
            row[j] += scale * (z[k, j] - at) ** 2


@vectorized
def _rational_quadratic(x: Array, z: Array, p: Array, i: int, row: Array) -> None:
    """As `_main_effects`."""
    variance, inverse_alpha = p[0], max(p[1], FLAT)
    _half_square(x, z, p[2:], i, row)
    for j in range(row.shape[0]):
        row[j] = variance * decay(log_above(inverse_alpha * row[j]) / inverse_alpha)


@vectorized
def _rational_quadratic_gradient(x: Array, z: Array, p: Array, i: int, g: Array, work: Array, out: Array) -> None:
    """As `_main_effects_gradient`; ``work`` is overwritten."""
    variance, inverse_alpha = p[0], max(p[1], FLAT)
    by_variance, by_inverse_alpha = 0.0, 0.0
    _half_square(x, z, p[2:], i, work)
    for j in range(g.shape[0]):
        h = work[j]
        s = inverse_alpha * h
        exponent = log_above(s) / inverse_alpha
        series = h * h * (0.5 - s * (2.0 / 3.0 - s * (0.75 - 0.8 * s)))
        value = g[j] * decay(exponent)
        by_variance += value
        by_inverse_alpha += value * (series if s < _SMALL else (exponent - h / (1.0 + s)) / inverse_alpha)
        work[j] = value / (1.0 + s)
    out[0] += by_variance
    out[1] += variance * by_inverse_alpha
    for k in range(x.shape[0]):
        at, total = x[k, i], 0.0
        for j in range(g.shape[0]):
            total += work[j] * (z[k, j] - at) ** 2
        out[2 + k] -= 0.5 * variance * total


@compiled
def _mirror(K: Array) -> None:
    """Copy the lower triangle of K to the upper one, in squares that fit the cache."""
    n = K.shape[0]
    for first in range(0, n, _SQUARE):
        for second in range(0, first + 1, _SQUARE):
            for i in range(first, min(first + _SQUARE, n)):
                for j in range(second, min(second + _SQUARE, i)):
                    K[j, i] = K[i, j]


@compiled
def matrix(which: int, X: Array, Z: Array, p: Array, symmetric: bool) -> Array:
    """Matrix (n, m) of the kernel at the place ``which`` in `_KERNELS`; with ``symmetric`` Z must be X."""
    x, z = np.ascontiguousarray(X.T), np.ascontiguousarray(Z.T)
    n, m = x.shape[1], z.shape[1]
    K = np.empty((n, m))
    for i in range(n):
        row = K[i, : i + 1 if symmetric else m]
        if which == 0:
            _main_effects(x, z, p, i, row)
        else:
            _rational_quadratic(x, z, p, i, row)
    if symmetric:
        _mirror(K)
    return K


@compiled
def contraction(which: int, X: Array, Z: Array, p: Array, G: Array, symmetric: bool) -> Array:
    """Sum of the derivatives of the matrix by p, times G (n, m)."""
    x, z, out = np.ascontiguousarray(X.T), np.ascontiguousarray(Z.T), np.zeros_like(p)
    n, m = x.shape[1], z.shape[1]
    g, work = np.empty(m), np.empty(m)
    for i in range(n):
        last = i + 1 if symmetric else m
        for j in range(last):
            g[j] = G[i, j]
        for j in range(i if symmetric else 0):
            g[j] += G[j, i]
        if which == 0:
            _main_effects_gradient(x, z, p, i, g[:last], out)
        else:
            _rational_quadratic_gradient(x, z, p, i, g[:last], work[:last], out)
    return out


class _OfKernel(CompiledOp):
    """An operation on X (n, d), Z (m, d) and the parameters (p,) of a kernel; ``symmetric`` if Z is X."""

    __props__ = ("kernel", "symmetric")
    place: ClassVar[int]  # of its function

    def __init__(self, kernel: str, symmetric: bool) -> None:
        self.kernel, self.symmetric = kernel, symmetric

    def function(self) -> Callable[..., Array]:
        """The function on arrays, which Numba can compile."""
        return _functions(self.kernel, self.symmetric)[self.place]


class KernelMatrix(_OfKernel):
    """Matrix (n, m) of a kernel at X and Z, given its parameters; differentiable by these."""

    place, results = 0, (pt.dmatrix,)

    def infer_shape(self, node: Apply, shapes: Sequence[Shape]) -> list[Shape]:
        """Shape of the matrix."""
        return [(shapes[0][0], shapes[1][0])]

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """Contraction of the derivatives by the parameters; those by the points are not implemented."""
        missing = [grad_not_implemented(self, place, inputs[place]) for place in (0, 1)]
        return [*missing, *KernelContraction(self.kernel, self.symmetric).of(*inputs, *cotangents)]


class KernelContraction(_OfKernel):
    """Derivatives (p,) of the sum of G (n, m), its last input, times a `KernelMatrix` by the parameters."""

    place, results = 1, (pt.dvector,)

    def infer_shape(self, node: Apply, shapes: Sequence[Shape]) -> list[Shape]:
        """Shape of the parameters."""
        return [shapes[2]]


@cache
def _functions(kernel: str, symmetric: bool) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """The two operations on arrays."""
    which = _KERNELS.index(kernel)

    def of_matrix(X: Array, Z: Array, p: Array) -> Array:
        return matrix(which, X, Z, p, symmetric)

    def of_contraction(X: Array, Z: Array, p: Array, G: Array) -> Array:
        return contraction(which, X, Z, p, G, symmetric)

    return of_matrix, of_contraction


def _matrix_of(kernel: str, points: tuple[Tensor, Tensor | None], parameters: list[Tensor]) -> Tensor:
    X, Z = points
    return KernelMatrix(kernel, Z is None).of(X, X if Z is None else Z, pt.concatenate(parameters))[0]


def _of_each(name: str, value: TensorLike, d: int) -> Tensor:
    """A value of each input (d,); one value is that of all."""
    tensor = pt.as_tensor_variable(value)
    if tensor.ndim > 1 or tensor.type.shape not in ((), (1,), (d,), (None,)):
        raise ValueError(f"{name} must be a number, or have {d} values, one an input, got shape {tensor.type.shape}")
    return pt.broadcast_to(tensor, (d,))


class MainEffects(Covariance):
    r"""Sum of one Gaussian kernel an input: the function is a sum of functions of one input each.

    .. math::

        k(x, x') = \sum_i a_i^2 (e_i + \delta^2 e_i^{16}), \quad e_i = \exp(-(x_i - x_i')^2 / 2 \ell_i^2)

    The second term has details of a quarter of the lengthscale. With δ = 0 it is the first order of additive Gaussian
    processes (Duvenaud, Nickisch & Rasmussen 2011). Where the effect of an input does not depend on the others, it is
    learned from all rows, and not only from those near in all inputs.

    Parameters
    ----------
    input_dim : int
        Number of columns of X.
    amplitude : number or (d,) tensor
        Prior standard deviation a of the effect of each input; 0 is none.
    ls : number or (d,) tensor
        Lengthscale ℓ of each effect.
    active_dims : list of int, optional
        The columns that are used, d of them; by default all.
    detail : number or scalar tensor
        Prior standard deviation δ of the details, relative to that of the effect.

    Raises
    ------
    ValueError
        If input_dim is not a positive number, or there is another number of values.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> kernel = bp.cov.MainEffects(2, amplitude=[1.0, 0.5], ls=1.0)
    >>> kernel(np.array([[0.0, 0.0], [9.0, 0.0]])).eval().round(2)
    array([[1.25, 0.25],
           [0.25, 1.25]])
    """

    def __init__(
        self,
        input_dim: int,
        amplitude: TensorLike,
        ls: TensorLike,
        active_dims: Sequence[int] | None = None,
        detail: TensorLike = 0.0,
    ) -> None:
        check_count("input_dim", input_dim, 1)
        super().__init__(input_dim, active_dims)
        self.amplitude, self.ls = pt.as_tensor_variable(amplitude), pt.as_tensor_variable(ls)
        self.detail = pt.as_tensor_variable(detail)
        self.variance = _of_each("amplitude", self.amplitude, self.n_dims) ** 2
        self.inverse_square = 1.0 / _of_each("ls", self.ls, self.n_dims) ** 2

    def full(self, X: TensorLike, Xs: TensorLike | None = None) -> Tensor:
        """Matrix of the kernel, (n, m)."""
        return _matrix_of(
            "main effects", self._slice(X, Xs), [self.variance, self.inverse_square, self.detail[None] ** 2]
        )

    def diag(self, X: Tensor) -> Tensor:
        """Its diagonal, (n,)."""
        return (1.0 + self.detail**2) * pt.sum(self.variance) * pt.ones(X.shape[0])


class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel with its variance, by its inverse exponent.

    .. math::

        k(x, x') = v (1 + \tfrac{\gamma}{2} r^2)^{-1/\gamma}, \quad r^2 = \sum_i (x_i - x_i')^2 / \ell_i^2

    It is `pm.gp.cov.RatQuad` with α = 1/γ, and Gaussian for γ = 0, which has a place among the values of γ.

    Parameters
    ----------
    input_dim : int
        Number of columns of X.
    ls : number or (d,) tensor
        Lengthscale ℓ of each input.
    inverse_alpha : number or scalar tensor
        Inverse exponent γ >= 0.
    variance : number or scalar tensor
        Prior variance v of the function.
    active_dims : list of int, optional
        The columns that are used, d of them; by default all.

    Raises
    ------
    ValueError
        If input_dim is not a positive number, or there is another number of values.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> kernel = bp.cov.RationalQuadratic(1, ls=1.0, inverse_alpha=0.0)
    >>> kernel(np.array([[0.0], [2.0]])).eval().round(3)
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    """

    def __init__(
        self,
        input_dim: int,
        ls: TensorLike,
        inverse_alpha: TensorLike,
        variance: TensorLike = 1.0,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        check_count("input_dim", input_dim, 1)
        super().__init__(input_dim, ls, active_dims=active_dims)
        self.inverse_alpha = pt.as_tensor_variable(inverse_alpha)
        self.inverse_square = 1.0 / _of_each("ls", self.ls, self.n_dims) ** 2
        self.variance = pt.as_tensor_variable(variance)

    def full(self, X: TensorLike, Xs: TensorLike | None = None) -> Tensor:
        """Matrix of the kernel, (n, m)."""
        single = [pt.stack([self.variance, self.inverse_alpha])]
        points = self._slice(X, Xs)
        return _matrix_of("rational quadratic", points, [*single, self.inverse_square])

    def diag(self, X: Tensor) -> Tensor:
        """Its diagonal, (n,)."""
        return self.variance * pt.ones(X.shape[0])

"""Kernels that `pm.gp.cov` lacks: main effects, and the rational quadratic kernel by its inverse exponent.

Each kernel needs one pass over the pairs of rows. So do its derivatives, contracted with the derivative of any function
by the matrix. No other n×n matrix is made, and several exponentials of a pair are computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numba import types
from numpy.typing import NDArray
from pymc.gp.cov import Covariance
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike

from bsvr_pp.core.arrays import Array, Tensor, check_count
from bsvr_pp.core.compiler import MATRIX, VECTOR, compiled, separate, vectorized
from bsvr_pp.core.losses.pieces import LN2_HIGH, LN2_LOW, decay
from bsvr_pp.model.operation import CompiledOp, Graphs

__all__ = ["MainEffects", "RationalQuadratic"]

_KERNELS = ("main effects", "rational quadratic")
FLAT = 1e-15  # smallest 1/α of the rational quadratic kernel: below, it is Gaussian up to rounding
_SMALL = 1e-4  # argument of log(1 + s) below which a series is used
_LOG = tuple(2.0 / (2.0 * k + 1.0) for k in range(11))  # of log((1 + f)/(1 - f)) by odd powers of f
_SQUARE = 32  # rows of the squares in which a matrix is mirrored
_FEWEST, _ROUNDING = 3, 1e-9  # smallest number of indicators in a group, and relative difference of equal steps


@vectorized
def log_above(s: float) -> float:
    """Return log(1 + s) for s >= 0, without branches."""
    w = 1.0 + s
    bits = np.float64(w).view(np.int64)
    exponent = ((bits + 0x95F6200000000) >> 52) - 1023  # makes the mantissa less than √2
    mantissa = np.int64(bits - (exponent << 52)).view(np.float64)
    f = s / (2.0 + s) if exponent == 0 else (mantissa - 1.0) / (mantissa + 1.0)
    square, value = f * f, _LOG[10]
    for k in range(9, -1, -1):
        value = _LOG[k] + square * value
    return exponent * LN2_HIGH + (f * value + exponent * LN2_LOW)


class Points(NamedTuple):
    """Points of a kernel: numbers in units of their lengthscales, levels of categories and words; -1 if unknown."""

    numbers: Array  # (d, n)
    levels: Array  # (q, n)
    words: Array  # (g, n), the place in the group of the indicator that a point has


class Inputs(NamedTuple):
    """Inputs of points: numbers, and groups of indicators of words, of which a point has one or none."""

    d: int  # of all inputs
    numbers: NDArray[np.int64]  # inputs alone
    first: NDArray[np.int64]  # (g,) inputs, the first of each group,
    size: NDArray[np.int64]  # (g,), how many it has,
    step: Array  # (g,), and by how much a point with the indicator differs from others


class Slopes(NamedTuple):
    """Derivatives by the numbers of two sets of points, and by the parameters."""

    by_x: Array
    by_z: Array
    by_p: Array


@vectorized
def _differ(word: float, other: float) -> float:
    """Return the number of indicators in which two words differ; an unknown word has none."""
    return 0.0 if other == word else (1.0 if word < 0.0 or other < 0.0 else 2.0)


@vectorized
def _sum_effects(
    inputs: Inputs, x: Points, z: Points, p: Array, i: int, each: Array, sums: Array, squares: Array
) -> None:
    """Fill sums of the effects of all inputs, and of their squares; ``each`` (d, m) is filled with e of numbers."""
    sums[:], squares[:] = 0.0, 0.0
    for k in range(inputs.numbers.size):
        at, others, variance, found = x.numbers[k, i], z.numbers[k], p[inputs.numbers[k]], each[k]
        for j in range(sums.shape[0]):
            e = decay(0.5 * (others[j] - at) ** 2)
            found[j] = e
            sums[j] += variance * e
            squares[j] += (variance * e) ** 2
    for g in range(inputs.first.size):
        word, words, size, variance = x.words[g, i], z.words[g], inputs.size[g], p[inputs.first[g]]
        e = decay(0.5 * inputs.step[g] ** 2)
        for j in range(sums.shape[0]):
            differ = _differ(word, words[j])
            sums[j] += variance * (size - differ * (1.0 - e))
            squares[j] += variance**2 * (size - differ * (1.0 - e**2))


@vectorized
def _main_effects(inputs: Inputs, x: Points, z: Points, p: Array, i: int, row: Array, work: Array) -> None:
    """Fill the row of K of the point i of x with the points of z, which are at least as many as the row.

    ``work`` (2 + d, m) is overwritten.
    """
    m, d = row.size, inputs.d
    sums, squares, each = work[0, :m], work[1, :m], work[2:]
    share, half_product = p[d], 0.5 * p[d + 1]
    _sum_effects(inputs, x, z, p, i, each, sums, squares)
    for j in range(m):
        row[j] = sums[j] + half_product * (sums[j] * sums[j] - squares[j])
    for k in range(inputs.numbers.size):
        found, variance = each[k], share * p[inputs.numbers[k]]
        for j in range(m):
            row[j] += variance * found[j] ** 16
    for g in range(inputs.first.size):
        word, words, size, variance = x.words[g, i], z.words[g], inputs.size[g], share * p[inputs.first[g]]
        e = decay(0.5 * inputs.step[g] ** 2)
        for j in range(m):
            row[j] += variance * (size - _differ(word, words[j]) * (1.0 - e**16))
    for q in range(x.levels.shape[0]):
        level, levels, variance = x.levels[q, i], z.levels[q], p[d + 2 + q]
        if level >= 0.0:
            for j in range(m):
                row[j] += variance if levels[j] == level else 0.0


_POINTS = types.NamedUniTuple(MATRIX, 3, Points)
_INDEX = types.int64[::1]
_INPUTS = types.NamedTuple((types.int64, _INDEX, _INDEX, _INDEX, VECTOR), Inputs)
_SLOPES = types.NamedTuple((MATRIX, MATRIX, VECTOR), Slopes)


@vectorized
def _pull_words(inputs: Inputs, x: Points, z: Points, i: int, k: int, pull: Array, out: Slopes) -> None:
    """Add derivatives by the indicators of the group k: ``pull`` (m,) times the differences of points."""
    word, first, step = int(x.words[k, i]), inputs.first[k], inputs.step[k]
    for j in range(pull.size):
        other = int(z.words[k, j])
        if other != word:
            if word >= 0:
                out.by_x[first + word, i] -= step * pull[j]
                out.by_z[first + word, j] += step * pull[j]
            if other >= 0:
                out.by_x[first + other, i] += step * pull[j]
                out.by_z[first + other, j] -= step * pull[j]


@vectorized
def _effects_of_words(
    inputs: Inputs, x: Points, z: Points, p: Array, i: int, k: int, g: Array, work: Array, out: Slopes
) -> None:
    """Add the derivatives by the group k of indicators; ``work`` (2, m) has the sums, and is overwritten below."""
    d, first, size, word, sums, pull = inputs.d, inputs.first[k], inputs.size[k], x.words[k, i], work[0], work[1]
    variance, share, product = p[first], p[d], p[d + 1]
    e = decay(0.5 * inputs.step[k] ** 2)
    detail, equal, details, own = e**16, 0.0, 0.0, 0.0
    for j in range(g.size):
        same, other = g[j] * (1.0 + product * (sums[j] - variance)), z.words[k, j]
        apart, equal = g[j] * e * (1.0 + product * (sums[j] - variance * e)), equal + same + share * g[j]
        details += g[j] * (size - _differ(word, other) * (1.0 - detail))
        pull[j] = variance * (apart + 16.0 * share * g[j] * detail)
        if other != word:
            change = apart - same + share * g[j] * (detail - 1.0)
            own += change
            if other >= 0.0:
                out.by_p[first + int(other)] += change
    out.by_p[first : first + size] += equal
    if word >= 0.0:
        out.by_p[first + int(word)] += own
    out.by_p[d] += variance * details
    _pull_words(inputs, x, z, i, k, pull, out)


@separate(types.void, _INPUTS, _POINTS, _POINTS, VECTOR, types.int64, VECTOR, MATRIX, _SLOPES, by=vectorized)
def _main_effects_gradient(
    inputs: Inputs, x: Points, z: Points, p: Array, i: int, g: Array, work: Array, out: Slopes
) -> None:
    """Add the derivatives of the row times g; ``work`` (2 + d, m) is overwritten."""
    m, d = g.size, inputs.d
    sums, squares, each = work[0, :m], work[1, :m], work[2:]
    share, product, of_product = p[d], p[d + 1], 0.0
    _sum_effects(inputs, x, z, p, i, each, sums, squares)
    for j in range(m):
        of_product += g[j] * (sums[j] * sums[j] - squares[j])
    out.by_p[d + 1] += 0.5 * of_product
    for k in range(inputs.numbers.size):
        input_ = inputs.numbers[k]
        at, others, by_others, variance, found = x.numbers[k, i], z.numbers[k], out.by_z[input_], p[input_], each[k]
        total, details, by_point = 0.0, 0.0, 0.0
        for j in range(m):
            e = found[j]
            smooth, detail = g[j] * e * (1.0 + product * (sums[j] - variance * e)), g[j] * e**16
            total += smooth
            details += detail
            pull = variance * (smooth + 16.0 * share * detail) * (others[j] - at)
            by_point += pull
            by_others[j] -= pull
        out.by_x[input_, i] += by_point
        out.by_p[input_] += total + share * details
        out.by_p[d] += variance * details
    for k in range(inputs.first.size):
        _effects_of_words(inputs, x, z, p, i, k, g, work[:2, :m], out)
    for q in range(x.levels.shape[0]):
        level, levels, total = x.levels[q, i], z.levels[q], 0.0
        if level >= 0.0:
            for j in range(m):
                total += g[j] if levels[j] == level else 0.0
        out.by_p[d + 2 + q] += total


@vectorized
def _half_square(inputs: Inputs, x: Points, z: Points, rate: Array, i: int, row: Array) -> None:
    """Fill ``row`` with half of the squared distances; different levels add ``rate`` (q,)."""
    row[:] = 0.0
    for k in range(x.numbers.shape[0]):
        at, others = x.numbers[k, i], z.numbers[k]
        for j in range(row.shape[0]):
            row[j] += 0.5 * (others[j] - at) ** 2
    for g in range(inputs.first.size):
        word, words, unit = x.words[g, i], z.words[g], 0.5 * inputs.step[g] ** 2
        for j in range(row.shape[0]):
            row[j] += unit * _differ(word, words[j])
    for q in range(x.levels.shape[0]):
        level, levels = x.levels[q, i], z.levels[q]
        for j in range(row.shape[0]):
            row[j] += rate[q] * 0.5 * _differ(level, levels[j])


@vectorized
def _rational_quadratic(inputs: Inputs, x: Points, z: Points, p: Array, i: int, row: Array) -> None:
    """Fill the row of K as `_main_effects` does."""
    variance, inverse_alpha = p[0], max(p[1], FLAT) if p[1] >= 0.0 else np.nan
    _half_square(inputs, x, z, p[2:], i, row)
    for j in range(row.shape[0]):
        h = row[j]
        row[j] = variance * decay(log_above(inverse_alpha * h) / inverse_alpha) if h == h else h


@separate(types.void, _INPUTS, _POINTS, _POINTS, VECTOR, types.int64, VECTOR, VECTOR, _SLOPES, by=vectorized)
def _rational_quadratic_gradient(
    inputs: Inputs, x: Points, z: Points, p: Array, i: int, g: Array, work: Array, out: Slopes
) -> None:
    """Add derivatives as `_main_effects_gradient` does; ``work`` is overwritten."""
    variance, inverse_alpha = p[0], max(p[1], FLAT)
    by_variance, by_inverse_alpha = 0.0, 0.0
    _half_square(inputs, x, z, p[2:], i, work)
    for j in range(g.shape[0]):
        h = work[j]
        s = inverse_alpha * h
        exponent = log_above(s) / inverse_alpha
        series = h * h * (0.5 - s * (2.0 / 3.0 - s * (0.75 - 0.8 * s)))
        value = g[j] * decay(exponent)
        by_variance += value
        by_inverse_alpha += value * (series if s < _SMALL else (exponent - h / (1.0 + s)) / inverse_alpha)
        work[j] = variance * value / (1.0 + s)
    out.by_p[0] += by_variance
    out.by_p[1] += variance * by_inverse_alpha
    for k in range(inputs.numbers.size):
        at, others, by_others, by_point = x.numbers[k, i], z.numbers[k], out.by_z[inputs.numbers[k]], 0.0
        for j in range(g.shape[0]):
            pull = work[j] * (others[j] - at)
            by_point += pull
            by_others[j] -= pull
        out.by_x[inputs.numbers[k], i] += by_point
    for k in range(inputs.first.size):
        _pull_words(inputs, x, z, i, k, work, out)
    for q in range(x.levels.shape[0]):
        level, levels, total = x.levels[q, i], z.levels[q], 0.0
        for j in range(g.shape[0]):
            total += work[j] * 0.5 * _differ(level, levels[j])
        out.by_p[2 + q] -= total


@compiled
def _mirror(K: Array) -> None:
    """Copy the lower triangle of K to the upper one, in squares that fit into the cache."""
    n = K.shape[0]
    for first in range(0, n, _SQUARE):
        for second in range(0, first + 1, _SQUARE):
            for i in range(first, min(first + _SQUARE, n)):
                for j in range(second, min(second + _SQUARE, i)):
                    K[j, i] = K[i, j]


@compiled
def _mark_words(A: Array, high: float, word: int, words: Array) -> bool:
    """Give points (n,) with the larger value of an indicator its word; return False if one has another word."""
    for i in range(A.size):
        if A[i] == high:
            if words[i] >= 0.0:
                return False
            words[i] = word
    return True


@compiled
def _group_at(k: int, A: Array, B: Array, variance: Array, a: Array, b: Array) -> tuple[int, float]:
    """Return the number of indicators in a group that begins at the input k, and their step; fill words a (n,), b (m,).

    Values of an indicator are two finite ones, or one if no point has it, or all have it.
    """
    a[:], b[:] = -1.0, -1.0
    size, step = 0, 0.0
    for c in range(k, A.shape[0] if A.size > 0 and B.size > 0 else k):
        low, high = min(A[c].min(), B[c].min()), max(A[c].max(), B[c].max())
        alike = step == 0.0 or high == low or abs(high - low - step) <= _ROUNDING * step
        other = not (high - low < np.inf and alike and variance[c] == variance[k])
        if other or not (((A[c] == low) | (A[c] == high)).all() and ((B[c] == low) | (B[c] == high)).all()):
            break
        if high > low and not (_mark_words(A[c], high, size, a) and _mark_words(B[c], high, size, b)):
            a[a == size], b[b == size] = -1.0, -1.0
            break
        size, step = size + 1, max(step, high - low)
    return size, step


@compiled
def _points(U: Array, V: Array, C: Array, E: Array, variance: Array) -> tuple[Inputs, Points, Points]:
    """Arrange points; neighbouring inputs of one ``variance`` (d,) are a group if they are indicators of words.

    The sum over a group then has two terms, however many indicators it has.
    """
    A, B, d = np.ascontiguousarray(U.T), np.ascontiguousarray(V.T), U.shape[1]
    most = d // _FEWEST + 1
    a, b, numbers = np.empty((most, len(U))), np.empty((most, len(V))), np.empty(d, dtype=np.int64)
    first, sizes, steps = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most)
    count, groups, k = 0, 0, 0
    while k < d:
        size, step = _group_at(k, A, B, variance, a[groups], b[groups])
        if size >= _FEWEST:
            first[groups], sizes[groups], steps[groups] = k, size, step
            groups, k = groups + 1, k + size
        else:
            numbers[count] = k
            count, k = count + 1, k + 1
    inputs = Inputs(d, numbers[:count], first[:groups], sizes[:groups], steps[:groups])
    x = Points(A[inputs.numbers], np.ascontiguousarray(C.T), a[:groups])
    return inputs, x, Points(B[inputs.numbers], np.ascontiguousarray(E.T), b[:groups])


@compiled
def matrix(which: int, symmetric: bool, inputs: Inputs, x: Points, z: Points, p: Array) -> Array:
    """Return the matrix (n, m) of the kernel at the place ``which`` in `_KERNELS`; with ``symmetric`` z must be x."""
    n, m = x.levels.shape[1], z.levels.shape[1]
    K, work = np.empty((n, m)), np.empty((2 + x.numbers.shape[0], m))
    for i in range(n):
        row = K[i, : i + 1 if symmetric else m]
        if which == 0:
            _main_effects(inputs, x, z, p, i, row, work)
        else:
            _rational_quadratic(inputs, x, z, p, i, row)
    if symmetric:
        _mirror(K)
    return K


@compiled
def contraction(
    which: int, symmetric: bool, inputs: Inputs, x: Points, z: Points, p: Array, G: Array
) -> tuple[Array, Array, Array]:
    """Sum the derivatives of the matrix times G (n, m); with ``symmetric`` all those by points are by x."""
    n, m = G.shape
    by_x, by_z = np.zeros((inputs.d, n)), np.zeros((inputs.d, m))
    out = Slopes(by_x, by_x if symmetric else by_z, np.zeros_like(p))
    g, work = np.empty(m), np.empty((2 + x.numbers.shape[0], m))
    for i in range(n):
        last = i + 1 if symmetric else m
        for j in range(last):
            g[j] = G[i, j]
        for j in range(i if symmetric else 0):
            g[j] += G[j, i]
        if which == 0:
            _main_effects_gradient(inputs, x, z, p, i, g[:last], work, out)
        else:
            _rational_quadratic_gradient(inputs, x, z, p, i, g[:last], work[0, :last], out)
    return by_x.T.copy(), by_z.T.copy(), out.by_p


class _OfKernel(CompiledOp):
    """An operation on points U (n, d), V (m, d), their levels C (n, q), E (m, q), and parameters (p,) of a kernel.

    The points are in units of their lengthscales. With ``symmetric`` V and E equal U and C.
    """

    __props__ = ("kernel", "symmetric")
    compute: ClassVar[Callable[..., Array | tuple[Array, ...]]]  # of arranged points

    def __init__(self, kernel: str, symmetric: bool) -> None:
        self.kernel, self.symmetric = kernel, symmetric

    def function(self) -> Callable[..., Array | tuple[Array, ...]]:
        which, symmetric, compute = _KERNELS.index(self.kernel), self.symmetric, type(self).compute

        def of_arrays(U: Array, V: Array, C: Array, E: Array, p: Array, *G: Array) -> Array | tuple[Array, ...]:
            inputs, x, z = _points(U, V, C, E, p if which == 0 else np.zeros(U.shape[1]))
            return compute(which, symmetric, inputs, x, z, p, *G)

        return of_arrays


class KernelMatrix(_OfKernel):
    """Matrix (n, m) of a kernel of unit lengthscales, differentiable by the points and the parameters."""

    signature = "(n,d),(m,d),(n,q),(m,q),(p)->(n,m)"
    compute = staticmethod(matrix)

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """Return the contraction of the derivatives."""
        by_u, by_v, by_p = KernelContraction(self.kernel, self.symmetric).of(*inputs, *cotangents)
        return [by_u, by_v, pt.zeros_like(inputs[2]), pt.zeros_like(inputs[3]), by_p]


class KernelContraction(_OfKernel):
    """Derivatives of the sum of G (n, m), its last input, times a `KernelMatrix` by its inputs."""

    signature = "(n,d),(m,d),(n,q),(m,q),(p),(n,m)->(n,d),(m,d),(p)"
    compute = staticmethod(contraction)


def _of_each(name: str, value: TensorLike, d: int) -> Tensor:
    tensor = pt.as_tensor_variable(value)
    if tensor.ndim > 1 or tensor.type.shape not in ((), (1,), (d,), (None,)):
        raise ValueError(f"{name} must be a number, or have {d} values, one an input, got shape {tensor.type.shape}")
    return pt.specify_shape(pt.broadcast_to(tensor, (d,)), (d,))


def _levels(name: str, value: TensorLike | None) -> Tensor:
    tensor = pt.as_tensor_variable(np.empty(0) if value is None else value)
    if tensor.ndim != 1 or tensor.type.shape[0] is None:
        raise ValueError(f"{name} must be a vector with a known number of values, got shape {tensor.type.shape}")
    return tensor


class _WithLevels(Covariance):
    """A compiled kernel: first columns are d numbers with lengthscales, last columns levels of categories."""

    kernel: ClassVar[str]
    parameters: list[Tensor]  # vectors beside the lengthscales, in the order of the compiled function

    def __init__(self, input_dim: int, active_dims: Sequence[int] | None, ls: TensorLike, levels: Tensor) -> None:
        check_count("input_dim", input_dim, 1)
        super().__init__(input_dim, active_dims)
        self.d = self.n_dims - int(levels.type.shape[0] or 0)
        self.ls, self.scale = pt.as_tensor_variable(ls), _of_each("ls", ls, self.d)

    def full(self, X: TensorLike, Xs: TensorLike | None = None) -> Tensor:
        points = [(x[:, : self.d] * (1.0 / self.scale), x[:, self.d :]) for x in self._slice(X, Xs) if x is not None]
        (U, C), (V, E) = points[0], points[-1]
        return KernelMatrix(self.kernel, Xs is None).of(U, V, C, E, pt.concatenate(self.parameters))[0]


class MainEffects(_WithLevels):
    r"""Sum of one Gaussian kernel for each input, and of products of two: functions of one and of two inputs.

    .. math::

        k(x, x') = \sum_i a_i^2 (e_i + \delta^2 e_i^{16}) + \rho^2 \sum_{i<j} a_i^2 e_i a_j^2 e_j,
        \quad e_i = \exp(-(x_i - x_i')^2 / 2 \ell_i^2)

    The second term adds details with a quarter of the lengthscale. With δ = 0 these are the first and the second order
    of additive Gaussian processes (Duvenaud, Nickisch & Rasmussen 2011). An effect that depends on no other input, or
    on one other, is learned from all rows instead of only rows near in all inputs.

    Parameters
    ----------
    input_dim : int
        Number of columns of X.
    amplitude : number or (d,) tensor
        Prior standard deviation a of the effect of each input; 0 is no effect.
    ls : number or (d,) tensor
        Lengthscale ℓ of each effect.
    active_dims : list of int, optional
        The d columns used; by default all.
    detail : number or scalar tensor
        Prior standard deviation δ of the details, relative to the effect.
    level_amplitude : (q,) tensor, optional
        Prior standard deviation of the effects of q categories. Their levels 0, 1, ... are the last q columns of X, and
        -1 is a level without an effect. There are no products with levels.
    pairs : number or scalar tensor
        Prior standard deviation ρ of the product of two functions of one input each, relative to both, in units of 1/f;
        0 is no product.

    Raises
    ------
    ValueError
        If input_dim is not a positive number, or a parameter has another number of values.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> kernel = bp.cov.MainEffects(2, amplitude=[1.0, 0.5], ls=1.0)
    >>> kernel(np.array([[0.0, 0.0], [9.0, 0.0]])).eval().round(2)
    array([[1.25, 0.25],
           [0.25, 1.25]])
    """

    kernel = "main effects"

    def __init__(
        self,
        input_dim: int,
        amplitude: TensorLike,
        ls: TensorLike,
        active_dims: Sequence[int] | None = None,
        detail: TensorLike = 0.0,
        level_amplitude: TensorLike | None = None,
        pairs: TensorLike = 0.0,
    ) -> None:
        levels = _levels("level_amplitude", level_amplitude)
        super().__init__(input_dim, active_dims, ls, levels)
        self.amplitude, self.level_variance = pt.as_tensor_variable(amplitude), levels**2
        self.detail, self.pairs = pt.as_tensor_variable(detail), pt.as_tensor_variable(pairs)
        self.variance = _of_each("amplitude", self.amplitude, self.d) ** 2
        self.parameters = [self.variance, pt.stack([self.detail, self.pairs]) ** 2, self.level_variance]

    def diag(self, X: Tensor) -> Tensor:
        """Return the diagonal, (n,)."""
        known = pt.ge(self._slice(X)[0][:, self.d :], 0.0)
        total = pt.sum(self.variance)
        products = 0.5 * self.pairs**2 * (total**2 - pt.sum(self.variance**2))
        return (1.0 + self.detail**2) * total + products + pt.sum(known * self.level_variance, axis=1)

    def slopes(self) -> Tensor:
        """Return the expected squared slopes of f along the numbers, (d,)."""
        products = self.pairs**2 * (pt.sum(self.variance) - self.variance)
        return self.variance * (1.0 + 16.0 * self.detail**2 + products) / self.scale**2


class RationalQuadratic(_WithLevels):
    r"""Rational quadratic kernel with its variance, by its inverse exponent.

    .. math::

        k(x, x') = v (1 + \tfrac{\gamma}{2} r^2)^{-1/\gamma}, \quad r^2 = \sum_i (x_i - x_i')^2 / \ell_i^2

    It is `pm.gp.cov.RatQuad` with α = 1/γ, and Gaussian for γ = 0.

    Parameters
    ----------
    input_dim : int
        Number of columns of X.
    ls : number or (d,) tensor
        Lengthscale ℓ of each input.
    inverse_alpha : number or scalar tensor
        Inverse exponent γ >= 0; the matrix is NaN where it is negative.
    variance : number or scalar tensor
        Prior variance v of the function.
    active_dims : list of int, optional
        The d columns used; by default all.
    level_rate : (q,) tensor, optional
        The term that different levels of q categories add to r²/2. The levels 0, 1, ... are the last q columns of X;
        for -1, an unknown level, the term is half.

    Raises
    ------
    ValueError
        If input_dim is not a positive number, or a parameter has another number of values.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> kernel = bp.cov.RationalQuadratic(1, ls=1.0, inverse_alpha=0.0)
    >>> kernel(np.array([[0.0], [2.0]])).eval().round(3)
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    """

    kernel = "rational quadratic"

    def __init__(
        self,
        input_dim: int,
        ls: TensorLike,
        inverse_alpha: TensorLike,
        variance: TensorLike = 1.0,
        active_dims: Sequence[int] | None = None,
        level_rate: TensorLike | None = None,
    ) -> None:
        self.level_rate = _levels("level_rate", level_rate)
        super().__init__(input_dim, active_dims, ls, self.level_rate)
        self.inverse_alpha, self.variance = pt.as_tensor_variable(inverse_alpha), pt.as_tensor_variable(variance)
        self.parameters = [pt.stack([self.variance, self.inverse_alpha]), self.level_rate]

    def diag(self, X: Tensor) -> Tensor:
        """Return the diagonal, (n,)."""
        return self.variance * pt.ones(X.shape[0])

    def slopes(self) -> Tensor:
        """Compute as `MainEffects` does."""
        return self.variance / self.scale**2

"""The prior covariance K of the latent function, and all algebra with it: products, factors with sites, draws.

A `Covariance` is made from a matrix and its jitter, or from a low-rank root and a diagonal. A new type needs only a
constructor here: the solvers use only its `structure`. A `BlockDiagonal` is zero between blocks of rows. Each block is
a `Covariance`, made when needed and not kept; solvers run block by block (`approximations.posterior.blockwise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from rich.progress import track
from scipy.linalg import LinAlgError, cholesky, lstsq, solve_triangular

from bsvr_pp.core.arrays import Array, Rows, check_jitter, numbers
from bsvr_pp.core.compiler import compiled, threads_for
from bsvr_pp.core.covariance.sites import Sites, factor_sites, marginals
from bsvr_pp.core.covariance.structure import Structure, given_root, loses_digits, product, root_rows, split, whole_root
from bsvr_pp.core.docs import shared

_SINGULAR = (0.0, 1e-12, 1e-10)  # relative to the mean variance: numbers added to the diagonal until K can be factored
_REFINEMENTS = 2
_LOST = 1e-6  # rounding error of f, in its deviations, above which factors are of a root
_RANK = 1e-12  # relative size of a direction in which a root has no rows


@shared
class Covariance:
    """Prior covariance of the latent function at n inputs.

    Draws, factors and solves raise a ValueError where K is not positive definite.

    Parameters
    ----------
    K : (n, n) array
        The matrix, symmetric and positive semidefinite.
    jitter : float
        The multiple of the identity that K contains. If it is known, smooth kernels of few inputs cost n·rank² instead
        of n³.

    Raises
    ------
    ValueError
        If K is not a covariance, or jitter is not a number of at least 0.

    <on_arrays>
    >>> x = np.linspace(-1, 1, 100)
    >>> K = Covariance(np.exp(-0.5 * np.subtract.outer(x, x) ** 2) + 1e-6 * np.eye(100), jitter=1e-6)
    >>> K.rank
    12
    >>> laplace(K, np.sin(x), gaussian(C=1.0)).converged
    True
    """

    def __init__(self, K: ArrayLike, *, jitter: float = 0.0) -> None:
        check_jitter(jitter)
        matrix = numbers("K", K, ("n", "n"))
        check_covariance(matrix)
        self.structure: Structure = split(_writable(matrix), float(jitter))

    @classmethod
    def from_root(cls, root: ArrayLike, diagonal: ArrayLike) -> Covariance:
        """Make K = root·rootᵀ + diag(diagonal) without forming the matrix: every solve costs n·r².

        Parameters
        ----------
        root : (n, r) array
            Root, for example features of the inputs times their prior standard deviations.
        diagonal : (n,) array
            Independent variances, at least 0.

        Raises
        ------
        ValueError
            If the shapes do not fit, something is not finite, or a variance is negative.

        <on_arrays>
        >>> x = np.array([0.0, 1.0, 2.0])
        >>> Covariance.from_root(np.stack([np.ones(3), x], axis=1), np.full(3, 0.5)).diag.tolist()
        [1.5, 2.5, 5.5]
        """
        columns, variances = numbers("root", root, ("n", "r")), numbers("diagonal", diagonal, ("n",))
        if variances.size != len(columns):
            raise ValueError(f"diagonal must have {len(columns)} values as root has rows, got {variances.size}")
        if (variances < 0).any():
            raise ValueError(f"diagonal must be at least 0, got {variances.min():.3g}")
        made = cls.__new__(cls)
        made.structure = given_root(_writable(columns), _writable(variances))
        return made

    @property
    def size(self) -> int:
        """Number of inputs n."""
        return len(self.diag)

    @property
    def rank(self) -> int:
        """Number of columns of the low-rank root, or n if there is none."""
        return self.structure.root.shape[1] or self.size

    @property
    def diag(self) -> Array:
        """Prior variance at each input, (n,)."""
        return self.structure.variance

    def dense(self) -> Array:
        """Return K as a matrix (n, n), for checks and displays; the solvers do not use it."""
        K = self.structure
        return K.matrix.copy() if K.matrix.size else np.asarray(K.root @ K.root.T + np.diag(K.diagonal))

    def matvec(self, x: Array) -> Array:
        """Compute K·x without loss of digits if K has a large constant part and x sums to 0."""
        return product(self.structure, np.ascontiguousarray(x))

    def factor(self, site_precision: Array) -> Factor:
        """Factor I + √τK√τ for the precisions τ (n,) of Gaussian sites; 0 means no site."""
        precision = np.array(site_precision)
        K = self._with_root if loses_digits(self.structure, precision, _LOST) else self.structure
        return Factor(self, factor_sites(K, precision, np.flatnonzero(precision > 0)))

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draw (size, n) values from N(0, K)."""
        if self.structure.root.shape[1] == 0:
            return np.asarray(rng.standard_normal((size, self.size)) @ self._cholesky.T)
        return self.factor(np.zeros(self.size)).draw(size, rng)

    def whiten(self, columns: Array) -> Array:
        """Return G⁻¹·columns, with the lower Cholesky factor G of K."""
        return np.asarray(solve_triangular(self._cholesky, columns, lower=True, check_finite=False))

    def unwhiten(self, columns: Array) -> Array:
        """Return G·columns, the inverse of `whiten`."""
        return np.asarray(self._cholesky @ columns)

    def solve(self, columns: Array) -> Array:
        """Return K⁻¹·columns."""
        return np.asarray(solve_triangular(self._cholesky, self.whiten(columns), lower=True, trans=1))

    @cached_property
    def _with_root(self) -> Structure:
        """The structure with a root of any number of columns, for factors that would lose digits."""
        return whole_root(self.structure)

    @cached_property
    def _cholesky(self) -> Array:
        """Compute the lower G with G·Gᵀ = K."""
        matrix = self.dense()
        scale, added = float(np.mean(self.diag)), 0.0
        for share in _SINGULAR:
            matrix[np.diag_indices_from(matrix)] += share * scale - added
            added = share * scale
            try:
                return np.asarray(cholesky(matrix, lower=True, check_finite=False))
            except LinAlgError:
                continue
        raise ValueError("K must be positive definite; add a jitter of 1e-6 to its diagonal")


@dataclass(frozen=True, slots=True)
class CrossRoot:
    """The covariance new·rootᵀ of new inputs with the inputs of `Covariance.from_root`, as two roots."""

    new: Array
    root: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of new inputs and of inputs."""
        return len(self.new), len(self.root)

    def __matmul__(self, x: Array) -> Array:
        """Compute the product with an array, without the matrix."""
        return np.asarray(self.new @ (self.root.T @ x))


class Factor:
    """The factorisation of K with Gaussian sites at some points, and everything computed from I + √τK√τ."""

    def __init__(self, covariance: Covariance, sites: Sites) -> None:
        if not sites.factored:
            raise ValueError("K must be positive semidefinite; add a jitter to its diagonal, centre the inputs")
        self.covariance, self.sites, self._by_root = covariance, sites, sites.half.shape[1] > 0
        rooted = self._by_root and covariance.structure.root.shape[1] == 0
        self._structure = covariance._with_root if rooted else covariance.structure
        self.points, self.log_det = sites.points, float(sites.log_det)

    def marginals(self) -> tuple[Array, Array]:
        """Return the posterior and cavity variance of f at each input, (n,) each."""
        variance, cavity_variance = marginals(self._structure, self.sites, np.empty_like(self.sites.triangle), 0.0)
        return np.maximum(variance, 0.0), cavity_variance

    def solve(self, right: Array) -> Array:
        """Compute (K + τ⁻¹)⁻¹x over the sites, for each row x of ``right`` (k, m)."""
        sites = self.sites
        if not self._by_root:
            root = np.sqrt(sites.precision)
            half = solve_triangular(sites.triangle, (right * root).T, lower=True, check_finite=False)
            return np.asarray(root * solve_triangular(sites.triangle, half, lower=True, trans=1, check_finite=False).T)
        rows = root_rows(self._structure, sites.points)
        solution, compliance = np.zeros_like(right), np.zeros_like(sites.weight)
        np.divide(1.0, sites.weight, out=compliance, where=sites.weight > 0)
        for _ in range(_REFINEMENTS + 1):  # T - T·G(I + GᵀT·G)⁻¹GᵀT cancels digits
            weighted = sites.weight * (right - (solution @ rows) @ rows.T - solution * compliance)
            solution += weighted - sites.weight * ((weighted @ sites.half) @ sites.half.T)
        return solution

    def _reduced(self, rows: Array) -> Array:
        """Return rows b of a root as b·L⁻ᵀ, whose products are the posterior covariances."""
        if not self._by_root:
            return rows
        return np.asarray(solve_triangular(self.sites.triangle, rows.T, lower=True, check_finite=False).T)

    def explained(self, cross: Array | CrossRoot) -> Array:
        """Compute the variance that the sites explain, k*ᵀ(K + τ⁻¹)⁻¹k*, for each row k* of ``cross`` (k, n)."""
        if isinstance(cross, CrossRoot):
            rows, left = cross.new, self._reduced(cross.new)
        else:
            rows, left = self._halves(cross[:, self.points])
        return np.asarray((rows**2).sum(axis=1) - (left**2).sum(axis=1))

    def explained_together(self, at_sites: Array) -> Array:
        """Compute the covariance (k, k) that the sites explain, for rows k* at the sites (k, m)."""
        rows, left = self._halves(at_sites)
        return np.asarray(rows @ rows.T - left @ left.T)

    def _halves(self, at_sites: Array) -> tuple[Array, Array]:
        """Return rows whose products are explained, and rows whose products are not: none cancels digits of others."""
        if self._by_root:  # rows of the root of new inputs, as of any others
            rows = root_rows(self._structure, self.points)
            new = lstsq(rows, at_sites.T, cond=_RANK, lapack_driver="gelsy", check_finite=False)[0].T
            return new, self._reduced(new)
        right = (at_sites * np.sqrt(self.sites.precision)).T
        half = solve_triangular(self.sites.triangle, right, lower=True, check_finite=False) if right.size else right
        return half.T, half.T[:, :0]

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws (size, n) from N(0, (K⁻¹ + diag(τ))⁻¹)."""
        K, sites = self._structure, self.sites
        if K.root.shape[1] > 0 and (self._by_root or not K.matrix.size or self.points.size == 0):
            share = np.ones(self.covariance.size)
            share[self.points] = 1.0 / (1.0 + K.diagonal[self.points] * sites.precision)
            half = self._reduced(root_rows(K, np.arange(share.size)))
            smooth = rng.standard_normal((size, half.shape[1])) @ half.T
            return np.asarray(share * smooth + rng.standard_normal(smooth.shape) * np.sqrt(K.diagonal * share))
        return self._square_root(rng.standard_normal((size, self.covariance.size)))

    def _square_root(self, white: Array) -> Array:
        """Compute S·z for rows z, S·Sᵀ = (K⁻¹ + diag(τ))⁻¹: S = G(I - WᵀL⁻ᵀ(L + I)⁻¹W), W = √τG (Andrews 1968)."""
        prior = self.covariance._cholesky
        if self.points.size == 0:
            return np.asarray(white @ prior.T)
        triangle = np.tril(self.sites.triangle)
        root, rows = np.sqrt(self.sites.precision), prior[self.points]
        half = (white @ rows.T) * root
        half = solve_triangular(triangle + np.eye(len(triangle)), half.T, lower=True, check_finite=False)
        half = solve_triangular(triangle, half, lower=True, trans=1, check_finite=False).T
        return np.asarray((white - (half * root) @ rows) @ prior.T)


def _writable(array: Array) -> Array:
    """Convert an array to the layout of the compiled code, so that nothing is compiled twice."""
    return np.require(array, requirements=["C", "A", "W"])


def as_covariance(K: ArrayLike | Covariance) -> Covariance:
    """Return K if it is a `Covariance`, or make one from a matrix."""
    return K if isinstance(K, Covariance) else Covariance(K)


def check_covariance(K: Array) -> None:
    """Check that a matrix is symmetric, and that no covariance is larger than the variances of its points allow."""
    asymmetry, largest, excess = _symmetry(K)
    if asymmetry > 1e-8 * largest:
        raise ValueError(f"K must be symmetric, K - K.T reaches {asymmetry:.3g}")
    if (np.diag(K) < 0).any():
        raise ValueError(f"K must have no negative diagonal, got {np.diag(K).min():.3g}")
    if excess > 0.0:
        raise ValueError(
            "K must be positive semidefinite, but has a covariance larger than the variances of its points allow"
        )


@compiled
def _symmetry(K: Array) -> tuple[float, float, float]:
    """Return the largest |K - Kᵀ|, |K|, and excess of |k_ij| over √(k_ii·k_jj), by tiles for locality in memory."""
    n, tile = K.shape[0], 64
    difference, largest, excess = 0.0, 0.0, 0.0
    sd = np.empty(n)
    for i in range(n):
        sd[i] = sqrt(K[i, i])
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i + 1)):
                    size = abs(K[i, j])
                    difference = max(difference, abs(K[i, j] - K[j, i]))
                    largest = max(largest, size)
                    if size > (1.0 + 1e-8) * sd[i] * sd[j]:
                        excess = max(excess, size)
    return difference, largest, excess


@shared
class BlockDiagonal:
    """Covariance of n inputs in independent blocks.

    Parameters
    ----------
    rows : sequence of (m,) arrays of int
        Row numbers of each block; each row is in one block.
    make : callable
        Function from the number of a block to its `Covariance`.
    progress : str
        Text of the progress bar while the blocks are solved; no bar if it is empty.

    Raises
    ------
    ValueError
        If a row is in no block, or in two.

    <on_arrays>
    >>> K = BlockDiagonal([np.array([0, 2]), np.array([1])], lambda block: Covariance(np.eye(2 - block)))
    >>> mean_field(K, [1.0, 2.0, 4.0], gaussian(C=1.0)).mean.round(6).tolist()
    [0.5, 1.0, 2.0]
    """

    def __init__(self, rows: Sequence[Rows], make: Callable[[int], Covariance], *, progress: str = "") -> None:
        self.rows, self.part, self.progress = list(rows), make, progress
        if not np.array_equal(np.sort(np.concatenate(self.rows)), np.arange(self.size)):
            raise ValueError("rows must have each row number from 0 to n - 1 in one block")

    @property
    def size(self) -> int:
        """Number of inputs n."""
        return sum(rows.size for rows in self.rows)

    def each[Result](self, function: Callable[[Covariance, Rows], Result]) -> list[Result]:
        """Return results of a function of the covariance and the row numbers of each block, in their order."""
        return each_block(lambda i: function(self.part(i), self.rows[i]), len(self.rows), self.progress)

    def factor(self, site_precision: Array) -> BlockFactor:
        """Factor the covariance with Gaussian sites of precisions (n,), block by block when needed."""
        return BlockFactor(self, site_precision)

    def whiten(self, columns: Array) -> Array:
        """Return G⁻¹·columns, with the lower Cholesky factor G; the rows of a block must be in ascending order."""
        return scatter(self.rows, self.each(lambda K, rows: K.whiten(columns[rows])))


AnyCovariance = Covariance | BlockDiagonal


class BlockFactor:
    """Computes what `Factor` does, block by block: each call factors all blocks again, and keeps none."""

    def __init__(self, covariance: BlockDiagonal, site_precision: Array) -> None:
        self.covariance, self.site_precision = covariance, site_precision

    def explained(self, cross: Array | CrossRoot) -> Array:
        """Compute the variance that the sites explain for each row k* of ``cross`` (k, n)."""
        K_star = np.asarray(cross)
        parts = self.covariance.each(lambda K, rows: K.factor(self.site_precision[rows]).explained(K_star[:, rows]))
        return np.sum(parts, axis=0)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws (size, n) from N(0, (K⁻¹ + diag(τ))⁻¹); each block has its own random stream."""
        streams = iter(rng.spawn(len(self.covariance.rows)))
        source = {int(rows[0]): next(streams) for rows in self.covariance.rows}

        def drawn(K: Covariance, rows: Rows) -> Array:
            return K.factor(self.site_precision[rows]).draw(size, source[int(rows[0])]).T

        return scatter(self.covariance.rows, self.covariance.each(drawn)).T


def each_block[Result](
    function: Callable[[int], Result], count: int, progress: str = "", *, anywhere: bool = False
) -> list[Result]:
    """Return results of a function of 0 to ``count`` - 1 in order, by joblib: in threads, or ``anywhere``."""
    with threads_for(1):
        n_jobs = effective_n_jobs(None)  # joblib would set it to 1 for threads by default
        run = Parallel(n_jobs, return_as="generator", prefer="threads", require=None if anywhere else "sharedmem")
        found = run(map(delayed(function), range(count)))
        return list(track(found, progress, count, transient=True) if progress else found)


def scatter[T: np.generic](rows: Sequence[Rows], parts: Sequence[NDArray[T]]) -> NDArray[T]:
    """Join the arrays of the blocks along the first axis, in the order of the rows."""
    order = np.concatenate(rows)
    joined = np.concatenate(parts)
    out = np.empty_like(joined)
    out[order] = joined
    return out

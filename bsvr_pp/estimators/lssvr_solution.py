"""Solution of least squares support vector regression: one linear system, or one for each of the local blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from bsvr_pp.covariance.block_diagonal import each_block
from bsvr_pp.inference.experts import combined
from bsvr_pp.model.blocks import Blocks

__all__ = ["BlockSolution", "Kernel", "Solution"]

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]

_DIAGONAL = 64  # rows of one call of the kernel for its diagonal


class _Terms(NamedTuple):
    """What a system adds to the restricted likelihood."""

    quadratic: float
    freedom: float
    half_log_det: float
    total: float


class Solution:
    """Solution of the system (6) of Mesquita et al. 2019 by one Cholesky factorisation of H = Ω + 1/(γ·weight).

    The evidence is that of N = Σ weight rows: log|H_N| = log|H| + Σ log weight - (N - n)·log γ.

    Parameters
    ----------
    kernel : callable
        Function of two sets of inputs.
    X, y, weight : (n, d), (n,) and (n,) arrays
        Inputs, targets and sample weights.
    gamma : float
        Weight of the squared errors.

    Attributes
    ----------
    alpha, loo_residuals : (n,) arrays
        Dual coefficients and leave-one-out residuals.
    b : float
        Bias.
    scale : float
        Scale of the prior variance at its optimum.
    log_evidence : float
        Restricted log likelihood.
    """

    def __init__(self, kernel: Kernel, X: Array, y: Array, gamma: float, weight: Array) -> None:
        n, count = y.size, float(weight.sum())
        self._kernel, self._X = kernel, X
        H = kernel(X, X) + np.diag(1.0 / (gamma * weight))
        self._factor = cho_factor(H, lower=True)
        self._ones = cho_solve(self._factor, np.ones(n))
        total = float(self._ones.sum())
        self.b = float(self._ones @ y) / total
        self.alpha: Array = cho_solve(self._factor, y - self.b)
        inverse = cho_solve(self._factor, np.eye(n))
        self.loo_residuals: Array = self.alpha / (np.diag(inverse) - self._ones**2 / total)
        half_log_det = np.log(np.diag(self._factor[0])).sum() + 0.5 * np.log(weight).sum()
        half_log_det -= 0.5 * (count - n) * np.log(gamma)
        self.terms = _Terms(max(float(y @ self.alpha), 0.0), count - 1.0, float(half_log_det), total)
        self.scale, self.log_evidence = _restricted([self.terms])

    def mean(self, new: Array) -> Array:
        """Mean of the function at new inputs."""
        return self._kernel(new, self._X) @ self.alpha + self.b

    def moments(self, new: Array) -> tuple[Array, Array]:
        """Mean of the function at new inputs, and its variance, including that of b."""
        mean, variance, _ = self.relative_moments(new)
        return mean, self.scale * variance

    def relative_moments(self, new: Array) -> tuple[Array, Array, Array]:
        """Mean, variance in units of the scale, and prior variance without that of b in these units."""
        cross = self._kernel(new, self._X)
        parts = np.array_split(new, max(1, -(-len(new) // _DIAGONAL)))
        prior = np.concatenate([np.diag(self._kernel(part, part)) for part in parts])
        solved = cho_solve(self._factor, cross.T)
        variance = prior - np.einsum("ij,ji->i", cross, solved) + (1.0 - solved.sum(axis=0)) ** 2 / self.terms.total
        return cross @ self.alpha + self.b, np.maximum(variance, 0.0), prior


class BlockSolution:
    """Systems of local blocks with their own biases, but one scale; attributes and parameters as of `Solution`.

    The function and its bias are independent between blocks. Predictions combine the nearest blocks as those of
    `bsvr_pp.predict` do. Factors are not stored, since they take the memory of all blocks: variances compute them
    again.

    Parameters
    ----------
    blocks : Blocks
        The blocks of the rows.
    nearest : int
        Number of blocks that a prediction combines.

    Attributes
    ----------
    b : (m,) array
        Bias of each block.
    """

    def __init__(
        self, kernel: Kernel, X: Array, y: Array, gamma: float, weight: Array, blocks: Blocks, nearest: int
    ) -> None:
        self._kernel, self._X, self._y, self._gamma, self._weight = kernel, X, y, gamma, weight
        self._blocks, self._nearest = blocks, nearest
        self.alpha, self.loo_residuals = np.empty(y.size), np.empty(y.size)
        self.b, terms = np.empty(len(blocks)), []

        def solved(block: int) -> tuple[Array, Array, float, _Terms]:
            found = self._solution(block)
            return found.alpha, found.loo_residuals, found.b, found.terms

        for block, (alpha, residuals, b, term) in enumerate(each_block(solved, len(blocks))):
            rows = blocks.rows(block)
            self.alpha[rows], self.loo_residuals[rows], self.b[block] = alpha, residuals, b
            terms.append(term)
        self.scale, self.log_evidence = _restricted(terms)

    def mean(self, new: Array) -> Array:
        """Mean of the function at new inputs."""
        if self._nearest > 1:
            return self.moments(new)[0]

        def of_block(block: int, at: Array) -> Array:
            rows = self._blocks.rows(block)
            mean: Array = self._kernel(at, self._X[rows]) @ self.alpha[rows] + self.b[block]
            return mean[None]

        return self._from_blocks(new, of_block, 1)[0, :, 0]

    def moments(self, new: Array) -> tuple[Array, Array]:
        """Mean and variance of the function at new inputs."""
        found = self._from_blocks(new, lambda block, at: np.stack(self._solution(block).relative_moments(at)), 3)
        mean, variance, prior = found
        variance, prior = self.scale * variance, self.scale * prior
        return (mean[:, 0], variance[:, 0]) if mean.shape[1] == 1 else combined(mean, variance, prior)

    def _solution(self, block: int) -> Solution:
        rows = self._blocks.rows(block)
        return Solution(self._kernel, self._X[rows], self._y[rows], self._gamma, self._weight[rows])

    def _from_blocks(self, new: Array, of_block: Callable[[int, Array], Array], count: int) -> Array:
        """Numbers (count, m, k) of the k nearest blocks of each new input, each block being asked once."""
        near = self._blocks.nearest(new, self._nearest)
        used = np.unique(near)
        where = [np.nonzero(near == block) for block in used]
        out = np.empty((count, *near.shape))
        for (rows, columns), found in zip(
            where, each_block(lambda i: of_block(int(used[i]), new[where[i][0]]), used.size), strict=True
        ):
            out[:, rows, columns] = found
        return out


def _restricted(terms: Sequence[_Terms]) -> tuple[float, float]:
    """Scale of the prior variance at its optimum, and restricted log likelihood there."""
    freedom = max(sum(term.freedom for term in terms), 1e-3)
    scale = sum(term.quadratic for term in terms) / freedom
    quadratic = 0.5 * freedom * np.log(2 * np.pi * max(scale, 1e-300)) + 0.5 * freedom
    determinants = sum(term.half_log_det + 0.5 * np.log(term.total) for term in terms)
    return scale, float(-quadratic - determinants)

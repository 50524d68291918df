"""A mean-field posterior of its own for each new input, on its nearest rows (local approximate Gaussian process).

At given hyperparameters f at a new input depends mostly on its neighbours. Here each new input has its own solve on k
rows (Gramacy & Apley 2015, with nearest neighbours as the rows, and with a support vector noise), of the cost k³. There
are no borders between regions, and all rows together need no solve. The posteriors of two inputs do not belong to one
model, so that there are no joint draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import types
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp._compiler import MATRIX, VECTOR, compiled
from bsvr_pp._separate import separate
from bsvr_pp.approximations.arguments import checked_problem
from bsvr_pp.approximations.covariance import Covariance
from bsvr_pp.approximations.mean_field import TARGET, fixed_point, mean_field_value
from bsvr_pp.approximations.sites import apply_inverse
from bsvr_pp.approximations.structure import split
from bsvr_pp.losses.pieces import PIECES, Pieces, empty

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["NearestMoments", "nearest_moments"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_SWEEPS = 1000  # largest number of sweeps of a solve
_MISMATCH = 1e-4  # moment mismatch that ends the sweeps
_TOLERANCE = 1e-2  # moment mismatch that counts as converged if rounding errors stop the sweeps earlier


class NearestMoments(NamedTuple):
    """Moments of f at new inputs.

    Attributes
    ----------
    mean, variance : (m,) arrays
        Mean and variance of f.
    converged : (m,) array of bool
        Whether the solve of each new input converged.
    """

    mean: Array
    variance: Array
    converged: NDArray[np.bool_]


def nearest_moments(
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    K_star: ArrayLike,
    k_star_diag: ArrayLike,
    neighbours: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    mean_star: ArrayLike = 0.0,
) -> NearestMoments:
    """Moments of f at new inputs, each given its own neighbours by mean field.

    Parameters
    ----------
    K : (n, n) array or Covariance
        Prior covariance of the training inputs.
    y : (n,) array
        Targets.
    noise : NoiseModel
        Any loss of `bsvr_pp.losses`.
    K_star : (m, n) array
        Prior covariance between the new and the training inputs.
    k_star_diag : (m,) array
        Prior variance at the new inputs.
    neighbours : (m, k) array of int
        Numbers of the training rows that each new input is given.
    mean : (n,) array, optional
        Prior mean at the training inputs.
    mean_star : (m,) array or float
        Prior mean at the new inputs.

    Returns
    -------
    NearestMoments

    Raises
    ------
    ValueError
        If the shapes do not fit, something is not finite, or a neighbour is not the number of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import mean_field, nearest_moments
    >>> from bsvr_pp.losses import laplace
    >>> x, y = np.arange(6.0), np.array([0.0, 1.0, 0.0, -1.0, 0.0, 1.0])
    >>> K, K_star = (np.exp(-0.5 * (at[:, None] - x) ** 2) for at in (x, np.array([0.5, 4.5])))
    >>> found = nearest_moments(K, y, laplace(C=5.0), K_star, np.ones(2), [[0, 1, 2], [5, 4, 3]])
    >>> alone = mean_field(K[:3, :3], y[:3], laplace(C=5.0)).predict(K_star[:1, :3], [1.0])
    >>> bool(np.allclose([found.mean[0], found.variance[0]], np.ravel(alone), atol=1e-5))
    True
    """
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    cross = numbers("K_star", K_star, ("n_new", residual.size))
    diagonal = numbers("k_star_diag", k_star_diag, (len(cross),))
    offset = numbers("mean_star", mean_star)
    if offset.shape not in ((), diagonal.shape):
        raise ValueError(f"mean_star must be a number or a ({len(cross)},) array, got shape {offset.shape}")
    index = np.ascontiguousarray(neighbours)
    if index.ndim != 2 or index.dtype.kind not in "iu" or len(index) != len(cross) or index.shape[1] == 0:
        raise ValueError(f"neighbours must be an ({len(cross)}, k) array of integers, got shape {index.shape}")
    wrong = index[(index < 0) | (index >= residual.size)]
    if wrong.size:
        raise ValueError(f"neighbours must be numbers of rows from 0 to {residual.size - 1}, got {wrong[0]}")
    structure = covariance.structure
    whole = structure.matrix if structure.matrix.size else covariance.dense()
    found, variance, converged = _each(
        whole, float(structure.diagonal[0]), residual, pieces, cross, diagonal, index.astype(np.int64)
    )
    return NearestMoments(offset + found, np.maximum(variance, 0.0), converged > 0)


@compiled
def _rows_of(pieces: Pieces, rows: Rows) -> Pieces:
    """The energies of some points."""
    if pieces.knots.shape[0] == 1:
        return pieces
    out = empty(pieces.d_energy.shape[0], rows.shape[0], pieces.knots.shape[1])
    for p in range(rows.shape[0]):
        row = rows[p]
        out.knots[p], out.value[p] = pieces.knots[row], pieces.value[row]
        out.slope[p], out.curvature[p] = pieces.slope[row], pieces.curvature[row]
        out.d_energy[:, p], out.d_log_normalizer[:, p] = pieces.d_energy[:, row], pieces.d_log_normalizer[:, row]
        out.log_normalizer[p] = pieces.log_normalizer[row]
    return out


@separate(
    types.UniTuple(VECTOR, 3),
    MATRIX,
    types.float64,
    VECTOR,
    PIECES,
    MATRIX,
    VECTOR,
    types.Array(types.int64, 2, "C"),
)
def _each(
    K: Array, jitter: float, t: Array, pieces: Pieces, cross: Array, diagonal: Array, neighbours: Rows
) -> tuple[Array, Array, Array]:
    """Mean minus prior mean, variance, and 1 if the solve converged, of each new input."""
    m, k = neighbours.shape
    mean, variance, converged = np.empty(m), np.empty(m), np.zeros(m)
    own, target, covariance = np.empty((k, k)), np.empty(k), np.empty(k)
    nowhere = np.zeros((2, k))
    for i in range(m):
        for p in range(k):
            row = neighbours[i, p]
            target[p] = t[row]
            covariance[p] = cross[i, row]
            for q in range(k):
                own[p, q] = K[row, neighbours[i, q]]
        structure, table = split(own, jitter), _rows_of(pieces, neighbours[i])
        found, _ = fixed_point(structure, target, table, _SWEEPS, _MISMATCH, nowhere)
        if not found.converged:  # without a root, which is too inaccurate for very narrow sites, and from the mode
            found, _ = mean_field_value(structure, target, table, _SWEEPS, TARGET)
        mean[i] = np.dot(covariance, found.dual_coef)
        at_sites = covariance[found.sites.points]
        variance[i] = diagonal[i] - np.dot(at_sites, apply_inverse(found.sites, at_sites))
        converged[i] = 1.0 if found.mismatch <= _TOLERANCE else 0.0
    return mean, variance, converged

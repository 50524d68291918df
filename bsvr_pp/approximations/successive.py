"""Evidences along a path of hyperparameters: each solve begins where the last one ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp.approximations.checks import checked_problem
from bsvr_pp.approximations.laplace import Gradient, laplace_core, named_parameters
from bsvr_pp.approximations.mean_field import mean_field_core
from bsvr_pp.approximations.products import split

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["EvidencePath"]

_APPROXIMATIONS = ("laplace", "mean_field")


class EvidencePath:
    """`laplace_gradient` or `mean_field_gradient` along a path of hyperparameters.

    Settings that follow one another in a search are close, and so are their modes and sites. What is found is what the
    functions find, to the tolerance of their solves, in fewer steps.

    Parameters
    ----------
    approximation : {"laplace", "mean_field"}
        Laplace with exact curvature, or mean field.

    Raises
    ------
    ValueError
        If there is no such approximation.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import EvidencePath
    >>> from bsvr_pp.losses import gaussian
    >>> path = EvidencePath("mean_field")
    >>> [round(path.gradient(v * np.eye(1), [1.0], gaussian(C=1.0))[0], 4) for v in (1.0, 1.1)]
    [-1.5155, -1.528]
    """

    def __init__(self, approximation: Literal["laplace", "mean_field"]) -> None:
        if approximation not in _APPROXIMATIONS:
            raise ValueError(f"approximation must be one of {', '.join(_APPROXIMATIONS)}, got {approximation!r}")
        self.approximation = approximation
        self._sites = np.zeros((2, 0))

    def gradient(
        self, K: ArrayLike, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None, jitter: float = 0.0
    ) -> tuple[float, Gradient]:
        """Log evidence and its gradient; parameters and errors are those of the functions."""
        matrix, residual, _, pieces = checked_problem(K, y, noise, mean)
        n = residual.size
        start = self._sites if self._sites.shape[1] == n else np.zeros((2, n))
        if self.approximation == "laplace":  # the derivative takes the matrix's place
            found = laplace_core(split(matrix.copy(), jitter), residual, pieces, False, start)
        else:
            found = mean_field_core(split(matrix, jitter), residual, pieces, start)
        value, d_K, d_residual, d_parameters, _, converged, sites = found
        if converged:
            self._sites = sites
        return value, Gradient(d_K, -d_residual, named_parameters(noise, d_parameters))

"""Evidences along a path of hyperparameters: each solve is warm-started from the previous solution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp.approximations.arguments import checked_problem
from bsvr_pp.approximations.covariance import Covariance
from bsvr_pp.approximations.laplace import Gradient, laplace_core, named_parameters
from bsvr_pp.approximations.mean_field import TARGET, mean_field_core

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["EvidencePath"]

_APPROXIMATIONS = ("laplace", "mean_field")


class EvidencePath:
    """`laplace_gradient` or `mean_field_gradient` along a path of hyperparameters.

    Successive settings of an optimisation are close, and so are their modes and sites. The results are those of the
    functions, up to the tolerance of their solves, with fewer steps.

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
        self, K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None
    ) -> tuple[float, Gradient]:
        """Log evidence and its gradient; parameters and errors are those of the functions."""
        covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
        n = residual.size
        start, by_K = self._sites if self._sites.shape[1] == n else np.zeros((2, n)), np.empty((n, n))
        if self.approximation == "laplace":
            found, by = laplace_core(covariance.structure, residual, pieces, False, start, by_K)
        else:
            found, by = mean_field_core(covariance.structure, residual, pieces, start, by_K, TARGET)
        if found.converged:
            self._sites = np.stack([found.dual_coef, found.site_precision])
        return found.value, Gradient(by_K, -by.residual, named_parameters(noise, by.parameters))

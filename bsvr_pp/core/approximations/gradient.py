"""Log evidences of the approximations with their gradients, as functions of arrays."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp.core.approximations.laplace import Curvature, is_local, laplace_core
from bsvr_pp.core.approximations.mean_field import TARGET, mean_field_core
from bsvr_pp.core.approximations.posterior import Outcome, check_mode, checked_problem
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.losses import NoiseModel

_APPROXIMATIONS = ("laplace", "mean_field")


class Gradient(NamedTuple):
    """Gradient of a log evidence.

    Attributes
    ----------
    K : (n, n) array
        Derivative by the prior covariance: the change for a symmetric dK is the sum of K∘dK; of `Covariance.from_root`
        the derivative by the root (n, r).
    mean : (n,) array
        Derivative by the prior mean; the derivative by the targets is its negative.
    parameters : dict
        Derivative by each parameter of the loss, with the shape of the parameter.
    """

    K: Array
    mean: Array
    parameters: dict[str, float | Array]


def laplace_gradient(
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    *,
    mean: ArrayLike | None = None,
    curvature: Curvature = "exact",
) -> tuple[float, Gradient]:
    """Log evidence of `laplace` and its gradient: Chu, Keerthi & Ong 2004, (38)-(40), for any kernel and loss.

    Parameters and errors are those of `laplace`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import laplace_gradient
    >>> from bsvr_pp.losses import gaussian
    >>> value, gradient = laplace_gradient(np.eye(1), [1.0], gaussian(C=1.0))
    >>> gradient.K.round(6).tolist(), gradient.mean.round(6).tolist()
    ([[-0.125]], [0.5])
    """
    which = "laplace_local" if is_local(curvature) else "laplace"
    return _gradient(which, K, y, noise, mean, None)[1:]


def mean_field_gradient(
    K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None
) -> tuple[float, Gradient]:
    """Log evidence of `mean_field` and its gradient at the fixed point.

    Parameters and errors are those of `mean_field`.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import mean_field_gradient
    >>> from bsvr_pp.losses import gaussian
    >>> value, gradient = mean_field_gradient(np.eye(1), [1.0], gaussian(C=1.0))
    >>> gradient.K.round(6).tolist(), gradient.mean.round(6).tolist()
    ([[-0.125]], [0.5])
    """
    return _gradient("mean_field", K, y, noise, mean, None)[1:]


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
        self._sites: Array | None = None

    def gradient(
        self, K: ArrayLike | Covariance, y: ArrayLike, noise: NoiseModel, *, mean: ArrayLike | None = None
    ) -> tuple[float, Gradient]:
        """Log evidence and its gradient; parameters and errors are those of the functions."""
        found, value, gradient = _gradient(self.approximation, K, y, noise, mean, self._sites)
        if found.converged:
            self._sites = np.stack([found.dual_coef, found.site_precision])
        return value, gradient


def _gradient(
    approximation: str,
    K: ArrayLike | Covariance,
    y: ArrayLike,
    noise: NoiseModel,
    mean: ArrayLike | None,
    start: Array | None,
) -> tuple[Outcome, float, Gradient]:
    """Solve from a start (2, n), or from the prior: the outcome, the log evidence and its gradient."""
    if approximation != "mean_field":
        check_mode(noise)
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    n = residual.size
    begin = start if start is not None and start.shape[1] == n else np.zeros((2, n))
    given = covariance.structure, residual, pieces
    if approximation == "mean_field":
        found, by = mean_field_core(*given, begin, TARGET)
    else:
        found, by = laplace_core(*given, approximation == "laplace_local", begin)
    parameters = {
        name: float(row.sum()) if np.ndim(value) == 0 else row
        for (name, value), row in zip(noise.parameters.items(), by.parameters, strict=True)
    }
    return found, found.value, Gradient(by.K, -by.residual, parameters)

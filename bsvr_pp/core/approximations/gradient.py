"""Log evidences of the approximations with their gradients, as functions of arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp.core.approximations.laplace import Curvature, is_local, laplace_core
from bsvr_pp.core.approximations.mean_field import TARGET, mean_field_core
from bsvr_pp.core.approximations.posterior import Gradients, Outcome, check_mode, checked_problem
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.losses import NoiseModel


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
    check_mode(noise)
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    start = np.zeros((2, residual.size))
    return _named(noise, *laplace_core(covariance.structure, residual, pieces, is_local(curvature), start))


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
    covariance, residual, _, pieces = checked_problem(K, y, noise, mean)
    return _named(noise, *mean_field_core(covariance.structure, residual, pieces, np.zeros((2, residual.size)), TARGET))


def _named(noise: NoiseModel, found: Outcome, by: Gradients) -> tuple[float, Gradient]:
    """The log evidence and its gradient by the parameters of the noise as they were given."""
    parameters = {
        name: float(row.sum()) if np.ndim(value) == 0 else row
        for (name, value), row in zip(noise.parameters.items(), by.parameters, strict=True)
    }
    return found.value, Gradient(by.K, -by.residual, parameters)

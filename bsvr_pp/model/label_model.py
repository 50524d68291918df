"""The default model for labels: a linear function, an offset, and a smooth deviation."""

from __future__ import annotations

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import check_size, numbers
from bsvr_pp.model.gp import GP
from bsvr_pp.model.priors import KERNELS, Kernel
from bsvr_pp.model.svm_label import SVMLabel
from bsvr_pp.model.weighted_targets import observe_weighted

__all__ = ["default_label_model", "standard_label_model"]

Array = NDArray[np.float64]

_JITTER = 1e-5
_COMMON, _OWN = 9.0, 0.25  # variances of the log lengthscales: of the common factor, and of each


def default_label_model(X: ArrayLike, y: ArrayLike, *, ard: bool = True, kernel: Kernel = "rbf") -> pm.Model:
    """Make a support vector classifier with default priors, for inputs of any scale.

    With u = x/lengthscale, where there is one lengthscale per input or one for all, the kernel is

        amplitude·k(u, u') + linear·u·u' + offset,

    where k is exp(-½|u - u'|²) or another kernel with k(u, u) = 1. Without the linear part a smooth boundary requires a
    large amplitude and long lengthscales, and the evidence hardly depends on these lengthscales. All hyperparameters
    are log-normal:

    - ``C`` around log 2 within a factor e: there ν, the probability that a label is known, is 0.8 both at f = 0 and for
      large |f|, and the model is nearest to one with sigmoid labels;
    - ``amplitude`` and ``linear`` around 10 within e³, so that log odds are a few units;
    - ``offset``, the variance B² of Sollich 2002, (3), around 1 within e;
    - ``log_lengthscale``: the lengthscales are around w·√(2d), where w is the standard deviation of each of d inputs,
      within e³, and around each other within √e.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Labels -1 and +1.
    ard : bool
        Whether every input has its own lengthscale.
    kernel : {"rbf", "rational_quadratic", "matern32", "matern52", "linear"} or callable
        The kernel k; with "linear" there is only the linear part. A function is called inside the model with the
        inputs, and returns a kernel of `pm.gp.cov` with its priors; only the offset is added.

    Returns
    -------
    pm.Model
        The model with the data X and targets, and the variables C, amplitude, linear, offset, log_lengthscale, f, y.

    Raises
    ------
    ValueError
        If the data are invalid.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-1, 1, 10)[:, None]
    >>> model = bp.default_label_model(X, np.sign(X[:, 0]))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'amplitude', 'f_rotated_', 'linear', 'log_lengthscale', 'offset']
    """
    inputs = numbers("X", X, ("n", "d"))
    labels = numbers("y", y, (len(inputs),))
    check_size("X", inputs)
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(f"y must hold the labels -1 and +1, got {labels[~np.isin(labels, (-1.0, 1.0))][0]}")
    if not callable(kernel) and kernel not in KERNELS:
        raise ValueError(f"kernel must be {', '.join(KERNELS)} or a function of the inputs, got {kernel!r}")
    width = np.std(inputs, axis=0)
    return _model(inputs, labels, np.where(width > 0, width, 1.0), ard, kernel, None)


def standard_label_model(X: Array, y: Array, *, ard: bool, kernel: Kernel, weight: Array | None = None) -> pm.Model:
    """`default_label_model` of standardised inputs, without checks; ``weight`` (n,) are sample weights."""
    return _model(X, y, np.ones(X.shape[1]), ard, kernel, weight)


def _model(X: Array, y: Array, width: Array, ard: bool, kernel: Kernel, weight: Array | None) -> pm.Model:
    with pm.Model() as model:
        C = pm.LogNormal("C", np.log(np.log(2.0)), 1.0)
        covariance = kernel(X) if callable(kernel) else _covariance(kernel, width, ard)
        offset = pm.LogNormal("offset", 0.0, 1.0)
        f = GP(cov_func=covariance + pm.gp.cov.Constant(offset)).prior("f", X=pm.Data("X", X), jitter=_JITTER)
        targets = pm.Data("targets", y)
        if weight is None:
            SVMLabel("y", f=f, C=C, observed=targets)
        else:
            observe_weighted("y", SVMLabel.dist(f=f, C=C), pm.Data("weight", weight), targets)
    return model


def _covariance(kernel: str, width: Array, ard: bool) -> pm.gp.cov.BaseCovariance:
    """The linear part and the deviation, with their priors."""
    d = width.size
    centre = np.log(width * np.sqrt(2.0 * d))
    amplitude = pm.LogNormal("amplitude", np.log(10.0), 3.0) if kernel != "linear" else None
    linear = pm.LogNormal("linear", np.log(10.0), 3.0)
    if ard and d > 1:
        factor = np.linalg.cholesky(_COMMON + _OWN * np.eye(d))
        lengthscale = pm.math.exp(pm.MvNormal("log_lengthscale", centre, chol=factor))
    else:
        lengthscale = pm.math.exp(pm.Normal("log_lengthscale", centre.mean(), np.sqrt(_COMMON + _OWN)))
    line = linear * KERNELS["linear"](d, lengthscale)
    return line if amplitude is None else amplitude * KERNELS[kernel](d, lengthscale) + line

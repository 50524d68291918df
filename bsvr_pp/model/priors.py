"""Default priors, which follow the scale of the data, and the default model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import (
    check_count,
    check_share,
    check_size,
    check_spread,
    check_varies,
    is_number,
    numbers,
)
from bsvr_pp.losses import LOSSES, NOISES
from bsvr_pp.model.gp import GP
from bsvr_pp.model.observation import observe

__all__ = ["KERNELS", "Kernel", "check_unused", "default_beta", "default_model", "default_priors", "standard_model"]

Array = NDArray[np.float64]
Kernel = Literal["rbf", "matern32", "matern52", "linear"] | Callable[[Array], pm.gp.cov.BaseCovariance]

KERNELS: dict[str, Callable[[int, Any], pm.gp.cov.BaseCovariance]] = {
    "rbf": lambda d, ls: pm.gp.cov.ExpQuad(d, ls=ls),
    "matern32": lambda d, ls: pm.gp.cov.Matern32(d, ls=ls),
    "matern52": lambda d, ls: pm.gp.cov.Matern52(d, ls=ls),
    "linear": lambda d, ls: pm.gp.cov.WarpedInput(d, pm.gp.cov.Linear(d, c=0.0), lambda x, ls: x / ls, args=(ls,)),
}

_MEDIAN = 0.5
_BIAS = 100.0  # variance of the constant kernel, relative to that of the target


def default_beta(n: int) -> float:
    """Choose the smooth fraction from the number of points (rule of Chu, Keerthi & Ong 2004, section V-C).

    The value is 0.8 below 100 points, where off-bound support vectors are few; 0.3 below 2000; 0.1 below 4000; 0.05
    below 6000; and smaller above.

    Raises
    ------
    ValueError
        If n is not an integer of at least 1.

    Examples
    --------
    >>> from bsvr_pp.model.priors import default_beta
    >>> [default_beta(n) for n in (50, 500, 3000, 5000)]
    [0.8, 0.3, 0.1, 0.05]
    """
    check_count("n", n, 1)
    for limit, beta in ((100, 0.8), (2000, 0.3), (4000, 0.1), (6000, 0.05)):
        if n < limit:
            return beta
    return 0.02


def default_priors(X: ArrayLike, y: ArrayLike, *, ard: bool = True, noise: str = "soft_insensitive") -> dict[str, Any]:
    """Make the default hyperparameters in the surrounding model.

    With s the standard deviation of y and w that of an input, over d inputs:

    - ``lengthscale`` ~ LogNormal(log(w·√d), 1.0), one per input with ``ard`` (95 % between w√d/7 and 7w√d);
    - ``C`` ~ LogNormal(log(5/s), 1.5): the scale √2/C of the noise has the median 0.3 s and may be up to twenty times
      smaller or larger; if the loss grows as r², as for Gaussian noise of variance 1/C, LogNormal(log(12/s²), 2);
    - ``epsilon`` ~ LogNormal(log(0.1·s), 1.0), if the loss has this parameter.

    These priors are rows of `bsvr_pp.losses.tables.PARAMETERS`.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.
    noise : str
        Noise, as in `default_model`.

    Returns
    -------
    dict
        The random variables by name.

    Raises
    ------
    ValueError
        If the shapes do not fit, y is constant, or the noise is unknown.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     priors = bp.default_priors(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20.0))
    >>> sorted(priors)
    ['C', 'epsilon', 'lengthscale']
    """
    _, _, width, scale = _scales(X, y)
    _check_noise(noise)
    return _lengthscale(width, ard) | _noise_priors(scale, noise)


def _lengthscale(width: Array, ard: bool) -> dict[str, Any]:
    centre = np.log(width * np.sqrt(width.size))
    if ard and width.size > 1:
        return {"lengthscale": pm.LogNormal("lengthscale", centre, 1.0, shape=width.size)}
    return {"lengthscale": pm.LogNormal("lengthscale", float(np.mean(centre)), 1.0)}


def _noise_priors(scale: float, noise: str) -> dict[str, Any]:
    priors = {}
    for name in LOSSES[noise].parameters:
        parameter = LOSSES[noise].parameter(name)
        if parameter.prior is not None:
            median, sd = parameter.prior
            priors[name] = pm.LogNormal(name, np.log(median * scale**parameter.power), sd)
    return priors


def default_model(
    X: ArrayLike,
    y: ArrayLike,
    *,
    ard: bool = True,
    noise: str = "soft_insensitive",
    kernel: Kernel = "rbf",
    beta: float | None = None,
    quantile: float = _MEDIAN,
) -> pm.Model:
    """Make a support vector model with default priors: y = f(X) + noise.

    The kernel is var(y)·k(x, x') plus a constant of 100 times the mean square of y (Chu, Keerthi & Ong 2004, (41),
    with the signal variance fixed as there); k is 1 at distance 0, and x·x' of the scaled inputs for "linear".

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "laplace", "gaussian", "pinball"}
        A loss of residuals of `bsvr_pp.losses.LOSSES`. "pinball" is `pm.AsymmetricLaplace`: f is a quantile of y.
    kernel : {"rbf", "matern32", "matern52", "linear"} or callable
        A function is called inside the model with the inputs, and returns a kernel of `pm.gp.cov` with its priors; only
        the constant kernel is added.
    beta : float, optional
        Smooth fraction, only for the soft insensitive loss; by default `default_beta`.
    quantile : float
        Level of the quantile between 0 and 1, only for pinball noise.

    Returns
    -------
    pm.Model
        The model with the data X, targets (and beta), and the variables lengthscale, C, epsilon, f, y.

    Raises
    ------
    ValueError
        If the data or an option are invalid.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> model = bp.default_model(np.linspace(0, 1, 20)[:, None], np.sin(np.arange(20.0)))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'epsilon', 'f_rotated_', 'lengthscale']
    """
    inputs, targets, width, scale = _scales(X, y)
    _check_noise(noise)
    if not callable(kernel) and kernel not in KERNELS:
        raise ValueError(f"kernel must be {', '.join(KERNELS)} or a function of the inputs, got {kernel!r}")
    if beta is not None and not (is_number(beta) and 0 <= beta <= 1):
        raise ValueError(f"beta must lie between 0 and 1, got {beta!r}")
    check_share("quantile", quantile)
    check_unused(noise, kernel, beta=beta, quantile=quantile, ard=ard)
    chosen = {"beta": default_beta(len(inputs)) if beta is None else float(beta), "quantile": quantile}
    return _model(inputs, targets, width, scale, noise, kernel, ard, chosen)


def standard_model(
    X: Array, y: Array, *, noise: str, kernel: Kernel, ard: bool, beta: float, quantile: float
) -> pm.Model:
    """`default_model` of data that are standardised, without checks: inputs and targets have mean 0 and variance 1.

    Its priors do not depend on the data, so that models of different data have one structure.
    """
    chosen = {"beta": float(beta), "quantile": quantile}
    return _model(X, y, np.ones(X.shape[1]), 1.0, noise, kernel, ard, chosen, square=1.0)


def _model(
    inputs: Array,
    targets: Array,
    width: Array,
    scale: float,
    noise: str,
    kernel: Kernel,
    ard: bool,
    chosen: dict[str, Any],
    square: float | None = None,
) -> pm.Model:
    """The model, given the scales of the data, the parameters of the noise that have no prior, and the mean of y²."""
    with pm.Model() as model:
        at = pm.Data("X", inputs)
        if callable(kernel):
            covariance = kernel(inputs)
        else:
            covariance = scale**2 * KERNELS[kernel](inputs.shape[1], _lengthscale(width, ard)["lengthscale"])
        bias = _BIAS * (float(np.mean(targets**2)) if square is None else square)
        f = GP(cov_func=covariance + pm.gp.cov.Constant(bias)).prior("f", X=at, jitter=1e-6 * scale**2)
        if "beta" in LOSSES[noise].parameters:
            chosen = chosen | {"beta": pm.Data("beta", chosen["beta"])}
        parameters = chosen | _noise_priors(scale, noise)
        named = {name: parameters[name] for name in LOSSES[noise].parameters}
        observe("y", noise, f, named, pm.Data("targets", targets))
    return model


def check_unused(noise: str, kernel: Kernel, *, beta: Any, quantile: float, ard: bool) -> None:
    """Check that no option is given that the noise or the kernel would ignore.

    Raises
    ------
    ValueError
        Naming the option, its value and what it belongs to.
    """
    if beta not in (None, "auto") and "beta" not in LOSSES[noise].parameters:
        raise ValueError(f"beta is an option of soft_insensitive noise, got beta={beta!r} with {noise} noise")
    if quantile != _MEDIAN and "quantile" not in LOSSES[noise].parameters:
        raise ValueError(f"quantile is an option of pinball noise, got quantile={quantile!r} with {noise} noise")
    if callable(kernel) and not ard:
        raise ValueError("ard is an option of kernels by name, got ard=False with a kernel function")


def _check_noise(noise: str) -> None:
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {noise!r}")


def _scales(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Check inputs and targets, and compute their standard deviations."""
    inputs = numbers("X", X, ("n", "d"))
    targets = numbers("y", y, (len(inputs),))
    for name, values in (("X", inputs), ("y", targets)):
        check_size(name, values)
        check_spread(name, values)
    check_varies("y", targets)
    scale = float(np.std(targets))
    width = np.std(inputs, axis=0)
    return inputs, targets, np.where(width > 0, width, 1.0), scale

"""Default priors and the default model: scale-aware, for those who do not want to choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.checks import check_count, check_share, check_size, is_number, numbers
from bsvr_pp.distributions import EpsilonInsensitive, Huber, SoftInsensitive
from bsvr_pp.gp import GP

__all__ = ["KERNELS", "NOISES", "Kernel", "default_beta", "default_model", "default_priors"]

Array = NDArray[np.float64]
Kernel = Literal["rbf", "matern32", "matern52", "linear"] | Callable[[Array], pm.gp.cov.BaseCovariance]

NOISES = ("soft_insensitive", "epsilon_insensitive", "huber", "laplace", "gaussian", "quantile")
KERNELS: dict[str, Callable[[int, Any], pm.gp.cov.BaseCovariance]] = {
    "rbf": lambda d, ls: pm.gp.cov.ExpQuad(d, ls=ls),
    "matern32": lambda d, ls: pm.gp.cov.Matern32(d, ls=ls),
    "matern52": lambda d, ls: pm.gp.cov.Matern52(d, ls=ls),
    "linear": lambda d, ls: pm.gp.cov.WarpedInput(d, pm.gp.cov.Linear(d, c=0.0), lambda x, ls: x / ls, args=(ls,)),
}

_BIAS = 100.0  # variance of the constant kernel, in variances of the target


def default_beta(n: int) -> float:
    """Smooth fraction by the rule of Chu, Keerthi & Ong 2004, section V-C, from the number of training points.

    0.8 below 100 points, where off-bound support vectors are few; 0.3 below 2000; 0.1 to 4000; 0.05 to 6000; less
    beyond.

    Raises
    ------
    ValueError
        If n is not an integer of at least 1.

    Examples
    --------
    >>> from bsvr_pp.priors import default_beta
    >>> [default_beta(n) for n in (50, 500, 3000, 5000)]
    [0.8, 0.3, 0.1, 0.05]
    """
    check_count("n", n, 1)
    for limit, beta in ((100, 0.8), (2000, 0.3), (4000, 0.1), (6000, 0.05)):
        if n < limit:
            return beta
    return 0.02


def default_priors(X: ArrayLike, y: ArrayLike, *, ard: bool = True, loss: str = "soft_insensitive") -> dict[str, Any]:
    """Make the default hyperparameters in the surrounding model.

    With s the standard deviation of y and w that of an input, over d inputs:

    - ``lengthscale`` ~ LogNormal(log(w·√d), 1.0), one an input with ``ard`` (95 % between w√d/7 and 7w√d);
    - ``C`` ~ LogNormal(log(5/s), 1.5): the noise, of scale √2/C, is 0.3 s and up to twenty times less or more; for
      Gaussian noise, of variance 1/C, LogNormal(log(12/s²), 2);
    - ``epsilon`` ~ LogNormal(log(0.1·s), 1.0), of a loss that has one.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.
    loss : str
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
    _check_noise(loss)
    return _lengthscale(width, ard) | _noise_priors(scale, loss)


def _lengthscale(width: Array, ard: bool) -> dict[str, Any]:
    centre = np.log(width * np.sqrt(width.size))
    if ard and width.size > 1:
        return {"lengthscale": pm.LogNormal("lengthscale", centre, 1.0, shape=width.size)}
    return {"lengthscale": pm.LogNormal("lengthscale", float(np.mean(centre)), 1.0)}


def _noise_priors(scale: float, loss: str) -> dict[str, Any]:
    if loss == "gaussian":
        return {"C": pm.LogNormal("C", np.log(12.0 / scale**2), 2.0)}
    priors = {"C": pm.LogNormal("C", np.log(5.0 / scale), 1.5)}
    if loss in ("soft_insensitive", "epsilon_insensitive", "huber"):
        priors["epsilon"] = pm.LogNormal("epsilon", np.log(0.1 * scale), 1.0)
    return priors


def default_model(
    X: ArrayLike,
    y: ArrayLike,
    *,
    ard: bool = True,
    loss: str = "soft_insensitive",
    kernel: Kernel = "rbf",
    beta: float | None = None,
    quantile: float = 0.5,
) -> pm.Model:
    """A support vector model with default priors: y = f(X) + noise.

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
    loss : {"soft_insensitive", "epsilon_insensitive", "huber", "laplace", "gaussian", "quantile"}
        Noise. "quantile" is that of `pm.AsymmetricLaplace`: f is a quantile of y.
    kernel : {"rbf", "matern32", "matern52", "linear"} or callable
        A function is called inside the model with the inputs, and gives a kernel of `pm.gp.cov` with its priors;
        nothing but the constant is added.
    beta : float, optional
        Smooth fraction of the soft insensitive loss; by default `default_beta`.
    quantile : float
        Of quantile noise, between 0 and 1.

    Returns
    -------
    pm.Model
        With the data X, targets (and beta), and the variables lengthscale, C, epsilon, f, y.

    Raises
    ------
    ValueError
        If the data or an option are not what they should be.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> model = bp.default_model(np.linspace(0, 1, 20)[:, None], np.sin(np.arange(20.0)))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'epsilon', 'f_rotated_', 'lengthscale']
    """
    inputs, targets, width, scale = _scales(X, y)
    _check_noise(loss)
    if not callable(kernel) and kernel not in KERNELS:
        raise ValueError(f"kernel must be {', '.join(KERNELS)} or a function of the inputs, got {kernel!r}")
    if beta is not None and not (is_number(beta) and 0 <= beta <= 1):
        raise ValueError(f"beta must lie between 0 and 1, got {beta!r}")
    check_share("quantile", quantile)
    n, d = inputs.shape
    with pm.Model() as model:
        at = pm.Data("X", inputs)
        if callable(kernel):
            covariance = kernel(inputs)
        else:
            covariance = scale**2 * KERNELS[kernel](d, _lengthscale(width, ard)["lengthscale"])
        bias = _BIAS * float(np.mean(targets**2))
        f = GP(cov_func=covariance + pm.gp.cov.Constant(bias)).prior("f", X=at, jitter=1e-6 * scale**2)
        parameters = _noise_priors(scale, loss)
        observed = {"mu": f, "observed": pm.Data("targets", targets)}
        C = parameters["C"]
        if loss == "soft_insensitive":
            smooth = pm.Data("beta", default_beta(n) if beta is None else float(beta))
            SoftInsensitive("y", C=C, epsilon=parameters["epsilon"], beta=smooth, **observed)
        elif loss == "epsilon_insensitive":
            EpsilonInsensitive("y", C=C, epsilon=parameters["epsilon"], **observed)
        elif loss == "huber":
            Huber("y", C=C, epsilon=parameters["epsilon"], **observed)
        elif loss == "laplace":
            pm.Laplace("y", b=1 / C, **observed)
        elif loss == "gaussian":
            pm.Normal("y", sigma=C**-0.5, **observed)
        else:
            # PyMC's b is C·√(q(1-q)) and its kappa √(q/(1-q))
            pm.AsymmetricLaplace("y", b=C * (quantile * (1 - quantile)) ** 0.5, q=quantile, **observed)
    return model


def _check_noise(loss: str) -> None:
    if loss not in NOISES:
        raise ValueError(f"loss must be one of {', '.join(NOISES)}, got {loss!r}")


def _scales(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Checked inputs and targets, and their standard deviations."""
    inputs = numbers("X", X, ("n", "d"))
    targets = numbers("y", y, (len(inputs),))
    check_size("X", inputs)
    check_size("y", targets)
    scale = float(np.std(targets))
    if not scale**2 > 0:
        raise ValueError(f"y must not be constant, got {targets[0]} throughout, up to {np.ptp(targets):.1g}")
    width = np.std(inputs, axis=0)
    return inputs, targets, np.where(width > 0, width, 1.0), scale

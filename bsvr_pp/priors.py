"""Default priors and the default model: scale-aware, for those who do not want to choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.distributions import EpsilonInsensitive, Huber, SoftInsensitive
from bsvr_pp.gp import GP

__all__ = ["default_beta", "default_model", "default_priors"]

_BIAS = 100.0  # variance of the constant kernel, in variances of the target


def default_beta(n: int) -> float:
    """Smooth fraction by the rule of Chu, Keerthi & Ong 2004, section V-C, from the number of training points.

    0.8 below 100 points, where off-bound support vectors are few; 0.3 below 2000; 0.1 to 4000; 0.05 to 6000; less
    beyond.

    Examples
    --------
    >>> from bsvr_pp.priors import default_beta
    >>> [default_beta(n) for n in (50, 500, 3000, 5000)]
    [0.8, 0.3, 0.1, 0.05]
    """
    for limit, beta in ((100, 0.8), (2000, 0.3), (4000, 0.1), (6000, 0.05)):
        if n < limit:
            return beta
    return 0.02


def default_priors(X: ArrayLike, y: ArrayLike, *, ard: bool = True) -> dict[str, Any]:
    """Make the default hyperparameters in the surrounding model.

    With s the standard deviation of y and w that of an input, over d inputs:

    - ``lengthscale`` ~ LogNormal(log(w·√d), 1.0), one an input with ``ard`` (95 % between w√d/7 and 7w√d);
    - ``C`` ~ LogNormal(log(5/s), 1.5): the noise, of scale √2/C, is 0.3 s and up to twenty times less or more;
    - ``epsilon`` ~ LogNormal(log(0.1·s), 1.0).

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.

    Returns
    -------
    dict
        The random variables by name.

    Raises
    ------
    ValueError
        If the shapes do not fit, or y is constant.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     priors = bp.default_priors(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20.0))
    >>> sorted(priors)
    ['C', 'epsilon', 'lengthscale']
    """
    inputs, _targets, width, scale = _scales(X, y)
    d = inputs.shape[1]
    centre = np.log(width * np.sqrt(d))
    if ard and d > 1:
        lengthscale = pm.LogNormal("lengthscale", centre, 1.0, shape=d)
    else:
        lengthscale = pm.LogNormal("lengthscale", float(np.mean(centre)), 1.0)
    return {
        "lengthscale": lengthscale,
        "C": pm.LogNormal("C", np.log(5.0 / scale), 1.5),
        "epsilon": pm.LogNormal("epsilon", np.log(0.1 * scale), 1.0),
    }


def default_model(
    X: ArrayLike, y: ArrayLike, *, ard: bool = True, loss: str = "soft_insensitive", beta: float | None = None
) -> pm.Model:
    """A support vector model with default priors: y = f(X) + noise.

    The kernel is var(y)·exp(-½ Σ (x - x')²/lengthscale²) plus a constant of 100 times the mean square of y
    (Chu, Keerthi & Ong 2004, (41), with the signal variance fixed as there).

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.
    loss : {"soft_insensitive", "epsilon_insensitive", "huber"}
        Noise.
    beta : float, optional
        Smooth fraction of the soft insensitive loss; by default `default_beta`.

    Returns
    -------
    pm.Model
        With the variables lengthscale, C, epsilon, f, y.

    Raises
    ------
    ValueError
        If the data or the loss are not what they should be.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> model = bp.default_model(np.linspace(0, 1, 20)[:, None], np.sin(np.arange(20.0)))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'epsilon', 'f_rotated_', 'lengthscale']
    """
    inputs, targets, _, scale = _scales(X, y)
    if loss not in ("soft_insensitive", "epsilon_insensitive", "huber"):
        raise ValueError(f"loss must be soft_insensitive, epsilon_insensitive or huber, got {loss!r}")
    n, d = inputs.shape
    with pm.Model() as model:
        priors = default_priors(inputs, targets, ard=ard)
        bias = _BIAS * float(np.mean(targets**2))
        kernel = scale**2 * pm.gp.cov.ExpQuad(d, ls=priors["lengthscale"]) + pm.gp.cov.Constant(bias)
        f = GP(cov_func=kernel).prior("f", X=inputs, jitter=1e-6 * scale**2)
        noise = {"mu": f, "C": priors["C"], "epsilon": priors["epsilon"], "observed": targets}
        if loss == "soft_insensitive":
            SoftInsensitive("y", beta=default_beta(n) if beta is None else beta, **noise)
        elif loss == "huber":
            Huber("y", **noise)
        else:
            EpsilonInsensitive("y", **noise)
    return model


def _scales(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Checked inputs and targets, and their standard deviations."""
    inputs, targets = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if inputs.ndim != 2 or 0 in inputs.shape:
        raise ValueError(f"X must be an (n, d) array, got shape {inputs.shape}")
    if targets.shape != (len(inputs),):
        raise ValueError(f"y must be a ({len(inputs)},) array as X has {len(inputs)} rows, got shape {targets.shape}")
    if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
        raise ValueError("X and y must be finite")
    scale = float(np.std(targets))
    if not scale > 0:
        raise ValueError(f"y must not be constant, got {targets[0]} throughout")
    width = np.std(inputs, axis=0)
    return inputs, targets, np.where(width > 0, width, 1.0), scale

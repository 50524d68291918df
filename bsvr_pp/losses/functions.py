"""One function per loss, which makes its noise model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp.losses.noise import NoiseModel
from bsvr_pp.losses.tables import LOSSES, PARAMETERS

__all__ = [
    "epsilon_insensitive",
    "gaussian",
    "hinge",
    "huber",
    "laplace",
    "noise_function",
    "parameters_in_unit",
    "pinball",
    "soft_insensitive",
    "unit_noise",
    "widened",
]


def unit_noise(loss: str, **parameters: Any) -> NoiseModel:
    """Make the noise of a loss in its own units: parameters that are not given are 1, and shares one half.

    Parameters
    ----------
    loss : str
        Key of `LOSSES`.
    **parameters
        Values of some parameters; parameters that the loss does not have are ignored.

    Examples
    --------
    >>> from bsvr_pp.losses.functions import unit_noise
    >>> unit_noise("huber", beta=0.3), unit_noise("huber").smooth, unit_noise("laplace").smooth
    (huber(C=1, epsilon=1), True, False)
    """
    names = LOSSES[loss].parameters
    return _make(loss, **{p: parameters.get(p, 0.5 if PARAMETERS[p].prior is None else 1.0) for p in names})


def widened(noise: NoiseModel, factor: ArrayLike) -> NoiseModel:
    """Make the noise of a loss wider by a factor: that of factor·r, where r has the noise.

    Parameters
    ----------
    noise : NoiseModel
        A noise without weights and intervals.
    factor : float or (n,) array
        Factors, > 0.

    Examples
    --------
    >>> from bsvr_pp.losses import gaussian, soft_insensitive
    >>> from bsvr_pp.losses.functions import widened
    >>> widened(soft_insensitive(C=4.0, epsilon=0.1, beta=0.8), 2.0), widened(gaussian(C=4.0), 2.0)
    (soft_insensitive(C=2, epsilon=0.2, beta=0.8), gaussian(C=1))
    """
    return _make(noise.name, **parameters_in_unit(noise, np.asarray(factor, dtype=np.float64)))


def parameters_in_unit(noise: NoiseModel, unit: Any) -> dict[str, Any]:
    """The parameters of a noise whose residuals are multiplied by a unit: each times that power of it which it has.

    Examples
    --------
    >>> from bsvr_pp.losses import gaussian
    >>> from bsvr_pp.losses.functions import parameters_in_unit
    >>> parameters_in_unit(gaussian(C=4.0), 2.0)
    {'C': 1.0}
    """
    given = noise.parameters.items()
    return {name: value * unit ** noise.kind.parameter(name).power for name, value in given}


def _make(loss: str, **parameters: Any) -> NoiseModel:
    return NoiseModel(LOSSES[loss], parameters)


def noise_function(loss: str) -> Callable[..., NoiseModel]:
    """Return the function that makes the noise model of a loss from its parameters, such as `soft_insensitive`.

    Parameters
    ----------
    loss : str
        Key of `LOSSES`.

    Examples
    --------
    >>> from bsvr_pp.losses.functions import noise_function
    >>> noise_function("huber")(1.0, epsilon=0.5)
    huber(C=1, epsilon=0.5)
    """

    def make(*values: ArrayLike, **named: ArrayLike) -> NoiseModel:
        given = dict(zip(LOSSES[loss].parameters, values, strict=False)) | named
        if len(values) + len(named) != len(given) or set(given) != set(LOSSES[loss].parameters):
            raise TypeError(f"{loss} takes {', '.join(LOSSES[loss].parameters)}, got {', '.join(given) or 'nothing'}")
        return _make(loss, **given)

    make.__name__ = make.__qualname__ = loss
    return make


def soft_insensitive(C: ArrayLike, epsilon: ArrayLike, beta: ArrayLike) -> NoiseModel:
    """Soft insensitive loss (SILF) of Chu, Keerthi & Ong 2004, (11).

    With t = clip(|r| - (1-beta)·epsilon, 0, 2·beta·epsilon) the loss is t²/(4·beta·epsilon) + max(|r| -
    (1+beta)·epsilon, 0): zero in the tube, then quadratic, then linear.

    Parameters
    ----------
    C : float or (n,) array
        Inverse noise scale, > 0, in one over the target's units.
    epsilon : float or (n,) array
        Half-width of the tube, >= 0, in the target's units.
    beta : float or (n,) array
        Smooth fraction of the tube, 0 (ε-insensitive) to 1 (Huber).

    Raises
    ------
    ValueError
        If a parameter is outside its range or the arrays differ in length.

    Examples
    --------
    >>> from bsvr_pp.losses import soft_insensitive
    >>> noise = soft_insensitive(C=10.0, epsilon=0.1, beta=0.3)
    >>> round(noise.variance, 6)
    0.026785
    """
    return _make("soft_insensitive", C=C, epsilon=epsilon, beta=beta)


def epsilon_insensitive(C: ArrayLike, epsilon: ArrayLike) -> NoiseModel:
    """Vapnik's ε-insensitive loss max(|r| - epsilon, 0); parameters as in `soft_insensitive`.

    Examples
    --------
    >>> from bsvr_pp.losses import epsilon_insensitive
    >>> epsilon_insensitive(C=10.0, epsilon=0.1).loss([0.05, 0.3]).round(6).tolist()
    [0.0, 0.2]
    """
    return _make("epsilon_insensitive", C=C, epsilon=epsilon)


def huber(C: ArrayLike, epsilon: ArrayLike) -> NoiseModel:
    """Huber's loss as in Chu, Keerthi & Ong 2004, (10): r²/(4·epsilon) up to 2·epsilon, |r| - epsilon beyond.

    Examples
    --------
    >>> from bsvr_pp.losses import huber
    >>> huber(C=1.0, epsilon=0.5).loss([0.5, 2.0]).tolist()
    [0.125, 1.5]
    """
    return _make("huber", C=C, epsilon=epsilon)


def laplace(C: ArrayLike) -> NoiseModel:
    """Absolute loss |r|: Laplace noise of scale 1/C.

    Examples
    --------
    >>> from bsvr_pp.losses import laplace
    >>> round(laplace(C=2.0).variance, 12)
    0.5
    """
    return _make("laplace", C=C)


def gaussian(C: ArrayLike) -> NoiseModel:
    """Squared loss ½r²: Gaussian noise of precision C = 1/σ².

    Examples
    --------
    >>> from bsvr_pp.losses import gaussian
    >>> round(gaussian(C=4.0).variance, 12)
    0.25
    """
    return _make("gaussian", C=C)


def pinball(C: ArrayLike, quantile: ArrayLike) -> NoiseModel:
    """Pinball loss of quantile regression: quantile·r above 0, (quantile - 1)·r below; f is that quantile of y.

    The noise is the asymmetric Laplace density q(1-q)C·exp(-C·loss); its mean is not 0. It is a tool to estimate a
    quantile; posteriors under it are not calibrated.

    Examples
    --------
    >>> from bsvr_pp.losses import pinball
    >>> round(float(pinball(C=3.0, quantile=0.2).cdf(0.0)), 12)
    0.2
    """
    return _make("pinball", C=C, quantile=quantile)


def hinge(C: ArrayLike) -> NoiseModel:
    """Hinge loss max(0, 1 - y·f) of labels y = ±1 (Sollich 2002, (4)), normalised by 1 + exp(-2C).

    Examples
    --------
    >>> from bsvr_pp.losses import hinge
    >>> hinge(C=2.0).loss([-0.5, 0.5]).tolist()
    [0.0, 0.5]
    """
    return _make("hinge", C=C)

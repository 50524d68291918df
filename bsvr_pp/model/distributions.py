"""The noise models of support vector regression as PyMC distributions.

Soft insensitive, epsilon-insensitive and Huber noise are one family, the density exp(−C·loss(y − mu))/Z of Chu, Keerthi
& Ong 2004, (13), with the soft insensitive loss of (11): ``beta = 0`` is the epsilon-insensitive loss, ``beta = 1`` is
Huber's (10), and ``epsilon = 0`` is the Laplace distribution of scale 1/C.  Density, cdf and quantile are therefore
implemented once, in `_soft_insensitive`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_icdf_parameters, check_icdf_value, check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.configdefaults import config
from pytensor.tensor import TensorLike
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorConstant

from bsvr_pp.losses.symbolic import Tensor, log_cdf, log_density, upper_quantile

__all__ = ["EpsilonInsensitive", "Huber", "SoftInsensitive"]


class _NoiseRV(SymbolicRandomVariable):
    """A location mu plus noise of the soft insensitive family.

    ``loss`` names the entry of `bsvr_pp.losses.LOSSES` with the same noise; the parameters of the op are mu and
    then those of that entry, in its order.
    """

    loss: ClassVar[str]
    constraints: ClassVar[str] = "C > 0, epsilon >= 0, both finite"
    fixed_beta: ClassVar[float]

    @classmethod
    def family(cls, C: Tensor, epsilon: Tensor, beta: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parameters of the equivalent soft insensitive noise."""
        return C, epsilon, _as_float(cls.fixed_beta) if beta is None else beta

    @classmethod
    def conditions(cls, *parameters: Tensor) -> tuple[Tensor, ...]:
        """Return the conditions on the parameters in words: ``constraints``."""
        C, epsilon, beta = cls.family(*parameters)
        return C > 0, np.inf > C, epsilon >= 0, epsilon < np.inf, beta >= 0, beta <= 1

    @classmethod
    def rv_op(cls, mu: TensorLike, *parameters: TensorLike, size: Any = None, rng: Any = None) -> Tensor:
        """Return mu + quantile(uniform)."""
        mu, *params = (_as_float(value) for value in (mu, *parameters))
        rng = normalize_rng_param(rng)
        size = normalize_size_param(size)
        shape = size
        if rv_size_is_none(size):
            shape = implicit_size_from_params(mu, *params, ndims_params=cls.ndims_params)

        next_rng, uniform = pt.random.uniform(-0.5, 0.5, size=shape, rng=rng, return_next_rng=True)
        # A uniform draw can be equal to the lower bound, whose quantile is infinite.
        tail = pt.maximum(0.5 - pt.abs(uniform), np.finfo(uniform.dtype).eps / 4)
        draws = mu + pt.sign(uniform) * upper_quantile(tail, *cls.family(*params))
        draws = check_icdf_parameters(draws, *cls.conditions(*params), msg=cls.constraints)
        return cls(inputs=[rng, size, mu, *params], outputs=[next_rng, draws])(rng, size, mu, *params)


def _as_float(value: TensorLike) -> Tensor:
    """Cast to floatX; by default PyTensor makes 1.0 a float32 constant and 0.1 a float64 constant."""
    tensor = pt.as_tensor_variable(value)
    if isinstance(tensor, TensorConstant):
        return pt.constant(tensor.data, dtype=config.floatX)
    return tensor.astype(config.floatX)


class SoftInsensitiveRV(_NoiseRV):
    """Random variable of `SoftInsensitive`."""

    name = "soft_insensitive"
    loss = "soft_insensitive"
    constraints = "C > 0, epsilon >= 0, 0 <= beta <= 1, all finite"
    extended_signature = "[rng],[size],(),(),(),()->[rng],()"
    _print_name = ("SoftInsensitive", "\\operatorname{SoftInsensitive}")


class EpsilonInsensitiveRV(_NoiseRV):
    """Random variable of `EpsilonInsensitive`."""

    name = "epsilon_insensitive"
    loss = "epsilon_insensitive"
    fixed_beta = 0.0
    extended_signature = "[rng],[size],(),(),()->[rng],()"
    _print_name = ("EpsilonInsensitive", "\\operatorname{EpsilonInsensitive}")


class HuberRV(_NoiseRV):
    """Random variable of `Huber`."""

    name = "huber"
    loss = "huber"
    fixed_beta = 1.0
    extended_signature = "[rng],[size],(),(),()->[rng],()"
    _print_name = ("Huber", "\\operatorname{Huber}")


def _methods(rv_type: type[_NoiseRV]) -> list[Any]:
    """Return the functions that PyMC expects in a distribution class: logp, logcdf, logccdf, icdf, support_point."""

    def logp(value: Tensor, mu: Tensor, *parameters: Tensor) -> Tensor:
        result = log_density(value - mu, *rv_type.family(*parameters))
        return check_parameters(result, *rv_type.conditions(*parameters), msg=rv_type.constraints)

    def logcdf(value: Tensor, mu: Tensor, *parameters: Tensor) -> Tensor:
        result = log_cdf(value - mu, *rv_type.family(*parameters))
        return check_parameters(result, *rv_type.conditions(*parameters), msg=rv_type.constraints)

    def logccdf(value: Tensor, mu: Tensor, *parameters: Tensor) -> Tensor:
        result = log_cdf(mu - value, *rv_type.family(*parameters))  # the density is symmetric
        return check_parameters(result, *rv_type.conditions(*parameters), msg=rv_type.constraints)

    def icdf(value: Tensor, mu: Tensor, *parameters: Tensor) -> Tensor:
        lower = value < 0.5
        tail = pt.clip(pt.switch(lower, value, 1 - value), 0.0, 0.5)
        residual = upper_quantile(tail, *rv_type.family(*parameters))
        result = check_icdf_value(mu + pt.switch(lower, -residual, residual), value)
        return check_icdf_parameters(result, *rv_type.conditions(*parameters), msg=rv_type.constraints)

    def support_point(rv: Tensor, size: Any, mu: Tensor, *parameters: Tensor) -> Tensor:
        mean = pt.broadcast_arrays(mu, *parameters)[0]
        return mean if rv_size_is_none(size) else pt.full(size, mean)

    return [staticmethod(method) for method in (logp, logcdf, logccdf, icdf, support_point)]


class SoftInsensitive(Continuous):
    r"""Soft insensitive noise around mu, the noise model of Bayesian support vector regression.

    The pdf of this distribution is

    .. math::

       f(y \mid \mu, C, \epsilon, \beta) = \frac{1}{Z} \exp\{-C\,\ell(y - \mu)\}

    with the soft insensitive loss function (chu2004, equation 11)

    .. math::

       \ell(r) = \begin{cases}
           0 & |r| \le (1-\beta)\epsilon \\
           \frac{(|r| - (1-\beta)\epsilon)^2}{4\beta\epsilon}
             & (1-\beta)\epsilon < |r| < (1+\beta)\epsilon \\
           |r| - \epsilon & |r| \ge (1+\beta)\epsilon
       \end{cases}

    and the normaliser (chu2004, equation 14)

    .. math::

       Z = 2(1-\beta)\epsilon + 2\sqrt{\frac{\pi\beta\epsilon}{C}}\,
           \operatorname{erf}\sqrt{C\beta\epsilon} + \frac{2}{C} e^{-C\beta\epsilon}.

    With :math:`\beta = 0` it is `EpsilonInsensitive`, with :math:`\beta = 1` `Huber`, and with
    :math:`\epsilon = 0` the Laplace distribution of scale :math:`1/C`.

    ========  =================================================================================
    Support   :math:`y \in \mathbb{R}`
    Mean      :math:`\mu`
    Variance  :math:`\frac{2}{Z}\Big\{\frac{a^3}{3} + \frac{4(1-\beta)\beta\epsilon^2}{C}
              + \sqrt{\frac{\pi\beta\epsilon}{C}}\big(\frac{2\beta\epsilon}{C} + a^2\big)
              \operatorname{erf}\sqrt{C\beta\epsilon}
              + \big(\frac{a^2}{C} + \frac{2(1+\beta)\epsilon}{C^2} + \frac{2}{C^3}\big)
              e^{-C\beta\epsilon}\Big\}`, :math:`a = (1-\beta)\epsilon` (chu2004, equation 15)
    ========  =================================================================================

    Parameters
    ----------
    mu : tensor_like of float
        Location, in the units of y.
    C : tensor_like of float
        Inverse scale of the tails (C > 0), in one over the units of y.
    epsilon : tensor_like of float
        Half-width of the insensitive tube (epsilon >= 0), in the units of y.
    beta : tensor_like of float
        Fraction of the tube that is smooth (0 <= beta <= 1).

    Raises
    ------
    ParameterValueError
        From logp, logcdf, icdf and draws, when evaluated outside C > 0, epsilon >= 0 and
        0 <= beta <= 1. Inside a model the density is minus infinity there. JAX skips the check.

    Notes
    -----
    The log density is differentiable in the residual unless beta = 0 or epsilon = 0, where it
    has kinks; gradients with respect to every parameter are finite everywhere.  At beta = 0
    and epsilon = 0 they are the derivatives from the right.

    References
    ----------
    .. [chu2004] Chu W., Keerthi S. S. and Ong C. J. (2004). "Bayesian support vector regression
       using a unified loss function". IEEE Transactions on Neural Networks, 15(1), 29-44.

    Examples
    --------
    The noise of the paper's sinc experiment has variance 0.026785:

    >>> import pymc as pm
    >>> from bsvr_pp.model.distributions import SoftInsensitive
    >>> noise = SoftInsensitive.dist(mu=0.0, C=10.0, epsilon=0.1, beta=0.3)
    >>> round(float(pm.logp(noise, 0.25).eval()), 4)
    -0.5766
    >>> bool(abs(pm.draw(noise, draws=100_000, random_seed=1).var() - 0.026785) < 0.001)
    True

    In a model it is used like any other likelihood:

    >>> with pm.Model() as model:
    ...     C = pm.LogNormal("C", 1.0, 1.0)
    ...     y = SoftInsensitive("y", mu=0.0, C=C, epsilon=0.1, beta=0.3, observed=[0.2, -0.1])
    """

    rv_type = SoftInsensitiveRV
    rv_op = SoftInsensitiveRV.rv_op
    logp, logcdf, logccdf, icdf, support_point = _methods(SoftInsensitiveRV)

    @classmethod
    def dist(cls, mu: TensorLike, C: TensorLike, epsilon: TensorLike, beta: TensorLike, **kwargs: Any) -> Tensor:
        """Return a variable without a name, outside a model."""
        return super().dist([mu, C, epsilon, beta], **kwargs)


class EpsilonInsensitive(Continuous):
    r"""Epsilon-insensitive noise around mu.

    The pdf of this distribution is

    .. math::

       f(y \mid \mu, C, \epsilon) =
           \frac{C}{2(1 + C\epsilon)} \exp\{-C \max(|y - \mu| - \epsilon, 0)\},

    `SoftInsensitive` with :math:`\beta = 0` (chu2004, equation 13). The mode of a Gaussian process with this noise
    is support vector regression in the usual sense. With :math:`\epsilon = 0` it is the Laplace distribution of
    scale :math:`1/C`.

    ========  ====================================================================
    Support   :math:`y \in \mathbb{R}`
    Mean      :math:`\mu`
    Variance  :math:`\frac{2}{C^2} + \frac{\epsilon^2 (C\epsilon + 3)}{3 (C\epsilon + 1)}`
    ========  ====================================================================

    Parameters
    ----------
    mu : tensor_like of float
        Location, in the units of y.
    C : tensor_like of float
        Inverse scale of the tails (C > 0), in one over the units of y.
    epsilon : tensor_like of float
        Half-width of the insensitive tube (epsilon >= 0), in the units of y.

    Raises
    ------
    ParameterValueError
        From logp, logcdf, icdf and draws, when evaluated outside C > 0 and epsilon >= 0.
        Inside a model the density is minus infinity there. JAX skips the check.

    References
    ----------
    .. [chu2004] Chu W., Keerthi S. S. and Ong C. J. (2004). "Bayesian support vector regression
       using a unified loss function". IEEE Transactions on Neural Networks, 15(1), 29-44.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from bsvr_pp.model.distributions import EpsilonInsensitive
    >>> noise = EpsilonInsensitive.dist(mu=0.0, C=10.0, epsilon=0.1)
    >>> float(np.exp(pm.logp(noise, 0.05).eval()).round(12))
    2.5
    >>> float(np.exp(pm.logcdf(noise, 0.0).eval()).round(12))
    0.5
    """

    rv_type = EpsilonInsensitiveRV
    rv_op = EpsilonInsensitiveRV.rv_op
    logp, logcdf, logccdf, icdf, support_point = _methods(EpsilonInsensitiveRV)

    @classmethod
    def dist(cls, mu: TensorLike, C: TensorLike, epsilon: TensorLike, **kwargs: Any) -> Tensor:
        """Return a variable without a name, outside a model."""
        return super().dist([mu, C, epsilon], **kwargs)


class Huber(Continuous):
    r"""Huber noise around mu.

    The pdf of this distribution is

    .. math::

       f(y \mid \mu, C, \epsilon) = \frac{1}{Z} \exp\{-C\,\ell(y - \mu)\}, \qquad
       \ell(r) = \begin{cases}
           \frac{r^2}{4\epsilon} & |r| < 2\epsilon \\
           |r| - \epsilon & |r| \ge 2\epsilon
       \end{cases}

    (chu2004, equation 10), `SoftInsensitive` with :math:`\beta = 1`. In the centre it is a normal distribution with
    variance :math:`2\epsilon/C`, and everywhere in the limit of large :math:`C\epsilon`.

    ========  =====================================================================================
    Support   :math:`y \in \mathbb{R}`
    Mean      :math:`\mu`
    Variance  :math:`\frac{2\epsilon}{C} + \frac{4 (1 + C\epsilon)}{Z C^3} e^{-C\epsilon}`,
              :math:`Z = 2\sqrt{\frac{\pi\epsilon}{C}} \operatorname{erf}\sqrt{C\epsilon}
              + \frac{2}{C} e^{-C\epsilon}`
    ========  =====================================================================================

    Parameters
    ----------
    mu : tensor_like of float
        Location, in the units of y.
    C : tensor_like of float
        Inverse scale of the tails (C > 0), in one over the units of y.
    epsilon : tensor_like of float
        Half of the residual at which the linear tails begin (epsilon >= 0), in the units of y.

    Raises
    ------
    ParameterValueError
        From logp, logcdf, icdf and draws, when evaluated outside C > 0 and epsilon >= 0.
        Inside a model the density is minus infinity there. JAX skips the check.

    References
    ----------
    .. [chu2004] Chu W., Keerthi S. S. and Ong C. J. (2004). "Bayesian support vector regression
       using a unified loss function". IEEE Transactions on Neural Networks, 15(1), 29-44.

    Examples
    --------
    >>> import pymc as pm
    >>> from bsvr_pp.model.distributions import Huber
    >>> noise = Huber.dist(mu=0.0, C=200.0, epsilon=1.0)
    >>> normal = pm.Normal.dist(mu=0.0, sigma=(2 * 1.0 / 200.0) ** 0.5)
    >>> bool(abs(pm.logp(noise, 0.3).eval() - pm.logp(normal, 0.3).eval()) < 1e-12)
    True
    """

    rv_type = HuberRV
    rv_op = HuberRV.rv_op
    logp, logcdf, logccdf, icdf, support_point = _methods(HuberRV)

    @classmethod
    def dist(cls, mu: TensorLike, C: TensorLike, epsilon: TensorLike, **kwargs: Any) -> Tensor:
        """Return a variable without a name, outside a model."""
        return super().dist([mu, C, epsilon], **kwargs)

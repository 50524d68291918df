"""The label of a support vector machine as PyMC distributions (Sollich 2002, section 2)."""

from __future__ import annotations

import pytensor.tensor as pt
from pymc.distributions.dist_math import check_icdf_parameters, check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor import TensorLike

from bsvr_pp.core.arrays import Tensor
from bsvr_pp.model.distributions import InvertedRV

_CONSTRAINTS, _OF_KNOWN = "C > 0", "C > 0, reach > 0"
_FAR = 1e4  # reach of labels that are right far from the boundary


def _log_label(label: Tensor | float, f: Tensor, C: Tensor) -> Tensor:
    """Return the log Q(y|f), (4), for y = -1 or +1."""
    return -pt.softplus(-2 * C) - C * pt.maximum(1 - label * f, 0.0)


def _log_unknown(f: Tensor, C: Tensor) -> Tensor:
    """Return log(1 - ν): κ(1 - e^(-C|1-a|))(1 - e^(-C(1+a))) for a = |f| <= 1, and κ(e^(-2C) - e^(-C(1+a))) beyond."""
    size = pt.abs(f)
    gap = C * pt.abs(1 - size)
    known = pt.eq(gap, 0.0)
    first = pt.switch(known, -pt.inf, pt.log1mexp(-pt.switch(known, 1.0, gap)))
    second = pt.switch(size < 1, pt.log1mexp(-C * (1 + size)), -2 * C)
    return first + second - pt.softplus(-2 * C)


class SVMLabelRV(InvertedRV):
    """Random variable of `SVMLabel`."""

    name = "svm_label"
    loss = "hinge"
    extended_signature = "[rng],[size],(),()->[rng],()"
    _print_name = ("SVMLabel", "\\operatorname{SVMLabel}")

    @classmethod
    def drawn(cls, uniform: Tensor, *params: Tensor) -> Tensor:
        """Return -1, 0 or +1 by comparing a uniform number with the masses."""
        f, C = params
        below = uniform < pt.exp(_log_label(-1.0, f, C))
        above = uniform >= 1 - pt.exp(_log_label(1.0, f, C))
        draws = pt.cast(above, "int64") - pt.cast(below, "int64")
        return check_icdf_parameters(draws, C > 0, msg=_CONSTRAINTS)


class SVMLabel(Discrete):
    r"""Label of a support vector machine with latent function f.

    The masses of this distribution are

    .. math::

       Q(\pm 1 \mid f, C) = \frac{\exp\{-C \max(0, 1 \mp f)\}}{1 + e^{-2C}}, \qquad
       Q(0 \mid f, C) = 1 - \nu(f),

    :math:`\nu(f) = Q(1 \mid f) + Q(-1 \mid f) \le 1` (sollich2002, equation 4). The label 0 is "don't know". The mode
    of a Gaussian process with observed labels :math:`\pm 1` is the support vector classifier. Its kernel is the prior
    covariance, which includes the variance of the offset. Predictions of the label given that it is known use
    :math:`P(y \mid f) = Q(y \mid f)/\nu(f)` (10).

    ========  =======================================
    Support   :math:`y \in \{-1, 0, 1\}`
    Mean      :math:`Q(1 \mid f) - Q(-1 \mid f)`
    Variance  :math:`\nu(f) - (Q(1 \mid f) - Q(-1 \mid f))^2`
    ========  =======================================

    Parameters
    ----------
    f : tensor_like of float
        Latent function; its sign is the likelier label.
    C : tensor_like of float
        Inverse noise scale (C > 0), the penalty of the support vector machine.

    Raises
    ------
    ParameterValueError
        From logp, logcdf and draws, when evaluated outside C > 0. Inside a model the mass is zero there.

    Notes
    -----
    The probability of the observed labels is the *naive* evidence of sollich2002, which makes C too small;
    `bsvr_pp.log_evidence` with a ``kind`` normalises it (docs/explanation/normalisation.md).

    References
    ----------
    .. [sollich2002] Sollich P. (2002). "Bayesian methods for support vector machines: evidence and predictive class
       probabilities". Machine Learning, 46, 21-52.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from bsvr_pp import SVMLabel
    >>> mass = np.exp(pm.logp(SVMLabel.dist(f=0.5, C=2.0), [-1, 0, 1]).eval())
    >>> mass.round(4).tolist(), float(mass.sum().round(12))
    ([0.0489, 0.5898, 0.3613], 1.0)
    >>> pm.draw(SVMLabel.dist(f=[-3.0, 3.0], C=9.0), random_seed=1).tolist()
    [-1, 1]
    """

    rv_type = SVMLabelRV
    rv_op = SVMLabelRV.rv_op

    @classmethod
    def dist(cls, f: TensorLike, C: TensorLike, **kwargs: object) -> Tensor:
        """Return a variable without a name, outside a model."""
        return super().dist([f, C], **kwargs)

    @staticmethod
    def support_point(rv: Tensor, size: object, f: Tensor, C: Tensor, *reach: Tensor) -> Tensor:
        """Return the likelier label."""
        label = pt.switch(pt.broadcast_arrays(f, C)[0] < 0, -1, 1)
        return label if rv_size_is_none(size) else pt.full(size, label)

    @staticmethod
    def logp(value: Tensor, f: Tensor, C: Tensor) -> Tensor:
        """Return the log mass of -1, 0 and +1."""
        unknown = pt.eq(value, 0)
        result = pt.switch(unknown, _log_unknown(f, C), _log_label(pt.switch(unknown, 1, value), f, C))
        return check_parameters(pt.switch(unknown | pt.eq(pt.abs(value), 1), result, -pt.inf), C > 0, msg=_CONSTRAINTS)

    @staticmethod
    def logcdf(value: Tensor, f: Tensor, C: Tensor) -> Tensor:
        """Return the log of the mass at or below the value."""
        rest = pt.log1mexp(_log_label(1.0, f, C))
        result = pt.switch(value < 0, _log_label(-1.0, f, C), pt.switch(value < 1, rest, 0.0))
        return check_parameters(pt.switch(value < -1, -pt.inf, result), C > 0, msg=_CONSTRAINTS)


def _log_odds(f: Tensor, C: Tensor, reach: Tensor) -> Tensor:
    """Return the log of P(+1|f)/P(-1|f), (11), up to |f| = 1 + reach."""
    return C * (pt.clip(f, -1.0 - reach, 1.0 + reach) + pt.clip(f, -1.0, 1.0))


class KnownLabelRV(SVMLabelRV):
    """Random variable of `KnownLabel`."""

    name = "known_label"
    loss = "known_label"
    extended_signature = "[rng],[size],(),(),()->[rng],()"
    _print_name = ("KnownLabel", "\\operatorname{KnownLabel}")

    @classmethod
    def drawn(cls, uniform: Tensor, *params: Tensor) -> Tensor:
        """Return -1 or +1 by comparing a uniform number with the probability of +1."""
        f, C, reach = params
        draws = pt.switch(uniform < pt.sigmoid(_log_odds(f, C, reach)), 1, -1)
        return check_icdf_parameters(draws, C > 0, reach > 0, msg=_OF_KNOWN)


class KnownLabel(Discrete):
    r"""Label of a support vector machine with latent function f, given that it is known.

    It is `bsvr_pp.SVMLabel` without "don't know", normalised at each point (sollich2002, equations 10 and 11):

    .. math::

       P(\pm 1 \mid f, C) = \frac{e^{-C \max(0, 1 \mp f)}}{e^{-C \max(0, 1 - f)} + e^{-C \max(0, 1 + f)}},

    The log odds have the slope 2C for :math:`|f| < 1`, and C beyond. They are constant from :math:`|f| = 1 + reach` on:
    with a small ``reach`` a label may be wrong everywhere; the default has no effect. Parameters and errors are as for
    `bsvr_pp.SVMLabel`, with ``reach`` > 0. docs/explanation/normalisation.md describes the evidence, the mode and mean
    field; Laplace's method is refused.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from bsvr_pp.classification import KnownLabel
    >>> np.exp(pm.logp(KnownLabel.dist(f=0.5, C=2.0), [-1, 0, 1]).eval()).round(4).tolist()
    [0.1192, 0.0, 0.8808]
    """

    rv_type = KnownLabelRV
    rv_op = KnownLabelRV.rv_op

    @classmethod
    def dist(cls, f: TensorLike, C: TensorLike, reach: TensorLike = _FAR, **kwargs: object) -> Tensor:
        """Return a variable without a name, outside a model."""
        return super().dist([f, C, reach], **kwargs)

    support_point = staticmethod(SVMLabel.support_point)

    @staticmethod
    def logp(value: Tensor, f: Tensor, C: Tensor, reach: Tensor) -> Tensor:
        """Return the log mass of -1 and +1."""
        result = pt.switch(pt.eq(pt.abs(value), 1), -pt.softplus(-value * _log_odds(f, C, reach)), -pt.inf)
        return check_parameters(result, C > 0, reach > 0, msg=_OF_KNOWN)

    @staticmethod
    def logcdf(value: Tensor, f: Tensor, C: Tensor, reach: Tensor) -> Tensor:
        """Return the log of the mass at or below the value."""
        result = pt.switch(value < -1, -pt.inf, pt.switch(value < 1, -pt.softplus(_log_odds(f, C, reach)), 0.0))
        return check_parameters(result, C > 0, reach > 0, msg=_OF_KNOWN)

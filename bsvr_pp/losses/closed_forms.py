r"""Closed forms of the soft insensitive noise density, as PyTensor graphs (used by `distributions`).

Functions of the residual r = y − μ and of C, ε, β, elementwise.  Notation of all of them: a = (1 − β)ε and b = (1 + β)ε
are the knots of the loss, w = b − a = 2βε is the width between them, u in [0, 1] is the place of |r| between them and
also the slope of the loss there, x = Cβε.  The forms and their gradients are exact for Cε from 1e-8 to 1e8, including β
= 0 and ε = 0. Every switch is guarded twice, because gradients also flow through the branch that is not taken.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

type Tensor = TensorVariable

_SQRT_PI = sqrt(pi)

# erf(√x) and its derivatives are exact down to here; below, its first-order expansion is.
_TINY = 1e-20


def log_density(r: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Log of chu2004 (13)."""
    log_normalizer = pt.log(2.0 * _mass(C, epsilon, beta)) - pt.log(C)
    return -C * _loss(r, epsilon, beta) - log_normalizer


def log_cdf(r: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Log of the probability below r."""
    log_tail = _log_upper_tail(r, C, epsilon, beta)
    return pt.switch(r < 0, log_tail, pt.log1p(-pt.exp(log_tail)))


def upper_quantile(tail: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Return the residual r >= 0 with probability tail <= 1/2 above it, in closed form."""
    x = C * beta * epsilon
    curved = _curved_mass(x)
    mass = 2 * tail * _mass(C, epsilon, beta)  # between 0 and C·Z/2, in units of 1/C
    linear = mass <= pt.exp(-x)
    flat = mass >= curved
    beyond = (1 + beta) * epsilon - (pt.log(pt.switch(linear, mass, 1.0)) + x) / C
    before = (1 - beta) * epsilon - pt.switch(flat, mass - curved, 0.0) / C
    between = ~(linear | flat)
    u = _curved_quantile(pt.switch(between, mass, curved), curved, x)
    middle = (1 - beta) * epsilon + 2 * beta * epsilon * u
    return pt.switch(linear, beyond, pt.switch(flat, before, middle))


def _loss(r: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Soft insensitive loss, chu2004 (11), as the largest of the lines that bound it below.

    ℓ(r) = max over u in [0, 1] of u(|r| − a) − w·u²/2.  By the envelope theorem ∂ℓ/∂|r| = u,
    ∂ℓ/∂β = ε·u(1 − u) and ∂ℓ/∂ε = −(1 − β)u − β·u²: bounded, without a division by w.
    """
    excess, width, u, _ = _place(r, epsilon, beta)
    return u * excess - 0.5 * width * u**2


def _place(r: Tensor, epsilon: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return |r| − a, w, u = clip((|r| − a)/w, 0, 1), which is a step if w = 0, and where the loss is flat."""
    distance = pt.switch(r < 0, -r, r)  # unlike that of abs, its derivative is not 0 at 0
    excess = (distance - epsilon) + beta * epsilon
    width = 2 * beta * epsilon
    # The knots are one kink if they round to the same number or if w² in the gradient would underflow.
    limits = np.finfo(width.dtype)
    distinct = (beta > limits.eps) & (width > np.sqrt(limits.tiny))
    between = distinct & (excess >= 0) & (excess <= width)
    ratio = pt.switch(between, excess, 0.0) / pt.switch(distinct, width, 1.0)
    u = pt.switch(between, ratio, pt.switch(excess > width, 1.0, 0.0))
    return excess, width, u, ~between & (excess <= width)


def _mass(C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """C·Z/2 = C·a + g(x), the integral of exp(−C·ℓ) over r > 0 in units of 1/C, chu2004 (14)."""
    return C * (1 - beta) * epsilon + _curved_mass(C * beta * epsilon)


def _curved_mass(x: Tensor) -> Tensor:
    """g(x) = √(πx)·erf√x + exp(−x), the mass beyond the flat piece; analytic, g(0) = g'(0) = 1."""
    return _bulge(0.0, x) + pt.exp(-x)


def _bulge(u: Tensor | float, x: Tensor) -> Tensor:
    """√(πx)·(erf√x − erf(u√x)), the mass of the quadratic piece beyond u; 2x(1 − u) for x → 0."""
    positive = x > _TINY
    root = pt.sqrt(pt.switch(positive, x, 1.0))
    return pt.switch(positive, _SQRT_PI * root * (pt.erf(root) - pt.erf(u * root)), 2 * x * (1 - u))


def _log_upper_tail(r: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Log of the probability above |r|: density times Mills ratio, exact for any |r|."""
    excess, _, u, flat = _place(r, epsilon, beta)
    ratio = C * pt.switch(flat, -excess, 0.0) + _mills(u, C * beta * epsilon)
    return log_density(r, C, epsilon, beta) - pt.log(C) + pt.log(ratio)


def _mills(u: Tensor, x: Tensor) -> Tensor:
    """exp(u²x)·[√(πx)·(erf√x − erf(u√x)) + exp(−x)], C times the Mills ratio between the knots.

    For large x both error functions round to 1, so that erfc z = exp(−z²)·erfcx z is used instead.
    """
    small = x < 0.5
    x0 = pt.switch(small, x, 0.0)
    from_erf = pt.exp(u**2 * x0) * (_bulge(u, x0) + pt.exp(-x0))
    root = pt.sqrt(pt.switch(small, 1.0, x))
    linear = pt.exp(-(1 - u) * (1 + u) * root**2) * _linear_excess(root)
    return pt.switch(small, from_erf, _SQRT_PI * root * pt.erfcx(u * root) + linear)


def _linear_excess(root: Tensor) -> Tensor:
    """1 − √π·z·erfcx(z) > 0 for z > 0: excess of the linear tail over a Gaussian tail."""
    return 1 - _SQRT_PI * root * pt.erfcx(root)


def _curved_quantile(mass: Tensor, curved: Tensor, x: Tensor) -> Tensor:
    """Solve √(πx)·(erf√x − erf(u√x)) + exp(−x) = mass for u in [0, 1], exp(−x) <= mass <= g(x).

    erf(u√x) is inverted where it is small, and otherwise erfc(u√x), to avoid cancellation.
    """
    root = pt.sqrt(pt.switch(x > _TINY, x, 1.0))
    scale = _SQRT_PI * root
    below = pt.clip((curved - mass) / scale, 0.0, 1.0)
    above = (mass - pt.exp(-x) * _linear_excess(root)) / scale
    near = below < 0.5
    smallest = np.finfo(x.dtype).tiny
    z = pt.switch(
        near,
        pt.erfinv(pt.switch(near, below, 0.0)),
        pt.erfcinv(pt.switch(near, 0.5, pt.clip(above, smallest, 0.5))),
    )
    return pt.clip(z / root, 0.0, 1.0)

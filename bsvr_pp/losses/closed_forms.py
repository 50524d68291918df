"""The soft insensitive noise density in closed form, as a PyTensor graph that has derivatives of any order.

Notation: r = y − μ is the residual, a = (1 − β)ε and b = (1 + β)ε are the knots of the loss, w = b − a = 2βε is the
width between them, u in [0, 1] is the place of |r| between them and also the slope of the loss there. The density and
its gradients are exact for Cε from 1e-8 to 1e8, including β = 0 and ε = 0. Every switch is guarded twice, because
gradients also flow through the branch that is not taken.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytensor.tensor as pt

from bsvr_pp._arrays import Tensor

# erf(√x) and its derivatives are exact down to here; below, its first-order expansion is.
_TINY = 1e-20


def log_density(r: Tensor, C: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Log of chu2004 (13), elementwise; the normaliser is 2/C times C·a + g(C·β·ε), (14)."""
    mass = C * (1 - beta) * epsilon + _curved_mass(C * beta * epsilon)
    return -C * _loss(r, epsilon, beta) - (pt.log(2.0 * mass) - pt.log(C))


def _loss(r: Tensor, epsilon: Tensor, beta: Tensor) -> Tensor:
    """Soft insensitive loss, chu2004 (11), as the largest of the lines that bound it below.

    ℓ(r) = max over u in [0, 1] of u(|r| − a) − w·u²/2.  By the envelope theorem ∂ℓ/∂|r| = u,
    ∂ℓ/∂β = ε·u(1 − u) and ∂ℓ/∂ε = −(1 − β)u − β·u²: bounded, without a division by w.
    """
    distance = pt.switch(r < 0, -r, r)  # unlike that of abs, its derivative is not 0 at 0
    excess = (distance - epsilon) + beta * epsilon
    width = 2 * beta * epsilon
    # The knots are one kink if they round to the same number or if w² in the gradient would underflow.
    limits = np.finfo(width.dtype)
    distinct = (beta > limits.eps) & (width > np.sqrt(limits.tiny))
    between = distinct & (excess >= 0) & (excess <= width)
    ratio = pt.switch(between, excess, 0.0) / pt.switch(distinct, width, 1.0)
    u = pt.switch(between, ratio, pt.switch(excess > width, 1.0, 0.0))
    return u * excess - 0.5 * width * u**2


def _curved_mass(x: Tensor) -> Tensor:
    """g(x) = √(πx)·erf√x + exp(−x), the mass beyond the flat piece; analytic, g(0) = g'(0) = 1."""
    positive = x > _TINY
    root = pt.sqrt(pt.switch(positive, x, 1.0))
    return pt.switch(positive, sqrt(pi) * root * pt.erf(root), 2 * x) + pt.exp(-x)

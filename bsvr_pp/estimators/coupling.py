"""Probabilities of classes, from models of each class against the rest.

They are in the ratio p_k/(1 - p_k)^power, between the sum and the odds, and mixed with equal probabilities by the rate
of random labels. Both numbers maximise the leave-one-out likelihood of the labels (docs/classification.md, how
probabilities are joined). Two classes are combined in the same way.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from bsvr_pp.core.arrays import Array

LEAST = 1e-15  # smallest probability in log odds
_START, _BOUNDS = (0.5, 0.02), ((0.0, 1.0), (0.0, 0.5))
_PRIOR = 1.0  # slope of the log prior of the power: no set is then more than 2 % worse (docs/defaults.md)


class Coupling(NamedTuple):
    """The power of 1 - p in the ratio of the probabilities, and the rate of random labels."""

    power: float = 0.0
    rate: float = 0.0

    @classmethod
    def of_left_out(cls, P: Array, y: NDArray[np.intp], weight: Array) -> Self:
        """Find the most likely coupling for P as in `join`, leave-one-out for labels y (n,), numbers of classes."""
        rows = np.arange(len(y))

        def loss(values: Array) -> float:
            return (_PRIOR * values[0] - float(weight @ np.log(cls(*values).join(P)[rows, y]))) / weight.sum()

        return cls(*minimize(loss, _START, method="Nelder-Mead", bounds=_BOUNDS, options={"xatol": 1e-3}).x.tolist())

    def join(self, P: Array) -> Array:
        """Return probabilities (m, k) of classes from one-against-the-rest ones, or (m, 1) of the second of two."""
        p = np.clip(np.hstack([1.0 - P, P]) if P.shape[1] == 1 else P, LEAST, 1.0 - LEAST)
        joined = softmax(np.log(p) - self.power * np.log1p(-p), axis=1)
        return np.asarray((1.0 - self.rate) * joined + self.rate / p.shape[1])

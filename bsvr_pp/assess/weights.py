"""Pareto-smoothed importance weights (Vehtari et al. 2024), including the case without a tail."""

from __future__ import annotations

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from scipy.special import logsumexp

__all__ = ["GOOD_K", "pareto_weights"]

Array = NDArray[np.float64]

GOOD_K = 0.7  # k-hat up to which weights are reliable (Vehtari et al. 2024)
_EQUAL = 1e-6  # log ratios that differ by less are equal up to rounding errors: there is no tail


def pareto_weights(log_ratio: Array) -> tuple[Array, float]:
    """Compute normalised log weights from log importance ratios, and k-hat, the Pareto shape of their tail.

    Parameters
    ----------
    log_ratio : (draws,) array
        Log of target density over proposal density, up to a constant.

    Returns
    -------
    log_weights : (draws,) array
        Smoothed log weights; the weights sum to one.
    k_hat : float
        Up to 0.7 the weights are reliable. It is 0, without smoothing, if the largest ratios are all equal: such
        weights are bounded, and no Pareto distribution can be fitted to them.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.assess.weights import pareto_weights
    >>> log_weights, k_hat = pareto_weights(np.full(50, -3.0))
    >>> round(float(np.exp(log_weights).sum()), 6), k_hat
    (1.0, 0.0)
    """
    # Within ArviZ's own tail, the largest min(n/5, 3√n) ratios.
    tail = max(int(min(0.2 * log_ratio.size, 3.0 * np.sqrt(log_ratio.size))), 1)
    if np.ptp(np.sort(log_ratio)[-tail:]) < _EQUAL:
        return log_ratio - logsumexp(log_ratio), 0.0
    smoothed, k_hat = array_stats.psislw(-log_ratio)
    return smoothed, float(k_hat)

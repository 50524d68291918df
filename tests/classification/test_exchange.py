"""Sampled hyperparameters against the posterior by quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from test_chaining import grid

from bsvr_pp.classification.exchange import exchange
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.kernel import LabelPrior

X, Y = np.array([[-0.3], [0.1]]), np.array([1.0, 1.0])
CENTER = np.log([2.0, 0.3, 0.1, 0.1, 1.0])
SPREAD = np.diag([1.0, 1e-8, 1e-8, 1e-8, 1e-8])  # C alone is free


def moments(normalized):
    """Posterior mean and standard deviation of log C."""
    line = np.linspace(CENTER[0] - 4, CENTER[0] + 4, 25)
    level = -0.5 * (line - CENTER[0]) ** 2
    for i, log_C in enumerate(line):
        prior = LabelPrior(np.array([log_C, *CENTER[1:]]))
        K = prior.covariance(X)
        level[i] += logsumexp(grid(K, Factors("hinge", prior.C, Y))[1])
        if normalized:
            level[i] -= logsumexp(grid(K, Factors("survival", prior.C))[1])
    weight = np.exp(level - logsumexp(level))
    mean = weight @ line
    return mean, np.sqrt(weight @ (line - mean) ** 2)


@pytest.mark.parametrize("restarts", [500, pytest.param(0, marks=pytest.mark.slow)])
def test_the_posterior_of_C_is_that_of_the_normalised_evidence(restarts):
    found = exchange(X, Y, (CENTER, SPREAD), draws=3000, warmup=200, restarts=restarts, random_seed=1)
    mean, sd = moments(normalized=True)
    draws = found.logs[:, 0]
    blocks = draws.reshape(30, -1).mean(axis=1)
    error = blocks.std(ddof=1) / np.sqrt(30)
    assert abs(draws.mean() - mean) < 4 * error and error < 0.1
    assert abs(draws.std() / sd - 1) < 0.15
    assert abs(moments(normalized=False)[0] - mean) > 6 * error  # the naive evidence has another posterior
    assert 0.1 < found.acceptance < 0.7
    assert found.exact == (1.0 if restarts else 0.0)


def test_errors_name_the_argument():
    for change, words in (({"draws": 0}, "draws must be"), ({"slices": 0}, "slices must be"), ({"warmup": -1}, "warm")):
        with pytest.raises(ValueError, match=words):
            exchange(X, Y, (CENTER, SPREAD), **change)

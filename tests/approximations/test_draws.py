"""A posterior as draws: its mean and its draws at new inputs."""

from __future__ import annotations

import numpy as np
import pytest

from bsvr_pp.approximations.draws import LatentDraws

X2, NEW = np.array([[0.0], [1.0]]), np.array([[-0.5], [0.3], [0.9], [3.0]])


def kernel(A, B):
    return 1.5 * np.exp(-0.5 * ((A - B.T) / 0.8) ** 2)


def test_draws_of_the_prior_give_the_prior_back():
    rng = np.random.default_rng(1)
    K = kernel(X2, X2)
    draws = LatentDraws(K, rng.multivariate_normal([0, 0], K, size=20_000))
    sample = draws.sample(kernel(NEW, X2), np.full(4, 1.5), 2)
    assert np.allclose(np.cov(sample.T).diagonal(), 1.5, rtol=0.05)
    assert np.abs(draws.mean(kernel(NEW, X2))).max() < 0.05


def test_draws_of_other_inputs_are_refused():
    with pytest.raises(ValueError, match=r"f must be a \(draws, 2\) array"):
        LatentDraws(np.eye(2), np.zeros((3, 4)))

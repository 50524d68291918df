"""Evidences along a path: those of the functions, whatever came before."""

from __future__ import annotations

import numpy as np
import pytest
from problems import smooth

from bsvr_pp.approximations import Covariance, EvidencePath, laplace_gradient, mean_field_gradient
from bsvr_pp.losses import epsilon_insensitive, hinge, soft_insensitive

FUNCTIONS = {"laplace": laplace_gradient, "mean_field": mean_field_gradient}


@pytest.mark.parametrize("approximation", FUNCTIONS)
def test_a_path_gives_what_the_functions_give(approximation):
    """Small steps, a leap, other noise, labels, and another number of rows."""
    path = EvidencePath(approximation)
    K, y = smooth(40)
    few, many = smooth(12), smooth(60)
    steps = [
        *((scale * K, y, soft_insensitive(5.0, 0.1, 0.3)) for scale in (1.0, 1.05, 1.1, 50.0)),
        (K, y, epsilon_insensitive(0.5, 0.3)),
        (K, np.where(y > 0, 1.0, -1.0), hinge(2.0)),
        (*few, soft_insensitive(5.0, 0.1, 0.3)),
        (*many, soft_insensitive(5.0, 0.1, 0.3)),
    ]
    for K, y, noise in steps:
        value, gradient = path.gradient(Covariance(K, jitter=1e-6), y, noise, mean=0.1 * np.ones(y.size))
        expected, by = FUNCTIONS[approximation](Covariance(K, jitter=1e-6), y, noise, mean=0.1 * np.ones(y.size))
        assert value == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(gradient.K, by.K, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient.mean, by.mean, rtol=1e-5, atol=1e-6)
        for name, part in by.parameters.items():
            np.testing.assert_allclose(gradient.parameters[name], part, rtol=1e-5, atol=1e-5)


def test_an_unknown_approximation_is_refused():
    with pytest.raises(ValueError, match="approximation must be one of laplace, mean_field, got 'map'"):
        EvidencePath("map")

"""The annealed estimate against exact evidences."""

from __future__ import annotations

import numpy as np
import pytest
from problems import smooth
from scipy.integrate import quad

from bsvr_pp.approximations import annealed, mean_field, reverse_annealed
from bsvr_pp.losses import gaussian, soft_insensitive


def test_gaussian_noise_within_its_error():
    K, y = smooth(6)
    S = K + np.eye(6) / 20.0
    exact = -0.5 * np.linalg.slogdet(2 * np.pi * S)[1] - 0.5 * y @ np.linalg.solve(S, y)
    found = annealed(K, y, gaussian(20.0), particles=500, moves=8, random_seed=1)
    assert 0 < found.standard_error < 0.2
    assert abs(found.log_evidence - exact) < 4 * found.standard_error
    sd = np.sqrt(np.diag(K - K @ np.linalg.solve(S, K)))
    assert np.max(np.abs(found.mean - K @ np.linalg.solve(S, y)) / sd) < 0.2
    np.testing.assert_allclose(found.variance / sd**2, 1.0, atol=0.3)
    covariance = K - K @ np.linalg.solve(S, K)
    draws = np.random.default_rng(0).multivariate_normal(K @ np.linalg.solve(S, y), covariance, 800)
    above, error = reverse_annealed(draws, K, y, gaussian(20.0), found.powers, random_seed=1)
    assert above > exact - 4 * error


def test_mean_field_is_near_the_annealed_truth():
    K, y = smooth(8)
    noise = soft_insensitive(5.0, 0.2, 0.3)
    found = annealed(K, y, noise, particles=500, moves=8, random_seed=2)
    assert abs(mean_field(K, y, noise).log_evidence - found.log_evidence) < 0.1 + 4 * found.standard_error


def test_any_log_likelihood():
    def logistic(f):
        return -np.log1p(np.exp(-f)).sum(axis=1)

    exact = quad(lambda f: np.exp(-0.5 * (f - 0.5) ** 2 / 2) / np.sqrt(4 * np.pi) / (1 + np.exp(-f)), -20, 20)[0]
    found = annealed([[2.0]], None, logistic, mean=[0.5], particles=400, random_seed=3)
    assert found.log_evidence == pytest.approx(np.log(exact), abs=4 * found.standard_error + 1e-3)


def test_same_seed_same_result():
    run = [annealed(np.eye(2), [0.1, 0.2], gaussian(2.0), particles=50, groups=2, random_seed=5) for _ in range(2)]
    assert run[0].log_evidence == run[1].log_evidence
    np.testing.assert_array_equal(run[0].f, run[1].f)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"particles": 1}, "particles must be an integer of at least 2, got 1"),
        ({"groups": 1}, "groups must be an integer of at least 2, got 1"),
        ({"moves": 0}, "moves must be an integer of at least 1, got 0"),
        ({"efficiency": 1.5}, "efficiency must lie between 0 and 1, got 1.5"),
        ({"powers": [0.0, 0.5]}, "powers must ascend from 0 to 1"),
        ({"mean": [0.0]}, "mean must be a finite"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        annealed(np.eye(2), [0.1, 0.2], gaussian(2.0), **options)
    with pytest.raises(ValueError, match="K must be positive definite"):
        annealed(-np.eye(2), [0.1, 0.2], gaussian(2.0))

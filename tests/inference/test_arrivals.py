"""Odds against exchangeability: their definition by quadrature, Ville's inequality, and changes that they find."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from bsvr_pp.inference.arrivals import odds_of_change, ranks


def test_ranks_count_the_rows_so_far():
    np.testing.assert_allclose(ranks(np.array([3.0, 1.0, 2.0, 0.0, 2.0]), 3), [2 / 3, 1 / 4, 4 / 5])


def test_odds_are_the_mean_of_martingales():
    shares = np.array([0.3, 0.02, 0.6, 0.01])
    expected = 1 / 5
    for k in range(4):
        some = shares[k:]
        value = quad(lambda e, p=some: np.prod(e * p ** (e - 1)), 0, 1)[0]
        expected += value / ((k + 1) * (k + 2))
    assert odds_of_change(shares) == pytest.approx(expected, rel=1e-8)
    assert odds_of_change(np.empty(0)) == 1.0
    assert odds_of_change(np.ones(5)) < 1.0


def test_false_alarms_and_changes():
    """At most one stream in 100 exceeds odds of 100 at any time, and a change after 150 rows is found."""
    rng, highest, found = np.random.default_rng(0), [], []
    for _ in range(300):
        shares = rng.uniform(size=200)
        highest.append(max(odds_of_change(shares[:k]) for k in range(5, 200, 5)))
        shares[150:] *= 0.05
        found.append(odds_of_change(shares[:170]))
    assert np.mean(np.array(highest) >= 100.0) <= 0.01
    assert min(found) > 100.0

"""Chaining against quadrature, exact limits and itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from bsvr_pp.approximations import mean_field
from bsvr_pp.classification.chaining import chained
from bsvr_pp.classification.factors import Factors
from bsvr_pp.losses import hinge

K3 = np.array([[2.0, 1.0, 0.3], [1.0, 1.5, 0.6], [0.3, 0.6, 1.0]])
Y3 = np.array([1.0, 1.0, -1.0])


def grid(K, factors):
    """Nodes of Gauss-Legendre between the kinks, and the log of prior times factors times weight."""
    x, w = np.polynomial.legendre.leggauss(16)
    ends = np.array([-9.0, -3.5, -1.0, 0.0, 1.0, 3.5, 9.0])
    half = np.diff(ends)[:, None] / 2
    side, weight = (ends[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    f = np.stack(np.meshgrid(*[side] * len(K), indexing="ij"), axis=-1).reshape(-1, len(K))
    cell = sum(np.meshgrid(*[np.log(weight)] * len(K), indexing="ij")).ravel()
    return f, multivariate_normal(np.zeros(len(K)), K).logpdf(f) + factors.log(f) + cell


@pytest.mark.parametrize("kind", ["hinge", "survival", "mean_survival", "logistic"])
@pytest.mark.parametrize("C", [0.5, 4.0])
def test_three_points_against_quadrature(kind, C):
    factors = Factors(kind, C, Y3 if kind in ("hinge", "logistic") else None)
    f, level = grid(K3, factors)
    truth = logsumexp(level)
    result = chained(K3, factors, random_seed=1)
    assert abs(result.log_mass - truth) < 4 * result.standard_error
    assert 0 < result.standard_error < 0.03
    mean = np.exp(level - truth) @ (f * f)
    error = (result.f**2).std(axis=0) / np.sqrt(len(result.f))
    assert (np.abs((result.f**2).mean(axis=0) - mean) < 8 * error).all()


def test_a_start_from_mean_field_has_the_same_mass_with_a_smaller_error():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(30))
    K = 2.0 * np.exp(-((x[:, None] - x) ** 2) / 0.02) + 1e-6 * np.eye(30)
    y = np.where(np.sin(12 * x) > 0, 1.0, -1.0)
    factors = Factors("hinge", 2.0, y)
    plain = chained(K, factors, random_seed=1, particles=1000)
    quick = chained(K, factors, start=mean_field(K, y, hinge(2.0)), random_seed=2)
    assert quick.standard_error < 0.5 * plain.standard_error
    assert abs(quick.log_mass - plain.log_mass) < 4 * plain.standard_error


def test_independent_points_factorise():
    """For diagonal K mean field is exact, and so is the integral."""
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    K = np.diag([0.5, 1.0, 2.0, 3.0, 4.0])
    exact = mean_field(K, y, hinge(3.0)).log_evidence
    result = chained(K, Factors("hinge", 3.0, y), random_seed=3)
    assert abs(result.log_mass - exact) < 4 * result.standard_error


def test_the_standard_error_is_the_spread_over_runs():
    factors = Factors("survival", 3.0)
    runs = [chained(K3, factors, random_seed=s, particles=50, groups=8) for s in range(60)]
    spread = np.std([r.log_mass for r in runs])
    assert 0.7 < np.sqrt(np.mean([r.standard_error**2 for r in runs])) / spread < 1.4


def test_same_seed_same_result_and_powers_can_be_passed_on():
    factors = Factors("survival", 2.0)
    first, second = (chained(K3, factors, random_seed=5) for _ in range(2))
    assert first.log_mass == second.log_mass and (first.f == second.f).all()
    again = chained(K3, factors, powers=first.powers, random_seed=6)
    assert (again.powers == first.powers).all()
    assert (np.diff(first.powers) > 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"K": np.zeros((2, 3))}, "K must be an"),
        ({"K": np.full((3, 3), np.nan)}, "K must be finite"),
        ({"K": np.zeros((3, 3))}, "K must be positive definite"),
        ({"K": np.eye(4)}, "y must have 4 values"),
        ({"particles": 1}, "particles must be an integer of at least 2"),
        ({"groups": 1.5}, "groups must be an integer of at least 2"),
        ({"moves": 0}, "moves must be an integer of at least 1"),
        ({"efficiency": 1.0}, "efficiency must lie strictly between 0 and 1"),
        ({"powers": [0.0, 0.5]}, "powers must ascend from 0 to 1"),
        ({"start": mean_field(np.eye(2), [1.0, -1.0], hinge(1.0))}, "start must have 3 sites"),
    ],
)
def test_errors_name_the_argument(change, words):
    arguments = {"K": K3, "factors": Factors("hinge", 1.0, Y3)} | change
    with pytest.raises(ValueError, match=words):
        chained(arguments.pop("K"), arguments.pop("factors"), **arguments)

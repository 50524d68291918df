"""Sample weights of sites: powers of the likelihood against quadrature, and against repeated rows."""

import itertools

import numpy as np
import pytest
from problems import REGRESSION
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from bsvr_pp.classification.normaliser import Known, MeanKnown
from bsvr_pp.core.approximations import find_mode, laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.losses import gaussian, hinge


@pytest.mark.parametrize("noise", [*REGRESSION, hinge(2.0)], ids=repr)
@pytest.mark.parametrize("weight", [0.3, 1.0, 3.0])
def test_the_evidence_of_one_row_is_the_integral_of_the_power(noise, weight):
    """Mean field is exact for one row, whatever its weight."""
    y, variance = 1.0, 1.3
    found = mean_field([[variance]], [y], noise.weighted([weight]))

    def integrand(f):
        residual = 1.0 - y * f if noise.kind.targets.values else y - f
        return np.exp(weight * float(noise.log_density(residual))) * norm.pdf(f, scale=variance**0.5)

    knots = sorted({y - float(k) for k in noise.sites([y]).knots.ravel()} | {0.0})
    points = [-12.0, *(k for k in knots if -12 < k < 12), 12.0]
    pairs = list(itertools.pairwise(points))
    mass = sum(quad(integrand, low, high)[0] for low, high in pairs)
    first = sum(quad(lambda f: f * integrand(f), low, high)[0] for low, high in pairs)
    assert found.log_evidence == pytest.approx(np.log(mass), abs=1e-7)
    assert found.mean[0] == pytest.approx(first / mass, abs=1e-7)


def problem(n=6, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=n)
    K = np.exp(-0.5 * (X[:, None] - X) ** 2) + 1e-8 * np.eye(n)
    return K, np.sin(X) + 0.2 * rng.normal(size=n), np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0])


def test_gaussian_noise_is_that_of_repeated_rows():
    K, y, w = problem()
    rows = np.repeat(np.arange(6), w.astype(int))
    exact = multivariate_normal.logpdf(y[rows], cov=K[np.ix_(rows, rows)] + np.eye(rows.size) / 4.0)
    for method in (laplace, mean_field):
        assert method(K, y, gaussian(4.0).weighted(w)).log_evidence == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("noise", REGRESSION, ids=repr)
def test_the_mode_is_that_of_repeated_rows(noise):
    K, y, w = problem()
    rows = np.repeat(np.arange(6), w.astype(int))
    one, many = find_mode(K, y, noise.weighted(w)), find_mode(K[np.ix_(rows, rows)], y[rows], noise)
    sums = np.bincount(rows, many.dual_coef)
    np.testing.assert_allclose(K @ one.dual_coef, K @ sums, atol=1e-5)


@pytest.mark.parametrize("gradient", [laplace_gradient, mean_field_gradient])
def test_gradients_by_the_parameters_are_those_of_the_weighted_evidence(gradient):
    K, y, w = problem()
    noise = REGRESSION[0]
    _, found = gradient(K, y, noise.weighted(w))
    for name, value in noise.parameters.items():
        values = []
        for step in (1e-5, -1e-5):
            moved = type(noise)(noise.kind, {**noise.parameters, name: value + step})
            values.append(gradient(K, y, moved.weighted(w))[0])
        assert found.parameters[name] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-6)


def test_weights_leave_the_noise_of_new_targets_alone():
    noise = REGRESSION[0]
    heavy = noise.weighted([5.0, 2.0])
    assert heavy.variance == noise.variance and heavy.log_normalizer == noise.log_normalizer
    assert heavy.n_points is None and heavy.weighted().weight.tolist() == [1.0]


@pytest.mark.parametrize("factor", [Known, MeanKnown])
def test_weights_of_normalisers_are_repetitions(factor):
    rng = np.random.default_rng(0)
    f, w = 2.0 * rng.normal(size=(5, 6)), np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0])
    rows = np.repeat(np.arange(6), w.astype(int))
    one, many = factor(1.7, weight=w), factor(1.7)
    np.testing.assert_allclose(one(f), many(f[:, rows]), rtol=1e-12)
    (by_f, by), (all_f, all_by) = one.slopes(f), many.slopes(f[:, rows])
    np.testing.assert_allclose(by["C"], all_by["C"], rtol=1e-12)
    np.testing.assert_allclose(by_f, np.stack([np.bincount(rows, row) for row in all_f]), rtol=1e-12)

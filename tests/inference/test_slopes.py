"""Slopes of f: differences of kernels against finite differences, posteriors against joint Gaussians and quadrature."""

from dataclasses import replace

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.core.approximations import mean_field
from bsvr_pp.inference.monotone import (
    RISE,
    SMOOTH_KERNELS,
    STEP,
    WIDTH,
    GivenSlopes,
    SlopeCovariances,
    Slopes,
    _on_scale,
)
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
N, M, D = 400, 8, 3  # enough rows for products of effects
X = np.column_stack([RNG.lognormal(size=N), RNG.normal(size=N), RNG.integers(0, 4, N)])
Y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
SLOPES = Slopes(np.array([1.0, -1.0, 0.0]), RNG.uniform(0.1, 2.0, (M, D)), np.arange(M) % 2)
AT = {"effect_detail": 0.7, "effect_pairs": 0.5, "inverse_alpha": 0.4, "warping": 0.4}


def problem_of(kernel, X=X, y=Y, **given):
    """A problem of a default model and a point of its hyperparameters, at which every part of the kernel counts."""
    model = bp.default_model(X, y, kernel=kernel, **given)
    problem = read_model(model)
    start = problem.to_constrained([model.initial_point(0)[v.name] for v in problem.values])
    return problem, problem.complete(start | {name: v for name, v in AT.items() if name in start})


@pytest.mark.slow_cases("rbf", "matern52", "rational_quadratic", "main_effects")
@pytest.mark.parametrize("kernel", SMOOTH_KERNELS)
def test_covariances_of_slopes_are_those_of_differences(kernel):
    problem, point = problem_of(kernel)
    assert kernel != "main_effects" or set(AT) | {"level_amplitude"} < set(point)
    slopes = replace(SLOPES, X=SLOPES.X.copy())
    slopes.X[:, 2] = np.arange(M) % 4  # levels that the rows have
    ahead = STEP * np.eye(D)[slopes.inputs]
    places = np.vstack([slopes.X + ahead, slopes.X - ahead, X])
    (scale,) = problem.evaluate("scale", lambda Z: [_on_scale(problem.prior.cov_func, Z)], point, places)
    rise = (scale[:M] - scale[M : 2 * M])[np.arange(M), slopes.inputs]
    assert (rise > 0.0).all() and np.allclose(rise, 2 * STEP) == (kernel != "main_effects")

    def slope_of(f):
        return slopes.signs[slopes.inputs, None] * (f[:M] - f[M : 2 * M]) / rise[:, None]

    found, expected = SlopeCovariances(problem, point, slopes), slope_of(problem.between(point, places).dense())
    np.testing.assert_allclose(found.with_values(X), expected[:, 2 * M :], atol=1e-8 * np.abs(expected).max())
    own = found.with_slopes()
    np.testing.assert_allclose(own, slope_of(expected.T), atol=1e-8 * np.abs(own).max())
    assert np.linalg.eigvalsh(own).min() > 0


@pytest.mark.slow
def test_a_prior_given_slopes_is_that_of_the_joint_gaussian():
    problem, point = problem_of("main_effects")
    found = SlopeCovariances(problem, point, SLOPES)
    new = RNG.uniform(0.1, 2.0, (5, D))
    both = np.vstack([X, new])
    prior = problem.between(point, both).dense()
    S, C = found.with_slopes() + WIDTH**2 * np.eye(M), found.with_values(both)
    K = prior - C.T @ np.linalg.solve(S, C)
    mean = C.T @ np.linalg.solve(S, np.full(M, RISE))
    given = GivenSlopes.of(problem, SLOPES)
    covariance, at_rows, _ = given.dense_at(point)
    np.testing.assert_allclose(covariance.dense(), K[:N, :N] + problem.prior.jitter * np.eye(N), atol=1e-8)
    np.testing.assert_allclose(at_rows, mean[:N], atol=1e-8)
    np.testing.assert_allclose(given.mean_at(point), mean[:N], atol=1e-8)
    cross, diagonal, at_new = given.cross(point, new)
    np.testing.assert_allclose(cross, K[N:, :N], atol=1e-8)
    np.testing.assert_allclose(diagonal, np.diag(K)[N:], atol=1e-8)
    np.testing.assert_allclose(at_new, mean[N:], atol=1e-8)
    np.testing.assert_allclose(given.between(point, both).dense(), K, atol=1e-8)
    assert GivenSlopes.of(problem, Slopes.none(SLOPES.signs)) is problem
    with pytest.raises(ValueError, match="nearest rows take no slopes"):
        given.prior_of_each(point, new[None])


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_rows_and_slopes_have_the_posterior_of_quadrature(count):
    rows, y = np.array([[-0.6], [0.7]]), np.array([0.8, -0.5])  # which fall, and shall rise
    problem, point = problem_of("rbf", rows, y)
    slopes = Slopes(np.ones(1), np.array([[0.0], [1.0]])[:count], np.zeros(count, dtype=np.intp))
    K, mean, noise = GivenSlopes.of(problem, slopes).dense_at(point)
    found = mean_field(K, y, noise, mean=mean)
    deviation = np.sqrt(np.diag(K.dense()))
    axes = [m + s * np.linspace(-9, 9, 1201) for m, s in zip(found.mean, np.sqrt(found.variance), strict=True)]
    f = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    gap = f - mean
    square = np.einsum("ij,ij->i", gap, np.linalg.solve(K.dense(), gap.T).T)
    log_density = noise.log_likelihood(y, f).sum(axis=1) - 0.5 * square
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    expected = weight @ f
    spread = np.sqrt(weight @ (f - expected) ** 2)
    np.testing.assert_allclose(found.mean, expected, atol=0.03 * spread.max())
    np.testing.assert_allclose(np.sqrt(found.variance), spread, rtol=0.05)
    assert (deviation > spread).all()

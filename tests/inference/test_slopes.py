"""Slopes of f: derivatives of kernels against finite differences, posteriors against joint Gaussians and quadrature."""

from dataclasses import replace

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.core.approximations import mean_field
from bsvr_pp.inference.monotone import RISE, SMOOTH_KERNELS, WIDTH, GivenSlopes, SlopeCovariances, Slopes
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
N, M, D = 400, 8, 3  # enough rows for products of effects
X = np.column_stack([RNG.lognormal(size=N), RNG.normal(size=N), RNG.integers(0, 4, N)])
Y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
SLOPES = Slopes(np.array([1.0, -1.0, 0.0]), RNG.uniform(0.1, 2.0, (M, D)), np.arange(M) % 2)
STEP = 1e-3
AHEAD, SHARE = STEP * np.array([-3, -2, -1, 1, 2, 3]), np.array([-1, 9, -45, 45, -9, 1]) / (60 * STEP)
AT = {"effect_detail": 0.7, "effect_pairs": 0.5, "inverse_alpha": 0.4, "warping": 0.4}


def problem_of(kernel, X=X, y=Y, **given):
    """A problem of a default model and a point of its hyperparameters, at which every part of the kernel counts."""
    model = bp.default_model(X, y, kernel=kernel, **given)
    problem = read_model(model)
    start = problem.to_constrained([model.initial_point(0)[v.name] for v in problem.values])
    return problem, problem.complete(start | {name: v for name, v in AT.items() if name in start})


def derivative(problem, point, slopes, covariances, scale):
    """Finite differences of covariances by the input of each slope, on the scale of the kernel."""
    out = []
    for x, k in zip(slopes.X, slopes.inputs, strict=True):
        near = np.tile(x, (AHEAD.size, 1))
        near[:, k] += AHEAD
        change = SHARE @ scale(near)[:, k]
        out.append(slopes.signs[k] * np.tensordot(SHARE, covariances(near), axes=1) / change)
    return np.array(out)


@pytest.mark.slow_cases("rbf", "matern52", "rational_quadratic")
@pytest.mark.parametrize("kernel", SMOOTH_KERNELS)
def test_covariances_of_slopes_are_derivatives(kernel):
    problem, point = problem_of(kernel)
    assert kernel != "main_effects" or set(AT) | {"level_amplitude"} < set(point)
    slopes = replace(SLOPES, X=SLOPES.X.copy())
    slopes.X[:, 2] = np.arange(M) % 4  # levels that the rows have
    found = SlopeCovariances(problem, point, slopes)

    def scale(near):
        return found._forms(near)[0][2]

    def with_f(near):
        return problem.evaluate("pairs", lambda Z: [problem.prior_at(Z)[0].given], point, np.vstack([near, X]))[0][
            : len(near), len(near) :
        ]

    expected = derivative(problem, point, slopes, with_f, scale)
    np.testing.assert_allclose(found.with_values(X), expected, atol=1e-8 * np.abs(expected).max())
    expected = derivative(problem, point, slopes, lambda near: found.with_values(near).T, scale)
    own = found.with_slopes()
    apart = ~np.eye(M, dtype=bool) if kernel == "matern32" else np.ones((M, M), dtype=bool)  # it has a kink at 0
    np.testing.assert_allclose(own[apart], expected.T[apart], atol=1e-8 * np.abs(expected).max())
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

"""Mean field in JAX against the compiled core, and its linear algebra against dense matrices."""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
import pytest

from benchmarks.problems import from_the_box
from bsvr_pp.approximations import mean_field, mean_field_gradient
from tests.approximations.problems import LOSSES, smooth

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytestmark = pytest.mark.slow  # XLA compiles for long
jnp = jax.numpy

from bsvr_pp.jax.solve import _product, factor_sites, pull_back, solve, total  # noqa: E402

N = 40
QUICKLY = {"xla_backend_optimization_level": 0}  # XLA compiles in half of the time without optimisation


@cache
def solver(loss, **limits):
    """The compiled solver."""
    return jax.jit(partial(solve, loss, **limits), compiler_options=QUICKLY)


def solved(K, y, noise, used=None, start=None, **limits):
    """The solution in JAX."""
    used = np.ones(len(y), bool) if used is None else used
    start = np.zeros((2, len(y))) if start is None else start
    parameters = np.array([[noise.parameters[name]] for name in noise.kind.parameters], dtype=float)
    return solver(noise.kind.name, **limits)(K, y, y, parameters, used, start)


def assert_same_gradient(found, gradient, noise):
    """All derivatives agree to 1e-6 of the largest."""
    by = {name: found.by_parameters[i].sum() for i, name in enumerate(noise.kind.parameters)}
    pairs = {"K": (found.by_K, gradient.K), "mean": (-found.by_residual, gradient.mean)}
    for name, (here, there) in (pairs | {name: (by[name], gradient.parameters[name]) for name in by}).items():
        scale = max(1.0, np.abs(there).max())
        np.testing.assert_allclose(np.asarray(here) / scale, there / scale, atol=1e-6, err_msg=name)


def assert_failed(found):
    """The value of a failure, with gradients of zero and the flag."""
    assert float(found.value) == -np.inf
    assert not found.converged
    for gradient in (found.by_K, found.by_residual, found.by_parameters):
        np.testing.assert_array_equal(np.asarray(gradient), 0.0)


def assert_same(K, y, noise):
    """Flags are equal; values to 1e-8, and gradients to 1e-6 where both mismatches are at most 1e-8."""
    value, gradient = mean_field_gradient(K, y, noise)
    posterior, found = mean_field(K, y, noise), solved(K, y, noise)
    assert bool(found.converged) == posterior.converged
    np.testing.assert_allclose(float(found.value), value, rtol=1e-8)
    if max(float(found.mismatch), posterior.mismatch) <= 1e-8:
        assert_same_gradient(found, gradient, noise)


# One loss quickly: JAX compiles for a few seconds for each table.
@pytest.mark.parametrize(
    "noise", [LOSSES[0], *(pytest.param(noise, marks=pytest.mark.slow) for noise in LOSSES[1:])], ids=repr
)
def test_fixed_points_are_those_of_the_core(noise):
    assert_same(*smooth(N, noise=noise), noise)


@pytest.mark.parametrize(
    "part", [range(50), pytest.param(range(50, 500), marks=pytest.mark.slow)], ids=["50 settings", "450 settings"]
)
def test_fixed_points_over_the_whole_range_of_hyperparameters(part):
    for index in part:
        assert_same(*from_the_box(index, N))


def test_a_failure_is_a_value():
    K, y = smooth(N)
    assert_failed(solved(np.full_like(K, np.nan), y, LOSSES[0]))


def test_the_start_changes_the_work_but_not_the_solution():
    K, y, noise = from_the_box(0, N)
    cold = solved(K, y, noise)
    warm, broken = (solved(K, y, noise, start=start) for start in (cold.sites, np.full((2, N), np.nan)))
    assert int(warm.iterations) < int(cold.iterations)
    for found in (warm, broken):
        assert found.converged
        np.testing.assert_allclose(float(found.value), float(cold.value), rtol=1e-8)


def test_sweeps_that_are_cut_off_are_a_failure():
    K, y, noise = from_the_box(0, N)
    assert_failed(solved(K, y, noise, max_iterations=1, attempts=1))


def test_rows_that_fill_up_a_batch_change_nothing():
    (K, y), noise = smooth(N - 7), LOSSES[0]
    wide, targets, used = np.eye(N), np.zeros(N), np.arange(N) < N - 7
    wide[: N - 7, : N - 7], targets[: N - 7] = K, y
    found, alone = solved(wide, targets, noise, used), mean_field(K, y, noise)
    np.testing.assert_allclose(float(found.value), alone.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(found.dual_coef[: N - 7]), alone.dual_coef, atol=1e-6)
    for rows in (found.dual_coef, found.site_precision, found.by_residual, found.by_parameters[0]):
        np.testing.assert_array_equal(np.asarray(rows[N - 7 :]), 0.0)


@pytest.mark.slow
def test_a_batch_is_solved_together():
    problems = [smooth(N, seed) for seed in range(3)]
    K, y = (jnp.stack([jnp.asarray(problem[i]) for problem in problems]) for i in (0, 1))
    together = jax.vmap(lambda K, y: solved(K, y, LOSSES[0]))(K, y)
    alone = [mean_field(*problem, LOSSES[0]).log_evidence for problem in problems]
    np.testing.assert_allclose(np.asarray(together.value), alone, rtol=1e-9)


def setting(bias):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, N)
    tau = rng.exponential(size=N)
    tau[::3] = 0.0
    return np.exp(-0.5 * np.subtract.outer(x, x) ** 2) + bias + 1e-6 * np.eye(N), tau


def test_sums_do_not_lose_what_is_left_of_terms_that_cancel():
    rng = np.random.default_rng(1)
    for size in (1, 7, 100):
        x = rng.normal(size=size) * 10.0 ** rng.uniform(-8, 8, size)
        x = np.concatenate([x, -x[::-1], [1e-7]])
        assert float(total(x)) == pytest.approx(math.fsum(x), rel=1e-12)
        assert float(jax.jit(total)(x)) == pytest.approx(math.fsum(x), rel=1e-12)
    assert float(total(np.zeros(3))) == 0.0


@pytest.mark.parametrize("bias", [0.0, 1e6])
def test_products_with_a_large_constant(bias):
    K, x = setting(bias)[0], np.random.default_rng(2).normal(size=N)
    x -= x.mean()  # so that the constant has no effect
    np.testing.assert_allclose(np.asarray(_product(jnp.asarray(K))(x)), (K - bias) @ x, atol=1e-8)


def test_sites():
    K, tau = setting(0.0)
    sites = factor_sites(jnp.asarray(K), tau)
    R = np.sqrt(tau)[:, None] * np.linalg.inv(np.eye(N) + np.sqrt(tau)[:, None] * K * np.sqrt(tau)) * np.sqrt(tau)
    covariance = K - K @ R @ K
    assert float(sites.log_det) == pytest.approx(np.linalg.slogdet(np.eye(N) + K * tau)[1], rel=1e-10)
    variance = np.diag(covariance)
    np.testing.assert_allclose(np.asarray(sites.variance), variance, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(sites.cavity_variance), 1.0 / (1.0 / variance - tau), rtol=1e-8)
    a = np.random.default_rng(3).normal(size=N)
    np.testing.assert_allclose(np.asarray(sites.apply_inverse(a)), R @ a, atol=1e-9)
    np.testing.assert_allclose(np.asarray(pull_back(sites, a)), 0.5 * (np.outer(a, a) - R), atol=1e-9)

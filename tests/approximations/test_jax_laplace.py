"""Local Laplace in JAX against the compiled core: values, gradients, flags, batches."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.problems import from_the_box
from bsvr_pp.approximations import laplace, laplace_gradient
from bsvr_pp.losses import gaussian, hinge, huber, pinball
from bsvr_pp.losses import laplace as laplace_noise
from tests.approximations.problems import LOSSES, smooth

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from tests.approximations.in_jax import (  # noqa: E402
    N,
    assert_failed,
    assert_same_gradient,
    each_loss,
    filled_up,
    in_double_precision,
    parts_of_the_box,
    solved,
)


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    in_double_precision()


def assert_same(K, y, noise):
    """Flags and kinds are equal; values to 1e-8, and gradients to 1e-6."""
    value, gradient = laplace_gradient(K, y, noise, curvature="local")
    posterior, found = laplace(K, y, noise, curvature="local"), solved("laplace_local", K, y, noise)
    assert bool(found.converged) == posterior.converged
    assert float(found.gap) <= max(1e-11, 10.0 * posterior.duality_gap)
    np.testing.assert_array_equal(np.asarray(found.support), posterior.support)
    np.testing.assert_allclose(float(found.value), value, rtol=1e-8)
    assert_same_gradient(found, gradient, noise)
    for name in ("variance", "cavity_variance"):
        np.testing.assert_allclose(np.asarray(getattr(found, name)), getattr(posterior, name), rtol=1e-6, err_msg=name)


@each_loss
def test_solutions_are_those_of_the_core(noise):
    assert_same(*smooth(N, noise=noise), noise)


@parts_of_the_box
def test_solutions_over_the_whole_range_of_hyperparameters(part):
    for index in part:
        assert_same(*from_the_box(index, N))


@pytest.mark.slow
@pytest.mark.parametrize("make", [laplace_noise, pinball, gaussian, huber, hinge], ids=lambda make: make.__name__)
def test_other_losses_over_the_whole_range_of_hyperparameters(make):
    for index in range(1000, 1100):
        K, y, noise = from_the_box(index, N)
        C, epsilon = noise.parameters["C"], noise.parameters["epsilon"]
        if make is hinge:
            if index % 2:  # repeated rows with equal labels, whose difference only the jitter determines
                continue
            y = np.where(y > np.median(y), 1.0, -1.0)
        others = {huber: [epsilon], pinball: [0.1 + 0.8 * (index % 7) / 6]}
        assert_same(K, y, make(C, *others.get(make, [])))


def test_a_failure_is_a_value():
    K, y = smooth(N)
    assert_failed(solved("laplace_local", np.full_like(K, np.nan), y, LOSSES[0]))


@pytest.mark.slow
def test_a_search_that_is_cut_off_is_a_failure():
    K, y, noise = from_the_box(0, N)
    assert_failed(solved("laplace_local", K, y, noise, max_iterations=3))
    assert_failed(solved("laplace_local", K, y, noise, max_iterations=3, attempts=1))


def test_the_start_changes_the_work_but_not_the_solution():
    K, y, noise = from_the_box(0, N)
    cold = solved("laplace_local", K, y, noise)
    sites = np.stack([cold.dual_coef, cold.site_precision])
    warm, lost, broken = (
        solved("laplace_local", K, y, noise, start=start)
        for start in (sites, np.full((2, N), 1e6), np.full((2, N), np.nan))
    )
    assert int(warm.iterations) < int(cold.iterations)
    for found in (warm, lost, broken):
        assert found.converged
        np.testing.assert_allclose(float(found.value), float(cold.value), rtol=1e-8)
        np.testing.assert_allclose(np.asarray(found.by_K), np.asarray(cold.by_K), rtol=1e-6, atol=1e-6)


def test_rows_that_fill_up_a_batch_change_nothing():
    K, y = smooth(N - 7)
    noise, alone = LOSSES[0], laplace(K, y, LOSSES[0], curvature="local")
    wide, targets, used = filled_up(K, y, N)
    wide[N - 7 :], wide[:, N - 7 :], targets[N - 7 :] = wide[0], wide[:, :1], targets[0]  # copies of the first
    found = solved("laplace_local", wide, targets, noise, used)
    np.testing.assert_allclose(float(found.value), alone.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(found.dual_coef[used]), alone.dual_coef, atol=1e-8)
    np.testing.assert_array_equal(np.asarray(found.support[used]), alone.support)
    for rows in (found.dual_coef, found.site_precision, found.by_residual, found.by_parameters[0]):
        np.testing.assert_array_equal(np.asarray(rows)[~used], 0.0)


@pytest.mark.slow
def test_a_batch_is_solved_together():
    problems = [smooth(N, seed) for seed in range(3)]
    K, y = (jnp.stack([jnp.asarray(problem[i]) for problem in problems]) for i in (0, 1))
    together = jax.vmap(lambda K, y: solved("laplace_local", K, y, LOSSES[0]))(K, y)
    for place, problem in enumerate(problems):
        value, gradient = laplace_gradient(*problem, LOSSES[0], curvature="local")
        np.testing.assert_allclose(float(together.value[place]), value, rtol=1e-9)
        np.testing.assert_allclose(np.asarray(together.by_K[place]), gradient.K, atol=1e-6 * np.abs(gradient.K).max())

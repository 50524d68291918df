"""Mean field in JAX against the compiled core: tables, moments, fixed points, batches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.problems import from_the_box
from bsvr_pp.approximations import mean_field, mean_field_gradient
from bsvr_pp.losses import LOSSES
from bsvr_pp.losses.pieces import Pieces
from bsvr_pp.losses.tilted import tilted_moments
from bsvr_pp.losses.weighted import weighted
from tests.approximations.problems import LOSSES as NOISES
from tests.approximations.problems import smooth

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from bsvr_pp.approximations import jax_pieces  # noqa: E402
from tests.approximations.in_jax import (  # noqa: E402
    QUICKLY,
    N,
    assert_failed,
    assert_same_gradient,
    each_loss,
    filled_up,
    in_double_precision,
    parts_of_the_box,
    solved,
)

VALUES = {
    "soft_insensitive": [[5.0, 20.0, 300.0], [0.1, 0.3, 0.01], [0.3, 0.0, 1.0]],
    "epsilon_insensitive": [[5.0, 1e3, 0.1], [0.1, 0.0, 2.0]],
    "huber": [[5.0, 1e3, 0.1], [0.1, 0.0, 2.0]],
    "laplace": [[3.0, 1e3, 0.1]],
    "gaussian": [[9.0, 1e4, 0.1]],
    "pinball": [[4.0, 1e3, 0.1], [0.2, 0.5, 0.99]],
    "hinge": [[2.0, 1e3, 0.1]],
}


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    in_double_precision()


def tables(name):
    """The table of both, for three points."""
    parameters, y = np.array(VALUES[name]), np.array([1.0, -1.0, 1.0])
    return LOSSES[name].table(parameters, y), jax.jit(jax_pieces.TABLES[name], compiler_options=QUICKLY)(parameters, y)


def assert_same(K, y, noise):
    """Flags are equal; values to 1e-8, and gradients to 1e-6 where both mismatches are at most 1e-8."""
    value, gradient = mean_field_gradient(K, y, noise)
    posterior, found = mean_field(K, y, noise), solved("mean_field", K, y, noise)
    assert bool(found.converged) == posterior.converged
    np.testing.assert_allclose(float(found.value), value, rtol=1e-8)
    if max(float(found.mismatch), posterior.mismatch) <= 1e-8:
        assert_same_gradient(found, gradient, noise)


def test_every_loss_has_a_table():
    assert set(jax_pieces.TABLES) == set(LOSSES) == set(VALUES)


@cache
def moments():
    """The compiled function, once for all losses of one shape."""
    return jax.jit(jax_pieces.tilted_moments, compiler_options=QUICKLY)


# The losses of fewer parameters are special cases of the first.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ("epsilon_insensitive", "huber") else ()) for n in VALUES]
)
def test_tables_and_moments_are_those_of_the_core(name):
    expected, found = tables(name)
    for field in Pieces._fields:
        here, there = np.asarray(getattr(found, field)), getattr(expected, field)
        assert here.shape == there.shape, field
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-13, err_msg=field)
    for variance in (1e-12, 1e-4, 1.0, 1e6):
        for mean in (0.0, 0.1, -3.0, 1e3):
            means, variances = mean * np.array([1.0, -1.0, 0.5]), np.full(3, variance)
            log_mass, score, _, tilted, by_parameters = tilted_moments(means, variances, expected)
            here = moments()(jnp.asarray(means), jnp.asarray(variances), found)
            for a, b in zip(here, (log_mass, score, tilted, by_parameters), strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9)


@each_loss
def test_fixed_points_are_those_of_the_core(noise):
    assert_same(*smooth(N, noise=noise), noise)


@parts_of_the_box
def test_fixed_points_over_the_whole_range_of_hyperparameters(part):
    for index in part:
        assert_same(*from_the_box(index, N))


def test_a_failure_is_a_value():
    K, y = smooth(N)
    assert_failed(solved("mean_field", np.full_like(K, np.nan), y, NOISES[0]))


def test_weights_are_powers_of_the_likelihood():
    weight = np.array([1.0, 0.5, 3.0])
    parameters, y = np.array(VALUES["pinball"]), np.array([1.0, -1.0, 1.0])
    expected = weighted(LOSSES["pinball"].table(parameters, y), weight)
    table = jax.jit(jax_pieces.table, static_argnums=0, compiler_options=QUICKLY)
    found = table("pinball", np.vstack([parameters, weight]), y)
    for field in Pieces._fields:
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-12, err_msg=field)


def test_rows_that_fill_up_a_batch_change_nothing():
    K, y = smooth(N - 7)
    wide, targets, used = filled_up(K, y, N)
    found, alone = solved("mean_field", wide, targets, NOISES[0], used), mean_field(K, y, NOISES[0])
    np.testing.assert_allclose(float(found.value), alone.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(found.dual_coef[: N - 7]), alone.dual_coef, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(found.site_precision[N - 7 :]), 0.0)


@pytest.mark.slow
def test_a_batch_is_solved_together():
    problems = [smooth(N, seed) for seed in range(3)]
    K, y = (jnp.stack([jnp.asarray(problem[i]) for problem in problems]) for i in (0, 1))
    together = jax.vmap(lambda K, y: solved("mean_field", K, y, NOISES[0]))(K, y)
    alone = [mean_field(*problem, NOISES[0]).log_evidence for problem in problems]
    np.testing.assert_allclose(np.asarray(together.value), alone, rtol=1e-9)

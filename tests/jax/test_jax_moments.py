"""Tables of pieces and moments in JAX: those of the compiled core."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bsvr_pp.losses import LOSSES
from bsvr_pp.losses.factors import of_rows, tilted_moments
from bsvr_pp.losses.pieces import Pieces

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from bsvr_pp.jax import moments  # noqa: E402

QUICKLY = {"xla_backend_optimization_level": 0}  # XLA compiles in half of the time without optimisation

VALUES = {
    "soft_insensitive": [[5.0, 20.0, 300.0], [0.1, 0.3, 0.01], [0.3, 0.0, 1.0]],
    "epsilon_insensitive": [[5.0, 1e3, 0.1], [0.1, 0.0, 2.0]],
    "huber": [[5.0, 1e3, 0.1], [0.1, 0.0, 2.0]],
    "absolute": [[3.0, 1e3, 0.1]],
    "gaussian": [[9.0, 1e4, 0.1]],
    "pinball": [[4.0, 1e3, 0.1], [0.2, 0.5, 0.99]],
    "hinge": [[2.0, 1e3, 0.1]],
}


def tables(name):
    """The table of both, for three points."""
    parameters, y = np.array(VALUES[name]), np.array([1.0, -1.0, 1.0])
    table = jax.jit(moments.table, static_argnums=0, compiler_options=QUICKLY)
    return LOSSES[name].table(parameters, y), table(name, parameters, y)


def test_every_loss_is_tested():
    assert set(LOSSES) == set(VALUES)


@cache
def compiled_moments():
    """The compiled function, once for all losses of one shape."""
    return jax.jit(moments.tilted_moments, compiler_options=QUICKLY)


# The losses of fewer parameters are special cases of the first.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ("epsilon_insensitive", "huber") else ()) for n in VALUES]
)
def test_tables_and_moments_are_those_of_the_core(name):
    expected, found = tables(name)
    for field in Pieces._fields[:-1]:  # exact targets have no ends here
        here, there = np.asarray(getattr(found, field)), getattr(expected, field)
        assert here.shape == there.shape, field
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-13, err_msg=field)
    for variance in (1e-12, 1e-4, 1.0, 1e6):
        for mean in (0.0, 0.1, -3.0, 1e3):
            means, variances = mean * np.array([1.0, -1.0, 0.5]), np.full(3, variance)
            log_mass, score, _, tilted, by_parameters = tilted_moments(means, variances, expected)
            here = compiled_moments()(jnp.asarray(means), jnp.asarray(variances), found)
            by = by_parameters[: len(VALUES[name])]  # without those by the ends of intervals
            for a, b in zip(here, (log_mass, score, tilted, by), strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9)


def test_weights_are_powers_of_the_likelihood():
    weight = np.array([1.0, 0.5, 3.0])
    parameters, y = np.array(VALUES["pinball"]), np.array([1.0, -1.0, 1.0])
    expected = of_rows(LOSSES["pinball"].table(parameters, y), np.zeros((len(y), 2)), weight)
    table = jax.jit(moments.table, static_argnums=0, compiler_options=QUICKLY)
    found = table("pinball", np.vstack([parameters, weight]), y)
    for field in Pieces._fields[:-1]:  # exact targets have no ends here
        given, truth = getattr(found, field), getattr(expected, field)  # a derivative is 0 up to rounding
        np.testing.assert_allclose(given, truth, rtol=1e-12, atol=1e-15, err_msg=field)

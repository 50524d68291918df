"""Solves in JAX, and their comparison with the compiled core."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from tests.approximations.problems import LOSSES

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from bsvr_pp.approximations import _jax  # noqa: E402
from bsvr_pp.approximations.jax_pieces import TABLES  # noqa: E402
from bsvr_pp.approximations.jax_solve import SOLVERS  # noqa: E402

N = 40

# One loss quickly: JAX compiles for a few seconds for each table.
each_loss = pytest.mark.parametrize(
    "noise", [LOSSES[0], *(pytest.param(noise, marks=pytest.mark.slow) for noise in LOSSES[1:])], ids=repr
)
parts_of_the_box = pytest.mark.parametrize(
    "part", [range(50), pytest.param(range(50, 500), marks=pytest.mark.slow)], ids=["50 settings", "450 settings"]
)

# XLA compiles in half of the time without optimisation.
QUICKLY = {"xla_backend_optimization_level": 0}


def in_double_precision():
    """Set JAX to double precision, as the package does."""
    assert _jax.register()


def table(noise, y):
    """The table of a noise model in JAX."""
    parameters = jnp.array([[noise.parameters[name]] for name in noise.kind.parameters], dtype=float)
    return TABLES[noise.kind.name](parameters, jnp.asarray(y))


@cache
def solver(approximation, **limits):
    """The compiled solver."""
    return jax.jit(partial(SOLVERS[approximation], **limits), compiler_options=QUICKLY)


def solved(approximation, K, y, noise, used=None, start=None, **limits):
    """The solution in JAX."""
    used = np.ones(len(y), bool) if used is None else used
    start = np.zeros((2, len(y))) if start is None else start
    return solver(approximation, **limits)(K, y, table(noise, y), used, start)


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


def filled_up(K, y, n):
    """The problem with rows up to n that are no data, and which rows are."""
    wide, targets, used = np.eye(n), np.zeros(n), np.arange(n) < len(y)
    wide[: len(y), : len(y)], targets[: len(y)] = K, y
    return wide, targets, used

"""The Moreau envelope in JAX against the compiled core, and the line search against a fine grid."""

from __future__ import annotations

import numpy as np
import pytest

from bsvr_pp.approximations.mode import subgradient
from tests.approximations.problems import LOSSES

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from bsvr_pp.approximations.jax_envelope import envelope, line_search  # noqa: E402
from bsvr_pp.approximations.jax_pieces import by_row  # noqa: E402
from tests.approximations.in_jax import QUICKLY, in_double_precision  # noqa: E402

N = 50


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    in_double_precision()


def rows(noise, y):
    """The table of the core with one row per point."""
    pieces = noise.sites(y)
    return by_row(pieces._replace(d_energy=np.zeros((0, *pieces.d_energy.shape[1:]))), jnp.ones(y.size, bool))


def test_slopes_are_those_of_the_core():
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], N)
    slopes = jax.jit(lambda h, pieces, s: envelope(h, pieces).subgradient(s), compiler_options=QUICKLY)
    for noise in LOSSES:
        expected, pieces = noise.sites(y), rows(noise, y)
        for h in (0.0, 1e-9, 0.3):
            s = 3.0 * h * rng.normal(size=N) * noise.parameters["C"] + rng.normal(size=N)
            here = slopes(h, pieces, s)
            own = np.arange(N) if expected.knots.shape[0] > 1 else np.zeros(N, int)
            table = expected.knots, expected.slope, expected.curvature
            there = [subgradient(x, h, k, *table) for x, k in zip(s, own, strict=True)]
            for a, b in zip(here, np.transpose(there), strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-10, atol=1e-12, err_msg=repr(noise))


def test_a_line_search_finds_the_minimum():
    rng = np.random.default_rng(1)
    slopes = envelope(0.02, rows(LOSSES[3], np.zeros(N)))
    at, search = jax.jit(slopes.subgradient), jax.jit(lambda *given: line_search(slopes, *given))
    for _ in range(5):
        root = rng.normal(size=(N, 5))
        K, r, a, step = root @ root.T, rng.normal(size=N), rng.normal(size=N), rng.normal(size=N)

        def slope(size, r=r, a=a, step=step, K=K):
            return (a + size * step - np.asarray(at(r - size * K @ step)[0])) @ K @ step

        step *= -np.sign(slope(0.0))
        size = float(search(r, a, step, K @ step, 1e-14))
        assert slope(0.999 * size, step=step) < 0.0 < slope(1.001 * size, step=step)
        assert abs(slope(size, step=step)) < 1e-8 * abs(slope(0.0))

"""The mode in JAX against the compiled core."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.problems import from_the_box
from bsvr_pp.approximations import find_mode
from bsvr_pp.approximations.mode import locate as locate_one
from tests.approximations.problems import LOSSES, smooth

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from bsvr_pp.approximations import jax_mode  # noqa: E402
from bsvr_pp.approximations.jax_pieces import by_row  # noqa: E402
from bsvr_pp.approximations.jax_sites import split  # noqa: E402
from tests.approximations.in_jax import QUICKLY, N, in_double_precision, table  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    in_double_precision()


@pytest.fixture(scope="module")
def find():
    def find(K, t, pieces):
        used = jnp.ones(t.size, bool)
        rows = by_row(pieces, used)
        mode = jax_mode.find_mode(split(K), t, rows, used, jnp.zeros(t.size))
        return mode, jax_mode.locate(mode, t - mode.shift, rows)

    return jax.jit(find, compiler_options=QUICKLY)


def assert_same(find, K, y, noise):
    """The optimum, its kinds of points, and the piece of each."""
    expected, (found, place) = find_mode(K, y, noise), find(jnp.asarray(K), jnp.asarray(y), table(noise, y))
    assert expected.converged == bool(found.converged)
    assert float(found.gap) <= max(1e-11, 10.0 * expected.duality_gap)
    assert float(found.objective) == pytest.approx(expected.objective, rel=1e-9)
    np.testing.assert_array_equal(np.asarray(found.support), expected.support)
    scale = np.abs(expected.dual_coef).max()
    np.testing.assert_allclose(np.asarray(found.dual_coef), expected.dual_coef, atol=1e-6 * scale)
    pieces, residuals = noise.sites(y), y - expected.f
    for i, (a, r, kind) in enumerate(zip(expected.dual_coef, residuals, expected.support, strict=True)):
        piece, u = locate_one(a, r, kind, i if pieces.knots.shape[0] > 1 else 0, pieces)
        assert piece == int(place.piece[i])
        assert u == pytest.approx(float(place.u[i]), abs=1e-5)


@pytest.mark.slow  # as the tests of Laplace, which contains the mode
def test_modes_over_the_whole_range_of_hyperparameters(find):
    for index in range(20):
        assert_same(find, *from_the_box(index, N))


@pytest.mark.slow
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_modes_of_all_losses(find, noise):
    assert_same(find, *smooth(N, noise=noise), noise)

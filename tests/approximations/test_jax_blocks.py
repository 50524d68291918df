"""Many blocks at once in JAX: the posteriors of the compiled core."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bsvr_pp._device import Device
from bsvr_pp.approximations import BlockDiagonal, Covariance, laplace, mean_field
from bsvr_pp.covariance.block_diagonal import Stack
from bsvr_pp.losses import gaussian, hinge, soft_insensitive

jax = pytest.importorskip("jax", reason="JAX is not installed")

from bsvr_pp.approximations import jax_blocks  # noqa: E402

RNG = np.random.default_rng(0)
N = 21
X = RNG.uniform(-2, 2, size=N)
Y = np.sin(2 * X) + 0.1 * RNG.normal(size=N)
MEAN = 0.1 * X
ORDER = RNG.permutation(N)
ROWS = np.split(ORDER, [8, 15])
FULL = np.exp(-0.5 * np.subtract.outer(X, X) ** 2) + 1e-6 * np.eye(N)
NOISE = soft_insensitive(10.0, 0.1, 0.3)
LOCAL = partial(laplace, curvature="local")
VECTORS = ("dual_coef", "site_precision", "mean", "variance", "cavity_variance")


def blocks(rows=ROWS, full=FULL):
    """Covariances made on the processor alone, and also on JAX's default device."""

    def make(b):
        return Covariance(full[np.ix_(rows[b], rows[b])], jitter=1e-6)

    stack = Stack(
        Device(None), lambda index: full[index[:, :, None], index[:, None, :]], jax_blocks.posteriors_of_blocks
    )
    return BlockDiagonal(rows, make), BlockDiagonal(rows, make, stack=stack)


def assert_same(found, expected):
    assert found.converged == expected.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    sd = np.sqrt(expected.variance)
    # Both moments match to 1e-8 standard deviations; sites are their derivatives.
    np.testing.assert_allclose(found.mean / sd, expected.mean / sd, atol=3e-8)
    for name in ("variance", "cavity_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7, err_msg=name)
    for name in ("dual_coef", "site_precision"):
        scale = np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6 * scale, err_msg=name)


@pytest.fixture
def solved_here(monkeypatch):
    """Numbers of the blocks that the processor solved."""
    seen = []
    part = BlockDiagonal.each

    def each(self, function, known=None):
        seen.extend(b for b in range(len(self.rows)) if b not in (known or {}))
        return part(self, function, known)

    monkeypatch.setattr(BlockDiagonal, "each", each)
    return seen


@pytest.mark.parametrize("solve", [mean_field, LOCAL], ids=["mean field", "local Laplace"])
def test_the_posterior_is_that_of_the_compiled_core(solve, solved_here):
    here, there = blocks()
    expected = solve(here, Y, NOISE, mean=MEAN)
    solved_here.clear()
    found = solve(there, Y, NOISE, mean=MEAN)
    assert solved_here == []
    assert_same(found, expected)
    if solve is LOCAL:
        np.testing.assert_array_equal(found.support, expected.support)
        assert found.duality_gap <= 1e-11
        assert found.n_iter == pytest.approx(expected.n_iter, abs=2)
    else:
        assert found.support.shape == (0,)  # the mode was not sought
    cross = FULL[:3] + 0.01
    for one, other in zip(found.predict(cross, np.ones(3)), expected.predict(cross, np.ones(3)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_exact_laplace_is_left_to_the_core(solved_here):
    here, there = blocks()
    found = laplace(there, Y, NOISE, mean=MEAN)
    assert solved_here == [0, 1, 2]
    assert found.log_evidence == laplace(here, Y, NOISE, mean=MEAN).log_evidence


@pytest.mark.slow
def test_searches_that_take_long_are_finished_by_the_core(solved_here, monkeypatch):
    here, there = blocks()
    expected = LOCAL(here, Y, NOISE, mean=MEAN)
    solved_here.clear()
    monkeypatch.setitem(jax_blocks._MOST, "laplace_local", 7)  # they take 9, 6 and 4 steps
    jax.clear_caches()
    assert_same(LOCAL(there, Y, NOISE, mean=MEAN), expected)
    assert solved_here == [0]
    jax.clear_caches()


def test_what_does_not_converge_on_the_device_is_solved_by_the_core(solved_here):
    full = FULL.copy()
    full[np.ix_(ROWS[1], ROWS[1])] = np.nan  # on the device alone
    here, _ = blocks()
    broken = BlockDiagonal(here.rows, here.part, stack=blocks(full=full)[1].stack)
    found = mean_field(broken, Y, NOISE, mean=MEAN)
    assert solved_here == [1]
    assert_same(found, mean_field(here, Y, NOISE, mean=MEAN))


def test_intervals_are_left_to_the_core(solved_here):
    noise = NOISE.between(Y, np.where(np.arange(N) % 3 == 0, np.inf, Y))
    one = [np.arange(N)]
    here, there = blocks(one)
    found = mean_field(there, Y, noise)
    assert solved_here == [0]
    assert found.log_evidence == mean_field(here, Y, noise).log_evidence


def test_labels_are_checked():
    with pytest.raises(ValueError, match="y"):
        mean_field(blocks()[1], Y, hinge(2.0))


@pytest.mark.slow
def test_weights_of_a_single_block():
    noise = gaussian(20.0).weighted(1.0 + np.arange(N) % 3)
    here, there = blocks([np.arange(N)])
    assert_same(mean_field(there, Y, noise), mean_field(here, Y, noise))


def test_too_little_memory_is_said(monkeypatch):
    def full(*args):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(jax_blocks, "_vectors", full)
    with pytest.raises(MemoryError, match="too small for these blocks"):
        mean_field(blocks()[1], Y, NOISE)

    def broken(*args):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(jax_blocks, "_vectors", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        mean_field(blocks()[1], Y, NOISE)

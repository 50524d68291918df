"""Products with a covariance that has a large constant part.

LAPACK wrappers against NumPy, from Python and from compiled code.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bsvr_pp.core.covariance.sites import solve_block
from bsvr_pp.core.covariance.structure import (
    add,
    cholesky,
    product,
    split,
    total,
)


@pytest.mark.parametrize("bias", [100.0, 1e6, 1e12])
def test_the_parts_add_up_exactly(bias):
    K = np.exp(-0.5 * np.arange(5.0)[:, None] * np.ones(5)) + bias
    K = np.minimum(K, K.T)
    _, rest, level, _, _, _ = split(K, 0.0)
    assert level == K.min()
    np.testing.assert_array_equal(rest + level, K)
    np.testing.assert_array_equal(rest, (K.astype(np.longdouble) - level).astype(float))


def test_a_product_that_cancels():
    """Coefficients of 100 that sum to 1e-9 under a constant of 1e9."""
    rng = np.random.default_rng(0)
    a = 100 * rng.normal(size=40)
    a[0] -= total(a) - 1e-9
    K = np.exp(-0.5 * np.subtract.outer(np.arange(40.0), np.arange(40.0)) ** 2) + 1e9
    truth = K.astype(np.longdouble) @ a.astype(np.longdouble)
    np.testing.assert_allclose(product(split(K, 0.0), a), truth.astype(float), rtol=1e-8)
    assert np.abs(K @ a - truth).max() > 1e-6  # what the plain product makes of it


@given(arrays(np.float64, 12, elements=st.floats(-1e12, 1e12)))
def test_total_is_the_rounded_exact_sum(x):
    exact = float(x.astype(np.longdouble).sum())
    assert total(x) == pytest.approx(exact, rel=1e-15, abs=1e-15 * np.abs(x).sum() * 2**-20 + 1e-300)


def test_add_keeps_the_sum():
    rng = np.random.default_rng(3)
    a, step = 100 * rng.normal(size=30), rng.normal(size=30)
    a[7] = 1e-6
    step[7] = 0.0
    expected = a.astype(np.longdouble).sum() + step.astype(np.longdouble).sum()
    add(a, 1.0, step, np.arange(30), 1.0)
    assert abs(a.astype(np.longdouble).sum() - expected) <= 1e-18 * 100


def smooth(n, bias=0.0, jitter=1e-6, lengthscale=0.5):
    x = np.linspace(-1, 1, n)
    return np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / lengthscale**2) + bias + jitter * np.eye(n)


@pytest.mark.parametrize("bias", [0.0, 300.0])
@pytest.mark.parametrize("n", [80, 300])
def test_a_smooth_kernel_has_a_root_of_low_rank(n, bias):
    K = smooth(n, bias)
    parts = split(K, 1e-6)
    assert 0 < parts.root.shape[1] <= 20
    np.testing.assert_allclose(
        parts.root @ parts.root.T + parts.constant + 1e-6 * np.eye(n), K, atol=2e-14 * (1 + bias)
    )
    x = np.random.default_rng(n).normal(size=n)
    np.testing.assert_allclose(product(parts, x), K @ x, atol=1e-12 * (1 + bias))


@pytest.mark.parametrize(
    ("K", "jitter"),
    [
        (smooth(80), 0.0),  # a jitter that is not named is no smooth function
        (smooth(80), 1e-3),  # nor is one that K does not have
        (smooth(80, lengthscale=0.01), 1e-6),
        (smooth(80, bias=1e6), 1e-6),  # rounding of the constant
        (np.eye(60), 0.0),
        (np.zeros((5, 5)), 0.0),
    ],
)
def test_other_kernels_have_none(K, jitter):
    assert split(K, jitter).root.shape == (len(K), 0)


@pytest.mark.parametrize("bias", [0.0, 300.0])
@pytest.mark.parametrize("stiff", [1e-3, 1e6, 1e12])
@pytest.mark.parametrize("jitter", [0.0, 1e-6])
def test_blocks_are_solved(bias, stiff, jitter):
    """To a small residual, with the root (named jitter) and without."""
    rng = np.random.default_rng(1)
    K, rate = smooth(200, bias), stiff * rng.uniform(0.5, 2.0, 150)
    block = np.sort(rng.permutation(200)[:150])
    right = rng.normal(size=150)
    solution = right.copy()
    assert solve_block(split(K, jitter), rate, solution, block)
    residual = K[np.ix_(block, block)] @ solution + solution / rate - right
    assert np.abs(residual).max() <= 1e-14 * (1 + bias) * max(1.0, np.abs(solution).sum())


def test_an_indefinite_block_is_not_solved():
    K = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]])
    assert not solve_block(split(K, 0.0), np.full(3, 1e3), np.ones(3), np.arange(3))
    assert solve_block(split(K, 0.0), np.full(2, 1e3), np.ones(2), np.array([0, 2]))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_constant_is_separated_in_any_unit(scale):
    K = scale * (0.5 + 0.01 * np.eye(6))
    parts = split(K, 0.0)
    assert parts.constant == scale * 0.5
    x = np.arange(6.0) - 2.0
    np.testing.assert_allclose(product(parts, x), K @ x, rtol=1e-13)


def test_failure_is_a_code():
    assert cholesky(-np.eye(3)) == 1
    assert cholesky(np.diag([1.0, 1.0, -1.0])) == 3
    assert cholesky(np.ones((2, 2))) == 2
    assert cholesky(np.empty((0, 0))) == 0


def test_nan_is_not_hidden():
    """Not every LAPACK looks for NaN: where the code is 0 the factor shows it."""
    A = np.full((2, 2), np.nan)
    assert cholesky(A) != 0 or np.isnan(np.diag(A)).all()

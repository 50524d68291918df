"""Products with a covariance that has a large constant part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bsvr_pp.approximations.products import add, product, total, without_level


def test_small_constants_stay_where_they_are():
    K = np.eye(3) + 1.0
    rest, level = without_level(K)
    assert level == 0.0
    np.testing.assert_array_equal(rest, K)


@pytest.mark.parametrize("bias", [100.0, 1e6, 1e12])
def test_the_parts_add_up_exactly(bias):
    K = np.exp(-0.5 * np.arange(5.0)[:, None] * np.ones(5)) + bias
    K = np.minimum(K, K.T)
    rest, level = without_level(K)
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
    np.testing.assert_allclose(product(*without_level(K), a), truth.astype(float), rtol=1e-8)
    assert np.abs(K @ a - truth).max() > 1e-6  # what the plain product makes of it


@pytest.mark.parametrize("used", [1, 5, 20])
def test_products_skip_zeros(used):
    rng = np.random.default_rng(used)
    K = rng.normal(size=(20, 20))
    K += K.T
    x = np.zeros(20)
    x[rng.permutation(20)[:used]] = rng.normal(size=used)
    np.testing.assert_allclose(product(K, 0.0, x), K @ x, atol=1e-13)


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

"""K and Gaussian sites in JAX against dense linear algebra."""

from __future__ import annotations

import math

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

from bsvr_pp.approximations.jax_sites import factor_sites, pull_back, solve, split, total  # noqa: E402
from tests.approximations.in_jax import in_double_precision  # noqa: E402

N = 30


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    in_double_precision()


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
def test_products_and_solves(bias):
    K, rate = setting(bias)
    structure, x = split(K), np.random.default_rng(2).normal(size=N)
    assert float(structure.constant) == (pytest.approx(bias, abs=1.0) if bias else 0.0)
    x -= x.mean()  # so that the constant has no effect
    np.testing.assert_allclose(np.asarray(structure.times(x)), (K - bias) @ x, atol=1e-8)
    block = np.flatnonzero(rate)
    right = np.where(rate > 0.0, x, 0.0)
    found = np.asarray(solve(structure, rate, right))
    expected = np.linalg.solve(K[np.ix_(block, block)] + np.diag(1 / rate[block]), x[block])
    np.testing.assert_allclose(found[block], expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(found[rate == 0.0], 0.0)


def test_sites():
    K, tau = setting(0.0)
    sites = factor_sites(split(K), tau)
    R = np.sqrt(tau)[:, None] * np.linalg.inv(np.eye(N) + np.sqrt(tau)[:, None] * K * np.sqrt(tau)) * np.sqrt(tau)
    covariance = K - K @ R @ K
    assert float(sites.log_det) == pytest.approx(np.linalg.slogdet(np.eye(N) + K * tau)[1], rel=1e-10)
    variance = np.diag(covariance)
    np.testing.assert_allclose(np.asarray(sites.variance), variance, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(sites.cavity_variance), 1.0 / (1.0 / variance - tau), rtol=1e-8)
    a, pull = np.random.default_rng(3).normal(size=(2, N))
    np.testing.assert_allclose(np.asarray(sites.apply_inverse(a)), R @ a, atol=1e-9)
    expected = 0.5 * (np.outer(a, a) - np.outer(a, pull) - np.outer(pull, a) - R)
    np.testing.assert_allclose(np.asarray(pull_back(sites, a, pull)), expected, atol=1e-9)

"""LAPACK wrappers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from bsvr_pp.approximations.lapack import cholesky, cholesky_inverse, cholesky_solve, lower_inverse, lower_solve


@pytest.mark.parametrize("n", [1, 5, 40])
def test_factor_solve_and_invert(n):
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, n))
    A, B = G @ G.T + np.eye(n), rng.normal(size=(3, n))
    L = A.copy()
    assert cholesky(L) == 0
    lower = np.tril(L)
    np.testing.assert_allclose(lower @ lower.T, A, atol=1e-10)
    x = B.copy()
    cholesky_solve(L, x)
    np.testing.assert_allclose(x, np.linalg.solve(A, B.T).T, atol=1e-10)
    x = B.copy()
    lower_solve(L, x)
    np.testing.assert_allclose(lower @ x.T, B.T, atol=1e-10)
    inverse = L.copy()
    lower_inverse(inverse)
    np.testing.assert_allclose(np.tril(inverse) @ lower, np.eye(n), atol=1e-10)
    inverse = L.copy()
    cholesky_inverse(inverse)
    np.testing.assert_allclose(inverse @ A, np.eye(n), atol=1e-9)


def test_failure_is_a_code():
    assert cholesky(-np.eye(3)) == 1
    assert cholesky(np.diag([1.0, 1.0, -1.0])) == 3
    assert cholesky(np.empty((0, 0))) == 0

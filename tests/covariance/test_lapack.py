"""LAPACK wrappers against NumPy, from Python and from compiled code."""

import numpy as np
import pytest

from bsvr_pp.core.covariance.structure import cholesky, cholesky_inverse, cholesky_solve, lower_inverse, lower_solve


@pytest.mark.parametrize("n", [1, 2, 5, 40, 200])
@pytest.mark.parametrize("k", [1, 3])
def test_factor_solve_and_invert(n, k):
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, n))
    A, B = G @ G.T / n + np.eye(n), rng.normal(size=(k, n))
    L = A.copy()
    assert cholesky(L) == 0
    lower = np.tril(L)
    np.testing.assert_allclose(lower, np.linalg.cholesky(A), atol=1e-12)
    x = B.copy()
    cholesky_solve(L, x)
    np.testing.assert_allclose(x, np.linalg.solve(A, B.T).T, atol=1e-12)
    x = B.copy()
    lower_solve(L, x)
    np.testing.assert_allclose(x.T, np.linalg.solve(lower, B.T), atol=1e-12)
    inverse = L.copy()
    lower_inverse(inverse)
    np.testing.assert_allclose(np.tril(inverse), np.linalg.inv(lower), atol=1e-12)
    inverse = L.copy()
    cholesky_inverse(inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), atol=1e-12)
    np.testing.assert_array_equal(inverse, inverse.T)


def test_failure_is_a_code():
    assert cholesky(-np.eye(3)) == 1
    assert cholesky(np.diag([1.0, 1.0, -1.0])) == 3
    assert cholesky(np.ones((2, 2))) == 2
    assert cholesky(np.empty((0, 0))) == 0


def test_nan_is_not_hidden():
    """Not every LAPACK looks for NaN: where the code is 0 the factor shows it."""
    A = np.full((2, 2), np.nan)
    assert cholesky(A) != 0 or np.isnan(np.diag(A)).all()

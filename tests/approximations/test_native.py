"""The solves by name: the same figures as the functions, from Python and from compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from problems import smooth

from bsvr_pp.approximations import laplace_gradient, mean_field_gradient
from bsvr_pp.approximations.native import APPROXIMATIONS, by_name, flat, from_python
from bsvr_pp.losses import LOSSES, soft_insensitive

K, Y = smooth(12)
PIECES = LOSSES["soft_insensitive"].table(np.array([[5.0], [0.1], [0.3]]), Y)
SIZES = (12, 1, 4, 3)  # n, and rows, knots and parameters of the table
GRADIENTS = {
    "laplace": laplace_gradient,
    "laplace_local": lambda *args: laplace_gradient(*args, curvature="local"),
    "mean_field": mean_field_gradient,
}


def called(solve, approximation):
    table, out = flat(PIECES), np.zeros(2)
    d_K, d_t, d_parameters = np.empty((12, 12)), np.zeros(12), np.zeros((3, 1))
    arrays = K.copy(), Y.copy(), table, out, d_K, d_t, d_parameters, np.zeros((2, 12))
    solve(APPROXIMATIONS.index(approximation), *SIZES, 1e-6, *arrays)
    np.testing.assert_array_equal(arrays[0], K)
    np.testing.assert_array_equal(arrays[1], Y)
    return out, d_K, d_t, d_parameters


@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_as_one_array_has_all_its_numbers(loss):
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(4) % 2 == 0, 1.0, -1.0)
    pieces = LOSSES[loss].table(rng.uniform(0.1, 0.9, (len(LOSSES[loss].parameters), 4)), labels)
    np.testing.assert_array_equal(flat(pieces), np.concatenate([part.ravel() for part in pieces]))


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_python_and_compiled_code_get_the_gradients(approximation):
    value, gradient = GRADIENTS[approximation](K, Y, soft_insensitive(5.0, 0.1, 0.3))
    solve, named = from_python(), by_name()

    def python(which, n, k, m, p, jitter, *arrays):
        solve(which, n, k, m, p, jitter, *(array.ctypes for array in arrays))

    @njit
    def compiled(which, n, k, m, p, jitter, K, t, table, out, by_K, by_t, by_parameters, sites):
        named(
            which,
            n,
            k,
            m,
            p,
            jitter,
            K.ctypes,
            t.ctypes,
            table.ctypes,
            out.ctypes,
            by_K.ctypes,
            by_t.ctypes,
            by_parameters.ctypes,
            sites.ctypes,
        )

    for function in (python, compiled):
        out, d_K, d_t, d_parameters = called(function, approximation)
        assert out[0] == pytest.approx(value, rel=1e-8)
        assert out[1] == 1.0
        np.testing.assert_allclose(d_K, gradient.K, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(d_t, -gradient.mean, rtol=1e-6, atol=1e-6)
        assert d_parameters[0, 0] == pytest.approx(gradient.parameters["C"], rel=1e-6)

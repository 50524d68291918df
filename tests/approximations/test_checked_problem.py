"""Every refusal of bad arguments fires, and names what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bsvr_pp.approximations import find_mode, laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.core.approximations.posterior import checked_problem
from bsvr_pp.losses import hinge, soft_insensitive

NOISE = soft_insensitive(1.0, 0.1, 0.3)
FUNCTIONS = [find_mode, laplace, laplace_gradient, mean_field, mean_field_gradient]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("K", "y", "mean", "message"),
    [
        (np.eye(3), [1.0, 2.0], None, "y must have 3 values as K has rows, got 2"),
        (np.ones((2, 3)), [1.0, 2.0], None, r"K must be an \(n, n\) array, got shape \(2, 3\)"),
        (np.ones(4), [1.0], None, r"K must be an \(n, n\) array, got shape \(4,\)"),
        (1.0, [1.0], None, r"K must be an \(n, n\) array, got shape \(\)"),
        (None, [1.0], None, "K must be an array of numbers, got NoneType"),
        (np.eye(2), [[1.0, 2.0]], None, r"y must be an \(n,\) array, got shape \(1, 2\)"),
        (np.eye(2), 1.0, None, r"y must be an \(n,\) array, got shape \(\)"),
        (np.eye(2), [1.0, np.nan], None, "y must be finite, got nan"),
        (np.full((2, 2), np.inf), [1.0, 2.0], None, "K must be finite, got inf"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), [1.0, 2.0], None, "K must be symmetric, K - K.T reaches 0.5"),
        (-np.eye(2), [1.0, 2.0], None, "K must have no negative diagonal, got -1"),
        (np.eye(2), [1.0, 2.0], [0.0], "mean must have 2 values as K has rows, got 1"),
        (np.eye(2), [1.0, 2.0], [0.0, -np.inf], "mean must be finite, got -inf"),
        (np.eye(2), [1.0, 2.0], 0.5, r"mean must be an \(n,\) array, got shape \(\)"),
        (np.eye(2), ["a", "b"], None, "y must be an array of numbers"),
        (np.empty((0, 0)), [], None, "must not be empty, got shape"),
    ],
)
def test_bad_arguments_are_named(function, K, y, mean, message):
    with pytest.raises(ValueError, match=message):
        function(K, y, NOISE, mean=mean)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_noise_must_fit_the_targets(function):
    with pytest.raises(ValueError, match=r"y must hold the labels -1 and \+1 for the hinge loss, got 0.5"):
        function(np.eye(1), [0.5], hinge(1.0))
    with pytest.raises(ValueError, match="they must agree"):
        function(np.eye(2), [0.5, 1.0], soft_insensitive([1.0, 2.0, 3.0], 0.1, 0.3))


@pytest.mark.parametrize("function", [laplace, laplace_gradient])
def test_options_are_checked(function):
    with pytest.raises(ValueError, match="curvature must be 'exact' or 'local', got 'both'"):
        function(np.eye(1), [1.0], NOISE, curvature="both")


def test_what_is_accepted_comes_back_as_arrays():
    covariance, residual, mean, pieces = checked_problem([[2, 1], [1, 2]], [1, 3], NOISE, [1, 1])
    for array in (covariance.dense(), residual, mean):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
    np.testing.assert_array_equal(residual, [0.0, 2.0])
    assert pieces.knots.shape == (1, 4)
    fortran = np.asfortranarray(np.arange(9.0).reshape(3, 3) + np.arange(9.0).reshape(3, 3).T + 20.0 * np.eye(3))
    assert checked_problem(fortran, np.ones(3), NOISE, None)[0].structure.matrix.flags.c_contiguous
    # Rounding in a kernel is no asymmetry, and the arguments stay as they were.
    K = np.eye(2) + np.array([[0.0, 1e-12], [0.0, 0.0]])
    before = K.copy()
    mean_field(K, [1.0, 2.0], NOISE)
    laplace(K, [1.0, 2.0], NOISE)
    np.testing.assert_array_equal(K, before)

"""Every refusal of bad arguments fires, and names what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bsvr_pp.approximations import find_mode, laplace, mean_field
from bsvr_pp.losses import hinge, soft_insensitive

NOISE = soft_insensitive(1.0, 0.1, 0.3)


@pytest.mark.parametrize("function", [find_mode, laplace, mean_field])
@pytest.mark.parametrize(
    ("K", "y", "mean", "message"),
    [
        (np.eye(3), [1.0, 2.0], None, r"K must be \(2, 2\) as y has 2 values, got shape \(3, 3\)"),
        (np.ones(4), [1.0], None, r"K must be an \(n, n\) array .* got shape \(4,\)"),
        (np.eye(2), [[1.0, 2.0]], None, r"y must be an \(n,\) array .* got shape \(1, 2\)"),
        (np.eye(2), [1.0, np.nan], None, "y must be finite, got nan"),
        (np.full((2, 2), np.inf), [1.0, 2.0], None, "K must be finite, got inf"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), [1.0, 2.0], None, "K must be symmetric, K - K.T reaches 0.5"),
        (-np.eye(2), [1.0, 2.0], None, "K must have no negative diagonal, got -1"),
        (np.eye(2), [1.0, 2.0], [0.0], "mean must have 2 values as y has, got 1"),
        (np.eye(2), ["a", "b"], None, "y must be an array of numbers"),
        (np.empty((0, 0)), [], None, "with n >= 1, got shape"),
    ],
)
def test_bad_arguments_are_named(function, K, y, mean, message):
    with pytest.raises(ValueError, match=message):
        function(K, y, NOISE, mean=mean)


def test_options_and_labels_are_checked():
    with pytest.raises(ValueError, match="curvature must be 'exact' or 'local', got 'both'"):
        laplace(np.eye(1), [1.0], NOISE, curvature="both")
    with pytest.raises(ValueError, match="y must hold the labels"):
        find_mode(np.eye(1), [0.5], hinge(1.0))
    with pytest.raises(ValueError, match="they must agree"):
        find_mode(np.eye(2), [0.5, 1.0], soft_insensitive([1.0, 2.0, 3.0], 0.1, 0.3))

"""The default model of labels: its kernel against the formula, and its start."""

from __future__ import annotations

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.model.problem import read_model


def test_the_kernel_is_a_deviation_a_line_and_an_offset():
    rng = np.random.default_rng(1)
    X, far = rng.standard_normal((5, 2)), np.array([[30.0, 20.0]])
    problem = read_model(bp.default_label_model(X, np.array([1, -1, 1, 1, -1])))
    scales = np.array([1.0, 2.0])
    point = {"C": 2.0, "amplitude": 3.0, "offset": 0.5, "linear": 1.5, "log_lengthscale": np.log(scales)}
    K, mean, noise = problem.at(point)
    U = X / scales
    deviation = 3.0 * np.exp(-0.5 * ((U[:, None] - U) ** 2).sum(axis=2))
    assert np.allclose(K.dense(), deviation + 1.5 * U @ U.T + 0.5 + 1e-5 * np.eye(5), rtol=1e-12)
    assert (mean == 0).all() and noise.parameters == {"C": 2.0}
    cross, variance, _ = problem.cross(point, far)  # where the deviation is forgotten, the line and the offset remain
    assert np.allclose(cross, 1.5 * (far / scales) @ U.T + 0.5)
    assert np.allclose(variance, 3.0 + 1.5 * ((far / scales) ** 2).sum() + 0.5)


def test_the_length_scales_follow_the_inputs():
    X = np.random.default_rng(0).standard_normal((40, 2)) * [1.0, 100.0]
    y = np.where(X[:, 0] > 0, 1, -1)
    own = bp.default_label_model(X, y)["log_lengthscale"].owner.op.dist_params(
        bp.default_label_model(X, y)["log_lengthscale"].owner
    )[0]
    centre = own.eval()
    assert np.allclose(centre, np.log(2.0 * X.std(axis=0)), atol=1e-12)
    assert bp.default_label_model(X, y, ard=False)["log_lengthscale"].ndim == 0


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.ones(3), [1, 1, -1], r"X must be an \(n, d\) array"),
        (np.ones((3, 1)), [1, -1], r"y must be a \(3,\) array"),
        (np.ones((3, 1)), [1, 0, -1], r"y must hold the labels -1 and \+1, got 0"),
    ],
)
def test_errors_name_the_argument(X, y, words):
    with pytest.raises(ValueError, match=words):
        bp.default_label_model(X, y)

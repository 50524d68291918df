"""The kernel of the benchmark "gaps" against quadrature over the missing inputs."""

import itertools

import numpy as np
import pytensor.tensor as pt

from benchmarks.gaps import Integrated


def test_missing_inputs_are_integrated_out():
    X = np.array([[0.3, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], [-1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    inverse, spread = np.array([0.7, 1.2]), np.array([1.0, 0.6])
    K = Integrated(2, inverse, 1.3, spread, np.zeros(2), np.ones(2)).full(pt.as_tensor(X)).eval()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def factor(i, j, k):
        values = [
            (np.sqrt(spread[k]) * nodes, weights) if X[row, 2 + k] else (X[[row], k], np.ones(1)) for row in (i, j)
        ]
        (x, wx), (z, wz) = values
        return wx @ np.exp(-0.5 * inverse[k] ** 2 * (x[:, None] - z) ** 2) @ wz

    for i, j in itertools.product(range(4), repeat=2):
        expected = 1.3 if i == j else 1.3 * factor(i, j, 0) * factor(i, j, 1)
        np.testing.assert_allclose(K[i, j], expected, rtol=1e-6)

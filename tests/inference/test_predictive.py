"""Predictive mixtures of components against closed forms, without a model."""

import numpy as np
import pytest

from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.inference.prediction.component import new_values
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.losses import hinge

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-1.0, 40.0, 0.2], [0.5, 41.0, -0.4], [2.0, 39.0, 0.3]])
VARIANCES = np.array([[0.0, 200.0, 1.0], [0.0, 100.0, 0.5], [0.0, 400.0, 1e-4]])
PRECISIONS = np.array([4.0, 1.0, 9.0])


def test_labels_are_averaged_over_components():
    noises, labels = tuple(hinge(C) for C in PRECISIONS), np.array([1.0, -1.0, -1.0])
    shares = np.broadcast_to(WEIGHTS[:, None], MEANS.shape)
    f = MEANS * [0.1, -0.1, 0.1]
    found = new_values(PredictiveDistribution(shares, f, np.zeros((3, 3)), noises), [], labels)
    p = WEIGHTS @ [label_probability(each, C) for each, C in zip(f, PRECISIONS, strict=True)]
    assert p.min() < 0.1 < 0.5 < p.max()
    np.testing.assert_allclose(found["y_probability"], p, rtol=1e-6)
    np.testing.assert_allclose(found["y_mean"], p - (1 - p), rtol=1e-6)
    np.testing.assert_allclose(found["y_variance"], 1 - (2 * p - 1) ** 2, rtol=1e-6)
    np.testing.assert_allclose(np.exp(found["y_log_density"]), [p[0], 1 - p[1], 1 - p[2]], rtol=1e-6)
    for bad in (0.0, -2.0, 3.0):
        with pytest.raises(ValueError, match=rf"must hold the labels -1 and \+1, got {bad}$"):
            new_values(PredictiveDistribution(shares, MEANS, VARIANCES, noises), [], np.array([-1.0, bad, 1.0]))

"""Predictive mixtures of components against closed forms, without a model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.inference.prediction.component import new_targets, new_values
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.losses import gaussian, hinge, pinball

LEVELS = np.array([1e-5, 0.1, 0.5, 0.975])
WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-1.0, 40.0, 0.2], [0.5, 41.0, -0.4], [2.0, 39.0, 0.3]])
VARIANCES = np.array([[0.0, 200.0, 1.0], [0.0, 100.0, 0.5], [0.0, 400.0, 1e-4]])
PRECISIONS = np.array([4.0, 1.0, 9.0])
TARGETS = np.array([-0.7, 60.0, -3.0])


def predicted(weights, means, variances, noises, levels=LEVELS, targets=TARGETS):
    shares = np.broadcast_to(weights[:, None], means.shape)
    return new_targets(PredictiveDistribution(shares, means, variances, tuple(noises)), levels, targets)


def mixture_cdf(y, weights, means, sds):
    return np.sum(weights[:, None] * norm.cdf((y - means) / sds), axis=0)


def mixture_crps(y, weights, means, sds):
    """Grimit, Gneiting, Berrocal & Johnson 2006, (5)."""

    def expected_distance(mean, sd):
        return 2 * sd * norm.pdf(mean / sd) + mean * (2 * norm.cdf(mean / sd) - 1)

    pairs = expected_distance(means[:, None] - means[None], np.hypot(sds[:, None], sds[None]))
    return weights @ expected_distance(y - means, sds) - 0.5 * np.einsum("i,j,ijn->n", weights, weights, pairs)


def check_gaussian_mixture(found, weights, means, sds):
    """The scores of ``found`` are those of the mixture of normals."""
    np.testing.assert_allclose(found["y_cdf"], mixture_cdf(TARGETS, weights, means, sds), atol=1e-9)
    density = np.sum(weights[:, None] * norm.pdf(TARGETS, means, sds), axis=0)
    np.testing.assert_allclose(found["y_log_density"], np.log(density), rtol=1e-9)
    np.testing.assert_allclose(found["y_crps"], mixture_crps(TARGETS, weights, means, sds), rtol=5e-3)
    for row, level in zip(found["y_quantile"], LEVELS, strict=True):
        for j, quantile in enumerate(row):
            exact = brentq(
                lambda y, j=j, level=level: mixture_cdf(y, weights, means[:, j : j + 1], sds[:, j : j + 1])[0] - level,
                means[:, j].min() - 10 * sds[:, j].max(),
                means[:, j].max() + 10 * sds[:, j].max(),
            )
            assert quantile == pytest.approx(exact, abs=1e-6)


def test_a_few_components_are_an_exact_mixture():
    """Variances of f that are zero, and much larger and smaller than that of the noise."""
    noises = [gaussian(C) for C in PRECISIONS]
    found = predicted(WEIGHTS, MEANS, VARIANCES, noises)
    mean = WEIGHTS @ MEANS
    np.testing.assert_allclose(found["f_mean"], mean)
    np.testing.assert_allclose(found["y_mean"], mean)
    variance = WEIGHTS @ (VARIANCES + MEANS**2) - mean**2
    np.testing.assert_allclose(found["f_variance"], variance)
    np.testing.assert_allclose(found["y_variance"], variance + WEIGHTS @ (1 / PRECISIONS))
    check_gaussian_mixture(found, WEIGHTS, MEANS, np.sqrt(VARIANCES + 1 / PRECISIONS[:, None]))


def test_the_mean_of_the_noise_is_part_of_that_of_the_targets():
    noise = pinball(3.0, 0.2)
    found = predicted(WEIGHTS, MEANS, VARIANCES, [noise] * 3, np.empty(0), None)
    assert noise.mean > 0.5
    np.testing.assert_allclose(found["y_mean"], found["f_mean"] + noise.mean)
    np.testing.assert_allclose(found["y_variance"], found["f_variance"] + noise.variance)
    assert set(found) == {"f_mean", "f_variance", "y_mean", "y_variance"}


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

"""Annealed normalisers and naive evidences against quadrature, exact limits and themselves; gradients of them."""

from dataclasses import replace

import numpy as np
import pytest
from problems import factor_grid
from scipy.special import logsumexp
from svm_toy import Hinge

from bsvr_pp.approximations import annealed
from bsvr_pp.classification.normaliser import KINDS, Known, MeanKnown, NormaliserCloud
from bsvr_pp.core.approximations.smc import Annealing
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.losses import hinge

K3 = np.array([[2.0, 1.0, 0.3], [1.0, 1.5, 0.6], [0.3, 0.6, 1.0]])
FINE = Annealing(particles=500, groups=16, moves=4, efficiency=0.93)
MORE = replace(FINE, particles=1000)


@pytest.mark.slow
def test_a_start_from_mean_field_has_the_same_mass_with_a_smaller_error():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(30))
    K = 2.0 * np.exp(-((x[:, None] - x) ** 2) / 0.02) + 1e-6 * np.eye(30)
    y = np.where(np.sin(12 * x) > 0, 1.0, -1.0)
    plain = annealed(K, None, Hinge(2.0, y), MORE, random_seed=1)
    quick = annealed(K, y, hinge(2.0), FINE, random_seed=2)
    assert quick.standard_error < 0.5 * plain.standard_error
    assert abs(quick.log_evidence - plain.log_evidence) < 4 * plain.standard_error


@pytest.mark.parametrize("kind", ["conditional", pytest.param("joint", marks=pytest.mark.slow)])
def test_the_cloud_s_gradient_is_that_of_quadrature(kind):
    """Along a path of hyperparameters, with and without a renewal."""
    cloud = NormaliserCloud(KINDS[kind], 8000, np.random.default_rng(1))
    for C, scale in ((2.0, 1.0), (2.1, 1.1), (2.2, 1.2), (4.0, 1.2)):
        K, h = scale * K3, 1e-4
        found = cloud.gradient(Covariance(K), C)
        factor = {"conditional": Known, "joint": MeanKnown}[kind]
        by_C = np.subtract(*(logsumexp(factor_grid(K, factor(C + s * h))[1]) for s in (1, -1))) / (2 * h)
        by_scale = np.subtract(*(logsumexp(factor_grid((1 + s * h) * K, factor(C))[1]) for s in (1, -1))) / (2 * h)
        assert abs(found.parameters["C"] - by_C) < 0.03
        assert abs(np.sum(found.K * K) - by_scale) < 0.05

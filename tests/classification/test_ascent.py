"""The kernel's chain rule, and the ascent against the evidence itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import train_test_split
from test_chaining import grid

from bsvr_pp.approximations import mean_field
from bsvr_pp.classification.ascent import ascend, default_logs
from bsvr_pp.classification.chaining import chained, cloud
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.gradient import MassGradient
from bsvr_pp.classification.kernel import LabelPrior
from bsvr_pp.losses import hinge


@pytest.mark.parametrize("ard", [True, False])
def test_the_chain_rule_against_differences(ard):
    rng = np.random.default_rng(0)
    X, G = rng.standard_normal((6, 3)), rng.standard_normal((6, 6))
    G = G + G.T
    logs = default_logs(3, ard)[0] + 0.1 * rng.standard_normal(7 if ard else 5)

    def value(logs):
        prior = LabelPrior(logs)
        return np.sum(G * prior.covariance(X)) + 0.7 * prior.C

    found = LabelPrior(logs).gradient(X, MassGradient(G, 0.7))
    for i in range(logs.size):
        e = 1e-6 * np.eye(logs.size)[i]
        assert np.isclose(found[i], (value(logs + e) - value(logs - e)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_cross_covariance_is_the_covariance():
    X = np.random.default_rng(1).standard_normal((5, 2))
    prior = LabelPrior(np.log([2.0, 3.0, 0.5, 1.0, 1.0, 2.0]))
    jitter = prior.covariance(X) - prior.cross(X, X)
    assert prior.jitter == pytest.approx(4e-6) and np.allclose(jitter, 4e-6 * np.eye(5), atol=1e-12)
    assert np.allclose(np.diag(prior.cross(X, X)), prior.variance(X))
    far = np.array([[3.0, 2.0]])  # where the deviation is forgotten, the line and the offset remain
    assert np.allclose(prior.cross(far * 10, X), 10 * X @ [3.0, 2.0 / 4] + 0.5)


@pytest.mark.parametrize(("kind", "factor"), [("conditional", "survival"), ("joint", "mean_survival")])
def test_the_ascent_ends_where_the_objective_is_largest(kind, factor):
    """Three points, by quadrature: no step of any hyperparameter does better by more than the noise."""
    X, y = np.array([[-1.0], [0.2], [1.3]]), np.array([-1.0, -1.0, 1.0])
    center, covariance = default_logs(1, False)
    center[[1, 3]], covariance[[1, 3], [1, 3]] = np.log([1.0, 0.3]), 0.5  # f within reach of the quadrature
    precision = np.linalg.inv(covariance)

    def objective(logs):
        prior = LabelPrior(logs)
        K = prior.covariance(X)
        normalizer = logsumexp(grid(K, Factors(factor, prior.C))[1])
        naive = mean_field(K, y, hinge(prior.C)).log_evidence
        return naive - normalizer - 0.5 * (logs - center) @ precision @ (logs - center)

    best, trace = ascend(X, y, (center, covariance), kind=kind, steps=150, particles=400, random_seed=1)
    top = objective(best.logs)
    assert trace.shape == (150, 5) and top > objective(center)
    for i in range(5):
        for step in (-0.3, 0.3):
            assert objective(best.logs + step * np.eye(5)[i]) < top + 0.01


def test_each_evidence_is_larger_at_its_own_optimum():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 1))
    y = np.where(np.sin(3 * X[:, 0]) > 0, 1.0, -1.0)
    found = {
        kind: ascend(X, y, default_logs(1, True), kind=kind, random_seed=1)[0] for kind in ("naive", "conditional")
    }

    def evidences(prior):
        K = prior.covariance(X)
        naive = mean_field(K, y, hinge(prior.C)).log_evidence
        center, covariance = default_logs(1, True)
        off = prior.logs - center
        hyperprior = -0.5 * off @ np.linalg.solve(covariance, off)
        normalizer = chained(K, Factors("survival", prior.C), random_seed=2).log_mass
        return np.array([naive + hyperprior, naive + hyperprior - normalizer])

    naive, conditional = evidences(found["naive"]), evidences(found["conditional"])
    assert naive[0] > conditional[0] + 0.3 and conditional[1] > naive[1] + 0.3


def test_C_does_not_run_away_where_classes_are_apart_and_rows_repeat():
    """Particles that lag behind would let C and the normaliser grow together without end."""
    X, species = load_iris(return_X_y=True)
    X, y = (X[::2] - X.mean(axis=0)) / X.std(axis=0), np.where(species[::2] == 0, 1.0, -1.0)
    _, trace = ascend(X, y, default_logs(4, True), steps=150, random_seed=0)
    assert (np.exp(trace[:, 0]) < 10).all()


@pytest.mark.slow
def test_C_does_not_run_away_beyond_what_the_evidence_wants():
    """Two splits of breast cancer, where C came out at 48 and 136 when particles were chained by the step alone."""
    X, y = load_breast_cancer(return_X_y=True)
    for seed in (0, 6):
        part, _, labels, _ = train_test_split(X, y, train_size=150, random_state=seed)
        scaled = (part - part.mean(axis=0)) / part.std(axis=0)
        prior, _ = ascend(scaled, np.where(labels > 0, 1.0, -1.0), default_logs(30, True), random_seed=0)
        assert prior.C < 40


def test_a_cloud_has_the_moments_of_chaining():
    K, factors = np.array([[2.0, 1.0], [1.0, 1.5]]), Factors("survival", 2.0)
    f = cloud(K, factors, 4000, 0.8, np.random.default_rng(1))
    level = grid(K, factors)
    weight = np.exp(level[1] - logsumexp(level[1]))
    error = (f * f).std(axis=0) / np.sqrt(len(f))
    assert (np.abs((f * f).mean(axis=0) - weight @ level[0] ** 2) < 5 * error).all()


def test_a_straight_boundary_makes_the_linear_part_the_larger():
    """And without a line to be seen, as in a checkerboard, the smooth one."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.7, 1.7, (120, 2))
    shares = []
    for f in (4 * X[:, 0], 4 * np.sin(2.5 * X[:, 0]) * np.sin(2.5 * X[:, 1])):
        y = np.where(rng.random(120) < 1 / (1 + np.exp(-2 * f)), 1.0, -1.0)
        prior, _ = ascend(X, y, default_logs(2, False), random_seed=0)
        line = prior.linear * np.mean(X**2) * 2 / prior.lengthscale[0] ** 2
        shares.append(line / (line + prior.amplitude))
    assert shares[0] > 2 * shares[1]

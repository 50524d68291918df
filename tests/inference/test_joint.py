"""Joint densities: a multivariate normal, quadrature over two rows, mixtures, units, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import bsvr_pp as bp
from bsvr_pp.inference.prediction.component import JointTargets

NEW = np.array([[0.1], [0.4], [2.0], [2.0]])


def fitted(**options):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (25, 1))
    y = 3.0 + np.sin(X[:, 0]) + 0.2 * rng.laplace(size=25)
    return bp.BayesianSVR(**{"kernel": "rbf", "restarts": 1, "random_state": 0} | options).fit(X, y)


def moments_of_f(svr, X):
    """Mean and covariance of f in standard units, for each component."""
    parts = list(svr._fit.components())
    return parts, [part.linear((X - svr.mean_) / svr.scale_, np.eye(len(X))) for part in parts]


@pytest.mark.parametrize("logarithm", [False, True])
def test_gaussian_noise_gives_a_multivariate_normal(logarithm):
    svr, y = fitted(noise="gaussian", log_targets=logarithm), np.array([3.2, 3.4, 3.7, 4.2])
    ((mean, covariance),) = moments_of_f(svr, NEW)[1]
    total = svr.unit_**2 * covariance + svr.noise_variance_ * np.eye(4)
    target, jacobian = (np.log(y), np.log(y).sum()) if logarithm else (y, 0.0)
    expected = multivariate_normal(svr.location_ + svr.unit_ * mean, total).logpdf(target) - jacobian
    found = svr.predict_distribution(NEW)
    assert found.joint_logpdf(y) == pytest.approx(expected, abs=1e-7)
    assert not logarithm or found.joint_logpdf(-y) == -np.inf


@pytest.mark.parametrize("noise", ["soft_insensitive", "epsilon_insensitive", "huber", "absolute", "pinball"])
def test_two_rows_against_quadrature(noise):
    svr, X = fitted(noise=noise), np.array([[2.9], [2.95]])
    (part,), ((mean, covariance),) = moments_of_f(svr, X)
    noise = part.problem.noise_at(part.point)
    width, root = np.sqrt(np.diag(covariance) + noise.variance), np.linalg.cholesky(covariance)
    nodes = np.linspace(-8, 8, 641)
    a, b = np.meshgrid(nodes, nodes, indexing="ij")
    f = mean[:, None, None] + np.stack([root[0, 0] * a, root[1, 0] * a + root[1, 1] * b])
    for k in ([0, 0], [1, -1], [3, 3], [4, 0]):
        z = mean + width * np.array(k)
        logs = noise.log_density(z[0] - f[0]) + noise.log_density(z[1] - f[1]) - 0.5 * (a**2 + b**2)
        expected = logsumexp(logs) + 2 * np.log(nodes[1] - nodes[0]) - np.log(2 * np.pi) - 2 * np.log(svr.unit_)
        found = svr.predict_distribution(X).joint_logpdf(svr.location_ + svr.unit_ * z)
        assert found == pytest.approx(expected, abs=0.04)


def test_of_a_committee_is_the_mean_of_the_densities_of_its_members():
    svr, y = fitted(noise="gaussian", inference=bp.Committee(), restarts=3), np.array([3.2, 3.4])
    parts, members = moments_of_f(svr, NEW[:2])
    noises = [part.problem.noise_at(part.point).variance * np.eye(2) for part in parts]
    z = (y - svr.location_) / svr.unit_
    logs = [multivariate_normal(m, K + v).logpdf(z) for (m, K), v in zip(members, noises, strict=True)]
    expected = logsumexp(logs, b=svr.committee_ / svr.committee_.sum()) - 2 * np.log(svr.unit_)
    assert svr.predict_distribution(NEW[:2]).joint_logpdf(y) == pytest.approx(expected, abs=1e-7)


def test_what_is_refused():
    with pytest.raises(ValueError, match="as does joint_logpdf"):
        fitted().predict_distribution(NEW)[:2].joint_logpdf([3.0, 3.0])
    svr = fitted()
    scales = bp.NoiseScales(np.array([1.0, 2.0]), np.full(2, 0.5), 1.0)
    svr._fit = replace(svr._fit, fitted=svr._fit.fitted.with_scales(svr._fit.problem, scales))
    with pytest.raises(ValueError, match="the noise has several scales"):
        svr.predict_distribution(NEW).joint_logpdf(np.full(4, 3.0))
    assert np.isfinite(svr.set_params(noise_scales=False).predict_distribution(NEW).joint_logpdf(np.full(4, 3.0)))
    drawn = SimpleNamespace(scales=bp.NoiseScales.one(), site_precision=None)
    with pytest.raises(ValueError, match="f was sampled"):
        JointTargets(lambda: [drawn], NEW).log_density(np.zeros(4))

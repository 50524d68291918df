"""What Laplace, with both curvatures, and mean field have in common: exact cases, gradients and invariances."""

from functools import partial

import numpy as np
import pytest
from problems import LOSSES, assert_gradient_matches_differences, exact_gaussian_process, smooth

from bsvr_pp.core.approximations import laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.losses import gaussian, soft_insensitive

# Approximation, gradient, and the step of differences that its rounding errors allow.
EACH = {
    "exact Laplace": (laplace, laplace_gradient, 1e-6),
    "local Laplace": (partial(laplace, curvature="local"), partial(laplace_gradient, curvature="local"), 1e-6),
    "mean field": (mean_field, mean_field_gradient, 1e-5),
}
each = pytest.mark.parametrize(("approximate", "gradient", "h"), EACH.values(), ids=EACH)
each_alone = pytest.mark.parametrize("approximate", [approximate for approximate, *_ in EACH.values()], ids=EACH)


@each_alone
def test_gaussian_noise_is_the_exact_gaussian_process(approximate):
    K, y = smooth(40)
    inner, cross, y = K[:30, :30], K[30:, :30], y[:30]
    posterior = approximate(inner, y, gaussian(20.0))
    log_evidence, mean, covariance = exact_gaussian_process(inner, y, 20.0)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=1e-10)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), atol=1e-10)
    S = inner + np.eye(30) / 20.0
    predicted, variance = posterior.predict(cross, np.diag(K)[30:])
    np.testing.assert_allclose(predicted, cross @ np.linalg.solve(S, y), atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(K[30:, 30:] - cross @ np.linalg.solve(S, cross.T)), atol=1e-10)
    precisions = np.linspace(1, 40, 30)
    found = approximate(inner, y, gaussian(precisions))
    np.testing.assert_allclose(found.mean, inner @ np.linalg.solve(inner + np.diag(1 / precisions), y), atol=1e-10)
    np.testing.assert_allclose(found.site_precision, precisions, rtol=1e-8)


@each
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_gradient_matches_differences(noise, seed, approximate, gradient, h):
    """chu2004 (38)-(40), and their like for every loss: kernel, mean, every parameter."""
    K, y = smooth(25, seed, noise)
    K += 0.01 * np.eye(25)
    assert_gradient_matches_differences(approximate, gradient, K, y, noise, np.full(25, 0.1), h=h)


@each
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_gradient_of_vector_parameters(beta, approximate, gradient, h):
    K, y = smooth(12)
    K += 0.01 * np.eye(12)
    noise = soft_insensitive(np.linspace(2, 8, 12), np.linspace(0.05, 0.3, 12), beta)
    assert_gradient_matches_differences(approximate, gradient, K, y, noise, np.zeros(12), h=h)


@each
@pytest.mark.parametrize("beta", [0.0, 1e-3, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_order_sign_and_units_do_not_matter(seed, beta, approximate, gradient, h):
    K, y = smooth(20, seed)
    noise, order = soft_insensitive(5.0, 0.1, beta), np.random.default_rng(0).permutation(20)
    found, permuted = approximate(K, y, noise), approximate(K[np.ix_(order, order)], y[order], noise)
    assert permuted.log_evidence == pytest.approx(found.log_evidence, abs=1e-8)
    np.testing.assert_allclose(permuted.mean, found.mean[order], atol=1e-7)
    np.testing.assert_allclose(permuted.variance, found.variance[order], rtol=1e-7)
    np.testing.assert_allclose(approximate(K, -y, noise).mean, -found.mean, atol=1e-7)
    largest = 1e12 if approximate is laplace and beta == 0 else 1e100  # beyond, the curvature of kinks is lost
    for scale in (1e-100, 1e-12, 1e-6, 0.3, 1e6, 1e12, largest):
        given = scale**2 * K, scale * y, soft_insensitive(5.0 / scale, 0.1 * scale, beta)
        scaled = approximate(*given)
        assert scaled.converged and np.isfinite(gradient(*given)[1].K).all()
        np.testing.assert_allclose(scaled.mean / scale, found.mean, atol=1e-7)
        np.testing.assert_allclose(scaled.variance / scale**2, found.variance, rtol=1e-6)
        expected = found.log_evidence - 20 * np.log(scale)
        assert scaled.log_evidence == pytest.approx(expected, rel=1e-10, abs=1e-7)


@each_alone
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_no_prior_variance_leaves_the_density_of_the_noise(noise, approximate):
    _, y = smooth(11, 6, noise)
    posterior = approximate(np.zeros((11, 11)), y, noise)
    density = noise.log_density(np.ones(11) if noise.name == "hinge" else y)
    assert posterior.converged
    assert posterior.log_evidence == pytest.approx(density.sum(), abs=1e-10)
    np.testing.assert_allclose(posterior.mean, 0.0, atol=1e-12)
    np.testing.assert_array_equal(posterior.variance, 0.0)

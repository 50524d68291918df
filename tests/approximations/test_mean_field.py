"""Mean field against quadrature, the exact Gaussian process, its own equations and the original iteration."""

import numpy as np
import pytest
from problems import LOSSES, from_the_box, moment_mismatch, smooth

from bsvr_pp.core.approximations import laplace, mean_field, mean_field_gradient
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, soft_insensitive


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_moments_match_at_the_fixed_point(noise):
    K, y = smooth(40, 3, noise)
    posterior = mean_field(K, y, noise)
    assert posterior.converged
    assert posterior.mismatch <= 1e-8
    assert posterior.n_iter <= 25
    assert moment_mismatch(K, y, noise, posterior.dual_coef, posterior.site_precision) <= 1e-7
    assert (posterior.site_precision >= 0).all()
    if noise.name != "gaussian":
        assert (np.abs(posterior.dual_coef) < noise.parameters["C"]).all()


@pytest.mark.parametrize("noise", [soft_insensitive(5.0, 0.2, 0.0), soft_insensitive(5.0, 0.0, 0.3)], ids=repr)
def test_gradient_at_the_edge_of_the_parameters_is_the_one_sided_one(noise):
    K, y = smooth(15)
    value, by = mean_field_gradient(K, y, noise)
    name = "beta" if noise.parameters["beta"] == 0 else "epsilon"
    values = [value]
    for step in (1e-5, 2e-5):
        near = soft_insensitive(**{**noise.parameters, name: step})
        values.append(mean_field(K, y, near).log_evidence)
    one_sided = (-3 * values[0] + 4 * values[1] - values[2]) / 2e-5
    assert by.parameters[name] == pytest.approx(one_sided, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("along", ["epsilon", "beta", "C", "lengthscale"])
def test_evidence_is_smooth_where_laplace_jumps(along):
    K, y = smooth(30)
    bends = {}
    for name, approximate in (("mean field", mean_field), ("Laplace", laplace)):
        values = []
        for factor in np.linspace(0.7, 2.0, 150):
            scale = {key: factor if key == along else 1.0 for key in ("C", "epsilon", "beta")}
            noise = soft_insensitive(8.0 * scale["C"], 0.15 * scale["epsilon"], 0.05 * scale["beta"] ** 4)
            covariance = np.maximum(K - 0.5, 0.0) ** factor + 0.5 if along == "lengthscale" else K
            values.append(approximate(covariance, y, noise).log_evidence)
        bends[name] = np.diff(values, 2)
    assert np.abs(bends["Laplace"]).max() > 0.3
    assert np.abs(bends["mean field"]).max() < 5e-3
    # No kinks either: second differences change slowly from one place to the next.
    assert np.abs(np.diff(bends["mean field"])).max() < 0.1 * np.abs(bends["mean field"]).max() + 1e-6


def test_evidence_has_a_limit_as_beta_vanishes():
    K, y = smooth(30)
    limit = mean_field(K, y, epsilon_insensitive(10.0, 0.1)).log_evidence
    for beta in (1e-5, 1e-9, 1e-300):
        near = mean_field(K, y, soft_insensitive(10.0, 0.1, beta)).log_evidence
        assert near == pytest.approx(limit, abs=20 * beta + 1e-7)


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_singular_covariances(noise):
    K, y = smooth(20, 6, noise)
    twice = np.tile(np.arange(10), 2)
    G = np.random.default_rng(0).normal(size=(20, 2))
    for singular in (K[np.ix_(twice, twice)], G @ G.T, np.full((20, 20), 3.0)):
        posterior = mean_field(singular, y, noise)
        assert posterior.converged
        assert moment_mismatch(singular, y, noise, posterior.dual_coef, posterior.site_precision) <= 1e-6
        near = mean_field(singular + 1e-9 * np.eye(20), y, noise)
        assert posterior.log_evidence == pytest.approx(near.log_evidence, abs=1e-5)


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_points_without_prior_variance(noise):
    """A linear kernel at 0: there f is known, and the noise alone counts."""
    _, y = smooth(11, 6, noise)
    x = np.arange(-5.0, 6.0)
    others = np.flatnonzero(x)
    whole, part = mean_field(np.outer(x, x), y, noise), mean_field(np.outer(x[others], x[others]), y[others], noise)
    assert whole.converged
    apart = float(noise.log_density(1.0 if noise.name == "hinge" else y[5]))
    assert whole.log_evidence == pytest.approx(part.log_evidence + apart, abs=1e-8)
    value, by = mean_field_gradient(np.outer(x, x), y, noise)
    assert np.isfinite(value)
    assert np.isfinite(by.K).all()


def test_prior_mean_and_vector_parameters():
    K, y = smooth(20, 5)
    mean = np.linspace(-1, 1, 20)
    noise = soft_insensitive(4.0, 0.1, 0.3)
    shifted, plain = mean_field(K, y, noise, mean=mean), mean_field(K, y - mean, noise)
    assert shifted.log_evidence == pytest.approx(plain.log_evidence, abs=1e-10)
    np.testing.assert_allclose(shifted.mean, plain.mean + mean)
    each = mean_field(K, y - mean, soft_insensitive(np.full(20, 4.0), np.full(20, 0.1), np.full(20, 0.3)))
    assert each.log_evidence == pytest.approx(plain.log_evidence, abs=1e-9)
    various = soft_insensitive(np.geomspace(0.01, 1e3, 20), np.linspace(1, 0, 20), np.linspace(0, 1, 20))
    posterior = mean_field(K, y, various)
    assert posterior.converged
    assert moment_mismatch(K, y, various, posterior.dual_coef, posterior.site_precision) <= 1e-6


def test_what_fails_is_reported():
    """Numbers beyond what doubles hold give no evidence, rather than a wrong one."""
    K, y = smooth(5)
    posterior = mean_field(1e300 * K, y, soft_insensitive(1e200, 0.1, 0.3))
    assert posterior.converged == (np.isfinite(posterior.log_evidence) and posterior.mismatch <= 1e-6)


@pytest.mark.slow
def test_converges_over_the_whole_range():
    """A sample of the whole range of settings; the mismatch is recomputed from the result."""
    for i in range(100):
        K, y, noise = from_the_box(i)
        posterior = mean_field(K, y, noise)
        assert posterior.converged, (i, noise, posterior.mismatch)
        assert moment_mismatch(K, y, noise, posterior.dual_coef, posterior.site_precision) <= 1e-6, (i, noise)
        assert np.isfinite(posterior.log_evidence)
        assert (posterior.site_precision >= 0).all()


def test_points_in_a_linear_tail_have_no_site():
    """Only the others are factored; mean and variances are those of the formula with all points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (60, 1))
    K, y = 4 * np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(60), 20 * rng.normal(size=60)
    posterior = mean_field(K, y, absolute(C=0.5))
    site = posterior.site_precision > 0
    assert posterior.converged
    assert 0 < site.sum() < 40
    assert posterior.factor.points.tolist() == np.flatnonzero(site).tolist()
    covariance = K @ np.linalg.inv(np.eye(60) + posterior.site_precision[:, None] * K)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-7)
    assert (np.abs(posterior.dual_coef[~site]) > 0.499).all()
    assert moment_mismatch(K, y, absolute(C=0.5), posterior.dual_coef, posterior.site_precision) <= 1e-7


@pytest.mark.parametrize("C", [1e3, 1e5, 1e7])
def test_narrow_sites_take_few_sweeps(C):
    """Noise that is nearly none: f passes the targets within the scale of the noise, as a Gaussian process would."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (60, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)) + 100.0 + 1e-6 * np.eye(60)
    y = np.round(np.sin(X[:, 0]) + rng.normal(size=60))
    posterior = mean_field(K, y, soft_insensitive(C, 0.1 / C, 0.8))
    assert posterior.converged and posterior.n_iter <= 25
    np.testing.assert_allclose(posterior.mean, y, atol=5 / C)
    np.testing.assert_allclose(np.sqrt(posterior.variance) * C, 1.4, rtol=0.3)
    by_noise = np.linalg.solve(K + np.diag(posterior.variance), y)
    np.testing.assert_allclose(posterior.dual_coef, by_noise, atol=2e-2 * np.abs(by_noise).max())


def test_sweeps_end_where_rounding_errors_are_all_that_is_left():
    rng = np.random.default_rng(0)
    K = np.exp(-0.5 * (rng.uniform(-3, 3, 40)[:, None] - rng.uniform(-3, 3, 40)) ** 2)
    K = K @ K.T + 100.0 + 1e-6 * np.eye(40)
    posterior = mean_field(K, rng.normal(size=40), soft_insensitive(1e10, 1e-11, 0.8))
    assert posterior.n_iter < 150


def longest_cholesky(matrix):
    lower = np.zeros(matrix.shape, dtype=np.longdouble)
    for j in range(len(matrix)):
        left = matrix[j:, j] - lower[j:, :j] @ lower[j, :j]
        lower[j:, j] = left / np.sqrt(left[0])
    return lower


@pytest.mark.parametrize("amplitude, atol", [(1.0, 1e-5), (30.0, 1e-4), (1e3, 5e-3), (1e4, 5e-2)])
def test_large_priors_of_data_without_noise_keep_their_digits(amplitude, atol):
    """Products with K would lose what noise of 1e-3 leaves of f: a matrix gets a root, whose sums do not cancel."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (151, 4))
    f = np.exp(X.mean(axis=1)) * np.sin(X[:, 0])
    K = amplitude**2 / (1 + 0.5 * ((X[:, None] - X) ** 2).sum(axis=2) / amplitude**0.5)
    prior, y = K[1:, 1:] + 1e-6 * np.eye(150), f[1:] + 1e-3 * rng.normal(size=150)
    lower = longest_cholesky(prior.astype(np.longdouble) + np.eye(150) * np.longdouble(1e-6))
    z, cross = np.zeros(150, dtype=np.longdouble), np.zeros(150, dtype=np.longdouble)
    for i in range(150):
        z[i], cross[i] = (np.array([y[i], K[0, i + 1]]) - lower[i, :i] @ np.stack([z, cross], axis=1)[:i]) / lower[i, i]
    found = mean_field(Covariance(prior, jitter=1e-6), y, gaussian(C=1e6))
    evidence = -0.5 * z @ z - np.log(np.diag(lower)).sum() - 75 * np.log(2 * np.pi)
    assert found.converged and found.log_evidence == pytest.approx(float(evidence), abs=atol)
    mean, variance = found.predict(K[:1, 1:], K[0, :1])
    assert mean[0] == pytest.approx(float(z @ cross), abs=atol)
    assert variance[0] == pytest.approx(float(K[0, 0] - cross @ cross), rel=1e-3)
    explained = found.factor.explained_together(K[:1, 1:][:, found.factor.points])
    assert K[0, 0] - explained[0, 0] == pytest.approx(variance[0], rel=1e-6)
    sharp = mean_field(Covariance(prior, jitter=1e-6), y, soft_insensitive(1e3, 1e-3, 0.3))
    assert sharp.converged and sharp.n_iter <= 40
    read = Covariance(prior, jitter=1e-6).factor(sharp.site_precision)  # as of a saved result
    np.testing.assert_allclose(read.marginals()[0], sharp.variance, rtol=1e-6)
    again = mean_field(
        *(Covariance(prior, jitter=1e-6), y, soft_insensitive(1e3, 1e-3, 0.3)),
        start=np.stack([sharp.dual_coef, sharp.site_precision]),
    )
    assert again.n_iter <= 3

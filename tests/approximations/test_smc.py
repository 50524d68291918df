"""The annealed estimate against exact evidences."""

import numpy as np
import pytest
from problems import LOSSES, exact_gaussian_process, likelihood_of, reverse_annealed, smooth
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from bsvr_pp.approximations import Covariance, annealed
from bsvr_pp.core.approximations.smc import Annealing, Path, bridge
from bsvr_pp.losses import gaussian, hinge, soft_insensitive


def test_gaussian_noise_within_its_error():
    K, y = smooth(8)
    log_evidence, mean, covariance = exact_gaussian_process(K, y, 20.0)
    found = annealed(K, y, gaussian(20.0), Annealing(particles=500, moves=10), random_seed=1)
    assert 0 < found.standard_error < 0.15
    assert abs(found.log_evidence - log_evidence) < 4 * found.standard_error
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(found.mean - mean) / sd) < 0.2
    np.testing.assert_allclose(found.variance / sd**2, 1.0, atol=0.3)
    assert found.f.shape == (4000, 8)
    assert found.powers[0] == 0
    assert found.powers[-1] == 1
    assert (np.diff(found.powers) > 0).all()


def test_the_standard_error_is_one():
    """Over independent runs the estimates scatter as they say."""
    K, y = smooth(4)
    exact, _, _ = exact_gaussian_process(K, y, 5.0)
    design = Annealing(particles=100, moves=5)
    ladder, path = annealed(K, y, gaussian(5.0), design, random_seed=0).powers, bridge(K, y, gaussian(5.0), None)
    runs = [path.forward(ladder, design, np.random.default_rng(s)) for s in range(20)]
    off = np.array([run.log_evidence - exact for run in runs])
    errors = np.array([run.standard_error for run in runs])
    assert 0.5 < np.sqrt(np.mean(off**2) / np.mean(errors**2)) < 2.0
    assert abs(off.mean()) < 4 * np.sqrt(np.mean(errors**2) / 20)


@pytest.mark.slow_cases(
    "soft_insensitive(C=6, epsilon=0.2, beta=0)",
    "soft_insensitive(C=10, epsilon=0.1, beta=0.3)",
    "gaussian(C=20)",
    "huber(C=6, epsilon=0.1)",
)
@pytest.mark.parametrize("noise", LOSSES[::2], ids=repr)
def test_both_paths_lead_to_the_same_evidence(noise):
    """From the mean-field Gaussian and from the prior, forwards and back."""
    K, y = smooth(5, noise=noise)
    likelihood = likelihood_of(noise, y)
    near = annealed(K, y, noise, Annealing(particles=250), random_seed=1)
    log_density = noise.log_density(1 - y * near.f if noise.name == "hinge" else y - near.f)
    np.testing.assert_allclose(likelihood(near.f), log_density.sum(axis=1), rtol=1e-12)
    far = annealed(K, None, likelihood, Annealing(particles=250), random_seed=2)
    assert near.standard_error < 0.03
    assert near.standard_error < far.standard_error
    assert abs(near.log_evidence - far.log_evidence) < 4 * np.hypot(near.standard_error, far.standard_error)
    back, error = reverse_annealed(far.f, K, y, noise, near.powers, seed=3)
    assert back == pytest.approx(near.log_evidence, abs=4 * np.hypot(error, far.standard_error) + 0.02)


@pytest.mark.parametrize("noise", [soft_insensitive(5.0, 0.2, 0.3), hinge(2.0)], ids=repr)
def test_one_point_is_the_quadrature(noise):
    def density(f):
        log_density = float(noise.log_density(1 - f if noise.name == "hinge" else 1.0 - f))
        return np.exp(log_density - 0.5 * (f - 0.5) ** 2 / 2) / np.sqrt(4 * np.pi)

    knots = (0.74, 0.86, 1.0, 1.14, 1.26)
    mass = quad(density, -12, 12, points=knots)[0]
    mean = quad(lambda f: f * density(f), -12, 12, points=knots)[0] / mass
    found = annealed([[2.0]], [1.0], noise, Annealing(particles=1000), mean=[0.5], random_seed=4)
    assert found.log_evidence == pytest.approx(np.log(mass), abs=4 * found.standard_error)
    assert found.mean[0] == pytest.approx(mean, abs=0.1 * np.sqrt(found.variance[0]))


def test_a_likelihood_may_be_zero():
    """Half of the prior: -inf is a log likelihood."""
    found = annealed(
        np.eye(2), None, lambda f: np.where(f[:, 0] > 0, 0.0, -np.inf), Annealing(particles=500), random_seed=0
    )
    assert found.log_evidence == pytest.approx(-np.log(2), abs=4 * found.standard_error)
    assert (found.f[:, 0] > 0).all()


def test_vector_parameters_and_prior_mean():
    K, y = smooth(6)
    mean, precision = np.linspace(-1, 1, 6), np.linspace(1, 8, 6)
    exact = multivariate_normal(mean, K + np.diag(1 / precision)).logpdf(y)
    found = annealed(K, y, gaussian(precision), Annealing(particles=500), mean=mean, random_seed=5)
    assert found.log_evidence == pytest.approx(exact, abs=4 * found.standard_error)


def test_same_seed_same_result():
    def run(seed):
        return annealed(np.eye(2), [0.1, 0.2], gaussian(2.0), Annealing(particles=50, groups=2), random_seed=seed)

    assert run(5).log_evidence == run(5).log_evidence == run(np.random.default_rng(5)).log_evidence
    np.testing.assert_array_equal(run(5).f, run(5).f)
    assert run(6).log_evidence != run(5).log_evidence


# A prior N(0.5, 1) in one dimension, a likelihood around 2 of variance 0.25, and their posterior N(1.7, 0.2).
def path_to(likelihood):
    return Path(likelihood, np.array([0.5]), Covariance([[1.0]]))


def around_two(f):
    return -2.0 * (f[:, 0] - 2.0) ** 2


@pytest.mark.parametrize("efficiency", [0.5, 0.9])
def test_powers_have_the_effective_share_that_was_asked_for(efficiency):
    powers, f = path_to(around_two).find_powers(4000, 3, efficiency, np.random.default_rng(3))
    first = around_two(path_to(around_two).draw(4000, np.random.default_rng(3)))

    def share(power):
        weight = np.exp(power * (first - first.max()))
        return weight.sum() ** 2 / (weight**2).sum() / 4000

    assert share(powers[1]) >= efficiency > share(1.02 * powers[1])
    assert (powers[0], powers[-1]) == (0.0, 1.0)
    assert 3 <= len(powers) <= 60
    assert f.mean() == pytest.approx(1.7, abs=0.05)
    assert f.var() == pytest.approx(0.2, abs=0.02)


def test_a_likelihood_that_is_nearly_flat_needs_one_step():
    powers, _ = path_to(lambda f: 0.01 * f[:, 0]).find_powers(100, 1, 0.8, np.random.default_rng(0))
    assert powers.tolist() == [0.0, 1.0]


def test_one_step_of_weights_is_importance_sampling():
    """One move cannot repair draws that were chosen with wrong weights."""
    design = Annealing(particles=4000, groups=4, moves=1)
    found = path_to(around_two).forward(np.array([0.0, 1.0]), design, np.random.default_rng(1))
    exact = -0.5 * np.log(5.0) - 0.5 * 1.5**2 / 1.25
    assert found.log_evidence == pytest.approx(exact, abs=4 * found.standard_error)
    assert found.standard_error < 0.05
    assert float(found.mean[0]) == pytest.approx(1.7, abs=0.05)
    assert float(found.variance[0]) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("power", "mean", "variance"), [(0.0, 0.5, 1.0), (0.25, 1.25, 0.5), (1.0, 1.7, 0.2)])
def test_moves_keep_the_density_and_forget_the_start(power, mean, variance):
    rng = np.random.default_rng(4)
    f = rng.normal(mean, variance**0.5, (20_000, 1))
    moved, values = path_to(around_two).move(f, around_two(f), power, 8, rng)
    np.testing.assert_array_equal(values, around_two(moved))
    assert moved.mean() == pytest.approx(mean, abs=5 * (variance / 20_000) ** 0.5)
    assert moved.var() == pytest.approx(variance, rel=0.06)
    assert abs(np.corrcoef(f[:, 0], moved[:, 0])[0, 1]) < 0.1

"""Targets known to lie in intervals: every approximation against quadrature, limits and differences."""

import numpy as np
import pytest
from problems import assert_gradient_matches_differences, factor_grid, likelihood_of, smooth
from scipy.special import logsumexp

from bsvr_pp.core.approximations import annealed, find_mode, laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.core.approximations.smc import Annealing
from bsvr_pp.losses import NoiseModel, absolute, epsilon_insensitive, gaussian, huber, soft_insensitive

NOISES = [
    soft_insensitive(10.0, 0.1, 0.3),
    epsilon_insensitive(5.0, 0.3),
    huber(6.0, 0.1),
    absolute(4.0),
    gaussian(20.0),
]
SMOOTH = [soft_insensitive(10.0, 0.1, 0.3), huber(6.0, 0.1), gaussian(20.0)]


def mixed_ends(y, noise, exact=True):
    """Ends of which a fifth each is right-censored, left-censored, wide, narrow, and exact or a unit wide."""
    sd = noise.variance**0.5
    kind = np.random.default_rng(0).integers(5, size=y.size)
    lower, upper = y.copy(), y.copy()
    upper[kind == 0], lower[kind == 1] = np.inf, -np.inf
    upper[kind == 2] += 3 * sd
    lower[kind == 3] -= 0.1 * sd
    if not exact:
        lower[kind == 4] -= 0.5
        upper[kind == 4] += 0.5
    return lower, upper


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("exact", [True, False], ids=["mixed", "intervals"])
def test_mode_is_optimal(noise, exact):
    K, y = smooth(30)
    between = noise.between(*mixed_ends(y, noise, exact))
    mode = find_mode(K, y, between)
    assert mode.converged and mode.duality_gap <= 1e-8
    likelihood = likelihood_of(between, y)

    def objective(f):
        return 0.5 * f @ np.linalg.solve(K, f) - float(likelihood(f[None])[0])

    best, rng = objective(mode.f), np.random.default_rng(1)
    for scale in (1e-4, 1e-2, 1.0):
        for _ in range(5):
            assert objective(mode.f + scale * np.linalg.cholesky(K) @ rng.normal(size=30)) > best
    intervals = between.ends[:, 0] < between.ends[:, 1]
    assert (mode.support[intervals] == 0).all()


@pytest.mark.slow_cases(
    "soft_insensitive(C=2, epsilon=0.5, beta=0.1)-3", "soft_insensitive(C=10, epsilon=0.1, beta=0.3)-2"
)
@pytest.mark.parametrize(
    ("noise", "n"),
    [(soft_insensitive(10.0, 0.1, 0.3), 2), (soft_insensitive(2.0, 0.5, 0.1), 3), (gaussian(4.0), 2)],
    ids=str,
)
def test_every_method_against_quadrature(noise, n):
    X = np.array([[-1.0], [0.2], [1.5]])[:n]
    K = np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(n)
    y = np.array([0.4, -0.3, 1.0])[:n]
    between = noise.between([0.4, -np.inf, 0.7][:n], [np.inf, -0.3, 1.3][:n])
    f, log_weight = factor_grid(K, likelihood_of(between, y))
    exact = float(logsumexp(log_weight))
    share = np.exp(log_weight - exact)
    mean = share @ f
    sd = np.sqrt(share @ (f - mean) ** 2)
    field = mean_field(K, y, between)
    assert field.converged
    assert field.log_evidence == pytest.approx(exact, abs=0.02)
    np.testing.assert_allclose(field.mean, mean, atol=0.05 * sd.max())
    np.testing.assert_allclose(np.sqrt(field.variance), sd, rtol=0.05)
    run = annealed(K, y, between, Annealing(particles=500), random_seed=1)
    assert abs(run.log_evidence - exact) < 4 * run.standard_error + 1e-3
    for curvature in ("exact", "local"):
        approximate = laplace(K, y, between, curvature=curvature)
        assert approximate.converged
        # Laplace is rough for so few points: its formula is exact, its value is within a nat.
        assert approximate.log_evidence == pytest.approx(exact, abs=1.0)
        if curvature == "exact":
            assert approximate.log_evidence == pytest.approx(laplace_by_differences(K, between), abs=1e-5)


@pytest.mark.slow_cases(*(repr(noise) for noise in NOISES[1:]))
@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_one_interval_is_exact_under_mean_field(noise):
    """With one point the tilted moments are the posterior: compare with the mass at nodes of f."""
    for lower, upper in ((0.3, np.inf), (-np.inf, -2.0), (0.3, 0.4), (-1.0, 4.0)):
        between = noise.between([lower], [upper])
        field = mean_field(np.eye(1), [0.0], between)
        f = np.linspace(-9, 9, 200_001)
        log_p = between.log_likelihood(np.zeros(1), f[:, None])[:, 0] - 0.5 * f**2
        weight = np.exp(log_p - log_p.max())
        total = weight.sum() * (f[1] - f[0])
        assert field.log_evidence == pytest.approx(np.log(total / np.sqrt(2 * np.pi)) + log_p.max(), abs=1e-7)
        mean = (weight * f).sum() / weight.sum()
        assert field.mean[0] == pytest.approx(mean, abs=1e-6)
        assert field.variance[0] == pytest.approx((weight * (f - mean) ** 2).sum() / weight.sum(), rel=1e-5)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_shrinking_intervals_are_densities(noise):
    K, y = smooth(20)
    width = 2.0**-24
    narrow = noise.between(y - width / 2, y + width / 2)
    for solve in (mean_field, laplace, lambda *given: laplace(*given, curvature="local")):
        if solve is laplace and not noise.smooth:
            continue  # exact curvature is 1/width at a kink; that of a density is integrated over the kink
        density, mass = solve(K, y, noise), solve(K, y, narrow)
        assert mass.log_evidence - 20 * np.log(width) == pytest.approx(density.log_evidence, abs=1e-6)
        np.testing.assert_allclose(mass.mean, density.mean, atol=1e-6)
        np.testing.assert_allclose(mass.variance, density.variance, rtol=1e-5)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_a_far_end_is_an_infinite_one_and_equal_ends_are_exact(noise):
    K, y = smooth(15)
    far, infinite = noise.between(y, y + 1e5), noise.between(y, np.full(15, np.inf))
    same = noise.between(y, y)
    for solve in (mean_field, laplace, lambda *given: laplace(*given, curvature="local")):
        assert solve(K, y, far).log_evidence == pytest.approx(solve(K, y, infinite).log_evidence, abs=1e-8)
        exact, equal = solve(K, y, noise), solve(K, y, same)
        assert equal.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
        np.testing.assert_allclose(equal.mean, exact.mean, atol=1e-9)


def laplace_by_differences(K, between):
    """Chu, Keerthi & Ong 2004, (36)-(37), with the curvature of the log likelihood by differences."""
    n, h = len(K), 1e-4
    mode = find_mode(K, np.zeros(n), between)
    near = between.log_likelihood(np.zeros(n), mode.f + h * np.array([[-1.0], [0.0], [1.0]]))
    W = np.maximum(-(near[0] - 2 * near[1] + near[2]) / h**2, 0.0)
    log_joint = near[1].sum() - 0.5 * mode.dual_coef @ K @ mode.dual_coef
    return log_joint - 0.5 * np.linalg.slogdet(np.eye(n) + np.sqrt(W)[:, None] * K * np.sqrt(W))[1]


@pytest.mark.parametrize(
    ("noise", "curvature"),
    [*((noise, None) for noise in NOISES), *((noise, c) for noise in SMOOTH for c in ("exact", "local"))],
    ids=str,
)
def test_gradients_match_differences(noise, curvature):
    """Of mean field, and of Laplace with each curvature. Intervals stay in differences by a parameter."""
    K, y = smooth(15)
    functions, options = (mean_field, mean_field_gradient), {"h": 1e-5}
    if curvature:
        functions, options = (laplace, laplace_gradient), {"h": 1e-7, "curvature": curvature}
    between = noise.between(*mixed_ends(y, noise))
    assert_gradient_matches_differences(*functions, K, y, between, np.zeros(15), rel=1e-4, abs=1e-4, **options)


def test_leave_one_out_density_of_a_censored_point():
    """With an isotropic prior the cavity is the prior: the density of y_i is the prior predictive mass."""
    noise = soft_insensitive(4.0, 0.2, 0.3)
    between = noise.between([0.5, 0.1], [np.inf, 0.1])
    posterior = mean_field(np.eye(2), [0.0, 0.1], between)
    expected = [np.log1p(-noise.predictive_cdf(0.5, 0.0, 1.0)), noise.tilted(0.0, 1.0, 0.1)[0]]
    np.testing.assert_allclose(posterior.log_loo([0.0, 0.1], between), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_settings_of_the_box_converge(seed):
    rng = np.random.default_rng(seed)
    K, y = smooth(40, seed)
    for _ in range(4):
        C, epsilon, beta = 10 ** rng.uniform(-1, 3), 10 ** rng.uniform(-3, 0), rng.choice([0.0, 1e-3, 0.3, 1.0])
        noise = NoiseModel(NOISES[0].kind, {"C": C, "epsilon": epsilon, "beta": float(beta)})
        between = noise.between(*mixed_ends(y, noise))
        assert find_mode(K, y, between).converged
        assert mean_field(K, y, between).converged

"""The prior covariance: one type, by a matrix or by a root and a diagonal, and what follows from it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bsvr_pp.core.approximations import Covariance, annealed, find_mode, laplace, laplace_gradient, mean_field
from bsvr_pp.core.approximations.posterior import from_sites
from bsvr_pp.core.approximations.smc import Annealing
from bsvr_pp.losses import epsilon_insensitive, soft_insensitive

N, N_NEW = 40, 7
NOISES = [soft_insensitive(5.0, 0.1, 0.3), epsilon_insensitive(4.0, 0.2)]


def setting(rank=4):
    """The same covariance by its root, as a matrix, with targets, and the covariances of new inputs."""
    rng = np.random.default_rng(0)
    x, new = np.sort(rng.uniform(-2, 2, N)), np.linspace(-2.5, 2.5, N_NEW)
    features = [np.stack([np.cos((k + 1) * at + k) / (k + 1) for k in range(rank)], axis=1) for at in (x, new)]
    root, diagonal = features[0], rng.uniform(0.05, 0.2, N)
    K = Covariance.from_root(root, diagonal)
    cross, prior = features[1] @ root.T, np.einsum("ij,ij->i", features[1], features[1]) + 0.1
    return K, Covariance(root @ root.T + np.diag(diagonal)), np.sin(2 * x) + 0.1 * rng.normal(size=N), cross, prior


METHODS = {
    "Laplace": laplace,
    "Laplace (local)": lambda *args, **options: laplace(*args, curvature="local", **options),
    "mean field": mean_field,
}


@pytest.mark.parametrize("rank", [1, 4, 60])
@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_a_root_and_a_diagonal_give_what_the_matrix_gives(noise, rank):
    root, dense, y, cross, prior = setting(rank)
    assert root.structure.matrix.size == 0  # never formed
    np.testing.assert_allclose(root.dense(), dense.dense(), atol=1e-14)
    modes = [find_mode(K, y, noise) for K in (root, dense)]
    np.testing.assert_allclose(modes[0].f, modes[1].f, atol=1e-8)
    np.testing.assert_allclose(modes[0].dual_coef, modes[1].dual_coef, atol=1e-8)
    for approximate in METHODS.values():
        a, b = (approximate(K, y, noise, mean=0.1 * np.ones(N)) for K in (root, dense))
        assert a.converged and b.converged
        assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-8)
        for name in ("mean", "variance", "site_precision", "cavity_mean", "cavity_variance"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-8, atol=1e-8, err_msg=name)
        for found, expected in zip(a.predict(cross, prior), b.predict(cross, prior), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(a.log_loo(y, noise), b.log_loo(y, noise), atol=1e-8)


def test_gradients_by_a_root():
    root, dense, y, _, _ = setting()
    (value, by), (expected, by_dense) = (laplace_gradient(K, y, NOISES[0]) for K in (root, dense))
    assert value == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(by.K, 2 * by_dense.K @ root.structure.root, atol=1e-8)  # by the root


@pytest.mark.slow
def test_annealing_by_a_root():
    root, dense, y, _, _ = setting()
    runs = [annealed(K, y, NOISES[0], Annealing(particles=200, groups=8), random_seed=1) for K in (root, dense)]
    error = np.hypot(runs[0].standard_error, runs[1].standard_error)
    assert abs(runs[0].log_evidence - runs[1].log_evidence) < 4 * error < 0.2
    assert abs(runs[0].log_evidence - mean_field(dense, y, NOISES[0]).log_evidence) < 0.2


def smooth(n=60, jitter=1e-6, bias=2.0):
    x = np.linspace(-1, 1, n)
    return np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / 0.7**2) + bias + jitter * np.eye(n), np.sin(3 * x)


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("jitter", [0.0, 1e-6])
@pytest.mark.parametrize(("scale", "bias"), [(10.0, 2.0), (1e-3, 0.0), (1.0, 300.0), (1e4, 0.0), (1e4, 300.0)])
def test_factor_against_dense_formulas(jitter, some, scale, bias):
    """With a site at each point and at some, by the matrix and by the root of a smooth kernel."""
    matrix, _ = smooth(bias=bias)
    K = Covariance(matrix, jitter=jitter)
    assert (K.rank < 60) == (jitter > 0)
    rng = np.random.default_rng(0)
    tau = scale * rng.exponential(size=60)
    if some:
        tau[::3] = 0.0
    factor = K.factor(tau)
    at = np.flatnonzero(tau)
    inverse = np.linalg.inv(matrix[np.ix_(at, at)] + np.diag(1 / tau[at]))
    rel = 1e-8 if scale == 1e4 else 1e-10  # what the rounding of the matrix allows
    assert factor.log_det == pytest.approx(np.linalg.slogdet(np.eye(60) + tau[:, None] * matrix)[1], rel=rel)
    right = rng.normal(size=(3, at.size))
    atol = max(1e-8, rel * (1 + bias) * np.abs(inverse).max())
    np.testing.assert_allclose(factor.solve(right), right @ inverse, atol=atol)
    cross = matrix[:5] - jitter * np.eye(60)[:5]
    expected = np.einsum("ij,jk,ik->i", cross[:, at], inverse, cross[:, at])
    np.testing.assert_allclose(factor.explained(cross), expected, rtol=10 * rel)
    covariance = matrix - matrix @ np.linalg.solve(np.eye(60) + tau[:, None] * matrix, tau[:, None] * matrix)
    variance, cavity_variance = factor.marginals()
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-7, atol=1e-12 * bias)
    np.testing.assert_allclose(1 / cavity_variance, 1 / variance - tau, rtol=1e-7)
    np.testing.assert_allclose(K.matvec(tau), matrix @ tau, rtol=1e-12)


@pytest.mark.parametrize("kind", ["matrix", "smooth", "root"])
@pytest.mark.parametrize("size", [40, 20_000])
def test_draws_have_the_covariance_of_the_posterior(kind, size):
    """Few draws, and many."""
    matrix, _ = smooth(30, 0.1)
    K = {
        "matrix": lambda: Covariance(matrix),
        "smooth": lambda: Covariance(smooth(80, 1e-6)[0], jitter=1e-6),
        "root": lambda: Covariance.from_root(np.ones((30, 1)), np.full(30, 0.5)),
    }[kind]()
    n = K.size
    tau = np.random.default_rng(1).exponential(size=n)
    tau[::4] = 0.0
    matrix = K.dense()
    expected = matrix - matrix @ np.linalg.solve(np.eye(n) + tau[:, None] * matrix, tau[:, None] * matrix)
    draws = K.factor(tau).draw(size, np.random.default_rng(2))
    assert draws.shape == (size, n)
    if size > 1000:
        sd = np.sqrt(np.diag(expected))
        assert np.abs(np.cov(draws.T) - expected).max() / np.outer(sd, sd).max() < 0.05
        prior = np.cov(K.draw(size, np.random.default_rng(3)).T)
        assert np.abs(prior - K.dense()).max() < 0.05 * K.diag.max()


def test_equal_seeds_give_equal_draws_whatever_was_drawn_before():
    matrix, _ = smooth(30, 0.1)
    K, tau = Covariance(matrix), np.linspace(0, 3, 30)
    few, many = K.factor(tau), K.factor(tau)
    many.draw(100, np.random.default_rng(0))
    for size in (1, 5, 100):
        a, b = (factor.draw(size, np.random.default_rng(1)) for factor in (few, many))
        np.testing.assert_array_equal(a, b)
    with ThreadPoolExecutor(4) as pool:
        for drawn in pool.map(lambda _: many.draw(5, np.random.default_rng(1)), range(40)):
            np.testing.assert_array_equal(drawn, few.draw(5, np.random.default_rng(1)))
    square_root = few._square_root(np.eye(30))
    np.testing.assert_allclose(
        square_root.T @ square_root, np.linalg.inv(np.linalg.inv(matrix) + np.diag(tau)), atol=1e-10
    )


def test_whitened_columns():
    matrix, y = smooth(20, 1e-3)
    np.testing.assert_allclose(Covariance(matrix).whiten(y), np.linalg.solve(np.linalg.cholesky(matrix), y), atol=1e-8)


def test_singular_and_indefinite_matrices():
    ones = Covariance(np.ones((5, 5)))
    assert np.ptp(ones.draw(3, np.random.default_rng(0)), axis=1).max() < 1e-4
    with pytest.raises(ValueError, match="K must be positive definite; add a jitter of 1e-6 to its diagonal"):
        Covariance(np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]])).draw(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="K must be positive semidefinite; add a jitter to its diagonal"):
        Covariance(np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]])).factor(np.full(3, 1e3))


def test_a_posterior_of_two_vectors_is_that_of_the_solve():
    matrix, y = smooth()
    for approximate in METHODS.values():
        found = approximate(Covariance(matrix, jitter=1e-6), y, NOISES[0])
        again = from_sites(Covariance(matrix, jitter=1e-6), np.zeros(60), found.dual_coef, found.site_precision)
        np.testing.assert_allclose(again.mean, found.mean, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(again.variance, found.variance, rtol=1e-9)
        np.testing.assert_allclose(again.cavity_variance, found.cavity_variance, rtol=1e-9)


def test_nothing_is_overwritten():
    matrix, y = smooth()
    K = Covariance(matrix, jitter=1e-6)
    before = [np.copy(part) for part in K.structure]
    for function in (find_mode, *METHODS.values(), laplace_gradient):
        function(K, y, NOISES[0])
    for part, copy in zip(K.structure, before, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("n", [3, 70, 150])
def test_what_is_no_covariance_is_refused_wherever_it_fails(n):
    places = {(1, 0), (2, 1), (n - 1, 0), (n - 1, n - 2), (2 * n // 3, n // 2)}
    for i, j in places:
        asymmetric = 2.0 * np.eye(n)
        asymmetric[i, j] = 0.25
        with pytest.raises(ValueError, match=r"K must be symmetric, K - K.T reaches 0\.25"):
            Covariance(asymmetric)
        with pytest.raises(ValueError, match=r"K must be symmetric, K - K.T reaches 0\.25"):
            Covariance(asymmetric.T)
        large = np.diag(np.where(np.arange(n) == i, 9.0, 1.0))
        large[i, j] = large[j, i] = -3.01
        with pytest.raises(ValueError, match="covariance larger than the variances of its points allow"):
            Covariance(large)
        large[i, j] = large[j, i] = -3.0
        assert Covariance(large).size == n
    with pytest.raises(ValueError, match="K must have no negative diagonal, got -1"):
        Covariance(np.diag([1.0, -1.0, 0.0]))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_asymmetry_is_relative_to_the_largest_entry(scale):
    matrix = scale * np.eye(4)
    matrix[2, 1] = 9e-9 * scale
    assert Covariance(matrix).size == 4
    matrix[2, 1] = 1.1e-8 * scale
    with pytest.raises(ValueError, match="K must be symmetric"):
        Covariance(matrix)


@pytest.mark.parametrize("jitter", [0.0, 1e-6])
def test_draws_without_sites_are_those_of_the_prior(jitter):
    matrix, _ = smooth(60)
    K = Covariance(matrix, jitter=jitter)
    assert (K.rank == 60) == (jitter == 0.0)
    draws = K.factor(np.zeros(60)).draw(20_000, np.random.default_rng(0))
    assert np.abs(np.cov(draws.T) - matrix).max() < 0.05 * K.diag.max()

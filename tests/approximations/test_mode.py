"""The mode against quadratic programming, scikit-learn, closed forms and its own optimality conditions."""

import cvxopt
import numpy as np
import pytest
from problems import LOSSES, duality_gap, from_the_box, smooth
from sklearn.svm import SVC, SVR

from bsvr_pp.approximations import find_mode
from bsvr_pp.core.approximations.mode import mode_core
from bsvr_pp.core.approximations.posterior import checked_problem
from bsvr_pp.core.covariance.structure import split
from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, hinge, huber, pinball, soft_insensitive


def dual_by_cvxopt(K, y, C, epsilon, beta):
    """Optimum of chu2004 (29) and its dual coefficients, by a generic interior point method."""
    n = y.size
    P = np.block([[K, -K], [-K, K]]) + 2 * beta * epsilon / C * np.eye(2 * n)
    q = np.concatenate([(1 - beta) * epsilon - y, (1 - beta) * epsilon + y])
    G, h = np.vstack([np.eye(2 * n), -np.eye(2 * n)]), np.concatenate([np.full(2 * n, C), np.zeros(2 * n)])
    options = {"show_progress": False, "abstol": 1e-12, "reltol": 1e-12, "feastol": 1e-12, "maxiters": 200}
    found = cvxopt.solvers.qp(*(cvxopt.matrix(part) for part in (P, q, G, h)), options=options)
    alpha = np.array(found["x"]).ravel()
    return -found["primal objective"], alpha[:n] - alpha[n:]


def on_its_active_set(a, K, y, C, epsilon, beta):
    """The digits an interior point method lacks: the free coefficients from the optimality conditions."""
    free = (np.abs(a) > 1e-5 * C) & (np.abs(a) < (1 - 1e-5) * C)
    exact = np.where(free, 0.0, np.sign(a) * C * (np.abs(a) > 0.5 * C))
    system = K[np.ix_(free, free)] + 2 * beta * epsilon / C * np.eye(free.sum())
    exact[free] = np.linalg.solve(system, (y - K @ exact)[free] - (1 - beta) * epsilon * np.sign(a[free]))
    return exact


def assert_optimal(K, y, noise, mode, mean=0.0, reach=1e-8):
    """Each dual coefficient lies between the slopes of the energy just left and just right of its residual."""
    np.testing.assert_allclose(mode.f, mean + K @ mode.dual_coef, atol=1e-10 * max(1.0, np.abs(mode.f).max()))
    C = np.broadcast_to(noise.parameters["C"], y.shape)
    if noise.name == "hinge":
        r, a = 1 - y * mode.f, y * mode.dual_coef
    else:
        r, a = y - mode.f, mode.dual_coef
    reach = reach * max(1.0, np.abs(y).max())
    assert (C * noise.derivative(r - reach) - a <= 1e-9 * C).all()
    assert (a - C * noise.derivative(r + reach) <= 1e-9 * C).all()


@pytest.mark.parametrize("beta", [0.0, 0.1, 1.0])
def test_a_solution_nearby_saves_factorisations(beta):
    K, y = smooth(100)
    pieces, nowhere = checked_problem(K, y, soft_insensitive(5.0, 0.1, beta), None)[3], np.zeros(100)
    nearby = mode_core(split(0.99 * K, 0.0), y, pieces, nowhere).dual_coef
    warm = mode_core(split(K, 0.0), y, pieces, nearby)
    cold = mode_core(split(K, 0.0), y, pieces, nowhere)
    np.testing.assert_allclose(warm.dual_coef, cold.dual_coef, atol=1e-6)
    assert 2 * warm.iterations <= cold.iterations


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_a_generic_qp_solver(beta, seed):
    rng = np.random.default_rng(seed)
    n, C, epsilon = 40, 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-2, -0.5)
    X = rng.normal(size=(n, 1 + seed % 3))
    y = np.sin(X.sum(axis=1)) + 0.2 * rng.normal(size=n)
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1)) + 1.0 + (1e-3 if seed % 2 else 0.05) * np.eye(n)
    assert np.linalg.cond(K) < 1e6
    mode = find_mode(K, y, soft_insensitive(C, epsilon, beta))
    objective, raw = dual_by_cvxopt(K, y, C, epsilon, beta)
    assert mode.converged
    assert mode.duality_gap <= 1e-8
    assert mode.objective == pytest.approx(objective, rel=1e-8)
    expected = on_its_active_set(raw, K, y, C, epsilon, beta)
    np.testing.assert_allclose(expected, raw, atol=1e-4 * C)
    np.testing.assert_allclose(mode.dual_coef, expected, atol=1e-6 * C)
    np.testing.assert_allclose(mode.f, K @ expected, rtol=0, atol=1e-8 * np.abs(mode.f).max())


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_scikit_learn_once_the_bias_is_free(seed):
    rng = np.random.default_rng(seed)
    n, C, epsilon = 60, [0.3, 2.0, 20.0][seed % 3], [0.02, 0.2][seed % 2]
    X = rng.uniform(-5, 5, (n, 1))
    y = np.sin(X[:, 0]) + 3 + 0.1 * rng.normal(size=n)
    K = np.exp(-0.5 * (X - X.T) ** 2)
    svr = SVR(kernel="precomputed", C=C, epsilon=epsilon, tol=1e-9, max_iter=10**7).fit(K, y)
    mode = find_mode(K + 1e6, y, epsilon_insensitive(C, epsilon))
    np.testing.assert_allclose(mode.f, svr.predict(K), atol=1e-4 * np.ptp(y))


@pytest.mark.parametrize("C", [0.5, 2.0, 10.0])
def test_hinge_is_the_support_vector_classifier(C):
    K, y = smooth(60, 1, hinge(1.0))
    svc = SVC(kernel="precomputed", C=C, tol=1e-9, max_iter=10**7).fit(K, y)
    mode = find_mode(K + 1e6, y, hinge(C))
    np.testing.assert_allclose(mode.f, svc.decision_function(K), atol=1e-4)


@pytest.mark.parametrize("seed", [2, 7])
@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_dual_coefficients_are_subgradients_at_the_residuals(noise, seed):
    K, y = smooth(40, seed, noise)
    mode = find_mode(K, y, noise)
    assert mode.converged
    assert_optimal(K, y, noise, mode)


@pytest.mark.parametrize("noise", LOSSES[:5], ids=repr)
def test_support_says_what_each_point_is(noise):
    K, y = smooth(40, 3)
    mode = find_mode(K, y, noise)
    C, epsilon = noise.parameters["C"], noise.parameters["epsilon"]
    beta = noise.parameters.get("beta", 1.0 if noise.name == "huber" else 0.0)
    a, r = np.abs(mode.dual_coef), np.abs(y - mode.f)
    np.testing.assert_array_equal(mode.support == 0, a < 1e-8 * C)
    np.testing.assert_array_equal(mode.support == 2, a > C * (1 - 1e-8))
    assert (r[mode.support == 0] <= (1 - beta) * epsilon + 1e-9).all()
    assert (r[mode.support == 2] >= (1 + beta) * epsilon - 1e-9).all()
    off = r[mode.support == 1]
    assert ((off >= (1 - beta) * epsilon - 1e-9) & (off <= (1 + beta) * epsilon + 1e-9)).all()
    assert off.size > 0


def test_gaussian_noise_is_kernel_ridge():
    K, y = smooth(25, 4)
    expected = K @ np.linalg.solve(K + np.eye(25) / 20.0, y)
    mode = find_mode(K, y, gaussian(20.0))
    np.testing.assert_allclose(mode.f, expected, atol=1e-11)
    assert mode.n_iter == 1
    # chu2004 IV-A: beta = 1 and 2 epsilon/C = variance, with C too large for any bound.
    np.testing.assert_allclose(find_mode(K, y, huber(1e5, 1e5 / 40.0)).f, expected, atol=1e-9)
    np.testing.assert_allclose(find_mode(K, y, soft_insensitive(1e3, 1e3 / 40.0, 1.0)).f, expected, atol=1e-9)


def test_pinball_splits_the_targets_at_its_quantile():
    K, y = smooth(41, 9)
    mode = find_mode(1e-12 * K + 1e4, y, pinball(3.0, 0.3))  # a constant alone
    np.testing.assert_allclose(mode.f, np.quantile(y, 0.3), atol=1e-6)


def test_prior_mean_shifts_the_targets():
    K, y = smooth(20, 5)
    mean = np.linspace(-1, 1, 20)
    noise = soft_insensitive(4.0, 0.1, 0.3)
    shifted, plain = find_mode(K, y, noise, mean=mean), find_mode(K, y - mean, noise)
    np.testing.assert_allclose(shifted.dual_coef, plain.dual_coef)
    np.testing.assert_allclose(shifted.f, plain.f + mean)
    labels = np.sign(y)
    assert_optimal(K, labels, hinge(2.0), find_mode(K, labels, hinge(2.0), mean=mean), mean)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_vector_parameters(beta):
    K, y = smooth(20, 5)
    same = find_mode(K, y, soft_insensitive(np.full(20, 4.0), np.full(20, 0.1), beta))
    np.testing.assert_allclose(same.dual_coef, find_mode(K, y, soft_insensitive(4.0, 0.1, beta)).dual_coef, atol=1e-9)
    C, epsilon = np.linspace(0.1, 5, 20), np.linspace(0.3, 0.0, 20)
    noise = soft_insensitive(C, epsilon, beta)
    mode = find_mode(K, y, noise)
    assert mode.converged
    assert (np.abs(mode.dual_coef) <= C).all()
    assert_optimal(K, y, noise, mode)


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_singular_covariances(noise):
    K, y = smooth(20, 6, noise)
    twice = np.tile(np.arange(10), 2)
    G = np.random.default_rng(0).normal(size=(20, 2))
    linear = np.outer(np.arange(-10, 10), np.arange(-10, 10)) / 30.0  # no variance at 0
    for singular in (K[np.ix_(twice, twice)], G @ G.T, linear):
        mode = find_mode(singular, y, noise)
        assert mode.converged
        assert_optimal(singular, y, noise, mode)
    nothing = find_mode(np.zeros((20, 20)), y, noise)
    assert nothing.converged
    np.testing.assert_array_equal(nothing.f, 0.0)


@pytest.mark.parametrize(
    ("noise", "f", "support"),
    [
        (epsilon_insensitive(10.0, 0.25), 0.75, 1),
        (epsilon_insensitive(0.1, 0.25), 0.2, 2),
        (epsilon_insensitive(10.0, 1.25), 0.0, 0),
        (soft_insensitive(10.0, 0.25, 0.2), 1 - 0.2 - 0.1 * 0.8 / 20.1, 1),
        (huber(1.0, 0.5), 2 / 3, 1),
        (absolute(10.0), 1.0, 1),
        (absolute(0.25), 0.5, 2),
        (gaussian(2.0), 0.8, 1),
        (pinball(2.0, 0.1), 0.4, 2),
        (hinge(10.0), 1.0, 1),
        (hinge(0.1), 0.2, 2),
    ],
    ids=repr,
)
def test_one_point(noise, f, support):
    """Prior variance 2, target 1: by hand."""
    mode = find_mode([[2.0]], [1.0], noise)
    np.testing.assert_allclose(mode.f, [f], rtol=1e-12)
    assert mode.support.tolist() == [support]


@pytest.mark.parametrize(("beta", "most"), [(0.0, 60), (0.1, 16), (0.3, 8), (1.0, 8)])
def test_a_handful_of_factorisations_is_enough(beta, most):
    """On the sinc set of chu2004; each factors the off-bound block alone."""
    x = np.linspace(-10, 10, 300)
    y = np.sinc(x / np.pi) + 0.2 * np.random.default_rng(0).normal(size=300)
    K = 0.1 * np.exp(-0.1 * (x[:, None] - x) ** 2) + 100.0
    assert find_mode(K, y, soft_insensitive(10.0, 0.1, beta)).n_iter <= most


def test_converges_over_the_whole_range():
    """A sample of the whole range of settings; the gap is recomputed from the dual coefficients."""
    for i in range(150):
        K, y, noise = from_the_box(i)
        mode = find_mode(K, y, noise)
        assert mode.converged, (i, noise, mode.duality_gap)
        assert duality_gap(K, y, noise, mode.dual_coef) <= 1e-8, (i, noise)


@pytest.mark.parametrize("beta", [0.0, 1e-6, 0.01, 0.3])
def test_a_large_bias_variance_does_not_cancel(beta):
    """K·dual_coef sums terms of 1e9 to a number of order 1; the gap is recomputed in extended precision."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 2))
        y = np.sin(2 * X[:, 0]) + 3.0 + 0.2 * rng.normal(size=60)
        K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)) + 1e6
        noise = soft_insensitive(10 ** rng.uniform(0, 3), 0.1, beta)
        mode = find_mode(K, y, noise)
        assert mode.converged, (seed, noise, mode.duality_gap)
        assert duality_gap(K, y, noise, mode.dual_coef) <= 1e-8, (seed, noise)

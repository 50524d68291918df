"""The mode against quadratic programming, scikit-learn, closed forms and its own optimality conditions."""

from __future__ import annotations

import cvxopt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, from_the_box, smooth
from sklearn.svm import SVC, SVR

from bsvr_pp.approximations import find_mode
from bsvr_pp.losses import epsilon_insensitive, gaussian, hinge, huber, soft_insensitive


def dual_by_cvxopt(K, y, C, epsilon, beta):
    """Dual coefficients of chu2004 (29), by a generic interior point method."""
    n = y.size
    P = np.block([[K, -K], [-K, K]]) + 2 * beta * epsilon / C * np.eye(2 * n)
    q = np.concatenate([(1 - beta) * epsilon - y, (1 - beta) * epsilon + y])
    G, h = np.vstack([np.eye(2 * n), -np.eye(2 * n)]), np.concatenate([np.full(2 * n, C), np.zeros(2 * n)])
    options = {"show_progress": False, "abstol": 1e-13, "reltol": 1e-13, "feastol": 1e-13, "maxiters": 200}
    found = cvxopt.solvers.qp(*(cvxopt.matrix(part) for part in (P, q, G, h)), options=options)
    alpha = np.array(found["x"]).ravel()
    a = alpha[:n] - alpha[n:]
    # The interior point method finds the active set; its free coefficients follow from the optimality conditions.
    free = (np.abs(a) > 1e-5 * C) & (np.abs(a) < (1 - 1e-5) * C)
    a = np.where(free, a, np.sign(a) * C * (np.abs(a) > 0.5 * C))
    side = (1 - beta) * epsilon * np.sign(a[free])
    system = K[np.ix_(free, free)] + 2 * beta * epsilon / C * np.eye(free.sum())
    a[free] = np.linalg.solve(system, (y - K @ np.where(free, 0.0, a))[free] - side)
    return a


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_a_generic_qp_solver(beta, seed):
    rng = np.random.default_rng(seed)
    n, C, epsilon = 40, 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-2, -0.5)
    X = rng.normal(size=(n, 1 + seed % 3))
    y = np.sin(X.sum(axis=1)) + 0.2 * rng.normal(size=n)
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1)) + 1.0 + (1e-3 if seed % 2 else 0.05) * np.eye(n)
    noise = soft_insensitive(C, epsilon, beta)
    mode, expected = find_mode(K, y, noise), dual_by_cvxopt(K, y, C, epsilon, beta)
    assert mode.converged
    assert mode.duality_gap <= 1e-8
    f = K @ expected
    objective = C * noise.loss(y - f).sum() + 0.5 * expected @ f
    assert mode.objective == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(mode.f, f, rtol=0, atol=1e-8 * np.abs(f).max())
    assert np.linalg.cond(K) < 1e6
    np.testing.assert_allclose(mode.dual_coef, expected, atol=1e-6 * C)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_scikit_learn_once_the_bias_is_free(seed):
    rng = np.random.default_rng(seed)
    n, C, epsilon = 60, 2.0, 0.1
    X = rng.uniform(-5, 5, (n, 1))
    y = np.sin(X[:, 0]) + 3 + 0.1 * rng.normal(size=n)
    K = np.exp(-0.5 * (X - X.T) ** 2)
    svr = SVR(kernel="precomputed", C=C, epsilon=epsilon, tol=1e-9, max_iter=10**7).fit(K, y)
    mode = find_mode(K + 1e6, y, epsilon_insensitive(C, epsilon))
    np.testing.assert_allclose(mode.f, svr.predict(K), atol=1e-4 * np.ptp(y))


def test_hinge_is_the_support_vector_classifier():
    K, y = smooth(60, 1, hinge(1.0))
    svc = SVC(kernel="precomputed", C=2.0, tol=1e-9, max_iter=10**7).fit(K, y)
    mode = find_mode(K + 1e6, y, hinge(2.0))
    np.testing.assert_allclose(mode.f, svc.decision_function(K), atol=1e-4)


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_dual_coefficients_are_subgradients_at_the_residuals(noise):
    K, y = smooth(40, 2, noise)
    mode = find_mode(K, y, noise)
    assert mode.converged
    np.testing.assert_allclose(mode.f, K @ mode.dual_coef, atol=1e-10)
    C, r = noise.parameters["C"], y * (y - mode.f) if noise.name == "hinge" else y - mode.f
    sign = y if noise.name == "hinge" else 1.0
    for step in (-1e-6, 1e-6):  # convexity: the loss lies above its tangent of slope a
        rise = C * (noise.loss(r + step) - noise.loss(r))
        assert (rise - sign * mode.dual_coef * step >= -1e-9).all()


@pytest.mark.parametrize("noise", LOSSES[:5], ids=repr)
def test_support_says_what_each_point_is(noise):
    K, y = smooth(40, 3)
    mode = find_mode(K, y, noise)
    C = noise.parameters["C"]
    size = np.abs(mode.dual_coef)
    np.testing.assert_array_equal(mode.support == 0, size < 1e-8 * C)
    np.testing.assert_array_equal(mode.support == 2, size > C * (1 - 1e-8))


def test_gaussian_noise_is_kernel_ridge():
    K, y = smooth(25, 4)
    expected = K @ np.linalg.solve(K + np.eye(25) / 20.0, y)
    mode = find_mode(K, y, gaussian(20.0))
    np.testing.assert_allclose(mode.f, expected, atol=1e-11)
    assert mode.n_iter == 1
    # chu2004 IV-A: beta = 1 and 2 epsilon/C = variance, with C too large for any bound.
    np.testing.assert_allclose(find_mode(K, y, huber(1e5, 1e5 / 40.0)).f, expected, atol=1e-9)


def test_prior_mean_and_vector_parameters():
    K, y = smooth(20, 5)
    mean = np.linspace(-1, 1, 20)
    noise = soft_insensitive(4.0, 0.1, 0.3)
    shifted, plain = find_mode(K, y, noise, mean=mean), find_mode(K, y - mean, noise)
    np.testing.assert_allclose(shifted.dual_coef, plain.dual_coef)
    np.testing.assert_allclose(shifted.f, plain.f + mean)
    each = find_mode(K, y, soft_insensitive(np.full(20, 4.0), np.full(20, 0.1), 0.3))
    np.testing.assert_allclose(each.dual_coef, find_mode(K, y, noise).dual_coef, atol=1e-9)
    bound = np.linspace(0.1, 5, 20)
    assert (np.abs(find_mode(K, y, soft_insensitive(bound, 0.01, 0.3)).dual_coef) <= bound).all()


@pytest.mark.parametrize("noise", LOSSES, ids=repr)
def test_singular_covariances(noise):
    K, y = smooth(20, 6, noise)
    twice = np.tile(np.arange(10), 2)
    assert find_mode(K[np.ix_(twice, twice)], y, noise).converged
    nothing = find_mode(np.zeros((20, 20)), y, noise)
    assert nothing.converged
    np.testing.assert_array_equal(nothing.f, 0.0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100))
def test_invariances(seed, scale):
    """Order of the points, sign of the targets, and units do not matter."""
    rng = np.random.default_rng(seed)
    K, y = smooth(15, seed)
    noise = soft_insensitive(5.0, 0.1, 0.2)
    a = find_mode(K, y, noise).dual_coef
    order = rng.permutation(15)
    np.testing.assert_allclose(find_mode(K[np.ix_(order, order)], y[order], noise).dual_coef, a[order], atol=1e-7)
    np.testing.assert_allclose(find_mode(K, -y, noise).dual_coef, -a, atol=1e-7)
    scaled = find_mode(scale**2 * K, scale * y, soft_insensitive(5.0 / scale, scale * 0.1, 0.2))
    np.testing.assert_allclose(scaled.dual_coef * scale, a, atol=1e-6)


def test_one_point():
    mode = find_mode([[2.0]], [1.0], epsilon_insensitive(10.0, 0.25))
    np.testing.assert_allclose(mode.f, [0.75])
    assert mode.support.tolist() == [1]


def test_converges_over_the_whole_range():
    gaps = [find_mode(*from_the_box(i)).duality_gap for i in range(150)]
    assert max(gaps) <= 1e-8

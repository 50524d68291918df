"""LS-SVR against its linear system and refits; its Bayesian twin against the paper's lemma and theorem."""

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, Matern

import bsvr_pp as bp


def data(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, 4 * np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) + 2.0


def system(machine, X, gamma):
    """Ψ of (6), built from scratch."""
    K = RBF(machine.lengthscale_)(X)
    n = len(X)
    return np.block([[np.zeros((1, 1)), np.ones((1, n))], [np.ones((n, 1)), K + np.eye(n) / gamma]])


def test_the_linear_system():
    X, y = data()
    machine = bp.LSSVR(gamma=7.0, lengthscale=1.2).fit(X, y)
    solution = np.linalg.solve(system(machine, X, 7.0), np.concatenate([[0.0], y]))
    np.testing.assert_allclose(machine.intercept_, solution[0], rtol=1e-10)
    np.testing.assert_allclose(machine.dual_coef_, solution[1:], atol=1e-10)
    assert machine.dual_coef_.sum() == pytest.approx(0.0, abs=1e-10)
    np.testing.assert_allclose(machine.dual_coef_, 7.0 * (y - machine.predict(X)), atol=1e-9)


def test_leave_one_out_is_a_refit():
    X, y = data(15)
    machine = bp.LSSVR(gamma=7.0, lengthscale=1.2).fit(X, y)
    for i in (0, 6, 14):
        rest = np.arange(15) != i
        refit = clone(machine).fit(X[rest], y[rest])
        assert machine.loo_residuals_[i] == pytest.approx(y[i] - refit.predict(X[i : i + 1])[0], rel=1e-9)
    again, often = clone(machine).fit(np.vstack([X, X[:1], X[:1]]), np.append(y, y[[0, 0]])), np.ones(15)
    often[0] = 2.0
    refit = clone(machine).fit(X, y, often)
    np.testing.assert_allclose(again.loo_residuals_[[0, 15]], y[0] - refit.predict(X[:1])[0], rtol=1e-9)


def test_the_offset_of_the_targets_changes_only_the_bias():
    X, y = data(20)
    for make in (bp.LSSVR, bp.BayesianLSSVR):
        one, other = (make(gamma=10.0, lengthscale=1.0).fit(X, y + offset) for offset in (0.0, 1e9))
        assert other.noise_variance_ == pytest.approx(one.noise_variance_, rel=1e-4)
        assert other.log_evidence_ == pytest.approx(one.log_evidence_, abs=1e-3)
        sd = [machine.predict(X, return_std=True)[1] for machine in (one, other)]
        np.testing.assert_allclose(sd[1], sd[0], rtol=1e-4)


def test_evidence_and_error_bars_are_those_of_a_gaussian_process_with_a_vague_bias():
    X, y = data(12)
    machine = bp.LSSVR(gamma=5.0, lengthscale=1.0).fit(X, y)
    scale, wide = machine.noise_variance_ * 5.0, 1e7
    S = scale * (RBF(1.0)(X) + np.eye(12) / 5.0) + wide
    # The density with a bias of variance v is the restricted one over √(2πv), up to O(1/v).
    exact = multivariate_normal.logpdf(y, cov=S) + 0.5 * np.log(2 * np.pi * wide)
    assert machine.log_evidence_ == pytest.approx(exact, abs=1e-4)
    new = np.array([[0.5, 0.5], [9.0, 9.0]])
    mean, sd = machine.predict(new, return_std=True)
    k = scale * RBF(1.0)(new, X) + wide
    np.testing.assert_allclose(mean, k @ np.linalg.solve(S, y), atol=1e-4)
    variance = scale + wide - np.einsum("ij,ji->i", k, np.linalg.solve(S, k.T)) + machine.noise_variance_
    np.testing.assert_allclose(sd**2, variance, rtol=1e-3)


@pytest.mark.parametrize("selection", ["evidence", "loo"])
def test_auto_finds_an_optimum(selection):
    X, y = data(40)
    machine = bp.LSSVR(selection=selection).fit(X, y)

    def value(gamma, lengthscale):
        found = bp.LSSVR(gamma=gamma, lengthscale=lengthscale).fit(X, y)
        return found.log_evidence_ if selection == "evidence" else -np.log(np.mean(found.loo_residuals_**2))

    best = value(machine.gamma_, machine.lengthscale_)
    for factor in (0.8, 1.25):
        assert value(machine.gamma_ * factor, machine.lengthscale_) < best
        assert value(machine.gamma_, machine.lengthscale_ * factor) < best
    X_new, y_new = data(200, seed=1)
    assert np.mean((machine.predict(X_new) - y_new) ** 2) < 0.35


def test_any_kernel():
    X, y = data()
    kernel = Matern(length_scale=1.5, nu=2.5)
    machine = bp.LSSVR(gamma=20.0, kernel=kernel).fit(X, y)
    np.testing.assert_allclose(machine.dual_coef_, 20.0 * (y - machine.predict(X)), atol=1e-8)
    assert bp.LSSVR(kernel=kernel).fit(X, y).score(X, y) > 0.95


def test_a_kernel_that_is_not_positive_semidefinite_is_refused_without_warnings(recwarn):
    X, y = data()
    with pytest.raises(ValueError, match="kernel must be positive semidefinite"):
        bp.LSSVR(kernel=lambda A, B: -100 * np.exp(A @ B.T)).fit(X, y)
    assert not recwarn.list


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 100.0])
def test_the_lemma(epsilon):
    """The gap of the weights to LS-SVR's, Mesquita et al. 2019, and the posterior of the definition."""
    X, y = data(10)
    y = y - y.mean()
    machine = bp.BayesianLSSVR(gamma=3.0, lengthscale=1.0, epsilon=epsilon).fit(X, y)
    psi, target = system(machine, X, 3.0), np.concatenate([[0.0], y])
    weights, gram = np.linalg.solve(psi, target), np.linalg.inv(psi.T @ psi)
    gap = epsilon / (1 + epsilon * gram[0, 0]) * gram[:, 0] * weights[0]
    np.testing.assert_allclose(weights - machine.mean_weights_, gap, atol=1e-10)
    omega, one = RBF(1.0)(X), np.ones((10, 1))
    prior = np.block([[np.array([[epsilon]]), one.T / 3], [one / 3, one @ one.T + 2 * omega / 3 + np.eye(10) / 9]])
    features = np.column_stack([one, omega])
    precision = prior + features.T @ features
    np.testing.assert_allclose(machine.covariance_ @ precision, machine.noise_variance_ * np.eye(11), atol=1e-8)
    mean = np.linalg.solve(precision, features.T @ y + np.concatenate([[0.0], y]) / 3)
    np.testing.assert_allclose(machine.mean_weights_, mean, atol=1e-8)
    assert machine.prior_is_proper_ == (np.linalg.eigvalsh(prior).min() > 0)


def test_deviations_of_nearly_linear_data_have_their_digits():
    """With a large γ the covariance of the weights has huge entries, which cancel (against 60 digits)."""
    X, rng = data(12)[0], np.random.default_rng(1)
    machine = bp.BayesianLSSVR(gamma=3e8, lengthscale=2e4).fit(X, X @ [1.0, 0.5] + rng.normal(size=12))
    new = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 0.0]])
    with mp.workdps(60):

        def features(points):
            kernel = [[mp.exp(-mp.mpf(np.sum((a - b) ** 2)) / (2 * mp.mpf(2e4) ** 2)) for b in X] for a in points]
            return mp.matrix([[1, *row] for row in kernel])

        psi = mp.matrix([[0, *[1] * 12], *features(X).tolist()])
        for i in range(12):
            psi[i + 1, i + 1] += 1 / mp.mpf(3e8)
        precision = psi.T * psi
        precision[0, 0] += mp.mpf(1e-6)
        phi = features(new)
        variance = phi * precision**-1 * phi.T
        right = [float(mp.sqrt(variance[i, i] * machine.noise_variance_)) for i in range(3)]
    np.testing.assert_allclose(machine.predict_f(new)[1], right, rtol=1e-4)


def test_the_band_far_from_the_data_is_that_of_the_bias():
    X, y = data(20)
    machine = bp.BayesianLSSVR(gamma=3.0, lengthscale=1.0).fit(X, y)
    mean, sd = machine.predict_f([[100.0, 100.0]])
    assert mean[0] == pytest.approx(machine.mean_weights_[0])
    assert sd[0] == pytest.approx(np.sqrt(machine.covariance_[0, 0]))
    _, of_y = machine.predict([[100.0, 100.0]], return_std=True)
    assert of_y[0] == pytest.approx(np.sqrt(machine.noise_variance_ + sd[0] ** 2))


def test_intervals_of_the_network_hold_new_targets_in_any_unit_around_any_zero():
    (X, y), (new, y_new) = data(100), data(400, seed=1)
    for unit, zero in (1e-3, 0.0), (1e4, 0.0), (1.0, 1e7):
        machine = bp.BayesianLSSVR().fit(X, zero + unit * y)
        low, high = machine.predict_distribution(new).interval(0.9)
        assert np.mean((low < zero + unit * y_new) & (zero + unit * y_new < high)) == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("machine", [bp.LSSVR(), bp.LSSVR(gamma=20.0, lengthscale=1.0), bp.BayesianLSSVR()])
def test_it_is_saved_and_read_back(machine, tmp_path):
    (X, y), weight = data(60), np.random.default_rng(1).integers(1, 3, 60).astype(float)
    machine = clone(machine).fit(X, y, sample_weight=weight)
    machine.save(tmp_path / "machine.nc")
    again = type(machine).load(tmp_path / "machine.nc")
    assert again.get_params() == machine.get_params()
    for one, other in zip(again.predict(X, return_std=True), machine.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_array_equal(again.dual_coef_, machine.dual_coef_)
    with pytest.raises(ValueError, match="result must be the result_ of a BayesianSVR, it carries no recipe of one"):
        bp.BayesianSVR.load(tmp_path / "machine.nc")


def test_a_machine_with_a_kernel_function_is_not_saved():
    X, y = data(20)
    machine = bp.LSSVR(kernel=lambda A, B: A @ B.T + 1.0).fit(X, y)
    with pytest.raises(ValueError, match="result has a kernel function"):
        bp.LSSVR.from_result(machine.result_)
    with pytest.raises(ValueError, match=r"x\.nc cannot have the kernel, a function: pickle the estimator instead"):
        machine.save("x.nc")


@pytest.mark.parametrize("machine", [bp.LSSVR(gamma=10.0, lengthscale=1.0), bp.BayesianLSSVR(10.0, 1.0)])
def test_rows_that_repeat_others_are_warned_of(machine):
    X, y = data()
    with pytest.warns(UserWarning, match="the sum .* different rows.*divide the weights by their mean"):
        machine.fit(X, y, sample_weight=np.full(len(y), 3.0))
    with pytest.warns(UserWarning, match="repeat others, targets included"):
        machine.fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))

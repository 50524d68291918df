"""Wrong rows are those of the protocol, and the robust processes agree with quadrature, brute force and differences."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import norm, t

import benchmarks.outliers as outliers
from benchmarks.robust_processes import RobustConjugateProcess, StudentProcess

POINT = np.log([1.2, 0.05, 0.8, 1.5])  # amplitude, variance of the noise and two lengthscales


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=30)
    y[3] += 5.0
    return X, y


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("kind", outliers.KINDS)
def test_wrong_rows(kind, share):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    X_wrong, y_wrong, wrong = outliers.corrupted(kind, share, X, y, rng)
    right = np.setdiff1d(np.arange(200), wrong)
    assert len(wrong) == len(set(wrong)) == round(200 * share)
    assert np.array_equal(X_wrong[right], X[right]) and np.array_equal(y_wrong[right], y[right])
    shift = (y_wrong - y)[wrong] / y.std()
    if kind == "focused":
        assert np.ptp(X_wrong[wrong], axis=0).max() < 0.3 and np.abs(X_wrong[wrong]).max() < 0.5
        assert np.ptp(y_wrong[wrong]) < 0.1 and y_wrong[wrong].max() < -2.0
    else:
        assert np.array_equal(X_wrong, X)
        assert np.abs(shift).min() >= 3.0 and np.abs(shift).max() <= 9.0
        assert len(set(np.sign(shift))) == (2 if kind == "uniform" else 1)


def test_the_synthetic_set_has_its_covariance():
    y = np.array([outliers.synthetic(np.random.default_rng(i))[1] for i in range(60)])
    assert y.std() == pytest.approx(np.sqrt(1.01), abs=0.05)
    step = 20 / 299
    assert np.mean((y[:, 15:] - y[:, :-15]) ** 2) == pytest.approx(2.02 - 2 * np.exp(-0.5 * (15 * step) ** 2), rel=0.1)


def test_gradients_match_differences(data):
    X, y = data
    objectives = {
        "RCGP": lambda point: RobustConjugateProcess().left_out(X, y, point),
        "t": lambda point: StudentProcess().bound(X, y, point, np.full(30, 2.5), 500)[:2],
    }
    for name, objective in objectives.items():
        by_difference = approx_fprime(POINT, lambda point, f=objective: f(point)[0], 1e-5)
        assert objective(POINT)[1] == pytest.approx(by_difference, rel=1e-3, abs=1e-3), name


def test_leave_one_out_is_that_without_the_row(data):
    X, y = data
    a, variance, lengthscales = 1.2, 0.05, np.array([0.8, 1.5])
    z, v = RobustConjugateProcess().targets(y, variance)

    def kernel(X, Y):
        return a * np.exp(-0.5 * (((X[:, None] - Y) / lengthscales) ** 2).sum(axis=2))

    total = 0.0
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        k = kernel(X[[i]], X[rest])[0]
        solve = np.linalg.solve(kernel(X[rest], X[rest]) + np.diag(v[rest]), np.column_stack([z[rest], k]))
        total += norm.logpdf(y[i], k @ solve[:, 0], np.sqrt(a - k @ solve[:, 1] + variance))
    assert RobustConjugateProcess().left_out(X, y, POINT)[0] == pytest.approx(total, rel=1e-5)


def test_the_loss_of_robust_conjugate_regression_is_weighted_score_matching():
    y, variance = np.array([-3.0, 0.2, 1.0, 7.0]), 0.3
    model = RobustConjugateProcess(0.25)
    c = np.quantile(np.abs(y), 0.75)
    z, v = model.targets(y, variance)

    def loss(f, y):
        def weighted_score(y):
            return 0.5 * variance / (1.0 + y**2 / c**2) * (f - y) / variance

        h = 1e-6
        weight2 = 0.5 * variance / (1.0 + y**2 / c**2)
        return weight2 * ((f - y) / variance) ** 2 + (weighted_score(y + h) - weighted_score(y - h)) / h

    f = np.array([[0.0], [1.0], [-2.0]])
    difference = loss(f, y) - 0.5 * (f - z) ** 2 / v  # constant in f
    assert np.ptp(difference, axis=0) == pytest.approx(0.0, abs=1e-6)


def test_the_bound_is_below_the_evidence_and_exact_for_normal_noise():
    X, grid = np.zeros((1, 2)), np.linspace(-12, 12, 20001)
    for y in (0.0, 1.0, 5.0):
        density = norm.pdf(grid, 0, np.sqrt(1.2)) * t.pdf(y - grid, 4, scale=np.sqrt(0.05))
        evidence = np.log(density.sum() * (grid[1] - grid[0]))
        bound = StudentProcess().bound(X, np.array([y]), POINT, np.array([2.5]), 500)[0]
        assert evidence - 1.5 < bound < evidence
    nearly_normal = StudentProcess(1e7).bound(X, np.array([1.0]), POINT, np.array([5e6]), 500)[0]
    assert nearly_normal == pytest.approx(norm.logpdf(1.0, 0, np.sqrt(1.25)), abs=1e-5)


def test_robust_peers_ignore_an_error_and_finished_parts_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(outliers, "PEERS", {name: outliers.PEERS[name] for name in ("GPR", "t-GP", "RCGP")})
    monkeypatch.setattr(outliers, "_warm_up", lambda: None)
    monkeypatch.setitem(outliers.PEERS, "bsvr_pp", lambda X, y, share: (lambda X: X[:, 0], np.arange(3)))
    file = tmp_path / "outliers.csv"
    outliers.main(None, ["synthetic"], None, [10], 1, file)
    first = file.read_text()
    errors = pd.read_csv(file).query("kind == 'uniform'").set_index("package")["error"]
    assert errors["t-GP"] < errors["RCGP"] < errors["GPR"]
    outliers.main(None, ["synthetic"], None, [10], 1, file)
    assert file.read_text() == first and len(first.splitlines()) == 1 + 3 * 4

"""The benchmarks: their processes, protocols and kernels, and the page of their results."""

import itertools

import numpy as np
import pandas as pd
import pytensor.tensor as pt
import pytest
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import benchmarks.coverage as coverage
import benchmarks.outliers as outliers
from benchmarks import page
from benchmarks.finished import finished
from benchmarks.gaps import Integrated
from benchmarks.tables import Process


def noise(process):
    """Noise of many rows of inputs."""
    X = np.random.default_rng(0).uniform(size=(100_000, 3))
    return X, coverage.PROCESSES[process](X, np.zeros(len(X)), np.random.default_rng(1))


@pytest.mark.parametrize("process", ["normal", "Student-t", "skewed"])
def test_noise_has_mean_zero_and_its_deviation(process):
    y = noise(process)[1]
    assert y.mean() == pytest.approx(0.0, abs=0.01)
    assert y.std() == pytest.approx(coverage.DEVIATION, rel=0.1)


def test_other_noise():
    X, y = noise("heteroscedastic")
    first = X[:, 0] < 0.1
    assert y[first].std() == pytest.approx(0.075, rel=0.1) and y[X[:, 0] > 0.9].std() == pytest.approx(0.525, rel=0.1)
    assert set(noise("rounded")[1] % 0.5) == {0.0}
    assert not noise("noise-free")[1].any()


def test_functions_are_of_the_process(monkeypatch):
    monkeypatch.setattr(coverage, "TEST_ROWS", 3)
    values = np.array([coverage.drawn("noise-free", 2, i)[1] for i in range(400)])
    assert values.shape == (400, 5)
    assert values[:, 0].mean() == pytest.approx(0.0, abs=0.15) and values[:, 0].std() == pytest.approx(1.0, abs=0.15)
    X, y = coverage.drawn("noise-free", 2, 0)
    assert np.array_equal(X, coverage.drawn("noise-free", 2, 0)[0]) and np.ptp(y) > 0


@pytest.mark.slow
def test_a_known_distribution_has_its_coverage(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "METHODS", {"GPR": lambda X, y: lambda X: norm(np.zeros(len(X)), 1.0)})
    monkeypatch.setattr(
        coverage, "PROCESSES", dict.fromkeys(coverage.PROCESSES, lambda X, f, rng: rng.normal(size=f.size))
    )
    monkeypatch.setattr(coverage, "_warm_up", lambda: None)
    file, figure = tmp_path / "coverage.csv", tmp_path / "coverage.png"
    coverage.main(4, 2, None, file, figure)
    rows = pd.read_csv(file)
    assert len(rows) == 6 * (4 + 4 + 2) and figure.stat().st_size > 0
    assert rows[["cover 50", "cover 90", "cover 99"]].mean().tolist() == pytest.approx([0.5, 0.9, 0.99], abs=0.01)
    assert rows["CRPS"].mean() == pytest.approx(1 / np.sqrt(np.pi), abs=0.02)  # E|y - y'|/2 of a normal distribution
    assert rows["log density"].mean() == pytest.approx(-0.5 * np.log(2 * np.pi * np.e), abs=0.02)


def test_missing_inputs_are_integrated_out():
    X = np.array([[0.3, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], [-1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    inverse, spread = np.array([0.7, 1.2]), np.array([1.0, 0.6])
    K = Integrated(2, inverse, 1.3, spread, np.zeros(2), np.ones(2)).full(pt.as_tensor(X)).eval()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def factor(i, j, k):
        values = [
            (np.sqrt(spread[k]) * nodes, weights) if X[row, 2 + k] else (X[[row], k], np.ones(1)) for row in (i, j)
        ]
        (x, wx), (z, wz) = values
        return wx @ np.exp(-0.5 * inverse[k] ** 2 * (x[:, None] - z) ** 2) @ wz

    for i, j in itertools.product(range(4), repeat=2):
        expected = 1.3 if i == j else 1.3 * factor(i, j, 0) * factor(i, j, 1)
        np.testing.assert_allclose(K[i, j], expected, rtol=1e-6)


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


@pytest.mark.slow
def test_a_robust_peer_ignores_an_error_and_finished_parts_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(outliers, "PEERS", {name: outliers.PEERS[name] for name in ("GPR", "Huber")})
    monkeypatch.setattr(outliers, "_warm_up", lambda: None)
    monkeypatch.setitem(outliers.PEERS, "bsvr_pp", lambda X, y: (lambda X: X[:, 0], np.arange(3)))
    file = tmp_path / "outliers.csv"
    outliers.main(["synthetic"], None, [10], 1, file)
    first = file.read_text()
    errors = pd.read_csv(file).query("kind == 'uniform'").set_index("package")["error"]
    assert errors["Huber"] < errors["GPR"]
    outliers.main(["synthetic"], None, [10], 1, file)
    assert file.read_text() == first and len(first.splitlines()) == 1 + 3 * 3


@pytest.mark.slow
def test_the_page_is_made_from_the_files_of_results():
    text = page.PAGE.read_text()
    assert page.filled(text) == text


@pytest.mark.parametrize("name", page.PARTS)
def test_each_table_stands_on_the_page(name):
    assert f"<!-- {name} -->" in page.PAGE.read_text()


def test_finished_parts_are_kept(tmp_path):
    calls = []

    def measure(name, number):
        calls.append((name, number))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"score": 10 * number}

    parts = [{"name": name, "number": number} for number in (1, 2) for name in "ab"]
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path / "found.csv", parts, measure)
    rows = finished(tmp_path / "found.csv", parts, measure)
    assert rows["score"].tolist() == [10, 10, 20, 20]
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("a", 2), ("b", 2)]
    assert {"commit", "versions"} <= set(rows.columns)


def test_the_gradient_by_products_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, kernel = rng.normal(size=(40, 3)), ConstantKernel(2.0) * RBF([0.7, 1.5, 4.0]) + WhiteKernel(0.3)
    options = {"kernel": kernel, "optimizer": None, "normalize_y": True}
    models = [model(**options).fit(X, np.sin(X[:, 0])) for model in (Process, GaussianProcessRegressor)]
    found, expected = (model.log_marginal_likelihood(kernel.theta, eval_gradient=True) for model in models)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8)

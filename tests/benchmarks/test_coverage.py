"""The simulated processes are what they are called, and coverage is that of the quantiles."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import benchmarks.coverage as coverage


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

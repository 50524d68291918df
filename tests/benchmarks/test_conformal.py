"""The worst slab is found where coverage is planted to fail, and methods of the benchmark are conformal."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mapie", reason="MAPIE is not installed")

import bsvr_pp as bp
from benchmarks.conformal import FILE, intervals, worst_slab


@pytest.mark.slow
def test_the_worst_slab_is_where_coverage_fails():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    found = worst_slab(X, (X[:, 0] < 0.5).astype(float), rng)
    assert found < 0.25
    assert worst_slab(X, np.ones(200), rng) == 1.0
    by_chance = [worst_slab(X, (rng.random(200) < 0.9).astype(float), rng) for _ in range(10)]
    assert 0.85 < np.mean(by_chance) < 0.95  # measured on other rows than those that chose it


@pytest.mark.slow
def test_intervals_of_all_methods_hold_new_targets(monkeypatch):
    def machine(noise="soft_insensitive", quantile=0.5):
        return bp.BayesianSVR(noise, quantile=quantile, kernel="rbf", restarts=1, random_state=0)

    monkeypatch.setattr("benchmarks.conformal.machine", machine)
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, (160, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=160)
    found = dict(intervals(machine().fit(X[:80], y[:80]), X[:80], y[:80], X[80:]))
    assert len(found) == 7
    for name, (low, high) in {name: ends.T for name, ends in found.items()}.items():
        assert np.mean((low <= y[80:]) & (y[80:] <= high)) > 0.8, name
        assert np.mean(high - low) < 1.0, name


def test_the_page_has_the_figures_of_the_file():
    of_method = pd.read_csv(FILE).drop(columns="set").groupby("method")
    mean, lowest = of_method.mean(), of_method.min()
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "conformal.md").read_text()
    shown = re.findall(r"^\| ([\w, ]+) \| (0\.\d.*) \|$", page, flags=re.MULTILINE)
    assert len(shown) == len(mean) == 7
    for method, figures in shown:
        values, least = zip(*re.findall(r"([\d.]+)(?: \(([\d.]+)\))?", figures), strict=True)
        assert list(values) == [f"{each:.2f}" for each in mean.loc[method]]
        assert list(least[:5]) == [f"{each:.2f}" for each in lowest.loc[method][:5]]

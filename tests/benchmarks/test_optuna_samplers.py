"""The comparison of samplers: minima are where the literature has them, finished runs are kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

optuna = pytest.importorskip("optuna")

import benchmarks.optuna_samplers as compared  # noqa: E402

MINIMA = {
    "Branin 2": [np.pi, 2.275],
    "Hartmann 6": [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
    "Ackley 5": [0.0] * 5,
    "Levy 4": [1.0] * 4,
    "Rosenbrock 4": [1.0] * 4,
    "Griewank 5": [0.0] * 5,
}


@pytest.mark.parametrize("name", compared.FUNCTIONS)
def test_the_minimum_of_each_function(name):
    f = compared.FUNCTIONS[name]
    assert f.value(np.array(MINIMA[name])) == pytest.approx(f.minimum, abs=1e-5)
    cube = np.random.default_rng(0).random((200, len(f.ends)))
    values = [f.value(x) for x in f.ends[:, 0] + cube * np.ptp(f.ends, axis=1)]
    assert min(values) > f.minimum and f.range() > 0


def test_a_tenth_of_the_values_is_wrong_by_several_ranges():
    wrong = np.concatenate([compared.wrong_by("corrupted", seed) for seed in range(100)])
    assert np.mean(wrong != 0) == pytest.approx(0.1, abs=0.02)
    assert np.mean(wrong < 0) == pytest.approx(0.05, abs=0.01)
    size = np.abs(wrong[wrong != 0])
    assert size.min() >= compared.LEAST and size.max() <= compared.MOST
    assert not compared.wrong_by("exact", 0).any()


def test_finished_runs_are_kept(tmp_path, monkeypatch):
    def random(seed):
        return optuna.samplers.RandomSampler(seed)

    monkeypatch.setattr(compared, "FUNCTIONS", {"Branin 2": compared.FUNCTIONS["Branin 2"]})
    monkeypatch.setattr(compared, "SAMPLERS", {name: random for name in ("GPSampler", "TPESampler")})
    file, figure = tmp_path / "runs.csv", tmp_path / "curves.png"
    compared.main(1, file, figure)
    first = file.read_text()
    assert figure.stat().st_size > 0 and len(first.splitlines()) == 1 + 2 * 2 * 5
    compared.main(2, file, figure)
    assert file.read_text().startswith(first) and len(file.read_text().splitlines()) == 1 + 2 * 2 * 2 * 5
    regret = pd.read_csv(file)
    assert (regret["recommended"] >= regret["evaluated"]).all()
    exact = regret[regret["values"] == "exact"]
    assert (exact["recommended"] == exact["evaluated"]).all()

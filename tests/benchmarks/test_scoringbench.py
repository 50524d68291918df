"""The model for ScoringBench, on a stand-in of its interface."""

import importlib
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

WRAPPER = Path(__file__).parents[2] / "benchmarks" / "scoringbench" / "bsvr_pp_wrapper.py"
STAND_IN = """
import numpy as np

class DistributionPrediction:
    @classmethod
    def from_multi_quantile(cls, q, alphas, mean=None, *, train_range):
        self = cls()
        self.q, self.alphas, self.mean, self.train_range = q, alphas, mean, train_range
        return self

class ProbabilisticWrapper:
    _y_train_range = None

    def _set_train_range(self, y):
        finite = np.asarray(y, dtype=float)[np.isfinite(np.asarray(y, dtype=float))]
        self._y_train_range = (finite.min(), finite.max())
"""


@pytest.fixture
def wrapper(tmp_path, monkeypatch):
    package = tmp_path / "wrappers_of_scoringbench"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text(STAND_IN)
    shutil.copy(WRAPPER, package)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("wrappers_of_scoringbench.bsvr_pp_wrapper").BayesianSVRWrapper


@pytest.mark.slow
def test_the_model_has_the_quantiles_of_its_predictive_distribution(wrapper):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"at": rng.uniform(-2, 2, 40), "kind": rng.choice(["low", "high"], 40)})
    y = np.sin(2 * X["at"]) + (X["kind"] == "high") + 0.1 * rng.normal(size=40)
    y[3], X.loc[5, "at"] = np.nan, np.nan
    model = wrapper(restarts=1).fit(X[:30], y[:30])
    found = model.predict_distribution(X[30:])
    expected = model.model_.predict_distribution(X[30:])
    assert found.q.shape == (10, 200) and (np.diff(found.q, axis=1) > 0).all()
    assert np.allclose(expected.cdf(found.q.T), np.asarray(found.alphas)[:, None])
    assert np.allclose(found.mean, model.predict(X[30:]))
    assert found.train_range == (np.nanmin(y[:30]), np.nanmax(y[:30]))
    assert np.abs(found.mean - y[30:]).mean() < 0.5 * np.std(y[30:])

"""The study of class probabilities: its splits and its table, on data that need no files."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # experiments of the papers

FILE = Path(__file__).parents[2] / "models" / "svm_probabilities.py"
SPEC = importlib.util.spec_from_file_location("svm_probabilities_study", FILE)
STUDY = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(STUDY)


def test_splits_are_of_the_stated_size_and_differ():
    X, y, X_test, y_test = STUDY.splits("moons", 0)
    assert X.shape == (STUDY.TRAINING["moons"], 2) and len(X_test) == len(y_test) == 500
    assert not np.array_equal(X, STUDY.splits("moons", 1)[0]) and set(y) == {0, 1}


def test_the_grid_is_searched_once_and_its_best_machine_calibrated(monkeypatch):
    monkeypatch.setattr(STUDY, "GRID", {"svc__C": [1e-3, 10.0]})
    X, y, X_test, y_test = STUDY.splits("moons", 0)
    machine = STUDY.CalibratedGrid().fit(X, y)
    assert machine.estimator.named_steps["svc"].C == 10.0 and machine.score(X_test, y_test) > 0.8


def test_losses_are_compared_split_by_split():
    def row(label, loss):
        return {"classifier": label, "log loss": loss, "error": 0.1, "seconds": 1.0}

    rows = [row(k, split + 0.1 * i) for split in (0.2, 0.7) for i, k in enumerate(STUDY.COMPARED)]
    frame = STUDY.split_table("moons", rows).frame
    assert np.allclose(frame["more log loss"], 0.1 * np.arange(len(STUDY.COMPARED)))
    assert np.allclose(frame["its error"], 0) and np.isclose(frame.loc["BayesianSVC", "log loss"], 0.45)

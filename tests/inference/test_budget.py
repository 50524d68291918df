"""What does not fit into memory is refused before a fit starts."""

import time
import warnings

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.inference import budget
from bsvr_pp.inference.budget import available_memory, check_budget
from tests.helpers import process_model, refuse_command, soft

N = 20_000


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 1))
    return process_model(soft, X, C=lambda: pm.LogNormal("C", 1, 1.5), observed=np.sin(X[:, 0])), X


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(budget, "available_memory", lambda: 8e9)


@pytest.mark.parametrize("method", [bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS(bp.MeanField()), bp.NUTS()])
def test_what_cannot_fit_is_refused_at_once(large, small_machine, method):
    model, _ = large
    began = time.perf_counter()
    with pytest.raises(MemoryError, match=r"at 20000 rows needs about \d+\.\d GB of memory, and 8.0 GB are free"):
        bp.fit(method, model, progressbar=False)
    assert time.perf_counter() - began < 10


@pytest.mark.slow
def test_estimators_and_commands_refuse_too(large, small_machine, tmp_path):
    _, X = large
    with pytest.raises(MemoryError, match="20000 rows"):
        bp.BayesianSVR(blocks=None).fit(X, np.sin(X[:, 0]))
    with pytest.raises(MemoryError, match=r"BayesianSVC at 20000 rows .* together have no blocks"):
        bp.BayesianSVC(evidence="conditional").fit(X, X[:, 0] > 0)
    with pytest.raises(MemoryError, match=r"BayesianSVC at 20000 rows .*: blocks='auto' fits them in blocks"):
        bp.BayesianSVC(blocks=None).fit(X, X[:, 0] > 0)
    with pytest.raises(MemoryError, match=r"LSSVR at 20000 rows .*: BayesianSVR fits"):
        bp.LSSVR().fit(X, np.sin(X[:, 0]))
    data = tmp_path / "data.csv"
    np.savetxt(data, np.column_stack([X, np.sin(X)]), delimiter=",", header="x,y", comments="", fmt="%.6f")
    said = refuse_command("compare", data, "--out", tmp_path / "out")
    assert "no method was run" in said and "at 16000 rows needs about" in said


def test_the_memory_of_a_fit_grows_with_blocks_and_chains(monkeypatch):
    """Laplace at 8192 rows took 3.1 GiB."""
    monkeypatch.setattr(budget, "cpu_count", lambda: 4)
    monkeypatch.setattr(budget, "available_memory", lambda: 4e9)
    check_budget(bp.Laplace(), 8192)
    check_budget(bp.NUTS(bp.MeanField(), chains=1), 8192)
    check_budget(bp.NUTS(bp.MeanField(), chains=2), 8192, blocks=8)
    check_budget(bp.NUTS(bp.MeanField(), chains=2), 8192, rank=500)
    for method, rows in ((bp.Laplace(), 10_000), (bp.NUTS(bp.MeanField(), chains=2), 8192)):
        with pytest.raises(MemoryError, match=r"GB are free: cut the rows into blocks"):
            check_budget(method, rows)


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    whole = available_memory()
    assert whole > 0
    (tmp_path / "max").write_text("3000000000\n")
    (tmp_path / "current").write_text("1000000000\n")
    monkeypatch.setattr(budget, "_control_groups", lambda: [(tmp_path / "max", tmp_path / "current")])
    assert available_memory() == pytest.approx(min(2e9, whole), rel=0.2)
    (tmp_path / "max").write_text("max\n")
    assert available_memory() == pytest.approx(whole, rel=0.3)


def test_numbers_of_32_bits_are_taken_without_a_warning():
    X = np.linspace(-3, 3, 12, dtype=np.float32)[:, None]
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))

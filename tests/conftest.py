"""Settings of the test run."""

import gc
import os
import sys
import warnings
from pathlib import Path

import matplotlib
import pytest
from filelock import FileLock

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.model import operation

matplotlib.use("Agg")
# Graphs are many small objects in cycles: a few large collections take a third of the time of many small ones.
gc.set_threshold(4_000_000, 10, 10)
# Shared problems of the tests of approximations.
sys.path.insert(0, str(Path(__file__).parent / "approximations"))

# Files that take longest: they go first, so that two processes end at about the same time. Results of all methods are
# made for the first file that needs them, while the other process has another of these.
_LONG = (
    "test_assessment.py",
    "test_conventions.py",
    "test_affine.py",
    "test_bad_input.py",
    "test_svr.py",
    "test_data_frames.py",
    "test_svc.py",
    "test_noise_scales.py",
    "test_weighted_rows.py",
    "test_equal_targets.py",
    "test_distributions.py",
    "test_warping.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    """Mark the slow ones of the cases of a test, and put the long files first, each in its order."""
    for item in items:
        for mark in item.iter_markers("slow_cases"):
            if item.callspec.id in mark.args:
                item.add_marker("slow")
    order = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_sessionfinish():
    """Leave all objects to the end of the process: pytest collects garbage five times, which takes seconds."""
    gc.freeze()


@pytest.fixture
def exactly(monkeypatch):
    """Searches whose evaluations end at the mismatch of a solve, for models that have not been searched before."""
    monkeypatch.setattr(operation, "_SEARCH_MISMATCH", 1e-8)


@pytest.fixture(scope="session")
def sinc_model():
    """A small sinc model with priors on lengthscale, C and epsilon, and its data."""
    data = sinc(24, random_seed=3)
    return bp.default_model(data.X, data.y, kernel="rbf"), data


@pytest.fixture(scope="session")
def sinc_results(sinc_model, tmp_path_factory):
    """Results of all methods on the small sinc model, which the processes of a test run share."""
    model, _ = sinc_model
    methods = (bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS(draws=150, tune=250, chains=2))
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    files = {method.name: folder / f"sinc {method.name}.nc" for method in methods}
    with FileLock(folder / "sinc.lock"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in methods:
            if not files[method.name].exists():
                bp.save(bp.fit(method, model, random_seed=1, progressbar=False), files[method.name])
    return {name: bp.load(file) for name, file in files.items()}

"""Settings of the test run; what takes long to import is imported where it is used, not before processes start."""

import gc
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

os.environ["MPLBACKEND"] = "Agg"
# Graphs are many small objects in cycles: a few large collections take a third of the time of many small ones.
gc.set_threshold(4_000_000, 10, 10)
# Shared problems of the tests of approximations.
sys.path.insert(0, str(Path(__file__).parent / "approximations"))

# Files that take longest: they go first, so that two processes end at about the same time. While the first process
# compiles solvers for its first file, the second compiles kernels and then reads tables: nothing is compiled twice.
_LONG = (
    *("test_conventions.py", "test_cov.py", "test_levels.py", "test_readers.py", "test_columns.py", "test_files.py"),
    *("test_noise.py", "test_pieces.py", "test_elementwise.py", "test_interval_masses.py", "test_known_labels.py"),
    *("test_distributions.py", "test_parquet.py"),
    *("test_options_by_size.py", "test_affine.py", "test_bad_input.py"),
    *("test_svr.py", "test_data_frames.py", "test_svc.py", "test_noise_scales.py"),
    *("test_weighted_rows.py", "test_equal_targets.py", "test_warping.py"),
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config, items):
    """Mark the slow ones of the cases of a test, and put the long files first, each in its order."""
    named = set()
    for item in items:
        if item.name.endswith((".calibrate.calibrate", ".integrated_evidence")):  # examples that compile a sampler
            item.add_marker("slow")
        for mark in item.iter_markers("slow_cases"):
            named |= {(item.path.name, item.originalname, case) for case in mark.args}
            if item.callspec.id in mark.args:
                item.add_marker("slow")
    unknown = named - {
        (item.path.name, item.originalname, item.callspec.id) for item in items if hasattr(item, "callspec")
    }
    if unknown and not any("[" in each for each in config.args):  # where single cases are asked for, others are missing
        raise pytest.UsageError(f"slow_cases has ids that no case has: {sorted(unknown)}")
    order = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_sessionfinish():
    """Leave all objects to the end of the process: pytest collects garbage five times, which takes seconds."""
    gc.freeze()


@pytest.fixture
def exactly(monkeypatch):
    """Searches whose evaluations end at the mismatch of a solve, for models that have not been searched before."""
    monkeypatch.setattr("bsvr_pp.model.operation._SEARCH_MISMATCH", 1e-8)


@pytest.fixture
def quickly_compiled():
    """Graphs are compiled quickly, and run slowly."""
    import pytensor

    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture
def closed():
    """Pictures are closed at the end."""
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def sinc_model():
    """A small sinc model with priors on lengthscale, C and epsilon, and its data."""
    import bsvr_pp as bp
    from bsvr_pp.datasets import sinc

    data = sinc(24, random_seed=3)
    return bp.default_model(data.X, data.y, kernel="rbf"), data


@pytest.fixture(scope="session")
def sinc_results(sinc_model):
    """Results of all methods on the small sinc model.

    Draws of a mixture over its hyperparameters stand for those of NUTS, whose code takes a minute to compile.
    """
    import xarray as xr

    import bsvr_pp as bp

    model, _ = sinc_model

    def sample(*given):
        drawn = bp.fit(bp.Integrated(), model, random_seed=1, progressbar=False, draws=300)["posterior"].to_dataset()
        order = np.random.default_rng(0).permutation(300).reshape(2, 150)  # without it those of a point are together
        chains = [drawn.isel(chain=0, draw=rows).drop_vars(["chain", "draw"]) for rows in order]
        diverging = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((2, 150), dtype=bool))})
        return xr.DataTree.from_dict({"posterior": xr.concat(chains, "chain"), "sample_stats": diverging})

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
        patch.setattr("bsvr_pp.inference.sampling.nuts._sample", sample)
        methods = (bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS(draws=150, chains=2))
        return {each.name: bp.fit(each, model, random_seed=1, progressbar=False) for each in methods}

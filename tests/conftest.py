"""Settings of the test run."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import matplotlib
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

matplotlib.use("Agg")
# Shared problems of the tests of approximations.
sys.path.insert(0, str(Path(__file__).parent / "approximations"))


@pytest.fixture(scope="session")
def sinc_model():
    """A small sinc model with priors on lengthscale, C and epsilon, and its data."""
    data = sinc(24, random_seed=3)
    return bp.default_model(data.X, data.y, kernel="rbf"), data


@pytest.fixture(scope="session")
def sinc_results(sinc_model):
    """Results of all methods on the small sinc model."""
    model, _ = sinc_model
    methods = (bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS(draws=150, tune=250, chains=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {m.name: bp.fit(m, model, random_seed=1, progressbar=False) for m in methods}

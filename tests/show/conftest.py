"""The comparison that the tests of the table and of the page share."""

import numpy as np
import pytest

import bsvr_pp as bp


@pytest.fixture(scope="session")
def table(sinc_model, sinc_results):
    """All methods on the small sinc model, with test data."""
    X = np.linspace(-9, 9, 40)[:, None]
    test = {"X_test": X, "y_test": np.sinc(X[:, 0] / np.pi)}
    return bp.compare(sinc_results, reference="NUTS", **test, model=sinc_model[0], integrated=False)

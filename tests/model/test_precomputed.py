"""The kernel of a matrix in PyMC: it is that of the inputs from which the matrix was made."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.model.matrices import checked_matrix
from tests.helpers import process_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
NEW = RNG.normal(size=(7, 2))
Y = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=40)
ALL = np.vstack([X, NEW])
K = np.exp(-0.5 * ((ALL[:, None] - ALL) ** 2).sum(axis=2))
NUMBERS = np.arange(len(ALL))[:, None]


def model_of(kernel, inputs):
    of_noise = {"C": lambda: pm.LogNormal("C", 1.0, 1.0), "epsilon": lambda: pm.LogNormal("epsilon", -2.0, 1.0)}
    both = {"kernel": lambda: pm.HalfNormal("amplitude", 2.0) ** 2 * kernel() + pm.gp.cov.Constant(1.0)}
    return process_model(bp.EpsilonInsensitive, inputs, **both, **of_noise, prior={"jitter": 1e-10}, observed=Y)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("as_data", [False, True])
def test_a_matrix_is_the_kernel_from_which_it_was_made(as_data):
    at = {"amplitude": 1.3, "C": 4.0, "epsilon": 0.1}
    found = []
    for kernel, inputs, new in (
        (lambda: bp.cov.Precomputed(pm.Data("K", K) if as_data else K), NUMBERS[:40], NUMBERS[40:]),
        (lambda: pm.gp.cov.ExpQuad(2, ls=1.0), X, NEW),
    ):
        model = model_of(kernel, inputs)
        result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
        predicted = bp.predict(result, new, model=model)
        found.append((result.attrs["log_evidence"], predicted["y_mean"].values, predicted["y_variance"].values))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.slow
def test_its_hyperparameters_are_found_and_rows_that_it_has_not_are_refused():
    model = model_of(lambda: bp.cov.Precomputed(K), NUMBERS[:40])
    result = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)
    seen = bp.predict(result, NUMBERS[40:], model=model)
    assert np.abs(seen["y_mean"] - np.sin(2 * NEW[:, 0])).max() < 0.7
    for new, message in (
        ([[47]], "groups of new rows must be numbers from 0 to 46, got 47"),
        ([[0.5]], "numbers of"),
        ([[-1]], "numbers of"),
    ):
        with pytest.raises(ValueError, match=message):
            bp.predict(result, new, model=model)


def test_rounding_of_a_matrix_is_removed_and_more_is_refused():
    low = X @ X.T
    noisy = low + 1e-10 * np.diag(RNG.normal(size=40))
    assert np.linalg.eigvalsh(noisy)[0] < -1e-12
    assert np.linalg.eigvalsh(checked_matrix("K", noisy))[0] > -1e-13
    checked_matrix("K", low.astype(np.float32))  # whose rounding errors are larger
    for bad in (low - 1e-4 * np.eye(40), low + 1e-4 * (NUMBERS[:40] > 3)):
        with pytest.raises(ValueError, match=r"K must (have no negative eigenvalue, got -0\.0001|be symmetric)"):
            checked_matrix("K", bad)

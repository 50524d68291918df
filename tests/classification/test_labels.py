"""Models of labels through the front door: what is refused, and what agrees with the support vector machine."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import find_mode
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.losses import hinge
from tests.helpers import process_model

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-2, 2, 20))[:, None]
Y = np.where(np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(20) > 0, 1, -1)
NEW = np.array([[-2.5], [-0.7], [0.0], [0.8]])
POINT = {"C": 2.0, "lengthscale": 0.7}


@pytest.fixture(scope="module")
def model():
    free = {"ls": lambda: pm.LogNormal("lengthscale", 0, 1), "C": lambda: pm.LogNormal("C", 0, 1)}
    return process_model(bp.SVMLabel, X, factor=2.0, **free, observed=Y)


def test_free_hyperparameters_are_refused_unless_the_naive_evidence_is_asked_for(model):
    for method in (bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS()):
        with pytest.raises(ValueError, match="lengthscale would be chosen by the naive evidence of y"):
            bp.fit(method, model, hyperparameters={"C": 2.0}, progressbar=False)
    result = bp.fit(bp.MeanField(), model, evidence="naive", restarts=1, random_seed=1, progressbar=False)
    assert result.attrs["converged"] == 1


def test_the_map_is_the_support_vector_machine(model):
    result = bp.fit(bp.MAP(), model, hyperparameters=POINT, progressbar=False)
    K = 2 * np.exp(-0.5 * ((X - X.T) / 0.7) ** 2) + 1e-6 * np.eye(20)
    mode = find_mode(K, Y.astype(float), hinge(C=2.0))
    assert np.allclose(result["posterior"]["f"].values[0, 0], mode.f, atol=1e-7)
    prediction = bp.predict(result, NEW, model=model, y_new=[1, -1, 1, 1])
    at_mode = label_probability(2 * np.exp(-0.5 * ((NEW - X.T) / 0.7) ** 2) @ mode.dual_coef, 2.0)
    assert np.allclose(prediction["y_probability"], at_mode, atol=1e-7)
    assert np.allclose(prediction["y_log_density"], np.log(np.where([1, 0, 1, 1], at_mode, 1 - at_mode)), atol=1e-6)
    assert set(np.unique(result["posterior_predictive"]["y"])) <= {-1.0, 1.0}
    spread = bp.fit(bp.Laplace(), model, hyperparameters=POINT, progressbar=False)
    f = spread["posterior"]["f"].values[0, 0]
    assert np.allclose(spread["log_likelihood"]["y"].values[0, 0], hinge(C=2.0).log_density(1 - Y * f))
    with pytest.raises(ValueError, match="y_new must hold the labels"):
        bp.predict(result, NEW, model=model, y_new=[1, 0, 1, 1])

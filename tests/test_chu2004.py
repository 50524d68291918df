"""Chu, Keerthi & Ong 2004: Table I at n = 1000 and the robot arm, with the paper's settings."""

import chu2004_robot_arm
import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import data_folder
from bsvr_pp.losses import soft_insensitive


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 7])
def test_table_1_at_1000_points(seed):
    """Noise variance, kernel width and test error; flat priors on the logs, signal variance that of the targets.

    The test error beyond the noise is 2.2e-4 in print. It is chance to a large part: near the true hyperparameters
    it is 2.8e-4 ± 1.6e-4 over twenty draws of the data (0 to 6.6e-4). The draws here are ordinary ones (2.6e-4 and
    1.7e-4), and the estimated hyperparameters may cost little beside the true ones.
    """
    rng = np.random.default_rng(seed)
    noise = soft_insensitive(10.0, 0.1, 0.3)
    X, X_test = rng.uniform(-10, 10, (1000, 1)), rng.uniform(-10, 10, (3000, 1))
    residual, test_residual = noise.sample(1000, rng), noise.sample(3000, rng)
    y, y_test = np.sinc(X[:, 0] / np.pi) + residual, np.sinc(X_test[:, 0] / np.pi) + test_residual
    centre, width = X.mean(), X.std()
    with pm.Model() as model:
        lengthscale, C, epsilon, bias = (pm.HalfFlat(name) for name in ("lengthscale", "C", "epsilon", "bias"))
        kernel = float(np.var(y)) * pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(bias)
        f = bp.GP(cov_func=kernel).prior("f", X=(X - centre) / width)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    result = bp.fit(bp.Laplace(), model, objective="evidence", restarts=3, random_seed=0, progressbar=False)
    found = result["posterior"].to_dataset().isel(chain=0, draw=0)
    estimated = soft_insensitive(float(found["C"]), float(found["epsilon"]), 0.3).variance
    assert estimated == pytest.approx(np.mean(residual**2), rel=0.05)
    assert 4 < float(found["lengthscale"]) ** -2 < 8
    prediction = bp.predict(result, (X_test - centre) / width, model=model)
    error = np.mean((y_test - prediction["f_mean"].values) ** 2)
    assert error - np.mean(test_residual**2) < 3e-4
    known = {"lengthscale": 5.6**-0.5, "C": 10.0, "epsilon": 0.1, "bias": 0.01}
    oracle = bp.fit(bp.Laplace(), model, hyperparameters=known, progressbar=False)
    reachable = np.mean((y_test - bp.predict(oracle, (X_test - centre) / width, model=model)["f_mean"].values) ** 2)
    assert error - reachable < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "robot_arm.csv").is_file(), reason="the papers' data sets are not at hand")
def test_robot_arm_on_mackays_points():
    """Table II, y1: MacKay's own points, so that the printed row itself is to be met."""
    row = chu2004_robot_arm.bayesian("y1", 2, 0, "BSVR")
    assert row["ASE 1e3"] == pytest.approx(2.491, rel=0.02)
    assert row["AAE"] == pytest.approx(0.03930, rel=0.01)
    assert row["σ_n² 1e3"] == pytest.approx(2.681, rel=0.05)
    assert (row["κ1"], row["κ2"]) == pytest.approx((0.682, 0.248), rel=0.15)
    assert abs(row["SV_M"] - 75) <= 10 and abs(row["SV_C"] - 21) <= 10


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "robot_arm.csv").is_file(), reason="the papers' data sets are not at hand")
def test_robot_arm_switches_the_noise_inputs_off():
    """Table III, y1; x3 to x6 are another draw than the paper's, 2.477 and 0.03907."""
    row = chu2004_robot_arm.bayesian("y1", 6, 0, "BSVR")
    assert row["ASE 1e3"] < 1.02 * 2.477
    assert row["AAE"] == pytest.approx(0.03907, rel=0.01)
    assert max(row["κ5"], row["κ6"]) < 1e-3 * min(row["κ1"], row["κ2"])

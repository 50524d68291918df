"""Default models: the kernel of labels against the formula, and the noise of ordered classes of variance 1."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp import classification
from bsvr_pp.classification.default_models import shaped_noise
from bsvr_pp.losses import LOSSES, NoiseModel, absolute, gaussian
from bsvr_pp.model.gaussian import INTERPRETED
from bsvr_pp.model.reader import read_model
from tests.helpers import differences


def test_the_kernel_is_a_deviation_a_line_and_an_offset():
    rng = np.random.default_rng(1)
    X, far = rng.standard_normal((5, 2)), np.array([[30.0, 20.0]])
    problem = read_model(classification.default_label_model(X, np.array([1, -1, 1, 1, -1])))
    scales = np.array([1.0, 2.0])
    point = {"C": 2.0, "amplitude": 3.0, "offset": 0.5, "linear": 1.5, "log_lengthscale": np.log(scales)}
    K, mean, noise = problem.at(point)
    U = X / scales
    deviation = 3.0 * np.exp(-0.5 * ((U[:, None] - U) ** 2).sum(axis=2))
    assert np.allclose(K.dense(), deviation + 1.5 * U @ U.T + 0.5 + 1e-5 * np.eye(5), rtol=1e-12)
    assert (mean == 0).all() and noise.parameters == {"C": 2.0}
    cross, variance, _ = problem.cross(point, far)  # where the deviation is forgotten, the line and the offset remain
    assert np.allclose(cross, 1.5 * (far / scales) @ U.T + 0.5)
    assert np.allclose(variance, 3.0 + 1.5 * ((far / scales) ** 2).sum() + 0.5)


def test_the_length_scales_follow_the_inputs():
    X = np.random.default_rng(0).standard_normal((40, 2)) * [1.0, 100.0]
    y = np.where(X[:, 0] > 0, 1, -1)
    node = classification.default_label_model(X, y)["log_lengthscale"].owner
    assert np.allclose(node.op.dist_params(node)[1].eval(), np.log(2.0 * X.std(axis=0)), atol=1e-12)
    assert classification.default_label_model(X, y, ard=False)["log_lengthscale"].ndim == 0


RESIDUALS = np.array([-4.0, -1.0, -0.2, 0.0, 0.5, 3.0])


def noise_at(loss, tails):
    """The noise of the default model with given tails."""
    with pm.Model() as model:
        given = shaped_noise(loss)
    at = {model["tails"]: tails}
    parameters = {k: float(pt.as_tensor(value).eval(at, on_unused_input="ignore")) for k, value in given.items()}
    return NoiseModel(LOSSES[loss], parameters)


@pytest.mark.parametrize("loss", ["soft_insensitive", "huber", "epsilon_insensitive"])
@pytest.mark.parametrize("tails", [0.02, 0.1, 0.5, 0.999, 1.0])
def test_noise_has_variance_one(loss, tails):
    assert noise_at(loss, tails).variance == pytest.approx(1.0, rel=1e-10)


def test_limits_of_the_tails_are_laplace_and_gaussian_noise():
    found = noise_at("soft_insensitive", 1.0).log_density(RESIDUALS)
    np.testing.assert_allclose(found, absolute(2**0.5).log_density(RESIDUALS), rtol=1e-12)
    found = noise_at("soft_insensitive", 0.02).log_density(RESIDUALS)
    np.testing.assert_allclose(found, gaussian(1.0).log_density(RESIDUALS), rtol=1e-12)


@pytest.mark.slow
def test_gradient_by_the_tails_matches_differences():
    X = np.linspace(-2, 2, 12)[:, None]
    model = classification.default_ordinal_model(X, np.digitize(X[:, 0], [-0.5, 0.7]), kernel="rbf")
    logp = model.compile_logp(jacobian=False, mode=INTERPRETED)
    slope = model.compile_dlogp(vars=[model["tails"]], jacobian=False, mode=INTERPRETED)
    start = model.initial_point()
    (name,) = (name for name in start if name.startswith("tails"))
    for at in (-3.0, 0.0, 4.0, 40.0):  # 40 is tails = 1 in floating point
        (expected,) = differences(lambda x: logp(start | {name: x}), np.array(at), 1e-4)
        assert slope(start | {name: np.array(at)})[0] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_the_evidence_is_that_of_the_better_noise():
    """Learned tails contain both kinds of noise, and the prior of the tails is flat."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, (40, 1))
    right = np.digitize(2 * np.sin(X[:, 0]), [-1.0, 1.0])
    wrong = right.copy()
    wrong[:4] = (right[:4] + 1) % 3
    for classes, heavy in ((right, False), (wrong, True)):
        evidence = {
            noise: bp.BayesianOrdinalSVC(noise, kernel="rbf", restarts=1, random_state=0).fit(X, classes)
            for noise in ("soft_insensitive", "absolute", "gaussian")
        }
        best = max(evidence["absolute"].log_evidence_, evidence["gaussian"].log_evidence_)
        learned = evidence["soft_insensitive"]
        assert learned.log_evidence_ > best - 0.1
        assert learned.tails_ > 0.6 if heavy else learned.tails_ < 1.0

"""Targets with sample weights in a PyMC model: their density, their evidence without f, and what is read from them."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.classification.default_models import standard_label_model
from bsvr_pp.core.losses.registry import NOISES
from bsvr_pp.model.priors import Inputs, standard_model
from bsvr_pp.model.reader import read_model

X = np.array([[-1.0], [0.0], [0.5], [2.0]])
Y = np.array([-1.0, 0.3, 1.0, 0.2])
W = np.array([1.0, 2.0, 0.5, 3.0])


def models(noise):
    """A model with weights, and without."""
    inputs = Inputs.standardised(X, ard=False)
    of_noise = {"beta": 0.5, "quantile": 0.3}
    both = {"weight": W}, {}
    return [standard_model(inputs, Y, noise, "rbf", of_noise=of_noise, of_targets=known) for known in both]


@pytest.mark.slow_cases("epsilon_insensitive", "huber", "gaussian", "absolute", "soft_insensitive")
@pytest.mark.parametrize("noise", NOISES)
def test_the_log_density_of_a_row_is_multiplied_by_its_weight(noise):
    weighted, plain = models(noise)
    (point,) = [plain.initial_point(0)]
    found, single = (m.compile_logp(m.observed_RVs, sum=False)(point)[0] for m in (weighted, plain))
    np.testing.assert_allclose(found, W * single, rtol=1e-12)


def test_the_density_without_f_is_the_evidence():
    weighted, plain = models("huber")
    problem = read_model(weighted)
    at = {"amplitude": 1.2, "inverse_lengthscale": 0.7, "C": 4.0, "epsilon": 0.2}
    K, mean, noise = problem.at(at)
    exact = mean_field(K, Y, noise, mean=mean).log_evidence
    marginal = bp.marginalize(bp.MeanField(), weighted)
    point = {v.name: np.log(at[v.name.removesuffix("_log__")]) for v in marginal.continuous_value_vars}
    assert marginal.compile_logp(marginal.observed_RVs)(point) == pytest.approx(exact, abs=1e-6)
    np.testing.assert_array_equal(noise.weight, W)
    assert problem.noise_at(at).weight.tolist() == [1.0] and problem.weight.ndim > read_model(plain).weight.ndim


@pytest.mark.slow
def test_draws_are_single_targets():
    weighted, plain = models("gaussian")
    drawn = [
        pm.draw(pm.do(m, {"C": 25.0, "f_rotated_": np.zeros(4)})["y"], 400, random_seed=1) for m in (weighted, plain)
    ]
    np.testing.assert_allclose(drawn[0].std(axis=0), drawn[1].std(axis=0), rtol=0.15)


def test_labels_have_weights():
    labels = np.sign(Y)
    model = standard_label_model(Inputs.standardised(X, ard=False), labels, "matern52", of_targets={"weight": W})
    problem = read_model(model)
    assert problem.loss.name == "hinge"
    point = {"C": 1.5, "offset": 1.0, "amplitude": 3.0, "linear": 2.0, "log_lengthscale": 0.1}
    np.testing.assert_array_equal(problem.at(point)[2].weight, W)

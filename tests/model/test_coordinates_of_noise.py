"""The noise by its standard deviation and its shape: the same density, other coordinates."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.marginalize import (
    NOISE_COORDINATES,
    marginalize,
    noise_coordinates,
    unit_variance,
    with_noise_coordinates,
)
from bsvr_pp.model.reader import read_model

DATA = sinc(12, random_seed=3)
LOG_TUBE, LOG_SD = NOISE_COORDINATES
FAMILY = {"soft_insensitive": bp.SoftInsensitive, "huber": bp.Huber, "epsilon_insensitive": bp.EpsilonInsensitive}


def build(noise="soft_insensitive", C=None, epsilon=None, beta=0.3, **options):
    with pm.Model() as model:
        lengthscale = pm.InverseGamma("lengthscale", 3, 3)
        C = pm.LogNormal("C", 1, 1, **options) if C is None else C()
        epsilon = pm.HalfNormal("epsilon", 1.0) if epsilon is None else epsilon(C)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=DATA.X)
        extra = {"beta": beta() if callable(beta) else beta} if noise == "soft_insensitive" else {}
        FAMILY[noise]("y", mu=f, C=C, epsilon=epsilon, observed=DATA.y, **extra)
    return model


def density_at(model, point):
    return float(model.compile_logp(mode="FAST_COMPILE")(point))


@pytest.mark.parametrize("tube", [1e-8, 0.3, 2.0, 50.0])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_variance_is_that_of_the_noise(tube, beta):
    found = float(unit_variance(pt.constant(np.float64(tube)), beta).eval())
    assert found == pytest.approx(float(soft_insensitive(1.0, tube, beta).variance), rel=1e-10)


@pytest.mark.slow_cases("epsilon by C", "free beta", "beta as data", "huber", "epsilon_insensitive")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": "huber"},
        {"noise": "epsilon_insensitive"},
        {"epsilon": lambda C: pm.LogNormal("epsilon", -pm.math.log(C), 0.5)},
        {"beta": lambda: pm.Beta("beta", 2.0, 2.0)},
        {"beta": lambda: pm.Data("beta", 0.7)},
    ],
    ids=["soft_insensitive", "huber", "epsilon_insensitive", "epsilon by C", "free beta", "beta as data"],
)
def test_the_density_is_that_of_the_model(options):
    model = build(**options)
    problem = read_model(model)
    moved = with_noise_coordinates(problem)
    rng = np.random.default_rng(0)
    for given, copy in ((model, moved), tuple(marginalize(bp.MeanField(), m) for m in (model, moved))):
        others = {v.name for v in given.free_RVs} - {"C", "epsilon"}
        assert {v.name for v in copy.free_RVs} == others | {LOG_TUBE, LOG_SD}
        start = copy.initial_point(0)
        point = {name: value + 0.4 * rng.standard_normal(np.shape(value)) for name, value in start.items()}
        graphs = copy.replace_rvs_by_values([copy["C"], copy["epsilon"]])
        at = copy.compile_fn(graphs, inputs=copy.value_vars, on_unused_input="ignore", mode="FAST_COMPILE")
        C, epsilon = (float(value) for value in at(point))
        assert np.log(C * epsilon) == pytest.approx(point[LOG_TUBE])
        rest = {name: value for name, value in point.items() if name not in NOISE_COORDINATES}
        original = rest | {"C_log__": np.log(C), "epsilon_log__": np.log(epsilon)}
        noise = problem.noise_at(problem.to_constrained([original[value.name] for value in problem.values]))
        assert 0.5 * np.log(np.ravel(noise.variance)[0]) == pytest.approx(point[LOG_SD])
        # The Jacobian is 1: densities over the unconstrained variables are equal.
        assert density_at(copy, point) == pytest.approx(density_at(given, original), rel=1e-10)


def test_the_coordinates_of_a_noise_are_those_of_the_model():
    noise = soft_insensitive(3.0, 0.2, 0.3)
    found = noise_coordinates(noise)
    assert list(found) == [LOG_TUBE, LOG_SD]
    assert found[LOG_TUBE] == pytest.approx(np.log(0.6))
    assert found[LOG_SD] == pytest.approx(0.5 * np.log(float(noise.variance)))


@pytest.mark.parametrize(
    "options",
    [
        {"C": lambda: 2.0},
        {"epsilon": lambda C: 0.1},
        {"epsilon": lambda C: pm.Deterministic("epsilon", 0.5 / C)},
        {"C": lambda: pm.Uniform("C", 0.5, 5.0)},
        {"C": lambda: pm.LogNormal("C", 0.0, 1.0, shape=12)},
        {"initval": 2.0},
    ],
    ids=["fixed C", "fixed epsilon", "epsilon by C", "bounded C", "C by row", "initial values"],
)
def test_other_models_stay_as_they_are(options):
    model = build(**options)
    assert with_noise_coordinates(read_model(model)) is model

"""The Gaussian process records its prior, in every copy of the model."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.model.fgraph import clone_model

import bsvr_pp as bp
from bsvr_pp.model.gp import prior_of
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

X = np.linspace(-2, 2, 6)[:, None]


def build(**options):
    with pm.Model() as model:
        lengthscale = pm.LogNormal("lengthscale", 0, 1)
        gp = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(2.0))
        gp.prior("f", X=X, **options)
    return model, gp


def test_record_survives_copies_of_the_model():
    model, _ = build()
    for copy in (clone_model(model), pm.do(model, {"lengthscale": 1.0})):
        assert prior_of(copy["f"]).name == "f"
    assert prior_of(model["lengthscale"]) is None


def test_sums_and_conditional_as_in_pymc():
    with pm.Model():
        total = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)) + bp.GP(cov_func=pm.gp.cov.Constant(2.0))
        assert isinstance(total, bp.GP)
        total.prior("f", X=X)
        assert total.conditional("g", X + 0.1).eval(mode="FAST_COMPILE").shape == (6,)


@pytest.mark.parametrize(("change", "name"), [(pm.do, "f"), (pm.do, "f_rotated_"), (pm.observe, "f_rotated_")])
def test_f_is_fixed_if_it_or_its_coordinates_are(change, name):
    model, _ = build()
    with model:
        pm.Normal("y", model["f"] + pm.Normal("b"), 0.3, observed=X[:, 0])
    at, fixed = {"lengthscale": 0.7, "f_rotated_": np.zeros(6)}, {name: 0.3 * np.arange(6.0)}
    covariance, mean, _ = read_model(change(model, fixed)).dense_at(at)
    np.testing.assert_allclose(covariance.dense(), np.ones((6, 6)), atol=1e-9)
    np.testing.assert_allclose(mean, pm.do(model, at | fixed)["f"].eval(mode="FAST_COMPILE"), atol=1e-9)


def test_inputs_are_those_of_the_call_if_their_array_changes():
    given = X.copy()
    model = process_model(pm.Normal, given, sigma=0.3, observed=X[:, 0])
    given *= 3.0
    np.testing.assert_array_equal(read_model(model).inputs, X)


@pytest.mark.parametrize("copy", [lambda model: model, clone_model, lambda model: pm.do(model, {"unused": 1.0})])
@pytest.mark.parametrize("place", ["kernel", "shared", "noise", "mu"])
def test_another_tensor_may_have_the_name_of_a_variable(place, copy):
    """Variables are those of the model, not those of a name."""
    with pm.Model() as model:
        s, b = pm.HalfNormal("s", 1.0), pm.Normal("b", 0.0, 1.0)
        other = {"kernel": 3.0 * s, "shared": pytensor.shared(1.5), "noise": 2.0 * s, "mu": 2.0 * b}[place]
        other.name = "unused" if place == "kernel" else "s"
        gp = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=other if place in ("kernel", "shared") else 1.5))
        f = gp.prior("f", X=X) + (other if place == "mu" else b) * X[:, 0]
        pm.HalfNormal("unused", 1.0)
        pm.Normal("y", f, other if place == "noise" else s, observed=X[:, 0])
    factor, sd = (2.0 if place == "mu" else 1.0), (1.0 if place == "noise" else 0.5)
    at = {"s": 0.5, "unused": 0.2}
    problem = read_model(copy(model))
    covariance, _, noise = problem.dense_at({name: at[name] for name in problem.hyperparameters})
    expected = np.exp(-0.5 * ((X - X.T) / 1.5) ** 2) + factor**2 * X @ X.T
    np.testing.assert_allclose(covariance.dense(), expected, atol=1e-5)  # of the jitter
    np.testing.assert_allclose(noise.variance, sd**2)

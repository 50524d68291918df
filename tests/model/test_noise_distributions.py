"""Every noise of the registry as a PyMC distribution, and back."""

import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.core.losses import LOSSES, noise_function
from bsvr_pp.core.losses.registry import NOISES
from bsvr_pp.model import distributions
from bsvr_pp.model.distributions import distribution, distribution_named
from bsvr_pp.model.operation import log_factor
from tests.helpers import differences

VALUES = {"C": 3.0, "epsilon": 0.4, "beta": 0.3, "quantile": 0.2}
FAST = "FAST_COMPILE"


def pick(loss):
    return {name: VALUES[name] for name in LOSSES[loss].parameters}


@pytest.fixture(params=NOISES)
def made(request, monkeypatch):
    """The distribution that is made from the table, of losses with closed forms too."""
    monkeypatch.setattr(distributions, "FIXED_BETA", {})
    return request.param, distribution.__wrapped__(request.param)


def test_the_density_is_that_of_the_noise(made):
    loss, kind = made
    r = np.linspace(-2, 2, 21)
    found = pm.logp(kind.dist(0.5, **pick(loss)), r + 0.5).eval(mode=FAST)
    np.testing.assert_allclose(found, noise_function(loss)(**pick(loss)).log_density(r), rtol=1e-12)


def test_draws_have_the_moments_of_the_noise(made):
    loss, kind = made
    noise = noise_function(loss)(**pick(loss))
    draws = pm.draw(kind.dist(1.0, **pick(loss), size=40_000), random_seed=1, mode=FAST) - 1.0
    assert draws.mean() == pytest.approx(noise.mean, abs=4 * np.sqrt(noise.variance / draws.size))
    assert draws.var() == pytest.approx(noise.variance, rel=0.05)


def test_outside_its_support_a_parameter_is_refused(made):
    loss, kind = made
    bad = {**pick(loss), "C": -1.0}
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=r"C > 0.*all finite"):
        pm.logp(kind.dist(0.0, **bad), 0.1).eval(mode=FAST)
    with pytest.raises(TypeError, match="takes mu, C"):
        kind.dist(0.0)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("loss", NOISES)
def test_gradients_of_the_density_are_those_of_differences(loss, vector):
    r = np.array([-1.7, -0.31, 0.05, 0.45, 0.9])
    names = list(pick(loss))
    inputs = [pt.dvector("r"), *(pt.dvector(n) if vector else pt.dscalar(n) for n in names)]
    total = (log_factor(loss, -inputs[0], 0.0, 0.0, inputs[1:]) * np.arange(1.0, 6.0)).sum()
    function = pytensor.function(inputs, [total, *pt.grad(total, inputs)], mode=FAST)
    at = [r, *(np.full(5, v) if vector else v for v in pick(loss).values())]
    value, *gradients = function(*at)
    assert value == pytest.approx(float(noise_function(loss)(**pick(loss)).log_density(r) @ np.arange(1.0, 6.0)))
    for i, gradient in enumerate(gradients):
        slope = differences(lambda h, i=i: function(*at[:i], at[i] + h, *at[i + 1 :])[0], 0.0, 1e-6)
        np.testing.assert_allclose(np.sum(gradient), *slope, rtol=1e-6, atol=1e-8)


def test_names_and_pickles_of_what_is_made():
    assert distribution_named("SoftInsensitive") is bp.SoftInsensitive
    assert distribution_named("Laplace") is None  # PyMC's own
    with pytest.raises(AttributeError, match="has no attribute 'SquareRoot'"):
        bp.SquareRoot  # noqa: B018
    made = distribution("absolute")
    draw = pm.draw(pickle.loads(pickle.dumps(made)).dist(0.0, 1.0), random_seed=1, mode=FAST)
    assert draw == pm.draw(made.dist(0.0, 1.0), random_seed=1, mode=FAST)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (pm.Normal, {"sigma": -1.0}),
        (pm.Normal, {"sigma": np.array([1.0, 0.0])}),
        (pm.Laplace, {"b": 0}),
        (pm.AsymmetricLaplace, {"b": 1.0, "kappa": -1.0}),
    ],
)
def test_known_scales_are_positive(kind, bad):
    with pytest.raises(ValueError, match=f"{[*bad][-1]} of the noise must be > 0, got"):
        distributions.noise_of(kind.dist(mu=np.zeros(2), **bad))

"""Default priors follow the scale of the data."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.model.problem import read_model

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 3)) * [1.0, 10.0, 0.1], RNG.normal(size=30)


def medians(X, y):
    with pm.Model():
        draws = pm.draw(list(bp.default_priors(X, y).values()), 4000, random_seed=1)
    return [np.median(d, axis=0) for d in draws]


def test_units_carry_over():
    lengthscale, C, epsilon = medians(X, Y)
    longer, weaker, wider = medians(5 * X, 2 * Y)
    np.testing.assert_allclose(longer / lengthscale, 5.0, rtol=1e-9)
    assert weaker / C == pytest.approx(0.5)
    assert wider / epsilon == pytest.approx(2.0)
    np.testing.assert_allclose(lengthscale / X.std(axis=0), np.sqrt(3), rtol=0.1)


@pytest.mark.parametrize("loss", ["soft_insensitive", "epsilon_insensitive", "huber"])
def test_model_draws_sensible_targets(loss):
    model = bp.default_model(X, Y, noise=loss)
    with model:
        assert read_model(model).loss.name == loss
    assert model.compile_logp(mode="FAST_COMPILE")(model.initial_point()) > -1e6


def test_one_lengthscale_without_ard():
    assert bp.default_model(X, Y, ard=False)["lengthscale"].eval(mode="FAST_COMPILE").shape == ()
    assert bp.default_model(X, Y)["lengthscale"].eval(mode="FAST_COMPILE").shape == (3,)


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        (X[:, 0], Y, {}, r"X must be an \(n, d\) array, got shape \(30,\)"),
        (X, Y[:-1], {}, r"y must be a \(30,\) array, got shape \(29,\)"),
        (X, np.ones(30), {}, "y must not be constant, got 1.0"),
        (X, np.full(30, np.nan), {}, "y must be finite, got nan"),
        (X, Y, {"noise": "cubic"}, "noise must be .* got 'cubic'"),
    ],
)
def test_bad_data_are_named(X, y, options, message):
    with pytest.raises(ValueError, match=message):
        bp.default_model(X, y, **options)

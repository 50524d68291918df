"""Default priors follow the scale of the data."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.model.priors import Inputs, location_and_scale, standard_model
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 3)) * [1.0, 10.0, 0.1], RNG.normal(size=30)


def medians(X, y):
    with pm.Model():
        draws = pm.draw(list(bp.default_priors(X, y).values()), 1000, random_seed=1)
    return [np.median(d, axis=0) for d in draws]


@pytest.mark.slow
def test_units_carry_over():
    amplitude, lengthscale, C, epsilon = medians(X, Y)
    larger, longer, weaker, wider = medians(5 * X, 2 * Y + 7.0)
    np.testing.assert_allclose(longer / lengthscale, 5.0, rtol=1e-9)
    assert larger / amplitude == pytest.approx(2.0)
    assert weaker / C == pytest.approx(0.5)
    assert wider / epsilon == pytest.approx(2.0)
    np.testing.assert_allclose(lengthscale / X.std(axis=0), np.sqrt(3) / 0.6745, rtol=0.1)


def test_an_input_is_switched_off_at_no_cost():
    """The densities of amplitude and inverse lengthscales are finite and level at 0."""
    model = bp.default_model(X, Y)
    density = model.compile_logp(
        vars=[model[name] for name in ("amplitude", "inverse_lengthscale", "inverse_alpha")],
        jacobian=False,
        mode="FAST_COMPILE",
    )
    point = model.initial_point()
    off = {f"{name}_log__": -20.0 + 0 * point[f"{name}_log__"] for name in ("amplitude", "inverse_lengthscale")}
    assert float(density({**point, **off})) > float(density(point))
    further = {name: value - 5.0 for name, value in off.items()}
    assert float(density({**point, **further})) == pytest.approx(float(density({**point, **off})))


def test_gross_errors_do_not_move_location_and_scale():
    y = np.random.default_rng(1).normal(3.0, 2.0, size=2000)
    assert location_and_scale(y) == pytest.approx((3.0, 2.0), rel=0.05)
    y[:20] = 1e9
    assert location_and_scale(y) == pytest.approx((3.0, 2.0), rel=0.08)


@pytest.mark.parametrize("share", [0.6, 0.85, 0.96])
def test_a_scale_where_most_targets_are_equal(share):
    y = np.where(np.arange(200) < 200 * share, 1.0, np.arange(200.0))
    location, scale = location_and_scale(y)
    assert location == 1.0
    assert 0.0 < scale < 200.0


def test_the_default_kernel_is_gaussian_without_inverse_alpha():
    at = {"amplitude": 1.3, "inverse_lengthscale": np.array([1.0, 0.5, 0.2]), "C": 1.0, "epsilon": 0.1}
    gaussian = read_model(bp.default_model(X, Y, kernel="rbf")).at(at)[0].dense()
    mixture = read_model(bp.default_model(X, Y)).at({**at, "inverse_alpha": 0.0})[0].dense()
    np.testing.assert_allclose(mixture, gaussian, atol=2e-4)


def test_one_lengthscale_without_ard():
    assert bp.default_model(X, Y, ard=False)["lengthscale"].eval(mode="FAST_COMPILE").shape == ()
    assert bp.default_model(X, Y)["lengthscale"].eval(mode="FAST_COMPILE").shape == (3,)


@pytest.mark.slow
def test_tied_inputs_share_a_lengthscale():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    tied = standard_model(Inputs.standardised(X, ard=True, tied=(0, 1, 1)), y)
    assert tied["inverse_lengthscale"].eval().shape == (2,) and tied["lengthscale"].eval().shape == (3,)
    X /= X.std(axis=0)
    alone, same = bp.default_model(X, y), standard_model(Inputs.standardised(X, ard=True), y)
    point = alone.initial_point()
    assert same.compile_logp()(point) == pytest.approx(alone.compile_logp()(point), rel=1e-12)

"""Each loss, written once: its table in Python and in compiled code, exact derivatives, probabilities of labels."""

import doctest

import numpy as np
import pytest
from numba import njit

from bsvr_pp import losses
from bsvr_pp.core.losses.registry import average_probability, label_probability
from bsvr_pp.losses import LOSSES, hinge

Y = np.array([1.0, -1.0, 1.0, -1.0])
VALUES = {"C": [3.0, 0.2, 1e3, 7.0], "epsilon": [0.4, 0.0, 1e-3, 0.1], "beta": [0.3, 0.5, 0.0, 1.0]}
VALUES["quantile"] = [0.2, 0.5, 0.9, 0.99]


def parameters(loss):
    return np.array([VALUES[name] for name in LOSSES[loss].parameters])


@pytest.mark.slow_cases("hinge", "pinball", "soft_insensitive")
@pytest.mark.parametrize("loss", ["soft_insensitive", "pinball", "hinge"])
def test_compiled_code_makes_the_same_table(loss):
    table = LOSSES[loss].table
    compiled = njit(lambda given, y: table(given, y), error_model="numpy")
    for given in (parameters(loss), parameters(loss)[:, :1].copy()):
        for found, expected in zip(compiled(given, Y), table(given, Y), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_is_convex_and_continuous(loss):
    pieces = LOSSES[loss].table(parameters(loss), Y)
    width = np.diff(pieces.knots, axis=1)
    inner = slice(1, pieces.knots.shape[1])
    mean_slope = 0.5 * (pieces.slope[:, inner] + pieces.slope[:, 2:])
    assert (width >= 0).all() and (np.diff(pieces.slope, axis=1) >= 0).all() and (pieces.curvature >= 0).all()
    np.testing.assert_allclose(np.diff(pieces.value, axis=1), width * mean_slope, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_noise_function_is_documented_by_its_row(loss):
    function = getattr(losses, loss)
    assert function.__name__ == loss and LOSSES[loss].energy.__doc__.split("\n")[0] in function.__doc__
    assert all(f"{name} : float or (n,) array" in function.__doc__ for name in LOSSES[loss].parameters)
    [examples] = doctest.DocTestFinder(recurse=False).find(function, loss, globs={})
    assert doctest.DocTestRunner().run(examples).failed == 0
    with pytest.raises(TypeError, match=f"{loss} takes C"):
        function()


F = np.array([[0.3, -0.2, 1.4, 2.0], [-1.7, 0.6, 0.0, -3.0]])
LINE = np.linspace(-4, 4, 81)


@pytest.mark.parametrize("C", [0.3, 2.0, 8.0])
def test_the_probability_is_the_share_of_the_label(C):
    plus, minus = (np.exp(hinge(C=C).log_density(1 - s * LINE)) for s in (1, -1))
    assert np.allclose(label_probability(LINE, C), plus / (plus + minus), rtol=1e-12)
    inside, outside = np.abs(LINE) <= 1, np.abs(LINE) > 1
    assert np.allclose(label_probability(LINE, C)[inside], 1 / (1 + np.exp(-2 * C * LINE[inside])), rtol=1e-12)
    z = LINE[outside]
    assert np.allclose(label_probability(LINE, C)[outside], 1 / (1 + np.exp(-C * (z + np.sign(z)))), rtol=1e-12)
    assert (label_probability([-1e6, 1e6], C) == [0, 1]).all()


def test_the_average_over_a_gaussian():
    rng = np.random.default_rng(0)
    for mean, variance, C in ((0.3, 1.0, 2.0), (-1.2, 0.2, 5.0), (2.0, 9.0, 1.0)):
        draws = label_probability(mean + np.sqrt(variance) * rng.standard_normal(400_000), C)
        assert abs(average_probability(mean, variance, C) - draws.mean()) < 5 * draws.std() / np.sqrt(400_000)
    assert np.allclose(average_probability(LINE, 0.0, 2.0), label_probability(LINE, 2.0), rtol=1e-12)
    assert np.allclose(average_probability(0.0, 3.0, 2.0), 0.5, rtol=1e-12)
    with pytest.raises(ValueError, match="variance must be >= 0"):
        average_probability(0.0, -1.0, 1.0)


def test_an_average_does_not_exceed_one_by_rounding():
    """Sums of products round differently for different numbers of rows."""
    for n in (20, 333, 419):
        assert average_probability(np.full(n, 40.0), np.linspace(0.0, 1.0, n), 5.0).max() <= 1.0

"""Each loss, written once: the same table in Python and in compiled code, with exact derivatives."""

import doctest

import numpy as np
import pytest
from numba import njit

from bsvr_pp import losses
from bsvr_pp.losses import LOSSES

Y = np.array([1.0, -1.0, 1.0, -1.0])
VALUES = {"C": [3.0, 0.2, 1e3, 7.0], "epsilon": [0.4, 0.0, 1e-3, 0.1], "beta": [0.3, 0.5, 0.0, 1.0]}
VALUES["quantile"] = [0.2, 0.5, 0.9, 0.99]


def parameters(loss):
    return np.array([VALUES[name] for name in LOSSES[loss].parameters])


@pytest.mark.slow_cases("soft_insensitive")
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

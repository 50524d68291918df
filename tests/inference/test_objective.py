"""The objective of the hyperparameters: its value, its gradient, and what it starts from."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.reader import read_model
from tests.helpers import differences, process_model

N = 10
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(2 * X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])


def problem(blocks=None):
    noise = partial(bp.SoftInsensitive, epsilon=0.1, beta=0.5, observed=Y)
    free = {"ls": lambda: pm.LogNormal("lengthscale", 0.0, 1.0), "C": lambda: pm.LogNormal("C", 1.0, 0.5)}
    return read_model(process_model(noise, X, prior={"blocks": blocks}, **free))


@pytest.mark.slow_cases("posterior-dense")
@pytest.mark.parametrize("blocks", [None, Blocks(np.repeat([0, 1, 2], [3, 3, 4]))], ids=["dense", "blocks"])
@pytest.mark.parametrize("objective", ["posterior", "evidence"])
def test_value_and_gradient_of_evidence_and_priors(blocks, objective, exactly):
    given = problem(blocks)
    evaluate = SearchObjective(given, bp.MeanField(), {}, objective, warm_starts=False)
    point = {"lengthscale": np.array(0.7), "C": np.array(4.0)}
    x = evaluate.pack(point)
    np.testing.assert_allclose(np.exp(x), [0.7, 4.0], rtol=1e-14)
    back = evaluate.unpack(x)
    assert list(back) == ["lengthscale", "C"]
    np.testing.assert_allclose(list(back.values()), [0.7, 4.0], rtol=1e-14)
    value, gradient = evaluate(x)
    K, mean, noise = given.at(point)
    expected = bp.MeanField().solve(K, given.targets, noise, mean).log_evidence
    if objective == "posterior":  # without the Jacobian of the logs
        priors = [pm.logp(given.model[name], value) for name, value in point.items()]
        expected += sum(float(each.eval(mode="FAST_COMPILE")) for each in priors)
    assert value == pytest.approx(expected, abs=1e-6)
    assert gradient == pytest.approx(differences(lambda x: evaluate(x)[0], x, 1e-4), rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_a_search_is_accurate_enough_for_its_tolerance():
    """A tenth of a nat; the value is that of a solve to a thousandth of this."""
    given = problem()
    for C in (0.3, 4.0, 300.0):
        for lengthscale in (0.2, 0.7, 5.0):
            point = {"C": np.array(C), "lengthscale": np.array(lengthscale)}
            evaluate = SearchObjective(given, bp.MeanField(), {}, "evidence", warm_starts=False)
            expected = bp.log_evidence(bp.MeanField(), given.model, hyperparameters=point).value
            assert evaluate(evaluate.pack(point))[0] == pytest.approx(expected, abs=1e-4)


def test_a_point_without_a_value_is_a_failure_and_no_start():
    evaluate = SearchObjective(problem(), bp.MeanField(), {}, "posterior", warm_starts=True)
    x = evaluate.pack({"C": np.array(4.0), "lengthscale": np.array(0.7)})
    before = evaluate(x)
    for bad in (np.array([0.0, 800.0]), np.array([0.0, np.nan])):
        value, gradient = evaluate(bad)
        assert value == -np.inf
        np.testing.assert_array_equal(gradient, np.zeros(2))
    assert evaluate(x)[0] == pytest.approx(before[0], abs=1e-9)

"""Effects of results against brute force and functions that are known."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.sparse import csr_array

import bsvr_pp as bp
from bsvr_pp.assess.partial_dependence import ResultInUnits
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.inference.fitted import components
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=40), RNG.integers(0, 3, 40), RNG.normal(size=40)])
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=40)
AT = {"amplitude": 1.0, "inverse_lengthscale": [0.8, 0.5, 0.1], "C": 12.0, "epsilon": 0.05}


@pytest.fixture(scope="module")
def fitted():
    model = bp.default_model(X, Y, kernel="rbf")
    return model, bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)


def of_own_values(model, result, columns):
    """The share of the variance over the rows, of the effect at the value of each row."""
    problem = read_model(model)
    (part,) = components(problem, result)
    moved = np.repeat(X[None], len(X), axis=0)
    moved[:, :, columns] = X[:, None, columns]
    average = np.kron(np.eye(len(X)), np.full((1, len(X)), 1.0 / len(X)))

    def variance(weights, rows):
        mean, covariance = part.linear(rows, csr_array(weights))
        return mean.var() + np.trace(covariance) / len(X) - covariance.mean()

    return variance(average, moved.reshape(-1, 3)) / variance(np.eye(len(X)), X)


@pytest.mark.slow_cases("0-0.005")
@pytest.mark.parametrize("feature, error", [(0, 0.005), (1, 1e-6), pytest.param((0, 2), 1e-6, marks=pytest.mark.slow)])
def test_shares_are_of_the_values_of_the_rows(fitted, feature, error):
    """They depend on no choice of the values that are shown; two columns have ten values each."""
    model, result = fitted
    shares = [bp.effect(result, X, feature, model=model, values=k).attrs["share"] for k in (3, 6, None)]
    right = of_own_values(model, result, np.atleast_1d(feature))
    np.testing.assert_allclose(shares, right, atol=error, rtol=0.0)
    assert np.ptp(shares) < 1e-9


@pytest.mark.slow
def test_two_inputs_of_two_have_the_whole_variance():
    """Their effect at a row is f, also where f has waves between the ten values that are shown."""
    two, at = X[:20, [0, 2]], AT | {"inverse_lengthscale": [2.0, 0.3]}
    model = bp.default_model(two, np.sin(4.0 * two[:, 0]) + 0.5 * two[:, 1], kernel="rbf")
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    assert bp.effect(result, two, (0, 1), model=model).attrs["share"] == pytest.approx(1.0, abs=1e-9)


def test_other_units(fitted):
    model, result = fitted
    found = bp.effect(result, X, 0, model=model, values=5)
    scaled = bp.effect(ResultInUnits.of(result, model, 2.0, 3.0, 5.0, 10.0), 2.0 + 3.0 * X, 0, values=5)
    np.testing.assert_allclose(scaled.index, 2.0 + 3.0 * found.index)
    expected = 10.0 * found.to_numpy()
    expected[:, found.columns != "sd"] += 5.0
    np.testing.assert_allclose(scaled.to_numpy(), expected)
    assert scaled.attrs["share"] == pytest.approx(found.attrs["share"])


@pytest.mark.slow
def test_share_of_words_and_gaps():
    rng = np.random.default_rng(4)
    table = pd.DataFrame({"town": rng.choice(["u", "v", "w"], 80), "x": rng.normal(size=80)})
    of_town = 2.0 * (table["town"] == "u")
    y = of_town + table["x"] + 0.01 * rng.normal(size=80)
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(table, y)
    share = bp.effect(svr, table, "town").attrs["share"]
    assert share == pytest.approx(of_town.var() / y.var(), abs=0.05)
    gaps = table.assign(town=table["town"].where(np.arange(80) > 5))
    with pytest.warns(UserWarning, match="gaps"):
        assert bp.effect(svr, gaps, "town").attrs["share"] == pytest.approx(share, abs=0.1)
        assert bp.effect(svr, gaps, ("town", "x")).attrs["interaction"] < 0.01  # of the rows that have both
    never = table.assign(town=table["town"].where(table["x"] < 0), x=table["x"].where(table["x"] > 0))
    with pytest.warns(UserWarning, match="gaps"):
        assert np.isnan([*bp.effect(svr, never, ("town", "x")).attrs.values()]).all()


@pytest.mark.slow
def test_a_sum_of_processes_is_refused():
    with pm.Model() as sum_model:
        parts = [bp.GP(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[i])).prior(f"f{i}", X=X) for i in (0, 1)]
        bp.SoftInsensitive("y", mu=parts[0] + parts[1], C=5.0, epsilon=0.1, beta=0.3, observed=Y)
        of_sum = bp.fit(bp.MeanField(), progressbar=False, draws=9)
    with pytest.raises(ModelError, match="effect takes one process"):
        bp.effect(of_sum, X, 0, model=sum_model)

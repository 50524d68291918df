"""Rows are taken with all that each has of its own."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.model.distributions import observe
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
X, SIZE, TREND = RNG.normal(size=(9, 2)), RNG.uniform(1, 2, 9), RNG.normal(size=9)
Y = np.sin(X[:, 0]) + TREND


def build(rows, kind):
    """A model of some rows, with a kernel of all inputs and another value in each row."""
    with pm.Model() as model:
        X_here, size, trend = pm.Data("X", X[rows]), pm.Data("size", SIZE[rows]), pm.Data("trend", TREND[rows])
        C = pm.LogNormal("C", 1, 1)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=[1.0, 2.0])).prior("f", X=X_here)
        if kind == "noise":
            bp.SoftInsensitive("y", mu=f, C=C / size, epsilon=0.1 * X_here[:, 1] ** 2, beta=0.3, observed=Y[rows])
        elif kind == "weights":
            parameters = {"C": C / size, "epsilon": 0.1, "beta": 0.5}
            observe("y", "soft_insensitive", f, parameters, Y[rows], pt.as_tensor(np.arange(1.0, 10.0)[rows]))
        elif kind == "constant":
            bp.SoftInsensitive("y", mu=f, C=C / SIZE[rows], epsilon=0.1, beta=0.3, observed=Y[rows])
        elif kind == "parts":
            slope = pm.Normal("slope")
            bp.SoftInsensitive("y", mu=f + slope * trend, C=C / size, epsilon=0.1, beta=0.3, observed=Y[rows])
        else:
            noise = pm.Laplace.dist(mu=f, b=1 / C)
            pm.Censored("y", noise, lower=None, upper=size, observed=np.minimum(Y, SIZE)[rows])
    return model


@pytest.mark.slow_cases("parts")
@pytest.mark.parametrize("kind", ["noise", "weights", "constant", "parts", "censored"])
def test_a_part_of_the_rows_is_the_model_of_these_rows(kind):
    chosen = np.array([7, 1, 4, 2])
    taken = read_model(build(np.arange(9), kind)).take(chosen)
    alone = read_model(build(chosen, kind))
    values = []
    for problem in (taken, alone):
        K, mean, noise = problem.at({"C": 3.0})
        values.append(bp.MeanField().solve(K, problem.targets, noise, mean).log_evidence)
    assert values[0] == pytest.approx(values[1], abs=1e-9)


@pytest.mark.parametrize("as_data", [False, True])
def test_noise_that_is_not_computed_row_by_row_is_that_of_all_rows(as_data):
    """Values of other rows, of which some rows are no model of their own, and say nothing about new rows."""
    order = RNG.permutation(9)

    def build(**options):
        with pm.Model() as model:
            size, place = (pm.Data("size", SIZE), pm.Data("place", order)) if as_data else (pt.as_tensor(SIZE), order)
            f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=X, **options)
            pm.Normal("y", f, pm.HalfNormal("s") * size[place], observed=Y)
        return model

    model = build()
    result = bp.fit(bp.Laplace(), model, hyperparameters={"s": 0.5}, progressbar=False)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)) + 1e-6 * np.eye(9)
    expected = stats.multivariate_normal(np.zeros(9), K + np.diag((0.5 * SIZE[order]) ** 2)).logpdf(Y)
    assert result.attrs["log_evidence"] == pytest.approx(expected, abs=1e-8)
    assert not read_model(model).divisible
    with pytest.raises(
        ValueError, match="noise, weights and ends of a row of y must be computed from data of this row"
    ):
        read_model(build(blocks=bp.local_blocks(X, rows=5, random_seed=0)))
    data = {"size": SIZE[:2], "place": [0, 1]} if as_data else None
    with pytest.raises(ValueError, match="the noise has a value for each training point"):
        bp.predict(result, X[:2], model=model, data=data)

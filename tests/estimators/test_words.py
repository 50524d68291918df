"""Columns of words: one lengthscale and one amplitude for all words of a column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bsvr_pp as bp
from bsvr_pp.inference.search.starts import lengthscales

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"size": RNG.normal(size=N), "town": RNG.choice(["Ulm", "Bonn", "Kiel", "Jena"], N)})
TABLE.loc[3, "town"] = None
Y = TABLE["size"] + 2.0 * (TABLE["town"] == "Ulm") + 0.1 * RNG.normal(size=N)
TWO = TABLE.assign(town=np.where(TABLE["town"] == "Ulm", "here", "there"))
ONE = TABLE.assign(town=np.where(TABLE["town"] == "Ulm", 1.0, 0.0))
ESTIMATORS = {
    "BayesianSVR": (bp.BayesianSVR(restarts=1, random_state=0), Y),
    "BayesianSVC": (bp.BayesianSVC(random_state=0), Y > 0.5),
    "BayesianOrdinalSVC": (bp.BayesianOrdinalSVC(restarts=1, random_state=0), np.digitize(Y, [0.0, 1.5])),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    """An estimator, fitted to the table, and its targets."""
    estimator, y = ESTIMATORS[request.param]
    return clone(estimator).fit(TABLE, y), y


def problem_of(machine):
    """The compiled model of a fitted estimator, and its hyperparameters."""
    if isinstance(machine, bp.BayesianSVC):
        (only,) = machine._fit.binaries
        return only.problem, only.point
    return machine._fit.problem, machine._fit.point


@pytest.mark.slow_cases("BayesianSVR", "BayesianOrdinalSVC")
def test_the_words_of_a_column_and_its_gaps_have_one_lengthscale(fitted):
    machine, _ = fitted
    assert list(machine.relevance_.index) == [
        "size",
        *(f"town={town}" for town in ("Bonn", "Jena", "Kiel", "Ulm")),
        "town is another word",
        "town is missing",
    ]
    assert np.unique(machine.relevance_[1:]).size == np.unique(machine.lengthscale_[1:]).size == 1
    problem, point = problem_of(machine)
    np.testing.assert_allclose(lengthscales(problem, point), machine.lengthscale_ / machine.scale_, rtol=1e-12)


@pytest.mark.slow_cases("BayesianSVC", "BayesianSVR")
@pytest.mark.parametrize("name", ["BayesianSVR", "BayesianSVC"])
def test_two_words_are_one_number(name):
    """A column of two words has the covariance of its indicator as a number."""
    estimator, y = ESTIMATORS[name]
    words, numbers = (clone(estimator).fit(table, y) for table in (TWO, ONE))
    (of_words, point), (of_numbers, _) = problem_of(words), problem_of(numbers)
    assert {key: np.shape(value) for key, value in point.items()} == {
        key: np.shape(value) for key, value in problem_of(numbers)[1].items()
    }
    K, expected = (problem.at(point)[0].dense() for problem in (of_words, of_numbers))
    np.testing.assert_allclose(K, expected, rtol=1e-9)


@pytest.mark.slow_cases("rational_quadratic", "main_effects")
@pytest.mark.parametrize("kernel", ["rational_quadratic", "main_effects"])
def test_the_covariance_depends_on_whether_words_are_equal(kernel):
    svr = bp.BayesianSVR(kernel=kernel, warping=False, restarts=1, random_state=0).fit(TABLE, Y)
    problem, point = problem_of(svr)
    words = TABLE["town"].fillna("none").to_numpy()
    share = np.unique(words, return_counts=True)[1] / N
    square = 2.0 / (1.0 - np.sum(share**2)) * (words[:, None] != words)
    size = TABLE["size"].to_numpy()
    squares = np.stack([((size[:, None] - size) / size.std()) ** 2, square])
    scaled = np.tensordot(point["inverse_lengthscale"] ** 2, squares, 1)
    gamma = point["inverse_alpha"] + 1e-4
    expected = point["amplitude"] ** 2 * (1.0 + 0.5 * gamma * scaled) ** (-1.0 / gamma) + 100.0
    if kernel == "main_effects":
        e = np.exp(-0.5 * point["effect_inverse_lengthscale"] ** 2 * np.stack([squares[0], 0.5 * square]))
        detailed = e + point["effect_detail"] ** 2 * e**16
        same = 1.0 + point["effect_detail"] ** 2  # of the four words that neither row has, one of them no row
        effects = np.stack([detailed[0], 2.0 * detailed[1] + 4.0 * same])
        expected += np.tensordot(point["effect_amplitude"] ** 2, effects, 1)
    expected += 1e-6 * np.eye(N)
    K = problem.at(point)[0].dense()
    np.testing.assert_allclose(K, expected, rtol=1e-10)


@pytest.mark.slow
def test_persons_with_few_rows_each_have_effects():
    """Many words, most in two rows or one: ridge regression on their indicators is not better."""
    rng = np.random.default_rng(0)
    person, x = rng.integers(120, size=480), rng.normal(size=480)
    y = rng.normal(size=120)[person] + np.sin(2.0 * x) + 0.3 * rng.normal(size=480)
    table, train = pd.DataFrame({"person": [f"p{k}" for k in person], "x": x}), np.arange(480) < 240
    svr = bp.BayesianSVR(restarts=1, random_state=0).fit(table[train], y[train])
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["person"]), (StandardScaler(), ["x"]))
    ridge = make_pipeline(encode, RidgeCV(np.logspace(-2, 2, 9))).fit(table[train], y[train])
    ours, others = (np.mean((each.predict(table[~train]) - y[~train]) ** 2) for each in (svr, ridge))
    assert ours < 0.8 * others
    new = ~train & ~np.isin(person, person[train])
    low, high = svr.predict_interval(table[new], coverage=0.9).T
    assert np.mean((low <= y[new]) & (y[new] <= high)) > 0.8 and new.sum() > 20
    assert svr.relevance_.index[-2:].tolist() == ["person is another word", "x"]

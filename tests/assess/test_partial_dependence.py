"""Partial dependence against brute force, scikit-learn and the predictions of each estimator."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.inspection import PartialDependenceDisplay, partial_dependence
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bsvr_pp as bp

RNG = np.random.default_rng(0)
N = 60
TABLE = pd.DataFrame(
    {
        "town": pd.Categorical(RNG.choice(["Ulm", "Bonn", "Kiel"], N, p=[0.5, 0.3, 0.2]), ["Ulm", "Bonn", "Kiel"]),
        "garden": RNG.random(N) < 0.5,
        "sold": pd.date_range("2024-01-01", periods=N, freq="5D"),
        "rooms": np.where(RNG.random(N) < 0.2, np.nan, RNG.integers(2, 6, N)),
    }
)
PRICE = 10.0 + 3.0 * (TABLE["town"] == "Ulm") + TABLE["garden"] + 0.1 * RNG.normal(size=N)
X = np.column_stack([RNG.normal(size=N), RNG.integers(0, 4, N), RNG.normal(size=N)])
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=N)


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1, random_state=0).fit(TABLE, PRICE)


@pytest.fixture(scope="module")
def of_arrays():
    return bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1, random_state=0).fit(X, Y)


def moved(table, **values):
    """The rows once for each value, as one table."""
    (name,) = values
    return pd.concat([table.assign(**{name: value}) for value in values[name]], ignore_index=True)


@pytest.mark.slow_cases("town")
@pytest.mark.parametrize("name", ["town", "garden", "sold"])
def test_brute_force(svr, name):
    """Mean, covariance and band from the joint posterior of f at all changed rows."""
    found = bp.effect(svr, TABLE, name, values=4, coverage=0.8)
    k = len(found)
    (part,) = svr._fit.function()
    problem, n = part.problem, len(part.problem.targets)
    inputs, _ = svr.encoding_.transform(moved(TABLE, **{name: found.index}))
    both = np.vstack([problem.inputs, (inputs - svr.mean_) / svr.scale_])
    joint = problem.between(part.point, both).dense()
    inner = np.linalg.inv(joint[:n, :n] + np.diag(1.0 / part.site_precision))
    posterior = joint[n:, n:] - joint[n:, :n] @ inner @ joint[:n, n:]
    covariance = svr.unit_**2 * posterior.reshape(k, N, k, N).mean(axis=(1, 3))
    mean = svr.predict_f(moved(TABLE, **{name: found.index}))[0].reshape(k, N).mean(axis=1)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-8)
    np.testing.assert_allclose(found["sd"], np.sqrt(np.diag(covariance)), rtol=1e-3)
    drawn = np.random.default_rng(1).multivariate_normal(mean, covariance, 4000)
    held = ((found["lower"].values <= drawn) & (drawn <= found["upper"].values)).all(axis=1)
    assert 0.76 < held.mean() < 0.84
    np.testing.assert_allclose(found["upper"] - found["mean"], found["mean"] - found["lower"])


def test_scikit_learn_has_the_same_means(of_arrays):
    theirs = partial_dependence(of_arrays, X, [1], kind="both", method="brute")
    found = bp.effect(of_arrays, X, 1, ice=N)
    np.testing.assert_array_equal(found.index, theirs["grid_values"][0])
    np.testing.assert_allclose(found["mean"], theirs["average"][0], atol=1e-9)
    np.testing.assert_allclose(found.filter(like="row ").T, theirs["individual"][0], atol=1e-9)
    pd.testing.assert_frame_equal(bp.effect(of_arrays, X.tolist(), 1, ice=N), found)
    both = bp.effect(of_arrays, X, ("x1", 2), values=5)["mean"].unstack()
    grid = {1: both.index.to_numpy(), 2: both.columns.to_numpy()}
    theirs = partial_dependence(of_arrays, X, [1, 2], kind="average", method="brute", custom_values=grid)
    subset = bp.effect(of_arrays, X, (1, 2), values=5, rows=N)["mean"].unstack()
    np.testing.assert_allclose(subset, theirs["average"][0], atol=1e-9)
    assert not np.allclose(both, subset, atol=1e-9)  # by default of 40 rows


def test_scikit_learn_draws_tables(svr):
    whole = TABLE.assign(rooms=TABLE["rooms"].fillna(3.0))
    display = PartialDependenceDisplay.from_estimator(svr, whole, ["town", "rooms"], categorical_features=["town"])
    for name, theirs in zip(["town", "rooms"], display.pd_results, strict=True):
        found = bp.effect(svr, whole, name)["mean"]
        average = dict(zip(theirs["grid_values"][0], theirs["average"][0], strict=True))
        assert found.to_dict() == pytest.approx(average)
    plt.close("all")


def fits():
    """Estimators with mean and standard deviation of f at arrays."""
    blocks = bp.LocalBlocks(30, neighbours=None)
    return {
        "blocks": bp.BayesianSVR(blocks=blocks, random_state=0, noise_scales=False).fit(X, Y),
        "dense": bp.BayesianSVR(inference="mean_field", restarts=1, random_state=0).fit(X, Y),
        "log": bp.BayesianSVR(log_targets=True, inference="mean_field", restarts=1, random_state=0).fit(X, np.exp(Y)),
        "labels": bp.BayesianSVC(random_state=0).fit(X, Y > 0.5),
        "classes": bp.BayesianOrdinalSVC(restarts=1, random_state=0).fit(X, np.digitize(Y, [0.0, 1.0])),
    }


def moments(fit, rows):
    """Mean and standard deviation of f by the predictions of an estimator."""
    if hasattr(fit, "predict_f"):
        return fit.predict_f(rows)
    (part,) = fit._fit.function()
    mean, variance = part.moments((rows - fit.mean_) / fit.scale_)[:2]
    return mean, np.sqrt(variance)


@pytest.mark.slow
def test_the_effect_on_one_row_is_a_prediction():
    for name, fit in fits().items():
        some = np.repeat(X[3:4], 5, axis=0)
        some[:, 0] = [-1.5, -0.5, 0.0, 0.5, 1.5]
        found = bp.effect(fit, some, 0)  # of five equal rows
        rows = np.repeat(X[3:4], 5, axis=0)
        rows[:, 0] = found.index
        mean, sd = moments(fit, rows)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-7, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found["sd"], sd, rtol=1e-3, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_pipelines_and_searches_end_in_an_estimator(of_arrays):
    centred = make_pipeline(StandardScaler(), "passthrough", clone(of_arrays)).fit(X, Y)
    found, scaler = bp.effect(centred, X, 0, values=5), centred[0]
    inner = bp.effect(centred[-1], scaler.transform(X), 0, values=5)
    np.testing.assert_allclose(found.to_numpy(), inner.to_numpy())
    np.testing.assert_allclose(found.index, inner.index * scaler.scale_[0] + scaler.mean_[0])
    search = GridSearchCV(make_pipeline(clone(of_arrays)), {"bayesiansvr__ard": [False, True]}, cv=2).fit(X, Y)
    best = bp.effect(search.best_estimator_[-1], X, 0)
    pd.testing.assert_frame_equal(bp.effect(search, X, 0), best)
    with pytest.raises(TypeError, match="got GridSearchCV"):
        bp.effect(GridSearchCV(bp.BayesianSVR(), {}), X, 0)


@pytest.mark.slow
def test_values_of_columns(svr):
    assert list(bp.effect(svr, TABLE, "town").index) == ["Ulm", "Bonn", "Kiel"]  # as the categories are ordered
    common = TABLE["town"].value_counts().index[:2]
    assert set(bp.effect(svr, TABLE, "town", values=2).index) == set(common)
    assert list(bp.effect(svr, TABLE.assign(town=TABLE["town"].astype(str)), 0).index) == ["Bonn", "Kiel", "Ulm"]
    some = TABLE[TABLE["town"] != "Bonn"]
    assert list(bp.effect(svr, some, "town").index) == ["Ulm", "Kiel"]  # not the category that no row has
    assert list(bp.effect(svr, TABLE, "garden").index) == [False, True]
    gaps = TABLE.assign(garden=TABLE["garden"].astype(object).where(np.arange(N) > 3))
    with pytest.warns(UserWarning, match="'garden' has .* gaps"):
        bp.effect(svr, gaps, "town")
    assert list(bp.effect(svr, gaps, "garden").index) == [False, True]
    assert list(bp.effect(svr, TABLE, "rooms").index) == [2.0, 3.0, 4.0, 5.0]
    sold = bp.effect(svr, TABLE, "sold", values=7).index
    assert len(sold) == 7 and set(sold) <= set(TABLE["sold"]) and sold.is_monotonic_increasing
    assert (sold[0], sold[-1]) == (TABLE["sold"].min(), TABLE["sold"].max())
    zoned = TABLE.assign(sold=TABLE["sold"].dt.tz_localize("Europe/Berlin"))
    with pytest.raises(ValueError, match="has times in the zone Europe/Berlin, and in training without a zone"):
        bp.effect(svr, zoned, "sold")
    aware = clone(svr).fit(zoned, PRICE)
    np.testing.assert_allclose(bp.effect(aware, zoned, "sold")["mean"], bp.effect(svr, TABLE, "sold")["mean"])
    both = bp.effect(svr, TABLE, ("town", "garden"))
    assert both.index.names == ["town", "garden"] and len(both) == 6
    none = TABLE.assign(rooms=np.nan)
    with pytest.raises(ValueError, match="column 'rooms' of X has no values"):
        bp.effect(svr, none, "rooms")


def test_polars(svr):
    polars = pytest.importorskip("polars")
    found = bp.effect(svr, polars.from_pandas(TABLE), "town")
    assert found["mean"].to_dict() == bp.effect(svr, TABLE, "town")["mean"].to_dict()


@pytest.mark.slow
def test_an_integer_is_a_name_before_it_is_a_place(of_arrays):
    table = pd.DataFrame(X, columns=[1, 2, "self"])
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        found = [bp.effect(of_arrays, table, name)["mean"].tolist() for name in (1, "1", np.int64(2), 0, "self")]
    expected = [bp.effect(of_arrays, X, place)["mean"].tolist() for place in (0, 0, 1, 0, 2)]
    assert found == expected


@pytest.mark.slow
def test_limits(of_arrays, monkeypatch):
    three = bp.BayesianSVC(kernel="rbf", random_state=0).fit(X[:15], np.arange(15) % 3)
    with pytest.raises(ValueError, match="effects are of two classes, got 3"):
        bp.effect(three, X, 0)
    with pytest.raises(TypeError, match="got ResidualIntervals"):
        bp.effect(bp.ResidualIntervals(), X, 0)
    monkeypatch.setattr("bsvr_pp.inference.budget.available_memory", lambda: 1e6)
    with pytest.raises(MemoryError, match=r"effect at 1800 rows needs .* fewer values or rows"):
        bp.effect(of_arrays, X, 0)

"""skpro: its own checks, equality with the object of this package, tuning, censored targets, forecasts of sktime."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import kstest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

import bsvr_pp as bp

pytest.importorskip("skpro", reason="skpro is not installed")

from skpro.metrics import CRPS, LogLoss
from skpro.model_selection import GridSearchCV
from skpro.utils import check_estimator

from bsvr_pp.integrations.skpro import ProbaDistribution, ProbaRegressor


def frames(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-3, 3, (n, 2)), columns=["a", "b"], index=[f"row {i}" for i in range(n)])
    return X, pd.DataFrame({"y": np.sin(X["a"]) + 0.1 * rng.laplace(size=n)})


def machine(**options):
    return bp.BayesianSVR(**{"kernel": "rbf", "restarts": 1, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    X, y = frames()
    return ProbaRegressor(machine()).fit(X, y), X, y


@pytest.fixture(scope="module", params=["one noise", "mixture", "log targets"])
def pair(request):
    """A distribution of skpro, and the object in it."""
    X, y = frames()
    if request.param == "log targets":
        y = np.exp(y)
    options = {"inference": "auto" if request.param == "mixture" else "mean_field"}
    made = ProbaRegressor(machine(log_targets=request.param == "log targets", **options)).fit(X, y)
    return made.predict_proba(X), made.estimator_.predict_distribution(X)


@pytest.mark.parametrize("kind", [ProbaRegressor, ProbaDistribution])
def test_checks_of_skpro_pass(kind):
    found = check_estimator(kind, verbose=False)
    assert len(found) > 50 and {name: result for name, result in found.items() if result != "PASSED"} == {}


def test_distributions_are_those_of_the_object(pair):
    given, predictive = pair
    assert isinstance(given, ProbaDistribution) and given.shape == (40, 1)
    assert list(given.columns) == ["y"] and given.index[0] == "row 0"
    at = predictive.ppf(np.linspace(0.01, 0.99, 40))
    values = pd.DataFrame({"y": at}, index=given.index)
    same = {"pdf": "pdf", "log_pdf": "logpdf", "cdf": "cdf", "surv": "sf"}
    for name, ours in same.items():
        assert_array_equal(getattr(given, name)(values)["y"], getattr(predictive, ours)(at))
    assert_allclose(given.haz(values)["y"], predictive.pdf(at) / predictive.sf(at))
    assert_array_equal(given.mean()["y"], predictive.mean())
    assert_array_equal(given.var()["y"], predictive.var())
    assert_array_equal(given.ppf(0.3)["y"], predictive.ppf(0.3))
    assert_allclose(given.quantile([0.1, 0.9]), predictive.ppf([[0.1], [0.9]]).T)


def test_rows_and_scalars_are_parts(pair):
    given, predictive = pair
    assert_array_equal(given.loc[["row 7", "row 2"]].mean()["y"], predictive.mean()[[7, 2]])
    assert_array_equal(given.iloc[[3], [0]].ppf(0.2), [[predictive.ppf(0.2)[3]]])
    one = given.iat[5, 0]
    assert one.shape == () and one.cdf(0.4) == predictive.cdf(0.4)[5] and one.mean() == predictive.mean()[5]
    assert np.isscalar(one.sample()) and one.sample(4).shape == (4, 1)


def test_samples_have_the_distribution_and_follow_the_seed(pair):
    given, predictive = pair
    np.random.seed(0)
    first = given.sample(200)
    np.random.seed(0)
    assert first.equals(given.sample(200))
    assert first.index.nlevels == 2 and first.shape == (8000, 1)
    levels = predictive.cdf(first["y"].to_numpy().reshape(200, 40))
    assert kstest(levels.ravel(), "uniform").pvalue > 1e-3


def test_energy_is_the_mean_distance(pair):
    given, predictive = pair
    low, high = predictive.ppf([[1e-12], [1 - 1e-9]])[:, 0]

    def tails(z):
        return predictive[:1].cdf(z)[0], predictive[:1].sf(z)[0]

    ends = [low, *predictive[:1].ppf([[0.01], [0.5], [0.99]])[:, 0], high]
    itself = 2 * sum(quad(lambda z: np.prod(tails(z)), *step)[0] for step in pairwise(ends))
    assert_allclose(given.iloc[[0], [0]].energy().iloc[0, 0], itself, rtol=2e-4)
    y = predictive.ppf(0.2)
    values = pd.DataFrame({"y": y}, index=given.index)
    assert_allclose((given.energy(values) - given.energy() / 2)["energy"], predictive.crps(y))


def test_metrics_are_the_scores(fitted):
    regressor, X, y = fitted
    predictive = regressor.estimator_.predict_distribution(X)
    found = regressor.predict_proba(X)
    assert_allclose(CRPS()(y, found), predictive.crps(y["y"]).mean())
    assert_allclose(LogLoss()(y, found), -predictive.logpdf(y["y"]).mean())


def test_tuning_chooses_by_the_score(fitted):
    _, X, y = fitted
    grid = {"estimator__gamma": [1e-3, 10.0]}
    search = GridSearchCV(ProbaRegressor(bp.LSSVR()), param_grid=grid, cv=KFold(3), scoring=CRPS(), backend=None)
    assert search.fit(X, y).best_params_ == {"estimator__gamma": 10.0}


def test_censored_targets_are_those_of_the_estimator():
    X, y = frames()
    time = np.exp(y)
    censored = (time > 1.5).astype(int)
    time = time.clip(upper=1.5)
    regressor = ProbaRegressor(machine(log_targets=True)).fit(X, time, C=censored)
    ends = np.stack([time["y"], np.where(censored["y"] == 1, np.inf, time["y"])], axis=1)
    direct = machine(log_targets=True, intervals=True).fit(X, ends)
    at = pd.DataFrame({"y": 1.0}, index=X.index)
    assert_allclose(regressor.predict_proba(X).surv(at)["y"], direct.predict_survival_function(X, [1.0])[:, 0])
    naive = ProbaRegressor(machine(log_targets=True)).fit(X, time, C=0 * censored)
    peak = X.iloc[[int(np.argmax(np.sin(X["a"])))]]
    assert regressor.predict_proba(peak).ppf(0.5).iloc[0, 0] > naive.predict_proba(peak).ppf(0.5).iloc[0, 0]


def test_names_that_are_numbers_are_taken():
    X, y = frames()
    named = X.set_axis([0, "b"], axis=1)
    assert_allclose(
        ProbaRegressor(bp.LSSVR()).fit(named, y).predict(named), bp.LSSVR().fit(X, y["y"]).predict(X)[:, None]
    )


def test_bad_input_is_refused_by_name():
    X, y = frames(10)
    with pytest.raises(TypeError, match="estimator must have predict_distribution, got LinearRegression"):
        ProbaRegressor(LinearRegression()).fit(X, y)
    for bad in (2, 0.5):
        with pytest.raises(ValueError, match=rf"C must be 1 for a censored .* got {bad}"):
            ProbaRegressor(bp.BayesianSVR()).fit(X, y, C=0 * y + bad)
    with pytest.raises(ValueError, match="y must have one column, got 2"):
        ProbaRegressor(bp.LSSVR()).fit(X, y.assign(second=1.0))
    with pytest.raises(ValueError, match="C is for BayesianSVR, which takes censored targets, got LSSVR"):
        ProbaRegressor(bp.LSSVR()).fit(X, y, C=0 * y + 1)
    with pytest.raises(ValueError, match="q must be between 0 and 1, got 2"):
        ProbaRegressor(bp.LSSVR()).fit(X, y).predict_proba(X).ppf(2.0)


def test_forecasts_by_reduction_are_those_of_the_regressor():
    compose = pytest.importorskip("sktime.forecasting.compose", reason="sktime is not installed")
    X, y = (frame.reset_index(drop=True) for frame in frames())
    forecaster = compose.YfromX(ProbaRegressor(bp.LSSVR())).fit(y=y.iloc[:30], X=X.iloc[:30], fh=range(1, 11))
    direct = bp.LSSVR().fit(X.iloc[:30], y["y"].iloc[:30]).predict_distribution(X.iloc[30:])
    assert_allclose(forecaster.predict_quantiles(X=X.iloc[30:], alpha=[0.1, 0.9]), direct.ppf([[0.1], [0.9]]).T)

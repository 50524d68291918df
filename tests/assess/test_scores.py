"""Scores against closed forms and brute force."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import xarray as xr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bsvr_pp as bp
from bsvr_pp.assess.assessment import calibration_error
from tests.helpers import process_model


def prediction(targets, quantiles=(0.025, 0.1, 0.9, 0.975)):
    """A prediction of standard normals, made by hand."""
    levels, n = np.array(quantiles), len(targets)
    data = {
        "f_mean": ("obs_new", np.zeros(n)),
        "y_quantile": (("quantile", "obs_new"), np.repeat(norm.ppf(levels)[:, None], n, 1)),
        "y_log_density": ("obs_new", norm.logpdf(targets)),
        "y_cdf": ("obs_new", norm.cdf(targets)),
        "y_crps": ("obs_new", np.arange(n) / 10),
    }
    return xr.Dataset(data, coords={"quantile": levels, "y_new": ("obs_new", targets)})


def test_scores_of_a_standard_normal():
    y = np.array([-1.3, 0.4, 1.5, -2.5])
    found = bp.scores(prediction(y), y)
    assert found == {
        "ase": pytest.approx(np.mean(y**2)),
        "aae": pytest.approx(np.mean(np.abs(y))),
        "mlpd": pytest.approx(norm.logpdf(y).mean()),
        "crps": pytest.approx(0.15),
        "coverage 80 %": 0.25,
        "coverage 95 %": 0.75,
        "calibration error": pytest.approx(calibration_error(norm.cdf(y))),
    }
    with pytest.raises(ValueError, match="y must be the targets that predict was given as y_new"):
        bp.scores(prediction(y), y + 0.1)
    with pytest.raises(ValueError, match=r"with the density of the targets"):
        bp.scores(prediction(y).drop_vars("y_log_density"), y)
    for missing, ends in ((1, "0.1 and 0.9"), (3, "0.025 and 0.975")):
        with pytest.raises(ValueError, match=f"must have the quantiles {ends}, for the coverage"):
            bp.scores(prediction(y, np.delete([0.025, 0.1, 0.9, 0.975], missing)), y)


def test_calibration_error_is_the_distance_of_distribution_functions():
    rng = np.random.default_rng(0)
    pit = rng.beta(2.0, 1.0, 40)
    u = (np.arange(200_000) + 0.5) / 200_000
    share = np.searchsorted(np.sort(pit), u, side="right") / pit.size
    assert calibration_error(pit) == pytest.approx(np.mean(np.abs(share - u)), abs=1e-4)
    perfect = [calibration_error(rng.random(100)) for _ in range(300)]
    assert np.mean(perfect) == pytest.approx(0.31 / 10, rel=0.1)


def test_labels_have_an_error_rate():
    X = np.linspace(-2, 2, 12)[:, None]
    model = process_model(bp.SVMLabel, X, C=2.0, observed=np.sign(X[:, 0]))
    result = bp.fit(bp.Laplace(), model, progressbar=False)
    prediction = bp.predict(result, [[-1.5], [1.5]], model=model, y_new=[-1.0, -1.0])
    found = bp.scores(prediction, [-1.0, -1.0])
    assert found["error rate"] == 0.5
    assert set(found) == {"error rate", "mlpd"}


def test_scorers_take_a_search_in_a_pipeline_and_a_pipeline_in_a_search():
    X = np.linspace(-3, 3, 30)[:, None]
    y = np.sin(X[:, 0])
    machine, values = bp.LSSVR(lengthscale=1.0), [100.0]
    searches = [
        make_pipeline(StandardScaler(), GridSearchCV(machine, {"gamma": values}, cv=3)),
        GridSearchCV(make_pipeline(StandardScaler(), machine), {"lssvr__gamma": values}, cv=3),
    ]
    found = [bp.scorers.log_density(search.fit(X, y), X, y) for search in searches]
    plain = make_pipeline(StandardScaler(), bp.LSSVR(gamma=100.0, lengthscale=1.0)).fit(X, y)
    assert found == pytest.approx([bp.scorers.log_density(plain, X, y)] * 2)


def test_weights_of_scorers_are_requested():
    X = np.linspace(-3, 3, 30)[:, None]
    y, weight = np.sin(5 * X[:, 0]), 0.5 + np.arange(30) / 30
    machine = bp.LSSVR(gamma=10.0, lengthscale=1.0)

    def scores(scorer):
        with sklearn.config_context(enable_metadata_routing=True):
            fitted = clone(machine).set_fit_request(sample_weight=True)
            return cross_val_score(fitted, X, y, cv=KFold(2), params={"sample_weight": weight}, scoring=scorer)

    with pytest.raises(RuntimeError, match=r"needs sklearn.set_config\(enable_metadata_routing=True\)"):
        bp.scorers.neg_crps.set_score_request(sample_weight=True)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer, no_scorer = (bp.scorers.neg_crps.set_score_request(sample_weight=each) for each in (True, False))
    scorer = pickle.loads(pickle.dumps(scorer))
    assert pickle.loads(pickle.dumps(bp.scorers.neg_crps)) is bp.scorers.neg_crps
    parts = [(half, ~half) for half in (np.arange(30) >= 15, np.arange(30) < 15)]
    fits = [(bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X[a], y[a], weight[a]), b) for a, b in parts]
    expected = [-np.average(each.predict_distribution(X[b]).crps(y[b]), weights=weight[b]) for each, b in fits]
    np.testing.assert_allclose(scores(scorer), expected)
    assert not np.allclose(scores(no_scorer), expected)
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        scores(bp.scorers.neg_crps)


@pytest.mark.parametrize("scorer", [bp.scorers.log_density, bp.scorers.neg_crps])
def test_scorers_take_a_column(scorer):
    X = np.linspace(-3, 3, 12)[:, None]
    y = np.sin(X[:, 0])
    machine = bp.LSSVR(gamma=10.0, lengthscale=1.0).fit(X, y)
    assert scorer(machine, X, pd.DataFrame({"y": y})) == scorer(machine, X, y[:, None]) == scorer(machine, X, y)

"""A fit is a value: decided once, made once, and all that predictions need."""

import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.estimators import training_data
from bsvr_pp.inference.prediction import neighbours
from bsvr_pp.inference.protocol import Integrates, MatchesMoments
from bsvr_pp.model.problem import Problem

FAST = {"restarts": 1, "random_state": 0}
NEW = np.array([[-1.0], [0.3], [2.0]])


def wave(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 1))
    return X, np.sin(X[:, 0]) + 0.05 * rng.laplace(size=n)


def kernel(X):
    return pm.HalfNormal("amplitude", 1.0) ** 2 * pm.gp.cov.ExpQuad(X.shape[1], ls=pm.InverseGamma("ls", 3, 1))


def counted(monkeypatch):
    """Count the problems, trees, standardisations and compiled functions that are made."""
    found = dict.fromkeys(("problems", "trees", "standardisations", "compiled"), 0)
    places = (Problem, "__init__"), (neighbours, "cKDTree"), (training_data, "mean_and_deviation")

    def counting(name, function):
        def call(*given, **options):
            found[name] += 1
            return function(*given, **options)

        return call

    for name, (owner, attribute) in zip(found, (*places, (Problem, "compile_on")), strict=True):
        monkeypatch.setattr(owner, attribute, counting(name, getattr(owner, attribute)))
    return found


@pytest.mark.slow_cases("function", "integrated", "dense")
@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf"}, {"kernel": kernel}, {"kernel": "rbf", "blocks": 30}, {"inference": bp.Integrated()}],
    ids=["dense", "function", "blocks", "integrated"],
)
def test_predictions_make_and_compile_nothing(options, monkeypatch):
    X, y = wave(210 if options == {"kernel": "rbf"} else 60)
    svr = bp.BayesianSVR(**FAST | options).fit(X, y)
    made = counted(monkeypatch)
    interval = svr.predict_interval(NEW)
    assert svr.predict(NEW, return_std=True)[1].shape == (3,) and not any(made.values())
    again = pickle.loads(pickle.dumps(svr))
    np.testing.assert_allclose(again.predict_interval(NEW), interval, rtol=1e-9)
    made.update(dict.fromkeys(made, 0))
    again.predict_interval(NEW)
    assert not any(made.values())


@pytest.mark.slow
def test_a_kernel_function_is_one_model_of_its_rows(monkeypatch):
    calls = []

    def seen(X):
        calls.append(X.shape)
        return kernel(X)

    svr = bp.BayesianSVR(kernel=seen, **FAST).fit(*wave())
    svr.predict_interval(NEW)
    assert svr.dual_coef_.shape == (40,) and svr.result_.attrs["loss"] == "soft_insensitive"
    assert calls == [(40, 1)]
    assert len(svr.add([[0.5]], [0.4]).predict(NEW)) == 3 and calls == [(40, 1), (41, 1)]


def test_dense_or_blocks_is_decided_once():
    """Rows that are set aside leave fewer than a block has."""
    X, y = wave(62)
    y[[3, 20, 40]] += 50.0
    with pytest.warns(UserWarning, match="rows 3, 20, 40"):
        svr = bp.BayesianSVR(blocks=60, **FAST).fit(X, y)
    assert (len(svr.blocks_), svr.blocks_.n, svr.kernel_) == (1, 59, "rational_quadratic")
    assert svr.neighbours_ is not None
    loaded = bp.BayesianSVR.from_result(svr.result_)
    np.testing.assert_allclose(loaded.predict_interval(NEW), svr.predict_interval(NEW))
    assert len(loaded.blocks_) == 1 and loaded.add(NEW, np.sin(NEW[:, 0])).blocks_.n == 62


@pytest.mark.slow
def test_neighbours_are_of_fits_in_blocks():
    X, y = wave()
    dense = bp.BayesianSVR(**FAST).fit(X, y)
    expected = dense.predict_interval(NEW), dense.sample_y(NEW)
    given = bp.BayesianSVR(blocks=bp.LocalBlocks(neighbours=5), **FAST).fit(X, y)
    for svr in (given, dense.set_params(blocks=bp.LocalBlocks(20, neighbours=5))):
        np.testing.assert_array_equal(svr.predict_interval(NEW), expected[0])
        np.testing.assert_array_equal(svr.sample_y(NEW), expected[1])
        assert svr.neighbours_ is None


@pytest.mark.slow
def test_rows_of_a_logarithm_are_set_aside_on_its_scale():
    X, y = wave(seed=2)
    y[[4, 9]] += [8.0, 9.0]
    with pytest.warns(UserWarning, match="rows 4, 9"):
        plain = bp.BayesianSVR(**FAST).fit(X, y)
    with pytest.warns(UserWarning, match="rows 4, 9"):
        logs = bp.BayesianSVR(log_targets=True, **FAST).fit(X, np.exp(y))
    np.testing.assert_allclose(logs.predict(NEW), np.exp(plain.predict(NEW)), rtol=1e-6)
    kept = ~np.isin(np.arange(40), [4, 9])
    found, expected = (svr._fit.given_others(svr._fit.units.inputs(X), kept, svr._local()) for svr in (logs, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_warning_that_is_an_error_leaves_the_fit():
    X, y = wave()
    svr = bp.BayesianSVR(inference="mean_field", **FAST).fit(X, y)
    before, expected = svr._fit, svr.predict(NEW)
    y[3] = 50.0
    with warnings.catch_warnings(action="error"), pytest.raises(UserWarning, match="rows 3"):
        svr.fit(X + 1.0, y)
    assert svr._fit is before
    np.testing.assert_array_equal(svr.predict(NEW), expected)


@pytest.mark.slow
def test_a_result_has_the_options_of_its_fit():
    X, y = wave()
    svr = bp.BayesianSVR(kernel="rbf", **FAST).fit(X, y)
    with_words = bp.BayesianSVR(kernel="rbf", **FAST).fit(pd.DataFrame({"x": X[:, 0], "g": list("ab") * 20}), y)
    before = with_words.predict(new := pd.DataFrame({"x": [0.0], "g": ["a"]}))
    np.testing.assert_array_equal(with_words.set_params(kernel="precomputed").predict(new), before)
    svr.set_params(noise="pinball", log_targets=True, kernel="linear", noise_scales=False)
    expected = svr.add([[1.0]], [0.8]).predict_interval(NEW)
    loaded = bp.BayesianSVR.from_result(svr.result_)
    np.testing.assert_allclose(loaded.predict_interval(NEW), expected)
    assert (loaded.noise, loaded.log_targets, loaded.kernel) == ("auto", False, "rbf")
    assert loaded.noise_scales is False  # an option of predictions


@pytest.mark.slow
def test_what_is_written_into_attributes_and_the_result_changes_no_prediction():
    X, y = wave()
    for made, targets, fast in ((bp.BayesianSVR, y, FAST), (bp.BayesianSVC, y > 0, {"random_state": 0})):
        fitted = made(kernel="rbf", **fast).fit(X, targets)
        before, result = fitted.predict(NEW), fitted.result_
        loaded = made.from_result(result)
        for name in ("mean_", "scale_", *(["classes_"] if made is bp.BayesianSVC else [])):
            getattr(fitted, name)[...] = 0
        for group in ("rows", "constant_data"):
            for array in result[group].data_vars.values():
                array.values[...] = 0
        np.testing.assert_array_equal([fitted.predict(NEW), loaded.predict(NEW)], [before, before])


@pytest.mark.slow
def test_sampled_hyperparameters_of_ordered_classes_predict():
    X, y = wave()
    method = bp.NUTS(latent=bp.MeanField(), draws=10, tune=10, chains=1)
    svc = bp.BayesianOrdinalSVC(kernel="rbf", inference=method, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        svc.fit(X, np.digitize(y, [-0.5, 0.5]))
    np.testing.assert_allclose(svc.predict_proba(NEW).sum(axis=1), 1.0)
    again = bp.BayesianOrdinalSVC.from_result(svc.result_)
    np.testing.assert_allclose(again.predict_proba(NEW), svc.predict_proba(NEW))


def test_a_method_of_ones_own_that_integrates_or_matches_moments_is_asked_by_its_protocol():
    @dataclass(frozen=True)
    class AtOptimum(bp.Integrated):
        name = "the optimum"

        def around(self, problem, given, found, rng):
            return found

    X, y = wave(210)
    alone = bp.BayesianSVR(inference=AtOptimum(), kernel="rbf", restarts=2, random_state=0).fit(X[:40], y[:40])
    point = bp.BayesianSVR(inference="mean_field", kernel="rbf", restarts=2, random_state=0).fit(X[:40], y[:40])
    np.testing.assert_array_equal(alone.predict(X), point.predict(X))
    with pytest.raises(ValueError, match="the optimum takes a dense fit, and 210 rows need blocks"):
        bp.BayesianSVR(inference=AtOptimum(), blocks=30).fit(X, y)
    assert isinstance(bp.MeanField(), MatchesMoments) and not isinstance(bp.Laplace(), MatchesMoments)
    assert isinstance(bp.Integrated(), Integrates) and not isinstance(bp.MeanField(), Integrates)

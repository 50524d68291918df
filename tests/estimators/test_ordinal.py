"""The classifier of ordered classes: any labels, probabilities, decisions, scikit-learn's conventions."""

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (50, 2))
LATENT = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=50)
Y = np.digitize(LATENT, [-0.4, 0.4])
OPTIONS = {"kernel": "rbf", "restarts": 1, "random_state": 0}


@pytest.fixture(scope="module")
def svc():
    return bp.BayesianOrdinalSVC(**OPTIONS).fit(X, Y)


@pytest.mark.slow
def test_classes_are_found_and_probabilities_agree(svc):
    assert svc.converged_
    new = np.array([[-1.5, 0.0], [0.0, 0.0], [1.5, 0.0]])
    probability = svc.predict_proba(new)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    np.testing.assert_array_equal(svc.predict_log_proba(new), np.log(probability))
    assert svc.predict(new).tolist() == [0, 1, 2]
    assert svc.score(X, Y) > 0.8
    assert (np.diff(svc.cutpoints_) > 0).all() and svc.lengthscale_.shape == (2,)
    assert svc.relevance_[0] > svc.relevance_[1]


def test_labels_of_any_kind(svc):
    numbers = np.array([10, 20, 35])
    other = bp.BayesianOrdinalSVC(**OPTIONS).fit(X, numbers[Y])
    np.testing.assert_array_equal(other.predict(X), numbers[svc.predict(X)])


def test_the_reverse_order_has_the_same_probabilities():
    y = np.digitize(LATENT, [0.2, 0.9])
    up, down = (bp.BayesianOrdinalSVC(**OPTIONS).fit(X, labels) for labels in (y, -y))
    np.testing.assert_allclose(up.predict_proba(X), down.predict_proba(X)[:, ::-1], atol=1e-3)
    assert up.log_evidence_ == pytest.approx(down.log_evidence_, abs=1e-2)


@pytest.mark.slow
def test_words_are_sorted_with_a_warning_unless_their_order_is_known(svc):
    words = np.array(["0 low", "1 mid", "2 high"])
    known = pd.Series(pd.Categorical(words[Y], [*words, "3 none"], ordered=True))
    np.testing.assert_array_equal(bp.BayesianOrdinalSVC(**OPTIONS).fit(X, known).predict(X), words[svc.predict(X)])
    with pytest.warns(UserWarning, match="order of the classes is that of their names, high < low < mid: numbers"):
        bp.BayesianOrdinalSVC(**OPTIONS).fit(X, np.array(["low", "mid", "high"])[Y])
    with pytest.warns(UserWarning, match="order of the classes is that of their names, H < L < M: numbers"):
        bp.BayesianOrdinalSVC(**OPTIONS).fit(X, np.array(["L", "M", "H"])[Y])
    assert bp.BayesianOrdinalSVC(**OPTIONS).fit(X, np.array(["A", "B", "D"])[Y]).classes_.tolist() == ["A", "B", "D"]


def test_median_and_mode_differ_where_they_should(svc):
    mode = bp.BayesianOrdinalSVC(decision="mode", **OPTIONS).fit(X, Y)
    grid = np.column_stack([np.linspace(-3, 3, 200), np.zeros(200)])
    probability = svc.predict_proba(grid)
    np.testing.assert_array_equal(mode.predict(grid), probability.argmax(axis=1))
    below = np.cumsum(probability, axis=1)
    np.testing.assert_array_equal(svc.predict(grid), (below < 0.5).sum(axis=1))


@pytest.mark.slow
def test_other_inference_and_noise():
    gaussian = bp.BayesianOrdinalSVC("gaussian", inference="laplace", **OPTIONS).fit(X, Y)
    assert gaussian.score(X, Y) > 0.8 and np.isfinite(gaussian.log_evidence_)
    assert gaussian.result_.attrs["targets"] == "ordinal"


def test_two_classes_are_enough():
    two = bp.BayesianOrdinalSVC(**OPTIONS).fit(X, Y > 0)
    assert two.cutpoints_.shape == (1,) and two.predict_proba(X).shape == (50, 2)


@pytest.mark.slow
def test_hyperparameters_are_integrated_out(svc):
    """Before, the option was ignored."""
    averaged = bp.BayesianOrdinalSVC(inference=bp.Integrated(points=30, kept=4), **OPTIONS).fit(X, Y)
    assert len(averaged._fit.fitted.points) > 1 and averaged.log_evidence_ == svc.log_evidence_
    found = averaged.predict_proba(X)
    assert not np.allclose(found, svc.predict_proba(X), atol=1e-3)
    again = bp.BayesianOrdinalSVC.from_result(averaged.result_)
    np.testing.assert_allclose(again.predict_proba(X), found, atol=1e-12)
    effects = [bp.effect(each, X, 0, values=3, rows=9)["sd"] for each in (averaged, svc)]
    np.testing.assert_array_equal(*effects)

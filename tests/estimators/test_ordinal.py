"""The classifier of ordered classes: any labels, probabilities, decisions, scikit-learn's conventions."""

import numpy as np
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


def test_classes_are_found_and_probabilities_agree(svc):
    assert svc.converged_
    new = np.array([[-1.5, 0.0], [0.0, 0.0], [1.5, 0.0]])
    probability = svc.predict_proba(new)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert svc.predict(new).tolist() == [0, 1, 2]
    assert svc.score(X, Y) > 0.8
    assert (np.diff(svc.cutpoints_) > 0).all() and svc.lengthscale_.shape == (2,)
    assert svc.relevance_[0] > svc.relevance_[1]


def test_labels_of_any_kind(svc):
    for labels in (np.array(["a", "b", "c"]), np.array([10, 20, 35])):
        other = bp.BayesianOrdinalSVC(**OPTIONS).fit(X, labels[Y])
        np.testing.assert_array_equal(other.predict(X), labels[svc.predict(X)])


def test_median_and_mode_differ_where_they_should(svc):
    mode = bp.BayesianOrdinalSVC(decision="mode", **OPTIONS).fit(X, Y)
    grid = np.column_stack([np.linspace(-3, 3, 200), np.zeros(200)])
    probability = svc.predict_proba(grid)
    np.testing.assert_array_equal(mode.predict(grid), probability.argmax(axis=1))
    below = np.cumsum(probability, axis=1)
    np.testing.assert_array_equal(svc.predict(grid), (below < 0.5).sum(axis=1))


def test_other_inference_and_noise():
    gaussian = bp.BayesianOrdinalSVC("gaussian", inference="laplace", **OPTIONS).fit(X, Y)
    assert gaussian.score(X, Y) > 0.8 and np.isfinite(gaussian.log_evidence_)
    assert gaussian.result_.attrs["targets"] == "ordinal"


def test_two_classes_are_enough():
    two = bp.BayesianOrdinalSVC(**OPTIONS).fit(X, Y > 0)
    assert two.cutpoints_.shape == (1,) and two.predict_proba(X).shape == (50, 2)

"""Committees: optima of the hyperparameters whose predictions are averaged."""

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.model.problem import read_model


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20, 2))
    return bp.default_model(X, np.sin(2 * X[:, 0]) + 0.6 * rng.laplace(size=20))


def test_a_committee_predicts_the_average_of_its_members(model, tmp_path):
    result = bp.fit(bp.Committee(), model, restarts=4, random_seed=0, progressbar=False)
    assert result.attrs["inference"] == "committee (mean field)"
    members = result["committee"].to_dataset()
    weights = members["weight"].values
    assert weights.size > 1 and weights.sum() == pytest.approx(1.0)
    new = np.random.default_rng(0).normal(size=(7, 2))
    means, variances = [], []
    for i in range(weights.size):
        at = {name: members[name].values[i] for name in read_model(model).hyperparameters}
        alone = bp.fit(bp.MeanField(), model, hyperparameters=at, random_seed=0, progressbar=False)
        found = bp.predict(alone, new, model=model)
        means.append(found["f_mean"].values)
        variances.append(found["f_variance"].values)
    mean = weights @ np.array(means)
    variance = weights @ (np.array(variances) + (np.array(means) - mean) ** 2)
    bp.save(result, tmp_path / "committee.nc")
    for tree in (result, bp.load(tmp_path / "committee.nc")):
        found = bp.predict(tree, new, model=model)
        np.testing.assert_allclose(found["f_mean"], mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found["f_variance"], variance, rtol=1e-6)


def test_a_committee_at_given_hyperparameters_has_one_member(model):
    point = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)["posterior"].to_dataset()
    at = {name: point[name].values[0, 0] for name in read_model(model).hyperparameters}
    options = {"hyperparameters": at, "random_seed": 0, "progressbar": False}
    committee, alone = (bp.fit(method, model, **options) for method in (bp.Committee(), bp.MeanField()))
    assert "committee" not in committee.children
    assert committee.attrs["log_evidence"] == alone.attrs["log_evidence"]

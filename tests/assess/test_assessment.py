"""Draws of hyperparameters of a result, and distances of marginals, against closed forms and brute force."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import uniform

from bsvr_pp.assess.assessment import hyperparameter_draws, marginal_distances


def test_distances_of_few_draws_by_hand():
    """Shares in tenths of the reference, each with half a draw more, against the mean of equal distributions."""
    reference, draws = np.arange(40.0), np.r_[np.linspace(0.3, 5.2, 28), 20.1, 38.0]
    distance, kl = marginal_distances(reference + 3.0, reference)
    assert distance == pytest.approx(3.0 / reference.std(ddof=1))
    assert kl == 0.0
    counts = np.histogram(draws, [-1, *np.quantile(reference, np.arange(1, 10) / 10), 50])[0]
    p, q = np.full(10, 4.5) / 45, (counts + 0.5) / 35
    expected = np.sum(p * np.log(p / q)) - 0.5 * 9 * (1 / 40 + 1 / 30)
    assert expected > 0.1
    assert marginal_distances(draws, reference)[1] == pytest.approx(expected)


def result_of(posterior, **groups):
    dims = {1: ("chain", "draw"), 2: ("chain", "draw", "element"), 3: ("chain", "draw", "obs")}
    held = xr.Dataset({name: (dims[kind], values) for name, (kind, values) in posterior.items()})
    sets = {name: xr.Dataset({k: ("obs", v) for k, v in group.items()}) for name, group in groups.items()}
    tree = xr.DataTree.from_dict({"posterior": held, **sets})
    tree.attrs |= {"hyperparameters": '["C", "lengthscale"]', "derived": "[]", "latent": "f"}
    return tree


def test_each_element_of_a_vector_has_its_draws():
    scales, C = np.arange(12.0).reshape(2, 3, 2), np.arange(6.0).reshape(2, 3)
    held = {"lengthscale": (2, scales), "C": (1, C), "f": (3, np.zeros((2, 3, 4)))}
    found = hyperparameter_draws(result_of(held, latent_posterior={"mean": np.zeros(4)}))
    assert {entry: x.tolist() for entry, x in found.items()} == {
        "C": [0, 1, 2, 3, 4, 5],
        "lengthscale[0]": [0, 2, 4, 6, 8, 10],
        "lengthscale[1]": [1, 3, 5, 7, 9, 11],
    }
    point = hyperparameter_draws(result_of(held, latent_posterior={"dual_coef": np.zeros(4)}))
    assert {entry: x.tolist() for entry, x in point.items()} == {
        "C": [0],
        "lengthscale[0]": [0],
        "lengthscale[1]": [1],
    }


def test_distances_of_normals():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=20_000)
    shift, kl = marginal_distances(rng.normal(0.5, 1.0, 20_000), reference)
    assert shift == pytest.approx(0.5, abs=0.03)
    # Between tenths of the reference a little of KL = ½·0.5² is lost.
    assert kl == pytest.approx(0.125, abs=0.015)
    same = [marginal_distances(rng.normal(size=300), rng.normal(size=300))[1] for _ in range(100)]
    assert np.mean(same) < 0.015


def test_distances_of_points():
    reference = uniform.rvs(size=5000, random_state=1)
    distance, kl = marginal_distances(np.array([0.0]), reference)
    assert distance == pytest.approx(0.5 * np.sqrt(12), rel=0.03)
    assert np.isnan(kl)
    assert np.isnan(marginal_distances(reference, np.array([0.0]))).all()


def test_draws_of_hyperparameters(sinc_results):
    assert {entry: x.size for entry, x in hyperparameter_draws(sinc_results["Laplace"]).items()} == {
        "C": 1,
        "amplitude": 1,
        "epsilon": 1,
        "lengthscale": 1,
    }
    assert hyperparameter_draws(sinc_results["NUTS"])["C"].size == 300

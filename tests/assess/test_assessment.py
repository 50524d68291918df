"""Draws of hyperparameters of a result."""

import numpy as np
import xarray as xr

from bsvr_pp.assess.assessment import hyperparameter_draws


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
    assert {entry: x.tolist() for entry, x in point.items()} == {"C": [0], "lengthscale[0]": [0], "lengthscale[1]": [1]}


def test_draws_of_hyperparameters(sinc_results):
    found = hyperparameter_draws(sinc_results["Laplace"])
    assert {entry: x.size for entry, x in found.items()} == dict.fromkeys(
        ("C", "amplitude", "epsilon", "lengthscale"), 1
    )
    assert hyperparameter_draws(sinc_results["NUTS"])["C"].size == 300

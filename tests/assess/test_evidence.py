"""The evidence of a model by each method."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import bsvr_pp as bp
from bsvr_pp.inference.protocol import to_record

AT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 8.0, "epsilon": 0.1}


def test_methods_agree_and_annealing_says_how_well_it_knows(sinc_model):
    model, _ = sinc_model
    truth = bp.log_evidence(bp.Annealed(), model, hyperparameters=AT, random_seed=1)
    assert 0 < truth.standard_error < 0.03
    field = bp.log_evidence(bp.MeanField(), model, hyperparameters=AT)
    assert field.standard_error == 0.0
    assert field.value == pytest.approx(truth.value, abs=0.3)
    assert bp.log_evidence(bp.Laplace(), model, hyperparameters=AT).value == pytest.approx(truth.value, abs=5.0)
    assert truth == bp.log_evidence(bp.Annealed(), model, hyperparameters=AT, random_seed=1)


def test_gaussian_noise_is_exact():
    X, y = np.linspace(-2, 2, 12)[:, None], np.sin(np.linspace(-2, 2, 12))
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        pm.Normal("y", mu=f, sigma=0.3, observed=y)
    S = np.exp(-0.5 * (X - X.T) ** 2) + (0.09 + 1e-6) * np.eye(12)
    exact = -0.5 * np.linalg.slogdet(2 * np.pi * S)[1] - 0.5 * y @ np.linalg.solve(S, y)
    for method in (bp.Laplace(), bp.MeanField()):
        assert bp.log_evidence(method, model).value == pytest.approx(exact, abs=1e-7)
    found = bp.log_evidence(bp.Annealed(), model, random_seed=0)
    assert found.value == pytest.approx(exact, abs=4 * found.standard_error)

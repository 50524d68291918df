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
from tests.helpers import process_model


def test_gaussian_noise_is_exact():
    X, y = np.linspace(-2, 2, 12)[:, None], np.sin(np.linspace(-2, 2, 12))
    model = process_model(pm.Normal, X, sigma=0.3, observed=y)
    S = np.exp(-0.5 * (X - X.T) ** 2) + (0.09 + 1e-6) * np.eye(12)
    exact = multivariate_normal(cov=S).logpdf(y)
    for method in (bp.Laplace(), bp.MeanField()):
        assert bp.log_evidence(method, model).value == pytest.approx(exact, abs=1e-7)
    found = bp.log_evidence(bp.Annealed(), model, random_seed=0)
    assert found.value == pytest.approx(exact, abs=4 * found.standard_error)


@pytest.mark.slow_cases("NUTS (mean field)", "NUTS")
@pytest.mark.parametrize("method", [bp.NUTS(), bp.NUTS(bp.MeanField()), bp.NUTS(bp.Laplace())], ids=lambda m: m.name)
def test_integrated_evidence_is_that_of_quadrature(method):
    """One hyperparameter, Gaussian noise: p(y) by quadrature over its log, from draws of its exact posterior."""
    X = np.linspace(-2, 2, 10)[:, None]
    y = np.sin(2 * X[:, 0])
    model = process_model(pm.Normal, X, ls=lambda: pm.LogNormal("lengthscale", 0.0, 1.0), sigma=0.2, observed=y)
    log_scale = np.linspace(-5, 5, 1001)
    distance = (X - X.T) ** 2
    values = []
    for t in log_scale:
        K = np.exp(-0.5 * distance / np.exp(2 * t)) + (1e-6 + 0.04) * np.eye(10)
        values.append(multivariate_normal(np.zeros(10), K).logpdf(y) + norm.logpdf(t))
    expected = logsumexp(values) + np.log(log_scale[1] - log_scale[0])
    share = np.exp(values - logsumexp(values))
    draws = np.exp(np.random.default_rng(0).choice(log_scale, p=share, size=(2, 150)))
    sampled = xr.DataTree.from_dict({"posterior": xr.Dataset({"lengthscale": (("chain", "draw"), draws)})})
    sampled.attrs |= {"inference": method.name, "method": json.dumps(to_record(method))}
    found = bp.integrated_evidence(sampled, model=model, draws=200, random_seed=1)
    assert found.value == pytest.approx(expected, abs=4 * found.standard_error + 1e-3)
    assert found.standard_error < 0.1
    assert found.converged

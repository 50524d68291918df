"""Methods: their options are checked, results carry them as records, and a method of a user's own works everywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import laplace
from bsvr_pp.inference.approximate import at_optimum
from bsvr_pp.inference.protocol import Anneals, Integrates, IntegratesLatent, Method, Normalises, Samples, to_record
from bsvr_pp.methods import METHODS, from_record, make_method, method_of
from tests.helpers import process_model


def test_names_are_unique():
    methods = [make_method(key) for key in METHODS]
    assert len({m.name for m in methods}) == len(methods)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_method("vb"), "method must be one of map, laplace, .*got 'vb'"),
        (lambda: from_record({"method": "Popen", "module": "subprocess"}), "method 'Popen' of subprocess is not known"),
        (lambda: from_record({"method": "Fitted", "module": "bsvr_pp.inference.fitted"}), "'Fitted' .* is not known"),
    ],
)
def test_methods_that_are_unknown_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("key", METHODS)
def test_a_record_in_a_file_gives_the_method_back(key):
    method = make_method(key)
    assert from_record(json.loads(json.dumps(to_record(method)))) == method


@pytest.mark.parametrize(
    ("method", "can"),
    [
        (bp.MAP(), (Method,)),
        (bp.Laplace(), (Method, IntegratesLatent)),
        (bp.MeanField(), (Method, IntegratesLatent)),
        (bp.Integrated(), (Method, Integrates)),
        (bp.NUTS(), (Method, Samples)),
        (bp.Annealed(), (Anneals,)),
        (bp.classification.NormalisedEvidence(), (Method, Normalises)),
        (bp.classification.Exchange(), (Method, Samples, Normalises)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_a_method_can_do_and_its_class_cannot(method, can):
    protocols = (Method, Integrates, IntegratesLatent, Anneals, Samples, Normalises)
    assert {each for each in protocols if isinstance(method, each)} == set(can)
    assert not isinstance(type(method), protocols)


@dataclass(frozen=True, slots=True)
class Exact(IntegratesLatent):
    """The exact Gaussian process, for Gaussian noise."""

    name: ClassVar[str] = "exact"
    run = at_optimum

    def solve(self, K, y, noise, mean):
        return laplace(K, y, noise, mean=mean)

    def evidence_graph(self, loss, K, mean, targets, parameters, start=None):
        y = targets.lower
        covariance = K.matrix + pt.eye(y.shape[0]) / parameters[0]
        value = pm.logp(pm.MvNormal.dist(mu=mean + pt.zeros_like(y), cov=covariance), y)
        return value, pt.constant(1.0), pt.zeros((2, y.shape[0]))


@pytest.fixture(scope="module")
def gaussian_model():
    X = np.linspace(-2, 2, 12)[:, None]
    y = np.sin(2 * X[:, 0])
    return process_model(pm.Normal, X, ls=lambda: pm.LogNormal("lengthscale", 0.0, 0.5), sigma=0.2, observed=y)


@pytest.mark.slow
def test_a_method_of_ones_own_chooses_hyperparameters_and_is_judged(gaussian_model, exactly):
    """For Gaussian noise it must agree with mean field, which is exact there."""
    options = {"model": gaussian_model, "random_seed": 0, "progressbar": False}
    results = {m.name: bp.fit(m, restarts=2, **options) for m in (Exact(), bp.MeanField())}
    own, field = results["exact"], results["mean field"]
    assert method_of(own) == Exact()
    np.testing.assert_allclose(own["posterior"]["lengthscale"], field["posterior"]["lengthscale"], rtol=1e-4)
    at = {"lengthscale": 1.0}
    values = [bp.log_evidence(m, gaussian_model, hyperparameters=at).value for m in (Exact(), bp.MeanField())]
    assert values[0] == pytest.approx(values[1], abs=1e-7)
    assert bp.loo(own, model=gaussian_model).elpd == pytest.approx(bp.loo(field, model=gaussian_model).elpd, abs=1e-3)
    table = bp.compare(results, model=gaussian_model, annealed=bp.Annealed(particles=20), k_hat=False)
    assert table.loc["exact", "evidence at theta"] == pytest.approx(table.loc["mean field", "evidence at theta"])
    new = [[0.3], [3.0]]
    mine, theirs = (bp.predict(result, new, model=gaussian_model) for result in (own, field))
    np.testing.assert_allclose(mine["y_variance"], theirs["y_variance"], rtol=1e-3)


@pytest.mark.slow
def test_nuts_runs_over_a_method_of_ones_own(gaussian_model):
    method = bp.NUTS(latent=Exact(), draws=100, tune=200, chains=2)
    result = bp.fit(method, gaussian_model, random_seed=1, progressbar=False)
    assert method_of(result) == method
    assert result.attrs["inference"] == "NUTS (exact)"
    verified = bp.verify(result, model=gaussian_model, draws=100, particles=100, random_seed=1, progressbar=False)
    assert np.median(np.abs(verified.log_ratio)) < 0.05  # its evidence is exact
    integrated = bp.integrated_evidence(result, model=gaussian_model, draws=50, random_seed=1)
    assert integrated.value < bp.log_evidence(Exact(), gaussian_model, hyperparameters={"lengthscale": 1.0}).value
    assert np.isfinite(bp.predict(result, [[0.3]], model=gaussian_model)["y_variance"]).all()

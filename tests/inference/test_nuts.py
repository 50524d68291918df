"""NUTS in coordinates whitened by mean field, and of the noise's scale and shape."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.sampling import nuts
from bsvr_pp.inference.sampling.nuts import sampled_model
from bsvr_pp.inference.search.optimize import Optimum
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.marginalize import LATENT_COORDINATES, NOISE_COORDINATES
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft
from tests.signals import interrupt_evidence

DATA = sinc(20, random_seed=4)


def build(noise=soft, C=lambda: pm.LogNormal("C", 1, 1), observed=DATA.y, **options):
    def kernel():
        return pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("lengthscale", 3, 3, **options)) + pm.gp.cov.Constant(2.0)

    return process_model(noise, DATA.X, kernel=kernel, C=C, observed=observed)


@pytest.mark.slow
def test_the_result_is_that_of_the_model():
    """The coordinates are not in the result; f and its prior coordinates are, and belong to each other."""
    model = build()
    result = bp.fit(bp.NUTS(draws=200, tune=200, chains=2), model, random_seed=1, progressbar=False)
    posterior = result["posterior"].to_dataset()
    assert set(posterior.data_vars) == {"lengthscale", "C", "f", "f_rotated_"}
    problem = read_model(model)
    point = {name: posterior[name].values[1, 7] for name in problem.hyperparameters}
    K, mean, _ = problem.at(point)
    f = mean + np.linalg.cholesky(K.dense()) @ posterior["f_rotated_"].values[1, 7]
    np.testing.assert_allclose(posterior["f"].values[1, 7], f, atol=1e-6)
    method = bp.NUTS(latent=bp.MeanField(), draws=200, tune=200, chains=2)
    field = bp.fit(method, model, random_seed=1, progressbar=False)
    for name in ("lengthscale", "C"):
        own, other = np.log(posterior[name].values), np.log(field["posterior"][name].values)
        assert own.mean() == pytest.approx(other.mean(), abs=0.25 * other.std())
    error = posterior["f"].values.mean(axis=(0, 1)) - field["posterior"]["f"].values.mean(axis=(0, 1))
    assert np.abs(error).max() <= 0.3 * posterior["f"].values.std(axis=(0, 1)).max()


def test_given_hyperparameters_leave_f_alone():
    at = {"lengthscale": 1.5, "C": 8.0}
    problem = read_model(pm.do(build(), at))
    assert [v.name for v in sampled_model(problem, None, False).free_RVs] == [LATENT_COORDINATES]


@pytest.mark.slow
def test_chains_start_at_the_optimum_of_mean_field():
    problem = read_model(model := bp.default_model(DATA.X, DATA.y, kernel="rbf"))
    start = sampled_model(problem, None, False).initial_point(0)
    found = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)["optima"].to_dataset().isel(optimum=0)
    assert start["amplitude_log__"] == pytest.approx(float(np.log(found["amplitude"])), abs=0.05)
    expected = 0.5 * np.log(soft_insensitive(float(found["C"]), float(found["epsilon"]), 0.8).variance)
    assert start[NOISE_COORDINATES[1]] == pytest.approx(expected, abs=0.05)
    assert "C_log__" not in start


def test_with_f_integrated_out_chains_start_at_the_first_point_of_the_model():
    model = bp.default_model(DATA.X, DATA.y, kernel="rbf")
    start = sampled_model(read_model(model), bp.MeanField(), False).initial_point(0)
    assert LATENT_COORDINATES not in start
    at = {name: float(np.exp(model.initial_point(0)[f"{name}_log__"])) for name in ("C", "epsilon")}
    assert start[NOISE_COORDINATES[0]] == pytest.approx(np.log(at["C"] * at["epsilon"]))
    assert start["amplitude_log__"] == pytest.approx(model.initial_point(0)["amplitude_log__"])


@pytest.mark.parametrize(
    "model",
    [build(initval=2.0), build(bp.SVMLabel, 1.0, np.sign(DATA.y))],
    ids=["initial values", "labels"],
)
def test_models_that_stay_as_they_are(model):
    assert sampled_model(read_model(model), None, False) is model


def test_a_failed_mean_field_leaves_the_model_as_it_is(monkeypatch):
    model = build()
    failed = bp.fit(bp.MeanField(), model, hyperparameters={"lengthscale": 1.0, "C": 1.0}, progressbar=False)
    assert failed.attrs["converged"]
    monkeypatch.setattr(nuts, "maximize", lambda *a, **k: [Optimum({}, -np.inf, False, "no evidence at the start", 1)])
    assert sampled_model(read_model(model), None, False) is model


def test_an_interruption_is_not_lost(monkeypatch):
    interrupt_evidence(monkeypatch, 5)  # of the search before sampling
    with pytest.raises(KeyboardInterrupt):
        sampled_model(read_model(build()), None, False)


@pytest.mark.slow
@pytest.mark.parametrize("latent", [None, bp.MeanField()])
def test_values_that_are_not_numbers_and_discrete_hyperparameters_cut_no_chain(latent):
    with pm.Model() as model:
        ls = 1.0 + pm.Bernoulli("k", 0.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X=DATA.X)
        C = pm.LogNormal("C", 1, 1)
        soft("y", f, C=C, observed=DATA.y)
        pm.Deterministic("root", pm.math.sqrt(C - 5.0))
    method = bp.NUTS(latent=latent, draws=60, tune=60, chains=2)
    with pytest.warns(UserWarning):
        result = bp.fit(method, model, random_seed=1, progressbar=False)
    drawn = result["posterior"].to_dataset()
    assert dict(drawn.sizes)["draw"] == 60 and drawn.sizes["chain"] == 2
    assert set(np.unique(drawn["k"])) <= {0, 1} and np.isnan(drawn["root"]).any()
    if latent is not None:
        with pytest.raises(bp.ModelError, match="the hyperparameter k is discrete"):
            bp.integrated_evidence(result, model=model)

"""`bp.NUTS()` takes every PyMC model, and its result says why other methods do not apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.methods import method_of
from bsvr_pp.model.reader import read_model
from tests.helpers import model_of, process_model

N = 10
X = np.linspace(-2.0, 2.0, N)[:, None]
Y = np.sin(X[:, 0])
METHOD = bp.NUTS(draws=40, tune=8, chains=2, cores=1, nuts_sampler="pymc")

pytestmark = [
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore::bsvr_pp.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*number of samples.*"),
]


def gp(**options: Any) -> Any:
    return bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, **options)


def exponential() -> None:
    pm.Normal("y", mu=pt.exp(gp()), sigma=0.3, observed=Y)


def student() -> None:
    pm.StudentT("y", nu=4, mu=gp(), sigma=pm.HalfNormal("s"), observed=Y)


def of_pymc() -> None:
    f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    pm.Bernoulli("y", logit_p=f, observed=(Y > 0).astype(int))


def one_number() -> None:
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=1.0)


def indicators() -> None:
    wide = pm.Bernoulli("wide", 0.1, shape=N)
    pm.StudentT("y", nu=4, mu=pm.Normal("mean"), sigma=pt.switch(wide, 3.0, 0.3), observed=Y)


def indicators_alone() -> None:
    wide = pm.Bernoulli("wide", 0.1)
    pm.StudentT("y", nu=4, sigma=pt.switch(wide, 3.0, 0.3), observed=Y)


def potential_alone() -> None:
    pm.Potential("p", -((pm.Normal("mean") - 1.0) ** 2))


def not_a_number() -> None:
    mean = pm.Normal("mean")
    pm.Deterministic("root", pt.sqrt(-abs(mean)))
    pm.Exponential("y", pt.exp(mean), observed=np.abs(Y) + 0.1)


REASONS: dict[Callable[[], None], str] = {
    exponential: "mu of y must be linear in latent functions and Gaussian variables, and Exp of f is not",
    student: "the noise of y is StudentT: use",
    of_pymc: "the noise of y is Bernoulli",
    one_number: "the targets y must have one axis, the rows, got 0 axes",
    indicators: "the noise of y is StudentT",
    indicators_alone: "the noise of y is StudentT",
    potential_alone: "the model must have an observed variable of f, the targets; it has none",
    not_a_number: "the noise of y is Exponential",
}


@pytest.mark.slow_cases("exponential", "student", "indicators", "of_pymc")
@pytest.mark.parametrize("build", REASONS, ids=lambda build: build.__name__)
def test_nuts_samples_what_other_methods_refuse(build: Callable[[], None]):
    model = model_of(build)
    with pytest.raises(ModelError) as refused:
        bp.fit(bp.MAP(), model, progressbar=False)
    assert REASONS[build] in str(refused.value)
    result = bp.fit(METHOD, model, progressbar=False, random_seed=1)
    assert result.attrs["other_methods"] == f"do not apply: {refused.value}"
    assert result.attrs["inference"] == "NUTS" and method_of(result) == METHOD
    assert {"converged", "r_hat", "message", "sampling_time", "bsvr_pp_version"} <= result.attrs.keys()
    free = {v.name for v in model.free_RVs}
    assert free <= set(result["posterior"].data_vars)
    assert result["posterior"].sizes["draw"] == METHOD.draws
    assert ("sample_stats" in result.children) == (build is not indicators_alone)  # steps without statistics
    assert ("log_likelihood" in result.children) == bool(model.observed_RVs)


@pytest.fixture(scope="module")
def named() -> tuple[pm.Model, Any]:
    """A model with names, and its result at a given hyperparameter."""

    def build() -> None:
        inputs = pm.Data("inputs", X)
        s = pm.HalfNormal("s")
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=inputs, dims="site")
        pm.StudentT("y", nu=4, mu=f, sigma=s, observed=Y, dims="site")

    model = model_of(build, coords={"site": [f"site {i}" for i in range(N)]})
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        return model, bp.fit(METHOD, model, hyperparameters={"s": 0.2}, progressbar=False, random_seed=1)


@pytest.mark.slow
def test_the_tree_is_that_of_pymc_under_the_names_of_the_model(named: Any, tmp_path: Any):
    _, result = named
    assert "s" not in result["posterior"] and result["constant_data"]["s"] == 0.2
    np.testing.assert_array_equal(result["constant_data"]["inputs"], X)
    assert result["observed_data"]["y"].dims == ("site",)
    assert result["log_likelihood"]["y"].dims == ("chain", "draw", "site")
    assert result["posterior"]["f"].sel(site="site 3").shape == (2, METHOD.draws)
    bp.save(result, tmp_path / "fit.nc")
    loaded = bp.load(tmp_path / "fit.nc")
    assert loaded.attrs["other_methods"] == result.attrs["other_methods"]
    assert loaded["posterior"].to_dataset().identical(result["posterior"].to_dataset())
    assert np.isfinite(az.loo(loaded).elpd)


@pytest.mark.slow
def test_the_draws_are_those_of_pymc_with_the_options(named: Any):
    model, result = named
    with pm.do(model, {"s": 0.2}):
        theirs = pm.sample(
            draws=40,
            tune=8,
            chains=2,
            cores=1,
            nuts={"target_accept": 0.9},
            nuts_sampler="pymc",
            random_seed=int(np.random.default_rng(1).integers(2**31)),
            progressbar=False,
            quiet=True,
        )
    np.testing.assert_array_equal(result["posterior"]["f"], theirs["posterior"]["f"])


@pytest.mark.parametrize(
    "call",
    [
        lambda result, model: bp.predict(result, X, model=model),
        lambda result, model: bp.predict_distribution(result, X, model=model),
        lambda result, model: bp.loo(result, model=model),
        lambda result, model: bp.loo_predict(result, model=model),
        lambda result, model: bp.compare({"one": result}),
        lambda result, model: bp.verify(result, model=model),
        lambda result, model: bp.plot_predictive({"one": result}, model=model),
        lambda result, model: bp.effect(result, X, 0, model=model),
    ],
)
def test_readers_of_results_refuse_with_the_reason(call: Any):
    made = model_of(student)
    with pytest.raises(ModelError) as refused:
        read_model(made)
    result = xr.DataTree(xr.Dataset(attrs={"inference": "NUTS", "other_methods": f"do not apply: {refused.value}"}))
    with pytest.raises(ModelError, match=r"the noise of y is StudentT: use bp\.SoftInsensitive"):
        call(result, made)


@pytest.mark.slow
def test_labels_are_sampled_by_their_naive_evidence_on_request_alone():
    def build() -> None:
        bp.SVMLabel("y", f=pt.exp(gp()), C=pm.HalfNormal("C"), observed=np.where(Y > 0, 1.0, -1.0))

    model = model_of(build)
    with pytest.raises(ModelError, match="Exp of f is not"):
        bp.fit(METHOD, model)
    assert "other_methods" in bp.fit(METHOD, model, evidence="naive", progressbar=False, random_seed=1).attrs


def test_mistakes_of_the_data_are_none_of_pymc():
    """A model that is understood, with wrong values, is not sampled."""
    with pm.Model() as model:
        pm.Normal("y", mu=gp(), sigma=0.3, observed=pm.Data("targets", np.where(Y > 0.9, np.inf, Y)))
    with pytest.raises(ModelError, match="y and X must be finite"):
        bp.fit(METHOD, model)


@pytest.mark.parametrize("method", [bp.MAP(), bp.Laplace(), bp.MeanField()])
def test_the_number_of_draws_of_a_point_method_is_an_option(method: Any):
    model = process_model(pm.Normal, X, sigma=0.3, observed=Y)
    few, same, other = (
        bp.fit(method, model, draws=7, random_seed=seed, progressbar=False)["posterior"]["f"] for seed in (1, 1, 2)
    )
    assert few.sizes["draw"] == 7
    np.testing.assert_array_equal(few, same)
    assert (few.values == other.values).all() == (method == bp.MAP())
    assert bp.fit(method, model, progressbar=False)["posterior"].sizes["draw"] == 500

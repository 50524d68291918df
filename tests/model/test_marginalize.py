"""Models without f: their density, draws and data, in every tool of PyMC, and the way back to f."""

import inspect
import warnings
from functools import partial
from unittest.mock import Mock

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.model.fgraph import clone_model
from scipy.stats import halfnorm, kstest, multivariate_normal

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.model.marginalize import source_of
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft

DATA = sinc(15, random_seed=2)
METHODS = [bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField()]
AT = {"lengthscale": np.array([1.5]), "C": 6.0}


def build(noise="soft", y=DATA.y, X=DATA.X):
    with pm.Model(coords={"row": range(len(X)), "input": ["x"]}) as model:
        lengthscale = pm.InverseGamma("lengthscale", 3, 3, dims="input")
        C = pm.LogNormal("C", 1, 1)
        inputs = pm.Data("X", X)
        cov = pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(2.0)
        f = bp.GP(cov_func=cov).prior("f", X=inputs)
        pm.Deterministic("twice", 2 * f)
        pm.Deterministic("scale", 1 / C)
        if noise == "soft":
            bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=y, dims="row")
        elif noise == "normal":
            pm.Normal("y", mu=f, sigma=1 / C, observed=y)
        elif noise == "laplace":
            pm.Laplace("y", mu=f, b=1 / C, observed=y)
        elif noise == "asymmetric":
            pm.AsymmetricLaplace("y", mu=f, b=C, q=0.3, observed=y)
    return model


NOISES = ["soft", "normal", "laplace", "asymmetric"]


@pytest.mark.slow_cases("soft-method4", "asymmetric-method3", "normal-method1", "soft-method5", "soft-method0")
@pytest.mark.parametrize(
    ("noise", "method"), [*((noise, bp.MeanField()) for noise in NOISES), *(("soft", each) for each in METHODS[:2])]
)
def test_the_density_is_the_evidence_times_the_priors(noise, method):
    model = build(noise)
    marginal = bp.marginalize(method, model)
    assert {v.name for v in marginal.free_RVs} == {"lengthscale", "C"}
    assert {v.name for v in marginal.deterministics} == {"scale"}
    unconstrained = {"lengthscale_log__": np.log(AT["lengthscale"]), "C_log__": np.log(6.0)}
    priors = model.compile_logp(vars=[model["lengthscale"], model["C"]], mode="FAST_COMPILE")(
        {**unconstrained, "f_rotated_": np.zeros(15)}
    )
    evidence = bp.log_evidence(method, model, hyperparameters=AT).value
    assert marginal.compile_logp(mode="FAST_COMPILE")(unconstrained) == pytest.approx(evidence + priors, rel=1e-9)


@pytest.mark.slow_cases("b and kappa", "q")
@pytest.mark.parametrize(
    ("likelihood", "good", "bad"),
    [
        (lambda f, p: pm.Normal("y", mu=f, sigma=p, observed=DATA.y), 0.2, -0.2),
        (lambda f, p: pm.AsymmetricLaplace("y", mu=f, b=p, kappa=p, observed=DATA.y), 1.2, -1.2),
        (lambda f, p: pm.AsymmetricLaplace("y", mu=f, b=5.0, q=p, observed=DATA.y), 0.4, 1.2),
        (lambda f, p: bp.Huber("y", mu=f, C=5.0, epsilon=p, observed=DATA.y), 0.1, -0.1),
        (lambda f, p: bp.SoftInsensitive("y", mu=f, C=5.0, epsilon=0.1, beta=p, observed=DATA.y), 0.5, 1.5),
    ],
    ids=["sigma", "b and kappa", "q", "epsilon", "beta"],
)
def test_noise_that_is_impossible_has_no_density(likelihood, good, bad):
    p = partial(pm.Normal, "p", 0.0, 1.0, initval=good)
    model = process_model(lambda _, f, p: likelihood(f, p), DATA.X, ls=1.5, p=p)
    marginal = bp.marginalize(bp.MeanField(), model)
    density = marginal.compile_logp(vars=marginal.observed_RVs)
    assert density({"p": bad}) == -np.inf and np.isfinite(density({"p": good}))
    with pytest.raises(ValueError, match="must be finite and"):
        bp.log_evidence(bp.MeanField(), model, hyperparameters={"p": bad})
    found = bp.fit(bp.MeanField(), model, progressbar=False)["posterior"]["p"].values.ravel()[0]
    assert np.isfinite(density({"p": found}))


def test_quantile_noise_is_pinball():
    """The loss table's density of the asymmetric Laplace distribution is PyMC's."""
    noise = read_model(build("asymmetric")).at(AT)[2]
    assert noise.name == "pinball"
    assert noise.parameters["quantile"] == pytest.approx(0.3)
    r = np.linspace(-2, 2, 9)
    expected = pm.logp(pm.AsymmetricLaplace.dist(mu=0.0, b=6.0, q=0.3), r).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(noise.log_density(r), expected, atol=1e-12)


@pytest.mark.slow
def test_draws_are_those_of_the_model():
    model = build(y=np.zeros(15))
    draws = [
        pm.sample_prior_predictive(400, model=m, random_seed=s, compile_kwargs={"mode": "FAST_COMPILE"})
        for s, m in enumerate((model, bp.marginalize(bp.MeanField(), model)))
    ]
    values = [d["prior_predictive"].to_dataset()["y"].values[0] for d in draws]
    assert kstest(values[0][:, 3], values[1][:, 3]).pvalue > 1e-3
    assert kstest(values[0][:, 3] - values[0][:, 4], values[1][:, 3] - values[1][:, 4]).pvalue > 1e-3


def test_find_map_is_the_optimum_of_fit():
    model = build()
    options = {"progressbar": False, "return_inferencedata": False}
    if "jitter" in inspect.signature(pm.find_MAP).parameters:  # earlier versions of PyMC have none
        options["jitter"] = False
    found = pm.find_MAP(model=bp.marginalize(bp.MeanField(), model), **options)
    # pm.find_MAP maximises without the transforms' Jacobian, as fit does.
    best = bp.fit(bp.MeanField(), model, restarts=2, random_seed=0, progressbar=False)["posterior"].to_dataset()
    assert float(found["C"]) == pytest.approx(float(best["C"][0, 0]), rel=1e-3)
    assert "f" not in found


@pytest.mark.slow
def test_sequential_monte_carlo_runs():
    marginal = bp.marginalize(bp.Laplace(curvature="local"), build())
    found = pm.sample_smc(draws=60, chains=1, cores=1, model=marginal, random_seed=1, progressbar=False)
    assert np.isfinite(found["posterior"].to_dataset()["C"].values).all()


def test_data_can_be_replaced():
    model = build()
    marginal = bp.marginalize(bp.MeanField(), model)
    point = {"lengthscale_log__": np.array([0.4]), "C_log__": np.array(1.8)}
    with marginal:
        pm.set_data({"X": 2 * DATA.X})
    expected = bp.marginalize(bp.MeanField(), build(X=2 * DATA.X)).compile_logp(mode="FAST_COMPILE")(point)
    assert marginal.compile_logp(mode="FAST_COMPILE")(point) == pytest.approx(expected, rel=1e-9)
    # The model that was marginalised keeps its own data, and f is recovered with the new.
    assert read_model(model).inputs[0, 0] == DATA.X[0, 0]
    draws = xr.Dataset({"C": (("chain", "draw"), [[6.0]]), "lengthscale": (("chain", "draw", "input"), [[[1.5]]])})
    samples = xr.DataTree.from_dict({"posterior": draws})
    dual = bp.recover_latent(samples, model=marginal, progressbar=False)["latent_draws"].to_dataset()["dual_coef"]
    K, mean, noise = read_model(build(X=2 * DATA.X)).at(AT)
    np.testing.assert_allclose(dual[0, 0], bp.MeanField().solve(K, DATA.y, noise, mean).dual_coef, rtol=1e-6)


@pytest.mark.slow
def test_data_that_change_the_structure_are_refused_where_the_density_is_computed():
    """B of B·f was diagonal, or had one entry in each row, and later data may be so as well, and else are refused."""
    for rows, later in ((np.arange(15), 2.0 * np.eye(15)), (np.arange(15) % 4, np.eye(4)[np.arange(15) // 4])):
        with pm.Model() as model:
            B = pm.Data("B", np.eye(rows.max() + 1)[rows])
            f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=DATA.X[: rows.max() + 1])
            pm.Normal("y", B @ f, pm.HalfNormal("s"), observed=DATA.y)
        marginal = bp.marginalize(bp.Laplace(), model)
        density = marginal.compile_logp(mode="FAST_COMPILE")
        pm.set_data({"B": later}, model=marginal)
        x = DATA.X[: rows.max() + 1]
        K = np.exp(-0.5 * (x - x.T) ** 2) + 1e-6 * np.eye(len(x))
        evidence = multivariate_normal(cov=later @ K @ later.T + np.eye(15)).logpdf(DATA.y)
        assert density({"s_log__": 0.0}) == pytest.approx(evidence + halfnorm.logpdf(1.0), abs=1e-9)
        pm.set_data({"B": np.tril(np.ones((15, 15)))[:, : len(x)]}, model=marginal)
        with pytest.raises(ValueError, match="data that were set later change how rows of y depend on f"):
            density({"s_log__": 0.0})


def test_a_constant_that_was_equal_to_the_inputs_does_not_follow_later_ones():
    x = np.abs(DATA.X) + 0.1
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=pm.Data("x", x))
        pm.Normal("y", f, pm.HalfNormal("s") * x[:, 0], observed=DATA.y)
    marginal = bp.marginalize(bp.Laplace(), model)
    density = marginal.compile_logp(mode="FAST_COMPILE")
    K = np.exp(-0.5 * (x - x.T) ** 2) + 1e-6 * np.eye(15)
    evidence = multivariate_normal(cov=K + np.diag(x[:, 0] ** 2)).logpdf(DATA.y)
    assert density({"s_log__": 0.0}) == pytest.approx(evidence + halfnorm.logpdf(1.0), abs=1e-9)
    pm.set_data({"x": 2.0 * x}, model=marginal)
    with pytest.raises(ValueError, match="inputs that were set later differ from a constant"):
        density({"s_log__": 0.0})


@pytest.mark.parametrize("copy", [clone_model, lambda m: pm.do(m, {"C": 5.0})], ids=["clone", "do"])
def test_copies_work(copy):
    marginal = copy(bp.marginalize(bp.MeanField(), build()))
    assert np.isfinite(marginal.compile_logp()(marginal.initial_point()))


@pytest.mark.slow
def test_sampling_with_f_integrated_out(tmp_path):
    model, method = build(), bp.NUTS(latent=bp.MeanField(), draws=200, tune=300, chains=2)
    result = bp.fit(method, model, random_seed=1, progressbar=False)
    assert result.attrs["inference"] == "NUTS (mean field)"
    posterior = result["posterior"].to_dataset()
    assert posterior["f"].shape == (2, 200, 15)
    assert posterior["twice"].shape == (2, 200, 15)
    new = {"X_new": [[0.0], [30.0]], "y_new": [1.0, 0.0]}
    prediction = bp.predict(result, model=model, **new)
    assert 1.0 < float(prediction["f_variance"][1]) < 3.0
    assert np.isfinite(prediction["y_log_density"]).all()
    elpd = bp.loo(result, model=model)
    assert elpd.n_data_points == 15
    # Weights 1/p(y_i|y_-i, θ) make the mean of p(y_i|y_-i, θ) a harmonic one; PSIS smooths the largest of them.
    given = result["leave_one_out"].to_dataset()["y"]
    harmonic = float(-np.log(np.exp(-given).mean(("chain", "draw"))).sum())
    assert harmonic - 0.1 < elpd.elpd < float(given.mean(("chain", "draw")).sum()) + 0.1
    az.summary(result)
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    back = xr.open_datatree(tmp_path / "result.nc")
    xr.testing.assert_allclose(bp.predict(back.load(), model=model, **new), prediction)


def test_exact_laplace_with_little_smoothness_warns(monkeypatch):
    monkeypatch.setattr(pm, "sample", Mock(side_effect=StopIteration))
    said = pytest.warns(UserWarning, match=r"prefer latent=MeanField\(\) or latent=Laplace\(curvature='local'\)")
    with said, pytest.raises(StopIteration):
        bp.fit(bp.NUTS(latent=bp.Laplace(), nuts_sampler="pymc"), build("laplace"), progressbar=False)


@pytest.mark.slow
def test_solves_that_fail_are_counted():
    X = np.linspace(-3, 3, 10)[:, None]
    variance = {"factor": lambda: pt.sqrt(0.8 - pm.HalfNormal("signal", 1.0))}  # no number beyond 0.8
    model = process_model(soft, X, **variance, C=5.0, observed=np.sin(X[:, 0]))
    method = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=30, tune=30, chains=1)
    with pytest.warns(bp.ConvergenceWarning, match="of them where the log density is -inf"):
        result = bp.fit(method, model, random_seed=1, progressbar=False)
    assert 0 < result.attrs["failed_densities"] <= result.attrs["divergences"]
    assert (result["posterior"]["signal"] < 0.8).all()


@pytest.mark.slow
def test_numpyro_runs():
    """It samples f as well: an evidence has no form in JAX."""
    pytest.importorskip("numpyro")
    method = bp.NUTS(draws=30, tune=30, chains=1, nuts_sampler="numpyro")
    with warnings.catch_warnings(action="ignore"):
        result = bp.fit(method, build(), random_seed=1, progressbar=False)
    assert result["posterior"].to_dataset()["f"].shape == (1, 30, 15)


@pytest.mark.slow
def test_a_pickled_model_has_the_same_density_and_no_compiled_functions():
    model = build()
    bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    marginal = bp.marginalize(bp.MeanField(), model)
    copy = cloudpickle.loads(cloudpickle.dumps(marginal))
    assert source_of(marginal).problem.functions and not source_of(copy).problem.functions
    logp, same = (each.compile_logp(mode="FAST_COMPILE")(marginal.initial_point(0)) for each in (marginal, copy))
    assert logp == same


def test_the_prior_of_one_parameter_of_the_noise_may_depend_on_another():
    with pm.Model() as model:
        epsilon = pm.HalfNormal("epsilon", 0.3)
        C = pm.LogNormal("C", -pt.log(epsilon), 0.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=DATA.X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.5, observed=DATA.y)
    found = bp.marginalize(bp.MeanField(), model)
    density = found.compile_logp(vars=[found["y"]], mode="FAST_COMPILE")({"C_log__": 1.0, "epsilon_log__": -2.0})
    at = {"C": np.exp(1.0), "epsilon": np.exp(-2.0)}
    assert density == pytest.approx(bp.log_evidence(bp.MeanField(), model, hyperparameters=at).value)

"""The front door: one schema for all methods, refusals and warnings."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import laplace, mean_field
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft

POINT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}


def test_every_method_gives_the_same_groups(sinc_results):
    for name, result in sinc_results.items():
        groups = {"posterior", "posterior_predictive", "observed_data", "constant_data"}
        assert groups | {"sample_stats", "latent_posterior"} <= set(result.children)
        assert ("log_likelihood" in result.children) == (name != "MAP")
        assert result.attrs["inference"] == name and "other_methods" not in result.attrs
        assert {"lengthscale", "C", "epsilon", "f"} <= set(result["posterior"].to_dataset().data_vars)
        assert result["posterior"]["f"].sizes["f_dim_0"] == 24
        assert result.attrs["sampling_time"] > 0
        assert result.attrs["converged"] in (0, 1)


def test_approximations_are_those_of_the_array_layer(sinc_model):
    model, _ = sinc_model
    problem = read_model(model)
    K, mean, noise = problem.at(POINT)
    for method, direct in ((bp.Laplace(), laplace), (bp.MeanField(), mean_field)):
        result = bp.fit(method, model, hyperparameters=POINT, progressbar=False)
        expected = direct(K, problem.targets, noise, mean=mean)
        latent = result["latent_posterior"].to_dataset()
        np.testing.assert_allclose(latent["mean"], expected.mean)
        np.testing.assert_allclose(latent["variance"], expected.variance)
        assert result.attrs["log_evidence"] == pytest.approx(expected.log_evidence)
        draws = result["posterior"]["f"].values[0]
        np.testing.assert_allclose(draws.mean(axis=0), expected.mean, atol=5 * np.sqrt(expected.variance.max() / 500))
        np.testing.assert_allclose(draws.var(axis=0) / expected.variance, 1.0, atol=0.35)


def test_map_is_the_mode_without_error_bars(sinc_results):
    result = sinc_results["MAP"]
    np.testing.assert_array_equal(np.ptp(result["posterior"]["f"].values, axis=(0, 1)), 0.0)
    np.testing.assert_array_equal(result["latent_posterior"]["variance"], 0.0)
    same = sinc_results["Laplace"]["latent_posterior"]["mean"]
    np.testing.assert_allclose(result["latent_posterior"]["mean"], same, atol=1e-8)


@pytest.mark.slow_cases("1-1")
@pytest.mark.parametrize(("processors", "side_by_side"), [(1, 1), (2, 2), (16, 3)])
def test_chains_take_every_processor(sinc_model, monkeypatch, processors, side_by_side):
    """PyMC by itself takes half of them, as if the others were hardware threads."""

    class Stop(Exception):
        pass

    def sample(**options):
        raise Stop(options["cores"])

    monkeypatch.setattr("bsvr_pp.inference.sampling.nuts.cpu_count", lambda: processors)
    monkeypatch.setattr(pm, "sample", sample)
    with pytest.raises(Stop, match=f"^{side_by_side}$"):
        bp.fit(bp.NUTS(chains=3), sinc_model[0], progressbar=False)


def test_optima_are_reported(sinc_results):
    optima = sinc_results["Laplace"]["optima"].to_dataset()
    assert optima.sizes["optimum"] == 5
    assert float(optima["objective"][0]) == float(optima["objective"].max())
    assert optima["C"].shape == (5,)


def test_a_discrete_hyperparameter_is_given():
    X = np.linspace(-2, 2, 6)[:, None]
    free = {"ls": lambda: 1.0 + pm.Poisson("degree", 3.0), "C": lambda: pm.LogNormal("C", 0, 1)}
    model = process_model(soft, X, **free, observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, hyperparameters={"degree": 2}, restarts=1, progressbar=False)
    assert result["posterior"].to_dataset()["degree"].values.ravel()[0] == 2


@pytest.mark.slow
def test_non_convergence_is_reported_and_nothing_is_printed_without_a_progress_bar(capfd, caplog):
    model = process_model(soft, np.zeros((1, 1)), C=lambda: pm.LogNormal("C", 0, 1), observed=[0.2])
    with pytest.warns(bp.ConvergenceWarning, match="NUTS did not converge"):
        result = bp.fit(bp.NUTS(draws=10, tune=10, chains=2), model, random_seed=1, progressbar=False)
    assert result.attrs["converged"] == 0 and result.attrs["message"]
    assert not "".join(capfd.readouterr()).strip()  # PyMC before 6.4 ends its absent progress bar with an empty line
    assert not caplog.messages


@pytest.mark.parametrize(
    ("prior", "bad", "good"),
    [
        (lambda: pm.Dirichlet("h", a=np.ones(2))[0], [0.5, 0.9], [0.4, 0.6]),
        (lambda: pm.math.exp(pm.ZeroSumNormal("h", 1.0, shape=3)[0]), [1.0, 1.0, 1.0], [1.0, -2.0, 1.0]),
        (lambda: 1.0 + pm.DiscreteUniform("h", 0, 2), 7, 2),
        (lambda: 0.1 + pm.CustomDist("h", dist=lambda size: pm.Uniform.dist(0, 1, size=size)), 2.0, 0.7),
        (lambda: 0.1 + pm.Uniform("h", 0.0, pm.HalfNormal("end", 1.0)), 2.0, 1.2),
        (lambda: pm.HalfNormal("h", pm.HalfNormal("free", 1.0)), -1.0, 1.0),
        (lambda: pm.Dirichlet("h", a=pm.HalfNormal("free", 1.0, shape=2))[0], [0.5, 0.9], [0.4, 0.6]),
        (lambda: 3.0 + pm.Truncated("h", pm.Normal.dist(0.0, 1.0), upper=1.0), 1.5, -2.0),
    ],
    ids=["simplex", "sum of zero", "discrete", "own", "of another", "scale", "weights", "truncated"],
)
def test_given_values_are_inside_the_support(prior, bad, good):
    X = np.linspace(-2, 2, 6)[:, None]
    model, more = process_model(soft, X, ls=prior, C=5.0, observed=np.sin(X[:, 0])), {}
    if "end" in model.named_vars:
        more["end"] = 1.5
        bp.log_evidence(bp.MeanField(), pm.do(model, {"end": 1.5}), hyperparameters={"h": good})
    if "free" in model.named_vars:
        bp.fit(bp.MAP(), model, hyperparameters={"h": good}, progressbar=False)
    else:
        assert np.isfinite(bp.log_evidence(bp.MeanField(), model, hyperparameters={"h": good} | more).value)
    with pytest.raises(ValueError, match="hyperparameter h must lie inside the support of its prior, got"):
        bp.fit(bp.MAP(), model, hyperparameters={"h": bad} | more)


@pytest.mark.parametrize(
    ("prior", "value"),
    [
        (lambda: pm.ZeroSumNormal("h", 1.0, shape=3), np.round([1 / 3, 1 / 3, -2 / 3], 7)),
        (lambda: pm.CustomDist("h", random=lambda rng=None, size=None: rng.normal(size=size), shape=3), np.ones(3)),
        (lambda: pm.VonMises("h", 0.0, 1.0, shape=3), [-3.0, 0.0, 3.0]),
    ],
)
def test_rounded_values_and_those_without_a_density_are_taken(prior, value):
    X = np.linspace(-2, 2, 6)[:, None]
    model = process_model(soft, X, ls=lambda: 4.0 + prior()[0], C=5.0, observed=np.sin(X[:, 0]))
    assert np.isfinite(bp.log_evidence(bp.MeanField(), model, hyperparameters={"h": value}).value)

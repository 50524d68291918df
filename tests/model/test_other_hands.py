"""Models with the distributions of this package under functions of PyMC and of its extras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

import bsvr_pp as bp
from bsvr_pp.losses import soft_insensitive
from tests.helpers import process_model

N = 6
X = np.linspace(-2.0, 2.0, N)[:, None]
Y = np.sin(X[:, 0]) + np.array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0])
NARROW = {"C": 10.0, "epsilon": 0.1, "beta": 0.3}
SHARE, WIDE = 0.1, 4.0
SHORT = bp.NUTS(draws=10, tune=10, chains=2, cores=1, nuts_sampler="pymc")

pytestmark = [
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore::bsvr_pp.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*number of samples.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def mixture(name: str, f: Any) -> None:
    """A few targets have far wider noise."""
    parts = [bp.SoftInsensitive.dist(f, **NARROW), pm.Normal.dist(f, WIDE)]
    pm.Mixture(name, w=[1 - SHARE, SHARE], comp_dists=parts, observed=Y)


@pytest.mark.slow_cases(
    "EpsilonInsensitive-guess2-fixed2", "SoftInsensitive-guess1-fixed1", "SoftInsensitive-guess0-fixed0"
)
@pytest.mark.parametrize(
    ("distribution", "guess", "fixed"),
    [
        (bp.SoftInsensitive, {"C": 3.0, "epsilon": 0.1}, {"mu": 0.0, "beta": 0.3}),
        (bp.SoftInsensitive, {"C": 3.0}, {"mu": 0.0, "epsilon": 0.2, "beta": 0.3}),
        (bp.EpsilonInsensitive, {"C": 3.0, "epsilon": 0.1}, {"mu": 0.0}),
        (bp.Huber, {"C": 3.0, "epsilon": 0.1}, {"mu": 0.0}),
    ],
)
def test_constrained_priors_have_the_mass(distribution: Any, guess: Any, fixed: Any):
    found = pm.find_constrained_prior(
        distribution, lower=-1.0, upper=1.0, mass=0.9, init_guess=guess, fixed_params=fixed
    )
    made = distribution.dist(**found)
    inside = np.exp(pm.logcdf(made, 1.0).eval()) - np.exp(pm.logcdf(made, -1.0).eval())
    assert abs(inside - 0.9) < 0.01


@pytest.mark.slow
def test_a_mixture_has_the_density_of_its_parts_and_is_sampled():
    model = process_model(mixture, X)
    at = {"f_rotated_": np.linspace(-1.0, 1.0, N)}
    f = model["f"].eval({model["f_rotated_"]: at["f_rotated_"]})
    wide = -0.5 * ((Y - f) / WIDE) ** 2 - np.log(WIDE * np.sqrt(2 * np.pi))
    narrow = soft_insensitive(**NARROW).log_likelihood(Y, f)
    expected = logsumexp([np.log(1 - SHARE) + narrow, np.log(SHARE) + wide], axis=0)
    (density,) = model.compile_fn(model.logp(vars=[model["y"]], sum=False))(at)[:1]
    np.testing.assert_allclose(density, expected, rtol=1e-8)
    result = bp.fit(SHORT, model, progressbar=False, random_seed=1)
    assert "the noise of y is Mixture" in result.attrs["other_methods"]
    with model:
        drawn = pm.sample_posterior_predictive(result, random_seed=1, progressbar=False)
    assert np.isfinite(drawn["posterior_predictive"]["y"]).all()


def test_a_marginalised_indicator_is_that_mixture():
    extras = pytest.importorskip("pymc_extras")
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        gross = pm.Bernoulli("gross", SHARE, shape=N)
        C = pt.switch(pt.eq(gross, 1), 0.5, NARROW["C"])
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=NARROW["epsilon"], beta=NARROW["beta"], observed=Y)
    marginal = extras.marginalize(model, ["gross"])
    at = {"f_rotated_": np.linspace(-1.0, 1.0, N)}
    f = model["f"].eval({model["f_rotated_"]: at["f_rotated_"]})
    each = [soft_insensitive(**NARROW | {"C": C}).log_likelihood(Y, f) for C in (NARROW["C"], 0.5)]
    expected = logsumexp([np.log(1 - SHARE) + each[0], np.log(SHARE) + each[1]], axis=0).sum()
    assert marginal.compile_fn(marginal.logp(vars=[marginal["y"]]))(at) == pytest.approx(expected, rel=1e-8)
    result = bp.fit(SHORT, marginal, progressbar=False, random_seed=1)
    assert result.attrs["other_methods"].startswith("do not apply: the noise of y is Marginal")


@pytest.mark.parametrize("method", ["laplace", pytest.param("pathfinder", marks=pytest.mark.slow)])
def test_fits_of_the_extras_agree_with_ours(method: str):
    extras = pytest.importorskip("pymc_extras")
    model = process_model(bp.SoftInsensitive, X, **NARROW, observed=np.sin(X[:, 0]))
    options = {"draws": 400} if method == "laplace" else {"num_draws": 400, "num_paths": 2}
    theirs = extras.fit(method=method, model=model, random_seed=1, progressbar=False, **options)["posterior"]["f"]
    ours = bp.fit(bp.MAP() if method == "laplace" else bp.MeanField(), model, progressbar=False)["latent_posterior"]
    assert np.abs(theirs.mean(["chain", "draw"]).values - ours["mean"].values).max() < 0.2

"""The schema of results, from posteriors and draws that are made by hand."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.approximations import laplace
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.inference.result import check_match, from_latent, from_samples, log_prior
from bsvr_pp.inference.search.optimize import Optimum
from bsvr_pp.losses import hinge
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft

N = 6
X = np.random.default_rng(0).normal(size=(N, 2))
Y = np.sin(2 * X[:, 0])
LENGTHSCALE = np.array([1.0, 2.0])
POINT = {"lengthscale": LENGTHSCALE, "C": np.array(5.0)}
ATTRIBUTES = {"inference": "Laplace", "log_evidence": -3.0}
OTHER = {"lengthscale": 2 * LENGTHSCALE, "C": np.array(1.0)}
OPTIMA = [Optimum(POINT, -3.0, True, "fine", 20), Optimum(OTHER, -4.0, False, "", 9)]


@pytest.fixture(scope="module")
def problem():
    free = {"ls": lambda: pm.LogNormal("lengthscale", 0.0, 1.0, shape=2), "C": lambda: pm.LogNormal("C", 1.0, 1.5)}
    return read_model(process_model(soft, X, **free, observed=Y))


@pytest.fixture(scope="module")
def posterior(problem):
    K, mean, noise = problem.at(POINT)
    return laplace(K, Y, noise, mean=mean)


@pytest.fixture(scope="module")
def at_lengthscale(problem):
    """The problem whose only free hyperparameter is C."""
    with warnings.catch_warnings(action="ignore"):
        return read_model(pm.do(problem.model, {"lengthscale": LENGTHSCALE}))


def of_posterior(problem, posterior, *, plug_in, optima=OPTIMA):
    rng = np.random.default_rng(0)
    return from_latent(problem, POINT, posterior, optima, ATTRIBUTES, plug_in=plug_in, rng=rng)


def of_draws(problem, chains, draws):
    """Draws made by hand, and their result."""
    rng = np.random.default_rng(0)
    f, C = rng.normal(size=(chains, draws, N)), np.exp(rng.normal(size=(chains, draws)))
    held = {"f": (("chain", "draw", "f_dim_0"), f), "C": (("chain", "draw"), C)}
    if problem.prior.whitened:
        held[problem.prior.whitened] = (("chain", "draw", "v_dim_0"), f + 1)
    stats = xr.Dataset({"diverging": (("chain", "draw"), C > 2.0)})
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset(held), "sample_stats": stats})
    given = {"lengthscale": LENGTHSCALE} if "lengthscale" in problem.model.named_vars else {}
    return f, C, from_samples(problem, samples, given, {"inference": "NUTS"}, rng)


def arrays(tree, group):
    return {str(name): v.values for name, v in tree[group].to_dataset().data_vars.items()}


@pytest.mark.slow
def test_groups_have_the_same_draws(at_lengthscale, problem, posterior):
    made = [of_posterior(problem, posterior, plug_in=plug_in) for plug_in in (True, False)]
    f, C, drawn = of_draws(at_lengthscale, 2, 1100)
    for tree in (*made, drawn):
        coords = {dim: tree["posterior"][dim].values for dim in ("chain", "draw")}
        groups = [name for name, group in tree.children.items() if "draw" in group.coords]
        assert {"posterior", "posterior_predictive"} <= set(groups)
        for name in groups:
            for dim, values in coords.items():
                np.testing.assert_array_equal(tree[name][dim].values, values)
    residual = (arrays(drawn, "posterior_predictive")["y"] - f).reshape(-1, N)
    sd = np.array([at_lengthscale.noise_at({"C": c}).variance ** 0.5 for c in C.ravel()])
    assert (residual / sd[:, None]).std() == pytest.approx(1.0, abs=0.03)


def test_the_log_prior_is_that_of_the_hyperparameters_alone():
    """Of constrained values, also where a prior depends on another hyperparameter."""
    with pm.Model() as model:
        width = pm.HalfNormal("width", 2.0)
        ls, C = pm.LogNormal("lengthscale", 0.0, width, shape=2), pm.Gamma("C", 2.0, 0.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=ls)).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=Y)
    rng = np.random.default_rng(0)
    held = {name: np.exp(rng.normal(size=(2, 3, *shape))) for name, shape in (("width", ()), ("lengthscale", (2,)))}
    held["C"] = np.exp(rng.normal(size=(2, 3)))
    dims = ("chain", "draw", "side")
    drawn = xr.Dataset({name: (dims[: values.ndim], values) for name, values in held.items()})
    found = log_prior(read_model(model), drawn)
    assert set(found.data_vars) == {"width", "lengthscale", "C"}
    np.testing.assert_allclose(found["width"], stats.halfnorm(scale=2.0).logpdf(held["width"]))
    np.testing.assert_allclose(found["C"], stats.gamma(2.0, scale=2.0).logpdf(held["C"]))
    expected = stats.lognorm(held["width"][..., None]).logpdf(held["lengthscale"]).sum(axis=-1)
    np.testing.assert_allclose(found["lengthscale"], expected)


@pytest.mark.slow
def test_labels_have_the_density_of_the_hinge_and_normalised_draws():
    labels = np.where(Y > 0, 1.0, -1.0)
    model = process_model(bp.SVMLabel, X, C=lambda: pm.LogNormal("C", 1.0, 1.5), observed=labels)
    f, C, tree = of_draws(read_model(model), 2, 300)
    expected = [hinge(c).log_density(1 - labels * g) for c, g in zip(C.ravel(), f.reshape(-1, N), strict=True)]
    np.testing.assert_allclose(arrays(tree, "log_likelihood")["y"].reshape(-1, N), expected)
    drawn = arrays(tree, "posterior_predictive")["y"].reshape(-1, N)
    assert set(np.unique(drawn)) == {-1.0, 1.0}
    chance = [label_probability(g, c) for c, g in zip(C.ravel(), f.reshape(-1, N), strict=True)]
    np.testing.assert_allclose((drawn > 0).mean(axis=0), np.mean(chance, axis=0), atol=0.07)


def test_a_result_is_of_this_model(problem, posterior):
    tree = of_posterior(problem, posterior, plug_in=False)
    check_match(problem, tree)

    held = tree["posterior"].to_dataset()
    one_side = r"result has lengthscale of shape \(1,\) and the model \(2,\)"
    for changed, message in (
        (held.drop_vars("C"), "result has no variable 'C'"),
        (held.drop_vars("f"), "result has no variable 'f'"),
        (held.isel(lengthscale_dim_0=slice(1)), one_side),
        (held.isel(f_dim_0=slice(3)), "different numbers of training points"),
    ):
        tree["posterior"] = xr.DataTree(changed)
        with pytest.raises(ValueError, match=message):
            check_match(problem, tree)

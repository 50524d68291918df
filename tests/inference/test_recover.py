"""The latent function given draws of the hyperparameters, against the posterior at each draw."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.losses import soft_insensitive

N = 7
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(X[:, 0])
NEW = np.array([[0.4], [3.0], [30.0]])
C = np.array([[2.0, 5.0, 9.0], [1.0, 20.0, 4.0]])


@pytest.fixture(scope="module")
def marginal():
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=pm.LogNormal("C", 1, 1.5), epsilon=0.1, beta=0.3, observed=Y)
        pm.Deterministic("largest", f.max())
        pm.Deterministic("double", 2 * f)
    return bp.marginalize(bp.MeanField(), model)


def recover(marginal, values=C, **options):
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset({"C": (("chain", "draw"), values)})})
    return bp.recover_latent(samples, model=marginal, random_seed=0, progressbar=False, **options)


def exact(c):
    return mean_field(np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(N), Y, soft_insensitive(c, 0.1, 0.3))


def test_each_draw_has_its_posterior(marginal):
    tree = recover(marginal)
    f = tree["posterior"]["f"].values
    assert f.shape == (2, 3, N)
    assert "f_new" not in tree["posterior"].to_dataset()
    for at in np.ndindex(2, 3):
        expected, noise = exact(C[at]), soft_insensitive(C[at], 0.1, 0.3)
        drawn = {name: v.values[at] for name, v in tree["latent_draws"].to_dataset().data_vars.items()}
        np.testing.assert_allclose(drawn["dual_coef"], expected.dual_coef, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(drawn["site_precision"], expected.site_precision, rtol=1e-4)
        assert drawn["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-5)
        np.testing.assert_allclose(tree["log_likelihood"]["y"].values[at], noise.log_density(Y - f[at]), rtol=1e-6)
        np.testing.assert_allclose(tree["leave_one_out"]["y"].values[at], expected.log_loo(Y, noise), atol=1e-4)
        assert np.all(np.abs(f[at] - expected.mean) < 6 * np.sqrt(expected.variance))
    np.testing.assert_allclose(tree["posterior"]["largest"], f.max(axis=2))
    assert tree["posterior"]["largest"].dims == ("chain", "draw")
    np.testing.assert_allclose(tree["posterior"]["double"], 2 * f)


def test_draws_have_the_moments_of_the_posterior(marginal):
    tree = recover(marginal, np.full((1, 200), 5.0), X_new=NEW)
    posterior = exact(5.0)
    new = posterior.predict(np.exp(-0.5 * (NEW - X.T) ** 2), np.ones(3))
    for name, (mean, variance) in {"f": (posterior.mean, posterior.variance), "f_new": new}.items():
        draws = tree["posterior"][name].values[0]
        np.testing.assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(variance), 0.0, atol=0.25)
        np.testing.assert_allclose(draws.var(axis=0) / variance, 1.0, atol=0.4)


@pytest.mark.slow
def test_new_rows_have_their_own_data():
    """The draws are those of the location."""
    with pm.Model() as model:
        size, f = pm.Data("size", np.ones(N)), bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        bp.SoftInsensitive("y", mu=size * f, C=pm.LogNormal("C", 1, 1.5), epsilon=0.1, beta=0.3, observed=Y)
    marginal = bp.marginalize(bp.MeanField(), model)
    with pytest.raises(ValueError, match="f depends on size, unknown at X_new: give its values"):
        recover(marginal, X_new=NEW)
    each = [recover(marginal, C[:1, :1], X_new=NEW, data={"size": np.full(3, size)}) for size in (1.0, 2.0, 0.0)]
    one, twice, nothing = (tree["posterior"]["mu_new"].values for tree in each)
    np.testing.assert_allclose(twice, 2.0 * one)
    np.testing.assert_allclose(nothing, 0.0, atol=1e-12)


def test_samples_without_the_hyperparameters_are_refused(marginal):
    other = xr.DataTree.from_dict({"posterior": xr.Dataset({"D": (("chain", "draw"), C)})})
    with pytest.raises(ValueError, match="samples must have the hyperparameter 'C' of the model"):
        bp.recover_latent(other, model=marginal)


def test_recovered_draws_have_leave_one_out(marginal):
    tree = recover(marginal, np.full((2, 60), 5.0))
    assert bp.loo(tree).elpd == pytest.approx(exact(5.0).log_loo(Y, soft_insensitive(5.0, 0.1, 0.3)).sum(), abs=1e-3)


def test_new_rows_are_drawn_from_one_function(marginal):
    new = np.array([[0.4], [0.4], [3.0], [3.3]])
    drawn = recover(marginal, np.full((1, 300), 5.0), X_new=new)["posterior"]["f_new"].values[0]
    K, cross = np.exp(-0.5 * (new - new.T) ** 2), np.exp(-0.5 * (new - X.T) ** 2)
    own = np.exp(-0.5 * (X - X.T) ** 2) + np.diag(1e-6 + 1.0 / exact(5.0).site_precision)
    covariance = K - cross @ np.linalg.solve(own, cross.T)
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=1e-4)
    assert np.corrcoef(drawn.T)[2, 3] == pytest.approx(
        covariance[2, 3] / np.sqrt(covariance[2, 2] * covariance[3, 3]), abs=0.05
    )


def test_draws_with_labels_in_another_order_are_refused():
    with pm.Model(coords={"lab": ["north", "east"]}) as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        pm.Normal("y", f, pm.HalfNormal("s", 1.0, dims="lab")[np.arange(N) % 2], observed=Y)
    draws = xr.Dataset({"s": (("chain", "draw", "lab"), [[[0.1, 2.0]]])}, coords={"lab": ["north", "east"]})
    marginal, samples = bp.marginalize(bp.MeanField(), model), xr.DataTree.from_dict({"posterior": draws.sortby("lab")})
    with pytest.raises(ValueError, match=r"s of samples must have the labels \['north', 'east'\] of lab, got"):
        bp.recover_latent(samples, model=marginal, progressbar=False)
